"""Evaluates a parsed query over the series in memory, at one time.

The subset: everything of PromQL but native histograms, ``sort_by_label``, ``limitk``,
``info`` and what else Prometheus itself calls experimental; those are refused by name.
"""

from collections.abc import Callable

import numpy as np

from podscale.feed.prover.tree import (
    Aggregation,
    AtModifier,
    Binary,
    FunctionCall,
    Negation,
    Node,
    Number,
    Subquery,
    Text,
    VectorSelector,
)
from podscale.sandbox.promql.errors import BadData, unsupported
from podscale.sandbox.promql.evaluation import elementwise, over_time
from podscale.sandbox.promql.evaluation.aggregations import aggregate
from podscale.sandbox.promql.evaluation.binaries import combine
from podscale.sandbox.promql.evaluation.calls import CALLS, distinct
from podscale.sandbox.promql.head import SeriesHead
from podscale.sandbox.promql.values import (
    Labels,
    Matrix,
    PointSample,
    Value,
    Vector,
    Window,
    nameless,
)

LOOKBACK_MS = 5 * 60 * 1000
_DEFAULT_STEP_MS = 60_000  # of subqueries: Prometheus's global evaluation interval


class Evaluation:
    """One query; ``start_ms`` and ``end_ms`` are what ``@ start()`` and ``@ end()`` mean."""

    def __init__(self, head: SeriesHead, start_ms: int, end_ms: int) -> None:
        self._head = head
        self._start_ms = start_ms
        self._end_ms = end_ms

    def at(self, node: Node, now_ms: int) -> Value:
        """Return the value of ``node``; raises ``PromqlError``."""
        with np.errstate(all="ignore"):
            return self._value(node, now_ms)

    def _value(self, node: Node, now_ms: int) -> Value:
        match node:
            case Number(text):
                return float(text)
            case Text():
                return node.value
            case VectorSelector():
                return [_now(sample, now_ms) for sample in self.samples(node, now_ms)]
            case Negation(operand):
                value = self._value(operand, now_ms)
                if isinstance(value, list):
                    return distinct(
                        [PointSample(nameless(s.labels), -s.value, now_ms) for s in value]
                    )
                return -_scalar(value)
            case Binary():
                left, right = self._value(node.left, now_ms), self._value(node.right, now_ms)
                found = combine(node, left, right, now_ms)
                return distinct(found) if isinstance(found, list) else found
            case Aggregation():
                parameter = (
                    0.0
                    if node.parameter is None
                    else _scalar_or_text(self._value(node.parameter, now_ms))
                )
                return aggregate(node, self.vector(node.operand, now_ms), parameter, now_ms)
            case FunctionCall():
                return self._call(node, now_ms)
        raise unsupported(f"a {type(node).__name__.lower()} here")

    def vector(self, node: Node, now_ms: int) -> Vector:
        """Return an instant vector; raises ``PromqlError``."""
        value = self._value(node, now_ms)
        if not isinstance(value, list):
            raise BadData("expected an instant vector")
        return value

    def _call(self, node: FunctionCall, now_ms: int) -> Value:
        name, arguments = node.function, node.arguments
        if name in over_time.BY_NAME:
            keeps = name in over_time.KEEP_NAME
            return self.over(arguments[0], now_ms, over_time.BY_NAME[name], keeps_name=keeps)
        if name in elementwise.NUMBERS:
            return self.each(arguments[0], now_ms, elementwise.NUMBERS[name])
        if name in elementwise.DATES:
            take = elementwise.DATES[name]
            if not arguments:
                return [PointSample((), take(elementwise.date(now_ms / 1000)), now_ms)]
            return self.each(arguments[0], now_ms, lambda value: take(elementwise.date(value)))
        own = CALLS.get(name)
        if own is None:
            raise unsupported(f"the function {name}")
        return own(self, arguments, now_ms)

    def each(self, node: Node, now_ms: int, change: Callable[[float], float]) -> Vector:
        """Return every element changed, without its name; raises ``PromqlError``."""
        vector = self.vector(node, now_ms)
        return distinct([PointSample(nameless(s.labels), change(s.value), now_ms) for s in vector])

    def over(
        self,
        node: Node,
        now_ms: int,
        reduce: Callable[[Window], float | None],
        *,
        keeps_name: bool = False,
    ) -> Vector:
        """Return one element per window that ``reduce`` has a value for."""
        found = []
        for window in self.windows(node, now_ms):
            value = reduce(window)
            if value is not None:
                labels = window.labels if keeps_name else nameless(window.labels)
                found.append(PointSample(labels, value, now_ms))
        return distinct(found)

    def number(self, node: Node, now_ms: int) -> float:
        """Return a scalar; raises ``PromqlError``."""
        return _scalar(self._value(node, now_ms))

    def samples(self, node: VectorSelector, now_ms: int) -> Vector:
        """Return the newest samples, with their own times; raises ``PromqlError``."""
        if node.range_ms is not None:
            raise BadData("expected an instant vector and got a range vector")
        at_ms = self._time(node.at, now_ms) - node.offset_ms
        found = []
        for labels, columns in self._head.select(node.name, node.matchers):
            last = columns.last(at_ms - LOOKBACK_MS, at_ms)
            if last is not None:
                found.append(PointSample(labels, last[1], last[0]))
        return found

    def windows(self, node: Node, now_ms: int) -> Matrix:
        """Return the windows of a range selector or subquery; raises ``PromqlError``."""
        if isinstance(node, Subquery):
            return self._subquery(node, now_ms)
        if not isinstance(node, VectorSelector) or node.range_ms is None:
            raise BadData("expected a range vector")
        end_ms = self._time(node.at, now_ms) - node.offset_ms
        start_ms = end_ms - node.range_ms
        found = []
        for labels, columns in self._head.select(node.name, node.matchers):
            times, values = columns.window(start_ms, end_ms)
            if len(times):
                found.append(Window(labels, times, values, start_ms, end_ms))
        return found

    def _subquery(self, node: Subquery, now_ms: int) -> Matrix:
        step_ms = node.step_ms or _DEFAULT_STEP_MS
        end_ms = self._time(node.at, now_ms) - node.offset_ms
        start_ms = end_ms - node.range_ms
        times: dict[Labels, list[int]] = {}
        values: dict[Labels, list[float]] = {}
        # Steps are multiples of the step since 1970, whenever the query runs; open on the left.
        for step in range((start_ms // step_ms + 1) * step_ms, end_ms + 1, step_ms):
            value = self._value(node.operand, step)
            vector = value if isinstance(value, list) else [PointSample((), _scalar(value), step)]
            for sample in vector:
                times.setdefault(sample.labels, []).append(step)
                values.setdefault(sample.labels, []).append(sample.value)
        return [
            Window(
                labels,
                np.array(found, np.int64),
                np.array(values[labels], np.float64),
                start_ms,
                end_ms,
            )
            for labels, found in times.items()
        ]

    def _time(self, at: AtModifier | None, now_ms: int) -> int:
        if at is None:
            return now_ms
        return {"start": self._start_ms, "end": self._end_ms, "time": at.ms}[at.kind]


def _now(sample: PointSample, now_ms: int) -> PointSample:
    return PointSample(sample.labels, sample.value, now_ms)


def _scalar(value: Value) -> float:
    if not isinstance(value, float):
        raise BadData("expected a scalar")
    return value


def _scalar_or_text(value: Value) -> float | str:
    if isinstance(value, list):
        raise BadData("expected a scalar or a string")
    return value
