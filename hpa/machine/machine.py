"""The life of one autoscaler: what may happen when, and what is to be done then.

``handle(progress, event, now) -> instructions``: no await, no clock, no log. The shell
(``hpa.loop``) carries instructions out and hands what comes of them back as events. Time
comes from the caller and is monotonic.

    idle → observing → deciding → idle
                           ↓
                        waiting → writing → concluding → reporting → idle

Where only the status is to be written, waiting leads to concluding.
"""

# ruff: noqa: ARG001 - every step of the table takes the same

from collections.abc import Callable, Mapping

from hpa.machine import events as ev
from hpa.machine import instructions as ins
from hpa.machine.events import Signal
from hpa.machine.instructions import Order
from hpa.machine.progress import REPORTS_S, PassPhase, Progress, ScaleWrite, UnexpectedEvent

# Writes wait for their turn where more are wanted than go in, for minutes. What was decided
# longer ago is not begun: it is decided anew, from what is measured then, and comes first.
LASTS_S = 15.0

NOTHING: ins.Instructions = ()
_OBSERVE: ins.Instructions = (Order.OBSERVE,)
_SKIP: ins.Instructions = (Order.SKIP,)
_RUN_AGAIN: ins.Instructions = (Order.RUN_AGAIN,)
_DECIDE: ins.Instructions = (ins.Decide(),)
_WATCH: ins.Instructions = (ins.Decide(is_bystander=True),)
_PROCEED: ins.Instructions = (Order.PROCEED,)
_REFUSE: ins.Instructions = (Order.REFUSE,)
_CONCLUDE: ins.Instructions = (ins.Conclude(),)
_WRITE_STATUS: ins.Instructions = (Order.WRITE_STATUS,)
_SAVED: ins.Instructions = (Order.COUNT_SAVED, Order.FINISH)
_FINISH: ins.Instructions = (Order.FINISH,)
_IDLE, _OBSERVING, _DECIDING = PassPhase.IDLE, PassPhase.OBSERVING, PassPhase.DECIDING


def handle(progress: Progress, event: ev.Event, now: float) -> ins.Instructions:
    """Return what is to be done; ``progress`` is as it is after the event.

    Raises ``UnexpectedEvent`` for what cannot happen in its phase.
    """
    # A signal is a string: a class without a metaclass of its own is told from others in half
    # the time, and this runs four times a pass.
    kind = event if isinstance(event, str) else type(event)
    step = _TABLE[progress.phase].get(kind)
    if step is None:
        raise UnexpectedEvent(progress, event)
    return step if isinstance(step, tuple) else step(progress, event, now)


def objection(guards: ev.WriteGuards, write: ScaleWrite) -> str:
    """Return what speaks against writing a size, in words for people; "" is nothing."""
    is_up = write.after > write.before
    if not is_up and guards.doubt:
        return guards.doubt
    if not guards.knows_rescales and not write.is_correction:
        return (
            "the stored histories could not be read, and a policy counts rescales from "
            "before this process led"
        )
    if not guards.is_same:
        return "the object has changed since, or another controller scales it"
    return ""


def _begin_term(progress: Progress, event: ev.Event, now: float) -> ins.Instructions:
    progress.is_leading, progress.is_urgent = True, False
    progress.decided_at = progress.wanted_since = progress.reported_at = None
    return NOTHING


def _end_term(progress: Progress, event: ev.Event, now: float) -> ins.Instructions:
    _end_pass(progress)
    progress.is_leading = progress.is_urgent = False
    return NOTHING


def _delete(progress: Progress, event: ev.Event, now: float) -> ins.Instructions:
    progress.phase, progress.is_urgent = PassPhase.GONE, False
    return NOTHING


def _change(progress: Progress, event: ev.Event, now: float) -> ins.Instructions:
    if not progress.is_leading or progress.is_urgent:
        return NOTHING
    progress.is_urgent = True
    # A spec that changed during a pass gets another one, once that has ended.
    return _RUN_AGAIN if progress.phase is PassPhase.IDLE else NOTHING


def _start(progress: Progress, event: ev.Event, now: float) -> ins.Instructions:
    if not progress.is_leading:
        raise UnexpectedEvent(progress, event)
    progress.phase, progress.is_urgent = _OBSERVING, False
    return _OBSERVE


def _give_up(progress: Progress, event: ev.Event, now: float) -> ins.Instructions:
    if progress.phase is not PassPhase.OBSERVING:
        progress.wanted_since = None
    return _end_pass(progress)


def _decide(progress: Progress, event: ev.AnsweredEvent, now: float) -> ins.Instructions:
    progress.phase, progress.decided_at = _DECIDING, now
    return _WATCH if event.is_watched else _DECIDE


def _resize(progress: Progress, event: ev.ResizedEvent, now: float) -> ins.Instructions:
    write = ScaleWrite(event.before, event.after, event.is_correction)
    refused = objection(event.guards, write)
    if refused:
        return (ins.Conclude(refused),)
    progress.write = write
    return _wait(progress, now)


def _wait(progress: Progress, now: float) -> ins.Instructions:
    progress.phase, progress.expires_at = PassPhase.WAITING, now + LASTS_S
    if progress.wanted_since is None:
        progress.wanted_since = now
    return (ins.TakeTurn(progress.wanted_since),)


def _report_or_finish(progress: Progress, event: ev.ConcludedEvent, now: float) -> ins.Instructions:
    if is_report_due(progress, event.news, now):
        return _wait(progress, now)
    progress.wanted_since = None
    return _finish(progress, is_saved=event.news != "none")


def _take_turn(progress: Progress, event: ev.Event, now: float) -> ins.Instructions:
    write = progress.write
    if write is None:
        progress.phase = PassPhase.CONCLUDING
        return _CONCLUDE
    progress.phase = PassPhase.WRITING
    return (ins.WriteScale(write.after),)


def _attempt(progress: Progress, event: ev.AttemptEvent, now: float) -> ins.Instructions:
    write = progress.write
    if write is None:
        raise UnexpectedEvent(progress, event)
    if now >= progress.expires_at or objection(event.guards, write):
        return _REFUSE
    progress.sent_at = now
    return _PROCEED


def _take_answer(progress: Progress, event: ev.ScaleAnsweredEvent, now: float) -> ins.Instructions:
    write = progress.write
    if write is None:
        raise UnexpectedEvent(progress, event)
    progress.phase = PassPhase.CONCLUDING
    if event.outcome == "not_tried":
        progress.write = None
    else:
        progress.wanted_since = None
    if not event.is_lost:
        return _CONCLUDE
    return (ins.RememberSent(write.before, write.after, progress.sent_at), ins.Conclude())


def _conclude(progress: Progress, event: ev.ConcludedEvent, now: float) -> ins.Instructions:
    # A write that was made is told of, however late; what was not comes first the next time.
    if progress.write is None and now >= progress.expires_at:
        return _finish(progress)
    progress.wanted_since = None
    if not event.is_same:
        return _finish(progress)
    if not is_report_due(progress, event.news, now):
        return _finish(progress, is_saved=event.news != "none")
    progress.phase = PassPhase.REPORTING
    return _WRITE_STATUS


def _report(progress: Progress, event: ev.StatusAnsweredEvent, now: float) -> ins.Instructions:
    if event.is_written:
        progress.reported_at = own_moment(progress.offset_s, now)
    return _finish(progress)


def is_report_due(progress: Progress, news: ev.StatusNews, now: float) -> bool:
    """Return whether a status is to be written now."""
    if news == "none":
        return False
    if progress.reported_at is None:  # of a status that another process wrote
        progress.reported_at = own_moment(progress.offset_s, now)
    return news == "more" or now - progress.reported_at >= REPORTS_S


def own_moment(offset_s: float, now: float) -> float:
    """Return the newest of the moments at which values alone are written for one object.

    Each has its own: what was written together (after a start, or because Prometheus is back)
    would be due together for ever, ten thousand statuses in one period.
    """
    return now - (now - offset_s) % REPORTS_S


def _finish(progress: Progress, *, is_saved: bool = False) -> ins.Instructions:
    return (_SAVED if is_saved else _FINISH) + _end_pass(progress)


def _end_pass(progress: Progress) -> ins.Instructions:
    progress.phase, progress.write = _IDLE, None
    return _RUN_AGAIN if progress.is_urgent else NOTHING


# What never depends on anything stands in the table as it is.
_Steps = Mapping[ev.Kind, ins.Instructions | Callable[..., ins.Instructions]]

_EVER: _Steps = {Signal.CHANGED: _change, Signal.DELETED: _delete, Signal.TERM_ENDED: _end_term}
_BUSY: _Steps = {**_EVER, Signal.DUE: _SKIP, Signal.GIVEN_UP: _give_up}
# Whatever is under way may still come to its end; nothing is done for it any more.
_GONE: _Steps = {
    **dict.fromkeys(ev.KINDS, NOTHING),
    ev.AttemptEvent: _REFUSE,
}
_TABLE: Mapping[PassPhase, _Steps] = {
    PassPhase.IDLE: {**_EVER, Signal.TERM_BEGAN: _begin_term, Signal.DUE: _start},
    PassPhase.OBSERVING: {**_BUSY, ev.AnsweredEvent: _decide},
    PassPhase.DECIDING: {
        **_BUSY,
        ev.ResizedEvent: _resize,
        ev.ConcludedEvent: _report_or_finish,
    },
    PassPhase.WAITING: {**_BUSY, Signal.TURN_CAME: _take_turn},
    PassPhase.WRITING: {
        **_BUSY,
        ev.AttemptEvent: _attempt,
        ev.ScaleAnsweredEvent: _take_answer,
    },
    PassPhase.CONCLUDING: {**_BUSY, ev.ConcludedEvent: _conclude},
    PassPhase.REPORTING: {**_BUSY, ev.StatusAnsweredEvent: _report},
    PassPhase.GONE: _GONE,
}
