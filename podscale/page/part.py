"""The page put together. Whoever runs parts gives it what they are, and serves it.

page = Page(Sources(traces=hpa.controller.traces, ...))
async with page.running(), listening(page.desk, port) as url: ...
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from podscale.page import requests
from podscale.page.answers import PageAnswers
from podscale.page.board import WorkloadBoard
from podscale.page.health import FeedHealth
from podscale.page.requests import PageRequests
from podscale.page.sampler import PageSources, Sampler
from podscale.page.what_if import WhatIf

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
        self.desk = PageRequests(answers, requests.load())

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
