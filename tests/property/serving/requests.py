"""Random requests, as they are meant and as they are written."""

from hypothesis import strategies as st
from msgspec import Struct

TOKEN = "!#$%&'*+-.^_`|~0123456789ABCXYZabcxyz"
VISIBLE = "".join(map(chr, range(0x21, 0x7F)))
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Written(Struct, frozen=True):
    """One request: what is meant, and its bytes."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]  # without those of the framing
    body: bytes
    head: bytes
    tail: bytes  # the body as it is on the wire
    is_chunked: bool

    @property
    def wire(self) -> bytes:
        return self.head + self.tail


_names = st.text(TOKEN, min_size=1, max_size=12).map(lambda name: f"X-{name}")
_values = st.text(VISIBLE + "ä \t", max_size=30).map(lambda value: value.strip(" \t"))
_targets = st.text(VISIBLE.replace("#", "").replace("%", ""), max_size=30).map("/".__add__)
_blanks = st.text(" \t", max_size=2)


@st.composite
def written(draw: st.DrawFn) -> Written:
    """Draw a request that nobody may refuse."""
    method, target = draw(st.sampled_from(METHODS)), draw(_targets)
    headers = tuple(draw(st.lists(st.tuples(_names, _values), max_size=5)))
    body = draw(st.binary(max_size=200) | st.just(b"\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n"))
    is_chunked = draw(st.booleans())
    lines = [f"{method} {target} HTTP/1.1".encode(), b"Host: a.example:443"]
    lines += [f"{name}:{draw(_blanks)}{value}".encode() for name, value in headers]
    tail = body
    if is_chunked:
        lines.append(b"Transfer-Encoding: " + draw(st.sampled_from([b"chunked", b"CHUNKed"])))
        tail = _chunks(draw, body)
    elif body or draw(st.booleans()):
        lines.append(b"Content-Length: %d" % len(body))
    return Written(
        method, target, headers, body, b"\r\n".join([*lines, b"", b""]), tail, is_chunked
    )


def _chunks(draw: st.DrawFn, body: bytes) -> bytes:
    pieces = []
    while body:
        size = draw(st.integers(1, len(body)))
        extension = draw(st.sampled_from([b"", b";a", b";a=b", b';a="b;c"']))
        form = draw(st.sampled_from([b"%x", b"%X", b"0%x"]))
        pieces.append((form % size) + extension + b"\r\n" + body[:size] + b"\r\n")
        body = body[size:]
    trailer = draw(st.sampled_from([b"", b"X-Sum: 1\r\n", b"Host: b\r\nAuthorization: c\r\n"]))
    return b"".join([*pieces, b"0\r\n", trailer, b"\r\n"])
