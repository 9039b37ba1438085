"""In-place updates: what the kubelet says about a resize, and what to do next.

A resize that hangs or failed ends in an eviction (InPlaceOrRecreate), or is waited for and
revised when something else is wanted (InPlace). Times are counted from when the updater
first saw the resize, in whatever state, by pod UID.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from podscale.core.pod_state import PodPhase
from podscale.core.quantity import Quantity
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.pod import TemplateContainer
from podscale.kube.objects.vpa import Resources, Vpa, has_startup_boost, update_mode
from vpa.admission.patches.boost import expired, is_boosted
from vpa.admission.patches.patch import resize_patch
from vpa.admission.patches.resources import ContainerResources, ResourcesUnavailable, patched
from vpa.capping import LimitRanges
from vpa.model.amounts import EMPTY, RESOURCES, of
from vpa.updater.decide.disruption_budget import DisruptionBudget, PodGroup
from vpa.updater.decide.priority import UpdaterSettings

ResizeState = Literal[
    "ResizeNone",
    "ResizeDeferred",
    "ResizeInfeasible",
    "ResizeInProgress",
    "ResizeError",
    "ResizeUnknown",
]
QosClass = Literal["BestEffort", "Burstable", "Guaranteed"]
InPlace = Literal[
    "InPlaceApproved",
    "InPlaceDeferred",
    "InPlaceEvict",
    "InPlaceInfeasible",
    "InPlaceInfeasibleCached",
]

Action = Literal["evict", "resize", "none"]

DEFERRED_LIMIT_S = 300.0
IN_PROGRESS_LIMIT_S = 3600.0


class UpdateMethod(Struct, frozen=True):
    """What to do with one pod now."""

    action: Action
    record_infeasible: bool = False  # remember the size as one that the node cannot give


def updates(mode: str, *, in_place_gate: bool) -> bool:
    """Return whether the mode changes running pods at all."""
    if mode == "InPlace":
        return in_place_gate
    return mode in ("Recreate", "Auto", "InPlaceOrRecreate")


def wants_in_place(mode: str, *, in_place_gate: bool) -> bool:
    """Return whether the mode resizes before it evicts, if it evicts at all."""
    return mode == "InPlaceOrRecreate" or (mode == "InPlace" and in_place_gate)


def state_of(pod: PodView) -> ResizeState:
    """Return the state that the pod's conditions tell; a pending resize comes first."""
    found = {entry.type: entry for entry in pod.resize if entry.status == "True"}
    pending = found.get("PodResizePending")
    if pending is not None:
        reasons: dict[str, ResizeState] = {
            "Deferred": "ResizeDeferred",
            "Infeasible": "ResizeInfeasible",
        }
        return reasons.get(pending.reason, "ResizeUnknown")
    progress = found.get("PodResizeInProgress")
    if progress is None:
        return "ResizeNone"
    if not progress.reason and not progress.message:
        return "ResizeInProgress"
    return "ResizeError" if progress.reason == "Error" else "ResizeUnknown"


def message_of(pod: PodView) -> str:
    """Return what the kubelet says about the resize."""
    messages = {entry.type: entry.message for entry in reversed(pod.resize)}
    return messages.get("PodResizePending") or messages.get("PodResizeInProgress") or ""


def limit_s(state: ResizeState) -> float:
    """Return how long a resize may stay in a state before InPlaceOrRecreate evicts."""
    limits = {"ResizeDeferred": DEFERRED_LIMIT_S, "ResizeInProgress": IN_PROGRESS_LIMIT_S}
    return limits.get(state, 0.0)


def is_overdue(state: ResizeState, since_s: float) -> bool:
    """Return whether the resize is given up; failed and unknown ones are at once."""
    limit = limit_s(state)
    return since_s > limit if limit else state != "ResizeNone"


def is_non_disruptive(pod: PodView) -> bool:
    """Return whether no container demands a restart for any resource."""
    return not any(
        policy == "RestartContainer"
        for container in pod.template.containers
        for policy in container.resize_policy.values()
    )


def has_room(
    pod: PodView, budget: DisruptionBudget, group: PodGroup, settings: UpdaterSettings
) -> bool:
    """Return whether one more resize may begin; a flag lets those without restart pass."""
    is_free = settings.skip_disruption_budget and is_non_disruptive(pod)
    return is_free or budget.allows(group)


def can_evict(pod: PodView, budget: DisruptionBudget, since_s: float) -> bool:
    """Return whether the pod may be evicted now; ``since_s`` seconds a resize was seen."""
    group = budget.group(pod)
    if not isinstance(group, PodGroup) or group.owner in budget.ended:
        return False
    if pod.phase == PodPhase.PENDING:
        return True
    if group.eviction_forbidden:
        return False
    state = state_of(pod)
    if state != "ResizeNone" and not is_overdue(state, since_s):
        return False
    return budget.allows(group)


def can_update_in_place(
    pod: PodView,
    vpa: Vpa,
    budget: DisruptionBudget,
    settings: UpdaterSettings,
    *,
    has_recommendation: bool,
    was_tried: bool,
    since_s: float,
) -> InPlace:
    """Return what a pod that is due for an update in place gets in this loop.

    ``was_tried``: mode InPlace has this size on record as refused by the node.
    """
    in_place_only = update_mode(vpa) == "InPlace"
    group = budget.group(pod)
    if (
        (in_place_only and not settings.in_place)
        or not isinstance(group, PodGroup)
        or pod.phase == PodPhase.PENDING
        or not has_recommendation
    ):
        return "InPlaceDeferred"
    if in_place_only and was_tried:
        return "InPlaceInfeasibleCached"
    state = state_of(pod)
    if state == "ResizeNone":
        has = has_room(pod, budget, group, settings)
        return "InPlaceApproved" if has else "InPlaceDeferred"
    if in_place_only:
        return "InPlaceInfeasible" if state == "ResizeInfeasible" else "InPlaceDeferred"
    gives_up = is_overdue(state, since_s) and budget.allows(group)
    return "InPlaceEvict" if gives_up else "InPlaceDeferred"


def can_unboost(
    pod: PodView, budget: DisruptionBudget, over: Sequence[str], settings: UpdaterSettings
) -> bool:
    """Return whether the boosts that are over may be taken back by a resize now."""
    group = budget.group(pod)
    return (
        settings.cpu_startup_boost
        and bool(over)
        and pod.phase != PodPhase.PENDING
        and isinstance(group, PodGroup)
        and state_of(pod) == "ResizeNone"
        and budget.allows(group)
    )


def left_its_mark(pod: PodView, vpa: Vpa, ranges: LimitRanges, now: float) -> bool:
    """Return whether the spec asks for what a boost that is over leaves: the annotation is all
    that is left of it, whether or not the kubelet can give what is asked for.
    """
    patch = resize_patch(pod, vpa, ranges, now)
    has_ended = bool(expired(pod, vpa, now)) and pod.phase != PodPhase.PENDING
    return has_ended and not isinstance(patch, ResourcesUnavailable) and not patch.resize


def awaits_unboost(pod: PodView, vpa: Vpa, over: Sequence[str], settings: UpdaterSettings) -> bool:
    """Return whether the pod is left alone until its boost is taken back.

    Without a boost in the VPA it would wait for nothing until it is Ready, at last for ever.
    """
    boosted = settings.cpu_startup_boost and is_boosted(pod)
    return boosted and (bool(over) or has_startup_boost(vpa))


def after_refused_resize(mode: str, *, may_evict: bool, node_capacity: bool) -> UpdateMethod:
    """Return what follows a resize that the API server refused.

    ``node_capacity``: a 403 whose cause says that no room on the node will ever do.
    """
    if mode == "InPlace":
        return UpdateMethod("none", record_infeasible=node_capacity)
    return UpdateMethod("evict" if may_evict else "none")


class ResizeRefusal(Struct, frozen=True):
    """What the API server or the kubelet would refuse, known before a resize is sent.

    QoS class and what the node can give; what is refused for any pod is in
    ``vpa.admission.patches.resources``. Facts of KEP-1287; ``facts`` are shown by the explanation.
    """

    reason: str
    message: str
    facts: Mapping[str, str | int | float]


def qos_class(containers: Sequence[Resources | TemplateContainer]) -> QosClass:
    """Return the class that Kubernetes computes from CPU and memory of all containers."""
    if not any(
        of(listed, name).nano
        for resources in containers
        for listed in (resources.requests, resources.limits)
        for name in RESOURCES
    ):
        return "BestEffort"
    for resources in containers:
        for name in RESOURCES:
            limit = of(resources.limits, name)
            # An absent request is the limit, by the API server's defaulting.
            request = (resources.requests or EMPTY).get(name, limit)
            if not limit.nano or request.nano != limit.nano:
                return "Burstable"
    return "Guaranteed"


def refusal(
    pod: PodView, wanted: tuple[ContainerResources, ...], allocatable: Mapping[str, Quantity] | None
) -> ResizeRefusal | None:
    """Return the first thing that would refuse the resize; ``allocatable`` of the pod's
    node, None if it is not known.
    """
    before, init = pod.template.containers, pod.template.init_containers
    after = [patched(c, w) for c, w in zip(before, wanted, strict=True)]
    was, becomes = qos_class([*before, *init]), qos_class([*after, *init])
    if was != becomes:
        text = f"the pod is {was} and would become {becomes}, which a resize may not do"
        return ResizeRefusal("QosClassWouldChange", text, {"from": was, "to": becomes})
    for name in RESOURCES:
        room = (allocatable or EMPTY).get(name)
        total = sum(of(resources.requests, name).nano for resources in after)
        if room is not None and total > room.nano:
            text = f"{name} of {Quantity(total, room.format)} is more than the node has, {room}"
            facts = {"resource": name, "allocatable": str(room), "node": pod.node}
            return ResizeRefusal("ResizeInfeasible", text, facts)
    return None
