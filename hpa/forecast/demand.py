"""What a workload was asked to do, as pods at its targets, minute by minute; and what is known of
it at each minute: lags and seasons. All forecasts are made of these.

Days are of UTC: a change of the clocks moves a season by an hour, which the lags see.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from hpa.decide.api.spec import HPA
from hpa.decide.decision import Measured, Trace
from hpa.decide.metrics.measuring import Valid
from hpa.decide.observation import Scale
from hpa.simulate.loop import target_of
from hpa.simulate.workload import Floats, LoadHistory, Plant, held, key_of

SLOT_S = 60.0
DAY = 1440  # slots
# Minutes after which a lag has forgotten all but 1/e: of means, then of the highest.
MEANS, HIGHEST = (5.0, 15.0, 30.0, 120.0), (20.0, 120.0)
FEATURES = (
    "now", "mean5", "mean15", "mean30", "mean120", "highest20", "highest120", "season", "peak",
    "peak2", "day", "week", "level", "trend", "ratio", "one",
)  # fmt: skip
_MOST_RATIO, _MOST_LEVEL = 4.0, 2.0
_ROUNDING, _NO_WEIGHT = 1e-9, 1e-12
_KEPT_MEANS = [math.exp(-1.0 / minutes) for minutes in MEANS]
_KEPT_HIGHEST = [math.exp(-1.0 / minutes) for minutes in HIGHEST]


class DemandHistory(Struct, frozen=True, eq=False):
    """Pods that the load asks for at the spec's targets, a value a minute; NaN: not known."""

    start_s: float  # a whole minute
    pods: Floats
    needed: Floats  # the fewest that serve it

    def until(self, count: int) -> "DemandHistory":
        """Return the first ``count`` minutes."""
        return DemandHistory(self.start_s, self.pods[:count], self.needed[:count])


def demand_of(
    hpa: HPA, load: LoadHistory, plant: Plant, capacities: Mapping[str, float],
    start_s: float | None = None,
) -> DemandHistory:  # fmt: skip
    """Return the demand of ``hpa``: of the metric that asks for most, where all are known.

    ``capacities`` is what a pod serves, by the key of a column. It begins at ``start_s``, None:
    where the load does.
    """
    if start_s is None:
        start_s = math.ceil(load.time_s[0] / SLOT_S) * SLOT_S
    count = max(0, math.ceil((load.end_s - start_s) / SLOT_S))
    times: Floats = start_s + SLOT_S * np.arange(count, dtype=np.float64)
    most, needed = np.zeros(count), np.zeros(count)
    for metric in hpa.metrics:
        values = held(load, load.columns[key_of(metric)], times)
        most = np.maximum(most, values / target_of(metric, plant))
        needed = np.maximum(needed, np.ceil(values / capacities[key_of(metric)] - _ROUNDING))
    return DemandHistory(start_s, most, needed)


def measured(trace: Trace) -> float:
    """Return the demand that a pass measured; NaN where one of its metrics failed, or a VPA's
    anchor holds the target: what there was then is measured by other requests."""
    scale, most = trace.observation.scale, math.nan
    if not isinstance(scale, Scale) or trace.observation.held is not None:
        return most
    ready = trace.observation.pods.ready_count()
    for step in trace.steps:
        if not isinstance(step, Measured):
            continue
        if not isinstance(step.result, Valid) or step.result.calculation.ratio is None:
            return math.nan
        metric = trace.observation.hpa.metrics[step.index]
        is_whole = metric.type in ("Object", "External") and not metric.is_by_value
        found = step.result.calculation.ratio * (scale.status_replicas if is_whole else ready)
        most = found if math.isnan(most) else max(most, found)
    return most


def peaks(pods: Floats, slots: int) -> Floats:
    """Return the highest of each minute and the ``slots`` after it, of those that are known; the
    end looks less far. NaN: none is."""
    found, reach = pods.copy(), 1
    while reach <= slots:
        step = min(reach, slots + 1 - reach)
        found[:-step] = np.fmax(found[:-step], found[step:])
        reach += step
    return found


def lags(pods: Floats) -> Floats:
    """Return the lags before each minute and after the last, a row each. A minute that is not known
    is as the last, and before the first all were as it is."""
    known = np.maximum.accumulate(np.where(np.isnan(pods), -1, np.arange(len(pods))))
    first = pods[np.argmin(np.isnan(pods))]
    values = np.concatenate(([first], np.where(known >= 0, pods[known], first)))
    means = [_decayed_mean(values, minutes) for minutes in MEANS]
    highest = [_decayed(np.maximum, values, minutes) for minutes in HIGHEST]
    return np.stack((values, *means, *highest))


def next_lags(before: Sequence[float], pods: float) -> list[float]:
    """Return the lags one minute of ``pods`` later: as ``lags``, without its arrays, which cost
    twenty times as much for one minute."""
    means = before[1 : 1 + len(MEANS)]
    highest = before[1 + len(MEANS) :]
    return [
        pods,
        *(pods + (mean - pods) * keep for mean, keep in zip(means, _KEPT_MEANS, strict=True)),
        *(max(pods, most * keep) for most, keep in zip(highest, _KEPT_HIGHEST, strict=True)),
    ]


def _decayed_mean(values: Floats, minutes: float) -> Floats:
    # As if the first value had been there for ever.
    share, first = 1.0 - math.exp(-1.0 / minutes), values[0]
    found: Floats = first + share * _decayed(np.add, values - first, minutes)
    return found


def _decayed(combine: np.ufunc, values: Floats, minutes: float) -> Floats:
    # Of the last minute, then of the last two, the last four, until the oldest have no weight.
    found, reach = values.copy(), 1
    while (weight := math.exp(-reach / minutes)) > _NO_WEIGHT:
        combine(found[reach:], weight * found[:-reach], out=found[reach:])
        reach *= 2
    return found


def seasons(pods: Floats, peak: Floats, days: int) -> Floats:
    """Return what the days before say of each minute of ``pods`` and of ``days`` after them, a row
    each: season, peak, peak2, day, week, mean15 and mean30 of the season.

    ``pods`` begins with a day; ``peak`` is of each minute and those ahead.
    """
    whole = -(-len(pods) // DAY) + days
    beyond = 0, whole * DAY - len(pods)
    now, highest = (
        np.pad(each, beyond, constant_values=np.nan).reshape(-1, DAY) for each in (pods, peak)
    )
    (season,), (mean, two, day) = _before(now, 7), _before(highest, 7, 2, 1)
    week = np.full_like(highest, np.nan)
    week[7:] = highest[:-7]
    week = np.where(np.isnan(week), mean, week)
    first = pods[np.argmin(np.isnan(pods))]
    flat = np.where(np.isnan(season), first, season).reshape(-1)
    curves = (season, mean, two, day, week)
    smooth = [_decayed_mean(flat, minutes) for minutes in (15.0, 30.0)]
    return np.stack((*(each.reshape(-1) for each in curves), *smooth))


def _before(grid: Floats, *spans: int) -> list[Floats]:
    # For each span the mean of the same minute of up to as many days before, of those known.
    known = ~np.isnan(grid)
    sums = np.cumsum(np.where(known, grid, 0.0), axis=0)
    counts = np.cumsum(known, axis=0)
    found = []
    for days in spans:
        total, count = sums.copy(), counts.copy()
        total[days:] -= sums[:-days]
        count[days:] -= counts[:-days]
        mean = np.full_like(grid, np.nan)
        np.divide(total[:-1], count[:-1], out=mean[1:], where=count[:-1] > 0)
        found.append(mean)
    return found


def features(lagged: Floats, curves: Floats) -> Floats:
    """Return what forecasts are made of, a row for each of ``FEATURES``."""
    season, peak, season15, season30 = curves[[0, 1, 5, 6]]
    now, _, mean15, mean30 = lagged[:4]
    tiny = 1e-9
    level = peak * np.clip(mean15 / np.maximum(season15, tiny), 1 / _MOST_LEVEL, _MOST_LEVEL)
    trend = np.maximum(peak + mean30 - season30, 0.0)
    ratio = now * np.minimum(peak / np.maximum(season, tiny), _MOST_RATIO)
    return np.vstack((lagged, curves[:5], level, trend, ratio, np.ones_like(now)))
