"""The scale subresource, HorizontalPodAutoscaler v2 and the workloads' scale fields."""

from msgspec import Struct

from podscale.kube.wire import LabelSelector, ObjectMeta, Quantity, Time


class ScaleSpec(Struct, frozen=True, rename="camel"):
    """Wanted replicas; an absent field is 0."""

    replicas: int = 0


class ScaleStatus(Struct, frozen=True, rename="camel"):
    """Actual replicas and the selector as text."""

    replicas: int = 0
    selector: str = ""


class Scale(Struct, frozen=True, rename="camel"):
    """``autoscaling/v1 Scale``."""

    metadata: ObjectMeta
    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()


class CrossVersionObjectReference(Struct, frozen=True, gc=False, rename="camel"):
    """``scaleTargetRef``, ``describedObject``, ``targetRef``."""

    kind: str
    name: str
    api_version: str = ""


class MetricIdentifier(Struct, frozen=True, gc=False, rename="camel"):
    """Name and selector of a metric."""

    name: str = ""
    selector: LabelSelector | None = None


class MetricTarget(Struct, frozen=True, gc=False, rename="camel"):
    """``target`` of a metric."""

    type: str = ""
    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: int | None = None


class MetricValue(Struct, frozen=True, gc=False, rename="camel"):
    """``current`` of a metric."""

    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: int | None = None


class MetricSource(Struct, frozen=True, gc=False, rename="camel"):
    """The union of the five sources' fields, in spec and status."""

    metric: MetricIdentifier | None = None
    described_object: CrossVersionObjectReference | None = None
    name: str = ""  # Resource, ContainerResource
    container: str = ""
    target: MetricTarget | None = None
    current: MetricValue | None = None


class MetricSpec(Struct, frozen=True, gc=False, rename="camel"):
    """One metric of spec or status."""

    type: str = ""
    object: MetricSource | None = None
    pods: MetricSource | None = None
    resource: MetricSource | None = None
    container_resource: MetricSource | None = None
    external: MetricSource | None = None


class ScalingPolicy(Struct, frozen=True, gc=False, rename="camel"):
    """One scaling policy."""

    type: str = ""
    value: int = 0
    period_seconds: int = 0


class ScalingRules(Struct, frozen=True, gc=False, rename="camel"):
    """Behavior in one direction."""

    stabilization_window_seconds: int | None = None
    select_policy: str | None = None
    policies: tuple[ScalingPolicy, ...] | None = None
    tolerance: Quantity | None = None


class Behavior(Struct, frozen=True, gc=False, rename="camel"):
    """``spec.behavior``."""

    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None


class HpaSpec(Struct, frozen=True, gc=False, rename="camel"):
    """``spec``."""

    scale_target_ref: CrossVersionObjectReference
    max_replicas: int = 0
    min_replicas: int | None = None
    metrics: tuple[MetricSpec, ...] | None = None
    behavior: Behavior | None = None


class HpaCondition(Struct, frozen=True, gc=False, rename="camel"):
    """One of ``status.conditions``."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None


class HpaStatus(Struct, frozen=True, gc=False, rename="camel"):
    """``status``."""

    current_replicas: int = 0
    desired_replicas: int = 0
    last_scale_time: Time | None = None
    observed_generation: int | None = None
    current_metrics: tuple[MetricSpec, ...] | None = None
    conditions: tuple[HpaCondition, ...] | None = None


class HorizontalPodAutoscaler(Struct, frozen=True, gc=False, rename="camel"):
    """``autoscaling/v2``; PodAutoscaler of ``autoscaling.podscale.io/v1`` has the same schema."""

    metadata: ObjectMeta
    spec: HpaSpec
    status: HpaStatus = HpaStatus()


class WorkloadSpec(Struct, frozen=True, gc=False, rename="camel"):
    """What scale and the VPA read of a workload."""

    replicas: int | None = None  # the server fills 1 in
    selector: LabelSelector | None = None


class WorkloadStatus(Struct, frozen=True, gc=False, rename="camel"):
    """The counts of a workload."""

    replicas: int = 0
    ready_replicas: int = 0
    number_ready: int = 0  # DaemonSet
    current_number_scheduled: int = 0  # DaemonSet
    desired_number_scheduled: int = 0  # DaemonSet
    observed_generation: int = 0


class Workload(Struct, frozen=True, gc=False, rename="camel"):
    """Deployment, ReplicaSet, StatefulSet, DaemonSet or Job."""

    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class ReplicationControllerSpec(Struct, frozen=True, gc=False, rename="camel"):
    """The one workload whose selector is a plain map."""

    replicas: int | None = None
    selector: dict[str, str] | None = None


class ReplicationController(Struct, frozen=True, gc=False, rename="camel"):
    """A ReplicationController."""

    metadata: ObjectMeta
    spec: ReplicationControllerSpec = ReplicationControllerSpec()
    status: WorkloadStatus = WorkloadStatus()


class TemplateMeta(Struct, frozen=True, gc=False, rename="camel"):
    """Metadata of a pod template."""

    labels: dict[str, str] | None = None


class PodTemplate(Struct, frozen=True, gc=False, rename="camel"):
    """A pod template, as far as its labels."""

    metadata: TemplateMeta = TemplateMeta()


class JobTemplateSpec(Struct, frozen=True, gc=False, rename="camel"):
    """``jobTemplate.spec``."""

    template: PodTemplate = PodTemplate()


class JobTemplate(Struct, frozen=True, gc=False, rename="camel"):
    """``jobTemplate``."""

    spec: JobTemplateSpec = JobTemplateSpec()


class CronJobSpec(Struct, frozen=True, gc=False, rename="camel"):
    """``spec``."""

    job_template: JobTemplate = JobTemplate()


class CronJob(Struct, frozen=True, gc=False, rename="camel"):
    """A CronJob: its pods are found by the labels of its job template."""

    metadata: ObjectMeta
    spec: CronJobSpec = CronJobSpec()
