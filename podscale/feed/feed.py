"""The feed: many demands in, few queries out.

A demand is answered from its group's snapshot, from a refresh that it joins or causes, or
by its own query. One feed serves everybody in the process.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Self, TypeVar

import structlog

from podscale.core.boundedcache import BoundedCache
from podscale.core.metrics import SampleGap
from podscale.core.pace import LoopPace
from podscale.core.silences import QueryWindow
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import FeedOptions
from podscale.feed.outage import Outage
from podscale.feed.plan import Demand, Outcome, Reading
from podscale.feed.queries.group import NamespaceRead, QueryGroup
from podscale.feed.queries.queue import Queries
from podscale.feed.queries.refresh import Refresh, Result
from podscale.feed.queries.single_queries import SingleQueries
from podscale.feed.stats import FeedStats

T = TypeVar("T")

# A group is forgotten after so many times the period for which a demand is remembered.
FORGOTTEN_PERIODS = 20
# Clients write selectors, and each is a group: so many bytes of them, then those that nobody
# asked for again go first, and then those wanted longest ago. What a snapshot holds counts only
# in the former: autoscalers' snapshots are the work, whatever they take.
_MOST_BYTES = 32 * 1024 * 1024
_ROW_BYTES = 40  # of an object in a snapshot
_MOST_EMPTY_BYTES = 8 * 1024 * 1024
_EMPTY_BYTES = 400
_EMPTY_AGE_S = 3600.0  # an autoscaler may ask every few minutes only

log = structlog.get_logger(__name__)


class Feed:
    """Answers demands from snapshots, refreshing them in batches. An async context manager."""

    def __init__(
        self,
        client: PrometheusClient,
        options: FeedOptions,
        clock: Callable[[], float] = time.time,  # unix seconds
    ) -> None:
        self.options = options
        self.stats = FeedStats()
        self._clock = clock
        self._client = client
        self._queries = Queries(client, options, self.stats)
        self._singles = SingleQueries(self._queries, options, self.stats, clock, self._task)
        self._groups: dict[object, QueryGroup] = {}
        self._forgot_s = clock()
        self._new_bytes = 0  # of groups made since
        self._refreshes: dict[object, list[Refresh]] = {}
        self._indexes: dict[str, Mapping[str, int]] = {}  # by namespace: rows of its objects
        # Of queries within a gap: the end of the silence after which each gave something, and when
        # it gave nothing the last time before, as its targets were not scraped again yet.
        self._after_silence: BoundedCache[tuple[object, str], tuple[float, float]] = BoundedCache(
            _MOST_EMPTY_BYTES, age_s=_EMPTY_AGE_S
        )
        self._tasks = asyncio.TaskGroup()
        self._running: set[asyncio.Task[object]] = set()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop what is running; whoever waits is told to stop as well."""
        for task in self._running:
            task.cancel()
        await self._tasks.__aexit__(None, None, None)

    def outage(self) -> Outage | None:
        """Return since when and why Prometheus does not answer, if it does not."""
        return self._client.outage.current(self._clock())

    def gap(
        self, demand: Demand, outcome: Outcome, windows: Callable[[], Sequence[QueryWindow]]
    ) -> SampleGap | None:
        """Return when Prometheus was away, if one of the demand's ``windows`` reaches there."""
        silences = self._client.outage.silences
        if not silences.ended:
            return None
        key = demand.plan.key, demand.namespace
        measured_after_s, empty_s = self._after_silence.get(key) or (0.0, 0.0)
        found = silences.gap(windows(), self._clock(), empty_s)
        if found is None or found.until_s == measured_after_s or not isinstance(outcome, Reading):
            return found
        if not len(outcome.values):
            self._after_silence.put(key, (measured_after_s, outcome.asked_s), _EMPTY_BYTES)
        elif outcome.asked_s > found.since_s:
            self._after_silence.put(key, (found.until_s, empty_s), _EMPTY_BYTES)
        return found

    async def read(self, demands: Sequence[Demand]) -> list[Outcome]:
        """Return one outcome per demand, in order. Never raises for a failed source."""
        outcomes: list[Outcome | None] = []
        pace = LoopPace()  # a plan that is new is proved, which takes up to 10 ms
        for demand in demands:
            await pace.rest()
            outcomes.append(self._at_once(demand))
        waiting = [place for place, outcome in enumerate(outcomes) if outcome is None]
        if len(waiting) == 1:
            outcomes[waiting[0]] = await self._later(demands[waiting[0]])
        elif waiting:
            for place, outcome in await self._all_later(demands, waiting):
                outcomes[place] = outcome
        counted = zip(demands, outcomes, strict=True)
        return [self._counted(each, found) for each, found in counted if found is not None]

    def at_once(self, demand: Demand) -> Outcome | None:
        """Return what a snapshot answers; ``None``: only ``read`` can tell."""
        outcome = self._at_once(demand)
        return None if outcome is None else self._counted(demand, outcome)

    def relisted(self) -> None:
        """Forget demotions and plans nobody wants: call after every relist or reload."""
        self._indexes.clear()  # those of namespaces that have gone among them
        self._forget(self._clock())
        for group in self._groups.values():
            group.relisted()

    def group(self, demand: Demand) -> QueryGroup:
        """Return what is remembered of the demand's plan; the first call proves it."""
        key = demand.plan.key
        group = self._groups.get(key)
        if group is None:
            now_s = self._clock()
            is_current = 0.0 <= now_s - self._forgot_s < self.options.remembered_s
            if not is_current or self._new_bytes > _MOST_BYTES // 4:
                self._forget(now_s)
            group = self._groups[key] = QueryGroup(demand.plan, self.options, now_s, self._shared)
            self._new_bytes += group.size + _ROW_BYTES * max(demand.known or 0, len(demand.names))
        return group

    def _forget(self, now_s: float) -> None:
        """Drop plans that nobody wants any more, and more where they take too much."""
        self._forgot_s, self._new_bytes = now_s, 0
        remembered_s = self.options.remembered_s
        total = 0
        # What came never back first, then by when it was wanted last.
        for key, group in sorted(self._groups.items(), key=_precedence, reverse=True):
            age_s = now_s - group.wanted_s
            is_old = age_s > remembered_s * (FORGOTTEN_PERIODS if group.came_back else 1)
            total += group.size + (0 if group.came_back else _ROW_BYTES * group.rows)
            if (is_old or total > _MOST_BYTES // 2) and not self._refreshes.get(key):
                del self._groups[key]
                self._refreshes.pop(key, None)

    def _shared(self, namespace: str, index: Mapping[str, int]) -> Mapping[str, int]:
        # Metrics of the same pods come in the same order; an index is 40 bytes a pod.
        if self._indexes.get(namespace) != index:
            self._indexes[namespace] = index
        return self._indexes[namespace]

    def _at_once(self, demand: Demand) -> Outcome | None:
        if not self.options.is_coalescing:
            return None
        now_s, group = self._clock(), self.group(demand)
        if not group.remember(demand, now_s):
            return None
        snapshot = group.snapshot(demand, now_s)
        if snapshot is None or not snapshot.duplicated.isdisjoint(demand.names):
            return None
        self.stats.hits += 1
        return snapshot.reading

    async def _later(self, demand: Demand) -> Outcome:
        found = self._awaited(demand)
        if isinstance(found, asyncio.Future):
            found = await asyncio.shield(found)
        outcome = _served(found, demand)
        return await self._alone(demand) if outcome is None else outcome

    async def _all_later(
        self, demands: Sequence[Demand], places: Sequence[int]
    ) -> list[tuple[int, Outcome]]:
        """Return the outcomes of the demands at ``places``, each with its place.

        A slot of autoscalers waits for hundreds of namespaces: none of them is a task, only
        each that takes its own query.
        """
        outcomes: list[tuple[int, Outcome]] = []
        waiting: dict[asyncio.Future[Result], list[int]] = {}
        alone: list[tuple[int, asyncio.Task[Outcome]]] = []

        def settle(place: int, found: Result) -> None:
            outcome = _served(found, demands[place])
            if outcome is None:
                alone.append((place, tasks.create_task(self._alone(demands[place]))))
            else:
                outcomes.append((place, outcome))

        def arrived(future: asyncio.Future[Result]) -> None:
            for place in () if future.cancelled() else waiting.get(future, ()):
                settle(place, future.result())

        async with asyncio.TaskGroup() as tasks:
            known: list[tuple[int, Result]] = []
            for place in places:
                found = self._awaited(demands[place])
                if isinstance(found, asyncio.Future):
                    waiting.setdefault(found, []).append(place)
                else:
                    known.append((place, found))
            for place, found in known:
                settle(place, found)
                # A query of its own is written next; one within a namespace takes 3 ms.
                await asyncio.sleep(0)
            futures = list(waiting)
            try:
                for future in futures:
                    future.add_done_callback(arrived)
                if futures:
                    await asyncio.wait(futures)
            finally:
                waiting.clear()  # what arrives while we are cancelled finds nobody
                for future in futures:
                    future.remove_done_callback(arrived)
            if any(future.cancelled() for future in futures):
                raise asyncio.CancelledError
        return [*outcomes, *((place, task.result()) for place, task in alone)]

    async def _alone(self, demand: Demand) -> Outcome:
        self.stats.singles += 1
        return await self._singles.read(demand, self.group(demand).verdict)

    def _awaited(self, demand: Demand) -> Result | asyncio.Future[Result]:
        """Return what a snapshot or a refresh answers, or will; ``None``: its own query does."""
        group, now_s = self.group(demand), self._clock()
        if not self.options.is_coalescing or not group.remember(demand, now_s):
            return None
        snapshot = group.snapshot(demand, now_s)
        if snapshot is not None:
            return snapshot
        running = self._refreshes.setdefault(group.plan.key, [])
        for refresh in running:
            if refresh.takes(demand.namespace, demand.names, now_s):
                self.stats.merged += 1
                return refresh.awaited(demand.namespace)
        if refusal := self._queries.refusal(demand, group.plan.key, now_s):
            return refusal
        self.stats.misses += 1
        refresh = Refresh(group, self._queries, self.stats, self._clock, is_get=self._client.is_get)
        running.append(refresh)
        self._task(self._run(refresh, running))
        return refresh.awaited(demand.namespace)

    async def _run(self, refresh: Refresh, running: list[Refresh]) -> None:
        try:
            await refresh.run(self.options.gather_s)
        finally:
            running.remove(refresh)

    def _task(self, work: Coroutine[object, object, T]) -> asyncio.Task[T | None]:
        task = self._tasks.create_task(_guarded(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def _counted(self, demand: Demand, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Reading):
            self.stats.served(self._clock() - outcome.asked_s)
            if outcome.stale:  # one that nobody asks for has gone, and only a window holds it
                self.stats.stale += sum(name in outcome.stale for name in demand.names or ("",))
        return outcome


def _precedence(item: tuple[object, QueryGroup]) -> tuple[bool, float]:
    group = item[1]
    return group.came_back, group.wanted_s


def _served(found: Result, demand: Demand) -> Outcome | None:
    """Return what a demand is answered by a refresh; ``None``: its own query answers it."""
    if not isinstance(found, NamespaceRead):
        return found
    is_whole = found.covers(demand.names) and found.duplicated.isdisjoint(demand.names)
    return found.reading if is_whole else None


async def _guarded(work: Coroutine[object, object, T]) -> T | None:
    try:
        return await work
    except Exception:  # the top of every task: a defect met by one rule must not end the others
        log.exception("a task of the feed failed")
        return None
