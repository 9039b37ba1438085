"""HorizontalPodAutoscaler v2 as it stands on the wire, only the fields that are read.

Every field is optional: hand-written objects come here too, and what must be there is
``hpa.decide.api.validation``'s business. The schema of ``autoscaling.podscale.io`` is the same.
"""

from collections.abc import Mapping

from msgspec import Struct

from hpa.decide.api.spec import MetricObject, Policy

Amount = str | int | float  # a quantity

# The field of each type of metric, in the order in which the API server looks at them.
METRIC_FIELDS: Mapping[str, str] = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
SOURCES = {**METRIC_FIELDS, "ContainerResource": "container_resource"}  # as attributes


class WireRequirement(Struct, frozen=True, gc=False):
    """LabelSelectorRequirement."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class WireLabelSelector(Struct, frozen=True, gc=False, rename="camel"):
    """The object form of a label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[WireRequirement, ...] | None = None


class Identifier(Struct, frozen=True, gc=False):
    """MetricIdentifier."""

    name: str = ""
    selector: WireLabelSelector | None = None


class WireTarget(Struct, frozen=True, gc=False, rename="camel"):
    """MetricTarget."""

    type: str = ""
    value: Amount | None = None
    average_value: Amount | None = None
    average_utilization: int | None = None


class WireSource(Struct, frozen=True, gc=False, rename="camel"):
    """One metric source of any type; which fields count depends on the type."""

    name: str = ""  # of the resource
    container: str = ""
    metric: Identifier = Identifier()
    described_object: MetricObject | None = None
    target: WireTarget = WireTarget()


class WireMetric(Struct, frozen=True, gc=False, rename="camel"):
    """MetricSpec."""

    type: str = ""
    resource: WireSource | None = None
    container_resource: WireSource | None = None
    pods: WireSource | None = None
    object: WireSource | None = None
    external: WireSource | None = None


class ScalingRules(Struct, frozen=True, gc=False, rename="camel"):
    """HPAScalingRules."""

    stabilization_window_seconds: int | None = None
    select_policy: str | None = None
    policies: tuple[Policy, ...] | None = None
    tolerance: Amount | None = None


class ScalingBehavior(Struct, frozen=True, gc=False, rename="camel"):
    """HorizontalPodAutoscalerBehavior."""

    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None


class Spec(Struct, frozen=True, gc=False, rename="camel"):
    """HorizontalPodAutoscalerSpec."""

    scale_target_ref: MetricObject = MetricObject()
    min_replicas: int | None = None
    max_replicas: int = 0
    metrics: tuple[WireMetric, ...] | None = None
    behavior: ScalingBehavior | None = None


class WireCondition(Struct, frozen=True, gc=False, rename="camel"):
    """HorizontalPodAutoscalerCondition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class Current(Struct, frozen=True, gc=False, rename="camel"):
    """MetricValueStatus."""

    value: Amount | None = None
    average_value: Amount | None = None
    average_utilization: int | None = None


class SourceStatus(Struct, frozen=True, gc=False, rename="camel"):
    """One metric status of any type."""

    name: str = ""
    container: str = ""
    metric: Identifier = Identifier()
    described_object: MetricObject | None = None
    current: Current = Current()


class CurrentMetric(Struct, frozen=True, gc=False, rename="camel"):
    """MetricStatus."""

    type: str = ""
    resource: SourceStatus | None = None
    container_resource: SourceStatus | None = None
    pods: SourceStatus | None = None
    object: SourceStatus | None = None
    external: SourceStatus | None = None


class WireStatus(Struct, frozen=True, gc=False, rename="camel"):
    """HorizontalPodAutoscalerStatus."""

    current_replicas: int = 0
    desired_replicas: int = 0
    last_scale_time: str | None = None
    current_metrics: tuple[CurrentMetric, ...] | None = None
    conditions: tuple[WireCondition, ...] | None = None
    observed_generation: int | None = None


class WireMetadata(Struct, frozen=True, gc=False, rename="camel"):
    """What is read of ObjectMeta."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    annotations: dict[str, str] | None = None


class WireAutoscaler(Struct, frozen=True, gc=False, rename="camel"):
    """One HorizontalPodAutoscaler."""

    api_version: str = "autoscaling/v2"
    kind: str = "HorizontalPodAutoscaler"
    metadata: WireMetadata = WireMetadata()
    spec: Spec = Spec()
    status: WireStatus = WireStatus()
