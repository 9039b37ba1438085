"""Strangers who hold connections: for how long, and whose place they take."""

# A server, then its client: nested blocks read better than one block of both (SIM117); what
# a test waits for lies in the server under test, which has no event for it (ASYNC110).
# ruff: noqa: SIM117, ASYNC110

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscale.serving.apis.api import ApiRequest, ApiResponse
from podscale.serving.http.server import HttpServer, ServerLimits
from podscale.serving.running import RunningServer
from tests.integration.serving.asked import PODS
from tests.unit.serving.http.test_connection import Echo, connected
from tests.unit.serving.kit import Pki, ScriptedApi, Shop, Wire, flags_for, serving, wire

LIMITS = ServerLimits(header_s=0.5, body_s=0.5, idle_s=1.5)
SWEEP_S = 1.0
SLACK_S = 3.0
ASKED = f"GET {PODS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\n\r\n".encode()
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
OPEN = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def pki() -> Pki:
    return Pki()


@pytest.fixture
def api() -> ScriptedApi:
    return ScriptedApi()


@pytest.mark.parametrize(
    ("opening", "dripped", "limit_s"),
    [
        pytest.param(b"", b"\r\n", LIMITS.header_s, id="line-ends"),
        pytest.param(b"", b"GET / HTTP/1.1\r\nA: " + b"b" * 500, LIMITS.header_s, id="header"),
        pytest.param(OPEN, b"1\r\na\r\n", LIMITS.header_s + LIMITS.body_s, id="chunks"),
        pytest.param(
            b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", b"\r\n", LIMITS.idle_s + LIMITS.header_s,
            id="line-ends-after-a-request",
        ),
    ],
)  # fmt: skip
async def test_dripping_buys_no_time(
    tmp_path: Path, pki: Pki, api: ScriptedApi, opening: bytes, dripped: bytes, limit_s: float
) -> None:
    async with serving(flags_for(tmp_path, pki), api, limits=LIMITS) as running:
        async with wire(running.port, pki.client()) as client:
            client.writer.write(opening)
            end = asyncio.create_task(client.reader.read())
            async with asyncio.timeout(limit_s + SWEEP_S + SLACK_S):
                for byte in itertools.cycle(dripped):
                    if running.server.connections or not end.done():
                        client.writer.write(bytes([byte]))
                    await asyncio.sleep(0.1)
                    if end.done():
                        break
    assert not running.server.connections


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"\r", b"\n", b"\r\n", b"G", GET, OPEN, b"1\r\na\r\n", b"0\r\n\r\n"]),
            st.floats(0, 20),
        ),
        max_size=40,
    )
)
def test_between_whole_requests_a_deadline_moves_once_a_phase(
    steps: list[tuple[bytes, float]],
) -> None:
    asyncio.run(_drip(steps))


async def _drip(steps: list[tuple[bytes, float]]) -> None:
    echo = Echo()
    async with HttpServer(echo) as server:
        at = 1000.0
        server._now = lambda: at
        connection, _line = connected(server)
        limits = server.limits
        heard, until = 0, at + limits.header_s + limits.body_s
        for sent, passed_s in steps:
            connection.data_received(sent)
            if connection._closes:
                return
            if len(echo.asked) > heard:
                heard = len(echo.asked)
                until = at + limits.idle_s + limits.header_s + limits.body_s
            assert connection.give_up_at <= until
            at += passed_s
            if connection.give_up_at < at:
                return


class Crowd:
    """Clients of a server with few places."""

    def __init__(self, running: RunningServer, pki: Pki, stack: AsyncExitStack) -> None:
        self.running = running
        self._pki = pki
        self._stack = stack

    async def comes(self, context: ssl.SSLContext | None = None) -> Wire:
        """Return a client whose handshake is done, a stranger by default."""
        made = wire(self.running.port, context or self._pki.client())
        return await self._stack.enter_async_context(made)

    async def proxy(self) -> Wire:
        """Return the aggregator's connection."""
        return await self.comes(self._pki.client(self._pki.proxy()))


@pytest.fixture
async def crowd(tmp_path: Path, pki: Pki, api: ScriptedApi) -> AsyncIterator[Crowd]:
    shop = Shop()
    hanging = asyncio.Event()

    async def hang(_request: ApiRequest) -> Any:
        await hanging.wait()
        return ApiResponse(value={})

    shop.answer = hang
    flags = flags_for(tmp_path, pki)
    async with serving(flags, api, shop, limits=ServerLimits(connections=8)) as running:
        async with AsyncExitStack() as stack:
            yield Crowd(running, pki, stack)
            hanging.set()


async def ended(client: Wire) -> bool:
    """Return whether the server has cut this client off."""
    try:
        async with asyncio.timeout(SLACK_S):
            return await client.reader.read(1) == b""
    except OSError:
        return True


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SLACK_S):
        while not holds():
            await asyncio.sleep(0.01)


async def lives(client: Wire) -> bool:
    """Return whether the server answers; the user counts where a proxy speaks for one."""
    return (await client.get("/livez", X_Remote_User="admin")).code == 200


async def test_the_longest_without_a_request_makes_room(crowd: Crowd) -> None:
    strangers = [await crowd.comes() for _ in range(7)]
    assert await lives(strangers[0])
    for others in range(1, 7):
        assert await lives(await crowd.comes()), "who comes is heard"
        assert await ended(strangers[others])
    assert await lives(strangers[0]), "who asked a moment ago stays"
    assert len(crowd.running.server.connections) <= 8


async def test_who_is_being_answered_keeps_the_place(crowd: Crowd) -> None:
    waiting = await crowd.comes()
    waiting.writer.write(ASKED)
    await until(lambda: crowd.running.server.reading == 1)
    for _ in range(20):
        assert await lives(await crowd.comes())
    assert crowd.running.server.reading == 1


async def test_the_aggregator_keeps_its_place_among_strangers(crowd: Crowd) -> None:
    aggregator = await crowd.proxy()
    for _ in range(30):
        await crowd.comes()
    assert await lives(aggregator)


async def test_the_aggregator_comes_in_where_strangers_hold_every_place(crowd: Crowd) -> None:
    server = crowd.running.server
    busy = [await crowd.comes() for _ in range(7)]
    for client in busy:
        client.writer.write(ASKED)
    await until(lambda: server.reading == 7)
    assert await ended(await crowd.comes()), "none of the strangers may be cut for another"
    assert await lives(await crowd.proxy())
    assert server.reading == 7


async def test_a_certificate_that_nobody_believes_keeps_no_place(crowd: Crowd, pki: Pki) -> None:
    # The proxies' CA signed it, and the name is not the front proxy's.
    other = pki.client(pki.proxies.issue_cert(common_name="somebody"))
    claimant = await crowd.comes(other)
    for _ in range(8):
        await crowd.comes()
    assert await ended(claimant)
