"""What decides about pods' nodes, what is found once for all pods that are explained, and the
nodes that a node autoscaler could add: one like each kind that is there. Pure.

Follows how cluster autoscaler makes a template of a node: of its pods those of DaemonSets and of
files are there, ballast at its least, and of its taints none that say how the node is doing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace as changed

from podscale.kube.client.wire import PartialObjectMetadata
from podscale.kube.columns.pod_set import amounts
from podscale.kube.objects.cluster import Node, Taint
from podscale.nodes.cluster.pod_sums import BALLAST_LABELS
from podscale.nodes.scheduling import objects
from podscale.nodes.scheduling.requests import held_requests

POOL = "karpenter.sh/nodepool"
_HOST = "kubernetes.io/hostname"
_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/disrupt",
            "status-taint.cluster-autoscaler.kubernetes.io/", "ToBeDeletedByClusterAutoscaler",
            "DeletionCandidateOfClusterAutoscaler")  # fmt: skip
LEAST = {"cpu": "1m", "memory": "1Mi"}


class NodeRefusal(Struct, frozen=True):
    """Why one node cannot take the pod."""

    plugin: str  # the scheduler's name: NodeResourcesFit
    messages: tuple[str, ...]  # the scheduler's words; several resources may lack
    detail: str = ""  # in numbers, for a person
    lack: float = 0.0  # of resources: the largest share of what is wanted that is not free
    is_by_load: bool = False  # it is podscale's ballast or taint alone


class PodRefusal(Struct, frozen=True):
    """Why no node is even looked at."""

    plugin: str
    message: str


class NodeRoom(NamedTuple):
    """One node's resources, in thousandths; ``ballast`` is part of ``used``."""

    allocatable: Mapping[str, int]
    used: Counter[str]
    ballast: Counter[str]


@dataclass(frozen=True)  # no Struct: ``replace`` of one hands on what was found for the old one
class ClusterView:
    """What is found goes with it: keep none longer than it is explained over."""

    nodes: tuple[Node, ...]
    pods: tuple[objects.ScheduledPod, ...] = ()
    claims: tuple[objects.VolumeClaim, ...] = ()
    volumes: tuple[objects.PersistentVolume, ...] = ()
    classes: tuple[objects.StorageClass, ...] = ()
    namespaces: tuple[PartialObjectMetadata, ...] = ()
    pools: tuple[objects.NodePool, ...] = ()

    @cached_property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        return {each.metadata.name: each.metadata.labels or {} for each in self.namespaces}

    @cached_property
    def node_labels(self) -> Mapping[str, Mapping[str, str]]:
        return {node.metadata.name: node.metadata.labels or {} for node in self.nodes}

    @cached_property
    def placed(self) -> Mapping[str, Sequence[objects.ScheduledPod]]:
        """The pods of each node that is there, without those that have ended."""
        found: dict[str, list[objects.ScheduledPod]] = {name: [] for name in self.node_labels}
        for pod in self.pods:
            if pod.spec.node_name in found and pod.status.phase not in ("Succeeded", "Failed"):
                found[pod.spec.node_name].append(pod)
        return found

    @cached_property
    def room(self) -> Mapping[str, NodeRoom]:
        found = {}
        for node in self.nodes:
            used, ballast = Counter[str](), Counter[str]()
            for pod in self.placed[node.metadata.name]:
                own = held_requests(pod)
                used.update(own)
                if BALLAST_LABELS.matches(pod.labels):
                    ballast.update(own)
            has = amounts(node.status.allocatable)
            found[node.metadata.name] = NodeRoom(has, used, ballast)
        return found

    @cached_property
    def alike(self) -> Sequence[tuple[objects.ScheduledPod, Counter[str]]]:
        """Pods that no selector tells apart: one of them, and how many are on each node."""
        found: dict[object, tuple[objects.ScheduledPod, Counter[str]]] = {}
        for node, pods in self.placed.items():
            for pod in pods:
                meta = pod.metadata
                labels = frozenset((meta.labels or {}).items())
                key = meta.namespace, labels, meta.deletion_timestamp is None
                found.setdefault(key, (pod, Counter()))[1][node] += 1
        return tuple(found.values())

    @cached_property
    def grown(self) -> "tuple[ClusterView, Mapping[str, Node]]":
        """The cluster with a new node of each kind, and by its name the node that it is like."""
        like = _kinds_of(self.nodes)
        nodes = (_new_node(name, node) for name, node in like.items())
        pods = (_new_pods(name, self.placed[node.metadata.name]) for name, node in like.items())
        view = replace(self, nodes=(*self.nodes, *nodes),
                       pods=(*self.pods, *chain.from_iterable(pods)))  # fmt: skip
        return view, like

    @cached_property
    def kept_away(self) -> Sequence[tuple[objects.ScheduledPod, objects.PodAffinityTerm]]:
        """Pods with each term by which they want to be away from others."""
        found = []
        for pod in chain.from_iterable(self.placed.values()):
            anti = pod.spec.affinity.pod_anti_affinity
            terms = anti.required_during_scheduling_ignored_during_execution
            found += [(pod, term) for term in terms]
        return found


def _kinds_of(nodes: Iterable[Node]) -> Mapping[str, Node]:
    # A node of each kind, by the name of the new one that is like it.
    found: dict[object, Node] = {}
    for node in nodes:
        found.setdefault(_kind(node), node)
    return {f"new/{node.metadata.name}": node for node in found.values()}  # nobody's name


def _new_node(name: str, like: Node) -> Node:
    labels = {**(like.metadata.labels or {}), _HOST: name}
    spec = changed(like.spec, taints=tuple(lasting(like)), unschedulable=False)
    return changed(like, metadata=changed(like.metadata, name=name, labels=labels), spec=spec)


def _new_pods(name: str, there: Iterable[objects.ScheduledPod]) -> Iterator[objects.ScheduledPod]:
    # Those of a new node, from those of the node that it is like.
    for pod in there:
        owner = pod.metadata.controller
        is_of_a_file = "kubernetes.io/config.mirror" in (pod.metadata.annotations or {})
        if is_of_a_file or (owner is not None and owner.kind == "DaemonSet"):
            yield _new_pod(name, pod)


def broken_limits(pool: objects.NodePool, like: Node) -> list[str]:
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


def _new_pod(name: str, pod: objects.ScheduledPod) -> objects.ScheduledPod:
    spec = changed(pod.spec, node_name=name)
    if BALLAST_LABELS.matches(pod.labels):
        containers = (changed(each, resources=changed(each.resources, requests=LEAST))
                      for each in spec.containers)  # fmt: skip
        spec = changed(spec, containers=tuple(containers))
    return changed(pod, spec=spec, status=objects.ScheduledPodStatus())
