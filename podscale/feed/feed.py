"""The feed: many demands in, few queries out.

A demand is answered from its group's snapshot, from a refresh that it joins or causes, or
by its own query (coalescing.md 3 and 4). One feed serves everybody in the process.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Self, TypeVar

import structlog

from podscale.feed.client import PrometheusClient
from podscale.feed.group import Group, Sheet
from podscale.feed.options import FeedOptions
from podscale.feed.plan import Demand
from podscale.feed.queries import Queries
from podscale.feed.reading import Outcome, Reading
from podscale.feed.refresh import Refresh
from podscale.feed.single import Singles
from podscale.feed.stats import FeedStats

T = TypeVar("T")

# A group is forgotten after so many times the period for which a demand is remembered.
FORGOTTEN_PERIODS = 20

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
        self._is_get = client.options.verb == "GET"
        self._queries = Queries(client, options, self.stats)
        self._singles = Singles(self._queries, options, self.stats, clock, self._task)
        self._groups: dict[object, Group] = {}
        self._refreshes: dict[object, list[Refresh]] = {}
        self._tasks = asyncio.TaskGroup()
        self._running: set[asyncio.Task[object]] = set()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop what is running; whoever waits is told to stop as well."""
        for task in self._running:
            task.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def read(
        self, demands: Sequence[Demand], max_age_s: float | None = None
    ) -> list[Outcome]:
        """Return one outcome per demand, in order. Never raises for a failed source.

        ``max_age_s`` narrows ``FeedOptions.max_age_s`` for this call.
        """
        age_s = self.options.max_age_s if max_age_s is None else max_age_s
        age_s = min(age_s, self.options.max_age_s)
        outcomes: list[Outcome | None] = [self._at_once(demand, age_s) for demand in demands]
        waiting = [place for place, outcome in enumerate(outcomes) if outcome is None]
        if len(waiting) == 1:
            outcomes[waiting[0]] = await self._later(demands[waiting[0]], age_s)
        elif waiting:
            async with asyncio.TaskGroup() as tasks:
                found = [tasks.create_task(self._later(demands[place], age_s)) for place in waiting]
            for place, task in zip(waiting, found, strict=True):
                outcomes[place] = task.result()
        return [self._counted(outcome) for outcome in outcomes if outcome is not None]

    def at_once(self, demand: Demand) -> Outcome | None:
        """Return what a snapshot answers; ``None``: only ``read`` can tell."""
        outcome = self._at_once(demand, self.options.max_age_s)
        return None if outcome is None else self._counted(outcome)

    def relisted(self) -> None:
        """Forget demotions and plans nobody wants: call after every relist or reload."""
        oldest = self._clock() - FORGOTTEN_PERIODS * self.options.remembered_s
        for key, group in list(self._groups.items()):
            group.relisted()
            if group.wanted_s < oldest and not self._refreshes.get(key):
                del self._groups[key]
                self._refreshes.pop(key, None)

    def group(self, demand: Demand) -> Group:
        """Return what is remembered of the demand's plan; the first call proves it."""
        key = demand.plan.key
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(demand.plan, self.options, self._clock())
        return group

    def _at_once(self, demand: Demand, max_age_s: float) -> Outcome | None:
        if not self.options.is_coalescing:
            return None
        now_s, group = self._clock(), self.group(demand)
        if not group.remember(demand, now_s):
            return None
        sheet = group.sheet(demand, now_s, max_age_s)
        if sheet is None or not sheet.duplicated.isdisjoint(demand.names):
            return None
        self.stats.hits += 1
        return sheet.reading

    async def _later(self, demand: Demand, max_age_s: float) -> Outcome:
        group = self.group(demand)
        if self.options.is_coalescing and group.remember(demand, self._clock()):
            sheet = group.sheet(demand, self._clock(), max_age_s)
            result = sheet or await self._refreshed(group, demand, max_age_s)
            if isinstance(result, Sheet):
                if result.covers(demand.names) and result.duplicated.isdisjoint(demand.names):
                    return result.reading
            elif result is not None:
                return result
        self.stats.singles += 1
        return await self._singles.read(demand, group.verdict, max_age_s)

    async def _refreshed(
        self, group: Group, demand: Demand, max_age_s: float
    ) -> Sheet | Outcome | None:
        key, now_s = group.plan.key, self._clock()
        running = self._refreshes.setdefault(key, [])
        for refresh in running:
            if refresh.takes(demand.namespace, demand.names, now_s, max_age_s):
                self.stats.merged += 1
                return await refresh.wait(demand.namespace)
        self.stats.misses += 1
        refresh = Refresh(
            group, self._queries, self.stats, self._clock, self._task, is_get=self._is_get
        )
        running.append(refresh)
        self._task(self._run(refresh, running))
        return await refresh.wait(demand.namespace)

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

    def _counted(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Reading):
            self.stats.served(self._clock() - outcome.asked_s)
            self.stats.stale += len(outcome.stale)
        return outcome


async def _guarded(work: Coroutine[object, object, T]) -> T | None:
    try:
        return await work
    except Exception:  # the top of every task: a defect met by one rule must not end the others
        log.exception("a task of the feed failed")
        return None
