"""What the nodes part answers over HTTP, of every replica.

- ``POST /scheduler/filter`` and ``/scheduler/prioritize``: a scheduler extender that decides as
  ballast does. Follows k8s.io/kube-scheduler/extender/v1 with ``nodeCacheCapable``.
- ``GET /watcher`` and ``/watcher/{node}``: usage in load-watcher's JSON, percent of capacity.
  Follows github.com/paypal/load-watcher ``pkg/watcher``; ours are the node and ``?window=``.
- ``GET /placement/{namespace}/{pod}``: why a pod has no node, as ``podscale explain pod`` says it.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import filterfalse

import msgspec
import numpy as np
from msgspec import Struct

from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError, ObjectNotFound
from podscale.kube.client.wire import decode
from podscale.nodes.cluster.pod_sums import LiveRequests
from podscale.nodes.decide.ballast import Floats, refuses, scores
from podscale.nodes.explain import explain
from podscale.nodes.rounds import DecidedNodes, NodeRounds
from podscale.nodes.scheduling.cluster_reading import read
from podscale.nodes.scheduling.objects import ScheduledPod
from podscale.nodes.scheduling.requests import requests
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResponse, Route

BODY_LIMIT = 2 * 1024 * 1024  # a pod, and the names of tens of thousands of nodes
# One sentence for all nodes: the scheduler counts them by it.
_REFUSED = "node(s) had no room by measured load"
_BY_NAME = "podscale knows the nodes itself: set nodeCacheCapable: true for this extender"
_WINDOWS = {"15m": 900.0, "10m": 600.0, "5m": 300.0}  # upstream answers with the longest


class ExtenderArgs(Struct, frozen=True, rename="pascal"):
    pod: ScheduledPod
    node_names: list[str] | None = None


class HostPriority(Struct, frozen=True, rename="pascal"):
    host: str
    score: int


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


class NodeApis:
    """The answers, by the newest round; a scheduler's also by the pods that are there now."""

    def __init__(
        self,
        rounds: NodeRounds,
        api: Api,
        live: LiveRequests | None,
        *,
        stale_s: float,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``live``: None where schedulers are not answered. ``stale_s``: after so long without a
        round they get no answer."""
        self._rounds = rounds
        self._api = api
        self._live = live
        self._stale_s = stale_s
        self._wall = wall
        self._turn = asyncio.Lock()  # 100,000 pods take hundreds of megabytes while they are read

    def routes(self) -> Sequence[Route]:
        routes = [
            Route("/watcher", self._usage),
            Route("/watcher/*", self._usage),
            Route("/placement/*", self._placement),
        ]
        if self._live is not None:
            routes += [
                Route(f"/scheduler/{verb}", self._extend, ("POST",), body_limit=BODY_LIMIT)
                for verb in ("filter", "prioritize")
            ]
        return tuple(routes)

    def _extend(self, request: ApiRequest) -> Answered:
        decided = self._rounds.decided
        if decided is None or self._live is None or self._wall() - decided.at_s > self._stale_s:
            # An ignorable extender is passed over; what is not known is not "full".
            return status.unavailable("nodes have not been looked at", retry_after_s=5)
        is_filter = request.path.endswith("/filter")
        try:
            args = decode(request.body, ExtenderArgs)
        except msgspec.DecodeError as error:
            return status.bad_request(f"these are no ExtenderArgs: {error}")
        names = args.node_names
        if names is None:
            refusal = ApiResponse(value={"Error": _BY_NAME})
            return refusal if is_filter else status.bad_request(_BY_NAME)
        nodes, requested, wanted = decided.nodes, self._live.over(decided.nodes), requests(args.pod)
        pod = float(wanted.get("cpu", 0)), wanted.get("memory", 0) / 1000
        # A node that we do not know yet is admitted, and the last choice.
        if is_filter:
            full = np.flatnonzero(refuses(decided.columns, decided.plan, requested, pod)).tolist()
            return ApiResponse(value=_filtered(names, {nodes.names[place] for place in full}))
        found = scores(decided.columns, nodes.thresholds, requested, pod).tolist()
        by_name = dict(zip(nodes.names, found, strict=True))
        return ApiResponse(value=[HostPriority(name, by_name.get(name, 0)) for name in names])

    def _usage(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        window = request.parameter("window") or "15m"
        if window not in _WINDOWS:
            return status.bad_request(f"window must be one of {', '.join(_WINDOWS)}")
        decided, windows = self._rounds.decided, self._rounds.windows
        if decided is None or decided.nodes.names != windows.names:
            return status.unavailable("nodes have not been looked at yet", retry_after_s=5)
        name = request.path.removeprefix("/watcher").strip("/") or request.parameter("host")
        if name and name not in decided.nodes.places:
            return status.object_not_found("nodes", name)
        first = decided.nodes.places[name] if name else 0
        which = slice(first, first + 1 if name else None)
        usage = windows.within(_WINDOWS[window], which)
        # While rounds decide nothing what was measured grows old all the same.
        usage[:, self._wall() - windows.newest_s()[:, which] > _WINDOWS[window]] = np.nan
        return self._told(decided, window, which, usage)

    async def _told(
        self, decided: DecidedNodes, window: str, which: slice, usage: Floats
    ) -> Answered:
        now = int(self._wall())
        nodes = await asyncio.to_thread(_watched, decided, window, which, usage)
        head = {"duration": window, "start": now - int(_WINDOWS[window]), "end": now}
        data = {"NodeMetricsMap": nodes}
        value = {"timestamp": now, "window": head, "source": "podscale", "data": data}
        return ApiResponse(value=value)

    async def _placement(self, request: ApiRequest) -> Answered:
        namespace, _, name = request.path.removeprefix("/placement/").partition("/")
        if not (namespace and name) or "/" in name:
            return status.path_not_found()
        # Read when it is asked for, with the part's rights: nobody keeps pods whole.
        async with self._turn:
            try:
                pod, cluster = await read(self._api, namespace, name)
            except ObjectNotFound:
                return status.object_not_found("pods", name)
            except (KubeError, msgspec.DecodeError) as error:
                return status.unavailable(f"pods and nodes were not read: {error}", retry_after_s=5)
            return ApiResponse(value=await asyncio.to_thread(explain, pod, cluster, self._wall()))


def _filtered(names: Sequence[str], full: set[str]) -> dict[str, object]:
    # Unresolvable: evicting pods would change nothing about the load.
    refused = dict.fromkeys(full.intersection(names), _REFUSED)
    left = list(filterfalse(refused.__contains__, names))
    return {"NodeNames": left, "FailedAndUnresolvableNodes": refused}


def _watched(
    decided: DecidedNodes, window: str, which: slice, usage: Floats
) -> dict[str, WatchedNode]:
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = (100.0 * usage / decided.nodes.capacity[:, which]).transpose(2, 1, 0).tolist()
    found = {}
    for name, share in zip(decided.nodes.names[which], shares, strict=True):
        metrics = [
            WatcherMetric(f"node_{type_.lower()}", type_, operator, window, value)
            for type_, values in zip(("CPU", "Memory"), share, strict=True)
            for operator, value in zip(("AVG", "STD", "Latest"), values, strict=True)
            if math.isfinite(value)  # what is not measured is not 0
        ]
        if metrics:
            found[name] = WatchedNode(metrics)
    return found
