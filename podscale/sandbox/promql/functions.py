"""Functions of PromQL on one window of samples, one number, or one histogram's buckets.

Follows ``promql/functions.go`` and ``promql/quantile.go`` of Prometheus 3: windows are open on
the left, classic buckets are linear within. None: too few samples for an answer.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from podscale.sandbox.promql.values import Labels, Vector, Window, label

# "Close to the end of the window" is this many average intervals.
_NEAR = 1.1
_ALIKE = 1e-12  # counts of buckets that differ by less differ by rounding
_BOUND = "le"


def total(values: Sequence[float]) -> float:
    """Return the sum as exact as Prometheus's compensated one."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # beyond floats, or infinities of both signs
        return float(np.sum(values))


def mean(values: Sequence[float]) -> float:
    return total(values) / len(values)


def _irate(window: Window) -> float | None:
    """Return the increase per second between the last two samples."""
    if len(window.times) < 2:
        return None
    before, last = window.values[-2:].tolist()
    change = last if last < before else last - before
    return float(change * 1000 / (window.times[-1] - window.times[-2]))


def _rate(window: Window) -> float | None:
    change = _extrapolated(window)
    return None if change is None else change * 1000 / (window.end_ms - window.start_ms)


def _extrapolated(window: Window, *, is_counter: bool = True) -> float | None:
    """Return the change over the whole window, as ``extrapolatedRate`` guesses it."""
    values, count = window.values, len(window.times)
    if count < 2:
        return None
    first, last = values[0], values[-1]
    change = last - first
    if is_counter:
        for place in np.flatnonzero(values[1:] < values[:-1]):
            change += values[place]
    sampled = float(window.times[-1] - window.times[0])
    interval = sampled / (count - 1)
    before = float(window.times[0] - window.start_ms)
    after = float(window.end_ms - window.times[-1])
    # A gap of more than an interval means that the series starts or ends within the window:
    # half an interval is the guess of where.
    if before >= interval * _NEAR:
        before = interval / 2
    if is_counter and change > 0 and first >= 0:
        # A counter was never below zero.
        before = min(before, sampled * (first / change))
    if after >= interval * _NEAR:
        after = interval / 2
    return float(change * ((sampled + before + after) / sampled))


# Of one range vector and nothing else.
OVER_TIME: Mapping[str, Callable[[Window], float | None]] = {
    "rate": _rate,
    "increase": _extrapolated,
    "delta": lambda window: _extrapolated(window, is_counter=False),
    "irate": _irate,
    "avg_over_time": lambda window: mean(window.values.tolist()),
    "sum_over_time": lambda window: total(window.values.tolist()),
    "count_over_time": lambda window: float(len(window.values)),
    # NaN gives way to any number.
    "min_over_time": lambda window: float(np.fmin.reduce(window.values)),
    "max_over_time": lambda window: float(np.fmax.reduce(window.values)),
    "last_over_time": lambda window: float(window.values[-1]),
    "present_over_time": lambda _window: 1.0,
}

# It says the same thing as the sample it picks, so it keeps its name.
KEEPS_NAME = "last_over_time"

# Of one number.
NUMBERS: Mapping[str, Callable[[float], float]] = {
    "abs": abs,
    "ceil": lambda value: float(np.ceil(value)),
    "floor": lambda value: float(np.floor(value)),
    "sqrt": lambda value: float(np.sqrt(value)),
}


def rounded(value: float, to_nearest: float) -> float:
    """Return the nearest multiple, halves upwards."""
    inverse = float(np.float64(1.0) / to_nearest)
    return float(np.floor(value * inverse + 0.5) / np.float64(inverse))


def histograms(vector: Vector) -> Mapping[Labels, Iterable[tuple[float, float]]]:
    """Return (upper bound, count) by the labels without ``le`` (two metrics of the same labels
    are two histograms); what has no bound is left out."""
    by_labels: dict[Labels, dict[float, float]] = {}
    for sample in vector:
        try:
            bound = float(label(sample.labels, _BOUND).replace("_", "x"))
        except ValueError:
            continue
        counts = by_labels.setdefault(
            tuple(pair for pair in sample.labels if pair[0] != _BOUND), {}
        )
        counts[bound] = counts.get(bound, 0.0) + sample.value
    return {labels: counts.items() for labels, counts in by_labels.items()}


def bucket_quantile(share: float, buckets: Iterable[tuple[float, float]]) -> float:
    """Return the quantile that cumulative ``buckets`` give."""
    if math.isnan(share):
        return math.nan
    if share < 0 or share > 1:
        return math.copysign(math.inf, share)
    ordered = sorted(buckets)
    bounds, counts = [bound for bound, _ in ordered], [count for _, count in ordered]
    for place in range(1, len(counts)):
        before = counts[place - 1]
        if counts[place] < before or math.isclose(counts[place], before, rel_tol=_ALIKE):
            counts[place] = before
    if bounds[-1] != math.inf or len(bounds) < 2 or not counts[-1]:
        return math.nan
    rank = share * counts[-1]
    place = bisect_left(counts, rank, hi=len(counts) - 1)
    if place == len(counts) - 1:
        return bounds[-2]
    if place == 0 and bounds[0] <= 0:
        return bounds[0]
    low, below = (bounds[place - 1], counts[place - 1]) if place else (0.0, 0.0)
    count = counts[place] - below
    return low + (bounds[place] - low) * ((rank - below) / count if count else math.nan)
