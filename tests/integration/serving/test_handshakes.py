"""The server over real TLS sockets: handshakes that nobody finishes."""

# A server, then its client: nested blocks read better than one block of both (SIM117); what
# a test waits for lies in the server under test, which has no event for it (ASYNC110).
# ruff: noqa: SIM117, ASYNC110

import asyncio
import resource
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podscale.serving.http import listener
from podscale.serving.http.server import HttpServer, ServerLimits
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from tests.unit.serving.kit import Pki, ScriptedApi, flags_for, serving, wire

SLACK_S = 5.0


async def silent(port: int) -> socket.socket:
    """Return a connection whose client never says hello."""
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return sock


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SLACK_S):
        while not holds():
            await asyncio.sleep(0.01)


async def ended(sock: socket.socket) -> bool:
    """Return whether the other end has closed."""
    try:
        async with asyncio.timeout(SLACK_S):
            return await asyncio.get_running_loop().sock_recv(sock, 1) == b""
    except ConnectionResetError:
        return True


async def test_silent_strangers_make_room_for_who_speaks(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    metrics = SelfMetrics()
    flags = flags_for(tmp_path, pki)
    async with serving(flags, api, metrics=metrics, limits=ServerLimits(connections=8)) as running:
        server = running.server
        strangers = [await silent(running.port) for _ in range(8)]
        await until(lambda: len(server.places.handshakes) == 8)
        async with wire(running.port, pki.client()) as first:
            async with wire(running.port, pki.client()) as second:
                assert (await first.get("/livez")).code == 200
                assert (await second.get("/livez")).code == 200
                assert len(server.connections) + len(server.places.handshakes) == 8
                assert [await ended(one) for one in strangers[:2]] == [True, True]
                more = [await silent(running.port) for _ in range(20)]
                await until(lambda: server.failed_handshakes == 22)
                assert len(server.connections) + len(server.places.handshakes) == 8
                assert (await first.get("/livez")).code == 200, "handshakes cut no connection"
        value = metrics.registry.get_sample_value("apiserver_tls_handshake_errors_total")
        assert value == 22
    for sock in (*strangers, *more):
        assert await ended(sock)
        sock.close()


async def test_where_all_connections_speak_a_newcomer_is_turned_away(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    async with serving(
        flags_for(tmp_path, pki), api, limits=ServerLimits(connections=1)
    ) as running:
        async with wire(running.port, pki.client()) as client:
            assert (await client.get("/livez")).code == 200
            late = await silent(running.port)
            assert await ended(late)
            late.close()
            assert (await client.get("/livez")).code == 200
        await until(lambda: not running.server.connections)
        async with wire(running.port, pki.client()) as client:
            assert (await client.get("/livez")).code == 200


async def test_a_handshake_under_way_holds_up_no_end(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    loop = asyncio.get_running_loop()
    async with serving(flags_for(tmp_path, pki), api) as running:
        stranger = await silent(running.port)
        await until(lambda: len(running.server.places.handshakes) == 1)
        begun = loop.time()
    assert loop.time() - begun < SLACK_S
    assert await ended(stranger)
    stranger.close()


async def test_handshakes_are_given_up_in_time(
    tmp_path: Path, pki: Pki, api: ScriptedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_HANDSHAKE_S", 0.2)
    async with serving(flags_for(tmp_path, pki), api) as running:
        stranger = await silent(running.port)
        assert await ended(stranger)
        await until(lambda: not running.server.places.handshakes)
        assert running.server.failed_handshakes == 1
        stranger.close()


@pytest.mark.parametrize(
    ("files", "most"),
    [
        pytest.param(100_000, 20_000, id="the-limit-of-connections"),
        pytest.param(1024, 1024 - 256, id="some-files-are-spared"),
        pytest.param(256, 128, id="where-there-are-few-half-of-them"),
    ],
)
async def test_no_more_is_let_in_than_there_may_be_open_files(
    monkeypatch: pytest.MonkeyPatch, files: int, most: int
) -> None:
    monkeypatch.setattr("podscale.serving.http.server.raise_file_limit", lambda _wanted: files)
    async with HttpServer(lambda *_args, **_more: None) as server:  # type: ignore[arg-type]
        await server.listen("127.0.0.1", 0, None)
        assert server.places.most == most


async def test_what_tls_keeps_for_a_connection_is_bounded(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    async with serving(flags_for(tmp_path, pki), api) as running:
        async with wire(running.port, pki.client()) as client:
            assert (await client.get("/livez")).code == 200
            [connection] = running.server.connections
            transport: Any = connection._transport
            assert transport.get_write_buffer_limits()[1] <= 64 * 1024
            assert transport.get_read_buffer_limits()[1] <= 64 * 1024


async def test_two_full_servers_of_one_process_leave_files_to_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = []

    def raised(_which: int, limit: tuple[int, int]) -> None:
        limits.append(limit)

    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1024, 524_288))
    monkeypatch.setattr(resource, "setrlimit", raised)
    async with HttpServer(lambda *_args, **_more: None) as server:  # type: ignore[arg-type]
        await server.listen("127.0.0.1", 0, None)
        assert limits[0][0] > 2 * server.places.most
