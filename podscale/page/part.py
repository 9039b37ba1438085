"""The page put together, and its requests to replies: the package's files and answers, nothing that
changes anything, all under one policy.

Behind our authentication and authorization as ``routes`` of a part's HTTPS server; without TLS on
the loopback, for whoever sits at this machine. There the Host header must name the loopback, too: a
web page elsewhere can make a browser connect under a name of its own (DNS rebinding), and would
read along.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from msgspec.structs import replace

from podscale.core.loopback import is_loopback
from podscale.page.answers import PageAnswers
from podscale.page.board import WorkloadBoard
from podscale.page.health import FeedHealth
from podscale.page.sampler import PageSources, Sampler
from podscale.page.what_if import WhatIf
from podscale.serving.apis.api import Answered, ApiRequest, ApiResponse, Route
from podscale.serving.http.request import HttpRequest, Peer, Reply
from podscale.serving.http.server import HttpServer, ServerLimits
from podscale.serving.request_info import parse_target

# Nothing from anywhere else, nothing inline: what an API object's name or a metric's label
# could smuggle in has no way to run.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; font-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("X-Frame-Options", "DENY"),
)
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


def load() -> Mapping[str, Reply]:
    """Return the files by name; "" is the page itself. Blocking."""
    found: dict[str, Reply] = {}
    for entry in files("podscale.page").joinpath("static").iterdir():
        suffix = entry.name[entry.name.rfind(".") :]
        if suffix not in TYPES:
            continue
        body = entry.read_bytes()
        etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
        found[entry.name] = Reply(200, TYPES[suffix], body, (*HEADERS, ("ETag", etag)))
    return {**found, "": found["index.html"]}


PREFIX = "/page/"
HOST = "127.0.0.1"
_LIMITS = ServerLimits(connections=200)
_API = "api/"
_TEXT = "text/plain; charset=utf-8"
_METHODS = ("GET", "HEAD")
# What a cache on the way kept, it would show to others, and when it is old.
_FRESH = (*HEADERS, ("Cache-Control", "no-store"))


class PageRequests:
    def __init__(self, answers: PageAnswers, files: Mapping[str, Reply]) -> None:
        self._answers = answers
        self._files = files

    def routes(self) -> list[Route]:
        """Return the routes for a server that knows who asks."""
        return [
            Route("/page", self._routed, _METHODS),
            Route(PREFIX + "*", self._routed, _METHODS, is_listed=False),
        ]

    def reply(
        self, method: str, path: str, query: Mapping[str, Sequence[str]], seen: str = ""
    ) -> Reply:
        """Return the reply to a request; ``seen`` is its If-None-Match."""
        if method not in _METHODS:
            return Reply(405, _TEXT, b"the page can only be read\n", (*HEADERS, ("Allow", "GET")))
        if path == PREFIX[:-1]:
            return Reply(308, _TEXT, b"", (*HEADERS, ("Location", PREFIX)))
        name = path.removeprefix(PREFIX)
        if name.startswith(_API):
            return replace(self._answers.answer(name.removeprefix(_API), query), headers=_FRESH)
        file = self._files.get(name)
        if file is None or not path.startswith(PREFIX):
            return Reply(404, _TEXT, b"nothing has this address; the page is at /page/\n", HEADERS)
        return replace(file, status=304, body=b"") if ("ETag", seen) in file.headers else file

    def _routed(self, request: ApiRequest) -> Answered:
        seen = request.headers.get("if-none-match", "")
        reply = self.reply(request.method, request.path, request.query, seen)
        return ApiResponse(
            reply.body, reply.status, content_type=reply.content_type, headers=reply.headers
        )


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


PERIOD_S = 5.0


class PagePart:
    """One page over the parts of this process."""

    def __init__(
        self,
        sources: PageSources,
        *,
        wall: Callable[[], float] = time.time,
        period_s: float = PERIOD_S,
    ) -> None:
        """Blocking: reads the page's files. ``wall`` is the time decisions are made at;
        ``period_s``, real seconds, is how often usage is looked at.
        """
        self.board = WorkloadBoard()
        self._sources = sources
        feed = FeedHealth(sources.feed)
        self._sampler = Sampler(self.board, feed, sources, wall=wall, period_s=period_s)
        self._what_if = WhatIf(wall)
        answers = PageAnswers(self.board, feed, self._what_if, sources, wall)
        self.desk = PageRequests(answers, load())

    async def look(self) -> None:
        """Look at what nobody tells us, now."""
        await self._sampler.once()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the parts while the block runs."""
        traces = self._sources.traces
        if traces is not None:
            traces.follower = self.board
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._sampler.run(), name="page")
            replaying = group.create_task(self._what_if.run(), name="what-if")
            try:
                yield
            finally:
                looking.cancel()
                replaying.cancel()
                if traces is not None:
                    traces.follower = None
