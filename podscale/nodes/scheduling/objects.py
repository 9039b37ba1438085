"""Pods, nodes and claims, as far as the scheduler's filters read them."""

import msgspec
from msgspec import Struct

from podscale.kube.client.wire import LabelSelector, ObjectMeta, Quantity
from podscale.kube.objects.pod import (
    Container,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)


class NodeRequirement(Struct, frozen=True, rename="camel"):
    """One of ``matchExpressions`` and ``matchFields`` of a node selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Struct, frozen=True, rename="camel"):
    """Requirements that all have to hold."""

    match_expressions: tuple[NodeRequirement, ...] = ()
    match_fields: tuple[NodeRequirement, ...] = ()


class NodeSelector(Struct, frozen=True, rename="camel"):
    """Terms of which one has to hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Struct, frozen=True, rename="camel"):
    """``affinity.nodeAffinity``: what is required."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class PodAffinityTerm(Struct, frozen=True, rename="camel"):
    """Pods near which, or away from which, a pod has to be."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None


class PodAffinity(Struct, frozen=True, rename="camel"):
    """``affinity.podAffinity`` and ``podAntiAffinity``: what is required."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()


class Affinity(Struct, frozen=True, rename="camel"):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class Toleration(Struct, frozen=True, rename="camel"):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SpreadConstraint(Struct, frozen=True, rename="camel"):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int = 1
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class ContainerPort(Struct, frozen=True, rename="camel"):
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class ScheduledContainer(Container, frozen=True, rename="camel"):
    ports: tuple[ContainerPort, ...] = ()


class ClaimSource(Struct, frozen=True, rename="camel"):
    claim_name: str


class EmptyDir(Struct, frozen=True):
    medium: str = ""  # Memory: nothing of it lies on the node's disks


class VolumeSource(Struct, frozen=True):
    """``hostPath``, ``local`` or ``ephemeral``: that the volume is of this kind."""


class PodVolume(Struct, frozen=True, rename="camel"):
    name: str
    persistent_volume_claim: ClaimSource | None = None
    empty_dir: EmptyDir | None = None
    host_path: VolumeSource | None = None
    ephemeral: VolumeSource | None = None


class SchedulingGate(Struct, frozen=True, rename="camel"):
    name: str


class ScheduledPodSpec(PodSpec, frozen=True, rename="camel"):
    containers: tuple[ScheduledContainer, ...] = ()
    init_containers: tuple[ScheduledContainer, ...] = ()
    node_selector: dict[str, str] | None = None
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    volumes: tuple[PodVolume, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class AllocatedStatus(ContainerStatus, frozen=True, rename="camel"):
    """One of ``containerStatuses``, with what the kubelet has allocated."""

    allocated_resources: dict[str, Quantity] | None = None


class ScheduledPodStatus(PodStatus, frozen=True, rename="camel"):
    qos_class: str = ""
    container_statuses: tuple[AllocatedStatus, ...] = ()
    init_container_statuses: tuple[AllocatedStatus, ...] = ()
    resources: ResourceRequirements | None = None  # of the pod
    allocated_resources: dict[str, Quantity] | None = None


class ScheduledPod(Pod, frozen=True, rename="camel"):
    """A pod with what the scheduler and the kubelet read besides, for the pods that are asked
    about: lists and watches of all pods would take three quarters longer to decode."""

    spec: ScheduledPodSpec = ScheduledPodSpec()
    status: ScheduledPodStatus = ScheduledPodStatus()


class VolumeClaimSpec(Struct, frozen=True, rename="camel"):
    volume_name: str = ""
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    selector: LabelSelector | None = None
    volume_mode: str = "Filesystem"


class VolumeClaimStatus(Struct, frozen=True, rename="camel"):
    phase: str = ""


class VolumeClaim(Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: VolumeClaimSpec = VolumeClaimSpec()
    status: VolumeClaimStatus = VolumeClaimStatus()


class VolumeNodeAffinity(Struct, frozen=True, rename="camel"):
    required: NodeSelector | None = None


class ClaimRef(Struct, frozen=True, rename="camel"):
    """``claimRef`` of a volume: whose it is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class VolumeSpec(Struct, frozen=True, rename="camel"):
    node_affinity: VolumeNodeAffinity = VolumeNodeAffinity()
    local: VolumeSource | None = None
    host_path: VolumeSource | None = None
    capacity: dict[str, Quantity] | None = None
    access_modes: tuple[str, ...] = ()
    claim_ref: ClaimRef | None = None
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"


class VolumeStatus(Struct, frozen=True, rename="camel"):
    phase: str = ""


class PersistentVolume(Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()


class TopologyRequirement(Struct, frozen=True, rename="camel"):
    """One of ``matchLabelExpressions`` of a topology."""

    key: str
    values: tuple[str, ...] = ()


class TopologyTerm(Struct, frozen=True, rename="camel"):
    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta
    volume_binding_mode: str = "Immediate"
    provisioner: str = ""
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class NodePoolSpec(Struct, frozen=True):
    limits: dict[str, Quantity] | None = None


class NodePoolStatus(Struct, frozen=True):
    resources: dict[str, Quantity] | None = None  # of its nodes


class NodePool(Struct, frozen=True):
    """Karpenter's, as far as how large it may grow."""

    metadata: ObjectMeta
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()
