"""The stored histories of one term: read at its start, written while it lasts, flushed at its end.

Histories that cannot be read hold a term up for a minute. Then it begins without them, grows
what may grow, and goes on trying: until it succeeds nothing is stored, because that would be
written over what stands there.
"""

import asyncio

import structlog

from hpa.history.configmaps import HistoryConfigMaps
from hpa.history.memory import HistoryMemory
from hpa.selfmetrics import HpaMetrics
from podscale.kube.client.errors import KubeError, NotLeading
from podscale.kube.leadership.lease import Term

_log = structlog.get_logger()

_PATIENCE_S = 60.0
_PAUSE_S = 1.0  # after a read that failed, doubled ...
_PAUSE_MAX_S = 30.0  # ... up to this
_FLUSH_S = 2.0


class HistoryKeeper:
    """Between the memory and its ConfigMaps; without ``shards`` (shadow) nothing is stored."""

    def __init__(
        self, memory: HistoryMemory, shards: HistoryConfigMaps | None, metrics: HpaMetrics
    ) -> None:
        self._memory = memory
        self._shards = shards
        self._read_at_scrape = metrics.read

    async def read_in_time(self, term: Term) -> None:
        """Take over what is stored, unless that takes for too long."""
        now = asyncio.get_running_loop().time
        began, memory = now(), self._memory
        # Scrapes are answered in a thread without a loop.
        self._read_at_scrape.unread_s = lambda: 0.0 if memory.is_read else now() - began
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._read(term)
        except TimeoutError:
            _log.error(
                "histories not readable: going on without them",
                windows="begin anew",
                policies="longer than this term has lasted allow nothing",
            )

    async def keep(self, term: Term) -> None:
        """Store what changes, for ever, once what is stored has been read."""
        await self._read(term)
        shards = self._shards
        if shards is None:
            return
        now = asyncio.get_running_loop().time
        self._read_at_scrape.unsaved_s = lambda: shards.unsaved_s(now())
        while True:
            try:
                await shards.run()
            except NotLeading:
                await asyncio.sleep(1.0)  # the end of the term is near; the guard said it first

    async def end(self) -> None:
        """Store what waits. On SIGTERM we still lead: the next leader must find everything."""
        self._read_at_scrape.unread_s = self._read_at_scrape.unsaved_s = lambda: 0.0
        if self._shards is None or not self._memory.is_read:
            return
        try:
            async with asyncio.timeout(_FLUSH_S):
                await self._shards.flush()
        except (KubeError, NotLeading, TimeoutError) as error:
            _log.warning("histories not flushed", error=str(error))

    async def _read(self, term: Term) -> None:
        pause_s = _PAUSE_S
        while not self._memory.is_read:
            try:
                if count := await self._memory.load(term.previous_renew_time):
                    _log.info("histories taken over", count=count)
            except KubeError as error:
                _log.warning("histories not readable yet", error=str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_MAX_S)
