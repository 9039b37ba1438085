"""Aggregations: many elements of a vector into one per group, or the first k of each."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal

from podscale.feed.prover.tree import Aggregation
from podscale.sandbox.promql.errors import BadData, unsupported
from podscale.sandbox.promql.evaluation import sums
from podscale.sandbox.promql.values import Labels, PointSample, Vector, label_set, only, without

_INTO_ONE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "sum": sums.total,
    "avg": sums.mean,
    "min": sums.least,
    "max": sums.most,
    "count": lambda values: float(len(values)),
    "group": lambda _values: 1.0,
    "stdvar": sums.variance,
    "stddev": lambda values: math.sqrt(sums.variance(values)),
}


def aggregate(node: Aggregation, vector: Vector, parameter: float | str, now_ms: int) -> Vector:
    """Return the groups; raises ``Unanswerable`` or ``BadData``."""
    groups: dict[Labels, Vector] = {}
    for sample in vector:
        groups.setdefault(_key(node, sample.labels), []).append(sample)
    if node.op in ("topk", "bottomk"):
        return _first(groups.values(), number(parameter), largest=node.op == "topk")
    if node.op == "count_values":
        return _counted(groups, str(parameter), now_ms)
    if node.op == "quantile":
        wanted = number(parameter)
        return [
            PointSample(labels, sums.quantile(wanted, [s.value for s in members]), now_ms)
            for labels, members in groups.items()
        ]
    into_one = _INTO_ONE.get(node.op)
    if into_one is None:
        raise unsupported(f"the aggregation {node.op}")
    return [
        PointSample(labels, into_one([sample.value for sample in members]), now_ms)
        for labels, members in groups.items()
    ]


def number(parameter: float | str) -> float:
    """Return a parameter that must be a number."""
    if isinstance(parameter, str):
        raise BadData("expected a scalar as parameter of the aggregation")
    return parameter


def shortest(value: float) -> str:
    """Return a float as Go's ``FormatFloat(value, 'f', -1, 64)``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    # The shortest digits that read back to the same float, without an exponent.
    text = format(Decimal(repr(value)), "f")
    return text.removesuffix(".0")


def _key(node: Aggregation, labels: Labels) -> Labels:
    if node.clause == "without":
        return without(labels, node.labels)
    return only(labels, node.labels)


def _first(groups: Iterable[Vector], k: float, *, largest: bool) -> Vector:
    if math.isnan(k):
        raise BadData("Parameter value is NaN")
    found: Vector = []
    for members in groups:
        # NaN comes last in both orders.
        ordered = sorted(
            members,
            key=lambda sample: (
                math.isnan(sample.value),
                -sample.value if largest else sample.value,
            ),
        )
        found += ordered[: max(int(min(k, len(members))), 0)]
    return found


def _counted(groups: Mapping[Labels, Vector], name: str, now_ms: int) -> Vector:
    if not name:
        raise BadData('invalid label name ""')
    counts: dict[Labels, float] = {}
    for labels, members in groups.items():
        for sample in members:
            others = dict(labels) | {name: shortest(sample.value)}
            key = label_set(others)
            counts[key] = counts.get(key, 0.0) + 1
    return [PointSample(labels, count, now_ms) for labels, count in counts.items()]
