"""Objects of the cluster around the workloads: nodes, budgets, ConfigMaps, Leases, APIServices."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from podscale.core.selectors.selector import SelectorError
from podscale.kube.client.wire import Bounded, LabelSelector, ObjectMeta, Quantity, Time


class ServiceName(Struct, frozen=True):
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ApiServiceSpec(Struct, frozen=True):
    """Who answers for the group and version, and by which CA he is known."""

    service: ServiceName | None = None  # None: the API server itself
    ca_bundle: str = msgspec.field(default="", name="caBundle")  # base64 of PEM
    is_insecure: bool = msgspec.field(default=False, name="insecureSkipTLSVerify")


class ApiServiceCondition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    message: str = ""


class ApiServiceStatus(Struct, frozen=True):
    conditions: tuple[ApiServiceCondition, ...] = ()


class ApiService(Struct, frozen=True):
    """An APIService, named ``version.group``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ApiServiceSpec = ApiServiceSpec()
    status: ApiServiceStatus = ApiServiceStatus()


class Taint(Struct, frozen=True, gc=False, rename="camel"):
    key: str
    effect: str
    value: str = ""


class NodePodPreemptionPolicy(Struct, frozen=True, gc=False, rename="camel"):
    disable_resize_preemption: tuple[str, ...] = ()  # by whom


class NodeSpec(Struct, frozen=True, gc=False, rename="camel"):
    """``spec``, as far as whether pods may come."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    pod_preemption_policy: NodePodPreemptionPolicy | None = None


class NodeCondition(Struct, frozen=True, gc=False, rename="camel"):
    """One of ``status.conditions``, without its heartbeat."""

    type: str
    status: str


class NodeStatus(Struct, frozen=True, gc=False, rename="camel"):
    allocatable: dict[str, Quantity] | None = None
    capacity: dict[str, Quantity] | None = None
    conditions: tuple[NodeCondition, ...] = ()


class Node(Struct, frozen=True, gc=False, rename="camel"):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PdbSpec(Struct, frozen=True, gc=False, rename="camel"):
    """``spec``, as far as which pods it is for, and how many are to stay."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None


class PdbStatus(Struct, frozen=True, gc=False, rename="camel"):
    disruptions_allowed: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(Bounded, frozen=True, gc=False, rename="camel"):
    metadata: ObjectMeta
    spec: PdbSpec = PdbSpec()
    status: PdbStatus = PdbStatus()

    def covers(self, labels: Mapping[str, str]) -> bool:
        """Return whether it is for pods with these labels."""
        if self.spec.selector is None:
            return False  # policy/v1: no selector is no pod, an empty one is every pod
        try:
            return self.spec.selector.parsed().matches(labels)
        except SelectorError:
            return False


class ConfigMap(Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta
    binary_data: dict[str, bytes] | None = None


class LeaseSpec(Struct, frozen=True, rename="camel"):
    """``spec``; times are MicroTime on the wire, which the decoder reads as Time."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: Time | None = None
    renew_time: Time | None = None
    lease_transitions: int | None = None


class Lease(Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class ObjectReference(Struct, frozen=True, rename="camel"):
    """``involvedObject`` of an Event."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""
