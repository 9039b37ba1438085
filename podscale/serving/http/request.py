"""A request as the rest of the process sees it, made of what llhttp has let pass, and whose it is;
and the reply on its way back.

Refused here is what llhttp would forgive and what somebody else might read differently. Of the peer
nothing is judged yet.
"""

import asyncio
import re
import ssl
from collections.abc import Mapping, Sequence
from email.utils import formatdate
from http import HTTPStatus

import structlog
from msgspec import Struct

from podscale.core.ascii_text import ascii_lower, listed_words, whole_number
from podscale.serving import status
from podscale.serving.status import Status


class Peer(Struct, frozen=True):
    """The other end of a connection, as TLS saw it; nothing here is judged yet."""

    certificate: bytes | None = None  # DER; OpenSSL has chained it to one of our CAs
    chain: tuple[bytes, ...] = ()  # DER of what came with it, the certificate itself first


NOBODY = Peer()


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    """Return the peer of a connection whose handshake is complete."""
    tls = transport.get_extra_info("ssl_object")
    if tls is None:
        return NOBODY
    certificate = tls.getpeercert(binary_form=True)
    if not certificate:
        return NOBODY
    return Peer(certificate, _chain(tls))


def _chain(tls: ssl.SSLObject) -> tuple[bytes, ...]:
    # Public from Python 3.13 on (bytes); before, the same call sits one layer below and
    # hands out certificate objects.
    public = getattr(tls, "get_unverified_chain", None)
    if public is not None:
        return tuple(public())
    inner = getattr(tls, "_sslobj", None)
    listed = inner.get_unverified_chain() if inner is not None else None
    return tuple(ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in listed or ())


VERSIONS = {b"HTTP/1.1": False, b"HTTP/1.0": True}  # and whether it is 1.0
_ABSOLUTE = re.compile(
    r"https?://(?:[\w.~-]+|\[[\da-f:.]+\])(?::\d*)?(?=[/?]|$)", re.IGNORECASE | re.ASCII
)
_NO_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"[\w!$%&'()*+,\-.:;=\[\]~]*", re.ASCII)  # httpguts.ValidHostHeader of Go
_NONE: Mapping[str, tuple[str, ...]] = {}
# Repeating one of these means that somebody wants two readers to differ.
_SINGLE = frozenset(
    {"host", "content-length", "transfer-encoding", "authorization", "content-type"}
)


class HttpRequest(Struct, frozen=True, gc=False):
    method: str
    target: str  # as sent: encoded path and query; origin form
    headers: Mapping[str, str]  # keys in lower case; repeated ones joined by ", "
    repeated: Mapping[str, tuple[str, ...]]  # only headers that came more than once
    body: bytes
    keeps_alive: bool
    is_http10: bool

    def all(self, header: str) -> tuple[str, ...]:
        """Return every value of a header, unjoined: a group's name may hold a comma."""
        several = self.repeated.get(header)
        if several is not None:
            return several
        value = self.headers.get(header)
        return () if value is None else (value,)


class RequestRefusal(Struct, frozen=True):
    """Nothing more is read from this connection; ``status`` is sent and it is closed."""

    status: Status


class RequestHead(Struct, frozen=True, gc=False):
    """A request whose body is still to be read."""

    method: str
    target: str
    headers: Mapping[str, str]
    repeated: Mapping[str, tuple[str, ...]]
    is_http10: bool
    length: int  # of the body, where it is not chunked
    is_chunked: bool


def malformed(message: str) -> RequestRefusal:
    """Return the refusal of what is not HTTP, or not beyond doubt."""
    return RequestRefusal(status.bad_request(f"malformed HTTP request: {message}"))


def read_head(
    line: Sequence[bytes], headers: dict[str, str], several: Mapping[str, Sequence[str]]
) -> RequestHead | RequestRefusal:
    """Return the head with ``line`` (method, target, version), or why it is refused.

    Takes ``headers`` over; ``several`` has every value of those that came more than once.
    """
    method, target = line[0].decode(), line[1].decode()
    if not target.startswith("/"):
        target = _ABSOLUTE.sub("", target, count=1)
        if not target.startswith("/"):
            if target and not target.startswith("?"):
                return malformed("the request target is no path")
            target = f"/{target}"
    if "#" in target or ("%" in target and _NO_ESCAPE.search(target.partition("?")[0])):
        return malformed("the request target holds a fragment, or a % that escapes nothing")
    is_http10 = VERSIONS[line[2]]
    host = headers.get("host")
    if host is None:
        if not is_http10:
            return malformed("the header host is missing")
    elif _HOST.fullmatch(host) is None:
        return malformed("the header host is not a host")
    repeated = _NONE
    if several:
        if not _SINGLE.isdisjoint(several):
            return malformed("a header that may be there once is repeated")
        repeated = {key: tuple(values) for key, values in several.items()}
        headers |= {key: ", ".join(values) for key, values in repeated.items()}
    encoding = headers.get("transfer-encoding")
    # llhttp lets other encodings precede "chunked", and chunks be in HTTP/1.0.
    if encoding is not None and (is_http10 or ascii_lower(encoding) != "chunked"):
        return malformed(f"Transfer-Encoding {encoding[:40]} is not supported here")
    length = whole_number(headers.get("content-length", "0"))
    if length is None:
        return malformed("Content-Length is not a number")
    expected = headers.get("expect")
    if expected is not None and ascii_lower(expected) != "100-continue":
        text = f"the expectation {expected[:40]} cannot be met"
        return RequestRefusal(Status(message=text, code=417))
    return RequestHead(method, target, headers, repeated, is_http10, length, encoding is not None)


def keeps_alive(head: RequestHead) -> bool:
    """Return whether another request may follow on the connection."""
    connection = head.headers.get("connection")
    if connection is None:
        return not head.is_http10
    options = listed_words(connection)
    return "close" not in options and (not head.is_http10 or "keep-alive" in options)


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_REASONS = {code.value: code.phrase for code in HTTPStatus}


def reply_head(
    status: int,
    audit_id: str,
    date: str,
    content_type: str,
    length: int,
    headers: Sequence[tuple[str, str]],
) -> bytes:
    """Return the head of a reply whose body has ``length`` bytes.

    Control characters in a header's value become blanks: what a client, an object or a metric
    brought in must not end a line.
    """
    text = (
        f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\n"
        f"Audit-Id: {audit_id}\r\n"
        "Cache-Control: no-cache, private\r\n"
        f"Date: {date}\r\n"
    )
    if status != 304:
        text += f"Content-Type: {content_type}\r\nContent-Length: {length}\r\n"
    for name, value in headers:
        text += f"{name}: {_CONTROL.sub(' ', value)}\r\n"
    return f"{text}\r\n".encode("latin-1", "replace")


def http_date(unix_s: float) -> str:
    """Return the RFC 9110 form of a time."""
    return formatdate(unix_s, usegmt=True)


class Reply(Struct, frozen=True, gc=False):
    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    closes: bool = False


def encoded(answer: Status, *, closes: bool = False) -> Reply:
    headers: tuple[tuple[str, str], ...] = ()
    if answer.code == 429:
        headers = (("Retry-After", "1"),)
    return Reply(answer.code, "application/json", answer.json(), headers, closes)


def failed(request: HttpRequest) -> Reply:
    """Return the 500 of a request whose exception is being handled, and log it."""
    path = request.target.partition("?")[0]
    structlog.get_logger().exception("RequestFailed", method=request.method, path=path)
    return encoded(status.internal_error("the request could not be answered, see the log"))
