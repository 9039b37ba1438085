"""Requests with faults that two readers may take differently."""

from collections.abc import Callable, Iterator
from random import Random

LINES = (
    b"Content-Length: 0000000000000000000005", b"Content-Length: 999999999",
    b"Content-Length: 5", b"Content-Length: 0", b"Content-Length: +5", b"Content-Length: 5, 5",
    b"Content-Length: 0x5", b"Content-Length: 5 ", b"Content-Length : 5", b"Content-Length:\x0b5",
    b"Content-Length: 00005", b"content-length: 3", b"Content_Length: 7", b"Content-Length: ",
    b"Content-Length: 99999999999999999999", b"Content-Length: -1", b"Transfer-Encoding: chunked",
    b"transfer-encoding: CHUNKED", b"Transfer-Encoding : chunked",
    b"Transfer-Encoding: chun\xe2\x84\xaaed", b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: identity",
    b"Transfer-Encoding:\tchunked", b"Transfer-Encoding: \x0bchunked", b"Transfer-Encoding: ",
    b"Transfer-Encoding: \"chunked\"", b"Transfer-Encoding: chunked;q=1", b"TE: chunked",
    b" Transfer-Encoding: chunked", b"\tContent-Length: 5", b"X: y\r\n folded", b"X: y\n",
    b"X-A: b\rTransfer-Encoding: chunked", b"X-A: b\nContent-Length: 5", b"X-A: \0", b"X-A: \x01",
    b"X-A: \x7f", b"X-A: \xff\xfe", b"X\xc3\xa4: b", b"X A: b", b": b", b"X-A", b"X-A:", b"(X): b",
    b"Connection: close", b"Connection: xclose", b"Connection: keep-alive",
    b"Connection: a, CLOSE", b"Connection: clo\xc5\xbfe", b"Connection: upgrade", b"Upgrade: h2c",
    b"Upgrade: websocket", b"Connection: Content-Length", b"Expect: 100-continue",
    b"Expect: 100-continuE", b"Expect: x", b"Host: y", b"Host: a b", b"Host: a/b", b"Host: a@b",
    b"Host: a\xc3\xa4", b"Host:", b"hOST: z", b"Trailer: X-Sum", b"Audit-Id: a\tb",
    b"Authorization: Bearer a", b"Authorization: Bearer b",
)  # fmt: skip
FIRST = (
    b"GET / HTTP/1.1", b"GET  / HTTP/1.1", b"GET\t/ HTTP/1.1", b"GET / HTTP/1.1 ",
    b" GET / HTTP/1.1", b"GET / HTTP/1.0", b"POST / HTTP/1.0", b"GET / HTTP/2.0",
    b"GET / HTTP/1.2", b"GET / HTTP/0.9", b"GET / http/1.1", b"GET /", b"get / HTTP/1.1",
    b"FOO / HTTP/1.1", b"G(T / HTTP/1.1", b"CONNECT a:1 HTTP/1.1", b"CONNECT / HTTP/1.1",
    b"OPTIONS * HTTP/1.1", b"GET * HTTP/1.1", b"GET http://a/b HTTP/1.1", b"GET http://a HTTP/1.1",
    b"GET HTTP://a?b HTTP/1.1", b"GET ftp://a/b HTTP/1.1", b"GET //a/b HTTP/1.1",
    b"GET a HTTP/1.1", b"GET /a%zz HTTP/1.1", b"GET /a?%zz HTTP/1.1", b"GET /a#b HTTP/1.1",
    b"GET /\xc3\xa4 HTTP/1.1", b"GET /a\x01 HTTP/1.1", b"GET /a b HTTP/1.1",
    b"GET http://u@a/b HTTP/1.1", b"GET http:///b HTTP/1.1", b"PRI * HTTP/2.0",
    b"GET /a\\b HTTP/1.1", b"GET /|{}^`\" HTTP/1.1", b"DESCRIBE / HTTP/1.1", b"SOURCE / HTTP/1.1",
    b"QUERY / HTTP/1.1", b"GET / HTTP/01.1", b"GET / HTTP/1.10", b"GET / RTSP/1.0",
)  # fmt: skip
CHUNKS = (
    b"5\r\nhello\r\n", b"5;a=b\r\nhello\r\n", b"5 \r\nhello\r\n", b" 5\r\nhello\r\n",
    b"0x5\r\nhello\r\n", b"5;\r\nhello\r\n", b"5;a\nb\r\nhello\r\n", b"5;a\rb\r\nhello\r\n",
    b"5\nhello\r\n", b"5\r\nhello\n", b"5\r\nhello", b"5\r\nhelloo\r\n", b"05\r\nhello\r\n",
    b"-5\r\nhello\r\n", b"+5\r\nhello\r\n", b"5_0\r\nhello\r\n", b"\r\n", b"0\r\n", b"0\r\n\r\n",
    b"0\r\nX-Sum: 1\r\n\r\n", b"0\r\nX-Sum: 1\n\r\n", b"0\r\nnonsense\r\n\r\n", b"0\n\n",
    b"0\r\n\n", b"0;a\r\n\r\n", b"00000\r\n\r\n", b"fffffffffffffffff5\r\nhello\r\n",
    b"5;a=\"\r\n\r\n\"\r\nhello\r\n", b"5\t;a\r\nhello\r\n", b"0\r\nContent-Length: 5\r\n\r\n",
    b"0\r\nTransfer-Encoding: chunked\r\n\r\n", b"0\r\n X: y\r\n\r\n", b"0\r\nX-A: \x01\r\n\r\n",
    b"0\r\nX A: b\r\n\r\n", b"10000000000000005\r\nhello\r\n", b"5;a=\x01\r\nhello\r\n",
    b"5;\"a\"=b\r\nhello\r\n", b"5;a=b;c\r\nhello\r\n", b"5 ;a\r\nhello\r\n",
)  # fmt: skip
NEWLINES = (b"\n", b"\r", b"\r\r\n", b"\n\r\n", b"\r\n\r\n", b"", b" \r\n", b"\0\r\n")
BYTES = b"\0\t\n\r \x0b\x0c\x1f\x7f\x80\xff:;,\"'%#?/\\0aA"


def _plain(random: Random) -> bytes:
    """Return a request of no fault."""
    kind = random.randrange(4)
    extra = random.choice((b"", b"Accept: */*\r\n", b"X-Remote-Group: a\r\nX-Remote-Group: b\r\n"))
    if kind == 0:
        return b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n" + extra + b"\r\n"
    if kind == 1:
        return b"POST /p HTTP/1.1\r\nHost: x\r\n" + extra + b"Content-Length: 5\r\n\r\nhello"
    if kind == 2:
        old = b"Connection: keep-alive\r\nContent-Length: 5\r\n\r\nhello"
        return b"POST /o HTTP/1.0\r\n" + extra + old
    head = b"PUT /c HTTP/1.1\r\nHost: x\r\n" + extra + b"Transfer-Encoding: chunked\r\n\r\n"
    return head + b"3;e=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-Trailer: t\r\n\r\n"


def _with_line(request: bytes, random: Random) -> bytes:
    """Put a line into the header, or in the place of one."""
    head, end, rest = request.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    at = random.randint(1, len(lines))
    lines[at : at + random.randrange(2)] = [random.choice(LINES)]
    return b"\r\n".join(lines) + end + rest


def _with_first(request: bytes, random: Random) -> bytes:
    return random.choice(FIRST) + request[max(request.find(b"\r\n"), 0) :]


def _with_chunk(request: bytes, random: Random) -> bytes:
    """Put a chunk before, in the place of, or behind the body."""
    head, end, rest = request.partition(b"\r\n\r\n")
    if b"hunked" not in head:
        head += b"\r\nTransfer-Encoding: chunked"
        rest = b"0\r\n\r\n"
    at = rest.find(b"0\r\n\r\n") if random.randrange(2) else 0
    return head + end + rest[:at] + random.choice(CHUNKS) + rest[max(at, 0) :]


def _with_newline(request: bytes, random: Random) -> bytes:
    ends = [at for at in range(len(request) - 1) if request[at : at + 2] == b"\r\n"]
    if not ends:
        return request
    at = random.choice(ends)
    return request[:at] + random.choice(NEWLINES) + request[at + 2 :]


def _with_byte(request: bytes, random: Random) -> bytes:
    at = random.randrange(len(request)) if request else 0
    byte = random.choice(BYTES) if random.randrange(2) else random.randrange(256)
    return request[:at] + bytes([byte]) + request[at + random.randrange(2) :]


def _without(request: bytes, random: Random) -> bytes:
    at = random.randrange(len(request)) if request else 0
    return request[:at] + request[at + random.choice((1, 1, 2, 5)) :]


def _prefixed(request: bytes, random: Random) -> bytes:
    return random.choice((b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\0", b" ", b"hello")) + request


_MUTATIONS: tuple[Callable[[bytes, Random], bytes], ...] = (
    _with_line, _with_line, _with_line, _with_first, _with_chunk, _with_chunk, _with_newline,
    _with_byte, _with_byte, _without, _prefixed,
)  # fmt: skip


def mutated(seed: int) -> Iterator[bytes]:
    """Yield streams for ever: one mutated request each, a good one behind it, some before it."""
    random = Random(seed)
    while True:
        request = _plain(random)
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            request = random.choice(_MUTATIONS)(request, random)
        before = _plain(random) if random.randrange(4) == 0 else b""
        # A reader that sees another end of the body meets the last one elsewhere.
        yield before + request + b"GET /last HTTP/1.1\r\nHost: x\r\n\r\n"
