"""Keeps the list of metrics: asks Prometheus for the series of every rule, again and again.

Each seriesQuery is asked once for all rules that share it, on its own: a rule that fails
keeps its last good list, holds nobody up (upstream discards everybody's) and is asked
again soon, not at the next relist only. Hands out immutable ``MetricRegistry`` values.
"""

import asyncio
import math
import random
import time
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
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
from adapter.rules.ruleset import SECTIONS, Rule, RuleSet, wanted_by
from adapter.stages import Stage
from podscale.core.metrics import Failure, Unavailable
from podscale.feed.errors import QueryError
from podscale.feed.http.client import SeriesAnswer
from podscale.feed.http.series import Wanted
from podscale.feed.prover.confinement import shared_selector

log = structlog.get_logger(__name__)

_PAGE = 200  # shapes between two looks at the event loop, some 2 ms
_PAGE_LABELS = 100  # of shapes not read before, likewise
_MOST_TOGETHER = 60  # namespaces in one request: names of 63 letters make a URL of 4 KB
_MOST_LOGGED, _MOST_SHOWN = 20, 200  # names, and characters of one
_RETRY_LEAST_S, _RETRY_MOST_S = 1.0, 30.0
_SERVED_REST = 10.0  # pause after a failure whose list serves on, in times of what it took

T = TypeVar("T")

_Key = tuple[str, str]  # resource[.group] and metric
_Listed = tuple[str, str]  # source and seriesQuery, for all rules that share them
# Origin, section and fingerprint: the same rule, wherever it stands.
_Content = tuple[str, str, str]


class Lister(Protocol):
    """What is asked of Prometheus here (``adapter.sources``)."""

    async def series(self, match: str, start_s: float, source: str, wanted: Wanted) -> SeriesAnswer:
        """Return names and label names, of one source or ("") of those that rules without one
        are answered from; raises ``podscale.feed.errors.QueryError``. Of names with very many
        label names only those ``wanted`` are sure to be told."""
        ...

    async def series_by(
        self, match: str, start_s: float, source: str, label: str, values: Sequence[str]
    ) -> Mapping[str, SeriesAnswer]:
        """Return them for each of several values of a label, from one answer; those are left out
        that have to be asked for alone. Raises ``QueryError``."""
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

    def relisted(self, state: RuleState, seconds: float) -> None:
        """One rule has been listed, or has failed to be."""
        ...


class _RuleScope:
    """The rules that are listed together: those of everywhere, or a namespace's own."""

    def __init__(self, rules: RuleSet) -> None:
        self.states = {rule.id: RuleState(rule) for rule in _every(rules)}
        # Rules of before a change, which serve on until those that came with it are listed.
        self.leaving: dict[_Content, RuleState] = {}
        self.awaited: set[_Content] = set()

    async def replace(self, rules: RuleSet) -> None:
        """Work with other rules from now on; see ``Relister.replace``."""
        before = {_content(state.rule): state for state in self.states.values()}
        known = {**self.leaving, **before}
        states = {}
        for rule in _every(rules):
            old = known.get(_content(rule))
            states[rule.id] = RuleState(rule) if old is None else await _moved(old, rule)
        come = {_content(state.rule) for state in states.values()}
        self.states = states
        self.awaited = (self.awaited | (come - before.keys())) & come
        self.leaving = {
            content: state
            for content, state in known.items()
            if content not in come and state.listing is not None
        }

    def let_go(self) -> tuple[RuleState, ...]:
        """Return what is leaving, without that in whose place everything is listed."""
        if not self.leaving:
            return ()
        unlisted = {_content(state.rule) for state in self.states.values() if state.listing is None}
        self.awaited &= unlisted
        origins = {origin for origin, _, _ in self.awaited}
        self.leaving = {c: state for c, state in self.leaving.items() if c[0] in origins}
        return tuple(self.leaving.values())


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
        self._scopes = {"": _RuleScope(rules)}  # by namespace
        # Namespace and id of the rules that share a series query.
        self._sharing: dict[_Listed, dict[tuple[str, str], None]] = {}
        self._asking: set[_Listed] = set()  # series queries on their way
        self._insisting: set[_Listed] = set()  # those that ``_insist`` sees to
        self._behind: dict[_Listed, None] = {}  # those of which something is new or has failed
        self._is_behind = asyncio.Event()
        self._replacing = asyncio.Lock()
        self._publishing = asyncio.Lock()
        self._share("")
        states = tuple(self._scopes[""].states.values())
        self._own: dict[str, dict[str, MetricRegistry]] = {section: {} for section in SECTIONS}
        self.custom, self.external = (
            structs.replace(merge(_of(section, states), MetricRegistry()), within=own)
            for section, own in self._own.items()
        )

    async def replace(self, rules: RuleSet, namespace: str = "") -> None:
        """Work with other rules from now on: ("") those of everywhere, or a namespace's own.
        Prometheus is not waited for, nor is anything of another namespace touched.

        A rule that was there before keeps its list, wherever it stands now. What has gone
        serves on, behind the others, until every rule that has come from the same file or
        object is listed: a reload interrupts nothing, and in an outage takes nothing away.
        """
        async with self._replacing:
            scope = self._scopes.setdefault(namespace, _RuleScope(RuleSet.empty()))
            self._unshare(namespace)
            await scope.replace(rules)
            self._share(namespace)
            await self._publish(namespace)
            if namespace and not scope.states:
                del self._scopes[namespace]
        self._renewed()
        self._fall_behind(
            state.rule.listed_by for state in scope.states.values() if _is_behind(state)
        )

    @property
    def reach_s(self) -> float:
        """How far back a series counts."""
        return self._options.reach_s

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
        # A named source that hangs keeps nobody else's metrics waiting.
        self.is_tried = self.is_tried or not source
        self._renewed()

    async def _list_each(self, queries: Iterable[_Listed]) -> None:
        """Ask for these of one source, as many at a time as may be."""
        waiting = self._asked_together(queries)

        async def work() -> None:
            for each in waiting:
                left = [query for query in each if query not in self._asking]
                if len(left) > 1:
                    await self._list_together(left)
                elif left:
                    await self._list(left[0])

        async with asyncio.TaskGroup() as group:
            for _ in range(self._options.in_flight):
                group.create_task(work())

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
        options = self._options
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
        left = [query for query in queries if any(map(_is_behind, self._states(query)))]
        if any(state.failure is None for query in left for state in self._states(query)):
            await asyncio.sleep(_RETRY_LEAST_S)  # a relist is asking for it
        self._fall_behind(left)

    async def _insist(self, query: _Listed) -> None:
        """Ask until ``query`` is listed, ever less often."""
        try:
            tries = 0
            while behind := [state for state in self._states(query) if _is_behind(state)]:
                if all(state.failure is not None for state in behind):
                    await asyncio.sleep(_pause_s(tries, behind))
                    tries += 1
                if query in self._asking:  # a relist was faster
                    await asyncio.sleep(_RETRY_LEAST_S)
                elif any(_is_behind(state) for state in self._states(query)):
                    await self._list(query)
                    if not any(_is_behind(state) for state in self._states(query)):
                        self._renewed()
        finally:
            self._insisting.discard(query)

    def _states(self, query: _Listed) -> list[RuleState]:
        found = self._sharing.get(query, {})
        return [self._scopes[namespace].states[rule] for namespace, rule in found]

    def _share(self, namespace: str) -> None:
        for state in self._scopes[namespace].states.values():
            sharing = self._sharing.setdefault(state.rule.listed_by, {})
            sharing[namespace, state.rule.id] = None

    def _unshare(self, namespace: str) -> None:
        for state in self._scopes[namespace].states.values():
            sharing = self._sharing[state.rule.listed_by]
            del sharing[namespace, state.rule.id]
            if not sharing:
                del self._sharing[state.rule.listed_by]

    def _fall_behind(self, queries: Iterable[_Listed]) -> None:
        self._behind.update(dict.fromkeys(queries))
        self._is_behind.set()

    async def _list(self, query: _Listed) -> None:
        """Ask for one seriesQuery, for all rules that share it."""
        self._asking.add(query)
        try:
            slots = self._slots.setdefault(query[0], asyncio.Semaphore(self._options.in_flight))
            async with slots:
                await self._list_now(query)
        finally:
            self._asking.discard(query)

    async def _list_together(self, queries: Sequence[_Listed]) -> None:
        """Ask for what one query tells of several namespaces, and for the rest one by one."""
        self._asking.update(queries)
        alone: Sequence[_Listed] = queries
        try:
            slots = self._slots.setdefault(
                queries[0][0], asyncio.Semaphore(self._options.in_flight)
            )
            async with slots:
                alone = await self._list_together_now(queries)
        finally:
            self._asking.difference_update(queries)
        for query in alone:
            await self._list(query)

    async def _list_together_now(self, queries: Sequence[_Listed]) -> Sequence[_Listed]:
        """Return those that have to be asked for alone."""
        started, now = time.monotonic(), self._clock()
        rules = {query: state.rule for query in queries for state in self._states(query)[:1]}
        first = next(iter(rules.values()), None)
        if first is None or first.confinement is None:
            return ()
        label = first.confinement.label
        namespaces = [rule.namespace for rule in rules.values()]
        try:
            found = await self._lister.series_by(
                shared_selector(first.open_query, label, namespaces),
                now - self._options.reach_s, first.source, label, namespaces,
            )  # fmt: skip
        except Exception:  # each of them may fail by itself, and says why
            log.debug("namespaces not listed together", exc_info=True)
            return queries
        for query, rule in rules.items():
            if rule.namespace in found:
                await self._take(query, found[rule.namespace], started, now)
        return [query for query, rule in rules.items() if rule.namespace not in found]

    async def _list_now(self, query: _Listed) -> None:
        started = time.monotonic()
        now = self._clock()
        await self._take(query, await self._ask(query, now), started, now)

    async def _take(
        self, query: _Listed, outcome: SeriesAnswer | RelistFailure, started: float, now: float
    ) -> None:
        """Work off what was answered, for all rules that share the query."""
        is_behind = False
        changed: dict[str, None] = {}
        for before in self._states(query):
            rule = before.rule
            state = await self._state(before, outcome, now)
            if self.state(rule) is None:
                continue  # replaced while we worked
            seconds = time.monotonic() - started
            if state.failure is not None:
                failure = structs.replace(state.failure, seconds=seconds)
                state = structs.replace(state, failure=failure)
            self._scopes[rule.namespace].states[rule.id] = state
            if self._seen is not None:
                self._seen.relisted(state, seconds)
            if state.listing is not before.listing or state.failure is not before.failure:
                changed[rule.namespace] = None
            is_behind = is_behind or _is_behind(state)
        for namespace in changed:
            await self._publish(namespace)
        if is_behind:
            self._fall_behind([query])

    async def _ask(self, query: _Listed, now: float) -> SeriesAnswer | RelistFailure:
        try:
            source, match = query
            wanted = wanted_by([state.rule for state in self._states(query)])
            return await self._lister.series(match, now - self._options.reach_s, source, wanted)
        except QueryError as error:
            invalid = error.kind == "bad-data"
            stage = Stage.SERIES_QUERY_INVALID if invalid else Stage.PROMETHEUS_UNREACHABLE
            return _failed(stage, error.failure)
        except Exception as error:  # noqa: BLE001 - one list must not end all
            return self._bug("asking for its series failed", error, self._states(query))

    def _bug(self, what: str, error: Exception, states: Sequence[RuleState]) -> RelistFailure:
        # Whatever one list raises is that rule's failure: it must not end the process, and
        # with it every replica at the same moment. Its words may hold secrets: the log's only.
        said = f"{what} ({type(error).__name__}): see the log, and report it"
        news = [s.rule.id for s in states if s.failure is None or s.failure.message != said]
        if news:
            log.error("relist failed unexpectedly", rules=news, exc_info=error)
        return RelistFailure(Stage.PROMETHEUS_UNREACHABLE, said)

    async def _state(
        self, before: RuleState, outcome: SeriesAnswer | RelistFailure, now: float
    ) -> RuleState:
        """Return what is known of a rule now; a failed list leaves the one before."""
        if isinstance(outcome, SeriesAnswer):
            if _is_unchanged(before, outcome):
                return structs.replace(before, listed_s=now, series=outcome.count)
            try:
                return await self._listed(before, outcome, now)
            except Exception as error:  # noqa: BLE001 - one list must not end all
                outcome = self._bug("working off its series failed", error, [before])
        # Attempts are many while Prometheus is down: each is counted, only news are told.
        is_news = before.failure is None or before.failure.message != outcome.message
        tell = log.warning if is_news else log.debug
        tell("relist failed", rule=before.rule.id, stage=outcome.stage, error=outcome.message)
        return structs.replace(before, failure=outcome)

    async def _listed(self, before: RuleState, outcome: SeriesAnswer, now: float) -> RuleState:
        rule = before.rule
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
        # A template asks which resources the cluster has now: its list does not stay.
        if listing.shapes <= _PAGE and not (outcome.crowded or rule.labels.has_template):
            listing = structs.replace(listing, names=outcome.names)
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
        return RuleState(rule, listing, now, outcome.count, gone=gone)

    async def _publish(self, namespace: str) -> None:
        async with self._publishing:
            scope = self._scopes.get(namespace)
            if scope is None:
                return
            leaving, states = scope.let_go(), tuple(scope.states.values())
            if not namespace:
                self.custom, self.external = [
                    await _paged(merging(_of(section, states), registry, _of(section, leaving)))
                    for section, registry in zip(
                        SECTIONS, (self.custom, self.external), strict=True
                    )
                ]
                return
            for section, own in self._own.items():
                listed, gone = _of(section, states), _of(section, leaving)
                if listed or gone:
                    before = own.get(namespace, MetricRegistry())
                    own[namespace] = await _paged(merging(listed, before, gone))
                else:
                    own.pop(namespace, None)


def _every(rules: RuleSet) -> tuple[Rule, ...]:
    return (*rules.custom, *rules.external)


def _content(rule: Rule) -> _Content:
    return rule.origin, rule.section, rule.fingerprint


def _of(section: str, states: Sequence[RuleState]) -> list[RuleState]:
    return [state for state in states if state.rule.section == section]


def _is_behind(state: RuleState) -> bool:
    # Another attempt may bring a list, or a newer one.
    if state.failure is None:
        return state.listing is None
    return not state.failure.is_final


def _is_unchanged(before: RuleState, outcome: SeriesAnswer) -> bool:
    """Return whether the answer comes to the list that is there."""
    return (
        before.listing is not None
        and before.listing.names == outcome.names
        and not (before.failure or before.gone or outcome.crowded)
    )


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
        stage, failure.message, failure.reason, failure.is_timeout, failure.retry_after_s,
        failure.since_s,
    )  # fmt: skip


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
        if len(page) == PAGE:
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
            if len(page) == PAGE:
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
