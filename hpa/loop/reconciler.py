"""One pass over one autoscaler, from what is observed to what is remembered.

Follows ``reconcileAutoscaler`` in kubernetes ``pkg/controller/podautoscaler/horizontal.go``. The
passes of one slot ask for their metrics together (``SlotQuestions``); from its answers on each
goes its own way, so that neither a slow API server nor a slow target delays the others.
"""

import asyncio
from collections.abc import Sequence
from zlib import crc32

import structlog
from msgspec import Struct, structs

from hpa.cluster.record import AutoscalerRecord, AutoscalerView, SentScale, TargetScale
from hpa.cluster.writer import REPORTS_S, WriteTurns, is_status_due
from hpa.decide.conclusion import conclude
from hpa.decide.conditions import DecisionEvent
from hpa.decide.decision import DONE, Corrected, Decision, Outcome
from hpa.decide.observation import Scale, ScaleUnreadable
from hpa.decide.reconcile import decide
from hpa.forecast.demand import measured
from hpa.history import history
from hpa.loop.slot import PAGE, MetricsReader, SlotAnswers, SlotQuestions
from hpa.loop.state import ControllerState
from podscale.kube.client.errors import NotLeading
from podscale.kube.client.resource import Resource
from podscale.kube.events import Recorder
from podscale.kube.objects.cluster import ObjectReference

_log = structlog.get_logger()

# Writes wait for their turn where more are due than go in, for minutes. What was decided
# longer ago is not begun: it is decided anew, from what is measured then, and comes first.
LASTS_S = 15.0
_GATHER_S = 0.02  # changes that come together are decided together
_READS = 50  # requests for scales under way
_PAUSED = TargetScale(ScaleUnreadable("it is not looked at while paused"))


class ScaleWrite(Struct, eq=False, gc=False):
    """A size that is to be written. Times are monotonic."""

    before: int
    after: int
    is_correction: bool  # back between the bounds: no policy is asked for that
    sent_at: float = 0.0  # of the last attempt


class Reconciler:
    """The passes of one term of leadership."""

    def __init__(self, group: asyncio.TaskGroup, state: ControllerState) -> None:
        self._group = group
        self._state = state
        self._clock = state.clock
        self._shadow = structs.replace(state.settings, mode="shadow")
        self._metrics = MetricsReader(
            state.ports.provider,
            state.ports.metrics,
            timeout_s=state.options.answer_timeout_s,
            wall=state.clock.unix,
        )
        self._reads = asyncio.Semaphore(_READS)
        self._turns = WriteTurns(state.options.writes)
        self._urgent: dict[AutoscalerRecord, None] = {}  # in the order in which they came
        self._is_any_urgent = asyncio.Event()

    def hurry(self, record: AutoscalerRecord) -> None:
        """Have a pass over ``record`` at once, or when the one under way has ended."""
        self._urgent[record] = None
        self._is_any_urgent.set()

    async def urgent(self) -> list[AutoscalerRecord]:
        """Wait for autoscalers that are to have a pass at once, and return them."""
        await self._is_any_urgent.wait()
        await asyncio.sleep(_GATHER_S)
        self._is_any_urgent.clear()
        return [each for each in self._urgent if not each.passes.is_under_way]

    async def run(self, records: Sequence[AutoscalerRecord]) -> None:
        """Start a pass over each of ``records``, and ask for the metrics of all of them. Returns
        when these are answered; a pass whose scale is read slowly goes on after that."""
        due = [each for each in records if self._begins(each)]
        slot = SlotQuestions(self._metrics, self._clock, due)
        try:
            for place, record in enumerate(due, 1):
                self._group.create_task(self._pass(record, slot))
                if place % PAGE == 0:
                    await asyncio.sleep(0)
            await slot.ask()
        finally:
            slot.close()

    def _begins(self, record: AutoscalerRecord) -> bool:
        if record.is_gone:
            return False
        if record.passes.is_under_way:
            self._state.ports.metrics.counts.skipped += 1
            return False
        self._urgent.pop(record, None)  # this pass will see what changed
        record.passes.is_under_way = True
        return True

    async def _pass(self, record: AutoscalerRecord, slot: SlotQuestions) -> None:
        try:
            await self._reconcile(record, slot)
        except NotLeading:
            _log.info("write stopped: not leading", key="/".join(record.key))
        except Exception:  # noqa: BLE001 - a bug met by one object must not stop the others
            _log.exception("pass failed", key="/".join(record.key))
            record.passes.unwritten_since = None
        finally:
            slot.leave(record)
            record.passes.is_under_way = False
            if record in self._urgent:
                self._is_any_urgent.set()

    async def _reconcile(self, record: AutoscalerRecord, slot: SlotQuestions) -> None:
        started, passes = self._clock.watch(), record.passes
        view = await self._observe(record)
        if view is None:
            return
        answers = await slot.answers(view)
        if record.is_gone or not slot.may_find_windows(view.hpa, answers.unix):
            return
        decision, set_s = self._decide(view, answers, started), self._clock.set_s
        write, outcome = _scale_write(view, decision), DONE
        if write is not None and (objection := self._objection(view, write, started)):
            write, outcome = None, Outcome("not_tried", objection)
        conclusion, at = conclude(decision, outcome, answers.unix), answers.unix
        if write is None and not self._is_report_due(view, conclusion):
            passes.unwritten_since = None
            self._remember(view, conclusion, view.size, at, started)
            return

        if passes.unwritten_since is None:
            passes.unwritten_since = answers.now
        expires_at, size = answers.now + LASTS_S, view.size
        async with self._turns.turn(record.key[0], passes.unwritten_since):
            if write is not None:
                outcome = await self._write_scale(view, write, started, expires_at)
                if record.is_gone:
                    return
                size = write.after if outcome.scale == "written" else size
            is_tried = write is not None and outcome.scale != "not_tried"
            self._clock.look()
            decision = _shifted(decision, self._clock.set_s - set_s)
            at = self._clock.unix()
            conclusion = conclude(decision, outcome, at)
            # A write that was made is told of, however late; what was not comes first the next
            # time.
            if is_tried or self._clock.now() < expires_at:
                passes.unwritten_since = None
                if self._is_same(view) and self._is_report_due(view, conclusion):
                    error = await self._write_status(view, conclusion)
                    if record.is_gone:
                        return
                    if error is not None:
                        failed = structs.replace(outcome, status_error=error)
                        conclusion = conclude(decision, failed, at)
        self._remember(view, conclusion, size, at, started)

    async def _observe(self, record: AutoscalerRecord) -> AutoscalerView | None:
        """Return what is to be decided on; None: nothing is, the object cannot be read, is gone,
        or names another target since its scale was read."""
        targets, hpa = self._state.targets, record.hpa
        if hpa is None:
            return None
        target = targets.at_hand(record)
        is_known = target is not None and not (
            isinstance(target.scale, Scale)
            and self._state.memory.is_in_question(record, hpa, target.scale.spec_replicas)
        )
        if not is_known and not hpa.options.is_paused:
            async with self._reads:
                key = record.target
                target = await self._read_scale(record)
            if key != record.target or record.hpa is None or record.is_gone:
                return None
            hpa = record.hpa
        return self._state.observer.view(record, hpa, target or _PAUSED, self._state.ports.mapper())

    async def _read_scale(self, record: AutoscalerRecord) -> TargetScale:
        try:
            return await self._state.targets.fetch(record)
        except Exception as error:  # noqa: BLE001 - what one target answers is its own
            _log.exception("scale not read", key="/".join(record.key))
            return TargetScale(ScaleUnreadable(f"{type(error).__name__}: {error}"))

    def _decide(self, view: AutoscalerView, answers: SlotAnswers, started: float) -> Decision:
        record, state, unix = view.record, self._state, answers.unix
        past = state.memory.past(
            record,
            view.hpa,
            view.size,
            unix,
            lambda: state.targets.is_current(record, view.target, since=started),
        )
        before, record.passes.decided_at = record.passes.decided_at, answers.now
        if before is not None:
            state.ports.metrics.gap.add((), max(answers.now - before, 0.0))
        is_bystander = state.settings.mode != "shadow" and state.foreign.must_watch(
            record.foreign, answers.now
        )
        settings = self._shadow if is_bystander else state.settings
        forecast = record.history.forecast
        live = None if forecast is None or not view.hpa.options.forecasts else forecast.live
        expected = None if live is None else live.expected(unix)
        observation = structs.replace(view.observation, answers=answers.metrics, expected=expected)
        decision = decide(observation, past, settings, unix)
        if live is not None:
            live.note(measured(decision.trace), unix)
        return decision

    async def _write_scale(
        self, view: AutoscalerView, write: ScaleWrite, started: float, expires_at: float
    ) -> Outcome:
        """Write the size, unless something speaks against it when an attempt is to be made; the
        Lease is asked below, by the ``Api``."""
        record = view.record

        def may() -> bool:
            write.sent_at = self._clock.now()
            return (
                not record.is_gone
                and write.sent_at < expires_at
                and not self._objection(view, write, started)
            )

        answer = await self._state.writer.rescale(record, view.target, write.after, may=may)
        if record.is_gone:
            return answer.outcome
        if answer.outcome.scale != "not_tried":
            record.passes.unwritten_since = None
        if answer.is_lost:
            self._state.memory.sent(record, SentScale(write.before, write.after, write.sent_at))
        return answer.outcome

    async def _write_status(self, view: AutoscalerView, conclusion: Decision) -> str | None:
        """Write the status; returns why that failed."""
        record = view.record
        error = await self._state.writer.write_status(
            record, view.version, view.hpa.status, conclusion.status
        )
        if error is None:
            record.passes.reported_at = own_moment(record, self._clock.now())
        return error

    def _objection(self, view: AutoscalerView, write: ScaleWrite, started: float) -> str:
        """Return what speaks against writing a size, in words for people; "" is nothing.

        Time passes between an observation and a write: the object may have changed, another
        controller may have come, and a silent watch may hide what speaks against a smaller size.
        """
        is_up = write.after > write.before
        if not is_up and (doubt := self._doubt(view, started)):
            return doubt
        if not write.is_correction and not self._state.memory.knows_rescales(view.hpa, is_up=is_up):
            return (
                "the stored histories could not be read, and a policy counts rescales from "
                "before this process led"
            )
        if not self._is_same(view):
            return "the object has changed since, or another controller scales it"
        return ""

    def _doubt(self, view: AutoscalerView, since: float) -> str:
        """Return why nothing may shrink now."""
        if not view.knows_owners:
            return "who owns its pods is not known"
        # A silent watch may hide the pods or the spec that speak against it; and may have then.
        if not (
            self._state.ports.stores.is_current(since=since, namespace=view.record.key[0])
            and self._state.targets.is_current(view.record, view.target, since=since)
        ):
            return "the API server does not tell what changes, so that nothing may shrink"
        return ""

    def _is_same(self, view: AutoscalerView) -> bool:
        """Return whether the object is there as it was observed, and ours."""
        record, hpa = view.record, view.record.hpa
        if record.is_gone or hpa is None:
            return False
        if hpa is not view.hpa and structs.replace(hpa, status=view.hpa.status) != view.hpa:
            return False
        return not self._state.foreign.must_watch(record.foreign, self._clock.now())

    def _is_report_due(self, view: AutoscalerView, conclusion: Decision) -> bool:
        """Return whether a status is to be written now: at once where it tells of more than
        values that moved by little, and of these at the object's own moments."""
        if not conclusion.is_status_changed or conclusion.trace.settings.mode == "shadow":
            return False
        passes, now = view.record.passes, self._clock.now()
        if passes.reported_at is None:  # of a status that another process wrote
            passes.reported_at = own_moment(view.record, now)
        age_s, deadband = now - passes.reported_at, self._state.options.status_deadband
        is_due = is_status_due(view.hpa, conclusion.status, age_s, deadband=deadband)
        self._state.ports.metrics.counts.saved += not is_due
        return is_due

    def _remember(
        self,
        view: AutoscalerView,
        conclusion: Decision,
        size: int | None,
        at: float,
        started: float,
    ) -> None:
        """Keep the history and the trace, count the pass, and record its events.

        ``size`` is the target's now (None: not looked at), ``at`` unix seconds.
        """
        record, ports, trace = view.record, self._state.ports, conclusion.trace
        is_ours = trace.settings.mode != "shadow"
        self._state.memory.put(record, conclusion.past, size, at, is_stored=is_ours)
        ports.metrics.decisions[ports.traces.put(record.key, trace),] += 1
        ports.metrics.passed(conclusion.labels, self._clock.watch() - started)
        for event in conclusion.events:
            record_event(ports.recorder, self._state.options.resource, record, event)


def record_event(
    recorder: Recorder, resource: Resource, record: AutoscalerRecord, event: DecisionEvent
) -> None:
    meta = record.written.metadata
    whose = meta.namespace, meta.name, meta.uid
    about = ObjectReference(resource.kind, *whose, resource.api_version, meta.resource_version)
    recorder.event(about, event.type, event.reason, event.message)


def own_moment(record: AutoscalerRecord, now: float) -> float:
    """Return the newest of the moments at which values alone are written for one object.

    Each has its own: what was written together (after a start, or because Prometheus is back)
    would be due together for ever, ten thousand statuses in one period.
    """
    offset_s = REPORTS_S * (crc32("/".join(record.key).encode()) % 1000 / 1000)
    return now - (now - offset_s) % REPORTS_S


def _scale_write(view: AutoscalerView, decision: Decision) -> ScaleWrite | None:
    before, after = view.size, decision.replicas
    if before is None or after is None:
        return None
    is_correction = any(isinstance(step, Corrected) for step in decision.trace.steps)
    return ScaleWrite(before, after, is_correction)


def _shifted(decision: Decision, by_s: float) -> Decision:
    """Return the decision with its history as of a clock that was set meanwhile."""
    if not by_s:
        return decision
    draft = decision.draft
    if draft is not None:
        draft = structs.replace(draft, past=history.shifted(draft.past, by_s))
    return structs.replace(decision, past=history.shifted(decision.past, by_s), draft=draft)
