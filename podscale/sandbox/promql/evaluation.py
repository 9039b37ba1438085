"""Evaluates a parsed query over the series in memory, at one time.

The subset is what podscale itself and the demo's rules ask; the rest is refused by name.
"""

from collections.abc import Callable, Sequence

import numpy as np

from podscale.feed.prover.tree import (
    Aggregation,
    Binary,
    FunctionCall,
    Negation,
    Node,
    Number,
    VectorSelector,
)
from podscale.sandbox.promql.operators import (
    KEEPS_NAME,
    NUMBERS,
    OVER_TIME,
    aggregate,
    bucket_quantile,
    combine,
    histograms,
    rounded,
)
from podscale.sandbox.promql.series import (
    BadData,
    PointSample,
    SeriesHead,
    Value,
    Vector,
    Window,
    distinct,
    nameless,
    unsupported,
)

LOOKBACK_MS = 5 * 60 * 1000


class Evaluation:
    """Queries over ``head``; everything it returns raises ``PromqlError``."""

    def __init__(self, head: SeriesHead) -> None:
        self._head = head

    def at(self, node: Node, now_ms: int) -> Value:
        """Return the value of ``node``."""
        with np.errstate(all="ignore"):
            return self._value(node, now_ms)

    def windows(self, node: Node, now_ms: int) -> list[Window]:
        """Return the windows of a range selector that hold a sample."""
        if not isinstance(node, VectorSelector):
            raise unsupported(f"a {type(node).__name__.lower()} as a range")
        if node.range_ms is None:
            raise BadData("expected a range vector")
        end_ms = _end(node, now_ms)
        start_ms = end_ms - node.range_ms
        samples = (
            (labels, *columns.window(start_ms, end_ms))
            for labels, columns in self._head.select(node.name, node.matchers)
        )
        return [
            Window(labels, times, values, start_ms, end_ms)
            for labels, times, values in samples
            if len(times)
        ]

    def _value(self, node: Node, now_ms: int) -> Value:
        match node:
            case Number(text):
                return float(text)
            case VectorSelector():
                return [
                    PointSample(sample.labels, sample.value, now_ms)
                    for sample in self._samples(node, now_ms)
                ]
            case Negation(operand):
                value = self._value(operand, now_ms)
                if isinstance(value, float):
                    return -value
                return _each(value, now_ms, lambda number: -number)
            case Binary():
                left, right = self._value(node.left, now_ms), self._value(node.right, now_ms)
                value = combine(node, left, right, now_ms)
                return value if isinstance(value, float) else distinct(value)
            case Aggregation():
                k = 0.0 if node.parameter is None else self._number(node.parameter, now_ms)
                return aggregate(node, self._vector(node.operand, now_ms), k, now_ms)
            case FunctionCall(name, arguments):
                return self._call(name, arguments, now_ms)
        raise unsupported(f"a {type(node).__name__.lower()} here")

    def _call(self, name: str, arguments: Sequence[Node], now_ms: int) -> Value:
        if name in OVER_TIME:
            changes = (
                (window.labels if name == KEEPS_NAME else nameless(window.labels),
                 OVER_TIME[name](window))
                for window in self.windows(arguments[0], now_ms)
            )  # fmt: skip
            return distinct(
                [PointSample(labels, value, now_ms) for labels, value in changes
                 if value is not None]
            )  # fmt: skip
        if name in NUMBERS:
            return _each(self._vector(arguments[0], now_ms), now_ms, NUMBERS[name])
        match name:
            case "time":
                return now_ms / 1000
            case "vector":
                return [PointSample((), self._number(arguments[0], now_ms), now_ms)]
            case "timestamp":
                if not isinstance(arguments[0], VectorSelector):
                    raise unsupported("timestamp of anything but a selector")
                return distinct(
                    [
                        PointSample(nameless(sample.labels), sample.time_ms / 1000, now_ms)
                        for sample in self._samples(arguments[0], now_ms)
                    ]
                )
            case "clamp_min" | "clamp_max":
                bound = self._number(arguments[1], now_ms)
                nearer = np.maximum if name == "clamp_min" else np.minimum
                vector = self._vector(arguments[0], now_ms)
                return _each(vector, now_ms, lambda value: float(nearer(value, bound)))
            case "round":
                nearest = self._number(arguments[1], now_ms) if arguments[1:] else 1.0
                vector = self._vector(arguments[0], now_ms)
                return _each(vector, now_ms, lambda value: rounded(value, nearest))
            case "histogram_quantile":
                share = self._number(arguments[0], now_ms)
                buckets = histograms(self._vector(arguments[1], now_ms))
                return distinct(
                    [
                        PointSample(nameless(labels), bucket_quantile(share, each), now_ms)
                        for labels, each in buckets.items()
                    ]
                )
        raise unsupported(f"the function {name}")

    def _vector(self, node: Node, now_ms: int) -> Vector:
        value = self._value(node, now_ms)
        if isinstance(value, float):
            raise BadData("expected an instant vector")
        return value

    def _number(self, node: Node, now_ms: int) -> float:
        value = self._value(node, now_ms)
        if not isinstance(value, float):
            raise BadData("expected a scalar")
        return value

    def _samples(self, node: VectorSelector, now_ms: int) -> Vector:
        """Return the newest samples, with their own times."""
        if node.range_ms is not None:
            raise BadData("expected an instant vector and got a range vector")
        at_ms = _end(node, now_ms)
        newest = (
            (labels, columns.last(at_ms - LOOKBACK_MS, at_ms))
            for labels, columns in self._head.select(node.name, node.matchers)
        )
        return [PointSample(labels, last[1], last[0]) for labels, last in newest if last]


def _end(node: VectorSelector, now_ms: int) -> int:
    if node.at is not None:
        raise unsupported("the modifier @")
    return now_ms - node.offset_ms


def _each(vector: Vector, now_ms: int, change: Callable[[float], float]) -> Vector:
    """Return every element changed, without its name."""
    return distinct([PointSample(nameless(s.labels), change(s.value), now_ms) for s in vector])
