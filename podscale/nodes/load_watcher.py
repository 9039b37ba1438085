"""``GET /watcher`` and ``/watcher/{node}``: usage of nodes in load-watcher's JSON.

For the scheduler plugins that read it (TargetLoadPacking, LoadVariationRiskBalancing). Amounts
are percent of capacity. Follows github.com/paypal/load-watcher ``pkg/watcher``; ours are
``/watcher/{node}`` and ``?window=5m|10m``.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.nodes.rounds import DecidedNodes, NodeRounds
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResponse, Route

_WINDOWS = {"15m": 900.0, "10m": 600.0, "5m": 300.0}  # upstream answers with the longest
_TYPES = ("CPU", "Memory")
_OPERATORS = ("AVG", "STD", "Latest")
_PAGE = 500  # nodes written in one turn of the loop
_KEPT_S = 60.0


class WatcherMetric(Struct, frozen=True):
    name: str
    type: str
    operator: str
    rollup: str
    value: float  # percent of capacity


class WatchedNode(Struct, frozen=True):
    metrics: Sequence[WatcherMetric]
    tags: Mapping[str, str] = {}
    metadata: Mapping[str, str] = {}


class LoadWatcher:
    """The answers, made once for each round over the nodes."""

    def __init__(self, rounds: NodeRounds, wall: Callable[[], float] = time.time) -> None:
        self._rounds = rounds
        self._wall = wall
        # The round that what follows is of, and when it was made, by window.
        self._of: tuple[DecidedNodes | None, float] = None, 0.0
        self._made: dict[str, bytes] = {}
        self._shared: dict[str, NDArray[np.float64]] = {}

    def routes(self) -> Sequence[Route]:
        return (Route("/watcher", self._answer), Route("/watcher/*", self._answer))

    def _answer(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        window = request.parameter("window") or "15m"
        if window not in _WINDOWS:
            return status.bad_request(f"window must be one of {', '.join(_WINDOWS)}")
        decided = self._rounds.decided
        if decided is None:
            return status.unavailable("nodes have not been looked at yet", retry_after_s=5)
        if decided.nodes.names != self._rounds.windows.names:
            return status.unavailable("nodes have changed, ask again", retry_after_s=1)
        of, made_s = self._of
        # While rounds decide nothing what was measured grows old all the same.
        if decided is not of or not 0.0 <= self._wall() - made_s < _KEPT_S:
            self._of, self._made, self._shared = (decided, self._wall()), {}, {}
        name = request.path.removeprefix("/watcher").strip("/") or request.parameter("host")
        if name:
            if name not in decided.nodes.places:
                return status.object_not_found("nodes", name)
            shares = self._shares(decided, window)
            lines = _lines(decided, window, shares, [decided.nodes.places[name]])
            return ApiResponse(self._body(window, lines))
        if window in self._made:
            return ApiResponse(self._made[window])
        return self._all(decided, window)

    async def _all(self, decided: DecidedNodes, window: str) -> Answered:
        lines, shares = [], self._shares(decided, window)
        for start in range(0, len(decided.nodes.names), _PAGE):
            places = range(start, min(start + _PAGE, len(decided.nodes.names)))
            lines.append(_lines(decided, window, shares, places))
            await asyncio.sleep(0)
        body = self._body(window, b",".join(filter(None, lines)))
        if decided is self._of[0]:
            self._made[window] = body
        return ApiResponse(body)

    def _shares(self, decided: DecidedNodes, window: str) -> NDArray[np.float64]:
        # Of all nodes, in percent: nodes × resources × operators. NaN: not measured in the window.
        shares = self._shared.get(window)
        if shares is None:
            windows, length_s = self._rounds.windows, _WINDOWS[window]
            found = windows.within(length_s)
            amounts = np.stack([found.mean, found.deviation, found.latest])
            amounts[:, self._wall() - windows.newest_s() > length_s] = np.nan
            with np.errstate(invalid="ignore", divide="ignore"):
                shares = (100.0 * amounts / decided.nodes.capacity).transpose(2, 1, 0)
            self._shared[window] = shares
        return shares

    def _body(self, window: str, nodes: bytes) -> bytes:
        now = int(self._wall())
        head = {"duration": window, "start": now - int(_WINDOWS[window]), "end": now}
        return b"".join((
            b'{"timestamp":', str(now).encode(), b',"window":', msgspec.json.encode(head),
            b',"source":"podscale","data":{"NodeMetricsMap":{', nodes, b"}}}",
        ))  # fmt: skip


def _lines(
    decided: DecidedNodes, window: str, shares: NDArray[np.float64], places: Sequence[int]
) -> bytes:
    lines = []
    for place in places:
        metrics = [
            WatcherMetric(f"node_{type_.lower()}", type_, operator, window, value)
            for type_, values in zip(_TYPES, shares[place].tolist(), strict=True)
            for operator, value in zip(_OPERATORS, values, strict=True)
            if math.isfinite(value)  # what is not measured is not 0
        ]
        if metrics:
            name = msgspec.json.encode(decided.nodes.names[place])
            lines.append(name + b":" + msgspec.json.encode(WatchedNode(metrics)))
    return b",".join(lines)
