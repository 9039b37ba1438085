"""The nodes that a node autoscaler could add: one like each kind that is there. Pure.

Follows how cluster autoscaler makes a template of a node: of its pods those of DaemonSets and of
files are there, ballast at its least, and of its taints none that say how the node is doing.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace as changed

from podscale.kube.columns.pod_shapes import amounts
from podscale.kube.objects.cluster import Node, Taint
from podscale.nodes.cluster.pod_sums import BALLAST_LABELS
from podscale.nodes.scheduling.objects import NodePool, ScheduledPod, ScheduledPodStatus

POOL = "karpenter.sh/nodepool"
_HOST = "kubernetes.io/hostname"
_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/disrupt",
            "status-taint.cluster-autoscaler.kubernetes.io/", "ToBeDeletedByClusterAutoscaler",
            "DeletionCandidateOfClusterAutoscaler")  # fmt: skip
LEAST = {"cpu": "1m", "memory": "1Mi"}


def kinds_of(nodes: Iterable[Node]) -> Mapping[str, Node]:
    """Return a node of each kind, by the name of the new one that is like it."""
    found: dict[object, Node] = {}
    for node in nodes:
        found.setdefault(_kind(node), node)
    return {f"new/{node.metadata.name}": node for node in found.values()}  # nobody's name


def new_node(name: str, like: Node) -> Node:
    labels = {**(like.metadata.labels or {}), _HOST: name}
    spec = changed(like.spec, taints=tuple(lasting(like)), unschedulable=False)
    return changed(like, metadata=changed(like.metadata, name=name, labels=labels), spec=spec)


def new_pods(name: str, there: Iterable[ScheduledPod]) -> Iterator[ScheduledPod]:
    """Yield the pods of a new node, from those of the node that it is like."""
    for pod in there:
        owner = pod.metadata.controller
        is_of_a_file = "kubernetes.io/config.mirror" in (pod.metadata.annotations or {})
        if is_of_a_file or (owner is not None and owner.kind == "DaemonSet"):
            yield _new_pod(name, pod)


def broken_limits(pool: NodePool, like: Node) -> list[str]:
    """Return which limits of a pool one more such node would break."""
    has, more = amounts(pool.status.resources), {**amounts(like.status.capacity), "nodes": 1000}
    return [name for name, most in amounts(pool.spec.limits).items()
            if has.get(name, 0) + more.get(name, 0) > most]  # fmt: skip


def _kind(node: Node) -> object:
    labels = node.metadata.labels or {}
    sizes = node.status.allocatable or {}
    taints = [(each.key, each.value, each.effect) for each in lasting(node)]
    return frozenset(labels.items() - {(_HOST, labels.get(_HOST))}), str(sizes), str(taints)


def lasting(node: Node) -> list[Taint]:
    """Return its taints but those that say how it is doing."""
    return [each for each in node.spec.taints if not each.key.startswith(_PASSING)]


def _new_pod(name: str, pod: ScheduledPod) -> ScheduledPod:
    spec = changed(pod.spec, node_name=name)
    if BALLAST_LABELS.matches(pod.metadata.labels or {}):
        containers = (changed(each, resources=changed(each.resources, requests=LEAST))
                      for each in spec.containers)  # fmt: skip
        spec = changed(spec, containers=tuple(containers))
    return changed(pod, spec=spec, status=ScheduledPodStatus())
