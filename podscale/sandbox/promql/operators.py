"""Aggregations, and operators between two values: arithmetic, comparison, sets, matching.

Follows ``VectorBinop`` of Prometheus 3. Arithmetic and ``bool`` drop the metric's name,
comparisons keep the left side.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from podscale.feed.prover.tree import SET_OPS, Aggregation, Binary
from podscale.sandbox.promql.series import (
    BadData,
    Labels,
    PointSample,
    Unanswerable,
    Value,
    Vector,
    Window,
    label,
    label_set,
    nameless,
    only,
    unsupported,
    without,
)

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


_INTO_ONE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "sum": total,
    "avg": mean,
    "min": lambda values: float(np.fmin.reduce(values)),
    "max": lambda values: float(np.fmax.reduce(values)),
    "count": lambda values: float(len(values)),
    "group": lambda _values: 1.0,
}
_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: float(np.float64(a) / b),
    "%": lambda a, b: float(np.fmod(a, b)),
    "^": lambda a, b: float(np.float64(a) ** b),
}
_COMPARISON: Mapping[str, Callable[[float, float], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
}


def aggregate(node: Aggregation, vector: Vector, k: float, now_ms: int) -> Vector:
    """Return the groups; ``k`` is how many elements ``topk`` keeps of each."""
    groups: dict[Labels, Vector] = {}
    for sample in vector:
        if node.clause == "without":
            key = without(nameless(sample.labels), node.labels)
        else:
            key = only(sample.labels, node.labels)
        groups.setdefault(key, []).append(sample)
    if node.op in ("topk", "bottomk"):
        if math.isnan(k):
            raise BadData("Parameter value is NaN")
        sign = -1 if node.op == "topk" else 1
        kept: Vector = []
        for members in groups.values():
            # NaN comes last in both orders.
            members.sort(key=lambda sample: (math.isnan(sample.value), sign * sample.value))
            kept += members[: max(int(min(k, len(members))), 0)]
        return kept
    into_one = _INTO_ONE.get(node.op)
    if into_one is None:
        raise unsupported(f"the aggregation {node.op}")
    return [
        PointSample(labels, into_one([sample.value for sample in members]), now_ms)
        for labels, members in groups.items()
    ]


def combine(node: Binary, left: Value, right: Value, now_ms: int) -> Value:
    """Return the operation's value; raises ``Unanswerable``."""
    if node.op not in _ARITHMETIC and node.op not in _COMPARISON and node.op not in SET_OPS:
        raise unsupported(f"the operator {node.op}")
    if isinstance(left, list) and isinstance(right, list):
        return _set(node, left, right) if node.op in SET_OPS else _matched(node, left, right)
    if isinstance(left, list) and isinstance(right, float):
        return [
            PointSample(labels, value, now_ms)
            for sample in left
            for labels, value in _applied(node, sample, sample.value, right)
        ]
    if isinstance(left, float) and isinstance(right, list):
        return [
            # A comparison keeps the vector's value, on whichever side it stands.
            PointSample(
                labels,
                sample.value if node.op in _COMPARISON and not node.is_bool else value,
                now_ms,
            )
            for sample in right
            for labels, value in _applied(node, sample, left, sample.value)
        ]
    a, b = (side for side in (left, right) if isinstance(side, float))
    return _ARITHMETIC[node.op](a, b) if node.op in _ARITHMETIC else float(
        _COMPARISON[node.op](a, b)
    )  # fmt: skip


def _applied(node: Binary, sample: PointSample, a: float, b: float) -> list[tuple[Labels, float]]:
    """Return labels and value of the result; nothing where a comparison is false."""
    if node.op in _ARITHMETIC:
        return [(nameless(sample.labels), _ARITHMETIC[node.op](a, b))]
    is_true = _COMPARISON[node.op](a, b)
    if node.is_bool:
        return [(nameless(sample.labels), float(is_true))]
    return [(sample.labels, a)] if is_true else []


def _signature(node: Binary, labels: Labels) -> Labels:
    if node.clause == "on":
        return only(labels, node.labels)
    return without(nameless(labels), node.labels)


def _set(node: Binary, left: Vector, right: Vector) -> Vector:
    if node.op == "or":
        keys = {_signature(node, sample.labels) for sample in left}
        return left + [each for each in right if _signature(node, each.labels) not in keys]
    keys = {_signature(node, sample.labels) for sample in right}
    is_and = node.op == "and"
    return [each for each in left if (_signature(node, each.labels) in keys) is is_and]


def _matched(node: Binary, left: Vector, right: Vector) -> Vector:
    if not left or not right:
        return []
    many, one = (right, left) if node.group == "right" else (left, right)
    ones: dict[Labels, PointSample] = {}
    for sample in one:
        key = _signature(node, sample.labels)
        if key in ones:
            raise Unanswerable(
                f"found duplicate series for the match group {dict(key)} on one side of the "
                "operation;many-to-many matching not allowed: matching labels must be unique on "
                "one side"
            )
        ones[key] = sample
    places: set[tuple[Labels, Labels]] = set()
    result: Vector = []
    for sample in many:
        key = _signature(node, sample.labels)
        other = ones.get(key)
        if other is None:
            continue
        labels = _result(node, sample.labels, other.labels)
        place = (key, labels if node.group else ())
        if place in places:
            raise Unanswerable(
                "multiple matches for labels: many-to-one matching must be explicit "
                "(group_left/group_right), and grouping labels must ensure unique matches"
            )
        places.add(place)
        a, b = (other, sample) if node.group == "right" else (sample, other)
        for _, value in _applied(node, sample, a.value, b.value):
            result.append(PointSample(labels, value, sample.time_ms))
    return result


def _result(node: Binary, many: Labels, one: Labels) -> Labels:
    labels = nameless(many) if node.op in _ARITHMETIC or node.is_bool else many
    if not node.group:
        side = only if node.clause == "on" else without
        labels = side(labels, node.labels)
    if node.included:
        labels = label_set({**dict(labels), **{name: label(one, name) for name in node.included}})
    return labels
