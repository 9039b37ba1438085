"""Pods, nodes and claims, as far as the scheduler's filters read them, which of them match, and
what makes pods.

Pure. Follows k8s.io/component-helpers/scheduling/corev1 and ``pkg/scheduler/framework``,
Kubernetes 1.37.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import Struct

from podscale.kube.client.wire import LabelSelector, LabelSelectorRequirement, ObjectMeta, Quantity
from podscale.kube.objects.cluster import Node, Taint
from podscale.kube.objects.pod import (
    Container,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)

_INTEGER = re.compile("[0-9]+")  # a sign would be no value of a label
_ANY_HOST = ("", "0.0.0.0")  # noqa: S104 - what a pod asks for, not what we bind


def matches_labels(selector: LabelSelector | None, labels: Mapping[str, str] | None) -> bool:
    """Return whether a label selector matches; none matches nothing."""
    if selector is None:
        return False
    return selector.parsed().matches(labels or {})


class NodeSelectorTerm(Struct, frozen=True, rename="camel"):
    """Requirements that all have to hold."""

    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
    match_fields: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelector(Struct, frozen=True, rename="camel"):
    """Terms of which one has to hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()

    def matches(self, node: Node) -> bool:
        """Return whether one of the terms holds; an empty one never does."""
        labels, fields = node.metadata.labels or {}, {"metadata.name": node.metadata.name}
        return any(
            (term.match_expressions or term.match_fields)
            and all(_holds(each, labels) for each in term.match_expressions)
            and all(_holds(each, fields) for each in term.match_fields)
            for term in self.node_selector_terms
        )


class NodeAffinity(Struct, frozen=True, rename="camel"):
    """``affinity.nodeAffinity``: what is required."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class PodAffinityTerm(Struct, frozen=True, rename="camel"):
    """Pods near which, or away from which, a pod has to be."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None

    def concerns(
        self, owner: ObjectMeta, pod: ObjectMeta, namespaces: Mapping[str, Mapping[str, str]]
    ) -> bool:
        """Return whether ``pod`` is one of those that this term of ``owner`` is about;
        ``namespaces`` are the labels of each."""
        own = () if self.namespaces or self.namespace_selector else (owner.namespace,)
        is_inside = pod.namespace in (*own, *self.namespaces) or (
            self.namespace_selector is not None
            and matches_labels(self.namespace_selector, namespaces.get(pod.namespace, {}))
        )
        return is_inside and matches_labels(self.label_selector, pod.labels)


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

    def tolerates(self, taint: Taint) -> bool:
        """Return whether the taint does not keep away what has the toleration."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (
            self.operator in ("", "Equal") and self.value == taint.value
        )


class SpreadConstraint(Struct, frozen=True, rename="camel"):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int = 1
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()

    def is_with(self, own: Mapping[str, str], other: Mapping[str, str]) -> bool:
        """Return whether a pod of the ``other`` labels is one of those that a pod of ``own`` ones
        is to be spread with."""
        same = all(other.get(key) == own[key] for key in self.match_label_keys if key in own)
        return same and matches_labels(self.label_selector, other)

    def is_with_nobody(self, own: Mapping[str, str]) -> bool:
        """Return whether no pod that is there counts: upstream takes an empty selector for none
        then, while the pod itself matches it."""
        selector = self.label_selector
        is_empty = selector is not None and not (
            selector.match_labels or selector.match_expressions
        )
        return is_empty and own.keys().isdisjoint(self.match_label_keys)


class ContainerPort(Struct, frozen=True, rename="camel"):
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"

    def conflicts(self, other: "ContainerPort") -> bool:
        """Return whether both cannot be had on one node."""
        if (self.host_port, self.protocol) != (other.host_port, other.protocol):
            return False
        return self.host_ip in (other.host_ip, *_ANY_HOST) or other.host_ip in _ANY_HOST


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

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels or {}

    @property
    def required_nodes(self) -> NodeSelector | None:
        """What its affinity requires of nodes."""
        return self.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution

    def wants(self, node: Node) -> bool:
        """Return whether its node selector and required affinity hold for the node."""
        labels, required = node.metadata.labels or {}, self.required_nodes
        by_selector = all(labels.get(k) == v for k, v in (self.spec.node_selector or {}).items())
        return by_selector and (required is None or required.matches(node))

    def untolerated(self, taints: Iterable[Taint]) -> Taint | None:
        """Return the first taint that keeps the pod away."""
        for taint in taints:
            if taint.effect != "PreferNoSchedule" and not any(
                each.tolerates(taint) for each in self.spec.tolerations
            ):
                return taint
        return None

    def claim_names(self) -> Iterator[tuple[str, bool]]:
        """Yield the claims that the pod names, and whether each is made for the pod."""
        for volume in self.spec.volumes:
            if volume.persistent_volume_claim is not None:
                yield volume.persistent_volume_claim.claim_name, False
            elif volume.ephemeral is not None:
                yield f"{self.metadata.name}-{volume.name}", True

    def host_ports(self) -> Iterator[ContainerPort]:
        """Yield the ports that the pod takes of its node."""
        running = (each for each in self.spec.init_containers if each.restart_policy == "Always")
        for container in (*running, *self.spec.containers):
            yield from (port for port in container.ports if port.host_port > 0)


class VolumeClaimSpec(Struct, frozen=True, rename="camel"):
    volume_name: str = ""
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    selector: LabelSelector | None = None
    volume_mode: str = "Filesystem"


class VolumePhase(Struct, frozen=True):
    """``status`` of a claim or a volume."""

    phase: str = ""


class VolumeClaim(Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: VolumeClaimSpec = VolumeClaimSpec()
    status: VolumePhase = VolumePhase()


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


class PersistentVolume(Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: VolumeSpec = VolumeSpec()
    status: VolumePhase = VolumePhase()


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


class PodControllerSpec(Struct, frozen=True):
    replicas: int = 1


class PodController(Struct, frozen=True):
    """What makes a pod anew and says how many there should be, or holds headroom."""

    metadata: ObjectMeta
    spec: PodControllerSpec = PodControllerSpec()


class NodePoolSpec(Struct, frozen=True):
    limits: dict[str, Quantity] | None = None


class NodePoolStatus(Struct, frozen=True):
    resources: dict[str, Quantity] | None = None  # of its nodes


class NodePool(Struct, frozen=True):
    """Karpenter's, as far as how large it may grow."""

    metadata: ObjectMeta
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()


def _holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            if value is None or not (_is_integer(value) and _is_integer(requirement.values[0])):
                return False
            has, limit = int(value), int(requirement.values[0])
            return has > limit if operator == "Gt" else has < limit
    return False


def _is_integer(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and int(text) < 2**63
