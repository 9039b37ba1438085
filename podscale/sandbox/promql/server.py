"""The stand-in as a server: its own scraper, its series in memory, Prometheus's API in front.

It has no files and no process of its own: it lives in the sandbox's, on the clock it is given.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Self

import msgspec
from aiohttp import web
from multidict import MultiDict, MultiMapping

from podscale.core.ascii_text import whole_number
from podscale.core.pace import LoopPace
from podscale.core.times.duration import parse_prometheus_ns
from podscale.feed.prover.tree import Node, NotPromql, VectorSelector, parse
from podscale.sandbox.load import ExposedSample
from podscale.sandbox.promql import series
from podscale.sandbox.promql.evaluation import Evaluation

_STEPS = 11_000  # as Prometheus


def time_ms(text: str, name: str) -> int:
    """Return unix milliseconds of unix seconds or RFC 3339; raises ``BadData``."""

    def seconds(text: str) -> float:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()

    return _milliseconds(text, name, "timestamp", seconds)


def duration_ms(text: str, name: str) -> int:
    """Return milliseconds of seconds or ``1h30m``; raises ``BadData``."""
    return _milliseconds(text, name, "duration", lambda text: parse_prometheus_ns(text) / 1e9)


def _milliseconds(text: str, name: str, what: str, read: Callable[[str], float]) -> int:
    for seconds in (float, read):
        try:
            return round(seconds(text) * 1000)  # which refuses what is not finite
        except (OverflowError, ValueError):  # a DurationError is one
            continue
    raise series.BadData(f'invalid parameter "{name}": cannot parse "{text}" to a valid {what}')


def steps(start_ms: int, end_ms: int, step_ms: int) -> range:
    """Return the times of a range query; raises ``BadData``."""
    if end_ms < start_ms:
        raise series.BadData('invalid parameter "end": end timestamp must not be before start time')
    if step_ms <= 0:
        raise series.BadData(
            'invalid parameter "step": zero or negative query resolution step widths'
        )
    if (end_ms - start_ms) // step_ms > _STEPS:
        raise series.BadData("exceeded maximum resolution of 11,000 points per timeseries")
    return range(start_ms, end_ms + 1, step_ms)


def query(text: str) -> Node:
    """Return the tree of a query; raises ``BadData`` or ``Unanswerable``."""
    try:
        return parse(text)
    except NotPromql as error:
        # What the tree cannot say is PromQL that we do not know; the rest is no PromQL.
        if error.__cause__ is None or isinstance(error.__cause__, NotPromql):
            raise series.unsupported(str(error)) from None
        raise series.BadData(f'invalid parameter "query": {error}') from None


def selection(text: str) -> VectorSelector:
    """Return the selector of a ``match[]``; raises ``BadData`` or ``Unanswerable``."""
    selector = query(text)
    if not isinstance(selector, VectorSelector) or selector.range_ms is not None:
        raise series.BadData(f'invalid parameter "match[]": {text} is not a vector selector')
    return selector


_PREFIX = "/api/v1/"
_EVER_MS = 2**53
VERSION = "3.0.0-podscale-stand-in"
BUILD = {"version": VERSION, "revision": "", "branch": "", "goVersion": ""}

Fields = MultiMapping[str]


class PromqlApi:
    """Answers requests. ``handle`` is an aiohttp handler of a low-level server."""

    def __init__(self, head: series.SeriesHead, clock: Callable[[], float]) -> None:
        """``clock`` is unix seconds."""
        self._head = head
        self._clock = clock
        self._evaluation = Evaluation(head)
        self._paths: Mapping[str, Callable[[Fields], object]] = {
            "query": self._query,
            "query_range": self._query_range,
            "series": self._series,
            "labels": self._labels,
            "metadata": lambda _: {},  # pages tell no types
            "status/buildinfo": lambda _: BUILD,
            "status/runtimeinfo": lambda _: {
                "serverTime": self._clock(),
                "storageRetention": "6h",
                "GOMAXPROCS": 1,
            },
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
            data = act(fields)
            data = await data if isinstance(data, Awaitable) else data
            body: dict[str, object] = {"status": "success", "data": data}
            status = 200
        except series.PromqlError as error:
            status = error.status
            body = {"status": "error", "errorType": error.kind, "error": str(error)}
        except RecursionError:
            status = series.Unanswerable.status
            body = {"status": "error", "errorType": "execution", "error": "nested too deeply"}
        response = web.Response(
            status=status, body=msgspec.json.encode(body), content_type="application/json"
        )
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            response.enable_compression(web.ContentCoding.gzip)
        return response

    def _action(self, path: str) -> Callable[[Fields], object] | None:
        if not path.startswith(_PREFIX):
            return None
        action = path.removeprefix(_PREFIX)
        first, _, after = action.partition("/")
        if first == "label" and after.endswith("/values"):
            return lambda fields: self._label_values(fields, after.removesuffix("/values"))
        return self._paths.get(action)

    def _query(self, fields: Fields) -> object:
        node = query(_one(fields, "query"))
        at = fields.get("time")
        now_ms = time_ms(at, "time") if at else round(self._clock() * 1000)
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
        node = query(_one(fields, "query"))
        start_ms = time_ms(_one(fields, "start"), "start")
        end_ms = time_ms(_one(fields, "end"), "end")
        step_ms = duration_ms(_one(fields, "step"), "step")
        if _is_range(node):
            raise series.BadData(
                'invalid parameter "query": invalid expression type "range vector" for range '
                "query, must be Scalar or instant Vector"
            )
        points: dict[series.Labels, list[list[Any]]] = {}
        pace = LoopPace()
        for now_ms in steps(start_ms, end_ms, step_ms):
            value = self._evaluation.at(node, now_ms)
            if isinstance(value, float):
                points.setdefault((), []).append(_point(now_ms, value))
            else:
                for sample in value:
                    points.setdefault(sample.labels, []).append(_point(now_ms, sample.value))
            await pace.rest()
        return _matrix(dict(sorted(points.items())))

    def _series(self, fields: Fields) -> object:
        if not fields.getall("match[]", []):
            raise series.BadData("no match[] parameter provided")
        limit = whole_number(fields.get("limit", "0"))
        if limit is None:
            raise series.BadData('invalid parameter "limit": not a whole number')
        return [dict(labels) for labels in sorted(self._selected(fields))[: limit or None]]

    def _labels(self, fields: Fields) -> object:
        return sorted({name for labels in self._selected(fields) for name, _ in labels})

    def _label_values(self, fields: Fields, name: str) -> object:
        return sorted(
            {value for labels in self._selected(fields) for key, value in labels if key == name}
        )

    def _selected(self, fields: Fields) -> list[series.Labels]:
        start, end = fields.get("start"), fields.get("end")
        since_ms = time_ms(start, "start") if start else -_EVER_MS
        to_ms = time_ms(end, "end") if end else _EVER_MS
        selections = [selection(text) for text in fields.getall("match[]", [])]
        chosen = [(each.name, each.matchers) for each in selections] or [(None, ())]
        return self._head.series(chosen, since_ms, to_ms)


def _is_range(node: Node) -> bool:
    return isinstance(node, VectorSelector) and node.range_ms is not None


def _one(fields: Fields, name: str) -> str:
    text: str = fields.get(name, "")
    if not text:
        raise series.BadData(f'invalid parameter "{name}": cannot parse "" to a valid value')
    return text


def _point(time_ms: int, value: float) -> list[Any]:
    """Return seconds, and the number as Prometheus writes it."""
    if math.isnan(value):
        return [time_ms / 1000, "NaN"]
    if math.isinf(value):
        return [time_ms / 1000, "+Inf" if value > 0 else "-Inf"]
    return [time_ms / 1000, repr(value).removesuffix(".0")]


def _matrix(points: Mapping[series.Labels, list[list[Any]]]) -> dict[str, Any]:
    result = [{"metric": dict(labels), "values": values} for labels, values in points.items()]
    return {"resultType": "matrix", "result": result}


HOST = "127.0.0.1"
_FORGET_EVERY = 500  # scrapes


class PrometheusStandIn:
    """Serves while the context is open; scrapes ``page`` every ``every_s`` seconds.

    ``page`` takes unix seconds, as ``clock`` returns them; ``every_s`` is of the machine's time.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        page: Callable[[float], Iterable[ExposedSample]] | None = None,
        every_s: float = 1.0,
        head: series.SeriesHead | None = None,
    ) -> None:
        self.head = head or series.SeriesHead()
        self._clock = clock
        self._page = page
        self._every_s = every_s
        self._api = PromqlApi(self.head, clock)
        self._last: frozenset[series.Labels] = frozenset()
        self._scrapes = 0
        self._task: asyncio.Task[None] | None = None
        self._runner: web.ServerRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(
            web.Server(self._api.handle), shutdown_timeout=0.5, access_log=None
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, 0).start()
        self.url = f"http://{HOST}:{self._runner.addresses[0][1]}"
        if self._page is not None:
            self._task = asyncio.create_task(self._scrape_for_ever(), name="scrape")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._runner is not None:
            await self._runner.cleanup()

    def scrape(self) -> None:
        """Take one page: new samples, and markers for series that are gone."""
        if self._page is None:
            return
        now_s = self._clock()
        now_ms = round(now_s * 1000)
        seen = set()
        for sample in self._page(now_s):
            labels = series.label_set(
                {"job": "sandbox", "instance": "sandbox", **sample.labels, series.NAME: sample.name}
            )
            self.head.append(labels, now_ms, sample.value)
            seen.add(labels)
        for labels in self._last - seen:
            self.head.append(labels, now_ms, series.STALE)
        up = series.label_set({series.NAME: "up", "job": "sandbox", "instance": "sandbox"})
        self.head.append(up, now_ms, 1.0)
        self._last = frozenset(seen)
        self._scrapes += 1
        if self._scrapes % _FORGET_EVERY == 0:
            self.head.forget(now_ms)

    async def _scrape_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time()
        while True:
            self.scrape()
            at = max(at + self._every_s, loop.time())
            await asyncio.sleep(at - loop.time())
