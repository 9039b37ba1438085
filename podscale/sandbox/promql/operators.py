"""Aggregations, and operators between two values: arithmetic, comparison, sets, matching.

Follows ``VectorBinop`` of Prometheus 3. Arithmetic and ``bool`` drop the metric's name,
comparisons keep the left side.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from podscale.feed.prover.tree import SET_OPS, Aggregation, Binary
from podscale.sandbox.promql.functions import mean, total
from podscale.sandbox.promql.values import (
    BadData,
    Labels,
    PointSample,
    Unanswerable,
    Value,
    Vector,
    label,
    label_set,
    nameless,
    only,
    unsupported,
    without,
)

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
