"""Prometheus's JSON for values: texts for numbers, pairs of time and value."""

import math
from collections.abc import Iterable
from typing import Any

from podscale.sandbox.promql.errors import BadData
from podscale.sandbox.promql.values import Labels, Value


def text(value: float) -> str:
    """Return a number as Prometheus writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value).removesuffix(".0")


def instant(value: Value, now_ms: int) -> dict[str, Any]:
    """Return ``data`` of an instant query."""
    now = now_ms / 1000
    if isinstance(value, list):
        result = [{"metric": dict(s.labels), "value": [now, text(s.value)]} for s in value]
        return {"resultType": "vector", "result": result}
    if isinstance(value, str):
        return {"resultType": "string", "result": [now, value]}
    return {"resultType": "scalar", "result": [now, text(value)]}


def windows(found: Iterable[tuple[Labels, list[list[Any]]]]) -> dict[str, Any]:
    """Return ``data`` of series with their points."""
    result = [{"metric": dict(labels), "values": points} for labels, points in found if points]
    return {"resultType": "matrix", "result": result}


class AnswerTable:
    """Collects the values of a range query, step by step."""

    def __init__(self) -> None:
        self._points: dict[Labels, list[list[Any]]] = {}

    def add(self, value: Value, now_ms: int) -> None:
        """Take one step's value; raises ``BadData`` for a string."""
        if isinstance(value, str):
            raise BadData(
                'invalid parameter "query": invalid expression type "string" for range query, '
                "must be Scalar or instant Vector"
            )
        elements = (
            [((), value)]
            if isinstance(value, float)
            else [(sample.labels, sample.value) for sample in value]
        )
        for labels, number in elements:
            self._points.setdefault(labels, []).append([now_ms / 1000, text(number)])

    def data(self) -> dict[str, Any]:
        """Return ``data``: series in the order of their labels."""
        return windows(sorted(self._points.items()))
