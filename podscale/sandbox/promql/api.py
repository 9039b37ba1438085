"""Prometheus's HTTP API over the series in memory: what the feed, the doctor and history ask.

Query, range query, series, labels, label values, metadata and status, by GET or POST, with
gzip where it is accepted.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web
from multidict import MultiDict, MultiMapping

from podscale.core.ascii_text import whole_number
from podscale.core.pace import LoopPace
from podscale.feed.prover.tree import Node, VectorSelector
from podscale.sandbox.promql import parameters
from podscale.sandbox.promql.evaluation import Evaluation
from podscale.sandbox.promql.head import SeriesHead
from podscale.sandbox.promql.values import BadData, Labels, PromqlError, Unanswerable

_PREFIX = "/api/v1/"
_EVER_MS = 2**53
VERSION = "3.0.0-podscale-stand-in"

Fields = MultiMapping[str]


class PromqlApi:
    """Answers requests. ``handle`` is an aiohttp handler of a low-level server."""

    def __init__(self, head: SeriesHead, clock: Callable[[], float]) -> None:
        """``clock`` is unix seconds."""
        self._head = head
        self._clock = clock
        self._evaluation = Evaluation(head)
        self._paths: Mapping[str, Callable[[Fields], Awaitable[object]]] = {
            "query": self._query,
            "query_range": self._query_range,
            "series": self._series,
            "labels": self._labels,
            "metadata": self._metadata,
            "status/buildinfo": self._build,
            "status/runtimeinfo": self._runtime,
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path in ("/-/ready", "/-/healthy"):
            return web.Response(text="podscale's stand-in for Prometheus is ready.\n")
        act = self._action(request.path)
        if act is None or request.method not in ("GET", "POST"):
            return web.Response(status=404 if act is None else 405, text="not found\n")
        try:
            fields: MultiDict[str] = MultiDict(request.query)
            if request.method == "POST":
                for name, value in (await request.post()).items():
                    fields.add(name, str(value))
            body: dict[str, object] = {"status": "success", "data": await act(fields)}
            status = 200
        except PromqlError as error:
            status = error.status
            body = {"status": "error", "errorType": error.kind, "error": str(error)}
        except RecursionError:
            status = Unanswerable.status
            body = {"status": "error", "errorType": "execution", "error": "nested too deeply"}
        response = web.Response(
            status=status, body=msgspec.json.encode(body), content_type="application/json"
        )
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            response.enable_compression(web.ContentCoding.gzip)
        return response

    def _action(self, path: str) -> Callable[[Fields], Awaitable[object]] | None:
        if not path.startswith(_PREFIX):
            return None
        action = path.removeprefix(_PREFIX)
        first, _, after = action.partition("/")
        if first == "label" and after.endswith("/values"):
            return lambda fields: self._label_values(fields, after.removesuffix("/values"))
        return self._paths.get(action)

    async def _query(self, fields: Fields) -> object:
        node = parameters.query(_one(fields, "query"))
        at = fields.get("time")
        now_ms = parameters.time_ms(at, "time") if at else round(self._clock() * 1000)
        if _is_range(node):
            return _matrix(
                {
                    window.labels: [
                        _point(*pair)
                        for pair in zip(window.times.tolist(), window.values.tolist(), strict=True)
                    ]
                    for window in self._evaluation.windows(node, now_ms)
                }
            )
        value = self._evaluation.at(node, now_ms)
        if isinstance(value, float):
            return {"resultType": "scalar", "result": _point(now_ms, value)}
        result = [
            {"metric": dict(each.labels), "value": _point(now_ms, each.value)} for each in value
        ]
        return {"resultType": "vector", "result": result}

    async def _query_range(self, fields: Fields) -> object:
        node = parameters.query(_one(fields, "query"))
        start_ms = parameters.time_ms(_one(fields, "start"), "start")
        end_ms = parameters.time_ms(_one(fields, "end"), "end")
        step_ms = parameters.duration_ms(_one(fields, "step"), "step")
        if _is_range(node):
            raise BadData(
                'invalid parameter "query": invalid expression type "range vector" for range '
                "query, must be Scalar or instant Vector"
            )
        points: dict[Labels, list[list[Any]]] = {}
        pace = LoopPace()
        for now_ms in parameters.steps(start_ms, end_ms, step_ms):
            value = self._evaluation.at(node, now_ms)
            if isinstance(value, float):
                points.setdefault((), []).append(_point(now_ms, value))
            else:
                for sample in value:
                    points.setdefault(sample.labels, []).append(_point(now_ms, sample.value))
            await pace.rest()
        return _matrix(dict(sorted(points.items())))

    async def _series(self, fields: Fields) -> object:
        if not fields.getall("match[]", []):
            raise BadData("no match[] parameter provided")
        limit = whole_number(fields.get("limit", "0"))
        if limit is None:
            raise BadData('invalid parameter "limit": not a whole number')
        return [dict(labels) for labels in sorted(self._selected(fields))[: limit or None]]

    async def _labels(self, fields: Fields) -> object:
        return sorted({name for labels in self._selected(fields) for name, _ in labels})

    async def _label_values(self, fields: Fields, name: str) -> object:
        return sorted(
            {value for labels in self._selected(fields) for key, value in labels if key == name}
        )

    async def _metadata(self, _: Fields) -> object:
        return {}  # pages tell no types

    async def _build(self, _: Fields) -> object:
        return {"version": VERSION, "revision": "", "branch": "", "goVersion": ""}

    async def _runtime(self, _: Fields) -> object:
        return {"serverTime": self._clock(), "storageRetention": "6h", "GOMAXPROCS": 1}

    def _selected(self, fields: Fields) -> list[Labels]:
        start, end = fields.get("start"), fields.get("end")
        since_ms = parameters.time_ms(start, "start") if start else -_EVER_MS
        to_ms = parameters.time_ms(end, "end") if end else _EVER_MS
        selections = [parameters.selection(text) for text in fields.getall("match[]", [])]
        chosen = [(each.name, each.matchers) for each in selections] or [(None, ())]
        return self._head.series(chosen, since_ms, to_ms)


def _is_range(node: Node) -> bool:
    return isinstance(node, VectorSelector) and node.range_ms is not None


def _one(fields: Fields, name: str) -> str:
    text: str = fields.get(name, "")
    if not text:
        raise BadData(f'invalid parameter "{name}": cannot parse "" to a valid value')
    return text


def _point(time_ms: int, value: float) -> list[Any]:
    """Return seconds, and the number as Prometheus writes it."""
    if math.isnan(value):
        return [time_ms / 1000, "NaN"]
    if math.isinf(value):
        return [time_ms / 1000, "+Inf" if value > 0 else "-Inf"]
    return [time_ms / 1000, repr(value).removesuffix(".0")]


def _matrix(points: Mapping[Labels, list[list[Any]]]) -> dict[str, Any]:
    result = [{"metric": dict(labels), "values": values} for labels, values in points.items()]
    return {"resultType": "matrix", "result": result}
