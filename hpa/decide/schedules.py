"""What schedules ask for at one moment: the largest of those in force.

A cron schedule is in force from a start until the next end, as KEDA's cron trigger. Where clocks
are set, it follows Debian's cron: a time of day that is skipped comes right after the gap, and one
that comes twice counts the first time; expressions with ``*`` or steps go by the clock that is.
"""

import math
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim
from msgspec import Struct, structs

from hpa.decide.api.spec import HPA, MinimumSchedule

_MINUTE_S = 60.0
_FOLD_S = 7200.0  # clocks are set back by less


class ScheduledMinimum(Struct, frozen=True, gc=False):
    """A minimum that is in force."""

    replicas: int
    schedule: MinimumSchedule
    is_ramp: bool = False  # on the way up to it


def minimum(
    schedules: tuple[MinimumSchedule, ...], low: int, now: float
) -> ScheduledMinimum | None:
    """Return the largest minimum at ``now``, above ``low``; None: there is none."""
    best = None
    for each in schedules:
        replicas, is_ramp = _of(each, low, now)
        if replicas > (low if best is None else best.replicas):
            best = ScheduledMinimum(replicas, each, is_ramp)
    return best


def scheduled(hpa: HPA, now: float) -> tuple[HPA, ScheduledMinimum | None]:
    """Return ``hpa`` with the minReplicas of ``now``, at most maxReplicas, and why."""
    found = minimum(hpa.options.schedules, hpa.min_replicas, now)
    if found is None:
        return hpa, None
    replicas = min(found.replicas, hpa.max_replicas)
    if replicas <= hpa.min_replicas:
        return hpa, None
    return structs.replace(hpa, min_replicas=replicas), structs.replace(found, replicas=replicas)


def _of(schedule: MinimumSchedule, low: int, now: float) -> tuple[int, bool]:
    start, is_in_force = _next(schedule, now)
    if is_in_force:
        return schedule.min_replicas, False
    left_s = start - now
    if left_s >= schedule.ramp_s or schedule.min_replicas <= low:
        return 0, False
    # In even steps from minReplicas; all of it at start.
    part = 1.0 - left_s / schedule.ramp_s
    return low + math.ceil((schedule.min_replicas - low) * part), True


def _next(schedule: MinimumSchedule, now: float) -> tuple[float, bool]:
    # When it starts next, and whether it is in force already.
    if schedule.start_s is not None and schedule.end_s is not None:
        is_over = now >= schedule.end_s
        return math.inf if is_over else schedule.start_s, schedule.start_s <= now < schedule.end_s
    # Cron knows whole minutes only, so that one look is good for all passes of a minute.
    return _cron(schedule, math.floor(now / _MINUTE_S))


@lru_cache(maxsize=4096)
def _cron(schedule: MinimumSchedule, minute: int) -> tuple[float, bool]:
    zone, now = ZoneInfo(schedule.zone), minute * _MINUTE_S
    after = _moment(schedule.start, now, zone) or math.inf
    # The start of this very minute is in the past as well.
    before = _moment(schedule.start, now + _MINUTE_S, zone, is_back=True)
    if before is None:
        return after, False
    end = _moment(schedule.end, before, zone)
    return after, end is None or now < end


def _moment(text: str, now: float, zone: ZoneInfo, *, is_back: bool = False) -> float | None:
    # The next one after ``now``, or the last one before it.
    moment = datetime.fromtimestamp(now, zone)
    if moment.fold:
        # In an hour that comes again, CronSim takes a time of day for that of the first: look
        # from outside of it.
        moment = datetime.fromtimestamp(now + (_FOLD_S if is_back else -_FOLD_S), zone)
    for found in CronSim(text, moment, reverse=is_back):
        at = found.timestamp()
        if at < now if is_back else at > now:
            return at
    return None
