"""Which pods of a node may be evicted for room, and how many by whose budget. Pure."""

from collections.abc import Mapping

from podscale.core.disruptions import PaceError, allowance, pace_of
from podscale.kube.objects.cluster import PodDisruptionBudget
from podscale.nodes.cluster.workloads import WorkloadVpa
from podscale.nodes.decide.evictions import EvictionCandidate
from podscale.nodes.room.view import LivePods, RoomRules, RoomView, held, vpa_of
from podscale.nodes.scheduling.objects import ScheduledPod
from podscale.nodes.scheduling.volumes import claim_names


def candidate(
    pod: ScheduledPod, grower: ScheduledPod, view: RoomView, now: float
) -> EvictionCandidate | str:
    """Return the pod as a candidate for the resize of ``grower``, or why it is none."""
    meta, controller = pod.metadata, pod.metadata.controller
    annotations = meta.annotations or {}
    if controller is None:
        return "NoController"
    if controller.kind == "DaemonSet":
        return "DaemonSet"
    if pod.spec.priority > grower.spec.priority:
        return "HigherPriority"
    if (
        annotations.get("karpenter.sh/do-not-disrupt", "false") != "false"
        or annotations.get("cluster-autoscaler.kubernetes.io/safe-to-evict") == "false"
    ):
        return "DoNotDisrupt"
    vpa = vpa_of(meta, view)
    if vpa is None:
        return "NotOptedIn"
    if _is_local(pod, view):
        return "LocalStorage"
    if pod.status.phase != "Running":
        return "NotRunning"
    try:
        pace = pace_of(vpa.metadata.annotations)
    except PaceError:
        return "OutsideDisruptionWindow"
    if pace.per_day is not None:
        return "DailyBudget"  # the updater alone counts that
    if (closed := pace.allows(now, 0)) is not None:
        return closed
    if len(_covering(pod, view)) > 1:
        return "SeveralBudgets"  # the API server refuses every such eviction
    freed = held(pod, grower)
    return EvictionCandidate(key(pod), freed, pod.spec.priority, budgets_of(pod, view))


def budgets(view: RoomView, rules: RoomRules, spent: Mapping[str, int]) -> dict[str, float]:
    """Return how many may go of each budget, less what is ``spent``."""
    found: dict[str, float] = {}
    for pod in view.pods:
        controller, vpa = pod.metadata.controller, vpa_of(pod.metadata, view)
        if controller is not None and vpa is not None:
            found[f"group/{controller.uid}"] = _group_allowance(controller.uid, vpa, view, rules)
    for budget in view.budgets:
        is_current = budget.status.observed_generation >= budget.metadata.generation
        found[f"pdb/{key(budget)}"] = budget.status.disruptions_allowed if is_current else 0
    return {name: most - spent.get(name, 0) for name, most in found.items()}


def budgets_of(pod: ScheduledPod, view: RoomView) -> tuple[str, ...]:
    """Return the names of the budgets that an eviction of the pod takes one of."""
    controller = pod.metadata.controller
    group = (f"group/{controller.uid}",) if controller is not None else ()
    return (*group, *(f"pdb/{key(each)}" for each in _covering(pod, view)))


def _group_allowance(uid: str, vpa: WorkloadVpa, view: RoomView, rules: RoomRules) -> float:
    sizes, configured = view.groups.get(uid, LivePods()), view.controllers[uid].spec.replicas
    required = vpa.spec.update_policy.min_replicas
    if sizes.live < (rules.min_replicas if required is None else required):
        return 0
    return allowance(configured, sizes.running, int(configured * rules.tolerance))


def _covering(pod: ScheduledPod, view: RoomView) -> list[PodDisruptionBudget]:
    return [
        each
        for each in view.budgets
        if each.metadata.namespace == pod.metadata.namespace
        and each.covers(pod.metadata.labels or {})
    ]


def _is_local(pod: ScheduledPod, view: RoomView) -> bool:
    annotated = (pod.metadata.annotations or {}).get(
        "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes", ""
    )
    safe = {name.strip() for name in annotated.split(",")}
    for volume in pod.spec.volumes:
        disk = volume.empty_dir is not None and volume.empty_dir.medium != "Memory"
        if (disk or volume.host_path is not None) and volume.name not in safe:
            return True
    claims = {f"{pod.metadata.namespace}/{name}" for name, _ in claim_names(pod)}
    return not claims.isdisjoint(view.local_claims)


def key(item: ScheduledPod | PodDisruptionBudget) -> str:
    return f"{item.metadata.namespace}/{item.metadata.name}"
