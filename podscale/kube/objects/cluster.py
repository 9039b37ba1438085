"""Objects of the cluster around the workloads: nodes, namespaces, limits, budgets."""

import msgspec
from msgspec import Struct

from podscale.kube.wire import LabelSelector, ObjectMeta, Quantity, Time


class Taint(Struct, frozen=True, gc=False, rename="camel"):
    """A taint of a node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(Struct, frozen=True, gc=False, rename="camel"):
    """``spec``."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class Condition(Struct, frozen=True, gc=False, rename="camel"):
    """A condition of any object that has the usual ones."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None


class NodeStatus(Struct, frozen=True, gc=False, rename="camel"):
    """``status``."""

    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None
    conditions: tuple[Condition, ...] = ()


class Node(Struct, frozen=True, gc=False, rename="camel"):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NamespaceStatus(Struct, frozen=True, gc=False, rename="camel"):
    """``status``."""

    phase: str = ""


class Namespace(Struct, frozen=True, gc=False, rename="camel"):
    """A namespace."""

    metadata: ObjectMeta
    status: NamespaceStatus = NamespaceStatus()


class LimitRangeItem(Struct, frozen=True, gc=False, rename="camel"):
    """One entry of a LimitRange."""

    type: str
    min: dict[str, Quantity] | None = None
    max: dict[str, Quantity] | None = None
    default: dict[str, Quantity] | None = None
    default_request: dict[str, Quantity] | None = None


class LimitRangeSpec(Struct, frozen=True, gc=False, rename="camel"):
    """``spec``."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Struct, frozen=True, gc=False, rename="camel"):
    """A LimitRange."""

    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()


class PdbSpec(Struct, frozen=True, gc=False, rename="camel"):
    """``spec``; the two amounts are a number or a percentage."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class PdbStatus(Struct, frozen=True, gc=False, rename="camel"):
    """``status``."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(Struct, frozen=True, gc=False, rename="camel"):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta
    spec: PdbSpec = PdbSpec()
    status: PdbStatus = PdbStatus()


class ConfigMap(Struct, frozen=True, rename="camel"):
    """A ConfigMap."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None
    binary_data: dict[str, bytes] | None = None


class Secret(Struct, frozen=True, rename="camel"):
    """A Secret; values are decoded from base64."""

    metadata: ObjectMeta
    data: dict[str, bytes] | None = None
    type: str = ""


class ServiceReference(Struct, frozen=True, rename="camel"):
    """The Service behind an APIService or a webhook."""

    namespace: str = ""
    name: str = ""
    port: int | None = None
    path: str | None = None


class ApiServiceSpec(Struct, frozen=True, rename="camel"):
    """``spec``; ``caBundle`` is PEM."""

    group: str = ""
    version: str = ""
    service: ServiceReference | None = None
    ca_bundle: bytes = b""
    insecure_skip_tls_verify: bool = msgspec.field(default=False, name="insecureSkipTLSVerify")
    group_priority_minimum: int = 0
    version_priority: int = 0


class ApiServiceStatus(Struct, frozen=True, rename="camel"):
    """``status``."""

    conditions: tuple[Condition, ...] = ()


class ApiService(Struct, frozen=True, rename="camel"):
    """An APIService of kube-aggregator."""

    metadata: ObjectMeta
    spec: ApiServiceSpec = ApiServiceSpec()
    status: ApiServiceStatus = ApiServiceStatus()


class LeaseSpec(Struct, frozen=True, rename="camel"):
    """``spec``; times are MicroTime on the wire, which the decoder reads as Time."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: Time | None = None
    renew_time: Time | None = None
    lease_transitions: int | None = None


class Lease(Struct, frozen=True, rename="camel"):
    """A Lease."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class ObjectReference(Struct, frozen=True, rename="camel"):
    """``involvedObject``."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class Event(Struct, frozen=True, rename="camel"):
    """``v1 Event``, as read (the recorder writes its own)."""

    metadata: ObjectMeta
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    event_time: Time | None = None
