"""The stand-in as a server: its own scraper, its series in memory, Prometheus's API in front.

It has no files and no process of its own: it lives in the sandbox's, on the clock it is given.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Self

from aiohttp import web

from podscale.sandbox.load.exporter import ExposedSample
from podscale.sandbox.promql.api import PromqlApi
from podscale.sandbox.promql.head import STALE, SeriesHead
from podscale.sandbox.promql.values import NAME, Labels, label_set

HOST = "127.0.0.1"
_FORGET_EVERY = 500  # scrapes


class PrometheusStandIn:
    """Serves while the context is open; scrapes ``page`` every ``every_s`` seconds.

    ``page`` takes unix seconds, as ``clock`` returns them; ``every_s`` is of the machine's time.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        page: Callable[[float], Iterable[ExposedSample]] | None = None,
        every_s: float = 1.0,
        head: SeriesHead | None = None,
    ) -> None:
        self.head = head or SeriesHead()
        self._clock = clock
        self._page = page
        self._every_s = every_s
        self._api = PromqlApi(self.head, clock)
        self._last: frozenset[Labels] = frozenset()
        self._scrapes = 0
        self._task: asyncio.Task[None] | None = None
        self._runner: web.ServerRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(
            web.Server(self._api.handle), shutdown_timeout=0.5, access_log=None
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, 0).start()
        self.url = f"http://{HOST}:{self._runner.addresses[0][1]}"
        if self._page is not None:
            self._task = asyncio.create_task(self._scrape_for_ever(), name="scrape")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._runner is not None:
            await self._runner.cleanup()

    def scrape(self) -> None:
        """Take one page: new samples, and markers for series that are gone."""
        if self._page is None:
            return
        now_s = self._clock()
        now_ms = round(now_s * 1000)
        seen = set()
        for sample in self._page(now_s):
            labels = label_set(
                {"job": "sandbox", "instance": "sandbox", **sample.labels, NAME: sample.name}
            )
            self.head.append(labels, now_ms, sample.value)
            seen.add(labels)
        for labels in self._last - seen:
            self.head.append(labels, now_ms, STALE)
        up = label_set({NAME: "up", "job": "sandbox", "instance": "sandbox"})
        self.head.append(up, now_ms, 1.0)
        self._last = frozenset(seen)
        self._scrapes += 1
        if self._scrapes % _FORGET_EVERY == 0:
            self.head.forget(now_ms)

    async def _scrape_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time()
        while True:
            self.scrape()
            at = max(at + self._every_s, loop.time())
            await asyncio.sleep(at - loop.time())
