"""Keeps the list of metrics: asks Prometheus for the series of every rule, again and again.

Each seriesQuery is asked once for all rules that share it, on its own: a rule that fails
keeps its last good list and holds nobody up (upstream discards everybody's). Hands out
immutable ``Registry`` values.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog
from msgspec import Struct, structs

from adapter.listing import Listing, ListingBuilder
from adapter.registry import Registry, RelistFailure, RuleState, merge
from adapter.rules import Rule, RuleSet
from adapter.stages import Stage
from podscale.core.metrics import Failure, Unavailable
from podscale.feed.client import Series
from podscale.feed.errors import QueryError

log = structlog.get_logger(__name__)

_PAGE = 200  # shapes between two looks at the event loop, some 2 ms


class Lister(Protocol):
    """What is asked of Prometheus here (``podscale.feed.client.PrometheusClient``)."""

    async def series(self, match: str, start_s: float) -> Series:
        """Return names and label names; raises ``podscale.feed.errors.QueryError``."""
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


class Seen(Protocol):
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
        seen: Seen | None = None,
        renewed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._lister = lister
        self._options = options
        self._seen = seen
        self._renewed = renewed
        self._clock = clock
        self._slots = asyncio.Semaphore(options.in_flight)
        self.custom = Registry()
        self.external = Registry()
        self.is_tried = False  # every rule has succeeded or failed at least once
        every = (*rules.custom, *rules.external)
        self._states = {rule.id: RuleState(rule) for rule in every}
        self._publish()

    async def replace(self, rules: RuleSet) -> None:
        """Work with other rules: list those that are new, then take over all at once.

        A rule that is unchanged keeps its list, and the old rules answer until the new
        ones are listed, so that a reload interrupts nothing.
        """
        fresh = Relister(self._lister, rules, self._options, seen=self._seen, clock=self._clock)
        fresh.keep(self._states)
        await fresh.relist(only_new=True)
        self._states = fresh.states
        self._publish()
        self._renewed()

    @property
    def reach_s(self) -> float:
        """How far back a series counts."""
        return self._options.reach_s

    @property
    def states(self) -> dict[str, RuleState]:
        """What is known about each rule, by its id."""
        return self._states

    def keep(self, before: Mapping[str, RuleState]) -> None:
        """Take over the lists of rules that do the same as ours."""
        for id_, state in self._states.items():
            old = before.get(id_)
            if old is not None and old.rule.fingerprint == state.rule.fingerprint:
                self._states[id_] = old

    async def run(self) -> None:
        """Relist for ever; ends only by cancellation."""
        while True:
            await self.relist()
            pause = self._options.interval_s * (1 - self._options.jitter * random.random())
            await asyncio.sleep(pause)

    async def relist(self, *, only_new: bool = False) -> None:
        """Ask for every seriesQuery once; never raises for a failed one."""
        queries: dict[str, list[Rule]] = {}
        for state in self._states.values():
            if only_new and state.listing is not None:
                continue
            queries.setdefault(state.rule.series_query, []).append(state.rule)
        async with asyncio.TaskGroup() as group:
            for query, rules in queries.items():
                group.create_task(self._list(query, rules))
        self.is_tried = True
        self._renewed()

    async def _list(self, query: str, rules: Sequence[Rule]) -> None:
        async with self._slots:
            started = time.monotonic()
            now = self._clock()
            outcome = await self._ask(query, now)
            for rule in rules:
                state = await self._state(rule, outcome, now)
                if rule.id not in self._states or self._states[rule.id].rule is not rule:
                    continue  # replaced while we were asking
                self._states[rule.id] = state
                if self._seen is not None:
                    count = outcome.count if isinstance(outcome, Series) else 0
                    self._seen.relisted(state, time.monotonic() - started, count)
            self._publish()

    async def _ask(self, query: str, now: float) -> Series | RelistFailure:
        try:
            return await self._lister.series(query, now - self._options.reach_s)
        except QueryError as error:
            invalid = error.kind == "bad-data"
            stage = Stage.SERIES_QUERY_INVALID if invalid else Stage.PROMETHEUS_UNREACHABLE
            return _failed(stage, error.failure)
        except Exception as error:  # noqa: BLE001 - one list must not end all
            return _bug("asking for its series failed", error, series_query=query)

    async def _state(self, rule: Rule, outcome: Series | RelistFailure, now: float) -> RuleState:
        """Return what is known of ``rule`` now; a failed list leaves the one before."""
        before = self._states.get(rule.id, RuleState(rule))
        if isinstance(outcome, Series):
            try:
                return await self._listed(before, rule, outcome, now)
            except Exception as error:  # noqa: BLE001 - one list must not end all
                outcome = _bug("working off its series failed", error, rule=rule.id)
        log.warning("relist failed", rule=rule.id, stage=outcome.stage, error=outcome.message)
        return structs.replace(before, rule=rule, failure=outcome)

    async def _listed(
        self, before: RuleState, rule: Rule, outcome: Series, now: float
    ) -> RuleState:
        builder = ListingBuilder(rule)
        taken = 0
        for name, shapes in outcome.names.items():
            for labels in shapes:
                builder.add(name, labels)
                taken += 1
                if taken % _PAGE == 0:
                    await asyncio.sleep(0)
        listing = builder.build()
        # What a partial answer lacks has not gone.
        grace_s = math.inf if outcome.is_partial else self._options.grace_s
        gone = _still_in_grace(before, listing, now, grace_s)
        if gone:
            kept = {key: before.listing.exposed[key] for key in gone} if before.listing else {}
            listing = structs.replace(listing, exposed={**kept, **listing.exposed})
        if listing.conflicts:
            log.info("series share a name", rule=rule.id, conflicts=listing.conflicts)
        return RuleState(rule, listing, now, gone=gone)

    def _publish(self) -> None:
        states = tuple(self._states.values())
        custom = tuple(s for s in states if s.rule.section == "rules")
        external = tuple(s for s in states if s.rule.section == "externalRules")
        self.custom = merge(custom, self.custom)
        self.external = merge(external, self.external)


def _failed(stage: Stage, failure: Failure) -> RelistFailure:
    if not isinstance(failure, Unavailable):
        return RelistFailure(stage, failure.message, failure.reason)
    return RelistFailure(
        stage, failure.message, failure.reason, failure.is_timeout, failure.retry_after_s
    )


def _bug(what: str, error: Exception, **about: str) -> RelistFailure:
    # Whatever one list raises is that rule's failure: it must not end the process, and
    # with it every replica at the same moment. Its words may hold secrets: the log's only.
    log.error("relist failed unexpectedly", **about, exc_info=error)
    said = f"{what} ({type(error).__name__}): see the log, and report it"
    return RelistFailure(Stage.PROMETHEUS_UNREACHABLE, said)


def _still_in_grace(
    before: RuleState, listing: Listing, now: float, grace_s: float
) -> Mapping[tuple[str, str], float]:
    # Key -> when it was first missed. Names stay only as long as the grace lasts from then.
    if not grace_s or before.listing is None:
        return {}
    missed = {key: before.gone.get(key, now) for key in before.listing.exposed}
    return {
        key: since
        for key, since in missed.items()
        if key not in listing.exposed and now - since < grace_s
    }
