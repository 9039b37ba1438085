"""Which pods are due for an update, and in which order.

A pod is due when a request lies outside the recommended bounds, when a container just ran
out of memory soon after its start, or when the pod is old enough and far enough off. Follows
``update_priority_calculator.go`` of upstream's updater.
"""

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from podscale.core.quantity import Quantity
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.pod import Amounts
from podscale.kube.objects.vpa import (
    ContainerRecommendation,
    EvictionRequirement,
    ResourceList,
    Vpa,
    VpaRecommendation,
    is_off,
    update_mode,
)
from vpa.admission.patches.patch import observed_containers
from vpa.model.amounts import EMPTY, RESOURCES, lower, of


class UpdaterSettings(Struct, frozen=True):
    """Flags of the updater; times in seconds."""

    update_threshold: float = 0.1
    lifetime_s: float = 12 * 3600.0
    evict_after_oom_s: float = 600.0
    min_replicas: int = 2
    eviction_tolerance: float = 0.5
    skip_disruption_budget: bool = False
    in_place: bool = False  # feature gates
    per_vpa_config: bool = False
    cpu_startup_boost: bool = False


class OutsideBound(Struct, frozen=True):
    """A request outside its bounds, or one that is missing (``request`` None)."""

    container: str
    resource: str
    request: Quantity | None
    lower: Quantity | None
    upper: Quantity | None


class Priority(Struct, frozen=True):
    """How urgently a pod wants its update."""

    outside: OutsideBound | None = None  # the first of any container
    scale_up: bool = False  # some container wants more
    resource_diff: float = 0.0  # sum over resources of |requested - wanted| / requested

    @property
    def order(self) -> tuple[bool, float]:
        """Return the sort key, ascending urgency: growing pods, then larger differences."""
        return (self.scale_up, self.resource_diff)


class QuickOom(Struct, frozen=True):
    """A container that was killed shortly after its start."""

    container: str
    ran_s: float
    threshold_s: float


class Due(Struct, frozen=True):
    """Whether a pod is due and why; ``reason`` is a token of an explanation."""

    is_due: bool
    reason: str
    priority: Priority
    outside: OutsideBound | None = None
    oom: QuickOom | None = None
    age_s: float | None = None


def priority(pod: PodView, recommendation: VpaRecommendation | None) -> Priority:
    """Return the pod's priority against its processed recommendation.

    Memory counts in milli-bytes beside milli-cores and a missing request as one of them,
    so that a container without memory request comes before every other: upstream's
    arithmetic, wanted by the conformance cases (D20).
    """
    requested: dict[str, int] = {}
    wanted: dict[str, int] = {}
    outside: OutsideBound | None = None
    scale_up = False
    for container, entry, requests in _compared(pod, recommendation):
        for name, target in (entry.target or EMPTY).items():
            wanted[name] = wanted.get(name, 0) + target.milli
            request = requests.get(name)
            outside = outside or _outside(container, name, request, entry)
            if request is None:
                scale_up = True
                continue
            requested[name] = requested.get(name, 0) + request.milli
            scale_up |= target.milli > request.milli
    diff = 0.0
    for name, total in wanted.items():
        base = max(requested.get(name, 0), 1)
        diff += abs(base - total) / base
    return Priority(outside, scale_up, diff)


def quick_oom(pod: PodView, vpa: Vpa, settings: UpdaterSettings, now: float) -> QuickOom | None:
    """Return the first container that was killed within the threshold of its start, and
    not longer ago than that: lastState stays as it is for as long as the pod lives.
    """
    threshold = settings.evict_after_oom_s
    policy = vpa.spec.update_policy
    if settings.per_vpa_config and policy is not None:
        threshold = float(policy.evict_after_oom_seconds or threshold)
    observed = observed_containers(pod)
    for state in pod.states:
        run = state.last_terminated
        if state.is_init or run is None or (observed is not None and state.name not in observed):
            continue
        if is_off(vpa.spec.resource_policy, state.name) or run.reason != "OOMKilled":
            continue
        if run.started_at is None or run.finished_at is None:
            continue
        ran = run.finished_at - run.started_at
        if ran < threshold and now - run.finished_at < threshold:
            return QuickOom(state.name, ran, threshold)
    return None


def due(
    pod: PodView,
    vpa: Vpa,
    recommendation: VpaRecommendation | None,
    settings: UpdaterSettings,
    now: float,
) -> Due:
    """Return whether the pod passes the update filter."""
    rank = priority(pod, recommendation)
    oom = quick_oom(pod, vpa, settings, now)
    age = None if math.isnan(pod.started) else now - pod.started
    if rank.outside is not None:
        if oom is not None and rank.resource_diff == 0:
            return Due(False, "NothingToChange", rank, oom=oom, age_s=age)
        return Due(True, "OutsideBounds", rank, rank.outside, oom, age)
    if oom is not None:
        # A new pod of the same size would be killed as well.
        is_due = rank.resource_diff != 0
        return Due(is_due, "QuickOom" if is_due else "NothingToChange", rank, None, oom, age)
    if age is None or age < settings.lifetime_s:
        return Due(False, "WithinBoundsYoung", rank, age_s=age)
    if rank.resource_diff < settings.update_threshold:
        return Due(False, "WithinUpdateThreshold", rank, age_s=age)
    return Due(True, "DriftedPastThreshold", rank, age_s=age)


def was_tried(
    vpa: Vpa, recommendation: VpaRecommendation | None, refused: VpaRecommendation | None
) -> bool:
    """Return whether mode InPlace has tried this and the node could not give it.

    ``refused`` is what was recommended to the pod then; less of any resource is worth a try.
    """
    is_recorded = update_mode(vpa) == "InPlace" and refused is not None
    return is_recorded and not has_lower(refused, recommendation)


def has_lower(before: VpaRecommendation | None, after: VpaRecommendation | None) -> bool:
    """Return whether ``after`` lowers any target that ``before`` has."""
    if before is None or after is None:
        return False
    for entry in after.container_recommendations or ():
        old = before.of(entry.container_name)
        if old is not None and lower(old.target or EMPTY, entry.target or EMPTY):
            return True
    return False


def _compared(
    pod: PodView, recommendation: VpaRecommendation | None
) -> list[tuple[str, ContainerRecommendation, Mapping[str, Quantity]]]:
    observed = observed_containers(pod)
    compared: list[tuple[str, ContainerRecommendation, Mapping[str, Quantity]]] = []
    for container in pod.template.containers:
        if observed is not None and container.name not in observed:
            continue
        entry = recommendation.of(container.name) if recommendation is not None else None
        if entry is not None:
            requests, _ = pod.requests_and_limits(container.name)
            compared.append((container.name, entry, requests or EMPTY))
    return compared


def _outside(
    container: str, resource: str, request: Quantity | None, entry: ContainerRecommendation
) -> OutsideBound | None:
    least = (entry.lower_bound or EMPTY).get(resource)
    most = (entry.upper_bound or EMPTY).get(resource)
    if (
        request is not None
        and (least is None or request.nano >= least.nano)
        and (most is None or request.nano <= most.nano)
    ):
        return None
    return OutsideBound(container, resource, request, least, most)


def unmet(
    pod: PodView,
    recommendation: VpaRecommendation | None,
    requirements: Sequence[EvictionRequirement] | None,
) -> EvictionRequirement | None:
    """Return a requirement that keeps the pod from being disturbed, None if it may be. It gates
    in-place updates as well as evictions, as upstream does.

    One container is enough that lacks a request or satisfies every requirement, each by
    any of its resources. No recommendation means that this is not what holds it up.
    """
    if not requirements or recommendation is None:
        return None
    refused: EvictionRequirement | None = None
    for container in pod.template.containers:
        entry = recommendation.of(container.name)
        if entry is None:
            continue
        requests, _ = pod.requests_and_limits(container.name)
        present = requests or EMPTY
        if any(resource not in present for resource in RESOURCES):
            return None
        failing = _first_failing(present, entry.target or EMPTY, requirements)
        if failing is None:
            return None
        refused = refused or failing
    return refused or requirements[0]


def _first_failing(
    requests: Amounts, target: ResourceList, requirements: Sequence[EvictionRequirement]
) -> EvictionRequirement | None:
    for requirement in requirements:
        if not any(
            _moves(of(requests, resource), of(target, resource), requirement.change_requirement)
            for resource in requirement.resources
        ):
            return requirement
    return None


def _moves(request: Quantity, target: Quantity, direction: str) -> bool:
    if direction == "TargetHigherThanRequests":
        return target.milli > request.milli
    return direction == "TargetLowerThanRequests" and target.milli < request.milli
