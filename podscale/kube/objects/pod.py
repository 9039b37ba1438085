"""Pod and what of it the HPA, the VPA and the adapter read."""

from collections.abc import Mapping

from msgspec import Struct

from podscale.core.quantity import Quantity as Amount
from podscale.kube.client.wire import ObjectMeta, Quantity, Time


class ResourceRequirements(Struct, frozen=True, gc=False, rename="camel"):
    """``resources`` of a container or of a pod."""

    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class ResizePolicy(Struct, frozen=True, gc=False, rename="camel"):
    """What a resize of one resource does to the container."""

    resource_name: str
    restart_policy: str = "NotRequired"


class Container(Struct, frozen=True, gc=False, rename="camel"):
    """One container of a pod's spec."""

    name: str
    resources: ResourceRequirements = ResourceRequirements()
    resize_policy: tuple[ResizePolicy, ...] = ()
    restart_policy: str = ""  # "Always" makes an init container a sidecar


class PodSpec(Struct, frozen=True, gc=False, rename="camel"):
    """The part of a pod's spec that its template decides, and the node."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None  # pod-level
    overhead: dict[str, Quantity] | None = None
    node_name: str = ""
    priority: int = 0


class Terminated(Struct, frozen=True, gc=False, rename="camel"):
    """How a container ended."""

    reason: str = ""
    started_at: Time | None = None
    finished_at: Time | None = None


class Running(Struct, frozen=True, gc=False):
    """That a container runs. Since when is left out: it would make every pod's state unique."""


class Waiting(Struct, frozen=True, gc=False, rename="camel"):
    """Why a container does not run."""

    reason: str = ""


class State(Struct, frozen=True, gc=False, rename="camel"):
    running: Running | None = None
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True, gc=False, rename="camel"):
    name: str
    restart_count: int = 0
    state: State = State()
    last_state: State = State()
    resources: ResourceRequirements | None = None


class PodCondition(Struct, frozen=True, gc=False, rename="camel"):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None


class PodStatus(Struct, frozen=True, gc=False, rename="camel"):
    """The part of a pod's status that we read."""

    phase: str = ""
    reason: str = ""
    conditions: tuple[PodCondition, ...] = ()
    start_time: Time | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Struct, frozen=True, gc=False, rename="camel"):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


Amounts = Mapping[str, Amount]  # by resource


class TemplateContainer(Struct, frozen=True, gc=False):
    """One container of a template, amounts in milli-units (cpu) and milli-bytes (memory)."""

    name: str
    requests_milli: Mapping[str, int]
    limits_milli: Mapping[str, int] = {}
    resize_policy: Mapping[str, str] = {}  # resource → NotRequired | RestartContainer
    is_sidecar: bool = False  # an init container with restartPolicy Always
    requests: Amounts | None = None  # exact, as they are written; None: no such field
    limits: Amounts | None = None


class WirePodTemplate(Struct, frozen=True, gc=False):
    """What the pods of one workload share of their specs; interned by the pod store."""

    containers: tuple[TemplateContainer, ...] = ()
    init_containers: tuple[TemplateContainer, ...] = ()
    pod_requests_milli: Mapping[str, int] | None = None  # pod-level requests; None: no such field
    overhead_milli: Mapping[str, int] = {}
    priority: int = 0
    pod_requests: Amounts | None = None
    pod_limits: Amounts | None = None

    @property
    def running(self) -> tuple[TemplateContainer, ...]:
        """The containers that run beside each other, the sidecars last."""
        return (*self.containers, *(each for each in self.init_containers if each.is_sidecar))


class ContainerState(Struct, frozen=True):
    """What a container's status says, without what changes at every start."""

    name: str
    is_init: bool
    restart_count: int
    phase: str  # "running" | "waiting" | "terminated" | ""
    reason: str  # of waiting or terminated
    terminated: Terminated | None  # state.terminated
    last_terminated: Terminated | None  # lastState.terminated
    # resources of the status; None: the status does not say
    requests_milli: Mapping[str, int] | None = None
    limits_milli: Mapping[str, int] | None = None
    requests: Amounts | None = None
    limits: Amounts | None = None
