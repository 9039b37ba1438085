"""The API group of sizing decisions, served by the recommender's leader.

Everybody else answers 503 NotLeader, never an empty list. Decisions about pods are told
where the updater runs in the same process.
"""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from podscale.serving import status
from podscale.serving.api import Answered, ApiRequest, ApiResource, ApiResponse
from podscale.serving.status import Cause
from vpa import sizing
from vpa.explain.recommendation import Measured
from vpa.model.membership import VpaKey
from vpa.model.quantities import RESOURCES
from vpa.recommender.loop import Recommender
from vpa.sizing import Known, PodDecision
from vpa.updater.loop import Updater

_RETRY_S = 1


class SizingApi:
    """An ``ApiGroup`` over a recommender, and an updater beside it."""

    def __init__(
        self,
        recommender: Recommender,
        is_leader: Callable[[], bool],
        *,
        updater: Updater | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._recommender = recommender
        self._is_leader = is_leader
        self._updater = updater
        self._wall = wall

    @property
    def name(self) -> str:
        """The group."""
        return sizing.GROUP

    @property
    def versions(self) -> Sequence[str]:
        """The only version."""
        return (sizing.VERSION,)

    @property
    def offers_table(self) -> bool:
        """``kubectl get sizingdecisions`` shows one."""
        return True

    def revision(self) -> Hashable:
        """Discovery never changes."""
        return 0

    def resources(self, version: str) -> Sequence[ApiResource]:
        """The one resource."""
        verbs = ("get", "list")
        return (ApiResource(sizing.PLURAL, sizing.SINGULAR, True, sizing.KIND, verbs),)

    def schemas(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        """None: the facts of an explanation differ from reason to reason."""
        return {}

    def paths(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        """None."""
        return {}

    def handle(self, request: ApiRequest) -> Answered:
        """Answer a list or one decision."""
        info = request.info
        if info.resource != sizing.PLURAL or info.subresource:
            return status.path_not_found()
        if request.method != "GET" or info.verb == "watch":
            return status.method_not_allowed()
        if not self._is_leader():
            return status.unavailable(
                "this replica does not recommend: ask the leader",
                causes=(Cause(reason="NotLeader", message="another replica holds the Lease"),),
                retry_after_s=_RETRY_S,
            )
        if request.parameter("at"):
            return status.bad_request("earlier sizing decisions are not kept: ask without at")
        if info.verb == "get":
            key = VpaKey(info.namespace, info.name)
            if key not in self._recommender.held:
                return status.object_not_found(sizing.PLURAL, info.name, group=sizing.GROUP)
            known = self.known(key)
            if request.media.as_table:
                return ApiResponse(value=sizing.table([known]))
            return ApiResponse(value=sizing.body(known))
        keys = sorted(
            key for key in self._recommender.held if info.namespace in ("", key.namespace)
        )
        found = [self.known(key) for key in keys]
        if request.media.as_table:
            return ApiResponse(value=sizing.table(found))
        return ApiResponse(value=sizing.listing([sizing.body(each) for each in found]))

    def known(self, key: VpaKey) -> Known:
        """Return one VPA of the recommender and all that was decided about it."""
        recommender = self._recommender
        held = recommender.held[key]
        entry = recommender.cluster.vpas[key]
        trace = recommender.trace(key)
        containers = tuple(sorted({*entry.columns, *entry.initial}))
        pods = self._updater.told.of(key) if self._updater is not None else {}
        return Known(
            held.vpa,
            self._wall(),
            held.resolved.state,
            recommender.options.name,
            key in recommender.cluster.matched(),
            containers,
            trace,
            {
                (container, resource): self._measured(key, container, resource)
                for container in containers
                for resource in RESOURCES
            },
            tuple(PodDecision(name, each.at, each.decision) for name, each in sorted(pods.items())),
        )

    def _measured(self, key: VpaKey, container: str, resource: str) -> Measured:
        cluster = self._recommender.cluster
        entry = cluster.vpas[key]
        columns = entry.group(container)
        span = cluster.aggregates.cpu_span
        if not columns.size or not span.samples[columns].any():
            return Measured()
        held = None
        if resource == "memory":
            fraction = entry.settings.recommender.memory.percentiles.target
            held = cluster.held(key, container, fraction)
        return Measured(
            float(span.samples[columns].sum()),
            float(np.min(span.first[columns])),
            float(np.max(span.last[columns])),
            held,
        )
