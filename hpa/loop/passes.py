"""One batch of passes: look, ask once, decide each, act where something is to be written.

What is to be done next the machine of each autoscaler says (``hpa.machine``); here it is done,
within limits. A pass that writes goes on in a task of its own, so that neither a slow API server
nor a slow target delays the others of its batch.
"""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial

import structlog
from msgspec import Struct, structs

from hpa.cluster import statuses
from hpa.cluster.write_turns import WriteTurns
from hpa.decide import Conclusion, Decision, Outcome, Scale, conclude, decide
from hpa.decide.conditions import DecisionEvent
from hpa.decide.decision import DONE
from hpa.decide.steps import Corrected
from hpa.history import history
from hpa.history.clock import SteadyClock
from hpa.loop.guards import GuardReader
from hpa.loop.machines import Machines
from hpa.loop.metric_answers import Asking, Given
from hpa.loop.scale_reader import PAGE, ScaleReader
from hpa.loop.state import ControllerPorts, ControllerState, Options
from hpa.machine import events as ev
from hpa.machine import instructions as ins
from hpa.machine.record import AutoscalerRecord, Look, SentSize
from podscale.kube.client.errors import NotLeading
from podscale.kube.client.resource import Resource
from podscale.kube.events.recorder import Recorder
from podscale.kube.objects.cluster import ObjectReference

_log = structlog.get_logger()

_DUE, _TURN_CAME = ev.DueEvent(), ev.TurnCameEvent()
_OURS, _WATCHED = ev.AnsweredEvent(), ev.AnsweredEvent(is_watched=True)
_NO_NEWS = ev.ConcludedEvent()
_OBSERVE, _WATCH, _FINISH = ins.Observe(), ins.Decide(is_bystander=True), ins.Finish()


class PassUnderWay(Struct, eq=False):
    """One decision on its way to its end."""

    look: Look
    started: float  # when it was looked, by the clock of the watches
    decision: Decision
    size: int | None  # of the target; None: it was not looked at
    set_s: float  # by how much the clock was set when it was decided
    conclusion: Conclusion
    concluded_at: float  # unix seconds
    outcome: Outcome = DONE


class Passes:
    """Runs passes for one term of leadership."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        ports: ControllerPorts,
        state: ControllerState,
        machines: Machines,
        options: Options,
        clock: SteadyClock,
    ) -> None:
        limits = options.limits
        self._group = group
        self._ports = ports
        self._state = state
        self._machines = machines
        self._options = options
        self._clock = clock
        self._shadow = structs.replace(state.settings, mode="shadow")
        self._reader = ScaleReader(group, state, machines, reads=limits.reads)
        self._guards = GuardReader(ports.stores, state, clock)
        self._asking = Asking(
            ports.provider, ports.metrics, timeout_s=limits.answer_timeout_s, wall=clock.unix
        )
        self._turns = WriteTurns(limits.writes)

    async def run(self, records: Sequence[AutoscalerRecord]) -> None:
        """Take every record through one pass; those still in an earlier one are left out."""
        started = self._clock.watch()
        mapper = self._ports.mapper()
        now = self._clock.now()
        free = [each for each in records if self._begins(each, now)]
        looks, waiting = await self._reader.at_hand(free, mapper, now)
        if waiting:
            decide_late = partial(self._decide_all, started=started)
            looks += await self._reader.fetch(waiting, mapper, decide_late)
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

    def _begins(self, record: AutoscalerRecord, now: float) -> bool:
        try:
            return _OBSERVE in self._machines.handle(record, _DUE, now)
        except Exception:  # noqa: BLE001 - a bug met by one object must not stop the others
            self._machines.fail(record)
            return False

    async def _decide_apart(self, look: Look, started: float) -> None:
        try:
            await self._decide_all([look], started)
        except Exception:  # noqa: BLE001 - nobody waits for it
            _log.exception("pass failed", key="/".join(look.record.key))

    async def _decide_all(self, looks: Sequence[Look], started: float) -> None:
        begun = 0
        try:
            given = await self._asking.about(looks)
            for page in _pages(looks, given):
                if begun:
                    await asyncio.sleep(0)
                self._clock.look()
                # One time for all of a page: a float less to keep for each past number.
                now, unix = self._clock.now(), self._clock.unix()
                begun += len(page)
                for look, answers in page:
                    try:
                        self._decide(look, answers, started, now, unix)
                    except Exception:  # noqa: BLE001 - a bug met by one object must not stop others
                        self._machines.fail(look.record)
        finally:
            for look in looks[begun:]:
                self._machines.give_up(look.record)

    def _decide(self, look: Look, answers: Given, started: float, now: float, unix: float) -> None:
        record, state, scale = look.record, self._state, look.seen.scale
        if record.is_gone:
            return
        size = scale.spec_replicas if isinstance(scale, Scale) else None
        if look.hpa.options.is_paused:
            size = None
        is_watched = state.settings.mode != "shadow" and state.foreign.must_watch(
            record.foreign, now
        )
        before = record.progress.decided_at
        told = self._machines.handle(record, _WATCHED if is_watched else _OURS, now)
        past = state.memory.past(
            record,
            look.hpa,
            size,
            unix,
            lambda: state.targets.is_current(record, look.seen, since=started),
        )
        if before is not None:
            self._ports.metrics.gap.add((), max(now - before, 0.0))
        settings = self._shadow if _WATCH in told else state.settings
        decision = decide(look.observation(answers), past, settings, unix)
        made = PassUnderWay(
            look, started, decision, size, self._clock.set_s, conclude(decision, DONE, unix), unix
        )
        if decision.replicas is None or not isinstance(scale, Scale):
            told = self._machines.handle(record, self._news(made), now)
        else:
            resized = ev.ResizedEvent(
                scale.spec_replicas,
                decision.replicas,
                _is_corrected(decision),
                self._guards.of(look, decision, since=started),
            )
            told = self._machines.handle(record, resized, now)
        self._go_on(made, told, now)

    def _go_on(self, made: PassUnderWay, told: ins.Instructions, now: float) -> None:
        """Carry out what comes of a decision."""
        for each in told:
            if isinstance(each, ins.Finish):
                self._finish(made)
            elif isinstance(each, ins.Conclude):  # against the write something spoke
                made.outcome = Outcome("not_tried", each.objection or "")
                made.conclusion = conclude(made.decision, made.outcome, made.concluded_at)
                told = self._machines.handle(made.look.record, self._news(made), now)
                self._go_on(made, told, now)
            elif isinstance(each, ins.TakeTurn):
                self._group.create_task(self._write(made, each.since))

    async def _write(self, made: PassUnderWay, since: float) -> None:
        record = made.look.record
        try:
            async with self._turns.turn(record.key[0], since):
                told = await self._write_now(made)
            if _FINISH in told:
                self._finish(made)
        except NotLeading:
            _log.info("write stopped: not leading", key="/".join(record.key))
        except Exception:  # noqa: BLE001 - as above
            _log.exception("pass failed", key="/".join(record.key))
        finally:
            self._machines.give_up(record)

    async def _write_now(self, made: PassUnderWay) -> ins.Instructions:
        """Write the scale and the status, as far as the machine wants it; returns its last
        instructions."""
        look, record, machines = made.look, made.look.record, self._machines
        told = machines.handle(record, _TURN_CAME)
        if told and isinstance(told[0], ins.WriteScale):
            answer = await self._state.writer.rescale(
                record, look.seen, told[0].replicas, may=partial(self._may, made)
            )
            made.outcome = answer.outcome
            if answer.outcome.scale == "written":
                made.size = told[0].replicas
            answered = ev.ScaleAnsweredEvent(answer.outcome.scale, answer.is_lost)
            told = machines.handle(record, answered)
        for each in told:
            if isinstance(each, ins.RememberSent):
                self._state.memory.sent(record, SentSize(each.before, each.after, each.at))
        if ins.Conclude() not in told:
            return told
        self._clock.look()
        made.decision = _shifted(made.decision, self._clock.set_s - made.set_s)
        made.set_s, made.concluded_at = self._clock.set_s, self._clock.unix()
        made.conclusion = conclude(made.decision, made.outcome, made.concluded_at)
        told = machines.handle(record, self._news(made, is_same=self._guards.is_same(look)))
        if ins.WriteStatus() not in told:
            return told
        written = await self._state.writer.write_status(
            record, look.version, look.hpa.status, made.conclusion.status
        )
        if written.error is not None:
            failed = structs.replace(made.outcome, status_error=written.error)
            made.conclusion = conclude(made.decision, failed, made.concluded_at)
        return machines.handle(record, ev.StatusAnsweredEvent(written.is_written))

    def _may(self, made: PassUnderWay) -> bool:
        guards = self._guards.of(made.look, made.decision, since=made.started)
        return ins.Proceed() in self._machines.handle(made.look.record, ev.AttemptEvent(guards))

    def _news(self, made: PassUnderWay, *, is_same: bool = True) -> ev.ConcludedEvent:
        conclusion = made.conclusion
        if not conclusion.is_status_changed or conclusion.trace.settings.mode == "shadow":
            return _NO_NEWS if is_same else ev.ConcludedEvent(is_same=False)
        deadband = self._options.limits.status_deadband
        news = statuses.status_news(made.look.hpa, conclusion.status, deadband=deadband)
        return ev.ConcludedEvent(news, is_same)

    def _finish(self, made: PassUnderWay) -> None:
        record, conclusion, ports = made.look.record, made.conclusion, self._ports
        trace = conclusion.trace
        is_ours = trace.settings.mode != "shadow"
        self._state.memory.put(
            record, conclusion.past, made.size, made.concluded_at, is_stored=is_ours
        )
        ports.metrics.decided(ports.traces.put(record.key, trace, conclusion.past))
        ports.metrics.passed(conclusion.labels, self._clock.watch() - made.started)
        for event in conclusion.events:
            record_event(ports.recorder, self._options.resource, record, event)


def record_event(
    recorder: Recorder, resource: Resource, record: AutoscalerRecord, event: DecisionEvent
) -> None:
    """Record an Event about an autoscaler."""
    meta = record.written.metadata
    about = ObjectReference(
        kind=resource.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        api_version=resource.api_version,
        resource_version=meta.resource_version,
    )
    recorder.event(about, event.type, event.reason, event.message)


def _is_corrected(decision: Decision) -> bool:
    """Whether the size is brought back between the bounds: no policy is asked for that."""
    return any(isinstance(step, Corrected) for step in decision.trace.steps)


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
