"""A bare pass-through on aiohttp, the yardstick of fan-in: TLS in, TLS out, the bytes unchanged.

``python -m tests.bench.passthrough PORT CERT KEY CA URL`` serves GETs until it is ended, on uvloop
as the adapter does, without a look at who asks, for what, or at the answer.
"""

import asyncio
import ssl
import sys

import aiohttp
import uvloop
from aiohttp import web

from tests.tools.process import LOOPBACK


async def _serve(port: int, cert: str, key: str, ca: str, url: str) -> None:
    trusted = ssl.create_default_context(cafile=ca)
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(cert, key)
    async with aiohttp.ClientSession(auto_decompress=False) as session:

        async def handle(request: web.Request) -> web.Response:
            async with session.get(f"{url}{request.raw_path}", ssl=trusted) as answer:
                body = await answer.read()
                return web.Response(
                    status=answer.status, body=body, content_type=answer.content_type
                )

        app = web.Application()
        app.router.add_get("/{path:.*}", handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, LOOPBACK, port, ssl_context=own).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), *sys.argv[2:6]))
