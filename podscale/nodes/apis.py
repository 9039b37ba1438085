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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import filterfalse
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError, ObjectNotFound
from podscale.kube.client.wire import decode
from podscale.nodes.cluster.pod_sums import LiveRequests
from podscale.nodes.conditions import DecidedNodes
from podscale.nodes.decide.ballast import Floats, refuses, scores
from podscale.nodes.explain import explain
from podscale.nodes.rounds import NodeRounds
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


@dataclass(eq=False)
class NodeApis:
    """The answers, by the newest round; a scheduler's also by the pods that are there now."""

    rounds: NodeRounds
    api: Api
    live: LiveRequests | None  # None: schedulers are not answered
    stale_s: float  # after so long without a round they get no answer
    wall: Callable[[], float] = time.time
    # 100,000 pods take hundreds of megabytes while they are read.
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Usage of all nodes by window, and the round and the minute that these bodies are of.
    _bodies: dict[str, asyncio.Future[bytes]] = field(default_factory=dict)
    _of: tuple[float, float] = 0.0, 0.0

    def routes(self) -> Sequence[Route]:
        routes = [
            Route("/watcher", self._usage),
            Route("/watcher/*", self._usage),
            Route("/placement/*", self._placement),
        ]
        if self.live is not None:
            routes += [
                Route(f"/scheduler/{verb}", self._scheduler, ("POST",), body_limit=BODY_LIMIT)
                for verb in ("filter", "prioritize")
            ]
        return tuple(routes)

    def _scheduler(self, request: ApiRequest) -> Answered:
        decided = self.rounds.decided
        if decided is None or self.live is None or self.wall() - decided.at_s > self.stale_s:
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
        nodes, requested, wanted = decided.nodes, self.live.over(decided.nodes), requests(args.pod)
        pod = float(wanted.get("cpu", 0)), wanted.get("memory", 0) / 1000
        # A node that we do not know yet is admitted, and the last choice.
        if is_filter:
            full = np.flatnonzero(refuses(decided.columns, decided.plan, requested, pod)).tolist()
            # Unresolvable: evicting pods would change nothing about the load.
            refused = dict.fromkeys({nodes.names[place] for place in full}.intersection(names),
                                    _REFUSED)  # fmt: skip
            left = list(filterfalse(refused.__contains__, names))
            return ApiResponse(value={"NodeNames": left, "FailedAndUnresolvableNodes": refused})
        found = scores(decided.columns, nodes.thresholds, requested, pod).tolist()
        by_name = dict(zip(nodes.names, found, strict=True))
        return ApiResponse(value=[{"Host": each, "Score": by_name.get(each, 0)} for each in names])

    async def _usage(self, request: ApiRequest) -> Answered:
        window = request.parameter("window") or "15m"
        if window not in _WINDOWS:
            return status.bad_request(f"window must be one of {', '.join(_WINDOWS)}")
        decided, windows, now = self.rounds.decided, self.rounds.windows, self.wall()
        if decided is None or decided.nodes.names != windows.names:
            return status.unavailable("nodes have not been looked at yet", retry_after_s=5)
        name = request.path.removeprefix("/watcher").strip("/") or request.parameter("host")
        if name and name not in decided.nodes.places:
            return status.object_not_found("nodes", name)
        # While rounds decide nothing what was measured grows old all the same.
        of = decided.at_s, now // 60
        if of != self._of:
            self._of, self._bodies = of, {}
        if name or window not in self._bodies:
            first = decided.nodes.places[name] if name else 0
            which = slice(first, first + 1 if name else None)
            usage = windows.within(_WINDOWS[window], which)
            usage[:, now - windows.newest_s[:, which] > _WINDOWS[window]] = np.nan
            body = partial(_watched, decided, window, which, usage, int(now))
            if name:
                return ApiResponse(body())
            self._bodies[window] = asyncio.get_running_loop().run_in_executor(None, body)
        # Readers share the bytes: one that leaves takes them from nobody.
        return ApiResponse(await asyncio.shield(self._bodies[window]))

    async def _placement(self, request: ApiRequest) -> Answered:
        namespace, _, name = request.path.removeprefix("/placement/").partition("/")
        if not (namespace and name) or "/" in name:
            return status.path_not_found()
        # Read when it is asked for, with the part's rights: nobody keeps pods whole.
        async with self._turn:
            try:
                pod, cluster = await read(self.api, namespace, name)
            except ObjectNotFound:
                return status.object_not_found("pods", name)
            except (KubeError, msgspec.DecodeError) as error:
                return status.unavailable(f"pods and nodes were not read: {error}", retry_after_s=5)
            placement = asyncio.ensure_future(asyncio.to_thread(explain, pod, cluster, self.wall()))
            try:
                return ApiResponse(value=await asyncio.shield(placement))
            finally:  # who leaves keeps the turn until the thread, which has all pods, has ended
                await asyncio.wait((placement,))


def _watched(decided: DecidedNodes, window: str, which: slice, usage: Floats, now: int) -> bytes:
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = (100.0 * usage / decided.nodes.capacity[:, which]).transpose(2, 1, 0).tolist()
    found: dict[str, Mapping[str, Any]] = {}
    for name, share in zip(decided.nodes.names[which], shares, strict=True):
        metrics = [
            {"name": f"node_{type_.lower()}", "type": type_, "operator": operator,
             "rollup": window, "value": percent}
            for type_, percents in zip(("CPU", "Memory"), share, strict=True)
            for operator, percent in zip(("AVG", "STD", "Latest"), percents, strict=True)
            if math.isfinite(percent)  # what is not measured is not 0
        ]  # fmt: skip
        if metrics:
            found[name] = {"metrics": metrics, "tags": {}, "metadata": {}}
    head = {"duration": window, "start": now - int(_WINDOWS[window]), "end": now}
    data = {"NodeMetricsMap": found}
    value = {"timestamp": now, "window": head, "source": "podscale", "data": data}
    return msgspec.json.encode(value)
