"""Keeps the list of metrics: asks Prometheus for the series of every rule, again and again.

Each seriesQuery is asked once for all rules that share it, on its own: a rule that fails
keeps its last good list, holds nobody up (upstream discards everybody's) and is asked
again soon, not at the next relist only. Hands out immutable ``MetricRegistry`` values.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from itertools import islice
from typing import Protocol, TypeVar

import structlog
from msgspec import Struct, structs

from adapter.discovery.listing import ListingBuilder, MetricSource, RuleListing
from adapter.discovery.registry import (
    PAGE,
    MetricRegistry,
    RelistFailure,
    RuleState,
    merge,
    merging,
)
from adapter.doctor.lints import TOO_MANY_LABELS
from adapter.rules.ruleset import Rule, RuleSet
from adapter.stages import Stage
from podscale.core.metrics import Failure, Unavailable
from podscale.feed.errors import QueryError
from podscale.feed.http.client import SeriesAnswer

log = structlog.get_logger(__name__)

_PAGE = 200  # shapes between two looks at the event loop, some 2 ms
_PAGE_LABELS = 100  # of shapes not read before, likewise
_MOST_LOGGED, _MOST_SHOWN = 20, 200  # names, and characters of one
_RETRY_LEAST_S, _RETRY_MOST_S = 1.0, 30.0
_SERVED_REST = 10.0  # pause after a failure whose list serves on, in times of what it took

T = TypeVar("T")

_Key = tuple[str, str]  # resource[.group] and metric
_Listed = tuple[str, str]  # source and seriesQuery, for all rules that share them
_Content = tuple[str, str]  # section and fingerprint: the same rule, wherever it stands


class Lister(Protocol):
    """What is asked of Prometheus here (``adapter.sources``)."""

    async def series(self, match: str, start_s: float, source: str) -> SeriesAnswer:
        """Return names and label names, of one source or ("") of those that rules without one
        are answered from; raises ``podscale.feed.errors.QueryError``."""
        ...


class RelistOptions(Struct, frozen=True):
    """When and how far back."""

    interval_s: float = 600.0
    max_age_s: float = 0.0  # 0: the interval
    grace_s: float = 0.0  # a name that has gone is listed this much longer
    in_flight: int = 4
    jitter: float = 0.1  # up to this part of the interval earlier, never later

    @property
    def reach_s(self) -> float:
        """How far back a series counts."""
        return self.max_age_s or self.interval_s


class RelistObserver(Protocol):
    """Is told what a relist found (``adapter.selfmetrics``)."""

    def relisted(self, state: RuleState, seconds: float, series: int) -> None:
        """One rule has been listed, or has failed to be."""
        ...


class Relister:
    """The lists of custom and external metrics, and the loop that renews them."""

    def __init__(
        self,
        lister: Lister,
        rules: RuleSet,
        options: RelistOptions,
        *,
        seen: RelistObserver | None = None,
        renewed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._lister = lister
        self._options = options
        self._seen = seen
        self._renewed = renewed
        self._clock = clock
        self._slots: dict[str, asyncio.Semaphore] = {}  # by source
        self.is_tried = False  # every rule of no named source has succeeded or failed once
        self._states = {rule.id: RuleState(rule) for rule in _every(rules)}
        # Rules of before a reload, which serve on until those that came with it are listed.
        self._leaving: dict[_Content, RuleState] = {}
        self._awaited: set[_Content] = set()
        self._asking: set[_Listed] = set()  # series queries on their way
        self._insisting: set[_Listed] = set()  # those that ``_insist`` sees to
        self._behind = asyncio.Event()  # something is new or has failed
        self._publishing = asyncio.Lock()
        states = tuple(self._states.values())
        self.custom = merge(_of("rules", states), MetricRegistry())
        self.external = merge(_of("externalRules", states), MetricRegistry())

    async def replace(self, rules: RuleSet) -> None:
        """Work with other rules from now on. Prometheus is not waited for.

        A rule that was there before keeps its list, wherever it stands now. What has gone
        serves on, behind the others, until every rule that has come is listed: a reload
        interrupts nothing, and in an outage takes nothing away.
        """
        before = {_content(state.rule): state for state in self._states.values()}
        known = {**self._leaving, **before}
        states = {}
        for rule in _every(rules):
            old = known.get(_content(rule))
            states[rule.id] = RuleState(rule) if old is None else await _moved(old, rule)
        come = {_content(state.rule) for state in states.values()}
        self._states = states
        self._awaited = (self._awaited | (come - before.keys())) & come
        self._leaving = {
            content: state
            for content, state in known.items()
            if content not in come and state.listing is not None
        }
        await self._publish()
        self._renewed()
        self._behind.set()

    @property
    def reach_s(self) -> float:
        """How far back a series counts."""
        return self._options.reach_s

    @property
    def states(self) -> dict[str, RuleState]:
        """What is known about each rule, by its id."""
        return self._states

    async def run(self) -> None:
        """Relist for ever; ends only by cancellation."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew())
            group.create_task(self._catch_up())

    async def relist(self) -> None:
        """Ask for every seriesQuery once; never raises for a failed one."""
        by_source: dict[str, dict[_Listed, None]] = {"": {}}
        for state in self._states.values():
            by_source.setdefault(state.rule.source, {})[state.rule.listed_by] = None
        async with asyncio.TaskGroup() as group:
            for source, queries in by_source.items():
                group.create_task(self._relist(source, queries))

    async def _relist(self, source: str, queries: Iterable[_Listed]) -> None:
        async with asyncio.TaskGroup() as group:
            for query in queries:
                if query not in self._asking:
                    group.create_task(self._list(query))
        # A named source that hangs keeps nobody else's metrics waiting.
        self.is_tried = self.is_tried or not source
        self._renewed()

    async def _renew(self) -> None:
        while True:
            await self.relist()
            pause = self._options.interval_s * (1 - self._options.jitter * random.random())
            await asyncio.sleep(pause)

    async def _catch_up(self) -> None:
        """See to what is new or has failed, each seriesQuery at its own pace."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._behind.wait()
                self._behind.clear()
                behind = (s.rule.listed_by for s in self._states.values() if _is_behind(s))
                for query in dict.fromkeys(behind):
                    if query not in self._insisting:
                        self._insisting.add(query)
                        group.create_task(self._insist(query))

    async def _insist(self, query: _Listed) -> None:
        """Ask until ``query`` is listed: at once if it is new, then ever less often."""
        try:
            tries = 0
            while behind := [state for state in self._sharing(query) if _is_behind(state)]:
                if all(state.failure is not None for state in behind):
                    await asyncio.sleep(_pause_s(tries, behind))
                    tries += 1
                if query in self._asking:  # a relist was faster
                    await asyncio.sleep(_RETRY_LEAST_S)
                elif any(_is_behind(state) for state in self._sharing(query)):
                    await self._list(query)
                    if not any(_is_behind(state) for state in self._sharing(query)):
                        self._renewed()
        finally:
            self._insisting.discard(query)

    def _sharing(self, query: _Listed) -> list[RuleState]:
        return [state for state in self._states.values() if state.rule.listed_by == query]

    async def _list(self, query: _Listed) -> None:
        """Ask for one seriesQuery, for all rules that share it."""
        self._asking.add(query)
        try:
            slots = self._slots.setdefault(query[0], asyncio.Semaphore(self._options.in_flight))
            async with slots:
                await self._list_now(query)
        finally:
            self._asking.discard(query)

    async def _list_now(self, query: _Listed) -> None:
        started = time.monotonic()
        now = self._clock()
        outcome = await self._ask(query, now)
        for rule in [state.rule for state in self._sharing(query)]:
            state = await self._state(rule, outcome, now)
            if rule.id not in self._states or self._states[rule.id].rule is not rule:
                continue  # replaced while we worked
            seconds = time.monotonic() - started
            if state.failure is not None:
                failure = structs.replace(state.failure, seconds=seconds)
                state = structs.replace(state, failure=failure)
            self._states[rule.id] = state
            if self._seen is not None:
                count = outcome.count if isinstance(outcome, SeriesAnswer) else 0
                self._seen.relisted(state, seconds, count)
        await self._publish()
        if any(_is_behind(state) for state in self._sharing(query)):
            self._behind.set()

    async def _ask(self, query: _Listed, now: float) -> SeriesAnswer | RelistFailure:
        try:
            source, match = query
            return await self._lister.series(match, now - self._options.reach_s, source)
        except QueryError as error:
            invalid = error.kind == "bad-data"
            stage = Stage.SERIES_QUERY_INVALID if invalid else Stage.PROMETHEUS_UNREACHABLE
            return _failed(stage, error.failure)
        except Exception as error:  # noqa: BLE001 - one list must not end all
            return self._bug("asking for its series failed", error, self._sharing(query))

    def _bug(self, what: str, error: Exception, states: Sequence[RuleState]) -> RelistFailure:
        # Whatever one list raises is that rule's failure: it must not end the process, and
        # with it every replica at the same moment. Its words may hold secrets: the log's only.
        said = f"{what} ({type(error).__name__}): see the log, and report it"
        news = [s.rule.id for s in states if s.failure is None or s.failure.message != said]
        if news:
            log.error("relist failed unexpectedly", rules=news, exc_info=error)
        return RelistFailure(Stage.PROMETHEUS_UNREACHABLE, said)

    async def _state(
        self, rule: Rule, outcome: SeriesAnswer | RelistFailure, now: float
    ) -> RuleState:
        """Return what is known of ``rule`` now; a failed list leaves the one before."""
        before = self._states.get(rule.id, RuleState(rule))
        if isinstance(outcome, SeriesAnswer):
            try:
                return await self._listed(before, rule, outcome, now)
            except Exception as error:  # noqa: BLE001 - one list must not end all
                outcome = self._bug("working off its series failed", error, [before])
        # Attempts are many while Prometheus is down: each is counted, only news are told.
        is_news = before.failure is None or before.failure.message != outcome.message
        tell = log.warning if is_news else log.debug
        tell("relist failed", rule=rule.id, stage=outcome.stage, error=outcome.message)
        return structs.replace(before, rule=rule, failure=outcome)

    async def _listed(
        self, before: RuleState, rule: Rule, outcome: SeriesAnswer, now: float
    ) -> RuleState:
        builder = ListingBuilder(rule)
        taken = read = 0
        for name, shapes in outcome.names.items():
            for labels in shapes:
                builder.add(name, labels)
                taken += 1
                if taken >= _PAGE or builder.labels_read - read >= _PAGE_LABELS:
                    taken, read = 0, builder.labels_read
                    await asyncio.sleep(0)
        crowded = tuple(sorted(name for name in outcome.crowded if rule.keeps(name)))
        listing = structs.replace(builder.build(), crowded=crowded)
        # What a partial answer lacks has not gone.
        grace_s = math.inf if outcome.is_partial else self._options.grace_s
        gone: dict[tuple[str, str], float] = {}
        if before.listing is not None:
            gone = await _paged(_still_in_grace(before, listing, now, grace_s))
            listing = await _paged(_with_gone(before.listing, listing, gone))
        if before.failure is not None:
            log.info("relist works again", rule=rule.id)
        if crowded and (before.listing is None or before.listing.crowded != crowded):
            series = [name[:_MOST_SHOWN] for name in crowded[:_MOST_LOGGED]]
            log.warning("series are crowded", reason=TOO_MANY_LABELS, rule=rule.id, series=series)
        if listing.conflicts:
            log.info("series share a name", rule=rule.id, conflicts=listing.conflicts)
        return RuleState(rule, listing, now, gone=gone)

    async def _publish(self) -> None:
        async with self._publishing:
            states = tuple(self._states.values())
            unlisted = {_content(state.rule) for state in states if state.listing is None}
            self._awaited &= unlisted
            if not self._awaited:
                self._leaving = {}
            leaving = tuple(self._leaving.values())
            self.custom, self.external = [
                await _paged(merging(_of(section, states), registry, _of(section, leaving)))
                for section, registry in (("rules", self.custom), ("externalRules", self.external))
            ]


def _every(rules: RuleSet) -> tuple[Rule, ...]:
    return (*rules.custom, *rules.external)


def _content(rule: Rule) -> _Content:
    return rule.section, rule.fingerprint


def _of(section: str, states: Sequence[RuleState]) -> list[RuleState]:
    return [state for state in states if state.rule.section == section]


def _is_behind(state: RuleState) -> bool:
    # Another attempt may bring a list, or a newer one.
    if state.failure is None:
        return state.listing is None
    return not state.failure.is_final


def _pause_s(tries: int, failed: Sequence[RuleState]) -> float:
    """Return how long to wait before asking again after ``tries`` such pauses."""
    # Of a Prometheus that comes back, replicas and rules must not all ask in one moment.
    most_s = min(_RETRY_MOST_S, _RETRY_LEAST_S * 2 ** min(tries + 1, 10))
    pause_s = random.uniform(most_s / 2, most_s)
    if any(state.listing is None for state in failed):
        return pause_s
    # An older list serves: a query that takes a minute to fail is better left alone.
    took_s = max((state.failure.seconds for state in failed if state.failure), default=0.0)
    return max(pause_s, _SERVED_REST * took_s)


async def _moved(state: RuleState, rule: Rule) -> RuleState:
    """Return what is known of a rule under the name that its new place gives it."""
    if state.listing is None or state.rule.id == rule.id:
        return structs.replace(state, rule=rule)
    exposed = {}
    for count, (key, source) in enumerate(state.listing.exposed.items(), 1):
        if count % PAGE == 0:
            await asyncio.sleep(0)
        exposed[key] = MetricSource(rule, source.series)
    listing = structs.replace(state.listing, rule=rule, exposed=exposed)
    return structs.replace(state, rule=rule, listing=listing)


def _failed(stage: Stage, failure: Failure) -> RelistFailure:
    if not isinstance(failure, Unavailable):
        return RelistFailure(stage, failure.message, failure.reason)
    return RelistFailure(
        stage, failure.message, failure.reason, failure.is_timeout, failure.retry_after_s
    )


def _still_in_grace(
    before: RuleState, listing: RuleListing, now: float, grace_s: float
) -> Generator[None, None, dict[_Key, float]]:
    # Key -> when it was first missed. Names stay only as long as the grace lasts from then.
    gone: dict[_Key, float] = {}
    if not grace_s or before.listing is None:
        return gone
    keys = iter(before.listing.exposed)
    while page := list(islice(keys, PAGE)):
        for key in page:
            if key not in listing.exposed and now - before.gone.get(key, now) < grace_s:
                gone[key] = before.gone.get(key, now)
        yield
    return gone


def _with_gone(
    before: RuleListing, listing: RuleListing, gone: Collection[_Key]
) -> Generator[None, None, RuleListing]:
    """Return ``listing`` and what is gone of the one before; its own object where nothing else
    is exposed than before, so that it need not be merged again.
    """
    made, old = listing.exposed, before.exposed
    if len(made) + len(gone) == len(old) and before.rule is listing.rule:
        items = iter(made.items())
        is_same = True
        while is_same and (page := list(islice(items, PAGE))):
            is_same = all((was := old.get(key)) and was.series == new.series for key, new in page)
            yield
        if is_same:
            return structs.replace(listing, exposed=old, kinds=before.kinds)
    if not gone:
        return listing
    kept = {key: old[key] for key in gone}
    kinds = listing.kinds | {kind for kind, _ in gone}
    return structs.replace(listing, exposed={**kept, **made}, kinds=kinds)


async def _paged(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made
        await asyncio.sleep(0)
