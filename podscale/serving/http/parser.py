"""HTTP/1.1 requests out of a byte stream. Pure: bytes in, requests or refusals out.

llhttp (through httptools) judges every byte. What it leaves open is decided here: where one
request ends and the next begins, what is read at all before somebody has to answer it, and
what it would forgive. Where two readers of one stream could disagree (RFC 9112, section
11.2) the request is refused and the connection ends.
"""

import re
from collections.abc import Callable
from functools import lru_cache

import httptools

from podscale.serving import status
from podscale.serving.http import request as http

HEADER_LIMIT = 64 * 1024
# What any request may bring, read before it is known who sends it. Who takes more says so.
SMALL_BODY = 8 * 1024
_END = b"\r\n\r\n"
_LONGEST_KEPT = 120
# Bytes of a chunked body for each byte in it: sizes, extensions, line ends. llhttp sets no
# bound; a client that sends single bytes needs 6.
_WIRE_PER_BYTE = 16
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
BodyLimit = Callable[[str, str], int]  # of a method and target as sent: bytes


def small_only(_method: str, _target: str) -> int:
    """Return the limit where nobody takes large bodies. A ``BodyLimit``."""
    return SMALL_BODY


class _Message:
    """What llhttp finds in the request under way; the methods' names are httptools'."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.repeated: dict[str, list[str]] = {}
        self.body = bytearray()
        self.is_head_read = self.is_complete = False

    def clear(self) -> None:
        """Make room for another request."""
        self.headers = {}
        self.is_head_read = self.is_complete = False
        if self.repeated:
            self.repeated = {}
        if self.body:
            self.body = bytearray()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.is_head_read:
            return  # of a trailer: what stands in front of us has not judged it
        # Clients repeat the same headers for ever. Long ones are not kept: tokens are long,
        # and belong in nobody's cache.
        is_short = len(name) + len(value) <= _LONGEST_KEPT
        key, text = _kept_header(name, value) if is_short else _header(name, value)
        headers = self.headers
        if key not in headers:
            headers[key] = text
        else:
            self.repeated.setdefault(key, [headers[key]]).append(text)

    def on_headers_complete(self) -> None:
        """Take the rest for the body."""
        self.is_head_read = True

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_complete = True


class Parser:
    def __init__(self, *, body_limit: BodyLimit = small_only) -> None:
        """``body_limit`` is asked once the header of a request with a body is read."""
        self._limit_of = body_limit
        self._body_limit = 0  # of the request whose body is being read
        self._buffer = bytearray()
        self._scanned = 0  # where the end of the header cannot be: trickled bytes stay linear
        self._message = _Message()
        self._llhttp = httptools.HttpRequestParser(self._message)
        self._head: http.RequestHead | None = None  # of the request whose body is being read
        self._wire = 0  # bytes that the chunked body has taken so far
        self._refusal: http.RequestRefusal | None = None
        self.wants_continue = False  # the client waits for "100 Continue"

    @property
    def buffered(self) -> int:
        """Bytes received and not yet handed out."""
        return len(self._buffer) + len(self._message.body)

    @property
    def is_within_body(self) -> bool:
        """Whether a header is complete and its body is not."""
        return self._head is not None

    def feed(self, data: bytes) -> None:
        """Take received bytes; after a refusal they are dropped."""
        if self._refusal is None:
            self._buffer += data

    def next(self) -> http.HttpRequest | http.RequestRefusal | None:
        """Return the next complete request, a refusal, or None when more bytes are needed."""
        if self._refusal is not None:
            return self._refusal
        if not self._buffer and self._head is None:
            return None
        outcome = self._read_head() if self._head is None else self._read_body(self._head)
        if isinstance(outcome, http.RequestRefusal):
            self._refusal = outcome
            self._head = None
            self._buffer = bytearray()
            self._message.clear()
        return outcome

    def _read_head(self) -> http.HttpRequest | http.RequestRefusal | None:
        buffer = self._buffer
        # RFC 9112, 2.2: an empty line before a request is skipped.
        while buffer.startswith(b"\r\n"):
            del buffer[:2]
        end = buffer.find(_END, self._scanned, HEADER_LIMIT + 4)
        if end < 0:
            if len(buffer) > HEADER_LIMIT:
                return http.RequestRefusal(status.header_too_large())
            # A client that ends its lines with LF alone would otherwise wait for ever.
            if buffer.find(b"\n\n", self._scanned) >= 0:
                return http.malformed("lines must end with CR LF")
            self._scanned = max(0, len(buffer) - 3)
            return None
        self._scanned = 0
        raw = self._take(end + 4)
        words = raw[: raw.index(b"\r\n")].split(b" ")
        # Stricter than llhttp, which skips spaces, and empty lines of any form before these.
        if len(words) != 3 or words[2] not in http.VERSIONS or _TOKEN.fullmatch(words[0]) is None:
            return http.malformed("the first line is not METHOD TARGET HTTP/1.1")
        error = self._judge(raw)
        if isinstance(error, httptools.HttpParserInvalidMethodError):
            return http.RequestRefusal(status.method_not_allowed())
        if error is not None:
            return http.malformed(str(error))
        head = http.read_head(words, self._message.headers, self._message.repeated)
        if isinstance(head, http.RequestRefusal):
            return head
        has_body = head.is_chunked or head.length > 0
        if has_body is self._message.is_complete:
            return http.malformed("a body does not go with Upgrade")  # llhttp does not read it
        return self._open_body(head) if has_body else self._complete(head)

    def _take(self, size: int) -> bytes:
        buffer = self._buffer
        if size == len(buffer):
            self._buffer = bytearray()
            return bytes(buffer)
        with memoryview(buffer) as view:  # a slice would copy a second time
            taken = bytes(view[:size])
        del buffer[:size]
        return taken

    def _judge(self, data: bytes) -> httptools.HttpParserError | None:
        try:
            self._llhttp.feed_data(data)
        except httptools.HttpParserUpgrade:
            # What follows is for llhttp another protocol's. We speak none, and read on.
            self._llhttp = httptools.HttpRequestParser(self._message)
        except httptools.HttpParserError as error:
            # Its traceback would hold these frames, and they it, with all they read, until a
            # collection of everything.
            return error.with_traceback(None)
        return None

    def _open_body(self, head: http.RequestHead) -> http.HttpRequest | http.RequestRefusal | None:
        self._body_limit = limit = self._limit_of(head.method, head.target)
        if head.length > limit:
            return _too_large(limit)
        self._head = head
        self._wire = 0
        self.wants_continue = "expect" in head.headers and not head.is_http10
        return self._read_body(head)

    def _read_body(self, head: http.RequestHead) -> http.HttpRequest | http.RequestRefusal | None:
        message = self._message
        while not message.is_complete:
            size = self._readable(head)
            if not size:
                return None
            self._wire += size
            error = self._judge(self._take(size))
            if len(message.body) > self._body_limit:
                return _too_large(self._body_limit)
            if error is not None:
                return http.malformed(str(error))
            if self._wire > HEADER_LIMIT + _WIRE_PER_BYTE * len(message.body):
                return http.malformed("chunks of next to nothing")
        return self._complete(head)

    def _readable(self, head: http.RequestHead) -> int:
        # How many bytes llhttp may have: those of this body and none of what comes next.
        buffer = self._buffer
        if not head.is_chunked:
            return head.length if len(buffer) >= head.length else 0
        end = buffer.find(_END)
        if end >= 0:
            return end + 4  # the end of this body, or within it
        return len(buffer) - next((n for n in (3, 2, 1) if buffer.endswith(_END[:n])), 0)

    def _complete(self, head: http.RequestHead) -> http.HttpRequest:
        message = self._message
        body = bytes(message.body)
        message.clear()
        self._head = None
        self.wants_continue = False
        return http.HttpRequest(
            head.method, head.target, head.headers, head.repeated, body,
            http.keeps_alive(head), head.is_http10,
        )  # fmt: skip


def _too_large(limit: int) -> http.RequestRefusal:
    return http.RequestRefusal(
        status.request_entity_too_large(f"the body is larger than {limit} bytes")
    )


def _header(name: bytes, value: bytes) -> tuple[str, str]:
    return name.decode().lower(), value.decode("utf-8", "replace").strip(" \t")


@lru_cache(maxsize=2048)
def _kept_header(name: bytes, value: bytes) -> tuple[str, str]:
    return _header(name, value)
