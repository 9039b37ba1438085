"""The page put together. Whoever runs parts gives it what they are, and serves it.

page = Page(Sources(traces=hpa.controller.traces, ...))
async with page.running(), listening(page.desk, port) as url: ...
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from podscale.page import files
from podscale.page.answers import PageAnswers
from podscale.page.board import Board
from podscale.page.desk import Desk
from podscale.page.feedhealth import FeedHealth
from podscale.page.sampler import Sampler
from podscale.page.sources import PageSources
from podscale.page.trail import Trail

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
        self.board = Board()
        self._sources = sources
        feed = FeedHealth(sources.feed)
        self._sampler = Sampler(self.board, feed, sources, wall=wall, period_s=period_s)
        answers = PageAnswers(
            self.board, Trail(lambda: sources.traces), feed, wall=wall, is_leader=sources.is_leader
        )
        self.desk = Desk(answers, files.load())

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
            try:
                yield
            finally:
                looking.cancel()
                if traces is not None:
                    traces.follower = None
