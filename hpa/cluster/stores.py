"""The watches that the HPA lives on: its objects, the pods, and the workloads it scales."""

import asyncio
import math
from collections.abc import Sequence

import structlog

from hpa.cluster.sharing import SharedValues
from hpa.machine.objects import Autoscaler, Claim, TargetWorkload
from podscale.kube.client.api import Api
from podscale.kube.client.errors import Forbidden
from podscale.kube.client.resource import (
    DEPLOYMENTS,
    HPAS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from podscale.kube.columns.pods import PodStore
from podscale.kube.informer.freshness import Freshness
from podscale.kube.informer.list_watch import DEFAULT_RHYTHM, WatchSource, WatchTiming
from podscale.kube.informer.reflector import Reflector
from podscale.kube.informer.store import Store
from podscale.kube.objects.pod import Pod
from podscale.kube.objects.scale import ReplicationController, Workload

_log = structlog.get_logger()

_LOOK_S = 0.05
_PATIENCE_S = 60.0  # with the lists that can be done without
_Optional = Store[Workload] | Store[ReplicationController] | Store[Claim]


class HpaStores:
    """All stores of one HPA part."""

    def __init__(
        self, namespaces: Sequence[str], pods: PodStore, *, feeds_pods: bool = True
    ) -> None:
        """``namespaces``: only these; none named is all. ``feeds_pods``: the pods are ours
        to feed, nobody else does it."""
        self.scopes = tuple(namespaces) or ("",)
        sharing = SharedValues()
        self.autoscalers: Store[Autoscaler] = Store(self.scopes, keep=sharing.autoscaler)
        self.feeds_pods = feeds_pods
        self.pods = pods
        self.deployments: Store[Workload] = Store(self.scopes, keep=sharing.workload)
        self.stateful_sets: Store[Workload] = Store(self.scopes, keep=sharing.workload)
        self.replica_sets: Store[Workload] = Store(self.scopes, keep=sharing.workload)
        self.replication_controllers: Store[ReplicationController] = Store(self.scopes)
        self.claims: Store[Claim] = Store(self.scopes)  # fed where ours is another resource
        self._has_claims = False

    async def run(
        self,
        api: Api,
        resource: Resource,
        *,
        selector: str = "",
        rhythm: WatchTiming = DEFAULT_RHYTHM,
    ) -> None:
        """Feed every store for ever. ``selector`` narrows the autoscalers."""
        scopes = self.scopes
        self._has_claims = resource != HPAS
        async with asyncio.TaskGroup() as group:
            if self._has_claims:
                claims = [WatchSource(HPAS, Claim, namespace=s, rhythm=rhythm) for s in scopes]
                group.create_task(Reflector(api, claims, self.claims).run())
            sources = [
                WatchSource(
                    resource, Autoscaler, namespace=s, label_selector=selector, rhythm=rhythm
                )
                for s in scopes
            ]
            group.create_task(Reflector(api, sources, self.autoscalers).run())
            if self.feeds_pods:
                pods = [WatchSource(PODS, Pod, namespace=s, rhythm=rhythm) for s in scopes]
                group.create_task(Reflector(api, pods, self.pods).run())
            decoded: type[Workload]
            for kind, decoded, store in (
                (DEPLOYMENTS, TargetWorkload, self.deployments),
                (STATEFUL_SETS, TargetWorkload, self.stateful_sets),
                (REPLICA_SETS, Workload, self.replica_sets),
            ):
                workloads = [WatchSource(kind, decoded, namespace=s, rhythm=rhythm) for s in scopes]
                group.create_task(Reflector(api, workloads, store).run())
            controllers = [
                WatchSource(
                    REPLICATION_CONTROLLERS, ReplicationController, namespace=s, rhythm=rhythm
                )
                for s in scopes
            ]
            group.create_task(Reflector(api, controllers, self.replication_controllers).run())

    async def wait_synced(self) -> None:
        """Wait for the first lists, but not for what may not be listed, and not for ever for what
        cannot be: a workload is read by GET instead, and an in-tree HPA on a target of ours then
        shows by its deeds only."""
        await self.autoscalers.wait_synced()
        await self.pods.wait_synced()
        now = asyncio.get_running_loop().time
        until = now() + _PATIENCE_S
        for name, store in self._workloads():
            while not store.is_synced and not isinstance(store.freshness().error, Forbidden):
                if now() >= until:
                    # One object that etcd cannot read fails the list of its kind for ever.
                    _log.error("not listed, going on without", resource=name)
                    break
                await asyncio.sleep(_LOOK_S)

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

    def freshness(self) -> dict[str, Freshness]:
        """Return the state of every watch, for health and logs."""
        return {
            "autoscalers": self.autoscalers.freshness(),
            "pods": self.pods.freshness(),
            **{name: store.freshness() for name, store in self._workloads()},
        }

    def _workloads(self) -> "list[tuple[str, _Optional]]":
        found: list[tuple[str, _Optional]] = [
            ("deployments", self.deployments),
            ("statefulsets", self.stateful_sets),
            ("replicasets", self.replica_sets),
            ("replicationcontrollers", self.replication_controllers),
        ]
        return [*found, ("horizontalpodautoscalers", self.claims)] if self._has_claims else found
