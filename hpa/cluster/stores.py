"""The watches that the HPA lives on: its objects, the pods, and the workloads it scales."""

import asyncio
import math
from collections.abc import Sequence
from typing import TypeVar

import structlog

from hpa.cluster.anchors import VpaAnchors
from hpa.cluster.objects import (
    TargetKey,
    TargetWorkload,
    kept_autoscaler,
    kept_workload,
    target_of,
)
from podscale.kube.client.api import Api
from podscale.kube.client.resource import (
    DEPLOYMENTS,
    HPAS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from podscale.kube.client.wire import HasMetadata
from podscale.kube.columns.pods import PodStore
from podscale.kube.informer.list_watch import DEFAULT_RHYTHM, WatchSource, WatchTiming
from podscale.kube.informer.reflector import Reflector
from podscale.kube.informer.store import Store, StoreIndex
from podscale.kube.objects.autoscaler import Autoscaler
from podscale.kube.objects.scale import ReplicationController, Workload

T = TypeVar("T", bound=HasMetadata)

_log = structlog.get_logger()

_PATIENCE_S = 60.0  # with the lists that can be done without


class HpaStores:
    """All stores of one HPA part."""

    def __init__(self, namespaces: Sequence[str], pods: PodStore) -> None:
        """``namespaces``: only these; none named is all. ``pods`` are fed by others."""
        self.scopes = tuple(namespaces) or ("",)
        self.autoscalers: Store[Autoscaler] = Store(self.scopes, keep=kept_autoscaler)
        self.pods = pods
        self.deployments: Store[Workload] = Store(self.scopes, keep=kept_workload)
        self.stateful_sets: Store[Workload] = Store(self.scopes, keep=kept_workload)
        self.replica_sets: Store[Workload] = Store(self.scopes, keep=kept_workload)
        self.replication_controllers: Store[ReplicationController] = Store(self.scopes)
        self.claims: Store[Autoscaler] = Store(
            self.scopes, keep=kept_autoscaler
        )  # fed where ours is another resource
        # Both would scale a target, and the in-tree one does not read ours: we stand still.
        self.claimed = StoreIndex(self.claims, _claimed)
        self._has_claims = False
        self.anchors = VpaAnchors(self.scopes)

    async def run(
        self,
        api: Api,
        resource: Resource,
        *,
        selector: str = "",
        rhythm: WatchTiming = DEFAULT_RHYTHM,
    ) -> None:
        """Feed every store but the pods' for ever. ``selector`` narrows the autoscalers."""
        self._has_claims = resource != HPAS

        def watch(what: Resource, as_: type[T], store: Store[T], labels: str = "") -> None:
            source = WatchSource(what, as_, label_selector=labels, rhythm=rhythm)
            group.create_task(Reflector(api, source, store).run())

        async with asyncio.TaskGroup() as group:
            if self._has_claims:
                watch(HPAS, Autoscaler, self.claims)
            group.create_task(self.anchors.run(api, rhythm))
            watch(resource, Autoscaler, self.autoscalers, selector)
            watch(DEPLOYMENTS, TargetWorkload, self.deployments)
            watch(STATEFUL_SETS, TargetWorkload, self.stateful_sets)
            watch(REPLICA_SETS, Workload, self.replica_sets)
            watch(REPLICATION_CONTROLLERS, ReplicationController, self.replication_controllers)

    async def wait_synced(self) -> None:
        """Wait for the first lists, but not for what may not be listed, and not for ever for what
        cannot be: a workload is read by GET instead, and an in-tree HPA on a target of ours then
        shows by its deeds only."""
        await self.autoscalers.wait_synced()
        await self.pods.wait_synced()
        now = asyncio.get_running_loop().time
        until = now() + _PATIENCE_S
        for name, store in (
            ("deployments", self.deployments),
            ("statefulsets", self.stateful_sets),
            ("replicasets", self.replica_sets),
            ("replicationcontrollers", self.replication_controllers),
            *([("horizontalpodautoscalers", self.claims)] if self._has_claims else ()),
        ):
            if not await store.wait_listed(until - now()):
                # One object that etcd cannot read fails the list of its kind for ever.
                _log.error("not listed, going on without", resource=name)

    @property
    def is_synced(self) -> bool:
        """Whether autoscalers and pods have been listed."""
        return self.autoscalers.is_synced and self.pods.is_synced

    def is_current(self, *, since: float = math.inf, namespace: str | None = None) -> bool:
        """Whether the watches of autoscalers and pods, or of those of one namespace, may be
        believed, and could be ``since``."""
        return all(
            store.is_current(since=since, namespace=namespace)
            for store in (self.autoscalers, self.pods)
        )


def _claimed(claim: Autoscaler) -> tuple[TargetKey, str]:
    meta = claim.metadata
    name = f"HorizontalPodAutoscaler/{meta.name}"
    return target_of(meta.namespace, claim.spec.scale_target_ref), name
