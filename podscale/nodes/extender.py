"""``POST /scheduler/filter`` and ``/scheduler/prioritize``: a scheduler extender that decides as
ballast does, for schedulers that you run yourself.

Follows k8s.io/kube-scheduler/extender/v1 with ``nodeCacheCapable``: nodes come by name.
"""

import time
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from msgspec import Raw, Struct

from podscale.kube.client.wire import decode
from podscale.nodes.cluster.live_requests import LiveRequests
from podscale.nodes.cluster.node_names import NamesText, NodeNames, Places
from podscale.nodes.cluster.node_table import NodeArrays
from podscale.nodes.decide.node_scores import refuses, scores
from podscale.nodes.rounds import DecidedNodes, NodeRounds
from podscale.nodes.scheduling.objects import ScheduledPod
from podscale.nodes.scheduling.requests import requests
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResponse, Route
from podscale.serving.status import Status

PATH = "/scheduler"
BODY_LIMIT = 2 * 1024 * 1024  # a pod, and the names of tens of thousands of nodes
# One sentence for all nodes: the scheduler counts them by it.
_REFUSED = b"node(s) had no room by measured load"
# Unresolvable: evicting pods would change nothing about the load.
_FILTER_RESULT = b'{"NodeNames":[%s],"FailedAndUnresolvableNodes":{%s}}'
_BY_NAME = "podscale knows the nodes itself: set nodeCacheCapable: true for this extender"


class ExtenderArgs(Struct, frozen=True, rename="pascal"):
    pod: ScheduledPod
    node_names: Raw = Raw(b"null")  # a list of names


class HostPriority(Struct, frozen=True, rename="pascal"):
    host: str
    score: int


class Extender:
    """The answers, by the newest round and by the pods that are there now."""

    def __init__(
        self, rounds: NodeRounds, live: LiveRequests, *, stale_s: float,
        wall: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """``stale_s``: after so long without a round nothing is answered."""
        self._rounds = rounds
        self._live = live
        self._stale_s = stale_s
        self._wall = wall
        self._names_of: NodeArrays | None = None  # the nodes that ``_known`` is of
        self._known = NodeNames(())

    def routes(self) -> Sequence[Route]:
        return tuple(
            Route(f"{PATH}/{verb}", answer, ("POST",), body_limit=BODY_LIMIT)
            for verb, answer in (("filter", self._filter), ("prioritize", self._prioritize))
        )

    def _filter(self, request: ApiRequest) -> Answered:
        read = self._read(request)
        if isinstance(read, Status):
            return read
        decided, pod, names = read
        if names is None:
            return ApiResponse(value={"Error": _BY_NAME})
        requested = self._live.over(decided.nodes)
        full = refuses(decided.columns, decided.plan, requested, _requests(pod))
        # A node that we do not know yet is admitted: its own fit check looks at it.
        is_refused = np.append(full, False)[self._places(decided.nodes, names)]
        left, refused = names.split(is_refused)
        refused = (refused + b",").replace(b'",', b'":"%s",' % _REFUSED)[:-1]
        return ApiResponse(_FILTER_RESULT % (left, refused))

    def _prioritize(self, request: ApiRequest) -> Answered:
        read = self._read(request)
        if isinstance(read, Status):
            return read
        decided, pod, names = read
        if names is None:
            return status.bad_request(_BY_NAME)
        nodes = decided.nodes
        requested = self._live.over(nodes)
        found = scores(decided.columns, nodes.thresholds, requested, _requests(pod))
        values = np.append(found, 0)[self._places(nodes, names)].tolist()
        hosts = decode(names.text, list[str])
        return ApiResponse(value=list(map(HostPriority, hosts, values)))

    def _places(self, nodes: NodeArrays, names: NamesText) -> Places:
        if nodes is not self._names_of:
            self._names_of, self._known = nodes, NodeNames(nodes.names)
        return self._known.places(names)

    def _read(
        self, request: ApiRequest
    ) -> tuple[DecidedNodes, ScheduledPod, NamesText | None] | Status:
        decided = self._rounds.decided
        if decided is None or self._wall() - decided.at_s > self._stale_s:
            # An ignorable extender is passed over; what is not known is not "full".
            return status.unavailable("nodes have not been looked at", retry_after_s=5)
        try:
            args = decode(request.body, ExtenderArgs)
            names = bytes(args.node_names)
            return decided, args.pod, None if names == b"null" else NamesText.of(names)
        except msgspec.DecodeError as error:
            return status.bad_request(f"these are no ExtenderArgs: {error}")


def _requests(pod: ScheduledPod) -> tuple[float, float]:
    found = requests(pod)
    return float(found.get("cpu", 0)), found.get("memory", 0) / 1000
