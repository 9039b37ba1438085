"""Sums and moments in the order and precision of Prometheus's own, so that answers are equal.

Follows ``util/kahansum`` and ``promql/functions.go`` of Prometheus 3: compensated summation,
and means that only go by increments once a sum would overflow.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike


def increased(by: float, total: float, rest: float) -> tuple[float, float]:
    """Return sum and compensation after adding ``by``."""
    new = total + by
    if math.isinf(new):
        return new, 0.0
    if abs(total) >= abs(by):
        return new, rest + ((total - new) + by)
    return new, rest + ((by - new) + total)


def total(values: Iterable[float]) -> float:
    held = rest = 0.0
    for value in values:
        held, rest = increased(value, held, rest)
    return held if math.isinf(held) else held + rest


def least(values: ArrayLike) -> float:
    """Return the smallest value; NaN gives way to any number, as in Prometheus."""
    return float(np.fmin.reduce(values))


def most(values: ArrayLike) -> float:
    return float(np.fmax.reduce(values))


def mean(values: Sequence[float]) -> float:
    """Return the average of at least one value."""
    held, rest, average = values[0], 0.0, 0.0
    is_incremental = False
    for count, value in enumerate(values[1:], start=2):
        if not is_incremental:
            new, new_rest = increased(value, held, rest)
            if not math.isinf(new):
                held, rest = new, new_rest
                continue
            is_incremental = True
            average, rest = held / (count - 1), rest / (count - 1)
        share = (count - 1) / count
        average, rest = increased(value / count, share * average, share * rest)
    if is_incremental:
        return average + rest
    return held / len(values) + rest / len(values)


def variance_over_time(values: Sequence[float]) -> float:
    """Return the population's variance, as ``stdvar_over_time`` computes it."""
    average = average_rest = squares = squares_rest = 0.0
    for count, value in enumerate(values, start=1):
        delta = value - (average + average_rest)
        average, average_rest = increased(delta / count, average, average_rest)
        squares, squares_rest = increased(
            delta * (value - (average + average_rest)), squares, squares_rest
        )
    return (squares + squares_rest) / len(values)


def variance(values: Sequence[float]) -> float:
    """Return the population's variance, as the aggregation ``stdvar`` computes it."""
    average, squares = values[0], 0.0 if math.isfinite(values[0]) else math.nan
    for count, value in enumerate(values[1:], start=2):
        delta = value - average
        average += delta / count
        squares += delta * (value - average)
    return squares / len(values)


def quantile(wanted: float, values: Sequence[float]) -> float:
    """Return the interpolated quantile; beyond 0 and 1 it is infinite. NaN sorts first."""
    if not values or math.isnan(wanted):
        return math.nan
    if wanted < 0:
        return -math.inf
    if wanted > 1:
        return math.inf
    ordered = sorted(values, key=lambda value: (not math.isnan(value), value))
    rank = wanted * (len(ordered) - 1)
    low = max(0, math.floor(rank))
    high = min(len(ordered) - 1, low + 1)
    weight = rank - math.floor(rank)
    return ordered[low] * (1 - weight) + ordered[high] * weight


def slope(times: Sequence[int], values: Sequence[float], origin_ms: int) -> tuple[float, float]:
    """Return slope a second and value at ``origin_ms`` of the least squares' line."""
    first = values[0]
    if all(value == first for value in values):
        return (math.nan, math.nan) if math.isinf(first) else (0.0, first)
    xs = [(time - origin_ms) / 1e3 for time in times]
    count = float(len(xs))
    sum_x, sum_y = total(xs), total(values)
    sum_xy = total(x * y for x, y in zip(xs, values, strict=True))
    sum_xx = total(x * x for x in xs)
    covariance = sum_xy - sum_x * sum_y / count
    found = float(np.float64(covariance) / (sum_xx - sum_x * sum_x / count))
    return found, sum_y / count - found * sum_x / count
