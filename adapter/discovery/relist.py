"""Keeps the list of metrics: asks Prometheus for the series of every rule, again and again.

Each seriesQuery is asked once for all rules that share it, on its own: a rule that fails
keeps its last good list, holds nobody up (upstream discards everybody's) and is asked
again soon, not at the next relist only. Hands out immutable ``MetricRegistry`` values.
"""

import asyncio
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import structlog
from msgspec import Struct, structs

from adapter.discovery.registry import MetricRegistry, RuleState, merging
from adapter.discovery.rule_scope import MOST_METRICS, RuleScope, is_behind, renewed, with_missing
from adapter.discovery.series_lists import ListedSeries, Lister, bug, listed
from adapter.rules.ruleset import SECTIONS, Rule, RuleSet
from podscale.core.pace import LoopPace
from podscale.feed.http.client import SeriesAnswer
from podscale.feed.queries.queue import FairSemaphore

log = structlog.get_logger(__name__)

_MOST_TOGETHER = 60  # namespaces in one request: names of 63 letters make a URL of 4 KB
_RETRY_LEAST_S, _RETRY_MOST_S = 1.0, 30.0

_Listed = tuple[str, str]  # source and seriesQuery, for all rules that share them


class RelistOptions(Struct, frozen=True):
    """When and how far back."""

    interval_s: float = 600.0
    max_age_s: float = 0.0  # 0: the interval
    grace_s: float = 0.0  # a name that has gone is listed this much longer
    in_flight: int = 4
    jitter: float = 0.1  # up to this part of the interval earlier, never later

    @property
    def reach_s(self) -> float:
        return self.max_age_s or self.interval_s


class Relister:
    """The lists of custom and external metrics, and the loop that renews them."""

    def __init__(
        self,
        lister: Lister,
        rules: RuleSet,
        options: RelistOptions,
        *,
        listed: Callable[[RuleState, float], None] | None = None,
        renewed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._lister = lister
        self.options = options
        self._listed = listed
        self._renewed = renewed
        self._clock = clock
        self._slots: dict[str, FairSemaphore] = {}  # by source; namespaces take turns
        self._scopes = {"": RuleScope(rules)}  # by namespace
        # Namespace and id of the rules that share a series query.
        self._sharing: dict[_Listed, dict[tuple[str, str], None]] = {}
        self._asking: set[_Listed] = set()  # series queries on their way
        self._insisting: set[_Listed] = set()  # those that ``_insist`` sees to
        self._behind: dict[_Listed, None] = {}  # those of which something is new or has failed
        self._is_behind = asyncio.Event()
        self._replacing = asyncio.Lock()
        self._publishing = asyncio.Lock()
        self._unpublished: dict[str, None] = {}  # namespaces of which something was listed
        self._gathering = asyncio.Lock()
        self._share("", self._scopes[""])
        states = tuple(self._scopes[""].states.values())
        self._own: dict[str, dict[str, MetricRegistry]] = {section: {} for section in SECTIONS}
        self.custom, self.external = (
            MetricRegistry(
                states=(own := tuple(_of(section, states))), waiting=own[::-1], within=within
            )
            for section, within in self._own.items()
        )

    async def replace(self, rules: RuleSet, namespace: str = "") -> None:
        """Work with other rules from now on: ("") those of everywhere, or a namespace's own.
        Prometheus is not waited for, nor is anything of another namespace touched.

        A rule that was there before keeps its list, wherever it stands now. What has gone
        serves on, behind the others, until every rule that has come from the same file or
        object is listed: a reload interrupts nothing, and in an outage takes nothing away.
        """
        async with self._replacing:
            before = self._scopes.get(namespace, RuleScope(RuleSet.empty()))
            scope = await before.replaced(rules)
            self._unshare(namespace, before)
            self._scopes[namespace] = scope
            self._share(namespace, scope)
            await self._publish(namespace)
            if namespace and not scope.states:
                del self._scopes[namespace]
        self._renewed()
        self._fall_behind(
            state.rule.listed_by for state in scope.states.values() if is_behind(state)
        )

    @property
    def is_tried(self) -> bool:
        """Whether every rule is listed, or has failed to be."""
        scopes = self._scopes.values()
        return all(s.listing or s.failure for scope in scopes for s in scope.states.values())

    @property
    def states(self) -> dict[str, RuleState]:
        """What is known about each rule of everywhere, by its id."""
        return self._scopes[""].states

    def state(self, rule: Rule) -> RuleState | None:
        """Return what is known about a rule; ``None``: it is not worked with."""
        scope = self._scopes.get(rule.namespace)
        found = None if scope is None else scope.states.get(rule.id)
        return found if found is not None and found.rule is rule else None

    async def run(self) -> None:
        """Relist for ever; ends only by cancellation."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew())
            group.create_task(self._catch_up())

    async def relist(self) -> None:
        """Ask for every seriesQuery once; never raises for a failed one."""
        async with asyncio.TaskGroup() as group:
            for source in self._sources():
                group.create_task(self._relist(source))

    def _sources(self) -> set[str]:
        return {"", *(source for source, _ in self._sharing)}

    async def _relist(self, source: str) -> None:
        await self._list_each([query for query in self._sharing if query[0] == source])
        self._renewed()

    async def _list_each(self, queries: Iterable[_Listed]) -> None:
        """Ask for these of one source, as many of a namespace at a time as may be."""
        requests: dict[str, list[list[_Listed]]] = defaultdict(list)
        for together in sorted(self._asked_together(queries), key=len):
            # What several ask for waits where the fewest wait.
            together.sort(key=lambda query: len(requests[self._namespace(query)]))
            requests[self._namespace(together[0])].append(together)

        async def work(waiting: Iterator[list[_Listed]]) -> None:
            for each in waiting:
                if left := [query for query in each if query not in self._asking]:
                    await self._list(*left)

        async with asyncio.TaskGroup() as group:
            for own in requests.values():
                waiting = iter(own)
                for _ in own[: self.options.in_flight]:
                    group.create_task(work(waiting))
        await self._publish_listed()

    def _asked_together(self, queries: Iterable[_Listed]) -> Iterator[list[_Listed]]:
        """Yield what one request asks for: rules of many namespaces may write the same query."""
        shared: dict[tuple[str, str], list[_Listed]] = {}
        for query in list(queries):
            rule = next((state.rule for state in self._states(query)), None)
            if rule is None or rule.confinement is None:
                yield [query]
            else:
                shared.setdefault((rule.confinement.label, rule.open_query), []).append(query)
        for own in shared.values():
            yield from (own[at : at + _MOST_TOGETHER] for at in range(0, len(own), _MOST_TOGETHER))

    async def _renew(self) -> None:
        """Relist the rules of each source at its own pace: one that hangs holds nobody up."""
        renewing: set[str] = set()

        async def renew(source: str) -> None:
            while source in self._sources():
                await self._relist(source)
                await self._pause()
            renewing.discard(source)

        async with asyncio.TaskGroup() as group:
            while True:
                for source in self._sources() - renewing:
                    renewing.add(source)
                    group.create_task(renew(source), name=f"relist {source}")
                await self._pause()

    async def _pause(self) -> None:
        options = self.options
        await asyncio.sleep(options.interval_s * (1 - options.jitter * random.random()))

    async def _catch_up(self) -> None:
        """See to what is new or has failed, each seriesQuery at its own pace."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._is_behind.wait()
                self._is_behind.clear()
                behind, self._behind = self._behind, {}
                fresh: dict[str, list[_Listed]] = {}
                for query in behind.keys() - self._insisting:
                    self._insisting.add(query)
                    if any(state.failure is not None for state in self._states(query)):
                        group.create_task(self._insist(query))
                    else:
                        fresh.setdefault(query[0], []).append(query)
                for queries in fresh.values():
                    group.create_task(self._list_first(queries))

    async def _list_first(self, queries: Sequence[_Listed]) -> None:
        """Ask for what is new, and leave what fails to ``_insist``."""
        try:
            await self._list_each(queries)
            self._renewed()
        finally:
            self._insisting.difference_update(queries)
        left = [query for query in queries if any(map(is_behind, self._states(query)))]
        if any(state.failure is None for query in left for state in self._states(query)):
            await asyncio.sleep(_RETRY_LEAST_S)  # a relist is asking for it
        self._fall_behind(left)

    async def _insist(self, query: _Listed) -> None:
        """Ask until ``query`` is listed, ever less often."""
        try:
            tries = 0
            while behind := [state for state in self._states(query) if is_behind(state)]:
                if all(state.failure is not None for state in behind):
                    await asyncio.sleep(_pause_s(tries, behind))
                    tries += 1
                if query in self._asking:  # a relist was faster
                    await asyncio.sleep(_RETRY_LEAST_S)
                elif any(is_behind(state) for state in self._states(query)):
                    await self._list(query)
                    await self._publish_listed()
                    if not any(is_behind(state) for state in self._states(query)):
                        self._renewed()
        finally:
            self._insisting.discard(query)

    def _states(self, query: _Listed) -> list[RuleState]:
        found = self._sharing.get(query, {})
        return [self._scopes[namespace].states[rule] for namespace, rule in found]

    def _namespace(self, query: _Listed) -> str:
        return next((namespace for namespace, _ in self._sharing.get(query, ())), "")

    def _share(self, namespace: str, scope: RuleScope) -> None:
        for state in scope.asked():
            sharing = self._sharing.setdefault(state.rule.listed_by, {})
            sharing[namespace, state.rule.id] = None

    def _unshare(self, namespace: str, scope: RuleScope) -> None:
        for state in scope.asked():
            sharing = self._sharing[state.rule.listed_by]
            del sharing[namespace, state.rule.id]
            if not sharing:
                del self._sharing[state.rule.listed_by]

    def _fall_behind(self, queries: Iterable[_Listed]) -> None:
        self._behind.update(dict.fromkeys(queries))
        self._is_behind.set()

    async def _list(self, *queries: _Listed) -> None:
        """Ask for one seriesQuery, for all rules that share it; or for several of one source
        together, and for what that does not tell one by one."""
        self._asking.update(queries)
        try:
            source, most = queries[0][0], self.options.in_flight
            slots = self._slots.setdefault(source, FairSemaphore(most, most))
            async with slots.place(self._namespace(queries[0]), "", None):
                started, now = time.monotonic(), self._clock()
                states = {query: own for query in queries if (own := self._states(query))}
                found = await listed(self._lister, [*states.values()], now - self.options.reach_s)
                alone = [query for query, each in zip(states, found, strict=True) if each is None]
                for query, outcome in zip(states, found, strict=True):
                    if outcome is not None:
                        await self._take(query, outcome, started, now)
        finally:
            self._asking.difference_update(queries)
        if not self._gathering.locked():  # else it is seen to
            await self._publish_listed()
        for query in alone:
            await self._list(query)

    async def _take(
        self, query: _Listed, outcome: ListedSeries, started: float, now: float
    ) -> None:
        """Work off what was answered, for all rules that share the query."""
        behind = False
        changed: dict[str, None] = {}
        for before in self._states(query):
            rule = before.rule
            state = await self._state(before, outcome, now)
            if self.state(rule) is None:
                continue  # replaced while we worked
            self._scopes[rule.namespace].states[rule.id] = state
            if self._listed is not None:
                self._listed(state, time.monotonic() - started)
            if state.listing is not before.listing or state.failure is not before.failure:
                changed[rule.namespace] = None
            behind = behind or is_behind(state)
        self._unpublished |= changed
        if behind:
            self._fall_behind([query])

    async def _state(self, before: RuleState, outcome: ListedSeries, now: float) -> RuleState:
        """Return what is known of a rule now; a failed list leaves the one before."""
        if isinstance(outcome, SeriesAnswer):
            try:
                most = self._most(before.rule)
                return await renewed(before, outcome, now, self.options.grace_s, most)
            except Exception as error:  # noqa: BLE001 - one list must not end all
                outcome = bug("working off its series failed", error, [before])
        # Attempts are many while Prometheus is down: each is counted, only news are told.
        is_news = before.failure is None or before.failure.message != outcome.message
        tell = log.warning if is_news else log.debug
        tell("relist failed", rule=before.rule.id, stage=outcome.stage, error=outcome.message)
        return structs.replace(before, failure=outcome)

    def _most(self, rule: Rule) -> float:
        """Return how many metrics a rule may list beside the others of its namespace."""
        if not rule.namespace:
            return math.inf
        states = self._scopes[rule.namespace].states.values()
        others = (s.listing for s in states if s.rule is not rule and s.listing is not None)
        return MOST_METRICS - sum(len(listing.exposed) for listing in others)

    async def _publish_listed(self) -> None:
        """Publish what was listed, in a third of the time at most: each time all is merged."""
        async with self._gathering:
            while self._unpublished:
                began = time.monotonic()
                await self._publish(self._unpublished.popitem()[0])
                await asyncio.sleep(2 * (time.monotonic() - began))

    async def _publish(self, namespace: str) -> None:
        async with self._publishing:
            scope = self._scopes.get(namespace)
            if scope is None:
                return
            leaving, states = scope.let_go(), tuple(scope.states.values())
            if not namespace:
                self.custom, self.external = [
                    await LoopPace().through(
                        merging(_of(section, states), registry, _of(section, leaving))
                    )
                    for section, registry in zip(
                        SECTIONS, (self.custom, self.external), strict=True
                    )
                ]
                return
            for section, own in self._own.items():
                listed, gone = _of(section, states), _of(section, leaving)
                if listed or gone:
                    before = own.get(namespace, MetricRegistry())
                    merged = await LoopPace().through(merging(listed, before, gone))
                    own[namespace] = await LoopPace().through(with_missing(before, merged))
                else:
                    own.pop(namespace, None)


def _of(section: str, states: Sequence[RuleState]) -> list[RuleState]:
    return [state for state in states if state.rule.section == section]


def _pause_s(tries: int, failed: Sequence[RuleState]) -> float:
    """Return how long to wait before asking again after ``tries`` such pauses."""
    # Of a Prometheus that comes back, replicas and rules must not all ask in one moment.
    most_s = min(_RETRY_MOST_S, _RETRY_LEAST_S * 2 ** min(tries + 1, 10))
    pause_s = random.uniform(most_s / 2, most_s)
    # An older list serves: a query that takes a minute to fail is better left alone.
    is_served = all(state.listing is not None for state in failed)
    return _RETRY_MOST_S + pause_s if is_served else pause_s
