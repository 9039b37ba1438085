"""The scale subresource, and of workloads what their pods and their size are told by."""

from collections.abc import Mapping

from msgspec import Struct

from podscale.core.selectors import selector as selectors
from podscale.core.selectors.selector import Selector
from podscale.kube.client.wire import Bounded, LabelSelector, ObjectMeta


class ScaleSpec(Struct, frozen=True, rename="camel"):
    """Wanted replicas; an absent field is 0."""

    replicas: int = 0


class ScaleStatus(Struct, frozen=True, rename="camel"):
    """Actual replicas and the selector as text."""

    replicas: int = 0
    selector: str = ""


class WireScale(Struct, frozen=True, rename="camel"):
    """``autoscaling/v1 Scale``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()


class WorkloadSpec(Struct, frozen=True, gc=False, rename="camel"):
    """What scale and the VPA read of a workload."""

    replicas: int | None = None  # the server fills 1 in
    selector: LabelSelector | None = None


class WorkloadStatus(Struct, frozen=True, gc=False, rename="camel"):
    replicas: int = 0
    desired_number_scheduled: int = 0  # DaemonSet


class Workload(Bounded, frozen=True, gc=False, rename="camel"):
    """Deployment, ReplicaSet, StatefulSet, DaemonSet or Job."""

    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class ReplicationControllerSpec(Struct, frozen=True, gc=False, rename="camel"):
    """The one workload whose selector is a plain map."""

    replicas: int | None = None
    selector: dict[str, str] | None = None


class ReplicationController(Bounded, frozen=True, gc=False, rename="camel"):
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
    template: PodTemplate = PodTemplate()


class JobTemplate(Struct, frozen=True, gc=False, rename="camel"):
    spec: JobTemplateSpec = JobTemplateSpec()


class CronJobSpec(Struct, frozen=True, gc=False, rename="camel"):
    job_template: JobTemplate = JobTemplate()


class CronJob(Bounded, frozen=True, gc=False, rename="camel"):
    """A CronJob: its pods are found by the labels of its job template."""

    metadata: ObjectMeta
    spec: CronJobSpec = CronJobSpec()


def selector_of(written: LabelSelector | Mapping[str, str]) -> Selector:
    """Return the selector of a workload, whose form its kind decides; raises ``SelectorError``."""
    if isinstance(written, LabelSelector):
        return written.parsed()
    return selectors.from_labels(written)
