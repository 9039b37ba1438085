"""The server over real TLS sockets: connections that are slow, cut, idle or full."""

# A server, then its client: nested blocks read better than one block of both (SIM117); what
# a test waits for lies in the server under test, which has no event for it (ASYNC110).
# ruff: noqa: SIM117, ASYNC110

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from podscale.serving.apis.api import ApiRequest, ApiResponse
from podscale.serving.http.server import ServerLimits
from tests.integration.serving.asked import PODS
from tests.unit.serving.kit import Pki, ScriptedApi, Shop, Wire, flags_for, serving, wire


async def test_a_client_that_hangs_up_cancels_its_request(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    shop = Shop()
    cancelled = asyncio.Event()

    async def wait(_request: ApiRequest) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    shop.answer = wait
    async with serving(flags_for(tmp_path, pki), api, shop) as server:
        async with wire(server.port, pki.client()) as client:
            client.writer.write(
                f"GET {PODS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\n\r\n".encode()
            )
            while not shop.asked:
                await asyncio.sleep(0.01)
        await asyncio.wait_for(cancelled.wait(), 5)
        while server.server.reading:
            await asyncio.sleep(0.01)


async def test_pipelined_requests_are_answered_in_order(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    shop = Shop()

    async def echo(request: ApiRequest) -> Any:
        await asyncio.sleep(0)
        return ApiResponse(value={"name": request.info.name})

    shop.answer = echo
    async with serving(flags_for(tmp_path, pki), api, shop) as server:
        async with wire(server.port, pki.client()) as client:
            for number in range(50):
                path = PODS.replace("*", str(number))
                client.writer.write(
                    f"GET {path} HTTP/1.1\r\nHost: x\r\n"
                    "Authorization: Bearer admin\r\n\r\n".encode()
                )
            names = [(await client.read()).json["name"] for _ in range(50)]
    assert names == [str(number) for number in range(50)]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 70_000, 431, id="64k-header"),
        pytest.param(b"GET /" + b"a" * 70_000, 431, id="64k-target"),
        pytest.param(b"nonsense\r\n\r\n", 400, id="nonsense"),
        pytest.param(b"GET / HTTP/1.1\n\n", 400, id="bare-lf"),
        pytest.param(b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 400, id="version"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", 400, id="no-host"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", 413, id="body"
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            400,
            id="two-lengths",
        ),
    ],
)
async def test_bad_requests_get_a_status_and_the_connection_ends(
    tmp_path: Path, pki: Pki, api: ScriptedApi, sent: bytes, code: int
) -> None:
    async with serving(flags_for(tmp_path, pki), api) as server:
        async with wire(server.port, pki.client()) as client:
            reply = await client.send(sent)
            assert (reply.code, reply.json["kind"]) == (code, "Status")
            assert await client.reader.read() == b""


async def test_slow_clients_are_given_up(tmp_path: Path, pki: Pki, api: ScriptedApi) -> None:
    limits = ServerLimits(header_s=0.3, body_s=0.3, idle_s=0.6)
    async with serving(flags_for(tmp_path, pki), api, limits=limits) as server:

        async def last_words(*parts: bytes) -> bytes:
            async with wire(server.port, pki.client()) as client:
                for part in parts:
                    client.writer.write(part)
                    await asyncio.sleep(0.05)
                return await asyncio.wait_for(client.reader.read(), 10)

        async with asyncio.TaskGroup() as tasks:
            silent = tasks.create_task(last_words())
            header = tasks.create_task(last_words(b"GET / HTTP/1.1\r\n", b"Host:"))
            body = tasks.create_task(
                last_words(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", b"a")
            )
            idle = tasks.create_task(last_words(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"))
        assert silent.result() == b""
        assert header.result().startswith(b"HTTP/1.1 408 ")
        assert body.result().startswith(b"HTTP/1.1 408 ")
        assert idle.result().startswith(b"HTTP/1.1 200 ")
        assert not server.server.connections


async def test_a_reader_that_stalls_does_not_hold_our_memory(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    shop = Shop()
    shop.answer = lambda _: ApiResponse(body=b"x" * 20_000_000, content_type="text/plain")
    limits = ServerLimits(write_s=0.3)
    async with serving(flags_for(tmp_path, pki), api, shop, limits=limits) as server:
        async with wire(server.port, pki.client()) as client:
            client.writer.write(
                f"GET {PODS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\n\r\n".encode()
            )
            while not server.server.connections or not any(
                connection.is_busy for connection in server.server.connections
            ):
                await asyncio.sleep(0.01)
            async with asyncio.timeout(10):
                while server.server.connections:
                    await asyncio.sleep(0.05)


async def test_the_kernel_keeps_little_for_each_connection(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    async with serving(flags_for(tmp_path, pki), api) as server:
        async with wire(server.port, pki.client()) as client:
            assert (await client.get("/livez")).code == 200
            [listener] = server.server._listeners
            # Linux counts its own overhead in: twice of what is asked for.
            kept = listener.listening.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            assert kept <= 2 * 64 * 1024


async def test_many_idle_connections_cost_nothing_but_themselves(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    context = pki.client()
    async with serving(flags_for(tmp_path, pki), api) as server:

        async def connect() -> Wire:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=context, server_hostname="localhost"
            )
            return Wire(reader, writer)

        clients = []
        for _ in range(10):
            clients += await asyncio.gather(*(connect() for _ in range(20)))
        codes = {(await client.get("/livez")).code for client in clients}
        assert codes == {200}
        for client in clients:
            client.writer.close()
