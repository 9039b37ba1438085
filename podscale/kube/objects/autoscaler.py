"""HorizontalPodAutoscaler v2 as it stands on the wire, only the fields that are read.

Every field is optional: hand-written objects come here too, and what must be there is
``podscale.cli.evaluation.manifest``'s business. ``PodAutoscaler`` of ``autoscaling.podscale.io``
has the same schema. What a metric is measured by and what its status shows are one struct: they
differ in ``target`` and ``current``.
"""

from abc import ABC
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, structs

from podscale.kube.client import wire
from podscale.kube.client.wire import LabelSelector, ManagedMeta, Quantity, Time

# The field of each type of metric, in the order in which the API server looks at them.
METRIC_FIELDS: Mapping[str, str] = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}


class CrossVersionObjectReference(Struct, frozen=True, gc=False, rename="camel"):
    """``scaleTargetRef``, ``targetRef`` or ``describedObject``."""

    kind: str = ""
    name: str = ""
    api_version: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Group, kind and name: what is the same in every version."""
        return self.api_version.rpartition("/")[0], self.kind, self.name


class MetricIdentifier(Struct, frozen=True, gc=False):
    name: str = ""
    selector: LabelSelector | None = None  # None: not set, which texts tell from an empty one


class MetricValueStatus(Struct, frozen=True, gc=False, rename="camel"):
    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: int | None = None


class MetricTarget(MetricValueStatus, frozen=True, gc=False, rename="camel"):
    type: str = ""


class AutoscalerSource(Struct, frozen=True, gc=False, rename="camel"):
    """One metric source of any type, or its status; which fields count depends on the type."""

    name: str = ""  # of the resource
    container: str = ""
    metric: MetricIdentifier = MetricIdentifier()
    described_object: CrossVersionObjectReference | None = None
    target: MetricTarget = MetricTarget()
    current: MetricValueStatus = MetricValueStatus()


class AutoscalerMetric(Struct, frozen=True, gc=False, rename="camel"):
    """One of ``spec.metrics`` or of ``status.currentMetrics``."""

    type: str = ""
    resource: AutoscalerSource | None = None
    container_resource: AutoscalerSource | None = None
    pods: AutoscalerSource | None = None
    object: AutoscalerSource | None = None
    external: AutoscalerSource | None = None

    @property
    def sources(self) -> Mapping[str, AutoscalerSource]:
        """The sources that are there, by their type; of the order of ``METRIC_FIELDS``."""
        every = {
            "Object": self.object,
            "External": self.external,
            "Pods": self.pods,
            "Resource": self.resource,
            "ContainerResource": self.container_resource,
        }
        return {kind: source for kind, source in every.items() if source is not None}


class Policy(Struct, frozen=True, gc=False, rename="camel"):
    """One scaling policy of a direction."""

    type: str = ""  # Pods | Percent
    value: int = 0
    period_seconds: int = 0


class ScalingRules(Struct, frozen=True, gc=False, rename="camel"):
    """``behavior.scaleUp`` or ``scaleDown``."""

    stabilization_window_seconds: int | None = None
    select_policy: str | None = None
    policies: tuple[Policy, ...] | None = None
    tolerance: Quantity | None = None


class ScalingBehavior(Struct, frozen=True, gc=False, rename="camel"):
    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None


class AutoscalerSpec(Struct, frozen=True, gc=False, rename="camel"):
    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()
    min_replicas: int | None = None
    max_replicas: int = 0
    metrics: tuple[AutoscalerMetric, ...] | None = None
    behavior: ScalingBehavior | None = None
    sync_period_seconds: int | None = None  # KEP-6003
    unread: tuple[str, ...] = field(default=(), name="")  # paths of fields that are none of these


if TYPE_CHECKING:
    ReadSpec = AutoscalerSpec
else:

    class ReadSpec(ABC):  # noqa: B024 - so that msgspec takes an AutoscalerSpec for one
        """A spec on the wire, where a newer API server has more fields."""

        @staticmethod
        def read(value: Any) -> AutoscalerSpec:
            """Return the spec; raises ``ValueError`` for one that is too long."""
            wire.refuse_long(value)  # before it costs more
            spec = wire.convert({"spec": value}, _Whole).spec
            unread = tuple(path for path, _ in wire.unknown_fields(value, AutoscalerSpec, "spec"))
            return structs.replace(spec, unread=unread) if unread else spec

    ReadSpec.register(AutoscalerSpec)


class _Whole(Struct):
    spec: AutoscalerSpec


class AutoscalerCondition(Struct, frozen=True, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None
    observed_generation: int | None = None


class AutoscalerStatus(Struct, frozen=True, gc=False, rename="camel"):
    current_replicas: int = 0
    desired_replicas: int = 0
    last_scale_time: Time | None = None
    current_metrics: tuple[AutoscalerMetric, ...] | None = None
    conditions: tuple[AutoscalerCondition, ...] | None = None
    observed_generation: int | None = None


class Autoscaler(Struct, frozen=True, gc=False, rename="camel"):
    """One HorizontalPodAutoscaler or PodAutoscaler."""

    metadata: ManagedMeta = ManagedMeta()
    spec: ReadSpec = AutoscalerSpec()
    status: AutoscalerStatus = AutoscalerStatus()
