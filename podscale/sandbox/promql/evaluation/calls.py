"""Functions with arguments of their own kinds: each takes the evaluator and unread arguments."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from podscale.feed.prover.tree import Node, Text, VectorSelector
from podscale.sandbox.promql.errors import BadData, Unanswerable
from podscale.sandbox.promql.evaluation import elementwise, rates, sums
from podscale.sandbox.promql.evaluation.histogram_quantile import bucket_quantile, histograms
from podscale.sandbox.promql.values import (
    Labels,
    PointSample,
    Value,
    Vector,
    label_set,
    nameless,
)

if TYPE_CHECKING:
    from podscale.sandbox.promql.evaluation.engine import Evaluation


def distinct(vector: Vector) -> Vector:
    """Return ``vector``; raises ``Unanswerable`` when two elements have the same labels."""
    if len({sample.labels for sample in vector}) < len(vector):
        raise Unanswerable("vector cannot contain metrics with the same labelset")
    return vector


def _scalar(on: "Evaluation", arguments: Sequence[Node], now_ms: int) -> Value:
    vector = on.vector(arguments[0], now_ms)
    return vector[0].value if len(vector) == 1 else math.nan


def _timestamp(on: "Evaluation", arguments: Sequence[Node], now_ms: int) -> Value:
    node = arguments[0]
    # Only a selector itself tells when its samples were scraped.
    vector = (
        on.samples(node, now_ms) if isinstance(node, VectorSelector) else on.vector(node, now_ms)
    )
    return distinct([PointSample(nameless(s.labels), s.time_ms / 1000, now_ms) for s in vector])


def _round(on: "Evaluation", arguments: Sequence[Node], now_ms: int) -> Value:
    nearest = on.number(arguments[1], now_ms) if len(arguments) > 1 else 1.0
    return on.each(arguments[0], now_ms, lambda value: elementwise.rounded(value, nearest))


def _clamp(
    on: "Evaluation",
    arguments: Sequence[Node],
    now_ms: int,
    *,
    has_least: bool = True,
    has_most: bool = True,
) -> Value:
    numbers = [on.number(each, now_ms) for each in arguments[1:]]
    least = numbers[0] if has_least else -math.inf
    most = numbers[-1] if has_most else math.inf
    if most < least:
        return []
    return on.each(arguments[0], now_ms, lambda value: elementwise.clamped(value, least, most))


def _label_replace(on: "Evaluation", arguments: Sequence[Node], now_ms: int) -> Value:
    vector = on.vector(arguments[0], now_ms)
    return distinct(elementwise.with_label_replaced(vector, _texts(arguments[1:])))


def _label_join(on: "Evaluation", arguments: Sequence[Node], now_ms: int) -> Value:
    vector = on.vector(arguments[0], now_ms)
    return distinct(elementwise.with_labels_joined(vector, _texts(arguments[1:])))


def _histogram_quantile(on: "Evaluation", arguments: Sequence[Node], now_ms: int) -> Value:
    wanted = on.number(arguments[0], now_ms)
    found = histograms(on.vector(arguments[1], now_ms))
    return distinct(
        [
            PointSample(nameless(labels), bucket_quantile(wanted, buckets), now_ms)
            for labels, buckets in found.items()
        ]
    )


def _quantile_over_time(on: "Evaluation", arguments: Sequence[Node], now_ms: int) -> Value:
    wanted = on.number(arguments[0], now_ms)
    return on.over(
        arguments[1], now_ms, lambda window: sums.quantile(wanted, window.values.tolist())
    )


def _predict_linear(on: "Evaluation", arguments: Sequence[Node], now_ms: int) -> Value:
    ahead_s = on.number(arguments[1], now_ms)
    return on.over(
        arguments[0], now_ms, lambda window: rates.predict_linear(window, now_ms, ahead_s)
    )


def _absent(on: "Evaluation", arguments: Sequence[Node], now_ms: int, *, is_range: bool) -> Value:
    found = (on.windows if is_range else on.vector)(arguments[0], now_ms)
    return [] if found else [PointSample(_absent_labels(arguments[0]), 1.0, now_ms)]


def _texts(nodes: Sequence[Node]) -> list[str]:
    found = [node.value for node in nodes if isinstance(node, Text)]
    if len(found) < len(nodes):
        raise BadData("expected string literals")
    return found


def _sorted(vector: Vector, *, is_descending: bool) -> Vector:
    def place(sample: PointSample) -> tuple[bool, float]:
        return math.isnan(sample.value), -sample.value if is_descending else sample.value

    return sorted(vector, key=place)


def _absent_labels(node: Node) -> Labels:
    if not isinstance(node, VectorSelector):
        return ()
    found: dict[str, str] = {}
    seen: set[str] = set()
    for matcher in node.matchers:
        if matcher.op == "=" and matcher.label not in seen:
            found[matcher.label] = matcher.value
            seen.add(matcher.label)
        else:
            found.pop(matcher.label, None)
    found.pop("__name__", None)
    return label_set(found)


CALLS: Mapping[str, Callable[["Evaluation", Sequence[Node], int], Value]] = {
    "time": lambda _on, _arguments, now_ms: now_ms / 1000,
    "pi": lambda _on, _arguments, _now_ms: math.pi,
    "vector": lambda on, of, now_ms: [PointSample((), on.number(of[0], now_ms), now_ms)],
    "scalar": _scalar,
    "timestamp": _timestamp,
    "sort": lambda on, of, now_ms: _sorted(on.vector(of[0], now_ms), is_descending=False),
    "sort_desc": lambda on, of, now_ms: _sorted(on.vector(of[0], now_ms), is_descending=True),
    "round": _round,
    "clamp": _clamp,
    "clamp_min": partial(_clamp, has_most=False),
    "clamp_max": partial(_clamp, has_least=False),
    "label_replace": _label_replace,
    "label_join": _label_join,
    "histogram_quantile": _histogram_quantile,
    "quantile_over_time": _quantile_over_time,
    "predict_linear": _predict_linear,
    "absent": partial(_absent, is_range=False),
    "absent_over_time": partial(_absent, is_range=True),
}
