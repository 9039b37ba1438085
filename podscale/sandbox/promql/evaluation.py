"""Evaluates a parsed query over the series in memory, at one time.

The subset is what podscale itself and the demo's rules ask; the rest is refused by name. Windows
and rates follow ``promql/functions.go``, operators ``VectorBinop`` of Prometheus 3: windows are
open on the left, arithmetic and ``bool`` drop the metric's name, comparisons keep the left side.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from podscale.feed.prover import tree
from podscale.sandbox.promql import series

# "Close to the end of the window" is this many average intervals.
_NEAR = 1.1


def total(values: Sequence[float]) -> float:
    """Return the sum as exact as Prometheus's compensated one."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # beyond floats, or infinities of both signs
        return float(np.sum(values))


def mean(values: Sequence[float]) -> float:
    return total(values) / len(values)


def _rate(window: series.Window) -> float | None:
    change = _extrapolated(window)
    return None if change is None else change * 1000 / (window.end_ms - window.start_ms)


def _extrapolated(window: series.Window, *, is_counter: bool = True) -> float | None:
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
OVER_TIME: Mapping[str, Callable[[series.Window], float | None]] = {
    "rate": _rate,
    "increase": _extrapolated,
    "delta": lambda window: _extrapolated(window, is_counter=False),
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


def aggregate(node: tree.Aggregation, vector: series.Vector, k: float) -> series.Vector:
    """Return the groups; ``k`` is how many elements ``topk`` keeps of each."""
    groups: dict[series.Labels, series.Vector] = {}
    for sample in vector:
        if node.clause == "without":
            key = series.without(series.nameless(sample.labels), node.labels)
        else:
            key = series.only(sample.labels, node.labels)
        groups.setdefault(key, []).append(sample)
    if node.op in ("topk", "bottomk"):
        if math.isnan(k):
            raise series.BadData("Parameter value is NaN")
        sign = -1 if node.op == "topk" else 1
        kept: series.Vector = []
        for members in groups.values():
            # NaN comes last in both orders.
            members.sort(key=lambda sample: (math.isnan(sample.value), sign * sample.value))
            kept += members[: max(int(min(k, len(members))), 0)]
        return kept
    into_one = _INTO_ONE.get(node.op)
    if into_one is None:
        raise series.unsupported(f"the aggregation {node.op}")
    return [
        series.PointSample(labels, into_one([sample.value for sample in members]))
        for labels, members in groups.items()
    ]


def combine(node: tree.Binary, left: series.Value, right: series.Value) -> series.Value:
    """Return the operation's value; raises ``Unanswerable``."""
    if node.op not in _ARITHMETIC and node.op not in _COMPARISON and node.op not in tree.SET_OPS:
        raise series.unsupported(f"the operator {node.op}")
    if isinstance(left, list) and isinstance(right, list):
        return _set(node, left, right) if node.op in tree.SET_OPS else _matched(node, left, right)
    if isinstance(left, list) and isinstance(right, float):
        return [
            series.PointSample(labels, value)
            for sample in left
            for labels, value in _applied(node, sample, sample.value, right)
        ]
    if isinstance(left, float) and isinstance(right, list):
        return [
            # A comparison keeps the vector's value, on whichever side it stands.
            series.PointSample(
                labels, sample.value if node.op in _COMPARISON and not node.is_bool else value
            )
            for sample in right
            for labels, value in _applied(node, sample, left, sample.value)
        ]
    a, b = (side for side in (left, right) if isinstance(side, float))
    return _ARITHMETIC[node.op](a, b) if node.op in _ARITHMETIC else float(
        _COMPARISON[node.op](a, b)
    )  # fmt: skip


def _applied(
    node: tree.Binary, sample: series.PointSample, a: float, b: float
) -> list[tuple[series.Labels, float]]:
    """Return labels and value of the result; nothing where a comparison is false."""
    if node.op in _ARITHMETIC:
        return [(series.nameless(sample.labels), _ARITHMETIC[node.op](a, b))]
    is_true = _COMPARISON[node.op](a, b)
    if node.is_bool:
        return [(series.nameless(sample.labels), float(is_true))]
    return [(sample.labels, a)] if is_true else []


def _signature(node: tree.Binary, labels: series.Labels) -> series.Labels:
    if node.clause == "on":
        return series.only(labels, node.labels)
    return series.without(series.nameless(labels), node.labels)


def _set(node: tree.Binary, left: series.Vector, right: series.Vector) -> series.Vector:
    if node.op == "or":
        keys = {_signature(node, sample.labels) for sample in left}
        return left + [each for each in right if _signature(node, each.labels) not in keys]
    keys = {_signature(node, sample.labels) for sample in right}
    is_and = node.op == "and"
    return [each for each in left if (_signature(node, each.labels) in keys) is is_and]


def _matched(node: tree.Binary, left: series.Vector, right: series.Vector) -> series.Vector:
    if not left or not right:
        return []
    many, one = (right, left) if node.group == "right" else (left, right)
    ones: dict[series.Labels, series.PointSample] = {}
    for sample in one:
        key = _signature(node, sample.labels)
        if key in ones:
            raise series.Unanswerable(
                f"found duplicate series for the match group {dict(key)} on one side of the "
                "operation;many-to-many matching not allowed: matching labels must be unique on "
                "one side"
            )
        ones[key] = sample
    places: set[tuple[series.Labels, series.Labels]] = set()
    result: series.Vector = []
    for sample in many:
        key = _signature(node, sample.labels)
        other = ones.get(key)
        if other is None:
            continue
        labels = _result(node, sample.labels, other.labels)
        place = (key, labels if node.group else ())
        if place in places:
            raise series.Unanswerable(
                "multiple matches for labels: many-to-one matching must be explicit "
                "(group_left/group_right), and grouping labels must ensure unique matches"
            )
        places.add(place)
        a, b = (other, sample) if node.group == "right" else (sample, other)
        for _, value in _applied(node, sample, a.value, b.value):
            result.append(series.PointSample(labels, value))
    return result


def _result(node: tree.Binary, many: series.Labels, one: series.Labels) -> series.Labels:
    labels = series.nameless(many) if node.op in _ARITHMETIC or node.is_bool else many
    if not node.group:
        side = series.only if node.clause == "on" else series.without
        labels = side(labels, node.labels)
    if node.included:
        labels = series.label_set(
            {**dict(labels), **{name: series.label(one, name) for name in node.included}}
        )
    return labels


LOOKBACK_MS = 5 * 60 * 1000


class Evaluation:
    """Queries over ``head``; everything it returns raises ``PromqlError``."""

    def __init__(self, head: series.SeriesHead) -> None:
        self._head = head

    def at(self, node: tree.Node, now_ms: int) -> series.Value:
        """Return the value of ``node``."""
        with np.errstate(all="ignore"):
            return self._value(node, now_ms)

    def windows(self, node: tree.Node, now_ms: int) -> list[series.Window]:
        """Return the windows of a range selector that hold a sample."""
        if not isinstance(node, tree.VectorSelector):
            raise series.unsupported(f"a {type(node).__name__.lower()} as a range")
        if node.range_ms is None:
            raise series.BadData("expected a range vector")
        end_ms = _end(node, now_ms)
        start_ms = end_ms - node.range_ms
        samples = (
            (labels, *columns.window(start_ms, end_ms))
            for labels, columns in self._head.select(node.name, node.matchers)
        )
        return [
            series.Window(labels, times, values, start_ms, end_ms)
            for labels, times, values in samples
            if len(times)
        ]

    def _value(self, node: tree.Node, now_ms: int) -> series.Value:
        match node:
            case tree.Number(text):
                return float(text)
            case tree.VectorSelector():
                newest = self._newest(node, now_ms)
                return [series.PointSample(labels, value) for labels, (_, value) in newest]
            case tree.Negation(operand):
                value = self._value(operand, now_ms)
                if isinstance(value, float):
                    return -value
                return _each(value, lambda number: -number)
            case tree.Binary():
                left, right = self._value(node.left, now_ms), self._value(node.right, now_ms)
                value = combine(node, left, right)
                return value if isinstance(value, float) else series.distinct(value)
            case tree.Aggregation():
                k = 0.0 if node.parameter is None else self._number(node.parameter, now_ms)
                return aggregate(node, self._vector(node.operand, now_ms), k)
            case tree.FunctionCall(name, arguments):
                return self._call(name, arguments, now_ms)
        raise series.unsupported(f"a {type(node).__name__.lower()} here")

    def _call(self, name: str, arguments: Sequence[tree.Node], now_ms: int) -> series.Value:
        if name in OVER_TIME:
            changes = (
                (window.labels if name == KEEPS_NAME else series.nameless(window.labels),
                 OVER_TIME[name](window))
                for window in self.windows(arguments[0], now_ms)
            )  # fmt: skip
            return series.distinct(
                [series.PointSample(labels, value) for labels, value in changes
                 if value is not None]
            )  # fmt: skip
        if name in NUMBERS:
            return _each(self._vector(arguments[0], now_ms), NUMBERS[name])
        match name:
            case "time":
                return now_ms / 1000
            case "vector":
                return [series.PointSample((), self._number(arguments[0], now_ms))]
            case "timestamp":  # which the feed asks for beside its batches
                if not isinstance(arguments[0], tree.VectorSelector):
                    raise series.unsupported("timestamp of anything but a selector")
                newest = self._newest(arguments[0], now_ms)
                return series.distinct(
                    [
                        series.PointSample(series.nameless(labels), ms / 1000)
                        for labels, (ms, _) in newest
                    ]
                )
            case "round":
                nearest = self._number(arguments[1], now_ms) if arguments[1:] else 1.0
                vector = self._vector(arguments[0], now_ms)
                return _each(vector, lambda value: rounded(value, nearest))
        raise series.unsupported(f"the function {name}")

    def _vector(self, node: tree.Node, now_ms: int) -> series.Vector:
        value = self._value(node, now_ms)
        if isinstance(value, float):
            raise series.BadData("expected an instant vector")
        return value

    def _number(self, node: tree.Node, now_ms: int) -> float:
        value = self._value(node, now_ms)
        if not isinstance(value, float):
            raise series.BadData("expected a scalar")
        return value

    def _newest(
        self, node: tree.VectorSelector, now_ms: int
    ) -> list[tuple[series.Labels, tuple[int, float]]]:
        if node.range_ms is not None:
            raise series.BadData("expected an instant vector and got a range vector")
        at_ms = _end(node, now_ms)
        return [
            (labels, sample)
            for labels, columns in self._head.select(node.name, node.matchers)
            if (sample := columns.last(at_ms - LOOKBACK_MS, at_ms)) is not None
        ]


def _end(node: tree.VectorSelector, now_ms: int) -> int:
    if node.at is not None:
        raise series.unsupported("the modifier @")
    return now_ms - node.offset_ms


def _each(vector: series.Vector, change: Callable[[float], float]) -> series.Vector:
    """Return every element changed, without its name."""
    return series.distinct(
        [series.PointSample(series.nameless(s.labels), change(s.value)) for s in vector]
    )
