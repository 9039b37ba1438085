"""The end of a pass: what was decided is written, remembered and recorded.

What is to be done next the machine of each autoscaler says (``hpa.machine``); here it is done,
within limits. A pass that writes goes on in a task of its own, so that neither a slow API server
nor a slow target delays the others of its batch.
"""

import asyncio
from functools import partial

import structlog
from msgspec import Struct, structs

from hpa.cluster import statuses
from hpa.cluster.write_turns import WriteTurns
from hpa.decide import Conclusion, Decision, Outcome, conclude
from hpa.decide.conditions import DecisionEvent
from hpa.decide.decision import DONE
from hpa.decide.steps import Corrected
from hpa.history import history
from hpa.loop.state import ControllerState
from hpa.machine import events as ev
from hpa.machine import instructions as ins
from hpa.machine.events import Signal
from hpa.machine.instructions import Order
from hpa.machine.record import AutoscalerRecord, Look
from podscale.kube.client.errors import NotLeading
from podscale.kube.client.resource import Resource
from podscale.kube.events.recorder import Recorder
from podscale.kube.objects.cluster import ObjectReference

_log = structlog.get_logger()

_NO_NEWS = ev.ConcludedEvent()
_FINISH = Order.FINISH


class PassUnderWay(Struct, eq=False):
    """One decision on its way to its end."""

    look: Look
    started: float  # when it was looked, by the clock of the watches
    decision: Decision
    is_up: bool  # more is wanted than there is
    size: int | None  # of the target; None: it was not looked at
    set_s: float  # by how much the clock was set when it was decided
    conclusion: Conclusion
    concluded_at: float  # unix seconds
    outcome: Outcome = DONE


class DecisionWrites:
    """Carries decisions out for one term of leadership."""

    def __init__(self, group: asyncio.TaskGroup, state: ControllerState) -> None:
        self._group = group
        self._state = state
        self._machines = state.machines
        self._clock = state.clock
        self._turns = WriteTurns(state.options.writes)

    def begin(self, look: Look, started: float, decision: Decision, now: float) -> None:
        """Finish a pass at once where nothing is to be written, and otherwise later."""
        unix, before, after = decision.trace.now, look.size, decision.replicas
        is_up = before is not None and after is not None and after > before
        conclusion = conclude(decision, DONE, unix)
        made = PassUnderWay(
            look, started, decision, is_up, before, self._clock.set_s, conclusion, unix
        )
        if before is None or after is None:
            told = self._machines.handle(look.record, self._news(made), now)
        else:
            is_corrected = any(isinstance(step, Corrected) for step in decision.trace.steps)
            resized = ev.ResizedEvent(before, after, is_corrected, self._guards(made))
            told = self._machines.handle(look.record, resized, now)
        if told and isinstance(told[0], ins.Conclude):  # against the write something spoke
            made.outcome = Outcome("not_tried", told[0].objection or "")
            made.conclusion = conclude(decision, made.outcome, unix)
            told = self._machines.handle(look.record, self._news(made), now)
        if _FINISH in told:
            self._finish(made)
        elif told and isinstance(told[0], ins.TakeTurn):
            self._group.create_task(self._write(made, told[0].since))

    async def _write(self, made: PassUnderWay, since: float) -> None:
        record = made.look.record
        try:
            async with self._turns.turn(record.key[0], since):
                told = await self._write_now(made)
            if _FINISH in told:
                self._finish(made)
        except NotLeading:
            _log.info("write stopped: not leading", key="/".join(record.key))
        except Exception:  # noqa: BLE001 - a bug met by one object must not stop the others
            _log.exception("pass failed", key="/".join(record.key))
        finally:
            self._machines.give_up(record)

    async def _write_now(self, made: PassUnderWay) -> ins.Instructions:
        """Write the scale and the status, as far as the machine wants it; returns its last
        instructions."""
        look, record, machines = made.look, made.look.record, self._machines
        told = machines.handle(record, Signal.TURN_CAME)
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
                self._state.memory.sent(record, each)
        if ins.Conclude() not in told:
            return told
        self._clock.look()
        made.decision = _shifted(made.decision, self._clock.set_s - made.set_s)
        made.set_s, made.concluded_at = self._clock.set_s, self._clock.unix()
        made.conclusion = conclude(made.decision, made.outcome, made.concluded_at)
        told = machines.handle(record, self._news(made, is_same=self._is_same(look)))
        if Order.WRITE_STATUS not in told:
            return told
        error = await self._state.writer.write_status(
            record, look.version, look.hpa.status, made.conclusion.status
        )
        if error is not None:
            failed = structs.replace(made.outcome, status_error=error)
            made.conclusion = conclude(made.decision, failed, made.concluded_at)
        return machines.handle(record, ev.StatusAnsweredEvent(is_written=error is None))

    def _may(self, made: PassUnderWay) -> bool:
        attempt = ev.AttemptEvent(self._guards(made))
        return Order.PROCEED in self._machines.handle(made.look.record, attempt)

    def _guards(self, made: PassUnderWay) -> ev.WriteGuards:
        """Return what speaks for and against the write now; the Lease is asked later.

        Time passes between a look and a write: the object may have changed, another controller
        may have come, and a silent watch may hide what speaks against a smaller size.
        """
        look = made.look
        return ev.WriteGuards(
            "" if made.is_up else self._doubt(look, made.started),
            self._state.memory.knows_rescales(look.hpa, is_up=made.is_up),
            self._is_same(look),
        )

    def _is_same(self, look: Look) -> bool:
        """Return whether the object is there as it was looked at, and ours."""
        record, hpa = look.record, look.record.hpa
        if record.is_gone or hpa is None:
            return False
        if hpa is not look.hpa and structs.replace(hpa, status=look.hpa.status) != look.hpa:
            return False
        return not self._state.foreign.must_watch(record.foreign, self._clock.now())

    def _doubt(self, look: Look, since: float) -> str:
        """Return why nothing may shrink now."""
        if not look.knows_owners:
            return "who owns its pods is not known"
        # A silent watch may hide the pods or the spec that speak against it; and may have then.
        if not (
            self._state.ports.stores.is_current(since=since, namespace=look.record.key[0])
            and self._state.targets.is_current(look.record, look.seen, since=since)
        ):
            return "the API server does not tell what changes, so that nothing may shrink"
        return ""

    def _news(self, made: PassUnderWay, *, is_same: bool = True) -> ev.ConcludedEvent:
        conclusion = made.conclusion
        if not conclusion.is_status_changed or conclusion.trace.settings.mode == "shadow":
            return _NO_NEWS if is_same else ev.ConcludedEvent(is_same=False)
        news = statuses.status_news(
            made.look.hpa, conclusion.status, deadband=self._state.options.status_deadband
        )
        return ev.ConcludedEvent(news, is_same)

    def _finish(self, made: PassUnderWay) -> None:
        record, conclusion, ports = made.look.record, made.conclusion, self._state.ports
        trace = conclusion.trace
        is_ours = trace.settings.mode != "shadow"
        self._state.memory.put(
            record, conclusion.past, made.size, made.concluded_at, is_stored=is_ours
        )
        ports.metrics.decisions[ports.traces.put(record.key, trace),] += 1
        ports.metrics.passed(conclusion.labels, self._clock.watch() - made.started)
        for event in conclusion.events:
            record_event(ports.recorder, self._state.options.resource, record, event)


def record_event(
    recorder: Recorder, resource: Resource, record: AutoscalerRecord, event: DecisionEvent
) -> None:
    """Record an Event about an autoscaler."""
    meta = record.written.metadata
    whose = meta.namespace, meta.name, meta.uid
    about = ObjectReference(resource.kind, *whose, resource.api_version, meta.resource_version)
    recorder.event(about, event.type, event.reason, event.message)


def _shifted(decision: Decision, by_s: float) -> Decision:
    """Return the decision with its history as of a clock that was set meanwhile."""
    if not by_s:
        return decision
    draft = decision.draft
    if draft is not None:
        draft = structs.replace(draft, past=history.shifted(draft.past, by_s))
    return structs.replace(decision, past=history.shifted(decision.past, by_s), draft=draft)
