"""``POST /scheduler/filter`` and ``/scheduler/prioritize``: a scheduler extender that decides as
ballast does, for schedulers that you run yourself.

Follows k8s.io/kube-scheduler/extender/v1 with ``nodeCacheCapable``: nodes come by name.
"""

import time
from collections.abc import Callable, Sequence
from itertools import filterfalse

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.kube.client.wire import decode, encode
from podscale.nodes.cluster.live_requests import LiveRequests
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
_REFUSED = "node(s) had no room by measured load"
_BY_NAME = "podscale knows the nodes itself: set nodeCacheCapable: true for this extender"


class ExtenderArgs(Struct, frozen=True, rename="pascal"):
    pod: ScheduledPod
    node_names: list[str] | None = None


class ExtenderFilterResult(Struct, frozen=True, rename="pascal"):
    node_names: list[str]
    # Evicting pods would change nothing about the load: the scheduler need not try.
    failed_and_unresolvable_nodes: dict[str, str]


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

    def routes(self) -> Sequence[Route]:
        return tuple(
            Route(f"{PATH}/{verb}", answer, ("POST",), body_limit=BODY_LIMIT)
            for verb, answer in (("filter", self._filter), ("prioritize", self._prioritize))
        )

    def _filter(self, request: ApiRequest) -> Answered:
        read = self._read(request)
        if isinstance(read, Status):
            return read
        decided, args = read
        names = args.node_names
        if names is None:
            return ApiResponse(value={"Error": _BY_NAME})
        requested = self._live.over(decided.nodes)
        full = refuses(decided.columns, decided.plan, requested, _requests(args.pod))
        # A node that we do not know yet is admitted: its own fit check looks at it.
        name_of = decided.nodes.names.__getitem__
        refused = dict.fromkeys(map(name_of, np.flatnonzero(full).tolist()), _REFUSED)
        left = list(filterfalse(refused.__contains__, names))
        if len(left) + len(refused) != len(names):
            refused = dict.fromkeys(refused.keys() & names, _REFUSED)
        return ApiResponse(encode(ExtenderFilterResult(left, refused)))

    def _prioritize(self, request: ApiRequest) -> Answered:
        read = self._read(request)
        if isinstance(read, Status):
            return read
        decided, args = read
        if args.node_names is None:
            return status.bad_request(_BY_NAME)
        nodes = decided.nodes
        requested = self._live.over(nodes)
        found: NDArray[np.int64] = scores(
            decided.columns, nodes.thresholds, requested, _requests(args.pod)
        )
        places, values = nodes.places, found.tolist()
        return ApiResponse(value=[
            HostPriority(name, values[places[name]] if name in places else 0)
            for name in args.node_names
        ])  # fmt: skip

    def _read(self, request: ApiRequest) -> tuple[DecidedNodes, ExtenderArgs] | Status:
        decided = self._rounds.decided
        if decided is None or self._wall() - decided.at_s > self._stale_s:
            # An ignorable extender is passed over; what is not known is not "full".
            return status.unavailable("nodes have not been looked at", retry_after_s=5)
        try:
            return decided, decode(request.body, ExtenderArgs)
        except msgspec.DecodeError as error:
            return status.bad_request(f"these are no ExtenderArgs: {error}")


def _requests(pod: ScheduledPod) -> tuple[float, float]:
    found = requests(pod)
    return float(found.get("cpu", 0)), found.get("memory", 0) / 1000
