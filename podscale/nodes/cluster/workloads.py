"""VPAs and the controllers of pods, as far as room and headroom read them."""

from collections.abc import Mapping

from msgspec import Struct

from podscale.kube.client.resource import (
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from podscale.kube.client.wire import ObjectMeta, Quantity

# Kinds that make a pod anew and say how many there should be.
REPLICATING: Mapping[str, Resource] = {
    each.kind: each for each in (REPLICA_SETS, STATEFUL_SETS, REPLICATION_CONTROLLERS)
}


class WorkloadReference(Struct, frozen=True, rename="camel"):
    """``targetRef``, within one namespace."""

    kind: str = ""
    name: str = ""


class WorkloadUpdatePolicy(Struct, frozen=True, rename="camel"):
    """``updatePolicy``."""

    update_mode: str = "Recreate"
    min_replicas: int | None = None


class WorkloadVpaSpec(Struct, frozen=True, rename="camel"):
    """``spec``."""

    target_ref: WorkloadReference = WorkloadReference()
    update_policy: WorkloadUpdatePolicy = WorkloadUpdatePolicy()


class ContainerTarget(Struct, frozen=True, rename="camel"):
    """One of ``containerRecommendations``."""

    container_name: str
    target: dict[str, Quantity] | None = None


class WorkloadTargets(Struct, frozen=True, rename="camel"):
    """``recommendation``."""

    container_recommendations: tuple[ContainerTarget, ...] = ()


class WorkloadVpaStatus(Struct, frozen=True, rename="camel"):
    """``status``."""

    recommendation: WorkloadTargets = WorkloadTargets()


class WorkloadVpa(Struct, frozen=True, rename="camel"):
    """A VerticalPodAutoscaler."""

    metadata: ObjectMeta
    spec: WorkloadVpaSpec = WorkloadVpaSpec()
    status: WorkloadVpaStatus = WorkloadVpaStatus()


class PodControllerSpec(Struct, frozen=True):
    """``spec``."""

    replicas: int = 1


class PodController(Struct, frozen=True):
    """One of ``REPLICATING``."""

    metadata: ObjectMeta
    spec: PodControllerSpec = PodControllerSpec()
