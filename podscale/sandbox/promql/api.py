"""Prometheus's HTTP API over the series in memory: what the feed, the doctor and history ask.

Query, range query, series, labels, label values, metadata and status, by GET or POST, with
gzip where it is accepted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web
from multidict import MultiDict, MultiMapping

from podscale.feed.prover.tree import Node, Subquery, VectorSelector
from podscale.sandbox.promql import answers, parameters
from podscale.sandbox.promql.errors import BadData, PromqlError, Unanswerable
from podscale.sandbox.promql.evaluation.engine import Evaluation
from podscale.sandbox.promql.head import SeriesHead
from podscale.sandbox.promql.values import Labels

_PREFIX = "/api/v1/"
_PAGE = 20  # steps of a range query between two looks of the loop at others
_EVER_MS = 2**53
VERSION = "3.0.0-podscale-stand-in"

Fields = MultiMapping[str]


class PromqlApi:
    """Answers requests. ``handle`` is an aiohttp handler of a low-level server."""

    def __init__(self, head: SeriesHead, clock: Callable[[], float]) -> None:
        """``clock`` is unix seconds."""
        self._head = head
        self._clock = clock
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
        rest = path.removeprefix(_PREFIX)
        first, _, after = rest.partition("/")
        if first == "label" and after.endswith("/values"):
            name = after.removesuffix("/values")
            return lambda fields: self._label_values(fields, name)
        return self._paths.get(rest)

    def _now_ms(self) -> int:
        return round(self._clock() * 1000)

    async def _query(self, fields: Fields) -> object:
        node = parameters.query(_one(fields, "query"))
        given = fields.get("time")
        now_ms = self._now_ms() if not given else parameters.time_ms(given, "time")
        evaluation = Evaluation(self._head, now_ms, now_ms)
        if _is_range(node):
            found = evaluation.windows(node, now_ms)
            return answers.windows(
                (
                    window.labels,
                    [
                        [at / 1000, answers.text(value)]
                        for at, value in zip(
                            window.times.tolist(), window.values.tolist(), strict=True
                        )
                    ],
                )
                for window in found
            )
        return answers.instant(evaluation.at(node, now_ms), now_ms)

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
        evaluation = Evaluation(self._head, start_ms, end_ms)
        table = answers.AnswerTable()
        for place, now_ms in enumerate(parameters.steps(start_ms, end_ms, step_ms)):
            table.add(evaluation.at(node, now_ms), now_ms)
            if place % _PAGE == _PAGE - 1:
                await asyncio.sleep(0)
        return table.data()

    async def _series(self, fields: Fields) -> object:
        if not fields.getall("match[]", []):
            raise BadData("no match[] parameter provided")
        goes_on = parameters.limit(fields.get("limit", ""))
        found = sorted(self._found(fields))
        return [dict(labels) for place, labels in enumerate(found) if goes_on(place)]

    async def _labels(self, fields: Fields) -> object:
        return sorted({name for labels in self._found(fields) for name, _ in labels})

    async def _label_values(self, fields: Fields, wanted: str) -> object:
        return sorted(
            {value for labels in self._found(fields) for name, value in labels if name == wanted}
        )

    async def _metadata(self, _: Fields) -> object:
        return {}  # pages tell no types

    async def _build(self, _: Fields) -> object:
        return {"version": VERSION, "revision": "", "branch": "", "goVersion": ""}

    async def _runtime(self, _: Fields) -> object:
        return {"serverTime": self._clock(), "storageRetention": "6h", "GOMAXPROCS": 1}

    def _found(self, fields: Fields) -> list[Labels]:
        start, end = fields.get("start"), fields.get("end")
        since_ms = parameters.time_ms(start, "start") if start else -_EVER_MS
        to_ms = parameters.time_ms(end, "end") if end else _EVER_MS
        texts = fields.getall("match[]", [])
        chosen: list[tuple[str | None, Any]] = [(None, ())]
        if texts:
            selections = [parameters.selection(text) for text in texts]
            chosen = [(found.name, found.matchers) for found in selections]
        return self._head.series(chosen, since_ms, to_ms)


def _is_range(node: Node) -> bool:
    return isinstance(node, Subquery) or (
        isinstance(node, VectorSelector) and node.range_ms is not None
    )


def _one(fields: Fields, name: str) -> str:
    text: str = fields.get(name, "")
    if not text:
        raise BadData(f'invalid parameter "{name}": cannot parse "" to a valid value')
    return text
