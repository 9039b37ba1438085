"""Requests read from random streams: as written, as h11 reads them, and nothing doubtful."""

import itertools

import h11
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from podscale.serving.http.parser import Parser
from podscale.serving.http.request import HttpRequest, RequestRefusal
from tests.property.serving.requests import Written, written

# Everything that Python's case folding turns into ASCII and that is none.
LOOKALIKES: dict[str, list[str]] = {}
for one in map(chr, range(0x80, 0x110000)):
    for folded in {one.lower(), one.casefold(), one.upper().lower()}:
        if folded.isascii():
            LOOKALIKES.setdefault(folded, []).append(one)
CONTROLS = bytes([*range(0x20), 0x7F])


def read(*pieces: bytes) -> list[HttpRequest | RequestRefusal]:
    """Return what is read of ``pieces``, up to the first refusal."""
    parser, found = Parser(), []
    for piece in pieces:
        parser.feed(piece)
        while (item := parser.next()) is not None:
            found.append(item)
            if isinstance(item, RequestRefusal):
                return found
    return found


def read_by_h11(stream: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Return methods, targets and bodies."""
    reader, found = h11.Connection(h11.SERVER), []
    reader.receive_data(stream)
    while True:
        event = reader.next_event()
        if isinstance(event, h11.Request):
            found.append((event.method, event.target, b""))
        elif isinstance(event, h11.Data):
            method, target, body = found.pop()
            found.append((method, target, body + bytes(event.data)))
        elif isinstance(event, h11.EndOfMessage):
            reader.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
            reader.send(h11.EndOfMessage())
            reader.start_next_cycle()
        else:
            return found


@given(st.lists(written(), min_size=1, max_size=4), st.lists(st.integers(0, 2000), max_size=8))
def test_requests_are_read_as_written_wherever_the_stream_is_cut(
    meant: list[Written], cuts: list[int]
) -> None:
    stream = b"".join(one.wire for one in meant)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    found = read(*(stream[a:b] for a, b in itertools.pairwise(edges)))
    assert len(found) == len(meant)
    for request, one in zip(found, meant, strict=True):
        assert isinstance(request, HttpRequest), request
        assert (request.method, request.target, request.body) == (one.method, one.target, one.body)
        for name in {name.lower() for name, _ in one.headers}:
            values = [value for other, value in one.headers if other.lower() == name]
            assert list(request.all(name)) == values
        assert request.headers["host"] == "a.example:443", "a trailer is no header"
        assert "authorization" not in request.headers


@given(st.lists(written(), min_size=1, max_size=4))
def test_h11_reads_the_same_requests(meant: list[Written]) -> None:
    stream = b"".join(one.wire for one in meant)
    ours = [
        (one.method.encode(), one.target.encode(), one.body)
        for one in read(stream)
        if isinstance(one, HttpRequest)
    ]
    assert ours == read_by_h11(stream)


@given(written(), st.sampled_from(CONTROLS), st.integers(min_value=0), st.booleans())
def test_a_control_character_in_the_head_or_a_trailer_is_never_read_over(
    meant: Written, control: int, place: int, is_inserted: bool
) -> None:
    place %= len(meant.head)
    assume(control != 0x09 and meant.head[place] != control)
    damaged = bytearray(meant.wire)
    damaged[place : place + (not is_inserted)] = bytes([control])
    assume(damaged[place : place + 2] != b"\r\n" or meant.head[place : place + 2] == b"\r\n")
    assume(bytes(damaged[place - 1 : place + 1]) != b"\r\n" or bytes(damaged) == meant.wire)
    found = read(bytes(damaged))
    assert not found or isinstance(found[0], RequestRefusal), found[0]


@given(st.sampled_from(CONTROLS), st.integers(min_value=0), st.booleans())
@example(ord("\n"), 3, True)
@example(ord("\r"), 3, True)
@example(ord("\n"), 20, True)
def test_a_control_character_between_chunks_is_never_read_over(
    control: int, place: int, is_inserted: bool
) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    tail = b'3;a=b;c="d"\r\n...\r\n0\r\nX-Sum: 1\r\nB: c\r\n\r\n'
    place %= len(tail)
    data = range(tail.index(b"."), tail.index(b".") + 3)
    assume(place not in data and not (is_inserted and place == data.stop))
    assume(control != 0x09 and tail[place] != control)
    damaged = bytearray(tail)
    damaged[place : place + (not is_inserted)] = bytes([control])
    found = read(head + damaged)
    assert not found or isinstance(found[0], RequestRefusal), found[0]


def lookalikes(word: str) -> list[str]:
    """Return every spelling of ``word`` with one letter that Python folds to it."""
    return [
        f"{word[:at]}{other}{word[at + 1 :]}"
        for at, plain in enumerate(word)
        for other in LOOKALIKES.get(plain, ())
    ]


def test_there_are_lookalikes() -> None:
    assert lookalikes("chunked") == ["chun\u212aed"]
    assert "clo\u017fe" in lookalikes("close")


@pytest.mark.parametrize("value", [*lookalikes("chunked"), "xchunked", "chunked,", "\u00a0chunked"])
def test_only_chunked_is_chunked(value: str) -> None:
    head = f"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {value}\r\n\r\n0\r\n\r\n"
    assert isinstance(read(head.encode())[0], RequestRefusal)


@given(st.lists(st.text("abcdefghijklmnopqrstuvwxyz-", max_size=8), max_size=3))
@example(["xclose"])
@example(["close-not"])
@example(["not-keep-alive"])
def test_only_close_closes(options: list[str]) -> None:
    assume("close" not in options)
    options += lookalikes("close")
    for first in ("", "Upgrade-Insecure, "):
        head = f"GET / HTTP/1.1\r\nHost: x\r\nConnection: {first}{', '.join(options)}\r\n\r\n"
        request = read(head.encode())[0]
        assert isinstance(request, HttpRequest)
        assert request.keeps_alive
        closing = read(head.replace("Connection: ", "Connection: \tCLOSE ,").encode())[0]
        assert isinstance(closing, HttpRequest)
        assert not closing.keeps_alive
        old = read(head.replace("HTTP/1.1", "HTTP/1.0").encode())[0]
        assert isinstance(old, HttpRequest)
        assert old.keeps_alive is ("keep-alive" in options)


LINES = [
    *(f"{method} {target} HTTP/1.1".encode() for method in ("GET", "HEAD", "POST", "CONNECT")
      for target in ("/a", "/b?c=d", "http://a.example/b")),
    b"GET /a HTTP/1.0", b"GET /a#b HTTP/1.1", b"GET  /a HTTP/1.1", b"get /a HTTP/1.1",
]  # fmt: skip
IDS = ["0123-ab", "4567-cd", "WITH-CAPITALS", "with blank", "", "\x01"]
FIELDS = [
    b"Host: x", b"Host: y", b"Accept: */*", b"X: 1", b"x:2", b" folded", b"Connection: close",
    b"Connection: Upgrade", b"Upgrade: h2c", b"Content-Length: 3", b"Content-Length: 0",
    b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"A:" + b"a" * 2000,
    *(f"{name}: {one}".encode() for one in IDS for name in ("Audit-Id", "audit-id", "X-Audit-Id")),
]  # fmt: skip


@given(
    st.lists(st.sampled_from(LINES), min_size=2, max_size=6),
    st.lists(st.sampled_from(FIELDS), max_size=4),
    st.lists(
        st.tuples(st.sampled_from(["", *IDS]), st.integers(0, 5), st.sampled_from(FIELDS)),
        min_size=6, max_size=6,
    ),
    st.lists(st.booleans(), min_size=6, max_size=6),
)  # fmt: skip
def test_what_came_before_on_a_connection_changes_nothing(
    lines: list[bytes],
    fields: list[bytes],
    others: list[tuple[str, int, bytes]],
    varied: list[bool],
) -> None:
    parser = Parser()
    for line, (audit_id, place, other), is_varied in zip(lines, others, varied, strict=False):
        mine = [b"Host: x", *fields]
        if audit_id:
            mine.insert(place, f"Audit-Id: {audit_id}".encode())
        if is_varied:
            mine.insert(place, other)
        wire = b"\r\n".join([line, *mine, b"", b""])
        alone = read(wire)
        parser.feed(wire)
        assert [parser.next()] == (alone or [None])
        if not alone or isinstance(alone[0], RequestRefusal) or not alone[0].keeps_alive:
            return
