"""VPAs and the controllers of pods, as far as room and headroom read them."""

from collections.abc import Mapping

from msgspec import Struct

from podscale.kube.client import resource
from podscale.kube.client.wire import ObjectMeta, Quantity

# Kinds that make a pod anew and say how many there should be.
REPLICATING: Mapping[str, resource.Resource] = {
    each.kind: each
    for each in (resource.REPLICA_SETS, resource.STATEFUL_SETS, resource.REPLICATION_CONTROLLERS)
}


class WorkloadReference(Struct, frozen=True, rename="camel"):
    """``targetRef``, within one namespace."""

    kind: str = ""
    name: str = ""


class WorkloadUpdatePolicy(Struct, frozen=True, rename="camel"):
    update_mode: str = "Recreate"
    min_replicas: int | None = None


class WorkloadVpaSpec(Struct, frozen=True, rename="camel"):
    target_ref: WorkloadReference = WorkloadReference()
    update_policy: WorkloadUpdatePolicy = WorkloadUpdatePolicy()


class ContainerTarget(Struct, frozen=True, rename="camel"):
    container_name: str
    target: dict[str, Quantity] | None = None


class WorkloadTargets(Struct, frozen=True, rename="camel"):
    container_recommendations: tuple[ContainerTarget, ...] = ()


class WorkloadVpaStatus(Struct, frozen=True, rename="camel"):
    recommendation: WorkloadTargets = WorkloadTargets()


class WorkloadVpa(Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: WorkloadVpaSpec = WorkloadVpaSpec()
    status: WorkloadVpaStatus = WorkloadVpaStatus()


class PodControllerSpec(Struct, frozen=True):
    replicas: int = 1


class PodController(Struct, frozen=True):
    """One of ``REPLICATING``, or what holds headroom."""

    metadata: ObjectMeta
    spec: PodControllerSpec = PodControllerSpec()
