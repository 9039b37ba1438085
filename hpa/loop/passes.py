"""One batch of passes: look, ask once, decide each, act where something is to be written.

A pass that writes goes on in a task of its own, so that neither a slow API server nor a
slow target delays the others of its batch.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import structlog
from msgspec import Struct, structs

from hpa.cluster.catalog import AutoscalerEntry, Key
from hpa.cluster.foreign import ForeignControllers
from hpa.cluster.stores import HpaStores
from hpa.cluster.targets import ScaleTargets
from hpa.cluster.write_turns import WriteTurns
from hpa.cluster.writer import AutoscalerWriter
from hpa.decide import Conclusion, Decision, Outcome, Scale, Settings, conclude, decide
from hpa.decide.conditions import DecisionEvent
from hpa.decide.decision import DONE
from hpa.history import history
from hpa.history.decision_log import DecisionLog
from hpa.history.memory import HistoryMemory
from hpa.loop.metric_answers import Asking, Given
from hpa.loop.observe import AutoscalerObserver, Look
from hpa.loop.permission import WritePermission
from hpa.loop.scale_reader import PAGE, ScaleReader
from hpa.loop.status_moments import Moments
from hpa.selfmetrics import HpaMetrics
from podscale.core.metrics import MetricsProvider
from podscale.kube.errors import NotLeading
from podscale.kube.restmapper import Mapper

_log = structlog.get_logger()

# Writes wait for their turn where more are wanted than go in, for minutes. What was decided
# longer ago is not begun: it is decided anew, from what is measured then, and comes first.
LASTS_S = 15.0


class PassLimits(Struct, frozen=True):
    """How patient and how eager passes are."""

    writes: int = 50  # requests in flight; a quarter of them of one namespace
    reads: int = 50  # scales asked for at once
    answer_timeout_s: float = 30.0
    status_deadband: float = 0.1


class Passes:
    """Runs passes for one term of leadership."""

    def __init__(
        self,
        *,
        group: asyncio.TaskGroup,
        stores: HpaStores,
        targets: ScaleTargets,
        observer: AutoscalerObserver,
        actor: AutoscalerWriter,
        provider: MetricsProvider,
        memory: HistoryMemory,
        traces: DecisionLog,
        metrics: HpaMetrics,
        foreign: ForeignControllers,
        settings: Settings,
        limits: PassLimits,
        mapper: Callable[[], Mapper],
        say: Callable[[AutoscalerEntry, DecisionEvent], None],
        released: Callable[[Key], None],
        jumped: Callable[[], float],
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """``released`` is told when the pass over an object has ended, however it did;
        ``jumped`` says by how much the clock was set since it was asked last;
        ``steady`` is the clock of the watches."""
        self._group = group
        self._targets = targets
        self._looking = ScaleReader(
            group,
            targets,
            memory,
            observer,
            reads=limits.reads,
            release=self._release,
            fail=self._fail,
        )
        self._permission = WritePermission(
            stores=stores, targets=targets, memory=memory, foreign=foreign, wall=wall
        )
        self._actor = actor
        self._asking = Asking(provider, metrics, timeout_s=limits.answer_timeout_s, wall=wall)
        self._memory = memory
        self._traces = traces
        self._metrics = metrics
        self._settings = settings
        self._shadow = structs.replace(settings, mode="shadow")
        self._limits = limits
        self._mapper = mapper
        self._say = say
        self._released = released
        self._jumped = jumped
        self._jumped_s = 0.0  # in sum
        self._wall = wall
        self._steady = steady
        self._writers = WriteTurns(limits.writes)
        self._moments = Moments(metrics, limits.status_deadband)
        self._dropped: dict[Key, float] = {}  # since when what was decided could not be written

    async def run(self, entries: Sequence[AutoscalerEntry]) -> None:
        """Take every entry through one pass; those still in an earlier one are left out."""
        started = self._steady()
        free = [entry for entry in entries if not entry.is_busy]
        self._metrics.skipped += len(entries) - len(free)
        mapper = self._mapper()
        for entry in free:
            entry.is_busy = True
        looks, waiting = await self._looking.at_hand(free, mapper)
        if waiting:
            decide_late = partial(self._decide_all, started=started)
            looks += await self._looking.fetch(waiting, mapper, decide_late)
        for look in looks:
            if look.hpa.is_read_apart:
                self._group.create_task(self._decide_apart(look, started))
        looks = [look for look in looks if not look.hpa.is_read_apart]
        if self._asking.is_slow:
            async with asyncio.TaskGroup() as apart:
                for some in _by_metrics(looks):
                    apart.create_task(self._decide_all(some, started))
        else:
            await self._decide_all(looks, started)

    def follow_clock(self) -> None:
        """Move what is remembered with a clock that was set."""
        by_s = self._jumped()
        if by_s:
            self._jumped_s += by_s
            self._moments.shift(by_s)

    def forget(self, key: Key) -> None:
        """Drop what is kept of a deleted object."""
        self._moments.forget(key)
        self._dropped.pop(key, None)

    async def _decide_apart(self, look: Look, started: float) -> None:
        try:
            await self._decide_all([look], started)
        except Exception:  # noqa: BLE001 - nobody waits for it
            _log.exception("pass failed", key="/".join(look.entry.key))

    async def _decide_all(self, looks: Sequence[Look], started: float) -> None:
        begun = 0
        try:
            given = await self._asking.about(looks)
            for page in _pages(looks, given):
                if begun:
                    await asyncio.sleep(0)
                # One time for all of a page: a float less to keep for each past number.
                self.follow_clock()
                now = self._wall()
                begun += len(page)
                for look, answers in page:
                    try:
                        self._decide(look, answers, started, now)
                    except Exception:  # noqa: BLE001 - a bug met by one object must not stop others
                        self._fail(look.entry)
        finally:
            for look in looks[begun:]:
                self._release(look.entry)

    def _decide(self, look: Look, answers: Given, started: float, now: float) -> None:
        entry = look.entry
        if entry.is_gone:
            self._release(entry)
            return
        scale = look.seen.scale
        size = scale.spec_replicas if isinstance(scale, Scale) else None
        if look.hpa.options.is_paused:
            size = None
        past = self._memory.past(
            entry,
            look.hpa,
            size,
            now,
            lambda: self._targets.is_current(entry, look.seen, since=started),
        )
        settings = self._settings_of(entry.key, now)
        waits_since = self._dropped.pop(entry.key, None) if self._dropped else None
        if entry.looked_at:
            self._metrics.gap.add((), max(now - entry.looked_at, 0.0))
        entry.looked_at = now
        decision = decide(look.observation(answers), past, settings, now)
        outcome = DONE
        if decision.replicas is not None:
            objection = self._permission.objection(look, decision, since=started)
            if not objection:
                self._group.create_task(self._act(look, decision, size, started, waits_since))
                return
            outcome = Outcome("not_tried", objection)
        conclusion = conclude(decision, outcome, now)
        if settings.mode != "shadow" and self._moments.is_due(look, conclusion, now):
            self._group.create_task(self._act(look, decision, size, started, waits_since, outcome))
            return
        self._finish(look, conclusion, size, now, started)
        self._release(entry)

    def _settings_of(self, key: Key, now: float) -> Settings:
        if self._settings.mode != "shadow" and self._permission.must_watch(key, now):
            return self._shadow
        return self._settings

    async def _act(
        self,
        look: Look,
        decision: Decision,
        size: int | None,
        started: float,
        waits_since: float | None,
        outcome: Outcome | None = None,
    ) -> None:
        entry, jumped_s = look.entry, self._jumped_s
        sent = [0.0, 0.0]
        clock = asyncio.get_running_loop().time
        until = clock() + LASTS_S
        since = clock() if waits_since is None else waits_since

        def may() -> bool:
            sent[:] = self._wall(), self._jumped_s
            return clock() < until and not self._permission.objection(look, decision, since=started)

        def lost() -> None:
            if size is not None and decision.replicas is not None and not entry.is_gone:
                at = sent[0] + self._jumped_s - sent[1]
                self._memory.sent(entry, size, decision.replicas, at)

        try:
            async with self._writers.turn(entry.key[0], since):
                if outcome is None and decision.replicas is not None:
                    outcome = await self._actor.rescale(
                        entry, look.seen, decision.replicas, may=may, lost=lost
                    )
                    if outcome.scale == "written":
                        size = decision.replicas
                outcome = outcome or DONE
                self.follow_clock()
                decision = _shifted(decision, self._jumped_s - jumped_s)
                now = self._wall()
                conclusion = conclude(decision, outcome, now)
                was_tried = decision.replicas is not None and outcome.scale != "not_tried"
                is_late = not was_tried and clock() >= until
                if is_late and not entry.is_gone:
                    self._dropped[entry.key] = since
                may_write = not is_late and self._permission.is_same(look)
                if may_write and self._moments.is_due(look, conclusion, now):
                    written = await self._actor.write_status(
                        entry, look.version, look.hpa.status, conclusion.status
                    )
                    if written.error is not None:
                        failed = structs.replace(outcome, status_error=written.error)
                        conclusion = conclude(decision, failed, now)
                    elif written.is_written and not entry.is_gone:
                        self._moments.written(entry.key, now)
            self._finish(look, conclusion, size, now, started)
        except NotLeading:
            _log.info("write stopped: not leading", key="/".join(entry.key))
        except Exception:  # noqa: BLE001 - as above
            _log.exception("pass failed", key="/".join(entry.key))
        finally:
            self._release(entry)

    def _finish(
        self, look: Look, conclusion: Conclusion, size: int | None, now: float, started: float
    ) -> None:
        entry, trace = look.entry, conclusion.trace
        if entry.is_gone:
            return  # and nothing of it may come back
        is_ours = trace.settings.mode != "shadow"
        self._memory.put(entry, conclusion.past, size, now, is_stored=is_ours)
        self._metrics.decided(self._traces.put(entry.key, trace, conclusion.past))
        self._metrics.passed(conclusion.labels, self._steady() - started)
        for event in conclusion.events:
            self._say(entry, event)

    def _release(self, entry: AutoscalerEntry) -> None:
        entry.is_busy = False
        self._released(entry.key)

    def _fail(self, entry: AutoscalerEntry) -> None:
        _log.exception("pass failed", key="/".join(entry.key))
        self._release(entry)


def _shifted(decision: Decision, by_s: float) -> Decision:
    """Return the decision with its history as of a clock that was set meanwhile."""
    if not by_s:
        return decision
    draft = decision.draft
    if draft is not None:
        draft = structs.replace(draft, past=history.shifted(draft.past, by_s))
    return structs.replace(decision, past=history.shifted(decision.past, by_s), draft=draft)


def _pages(looks: Sequence[Look], given: Sequence[Given]) -> Iterator[list[tuple[Look, Given]]]:
    for start in range(0, len(looks), PAGE):
        end = start + PAGE
        yield list(zip(looks[start:end], given[start:end], strict=True))


def _by_metrics(looks: Sequence[Look]) -> list[list[Look]]:
    """Looks that need the same metrics together: a slow one then delays only its own."""
    groups: dict[frozenset[str], list[Look]] = {}
    for look in looks:
        names = frozenset(f"{each.type}/{each.name}" for each in look.hpa.metrics)
        groups.setdefault(names, []).append(look)
    return list(groups.values())
