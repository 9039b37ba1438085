"""The objects that the doctor lints, as far as it reads them. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from podscale.core.quantity import QuantityError, from_wire
from podscale.core.selectors import selector


class ObjectOwner(Struct, frozen=True):
    """One of ``ownerReferences``."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(Struct, frozen=True, rename="camel"):
    """``metadata``, as far as it matters here."""

    name: str = ""
    namespace: str = "default"
    labels: Mapping[str, str] = {}
    owner_references: Sequence[ObjectOwner] = ()


class MetricReference(Struct, frozen=True, rename="camel"):
    """``scaleTargetRef`` or ``targetRef``."""

    kind: str = ""
    name: str = ""
    api_version: str = ""


class _Target(Struct, frozen=True, rename="camel"):
    type: str = ""
    average_utilization: int | None = None


class ResourceMetricSource(Struct, frozen=True):
    """``resource`` or ``containerResource`` of a metric."""

    name: str = ""
    container: str = ""  # of a container resource
    target: _Target = _Target()


class _Identifier(Struct, frozen=True):
    name: str = ""
    selector: Mapping[str, object] | None = None


class NamedMetricSource(Struct, frozen=True, rename="camel"):
    """``pods``, ``object`` or ``external`` of a metric."""

    metric: _Identifier = _Identifier()
    described_object: MetricReference = MetricReference()

    @property
    def name(self) -> str:
        return self.metric.name

    @property
    def selector(self) -> str:
        """The selector on the metric as text; raises ``SelectorError``."""
        return str(selector.from_wire(self.metric.selector or {}))


class HpaMetric(Struct, frozen=True, rename="camel"):
    """One of ``spec.metrics``."""

    type: str = ""
    pods: NamedMetricSource | None = None
    object: NamedMetricSource | None = None
    external: NamedMetricSource | None = None
    resource: ResourceMetricSource | None = None
    container_resource: ResourceMetricSource | None = None

    @property
    def about(self) -> ResourceMetricSource | None:
        """The usage that is meant, if any."""
        return self.resource or self.container_resource

    @property
    def is_share(self) -> bool:
        """Whether it is a share of what pods request."""
        return self.about is not None and self.about.target.type == "Utilization"

    @property
    def source(self) -> NamedMetricSource | None:
        """The metric that is named, if any."""
        return self.pods or self.object or self.external


class _HpaSpec(Struct, frozen=True, rename="camel"):
    scale_target_ref: MetricReference = MetricReference()
    min_replicas: int = 1
    max_replicas: int = 0
    metrics: Sequence[HpaMetric] = ()


class HpaMeta(Meta, frozen=True, rename="camel"):
    """``metadata`` of an HPA, whose annotations are settings."""

    annotations: Mapping[str, str] | None = None


class _Condition(Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _CurrentValue(Struct, frozen=True, rename="camel"):
    average_value: str | int | float | None = None


class _CurrentUsage(Struct, frozen=True):
    name: str = ""
    container: str = ""
    current: _CurrentValue = _CurrentValue()


class _CurrentMetric(Struct, frozen=True, rename="camel"):
    resource: _CurrentUsage | None = None
    container_resource: _CurrentUsage | None = None


class _HpaStatus(Struct, frozen=True, rename="camel"):
    conditions: Sequence[_Condition] | None = None
    current_metrics: Sequence[_CurrentMetric] | None = None


class Hpa(Struct, frozen=True):
    """A HorizontalPodAutoscaler, autoscaling/v2."""

    metadata: HpaMeta = HpaMeta()
    spec: _HpaSpec = _HpaSpec()
    status: _HpaStatus | None = None

    @property
    def subject(self) -> str:
        """How findings name it."""
        return f"hpa/{self.metadata.name} in {self.metadata.namespace}"

    @property
    def conditions(self) -> Mapping[str, _Condition]:
        """The conditions of its status, by type."""
        return {each.type: each for each in (self.status and self.status.conditions) or ()}

    @property
    def failure(self) -> str:
        """Since when its controller cannot decide, and why; ``""`` where it can."""
        found = self.conditions.get("ScalingActive", _Condition())
        # ScalingDisabled is of an HPA whose target somebody scaled to zero.
        if found.status == "False" and found.reason != "ScalingDisabled":
            since = f" since {found.last_transition_time}" if found.last_transition_time else ""
            return f"{found.type} is False{since}: {found.reason}: {found.message}"
        return ""

    def used_cpu(self, container: str) -> int | None:
        """Return the milli-cores that a pod or a container uses on average, as its status says."""
        for metric in (self.status and self.status.current_metrics) or ():
            used = metric.resource or metric.container_resource
            if used is not None and (used.name, used.container) == ("cpu", container):
                return milli(used.current.average_value)
        return None

    @property
    def metrics(self) -> Sequence[HpaMetric]:
        """The metrics; none written means CPU utilisation, as the API server defaults."""
        return self.spec.metrics or (
            HpaMetric(
                "Resource", resource=ResourceMetricSource("cpu", target=_Target("Utilization"))
            ),
        )


class _ContainerPolicy(Struct, frozen=True, rename="camel"):
    container_name: str = "*"
    mode: str = "Auto"
    controlled_resources: Sequence[str] | None = None


class _ResourcePolicy(Struct, frozen=True, rename="camel"):
    container_policies: Sequence[_ContainerPolicy] = ()


class _UpdatePolicy(Struct, frozen=True, rename="camel"):
    update_mode: str = "Recreate"


class _VpaSpec(Struct, frozen=True, rename="camel"):
    target_ref: MetricReference = MetricReference()
    update_policy: _UpdatePolicy | None = None
    resource_policy: _ResourcePolicy | None = None


class _ContainerRecommendation(Struct, frozen=True, rename="camel"):
    container_name: str = ""
    target: Mapping[str, str | int | float] | None = None


class _Recommendation(Struct, frozen=True, rename="camel"):
    container_recommendations: Sequence[_ContainerRecommendation] | None = None


class _VpaStatus(Struct, frozen=True):
    recommendation: _Recommendation | None = None


class LintedVpa(Struct, frozen=True):
    metadata: Meta = Meta()
    spec: _VpaSpec = _VpaSpec()
    status: _VpaStatus | None = None

    def sized_cpu(self, container: str) -> int | None:
        """Return the milli-cores that it gives a container, or all of a pod for ``""``."""
        found = self.status and self.status.recommendation
        amounts = [
            milli((each.target or {}).get("cpu"))
            for each in (found and found.container_recommendations) or ()
            if container in ("", each.container_name)
        ]
        return sum(each for each in amounts if each is not None) or None

    @property
    def changes(self) -> frozenset[str]:
        """The resources whose requests it sets."""
        if self.spec.update_policy and self.spec.update_policy.update_mode == "Off":
            return frozenset()
        policies = self.spec.resource_policy.container_policies if self.spec.resource_policy else ()
        if not policies:
            return frozenset(["cpu", "memory"])
        found: set[str] = set()
        for policy in policies:
            if policy.mode != "Off":
                controlled = policy.controlled_resources
                found.update(("cpu", "memory") if controlled is None else controlled)
        return frozenset(found)


def milli(amount: str | int | float | None) -> int | None:
    """Return an amount in milli-units; None where none is written, or it cannot be read."""
    try:
        return None if amount is None else from_wire(amount).milli
    except QuantityError:
        return None


class _Requests(Struct, frozen=True):
    requests: Mapping[str, str | int | float] = {}
    limits: Mapping[str, str | int | float] = {}


class _Container(Struct, frozen=True):
    name: str = ""
    resources: _Requests = _Requests()


class _PodSpec(Struct, frozen=True):
    containers: Sequence[_Container] = ()


class _Template(Struct, frozen=True):
    metadata: Meta = Meta()
    spec: _PodSpec = _PodSpec()


class _WorkloadSpec(Struct, frozen=True):
    selector: Mapping[str, object] | None = None
    template: _Template = _Template()


class LintedWorkload(Struct, frozen=True):
    """A Deployment, StatefulSet, or whatever has a pod template."""

    kind: str = ""
    metadata: Meta = Meta()
    spec: _WorkloadSpec = _WorkloadSpec()


class PodFacts(Struct, frozen=True):
    """A pod, as far as labels and owners go."""

    metadata: Meta = Meta()


class World(Struct, frozen=True):
    """The objects to look at; all of one cluster, or of one file."""

    hpas: Sequence[Hpa] = ()
    vpas: Sequence[LintedVpa] = ()
    workloads: Sequence[LintedWorkload] = ()
    pods: Sequence[PodFacts] = ()
    replica_sets: Sequence[PodFacts] = ()  # they stand between a pod and its Deployment


_WORKLOADS = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "DaemonSet")


def read(objects: Collection[Mapping[str, object]]) -> World:
    """Return the objects that matter; raises ``msgspec.ValidationError`` for a broken one."""
    hpas, vpas, pods, workloads, sets = [], [], [], [], []
    for each in objects:
        kind = each.get("kind")
        if kind == "HorizontalPodAutoscaler":
            hpas.append(msgspec.convert(each, Hpa))
        elif kind == "VerticalPodAutoscaler":
            vpas.append(msgspec.convert(each, LintedVpa))
        elif kind == "Pod":
            pods.append(msgspec.convert(each, PodFacts))
        elif kind in _WORKLOADS:
            workloads.append(msgspec.convert(each, LintedWorkload))
        if kind == "ReplicaSet":
            sets.append(msgspec.convert(each, PodFacts))
    return World(hpas, vpas, workloads, pods, sets)


def joined(worlds: Iterable[World]) -> World:
    """Return the objects of all, in their order."""
    every = list(worlds)
    return World(*(
        [each for world in every for each in getattr(world, field)]
        for field in World.__struct_fields__
    ))  # fmt: skip
