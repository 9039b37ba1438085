"""One connection against a transport that only records: what is kept, dropped, put off."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from podscale.serving.apis.api import ApiRequest, ApiResponse, Route
from podscale.serving.auth.authentication import Authenticator
from podscale.serving.auth.authorization import Authorizer
from podscale.serving.auth.trust import Trust
from podscale.serving.handler_chain import HandlerChain
from podscale.serving.http.connection import HttpConnection
from podscale.serving.http.parser import SMALL_BODY
from podscale.serving.http.request import NOBODY, HttpRequest, Peer, Reply
from podscale.serving.http.server import HttpServer, ServerLimits
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from tests.unit.serving.kit import Pki, authority
from tests.unit.serving.test_authn import peer
from tests.unit.serving.test_surface import Recorder

GET = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE = 1024 * 1024


class Line(Recorder):
    """A transport that knows whether it is read from."""

    is_read = True
    is_aborted = False

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []  # of what was written

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sizes.append(len(data))
        super().write(data)

    def abort(self) -> None:
        self.is_aborted = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    @property
    def codes(self) -> list[int]:
        """The status codes written so far."""
        return [int(one[:3]) for one in bytes(self.written).split(b"HTTP/1.1 ")[1:]]


class Echo:
    """Answers with the target, at once, or when ``go`` is set."""

    def __init__(self) -> None:
        self.asked: list[HttpRequest] = []
        self.go: asyncio.Event | None = None

    def __call__(
        self, request: HttpRequest, peer: Peer, *, is_full: bool
    ) -> Reply | Coroutine[Any, Any, Reply]:
        self.asked.append(request)
        reply = Reply(200, "text/plain", request.target.encode())
        return reply if self.go is None else self._later(self.go, reply)

    async def _later(self, go: asyncio.Event, reply: Reply) -> Reply:
        await go.wait()
        return reply


def connected(server: HttpServer) -> tuple[HttpConnection, Line]:
    line = Line()
    connection = HttpConnection(server)
    connection.connection_made(line)
    return connection, line


def posted(length: int) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length


def takes_large(_method: str, _target: str, _peer: Peer) -> int:
    return LARGE


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 8193\r\n\r\n", id="get"),
        pytest.param(posted(SMALL_BODY + 1), id="post"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"1000\r\n" + b"x" * 4096 + b"\r\n1001\r\n",
            id="chunked",
        ),
    ],
)
async def test_a_large_body_that_nobody_takes_is_not_kept(sent: bytes) -> None:
    echo = Echo()
    async with HttpServer(echo) as server:
        connection, line = connected(server)
        connection.data_received(sent)
        for _ in range(100):
            connection.data_received(b"x" * 100_000)
        assert connection._parser.buffered == server.held == 0
    assert (line.codes, line.is_closed, echo.asked) == ([413], True, [])


async def test_a_small_body_is_read_whoever_sends_it() -> None:
    echo = Echo()
    async with HttpServer(echo) as server:
        connection, line = connected(server)
        connection.data_received(posted(SMALL_BODY) + b"x" * SMALL_BODY + GET % 1)
    assert [len(one.body) for one in echo.asked] == [SMALL_BODY, 0]
    assert line.codes == [200, 200]


async def test_what_all_connections_hold_together_is_bounded() -> None:
    echo = Echo()
    limits = ServerLimits(held=3 * LARGE)
    async with HttpServer(echo, limits=limits, body_limit=takes_large) as server:
        lines = [connected(server) for _ in range(10)]
        for connection, _ in lines:
            connection.data_received(posted(LARGE))
            connection.data_received(b"x" * (LARGE - 1))
            assert server.held <= limits.held
        assert [line.codes for _, line in lines] == [[]] * 3 + [[503]] * 7
        assert [line.is_closed for _, line in lines] == [False] * 3 + [True] * 7
        small, line = connected(server)
        small.data_received(GET % 1)
        assert line.codes == [200]  # what arrives whole needs no room
        for connection, _ in lines[:2]:
            connection.connection_lost(None)
        lines[2][0].data_received(b"x")
        assert lines[2][1].codes == [200]
        assert server.held == 0
        again, _ = connected(server)
        again.data_received(posted(LARGE) + b"x" * (LARGE - 1))
        assert server.held == LARGE - 1


async def test_unfinished_headers_are_held_too() -> None:
    async with HttpServer(Echo(), limits=ServerLimits(held=100_000)) as server:
        lines = [connected(server) for _ in range(5)]
        for connection, _ in lines:
            connection.data_received(b"GET / HTTP/1.1\r\nA: " + b"x" * 30_000)
        assert [line.codes for _, line in lines] == [[], [], [], [503], [503]]


async def test_a_body_counts_until_its_request_is_answered() -> None:
    echo = Echo()
    echo.go = asyncio.Event()
    async with HttpServer(echo, limits=ServerLimits(held=LARGE), body_limit=takes_large) as server:
        first, answered = connected(server)
        first.data_received(posted(LARGE) + b"x" * LARGE)
        assert server.held == LARGE
        second, refused = connected(server)
        second.data_received(posted(10) + b"x" * 10)
        assert (refused.codes, len(echo.asked)) == ([503], 1)
        first.data_received(GET % 1)
        assert not answered.is_read  # no room for what it did not wait to send
        echo.go.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert answered.codes == [200, 200]
        assert (answered.is_read, server.held) == (True, 0)


async def test_nothing_is_handled_after_connection_close() -> None:
    echo = Echo()
    async with HttpServer(echo) as server:
        connection, line = connected(server)
        last = b"GET /0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        connection.data_received(last + GET % 1)
        connection.data_received(GET % 2)
        assert connection.give_up_at <= server.now() + server.limits.write_s
        assert not line.is_aborted
        connection.give_up()  # the other end does not close
        assert line.is_aborted
    assert [one.target for one in echo.asked] == ["/0"]
    assert (line.codes, line.is_closed) == ([200], True)


async def test_a_large_answer_leaves_in_slices_the_first_with_its_head() -> None:
    body = bytes(range(256)) * 1024

    def large(_request: HttpRequest, _peer: Peer, *, is_full: bool) -> Reply:
        return Reply(200, "text/plain", body)

    async with HttpServer(large) as server:
        connection, line = connected(server)
        last = b"GET /2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        connection.data_received(GET % 1 + last)
        (first,) = line.sizes
        connection.pause_writing()
        await asyncio.sleep(0)
        assert len(line.sizes) == 1
        connection.resume_writing()
        for _ in range(8):
            await asyncio.sleep(0)
    head = bytes(line.written).index(b"\r\n\r\n") + 4
    assert head < first < len(body)
    assert (line.codes, line.is_closed) == ([200, 200], True)
    assert line.written[head:].startswith(body)
    assert line.written.endswith(b"\r\n\r\n" + body)


async def test_a_flood_of_pipelined_requests_lets_others_in_between() -> None:
    echo = Echo()
    async with HttpServer(echo) as server:
        connection, line = connected(server)
        everything = b"".join(GET % number for number in range(8000))
        connection.data_received(everything[:100_000])
        at_first = len(echo.asked)
        assert at_first <= 16
        connection.data_received(everything[100_000:])
        assert (len(echo.asked), line.is_read) == (at_first, False)
        turns = 0
        while len(echo.asked) < 8000:
            before = len(echo.asked)
            await asyncio.sleep(0)
            turns += 1
            assert len(echo.asked) - before <= 16
            assert turns < 10_000
        assert [one.target for one in echo.asked] == [f"/{number}" for number in range(8000)]
        assert (line.is_read, connection.is_busy, server.held) == (True, False, 0)


async def _nothing(_request: ApiRequest) -> ApiResponse:
    return ApiResponse()


def test_large_bodies_are_declared_by_who_takes_them() -> None:
    hook = Route("/", _nothing, ("POST",), is_public=True, body_limit=LARGE)
    known = Route("/known", _nothing, ("POST",), body_limit=LARGE)
    metrics, pki = SelfMetrics(), Pki()
    front = HandlerChain(
        [],
        [hook, known, Route("/page/*", _nothing)],
        Authenticator(Trust((authority(pki.clients),)), None, metrics),
        Authorizer(None, metrics),
        metrics,
    )
    assert front.body_limit("POST", "/?timeout=10s", NOBODY) == LARGE
    # Before the body nobody has shown a token, so a certificate has to say who it is.
    scheduler = peer(pki.clients.issue_cert(common_name="system:kube-scheduler"))
    stranger = peer(pki.proxies.issue_cert(common_name="system:kube-scheduler"))
    limits = [front.body_limit("POST", "/known", one) for one in (scheduler, stranger, NOBODY)]
    assert limits == [LARGE, SMALL_BODY, SMALL_BODY]
    assert front.body_limit("POST", "/elsewhere", scheduler) == SMALL_BODY
    for method, target in [
        ("GET", "/"),
        ("PUT", "/"),
        ("POST", "/page/x"),
        ("POST", "/elsewhere"),
        ("POST", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/rps"),
    ]:
        assert front.body_limit(method, target, NOBODY) == SMALL_BODY, (method, target)
