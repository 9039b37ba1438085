"""The page on the loopback, without TLS: for whoever sits at this machine.

The Host header must name the loopback, too: a web page elsewhere can make a browser connect
here under a name of its own (DNS rebinding), and would read along.
"""

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from podscale.core.loopback import is_loopback
from podscale.page.http.requests import PREFIX, PageRequests
from podscale.serving.http.reply import Reply
from podscale.serving.http.request import HttpRequest, Peer
from podscale.serving.http.server import HttpServer, ServerLimits
from podscale.serving.request_info import parse_target

HOST = "127.0.0.1"
_LIMITS = ServerLimits(connections=200)
_TEXT = "text/plain; charset=utf-8"


class Loopback:
    """What answers connections. A ``serving.connection.Respond``."""

    def __init__(self, desk: PageRequests) -> None:
        self._desk = desk

    def __call__(
        self, request: HttpRequest, peer: Peer, *, is_full: bool = False
    ) -> Reply | Coroutine[Any, Any, Reply]:
        if not is_loopback(request.headers.get("host", "")):
            return Reply(421, _TEXT, b"open the page under http://127.0.0.1, not another name\n")
        target = parse_target(request.method, request.target)
        if target.path == "/":
            return Reply(302, _TEXT, b"", (("Location", PREFIX),))
        seen = request.headers.get("if-none-match", "")
        return self._desk.reply(request.method, target.path, target.query, seen)


@asynccontextmanager
async def listening(desk: PageRequests, port: int) -> AsyncIterator[str]:
    """Serve while the block runs; yields the URL. ``port`` 0 is any. Raises OSError."""
    async with HttpServer(Loopback(desk), limits=_LIMITS) as server:
        bound = await server.listen(HOST, port, None)
        yield f"http://{HOST}:{bound}{PREFIX}"
