"""What makes a resize fit that its node has no room for: evictions, or the move of the pod
itself. Pure; from one node's objects as they were read to a ``RoomPlan``.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, islice

from msgspec import Struct
from msgspec.structs import replace

from podscale.core.disruptions import MAKE_ROOM, PaceError, allowance, pace_of
from podscale.kube.client.wire import ObjectMeta
from podscale.kube.columns.pod_set import amounts
from podscale.kube.objects.cluster import Node, PodDisruptionBudget
from podscale.kube.objects.vpa import StoredVpa, Vpa, update_mode
from podscale.nodes.cluster.pod_sums import is_ballast, is_headroom
from podscale.nodes.scheduling.cluster_view import ClusterView, PodRefusal
from podscale.nodes.scheduling.objects import PodController, ScheduledPod
from podscale.nodes.scheduling.predicates import verdicts
from podscale.nodes.scheduling.requests import held_requests, pending_resize, requests

_RESOURCES = ("cpu", "memory")  # those that can be resized
MOST_SETS = 10_000  # of evictions that are looked at: up to 0.1 s
_QOS = {"Guaranteed": 0, "Burstable": 1}


class RoomChoice(Struct, frozen=True):
    """Who may be evicted for room: the updater's budgets, and where others' objects are."""

    min_replicas: int = 2
    tolerance: float = 0.5  # share of a controller's pods that may be down
    admission: tuple[str, str] = ("podscale", "vpa-admission-controller")  # its Lease
    ballast_namespace: str = "podscale-ballast"


class EvictionCandidate(Struct, frozen=True):
    key: str  # namespace/name
    amounts: Mapping[str, int]  # what its node gets back, in thousandths
    priority: int = 0
    budgets: tuple[str, ...] = ()  # each eviction takes one of each


_Set = tuple[EvictionCandidate, ...]


class LivePods(Struct, frozen=True):
    """The pods of one controller, wherever they are."""

    live: int = 0
    running: int = 0


class RoomView(Struct, frozen=True):
    """One node and what decides about its pods, as read for this plan."""

    node: Node
    pods: tuple[ScheduledPod, ...]
    choice: RoomChoice
    now: float  # unix seconds
    spent: Mapping[str, int]  # what other plans of this round have taken, by budget
    vpas: tuple[Vpa, ...] = ()
    budgets: tuple[PodDisruptionBudget, ...] = ()
    controllers: Mapping[str, PodController] = {}  # by UID; those of opted-in namespaces
    groups: Mapping[str, LivePods] = {}  # by UID of the controller
    local_claims: frozenset[str] = frozenset()  # namespace/name of claims on a node's own disk


class RoomPlan(Struct, frozen=True):
    """What to do about one resize, and why.

    ``Evict``: the victims; ``Move``: the pod itself; else nothing: ``Fits`` and ``PodsLeave``
    wait for the kubelet, ``NoRoom``, ``Refused`` and ``SchedulerPreempts`` for others.
    """

    reason: str
    victims: tuple[ScheduledPod, ...] = ()
    refused: Mapping[str, int] = {}  # pods of the node by why they may not go


def plan(pod: ScheduledPod, view: RoomView) -> RoomPlan:
    """Return the evictions that make the resize of ``pod`` fit."""
    if resize_state(pod) == "Infeasible":
        return RoomPlan("NoRoom")
    others = [each for each in view.pods if each.metadata.uid != pod.metadata.uid]
    staying = [each for each in others if each.metadata.deletion_timestamp is None]
    lacks = _lacking(pod, staying, view)
    if len(staying) < len(others) and _lacking(pod, others, view):
        return RoomPlan("PodsLeave")  # one plan of a node at a time
    if not lacks:
        return RoomPlan("Fits")
    ours = sorted(filter(_is_headroom, staying), key=lambda each: sorted(requests(each).items()))
    candidates, refused = _candidates(pod, staying, view)
    left = {name: amount - sum(requests(each).get(name, 0) for each in ours)
            for name, amount in lacks.items()}  # fmt: skip
    chosen = fewest_evictions(left, candidates, _budgets(view))
    if chosen is None:
        return RoomPlan("NoRoom", refused=refused)
    keys = {each.key for each in chosen}
    victims = [each for each in staying if _key(each) in keys]
    # Of headroom no more goes than is needed: it will be wanted again.
    for each in list(ours):
        without = [*victims, *(other for other in ours if other is not each)]
        if all(sum(_held(v, pod).get(name, 0) for v in without) >= amount
               for name, amount in lacks.items()):  # fmt: skip
            ours.remove(each)
    return RoomPlan("Evict", (*ours, *victims), refused)


def is_worth_moving(made: RoomPlan) -> bool:
    """Return whether the pod's own eviction would be less than what is planned."""
    users = sum(not _is_headroom(each) for each in made.victims)
    return made.reason == "NoRoom" or users > 1


def move(pod: ScheduledPod, view: RoomView, cluster: ClusterView) -> RoomPlan | None:
    """Return the plan that evicts the pod itself, where it may go and another node has room."""
    own, vpa = _candidate(pod, pod, view, _budgets(view)), vpa_of(pod.metadata, view)
    if isinstance(own, str) or vpa is None or update_mode(vpa) == "Off":
        return None
    others = tuple(each for each in cluster.pods if each.metadata.uid != pod.metadata.uid)
    found = verdicts(replace(pod, spec=replace(pod.spec, node_name="")),
                     dataclasses.replace(cluster, pods=others))  # fmt: skip
    if isinstance(found, PodRefusal):
        return None
    has_room = any(refusal is None for name, refusal in found.items() if name != pod.spec.node_name)
    return RoomPlan("Move", (pod,)) if has_room else None


def resize_state(pod: ScheduledPod) -> str:
    """Return ``Deferred`` or ``Infeasible``; empty where no resize waits for room."""
    pending = pending_resize(pod)
    reason = "" if pending is None else pending.reason
    return reason if reason in ("Deferred", "Infeasible") else ""


def queue_key(pod: ScheduledPod) -> tuple[int, int, float]:
    """Return the order in which the kubelet grants resizes that wait."""
    # Follows sortPendingResizes of pkg/kubelet/allocation, Kubernetes 1.37.
    pending = pending_resize(pod)
    since = pending.last_transition_time if pending is not None else None
    return -pod.spec.priority, _QOS.get(pod.status.qos_class, 2), since or 0.0


def vpa_of(meta: ObjectMeta, view: RoomView) -> Vpa | None:
    """Return the VPA that has opted in for the pod; None where one has not, or none is there."""
    controller = meta.controller
    known = view.controllers.get(controller.uid) if controller is not None else None
    if controller is None or known is None:
        return None
    above = known.metadata.controller or controller
    vpas = [each for each in view.vpas if each.metadata.namespace == meta.namespace
            and each.has_target(above.kind, above.name)]  # fmt: skip
    return vpas[0] if vpas and all(map(has_opted_in, vpas)) else None


def has_opted_in(vpa: Vpa | StoredVpa) -> bool:
    """Return whether its owner allows evictions for room."""
    return (vpa.metadata.annotations or {}).get(MAKE_ROOM) == "true"


def budgets_of(pod: ScheduledPod, view: RoomView) -> tuple[str, ...]:
    """Return the names of the budgets that an eviction of the pod takes one of."""
    controller = pod.metadata.controller
    group = (f"group/{controller.uid}",) if controller is not None else ()
    covering = [f"pdb/{_key(each)}" for each in view.budgets
                if each.metadata.namespace == pod.metadata.namespace
                and each.covers(pod.labels)]  # fmt: skip
    return (*group, *covering)


def _candidates(
    pod: ScheduledPod, others: Sequence[ScheduledPod], view: RoomView
) -> tuple[list[EvictionCandidate], dict[str, int]]:
    # And how many are none, by why.
    left = _budgets(replace(view, spent={}))
    found = [_candidate(other, pod, view, left) for other in others
             if not (_is_ballast(other, view) or _is_headroom(other))]  # fmt: skip
    refused = Counter(each for each in found if isinstance(each, str))
    return [each for each in found if isinstance(each, EvictionCandidate)], refused


def _candidate(
    pod: ScheduledPod, grower: ScheduledPod, view: RoomView, left: Mapping[str, float]
) -> EvictionCandidate | str:
    # For the resize of ``grower``, or why it is none; ``left`` of each budget.
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
    if (closed := pace.allows(view.now, 0)) is not None:
        return closed
    budgets = budgets_of(pod, view)
    if len(budgets) > 2:
        return "SeveralBudgets"  # the API server refuses every such eviction
    if any(left.get(name, 0) < 1 for name in budgets):
        return "BudgetExhausted"
    return EvictionCandidate(_key(pod), _held(pod, grower), pod.spec.priority, budgets)


def _budgets(view: RoomView) -> dict[str, float]:
    # How many may go of each budget, less what is spent.
    left: dict[str, float] = {}
    for pod in view.pods:
        controller, vpa = pod.metadata.controller, vpa_of(pod.metadata, view)
        if controller is not None and vpa is not None:
            left[f"group/{controller.uid}"] = _group_allowance(controller.uid, vpa, view)
    for budget in view.budgets:
        is_current = budget.status.observed_generation >= budget.metadata.generation
        left[f"pdb/{_key(budget)}"] = budget.status.disruptions_allowed if is_current else 0
    return {name: most - view.spent.get(name, 0) for name, most in left.items()}


def _group_allowance(uid: str, vpa: Vpa, view: RoomView) -> float:
    sizes, configured = view.groups.get(uid, LivePods()), view.controllers[uid].spec.replicas
    policy = vpa.spec.update_policy
    required = policy.min_replicas if policy is not None else None
    if sizes.live < (view.choice.min_replicas if required is None else required):
        return 0
    return allowance(configured, sizes.running, int(configured * view.choice.tolerance))


def _is_local(pod: ScheduledPod, view: RoomView) -> bool:
    annotated = (pod.metadata.annotations or {}).get(
        "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes", ""
    )
    safe = {name.strip() for name in annotated.split(",")}
    for volume in pod.spec.volumes:
        disk = volume.empty_dir is not None and volume.empty_dir.medium != "Memory"
        if (disk or volume.host_path is not None) and volume.name not in safe:
            return True
    claims = {f"{pod.metadata.namespace}/{name}" for name, _ in pod.claim_names()}
    return not claims.isdisjoint(view.local_claims)


def _lacking(pod: ScheduledPod, others: Sequence[ScheduledPod], view: RoomView) -> dict[str, int]:
    # In thousandths, as the kubelet counts: what it has allocated, and what it will before it
    # comes to this resize. Ballast lets go in its next round, since Σ has grown.
    has, wanted, used = amounts(view.node.status.allocatable), requests(pod), Counter[str]()
    for other in others:
        if not _is_ballast(other, view):
            used.update(_held(other, pod))
    lacks = {name: used[name] + wanted.get(name, 0) - has.get(name, 0) for name in _RESOURCES}
    return {name: amount for name, amount in lacks.items() if amount > 0 and wanted.get(name)}


def _held(pod: ScheduledPod, grower: ScheduledPod) -> dict[str, int]:
    # Of the node while ``grower`` waits, in thousandths.
    is_later = resize_state(pod) == "Deferred" and queue_key(pod) > queue_key(grower)
    return held_requests(pod, is_later=is_later)


def _is_ballast(pod: ScheduledPod, view: RoomView) -> bool:
    meta = pod.metadata
    return is_ballast(meta.namespace, meta.labels or {}, view.choice.ballast_namespace)


def _is_headroom(pod: ScheduledPod) -> bool:
    return is_headroom(pod.metadata.namespace, pod.labels)


def _key(item: ScheduledPod | PodDisruptionBudget) -> str:
    return f"{item.metadata.namespace}/{item.metadata.name}"


def fewest_evictions(
    lacking: Mapping[str, int],
    candidates: Sequence[EvictionCandidate],
    budgets: Mapping[str, float],
    *,
    most_sets: int = MOST_SETS,
) -> _Set | None:
    """Return the fewest candidates that free what is lacking; None where none were found to do.

    ``budgets`` says how many may go of each; one that is not named refuses. Of sets of one size
    the one goes whose highest priority is lowest, then the one that frees least. Where these are
    more than ``most_sets``, those go that cover most of what lacks, one after the other.
    """
    lacking = {name: amount for name, amount in lacking.items() if amount > 0}
    useful = [each for each in candidates if _share(each, lacking, lacking)
              and all(budgets.get(name, 0) >= 1 for name in each.budgets)]  # fmt: skip
    best = _largest_first(lacking, useful, budgets)
    most, left = len(useful) if best is None else len(best), most_sets
    for size in range(most + 1):
        sets = islice(combinations(useful, size), left)
        found = [each for each in sets if _is_enough(each, lacking, budgets)]
        if found:
            return min([*found, *filter(None, [best])], key=lambda each: _cost(each, lacking))
        left = max(left - math.comb(len(useful), size), 0)
    return best


def _largest_first(
    lacking: Mapping[str, int], useful: Sequence[EvictionCandidate], budgets: Mapping[str, float]
) -> _Set | None:
    chosen: list[EvictionCandidate] = []
    remaining, left = dict(lacking), dict(budgets)
    while any(amount > 0 for amount in remaining.values()):
        allowed = [each for each in useful if each not in chosen
                   and all(left[name] >= 1 for name in each.budgets)]  # fmt: skip
        shares = [(_share(each, remaining, lacking), -each.priority) for each in allowed]
        if not allowed or not max(shares)[0]:
            return None
        largest = allowed[shares.index(max(shares))]
        chosen.append(largest)
        remaining = {name: amount - largest.amounts.get(name, 0)
                     for name, amount in remaining.items()}  # fmt: skip
        for name in largest.budgets:
            left[name] -= 1
    for each in sorted(chosen, key=lambda each: -each.priority):
        others = tuple(other for other in chosen if other is not each)
        if _is_enough(others, lacking, budgets):
            chosen.remove(each)
    return tuple(chosen)


def _is_enough(chosen: _Set, lacking: Mapping[str, int], budgets: Mapping[str, float]) -> bool:
    return all(
        sum(each.amounts.get(name, 0) for each in chosen) >= amount
        for name, amount in lacking.items()
    ) and all(
        count <= budgets[name]
        for name, count in Counter(name for each in chosen for name in each.budgets).items()
    )


def _cost(chosen: _Set, lacking: Mapping[str, int]) -> tuple[float, ...]:
    priorities = sorted((each.priority for each in chosen), reverse=True)
    freed = sum(each.amounts.get(name, 0) / amount
                for each in chosen for name, amount in lacking.items())  # fmt: skip
    return (len(chosen), *priorities, freed)


def _share(
    one: EvictionCandidate, remaining: Mapping[str, int], lacking: Mapping[str, int]
) -> float:
    # Of what lacks, as far as it still does.
    return sum(min(one.amounts.get(name, 0), max(remaining[name], 0)) / amount
               for name, amount in lacking.items())  # fmt: skip
