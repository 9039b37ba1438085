"""What is remembered about one HPA, in the few numbers that survive a restart.

A list of recommendations becomes runs of equal values, each with the time it was last
recommended: windows ask for the largest or smallest value after a time, and one entry at
a run's end answers that as the whole run would. Pure.
"""

import math
from collections.abc import Callable
from operator import attrgetter

from msgspec import Struct, structs

from hpa.cluster.record import HistoryMark
from hpa.decide.api.spec import HPA, LONGEST_WINDOW_S
from hpa.decide.behavior import remember_scale
from hpa.decide.observation import GoodProposal, Past, Recommendation, ScaleEvent
from hpa.forecast.plan import ForecastVerdict

_GOOD_S = 60.0  # how late a good number may be known again


class HistoryRecord(Struct, frozen=True, omit_defaults=True):
    """One HPA's history, on the wire; times are unix seconds."""

    runs: tuple[tuple[int, float], ...] = ()  # replicas, last recommended at; oldest first
    ups: tuple[tuple[int, float], ...] = ()  # change, at
    downs: tuple[tuple[int, float], ...] = ()
    good: tuple[tuple[str, int, float], ...] = ()  # metric, replicas, at
    size: int | None = None  # of the target at the last pass
    at: float = 0.0  # of the last pass
    found: tuple[tuple[float, float], ...] = ()  # rescales only found: at, and earliest
    uid: str = ""  # of the object: one of the same name later has no history
    forecast: ForecastVerdict | None = None


_at = attrgetter("at")


def mark(past: Past, size: int | None, forecast: ForecastVerdict | None = None) -> HistoryMark:
    """Return the mark of a history; while it stays equal the stored form stays good."""
    newest = max(past.recommendations or (), key=_at, default=None)
    good = (
        tuple((each.metric, each.replicas, int(each.at // _GOOD_S)) for each in past.good)
        if past.good
        else ()
    )
    replicas = None if newest is None else newest.replicas
    return replicas, past.scale_ups, past.scale_downs, good, size, forecast


def to_record(
    past: Past,
    size: int | None,
    now: float,
    uid: str = "",
    forecast: ForecastVerdict | None = None,
) -> HistoryRecord:
    """Return the stored form, without what no window can reach any more."""
    since = now - LONGEST_WINDOW_S
    runs: list[tuple[int, float]] = []
    for each in sorted(past.recommendations or (), key=lambda each: each.at):
        if each.at < since:
            continue
        if runs and runs[-1][0] == each.replicas:
            runs[-1] = (each.replicas, _rounded(each.at))
        else:
            runs.append((each.replicas, _rounded(each.at)))
    return HistoryRecord(
        tuple(runs),
        _events(past.scale_ups, since),
        _events(past.scale_downs, since),
        tuple((each.metric, each.replicas, _rounded(each.at)) for each in past.good),
        size,
        _rounded(now),
        tuple(
            (_rounded(each.at), _rounded(each.earliest))
            for each in (*past.scale_ups, *past.scale_downs)
            if each.earliest is not None and each.at >= since
        ),
        uid,
        forecast,
    )


def from_record(record: HistoryRecord, alive_until: float | None) -> Past:
    """Return the history; the last run reaches to when its writer last showed life."""
    recommendations = [Recommendation(replicas, at) for replicas, at in record.runs]
    if recommendations and alive_until is not None:
        last = recommendations[-1]
        recommendations[-1] = Recommendation(last.replicas, max(last.at, alive_until))
    found = dict(record.found)
    return Past(
        tuple(recommendations),
        tuple(ScaleEvent(change, at, earliest=found.get(at)) for change, at in record.ups),
        tuple(ScaleEvent(change, at, earliest=found.get(at)) for change, at in record.downs),
        tuple(GoodProposal(*each) for each in record.good),
    )


def is_behind(record: HistoryRecord, hpa: HPA) -> bool:
    """Return whether the status tells of a rescale after the record, which then could not be
    stored: what was recommended since nobody knows."""
    # The status has whole seconds.
    return hpa.status.last_scale_s is not None and hpa.status.last_scale_s > record.at + 1


def taken_over(record: HistoryRecord, alive_until: float | None, hpa: HPA) -> Past:
    """Return the history of a leader before us, which recommended the same until it ended.

    Not so where the record is behind: what was recommended at the time of the rescale that
    the status tells of led to the size in it.
    """
    status = hpa.status
    if status.last_scale_s is None or not is_behind(record, hpa):
        return from_record(record, alive_until)
    past = from_record(record, None)
    newest = Recommendation(status.desired_replicas, status.last_scale_s)
    return structs.replace(past, recommendations=(*(past.recommendations or ()), newest))


def resumed(past: Past, size: int, at: float) -> Past:
    """Return the history of an object of which nobody knows what was recommended before ``at``:
    as upstream after a restart, the size that is found counts."""
    # Before what is recommended then: of equal times none says which is the newest.
    found = Recommendation(size, at - 0.001)
    return structs.replace(past, recommendations=(*(past.recommendations or ()), found))


def recovered(
    past: Past, hpa: HPA, size: int | None, behind_s: float = 0.0, now: float = math.inf
) -> tuple[Past, int | None]:
    """Return the history with the newest rescale that only the status tells of, and the
    size that the target should have now.

    Its writer's clock was ``behind_s`` behind ours, or is as ours since it was set. A leader that
    died between writing the scale and storing its history left both in the
    status, or neither; the latter shows as a difference in size (``drifted``).
    """
    status = hpa.status
    newest = newest_rescale(past)
    # The status has whole seconds.
    if status.last_scale_s is None or status.last_scale_s <= newest + 1:
        return past, size
    if status.current_replicas == status.desired_replicas:
        return past, size
    at = status.last_scale_s
    # As late as it can have been: what is counted for too long forgets nothing.
    if at + behind_s > now or (behind_s < 0 and at <= now):
        at -= behind_s
    sizes = status.current_replicas, status.desired_replicas
    return remember_scale(past, hpa.behavior, *sizes, at), status.desired_replicas


def joined(before: Past, past: Past) -> Past:
    """Return the history of a term that began without the one ``before`` it."""
    # The newest rescale in it may be known from the status, which has whole seconds.
    since = 1 + newest_rescale(before)
    known = {each.metric for each in past.good}
    return Past(
        (*(before.recommendations or ()), *(past.recommendations or ())),
        (*before.scale_ups, *(each for each in past.scale_ups if each.at > since)),
        (*before.scale_downs, *(each for each in past.scale_downs if each.at > since)),
        (*(each for each in before.good if each.metric not in known), *past.good),
    )


def newest_rescale(past: Past) -> float:
    """Return when it was, unix seconds; -inf: none is known."""
    return max((each.at for each in (*past.scale_ups, *past.scale_downs)), default=-math.inf)


def drifted(
    past: Past, hpa: HPA, expected: int | None, actual: int, now: float, earliest: float
) -> Past:
    """Return the history with a difference in size that nothing explains, found now and made at
    ``earliest`` or later."""
    if expected is None or expected == actual:
        return past
    return remember_scale(past, hpa.behavior, expected, actual, now, earliest=min(earliest, now))


def adopted(past: Past, hpa: HPA) -> Past:
    """Return the history with a rescale that another controller wrote into the status."""
    status = hpa.status
    if status.last_scale_s is None:
        return past
    return remember_scale(
        past, hpa.behavior, status.current_replicas, status.desired_replicas, status.last_scale_s
    )


def shifted(past: Past, by_s: float, until: float = math.inf) -> Past:
    """Return the history as it would be, had the clock always been set as it is now.

    Nothing happened after ``until``, whatever another clock said.
    """

    def at(time: float) -> float:
        return min(time + by_s, until)

    recommendations = past.recommendations
    return Past(
        None
        if recommendations is None
        else tuple(structs.replace(each, at=at(each.at)) for each in recommendations),
        tuple(_moved(each, at) for each in past.scale_ups),
        tuple(_moved(each, at) for each in past.scale_downs),
        tuple(structs.replace(each, at=at(each.at)) for each in past.good),
    )


def _moved(event: ScaleEvent, at: Callable[[float], float]) -> ScaleEvent:
    earliest = None if event.earliest is None else at(event.earliest)
    return structs.replace(event, at=at(event.at), earliest=earliest)


def _events(events: tuple[ScaleEvent, ...], since: float) -> tuple[tuple[int, float], ...]:
    return tuple((each.change, _rounded(each.at)) for each in events if each.at >= since)


def _rounded(at: float) -> float:
    return round(at, 3)
