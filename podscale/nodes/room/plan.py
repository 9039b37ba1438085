"""What makes a resize fit that its node has no room for: evictions, or the move of the pod
itself. Pure; from objects as they were read to a ``RoomPlan``.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from podscale.nodes.decide.evictions import EvictionCandidate, fewest_evictions
from podscale.nodes.room.candidates import budgets, candidate, key
from podscale.nodes.room.view import (
    RoomRules,
    RoomView,
    held,
    is_ballast,
    is_headroom,
    lacking,
    resize_state,
    vpa_of,
)
from podscale.nodes.scheduling.cluster_view import ClusterView
from podscale.nodes.scheduling.objects import ScheduledPod
from podscale.nodes.scheduling.predicates import verdicts
from podscale.nodes.scheduling.refusals import PodRefusal
from podscale.nodes.scheduling.requests import requests


class RoomPlan(Struct, frozen=True):
    """What to do about one resize, and why.

    ``Evict``: the victims; ``Move``: the pod itself; else nothing: ``Fits`` and ``PodsLeave``
    wait for the kubelet, ``NoRoom``, ``Refused`` and ``SchedulerPreempts`` for others.
    """

    reason: str
    victims: tuple[ScheduledPod, ...] = ()
    refused: Mapping[str, int] = {}  # pods of the node by why they may not go


def plan(
    pod: ScheduledPod,
    view: RoomView,
    rules: RoomRules,
    now: float,
    spent: Mapping[str, int],
) -> RoomPlan:
    """Return the evictions that make the resize of ``pod`` fit.

    ``spent``: what other plans of this round have taken of budgets.
    """
    if resize_state(pod) == "Infeasible":
        return RoomPlan("NoRoom")
    others = [each for each in view.pods if each.metadata.uid != pod.metadata.uid]
    staying = [each for each in others if each.metadata.deletion_timestamp is None]
    lacks = lacking(pod, replace(view, pods=tuple(staying)))
    if len(staying) < len(others) and lacking(pod, view):
        return RoomPlan("PodsLeave")  # one plan of a node at a time
    if not lacks:
        return RoomPlan("Fits")
    ours = sorted(filter(is_headroom, staying), key=lambda each: sorted(requests(each).items()))
    candidates, refused = _candidates(pod, staying, view, rules, now)
    left = {name: amount - sum(requests(each).get(name, 0) for each in ours)
            for name, amount in lacks.items()}  # fmt: skip
    found = fewest_evictions(left, candidates, budgets(view, rules, spent))
    if found is None:
        return RoomPlan("NoRoom", refused=refused)
    victims = [each for each in staying if key(each) in found.keys]
    # Of headroom no more goes than is needed: it will be wanted again.
    for each in list(ours):
        without = [*victims, *(other for other in ours if other is not each)]
        if all(sum(held(v, pod).get(name, 0) for v in without) >= amount
               for name, amount in lacks.items()):  # fmt: skip
            ours.remove(each)
    return RoomPlan("Evict", (*ours, *victims), refused)


def is_worth_moving(made: RoomPlan) -> bool:
    """Return whether the pod's own eviction would be less than what is planned."""
    users = sum(not is_headroom(each) for each in made.victims)
    return made.reason == "NoRoom" or users > 1


def move(
    pod: ScheduledPod,
    view: RoomView,
    rules: RoomRules,
    now: float,
    spent: Mapping[str, int],
    cluster: ClusterView,
) -> RoomPlan | None:
    """Return the plan that evicts the pod itself, where it may go and another node has room."""
    own, vpa = candidate(pod, pod, view, now), vpa_of(pod.metadata, view)
    if isinstance(own, str) or vpa is None or vpa.spec.update_policy.update_mode == "Off":
        return None
    left = budgets(view, rules, spent)
    if any(left.get(name, 0) < 1 for name in own.budgets):
        return None
    others = tuple(each for each in cluster.pods if each.metadata.uid != pod.metadata.uid)
    found = verdicts(replace(pod, spec=replace(pod.spec, node_name="")),
                     dataclasses.replace(cluster, pods=others))  # fmt: skip
    if isinstance(found, PodRefusal):
        return None
    has_room = any(refusal is None for name, refusal in found.items() if name != pod.spec.node_name)
    return RoomPlan("Move", (pod,)) if has_room else None


def _candidates(
    pod: ScheduledPod,
    others: Sequence[ScheduledPod],
    view: RoomView,
    rules: RoomRules,
    now: float,
) -> tuple[list[EvictionCandidate], dict[str, int]]:
    left = budgets(view, rules, {})
    found, refused = [], Counter[str]()
    for other in others:
        if is_ballast(other, view) or is_headroom(other):
            continue
        made = candidate(other, pod, view, now)
        if isinstance(made, str):
            refused[made] += 1
        elif any(left.get(name, 0) < 1 for name in made.budgets):
            refused["BudgetExhausted"] += 1
        else:
            found.append(made)
    return found, dict(refused)
