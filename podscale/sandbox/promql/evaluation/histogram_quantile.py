"""``histogram_quantile`` over classic buckets.

Follows ``BucketQuantile`` of Prometheus 3: linear within a bucket, buckets made to ascend,
differences of rounding (1e-12) ignored.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from podscale.sandbox.promql.values import Labels, Vector, label

_ALIKE = 1e-12
_SMALLEST = 2.2250738585072014e-308  # the smallest normal float
_BOUND = "le"


def histograms(vector: Vector) -> Mapping[Labels, list[tuple[float, float]]]:
    """Return (upper bound, count) by the labels without ``le`` (two metrics of the same labels
    are two histograms); what has no bound is left out."""
    found: dict[Labels, list[tuple[float, float]]] = {}
    for sample in vector:
        try:
            bound = float(label(sample.labels, _BOUND).replace("_", "x"))
        except ValueError:
            continue
        key = tuple(pair for pair in sample.labels if pair[0] != _BOUND)
        found.setdefault(key, []).append((bound, sample.value))
    return found


def bucket_quantile(wanted: float, buckets: Sequence[tuple[float, float]]) -> float:
    """Return the quantile that cumulative ``buckets`` tell."""
    if math.isnan(wanted):
        return math.nan
    if wanted < 0 or wanted > 1:
        return math.copysign(math.inf, wanted)
    bounds, counts = _ascending(sorted(buckets, key=lambda bucket: bucket[0]))
    if bounds[-1] != math.inf or len(bounds) < 2 or not counts[-1]:
        return math.nan
    rank = wanted * counts[-1]
    place = bisect_left(counts, rank, hi=len(counts) - 1)
    if place == len(counts) - 1:
        return bounds[-2]
    if place == 0 and bounds[0] <= 0:
        return bounds[0]
    low, count = 0.0, counts[place]
    if place:
        low = bounds[place - 1]
        count -= counts[place - 1]
        rank -= counts[place - 1]
    share = rank / count if count else math.nan
    return low + (bounds[place] - low) * share


def _ascending(buckets: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    merged: dict[float, float] = {}
    for bound, count in buckets:
        merged[bound] = merged.get(bound, 0.0) + count
    bounds, counts = list(merged), list(merged.values())
    before = counts[0]
    for place, count in enumerate(counts[1:], start=1):
        if _is_alike(before, count) or count < before:
            counts[place] = before
        else:
            before = count
    return bounds, counts


def _is_alike(a: float, b: float) -> bool:
    if a == b:
        return True
    both, apart = abs(a) + abs(b), abs(a - b)
    if a == 0 or b == 0 or both < _SMALLEST:
        return apart < _ALIKE * _SMALLEST
    return apart / both < _ALIKE
