"""VerticalPodAutoscaler and its checkpoint, ``autoscaling.k8s.io/v1``."""

import msgspec
from msgspec import Struct

from podscale.kube.objects.scale import CrossVersionObjectReference
from podscale.kube.wire import ObjectMeta, Quantity, Time


class EvictionRequirement(Struct, frozen=True, gc=False, rename="camel"):
    """One of ``evictionRequirements``."""

    resources: tuple[str, ...] = ()
    change_requirement: str = ""


class UpdatePolicy(Struct, frozen=True, gc=False, rename="camel"):
    """``spec.updatePolicy``."""

    update_mode: str | None = None
    min_replicas: int | None = None
    eviction_requirements: tuple[EvictionRequirement, ...] | None = None
    evict_after_oom_seconds: int | None = msgspec.field(default=None, name="evictAfterOOMSeconds")


class CpuBoost(Struct, frozen=True, gc=False, rename="camel"):
    """``startupBoost.cpu``."""

    type: str = ""
    factor: int | None = None
    quantity: Quantity | None = None
    duration_seconds: int | None = None


class StartupBoost(Struct, frozen=True, gc=False, rename="camel"):
    """``startupBoost``."""

    cpu: CpuBoost | None = None


class ContainerPolicy(Struct, frozen=True, gc=False, rename="camel"):
    """One of ``containerPolicies``; ``controlledResources`` None: not set, (): none."""

    container_name: str = ""
    mode: str | None = None
    min_allowed: dict[str, Quantity] | None = None
    max_allowed: dict[str, Quantity] | None = None
    controlled_resources: tuple[str, ...] | None = None
    controlled_values: str | None = None
    oom_bump_up_ratio: Quantity | None = None
    oom_min_bump_up: Quantity | None = None
    memory_aggregation_interval_seconds: int | None = None
    memory_aggregation_interval_count: int | None = None
    startup_boost: StartupBoost | None = None


class ResourcePolicy(Struct, frozen=True, gc=False, rename="camel"):
    """``spec.resourcePolicy``."""

    container_policies: tuple[ContainerPolicy, ...] | None = None


class RecommenderSelector(Struct, frozen=True, gc=False, rename="camel"):
    """One of ``spec.recommenders``."""

    name: str = ""


class VpaSpec(Struct, frozen=True, gc=False, rename="camel"):
    """``spec``."""

    target_ref: CrossVersionObjectReference | None = None
    update_policy: UpdatePolicy | None = None
    resource_policy: ResourcePolicy | None = None
    recommenders: tuple[RecommenderSelector, ...] | None = None
    startup_boost: StartupBoost | None = None


class ContainerRecommendation(Struct, frozen=True, gc=False, rename="camel"):
    """One of ``containerRecommendations``."""

    container_name: str = ""
    target: dict[str, Quantity] | None = None
    lower_bound: dict[str, Quantity] | None = None
    upper_bound: dict[str, Quantity] | None = None
    uncapped_target: dict[str, Quantity] | None = None


class Recommendation(Struct, frozen=True, gc=False, rename="camel"):
    """``status.recommendation``."""

    container_recommendations: tuple[ContainerRecommendation, ...] | None = None


class VpaCondition(Struct, frozen=True, gc=False, rename="camel"):
    """One of ``status.conditions``."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None
    observed_generation: int | None = None


class VpaStatus(Struct, frozen=True, gc=False, rename="camel"):
    """``status``."""

    observed_generation: int | None = None
    recommendation: Recommendation | None = None
    conditions: tuple[VpaCondition, ...] | None = None


class VerticalPodAutoscaler(Struct, frozen=True, gc=False, rename="camel"):
    """A VerticalPodAutoscaler."""

    metadata: ObjectMeta
    spec: VpaSpec = VpaSpec()
    status: VpaStatus = VpaStatus()


class Histogram(Struct, frozen=True, rename="camel"):
    """A checkpointed histogram; other people's values may be anything, so check them."""

    reference_timestamp: Time | None = None
    bucket_weights: dict[str, int | float] | None = None
    total_weight: float = 0.0


class CheckpointSpec(Struct, frozen=True, rename="camel"):
    """``spec``."""

    vpa_object_name: str = ""
    container_name: str = ""


class CheckpointStatus(Struct, frozen=True, rename="camel"):
    """``status``."""

    last_update_time: Time | None = None
    version: str = ""
    cpu_histogram: Histogram = Histogram()
    memory_histogram: Histogram = Histogram()
    first_sample_start: Time | None = None
    last_sample_start: Time | None = None
    total_samples_count: int = 0


class VpaCheckpoint(Struct, frozen=True, rename="camel"):
    """A VerticalPodAutoscalerCheckpoint."""

    metadata: ObjectMeta
    spec: CheckpointSpec = CheckpointSpec()
    status: CheckpointStatus = CheckpointStatus()
