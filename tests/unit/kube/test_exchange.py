"""Answers as they come over the wire, and connections that end when they like."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscale.kube.connection import Connection
from podscale.kube.credentials import Fixed, Identity
from podscale.kube.errors import NotLeading
from podscale.kube.exchange import Answer, Exchanges, Peer, _Parser
from tests.unit.kube.bytes_served import raw

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n"
)
TRAILERS = CHUNKED[:-2] + b"Expires: 0\r\nEtag: x\r\n\r\n"
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN
NOTHING = b"HTTP/1.1 204 No Content\r\n\r\n"
UNENDED = b"HTTP/1.0 200\r\n\r\nhello"


@pytest.mark.parametrize(
    ("wire", "content"),
    [(PLAIN, b"hello"), (CHUNKED, b"hello"), (TRAILERS, b"hello"), (EARLY, b"hello"),
     (NOTHING, b""), (UNENDED, b"hello")],
    ids=["length", "chunked", "trailers", "early", "nothing", "to-the-end"],
)  # fmt: skip
@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_an_answer_is_the_same_however_it_is_cut(wire: bytes, content: bytes, cuts: list[int]):
    ends = sorted({min(cut, len(wire)) for cut in cuts} | {len(wire)})
    parser, answer, start = _Parser(), None, 0
    for end in ends:
        if end > start:
            assert answer is None  # nothing is whole before its end
            answer = parser.feed(wire[start:end])
        start = end
    if wire is UNENDED:
        assert answer is None
        answer = parser.end()
    assert answer is not None
    assert answer.content == content
    assert parser.is_kept == (wire is not UNENDED)


def test_names_of_headers_are_in_lower_case_and_values_are_bare():
    answer = _Parser().feed(
        b"HTTP/1.1 409 Con flict\r\nRetry-After:  7 \r\nContent-Length: 0\r\n\r\n"
    )
    assert answer == Answer(409, "Con flict", {"retry-after": "7", "content-length": "0"}, b"")


@pytest.mark.parametrize("wire", [
    b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 ok\r\n\r\n", b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"x" * 70_000,
], ids=["protocol", "status", "header", "length", "chunk", "endless"])  # fmt: skip
def test_what_is_no_answer_is_an_error(wire: bytes):
    with pytest.raises(ValueError, match=r"\w"):
        _Parser().feed(wire)


def test_an_answer_with_more_behind_it_ends_its_connection():
    parser = _Parser()
    assert parser.feed(PLAIN + b"HTTP/1.1") is not None
    assert not parser.is_kept


@asynccontextmanager
async def exchanges(**options: float) -> AsyncIterator[Exchanges]:
    made = Exchanges(**{"connect_s": 5.0, "keepalive_s": 60.0} | options)
    yield made
    await made.close()


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answering(seen: list[tuple[int, bytes]], *scripts: list[bytes]) -> Talk:
    """Answer the n-th connection with the n-th list, one entry a request, then close."""
    connections = iter(range(len(scripts)))

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = next(connections)
        for answer in scripts[number]:
            head = await reader.readuntil(b"\r\n\r\n")
            seen.append((number, head))
            writer.write(answer)
            await writer.drain()

    return talk


async def test_a_connection_is_used_again():
    seen: list[tuple[int, bytes]] = []
    async with raw(answering(seen, [PLAIN, CHUNKED, NOTHING])) as url, exchanges() as made:
        for content in (b"hello", b"hello", b""):
            found = await made.send(Peer(url), "GET", "/x", [("A", "b")], None, None)
            assert found.content == content
    assert [number for number, _ in seen] == [0, 0, 0]
    assert seen[0][1].startswith(b"GET /x HTTP/1.1\r\nHost: 127.0.0.1:")
    assert seen[0][1].endswith(b"A: b\r\n\r\n")


@pytest.mark.parametrize(
    "first", [UNENDED, PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")]
)
async def test_a_connection_that_the_server_ends_is_not(first: bytes):
    seen: list[tuple[int, bytes]] = []
    async with raw(answering(seen, [first], [PLAIN])) as url, exchanges() as made:
        for _ in range(2):
            found = await made.send(Peer(url), "GET", "/x", [], None, None)
            assert found.content == b"hello"
    assert [number for number, _ in seen] == [0, 1]


async def test_one_idle_for_too_long_is_not_used_again():
    seen: list[tuple[int, bytes]] = []
    async with (
        raw(answering(seen, [PLAIN, PLAIN], [PLAIN])) as url,
        exchanges(keepalive_s=-1) as made,
    ):
        for _ in range(2):
            await made.send(Peer(url), "PATCH", "/x", [], b"{}", None)
    assert [number for number, _ in seen] == [0, 1]


@pytest.mark.parametrize(
    ("method", "repeats"),
    [("GET", True), ("PUT", True), ("DELETE", True), ("PATCH", False), ("POST", False)],
)
async def test_only_what_may_be_repeated_is_when_a_kept_connection_had_gone(method, repeats):
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # One answer a connection; the next request on it is read and never answered.
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(PLAIN)
        await reader.readuntil(b"\r\n\r\n")

    async with raw(talk) as url, exchanges() as made:
        guarded: list[None] = []
        await made.send(Peer(url), "GET", "/first", [], None, None)
        sending = made.send(Peer(url), method, "/next", [], None, lambda: guarded.append(None))
        if repeats:
            assert (await sending).content == b"hello"
            assert len(guarded) == 2  # each attempt asks whether it may
        else:
            with pytest.raises(ConnectionError):
                await sending
            assert len(seen) == 1


async def test_a_guard_that_objects_sends_nothing_and_leaves_no_connection_behind():
    def object_() -> None:
        raise NotLeading("no")

    seen: list[tuple[int, bytes]] = []
    async with raw(answering(seen, [PLAIN], [PLAIN])) as url, exchanges() as made:
        with pytest.raises(NotLeading):
            await made.send(Peer(url), "PUT", "/x", [], b"{}", object_)
        await made.send(Peer(url), "PUT", "/y", [], b"{}", None)
    assert [head.split()[1] for _, head in seen] == [b"/y"]


async def test_an_answer_cut_short_is_an_error_and_is_not_asked_for_again():
    seen: list[tuple[int, bytes]] = []
    async with raw(answering(seen, [PLAIN[:-1]], [PLAIN])) as url, exchanges() as made:
        with pytest.raises(ConnectionError, match="in the middle"):
            await made.send(Peer(url), "GET", "/x", [], None, None)
    assert len(seen) == 1


async def test_who_gives_up_leaves_no_answer_to_the_next():
    arrived = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/slow" in head:
            arrived.set()
            await reader.read()
            return
        writer.write(PLAIN)

    async with raw(talk) as url, exchanges() as made:
        slow = asyncio.create_task(made.send(Peer(url), "GET", "/slow", [], None, None))
        await arrived.wait()
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        found = await made.send(Peer(url), "GET", "/fast", [], None, None)
        assert found.content == b"hello"


@pytest.mark.parametrize("text", ["a\r\nEvil: 1", "a\nb", "a\0b"])
async def test_a_line_break_in_a_header_is_refused_before_anything_is_sent(text: str):
    async with exchanges() as made:
        with pytest.raises(ValueError, match="line break"):
            await made.send(Peer("http://127.0.0.1:1"), "GET", "/x", [("A", text)], None, None)


async def test_a_path_before_the_api_and_a_query_are_kept():
    seen: list[tuple[int, bytes]] = []
    async with raw(answering(seen, [PLAIN])) as url:
        identity = Identity(f"{url}/k8s/c-1")
        async with Connection(Fixed(identity), user_agent="t") as api:
            await api.request("GET", "/api/v1/pods", query={"labelSelector": "a=b,c in (d)"})
    (line, *_) = seen[0][1].split(b"\r\n")
    assert line == b"GET /k8s/c-1/api/v1/pods?labelSelector=a%3Db%2Cc+in+%28d%29 HTTP/1.1"


async def test_a_proxy_is_asked_instead_of_the_server():
    seen: list[tuple[int, bytes]] = []
    async with raw(answering(seen, [PLAIN])) as url:
        identity = Identity("http://api.invalid:80", proxy=url)
        async with Connection(Fixed(identity), user_agent="t") as api:
            found = await api.request("GET", "/version")
    assert found.body == b"hello"
    assert seen[0][1].startswith(b"GET http://api.invalid")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_refused_connection_is_said_in_words(host: str):
    async with exchanges() as made:
        with pytest.raises(OSError, match=rf"^no connection to {host}:1: connection refused$"):
            await made.send(Peer(f"http://{host}:1"), "GET", "/x", [], None, None)


async def test_connections_of_peers_of_the_past_are_closed_and_forgotten():
    # Renewed credentials come with a TLS context of their own, and make another peer.
    seen: list[tuple[int, bytes]] = []
    scripts = [[PLAIN, PLAIN] for _ in range(3)]
    async with raw(answering(seen, *scripts)) as url, exchanges(keepalive_s=0.05) as made:
        for name in ("old", "older", "new"):
            await made.send(Peer(url, server_hostname=name), "GET", "/x", [], None, None)
            await asyncio.sleep(0.1)
        assert [peer.server_hostname for peer in made._idle] == ["new"]
        assert len(made._open) == 1


async def test_nothing_is_sent_again_after_the_end():
    connections, arrived = 0, asyncio.Event()

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(PLAIN)
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await reader.read()

    async with raw(once) as url, exchanges() as made:
        await made.send(Peer(url), "GET", "/x", [], None, None)
        waiting = asyncio.create_task(made.send(Peer(url), "PUT", "/x", [], b"{}", None))
        await arrived.wait()
        await made.close()
        with pytest.raises(ConnectionError, match="is closed"):
            await waiting
    assert connections == 1
