"""Why a pod has no node: every node with its reason, what a node autoscaler would make of it, and
what would change it. Pure.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from podscale.nodes.cluster.node_table import BALLAST_LABEL, THRESHOLD_LABELS
from podscale.nodes.scheduling.cluster_view import (
    POOL,
    ClusterView,
    NodeRefusal,
    PodRefusal,
    broken_limits,
)
from podscale.nodes.scheduling.objects import ScheduledPod
from podscale.nodes.scheduling.predicates import Verdicts, verdicts

_YOUNG_S = 10.0  # cluster autoscaler looks at pods after its scan interval
_EXPENDABLE = -10  # cluster autoscaler's --expendable-pods-priority-cutoff
_LOAD = "Load"
_CHANGES = {  # the cheapest first
    "Fits": "nothing: the scheduler has not tried again, or another one has it",
    _LOAD: "the measured load falls, a node more, a higher threshold there (labels "
    f"{', '.join(THRESHOLD_LABELS)}), or none (label {BALLAST_LABEL}: \"off\")",
    "NoNodes": "add a node",
    "NodeUnschedulable": "uncordon a node",
    "NodeResourcesFit": "request less, free some, or add a node",
    "NodePorts": "another hostPort, or none",
    "PodTopologySpread": "a larger maxSkew, or room in the emptier domains",
    "InterPodAffinity": "another affinity, or room beside (or away from) those pods",
    "NodeAffinity": "label a node as the pod's node selector or affinity asks, or ask for less",
    "TaintToleration": "tolerate the taint, or take it away",
    "VolumeRestrictions": "the claim has to be made, or let go by the pod that has it",
    "VolumeZone": "a node in the volume's zone, or another claim",
    "VolumeBinding": "a node where the volume can be reached, or another claim",
    "SchedulingGates": "whoever set the gates has to remove them",
}  # fmt: skip


class RefusedNodes(Struct, frozen=True):
    """Nodes that refuse for the same first reason, those that lack least first."""

    plugin: str
    messages: tuple[str, ...]  # the scheduler's words
    is_by_load: bool  # by podscale's ballast or taint, not by requests
    nodes: tuple[str, ...]
    details: Mapping[str, str]  # in numbers, by node


class PodPlacement(Struct, frozen=True):
    """Where a pod can go, and why not elsewhere."""

    namespace: str
    name: str
    reason: str  # the plugin of the largest group; Scheduled, Fits, NoNodes
    message: str  # as the scheduler would put it; "" where it would bind the pod
    refused: tuple[RefusedNodes, ...] = ()  # the largest group first
    has_room: tuple[str, ...] = ()
    scheduler_says: str = ""
    autoscaler: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()  # one for each reason, the cheapest first
    node: str = ""  # where it is


def explain(pod: ScheduledPod, cluster: ClusterView, now: float) -> PodPlacement:
    """Return why the pod has no node at ``now`` (unix seconds)."""
    meta = pod.metadata
    if pod.spec.node_name:
        return PodPlacement(meta.namespace, meta.name, "Scheduled", "", node=pod.spec.node_name)
    found = verdicts(pod, cluster)
    said = next((each.message for each in pod.status.conditions if each.type == "PodScheduled"), "")
    by_node = {} if isinstance(found, PodRefusal) else found
    groups = _grouped(by_node)
    has_room = tuple(name for name, refusal in by_node.items() if refusal is None)
    reason = "Fits" if has_room else groups[0].plugin if groups else "NoNodes"
    if isinstance(found, PodRefusal):
        reason = found.plugin
    text = "" if has_room else message(found, len(cluster.nodes))
    autoscaler = tuple(_autoscaler(pod, cluster, reason, groups, now))
    changes = _changes(reason, groups)
    return PodPlacement(
        meta.namespace, meta.name, reason, text, groups, has_room, said, autoscaler, changes
    )


def message(found: Verdicts | PodRefusal, count: int) -> str:
    """Return what the scheduler writes about ``count`` nodes, up to what it says of preemption.

    Follows ``FitError.Error`` of pkg/scheduler/framework.
    """
    if isinstance(found, PodRefusal):
        if found.plugin == "SchedulingGates":  # before it is tried at all
            return found.message
        return f"0/{count} nodes are available: {found.message}."
    if not count:
        return "no nodes available to schedule pods"
    counts = Counter(text for each in found.values() if each for text in each.messages)
    reasons = sorted(f"{number} {text}" for text, number in counts.items())
    return f"0/{count} nodes are available: {', '.join(reasons)}."


def _grouped(found: Mapping[str, NodeRefusal | None]) -> tuple[RefusedNodes, ...]:
    by_reason: dict[tuple[str, tuple[str, ...], bool], list[tuple[str, NodeRefusal]]] = {}
    for name, refusal in found.items():
        if refusal is not None:
            key = refusal.plugin, refusal.messages, refusal.is_by_load
            by_reason.setdefault(key, []).append((name, refusal))
    groups = []
    for key, refusals in by_reason.items():
        ordered = sorted(refusals, key=lambda each: each[1].lack)
        details = {name: refusal.detail for name, refusal in ordered if refusal.detail}
        groups.append(RefusedNodes(*key, tuple(name for name, _ in ordered), details))
    return tuple(sorted(groups, key=lambda group: (-len(group.nodes), group.messages)))


def _changes(reason: str, groups: Sequence[RefusedNodes]) -> tuple[str, ...]:
    reasons = {_LOAD if group.is_by_load else group.plugin for group in groups}
    if reason == "Fits" or not groups:
        reasons = {reason}
    return tuple(text for key, text in _CHANGES.items() if key in reasons)


def _autoscaler(
    pod: ScheduledPod, cluster: ClusterView, reason: str, groups: Sequence[RefusedNodes], now: float
) -> Iterator[str]:
    # The rules of cluster autoscaler and Karpenter by which a pending pod brings no node.
    if reason == "Fits":
        yield "adds nothing: the pod fits on a node that is there"
    elif reason == "NoNodes":
        yield "adds a node, if a pool's limits allow it and its template has the room"
    else:
        yield _by_new_nodes(pod, cluster)
        if any(group.is_by_load and group.plugin == "TaintToleration" for group in groups):
            yield "podscale's taint is on none of the nodes that it would add"
    if pod.spec.priority < _EXPENDABLE:
        yield f"cluster autoscaler passes over pods of priority below {_EXPENDABLE}"
    created = pod.metadata.creation_timestamp
    if created is not None and now - created < _YOUNG_S:
        yield "the pod is only seconds old: not looked at yet"


def _by_new_nodes(pod: ScheduledPod, cluster: ClusterView) -> str:
    view, like = cluster.grown
    found = verdicts(pod, view, like)
    if isinstance(found, PodRefusal):
        return f"adds nothing, whatever nodes there are ({found.plugin})"
    pools, full = {each.metadata.name: each for each in cluster.pools}, dict[str, list[str]]()
    for node in (like[name] for name, refusal in found.items() if refusal is None):
        name = (node.metadata.labels or {}).get(POOL, "")
        if name not in pools:
            return f"adds a node like {node.metadata.name}, if its pool's limits allow it"
        full[name] = broken_limits(pools[name], node)
        if not full[name]:
            return f"adds a node like {node.metadata.name}: NodePool {name} may grow by it"
    if full:
        told = (f"NodePool {name} is at its limit of {', '.join(of)}" for name, of in full.items())
        return f"adds nothing: {'; '.join(told)}"
    plugins = dict.fromkeys(group.plugin for group in _grouped(found))
    return f"adds nothing, unless a pool's template differs in this ({', '.join(plugins)})"
