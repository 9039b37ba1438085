"""``/metrics`` and ``/health-check`` over plain HTTP, where upstream's manifests look for them."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from podscale.serving.monitoring.health import Health

_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


@asynccontextmanager
async def monitored(
    address: str, registry: CollectorRegistry, health: Health
) -> AsyncIterator[int]:
    """Serve while the block runs; yields the port, 0 where ``address`` is empty.

    ``address`` is Go's: ``:8942`` or ``host:port``. Raises ``OSError`` when it is taken and
    ``ValueError`` for what is no address.
    """
    if not address:
        yield 0
        return
    host, port = _split(address)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/metrics":
            body = generate_latest(registry)
            return web.Response(body=body, headers={"Content-Type": _EXPOSITION})
        if request.path == "/health-check":
            alive = health.report("livez")
            text = "OK" if alive.status == 200 else alive.text
            return web.Response(status=alive.status, text=text)
        return web.Response(status=404, text="404 page not found")

    runner = web.ServerRunner(web.Server(answer), access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host or None, port).start()
        except OSError as error:
            # asyncio's text repeats the address as a tuple, or its errno.
            raise OSError(
                f"cannot listen on {address}: {os.strerror(error.errno or 0).lower()} "
                "(--address chooses another)"
            ) from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        raise ValueError(f"--address={address}: expected HOST:PORT or :PORT")
    return host.strip("[]"), int(port)
