"""What schedules ask for at one moment: the largest of those in force.

A cron schedule is in force from a start until the next end, as KEDA's cron trigger. Where clocks
are set, it follows Debian's cron: a time of day that is skipped comes right after the gap, and one
that comes twice counts the first time; expressions with ``*`` or steps go by the clock that is.
"""

import math
from datetime import datetime
from zoneinfo import ZoneInfo

from msgspec import Struct, structs

from hpa.decide.api.options import Cron
from hpa.decide.api.spec import HPA, MinimumSchedule
from podscale.core.boundedcache import BoundedCache

_MINUTE_S = 60.0
_FOLD_S = 7200.0  # clocks are set back by less
_AGAIN_S = 86400.0  # until what never starts is looked for again


class ScheduledMinimum(Struct, frozen=True, gc=False):
    replicas: int
    schedule: MinimumSchedule
    is_ramp: bool = False  # on the way up to it


class _Window(Struct, frozen=True, gc=False):
    """What is true of a cron schedule at every moment from ``since`` (included) to ``until``."""

    since: float
    until: float
    start: float  # the next one; inf: none within five years
    is_in_force: bool


# A window is looked for once, and serves every pass until it ends.
_windows: BoundedCache[tuple[str, str, str], _Window] = BoundedCache(4 << 20, age_s=7200.0)


def scheduled(hpa: HPA, now: float) -> tuple[HPA, ScheduledMinimum | None]:
    """Return ``hpa`` with the largest minReplicas in force at ``now``, at most maxReplicas, and
    why; as it is where none is above its own."""
    low, best = hpa.min_replicas, None
    for each in hpa.options.schedules:
        replicas, is_ramp = _of(each, hpa.min_replicas, now)
        if min(replicas, hpa.max_replicas) > low:
            low = min(replicas, hpa.max_replicas)
            best = ScheduledMinimum(low, each, is_ramp)
    return (hpa, None) if best is None else (structs.replace(hpa, min_replicas=low), best)


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
    window = _known(schedule, now) or _found(schedule, now)
    return window.start, window.is_in_force


def unknown(schedules: tuple[MinimumSchedule, ...], now: float) -> int:
    """Return how many of these are to be looked for to decide at ``now``: 0.1 ms each, rarely
    more than 1 ms."""
    return sum(each.start_s is None and _known(each, now) is None for each in schedules)


def _known(schedule: MinimumSchedule, now: float) -> _Window | None:
    window = _windows.get((schedule.start, schedule.end, schedule.zone))
    return window if window is not None and window.since <= now < window.until else None


def _found(schedule: MinimumSchedule, now: float) -> _Window:
    # Cron knows whole minutes only. The start of this very minute is in the past as well.
    zone, minute = ZoneInfo(schedule.zone), now // _MINUTE_S * _MINUTE_S
    start = _moment(schedule.start, minute, zone) or math.inf
    before = _moment(schedule.start, minute + _MINUTE_S, zone, is_back=True)
    end = 0.0 if before is None else _moment(schedule.end, before, zone) or math.inf
    is_in_force = minute < end
    since = max(before or minute, 0.0 if is_in_force else end)
    until = min(start, end if is_in_force else math.inf)
    window = _Window(since, until if until < math.inf else now + _AGAIN_S, start, is_in_force)
    key = schedule.start, schedule.end, schedule.zone
    _windows.put(key, window, sum(map(len, key)))
    return window


def _moment(text: str, now: float, zone: ZoneInfo, *, is_back: bool = False) -> float | None:
    # The next one after ``now``, or the last one before it.
    moment = datetime.fromtimestamp(now, zone)
    if moment.fold:
        # In an hour that comes again, CronSim takes a time of day for that of the first: look
        # from outside of it.
        moment = datetime.fromtimestamp(now + (_FOLD_S if is_back else -_FOLD_S), zone)
    for found in Cron(text, moment, is_back=is_back):
        at = found.timestamp()
        if at < now if is_back else at > now:
            return at
    return None
