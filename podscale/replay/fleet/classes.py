"""What a container's usage is like: steady, daily, bursty, growing, idle or batch. Pure."""

from typing import Literal, get_args

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.replay.fleet.blocks import Floats

UsageClass = Literal["steady", "daily", "bursty", "growing", "idle", "batch"]
CLASSES: tuple[UsageClass, ...] = get_args(UsageClass)

_HOURS = 24
_IDLE_CORES = 0.01
_ACTIVE = 0.02  # of the 99th percentile: from here on an hour counts as active
_SELDOM = 0.35  # of the hours
_PLATEAU = 0.5  # of the 99th percentile: what runs seldom, and then with as much, is a batch
_BURST = 3.0  # times the median
_MOVES = 0.1  # of the mean: less spread than this is steady, whatever its shape
_EXPLAINED = 0.5  # of the spread, by the time of day or by a line
_GROWTH = 0.2  # of the mean, in a week
_FEWEST_DAYS = 3


class UsageShape(Struct, frozen=True):
    """The class and the numbers behind it."""

    usage_class: UsageClass
    active: float  # share of the hours, of those that are known, with more than next to nothing
    burst: float  # the 99th percentile, in times of the median
    daily: float  # share of the spread between hours that the time of day explains
    growth: float  # in a week, of the mean; 0 where no line explains it
    seen: float  # share of the hours that are known, since the first sample


def shape_of(
    resource: str,
    steps: NDArray[np.intp],
    values: NDArray[np.floating],
    ordered: NDArray[np.floating],
    hour_steps: int,
) -> UsageShape:
    """Return the shape of samples on a grid with ``hour_steps`` steps an hour; at least one.

    ``ordered`` are the same values, the smallest first.
    """
    begins, ends = int(steps.min()), int(steps.max()) + 1
    hour = (steps - begins) // hour_steps
    hours = (ends - begins - 1) // hour_steps + 1
    count = np.bincount(hour, minlength=hours)
    known = np.flatnonzero(count)
    mean = (np.bincount(hour, values, hours) / np.maximum(count, 1))[known]
    middle, high, largest = ordered[[len(values) // 2, int(0.99 * (len(values) - 1)), -1]].tolist()
    spread = float(mean.var())
    level = float(mean.mean())
    is_active = mean > _ACTIVE * high if high > 0.0 else np.zeros(len(mean), np.bool_)
    active = int(np.count_nonzero(is_active)) / len(mean)
    seen = len(known) / hours
    burst = high / middle if middle > 0.0 else (np.inf if high > 0.0 else 1.0)
    moves = spread**0.5 / level if level > 0.0 else 0.0
    daily = _of_day(known, mean) if hours >= 2 * _HOURS else 0.0
    growth = _growth(known, mean, level) if hours >= _FEWEST_DAYS * _HOURS else 0.0
    found: UsageClass
    if resource == "cpu" and largest < _IDLE_CORES:
        found = "idle"
    elif seen < 1.0 - _SELDOM or (
        0.0 < active < _SELDOM and np.median(mean[is_active]) > _PLATEAU * high
    ):
        found = "batch"
    elif growth >= _GROWTH:
        found = "growing"
    elif daily >= _EXPLAINED and moves >= _MOVES:
        found = "daily"
    elif burst >= _BURST:
        found = "bursty"
    else:
        found = "steady"
    return UsageShape(found, active, min(burst, 1e6), daily, growth, seen)


def _of_day(known: NDArray[np.intp], mean: Floats) -> float:
    hour = known % _HOURS
    count = np.bincount(hour, minlength=_HOURS)
    of_day = np.bincount(hour, mean, _HOURS) / np.maximum(count, 1)
    left, whole = ((mean - of_day[hour]) ** 2).sum(), ((mean - mean.mean()) ** 2).sum()
    free = max(1, len(mean) - int((count > 0).sum()))  # each hour of the day has a mean of its own
    return float(max(0.0, 1.0 - (left / free) / (whole / (len(mean) - 1)))) if whole > 0.0 else 0.0


def _growth(known: NDArray[np.intp], mean: Floats, level: float) -> float:
    # Of means of days: a daily shape is no growth.
    day = known // _HOURS
    count = np.bincount(day)
    days = np.flatnonzero(count)
    means = np.bincount(day, mean)[days] / count[days]
    if len(days) < _FEWEST_DAYS or level <= 0.0:
        return 0.0
    at = days - days.mean()
    slope = float((at * means).sum() / (at * at).sum())
    whole = float(((means - means.mean()) ** 2).sum())
    explained = slope**2 * float((at * at).sum()) / whole if whole > 0.0 else 0.0
    return slope * 7.0 / level if explained >= _EXPLAINED else 0.0
