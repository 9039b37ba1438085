"""Operators between two values: arithmetic, comparison, sets, and who is matched with whom.

Follows ``VectorBinop`` of Prometheus 3. Arithmetic and ``bool`` drop the metric's name,
comparisons keep the left side.
"""

from collections.abc import Callable, Mapping

import numpy as np

from podscale.feed.prover.tree import SET_OPS, Binary
from podscale.sandbox.promql.errors import Unanswerable, unsupported
from podscale.sandbox.promql.values import (
    Labels,
    PointSample,
    Value,
    Vector,
    label,
    label_set,
    nameless,
    only,
    shown,
    without,
)

_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: float(np.float64(a) / b),
    "%": lambda a, b: float(np.fmod(a, b)),
    "^": lambda a, b: float(np.float64(a) ** b),
    "atan2": lambda a, b: float(np.arctan2(a, b)),
}
_COMPARISON: Mapping[str, Callable[[float, float], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
}


def combine(node: Binary, left: Value, right: Value, now_ms: int) -> Value:
    """Return the operation's value; raises ``Unanswerable``."""
    if node.op not in _ARITHMETIC and node.op not in _COMPARISON and node.op not in SET_OPS:
        raise unsupported(f"the operator {node.op}")
    if isinstance(left, list) and isinstance(right, list):
        return _set(node, left, right) if node.op in SET_OPS else _matched(node, left, right)
    if isinstance(left, float) and isinstance(right, float):
        return _applied(node.op, left, right)[0] if node.op in _ARITHMETIC else float(
            _COMPARISON[node.op](left, right)
        )  # fmt: skip
    found: Vector = []
    if isinstance(left, list) and isinstance(right, float):
        _with_scalar(node, left, lambda value: (value, right), now_ms, found)
    elif isinstance(left, float) and isinstance(right, list):
        _with_scalar(node, right, lambda value: (left, value), now_ms, found)
    return found


def _applied(op: str, a: float, b: float) -> tuple[float, bool]:
    """Return the result and whether the element stays."""
    if op in _ARITHMETIC:
        return _ARITHMETIC[op](a, b), True
    return a, _COMPARISON[op](a, b)


def _with_scalar(
    node: Binary,
    vector: Vector,
    sides: Callable[[float], tuple[float, float]],
    now_ms: int,
    found: Vector,
) -> None:
    for sample in vector:
        value, keeps = _applied(node.op, *sides(sample.value))
        labels = sample.labels
        if node.op in _COMPARISON:
            value = sample.value  # the vector's, on whichever side it stands
        if node.is_bool:
            value, keeps = float(keeps), True
        if node.op in _ARITHMETIC or node.is_bool:
            labels = nameless(labels)
        if keeps:
            found.append(PointSample(labels, value, now_ms))


def _signature(node: Binary) -> Callable[[Labels], Labels]:
    names = node.labels
    if node.clause == "on":
        return lambda labels: only(labels, names)
    return lambda labels: without(labels, names)


def _set(node: Binary, left: Vector, right: Vector) -> Vector:
    signature = _signature(node)
    if node.op == "or":
        there = {signature(sample.labels) for sample in left}
        return left + [sample for sample in right if signature(sample.labels) not in there]
    there = {signature(sample.labels) for sample in right}
    keeps = node.op == "and"
    return [sample for sample in left if (signature(sample.labels) in there) is keeps]


def _matched(node: Binary, left: Vector, right: Vector) -> Vector:
    if not left or not right:
        return []
    signature = _signature(node)
    is_swapped = node.group == "right"
    many, one = (right, left) if is_swapped else (left, right)
    ones: dict[Labels, PointSample] = {}
    for sample in one:
        key = signature(sample.labels)
        if key in ones:
            raise _duplicate(key, sample, ones[key], is_swapped)
        ones[key] = sample
    seen: set[tuple[Labels, Labels | None]] = set()
    found: Vector = []
    for sample in many:
        key = signature(sample.labels)
        other = ones.get(key)
        if other is None:
            continue
        a, b = (other, sample) if is_swapped else (sample, other)
        value, keeps = _applied(node.op, a.value, b.value)
        if node.is_bool:
            value, keeps = float(keeps), True
        labels = _result(node, sample.labels, other.labels)
        place = (key, labels if node.group else None)
        if place in seen:
            raise Unanswerable(
                "multiple matches for labels: "
                + (
                    "grouping labels must ensure unique matches"
                    if node.group
                    else "many-to-one matching must be explicit (group_left/group_right)"
                )
            )
        seen.add(place)
        if keeps:
            found.append(PointSample(labels, value, sample.time_ms))
    return found


def _result(node: Binary, many: Labels, one: Labels) -> Labels:
    labels = nameless(many) if node.op in _ARITHMETIC or node.is_bool else many
    if not node.group:
        if node.clause == "on":
            labels = only(labels, node.labels)
        else:
            labels = tuple(pair for pair in labels if pair[0] not in node.labels)
    if node.included:
        labels = label_set({**dict(labels), **{name: label(one, name) for name in node.included}})
    return labels


def _duplicate(
    key: Labels, sample: PointSample, other: PointSample, is_swapped: bool
) -> Unanswerable:
    first, second = sorted((shown(sample.labels), shown(other.labels)))
    return Unanswerable(
        f"found duplicate series for the match group {shown(key)} on the "
        f"{'left' if is_swapped else 'right'} hand-side of the operation: [{first}, {second}]"
        ";many-to-many matching not allowed: matching labels must be unique on one side"
    )
