"""What decides about pods' nodes, and what is found once for all pods that are explained."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from podscale.kube.columns.pod_shapes import amounts
from podscale.kube.objects.cluster import Node
from podscale.nodes.cluster.pod_sums import BALLAST_LABELS
from podscale.nodes.scheduling.new_nodes import kinds_of, new_node, new_pods
from podscale.nodes.scheduling.objects import (
    NamespaceLabels,
    NodePool,
    PersistentVolume,
    PodAffinityTerm,
    ScheduledPod,
    StorageClass,
    VolumeClaim,
)
from podscale.nodes.scheduling.requests import held_requests


class NodeRoom(NamedTuple):
    """One node's resources, in thousandths; ``ballast`` is part of ``used``."""

    allocatable: Mapping[str, int]
    used: Counter[str]
    ballast: Counter[str]


@dataclass(frozen=True)  # no Struct: ``replace`` of one hands on what was found for the old one
class ClusterView:
    """What is found goes with it: keep none longer than it is explained over."""

    nodes: tuple[Node, ...]
    pods: tuple[ScheduledPod, ...] = ()
    claims: tuple[VolumeClaim, ...] = ()
    volumes: tuple[PersistentVolume, ...] = ()
    classes: tuple[StorageClass, ...] = ()
    namespaces: tuple[NamespaceLabels, ...] = ()
    pools: tuple[NodePool, ...] = ()

    @cached_property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        return {each.metadata.name: each.metadata.labels or {} for each in self.namespaces}

    @cached_property
    def node_labels(self) -> Mapping[str, Mapping[str, str]]:
        return {node.metadata.name: node.metadata.labels or {} for node in self.nodes}

    @cached_property
    def placed(self) -> Mapping[str, Sequence[ScheduledPod]]:
        """The pods of each node that is there, without those that have ended."""
        found: dict[str, list[ScheduledPod]] = {name: [] for name in self.node_labels}
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
                if BALLAST_LABELS.matches(pod.metadata.labels or {}):
                    ballast.update(own)
            has = amounts(node.status.allocatable)
            found[node.metadata.name] = NodeRoom(has, used, ballast)
        return found

    @cached_property
    def alike(self) -> Sequence[tuple[ScheduledPod, Counter[str]]]:
        """Pods that no selector tells apart: one of them, and how many are on each node."""
        found: dict[object, tuple[ScheduledPod, Counter[str]]] = {}
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
        like = kinds_of(self.nodes)
        nodes = (new_node(name, node) for name, node in like.items())
        pods = (new_pods(name, self.placed[node.metadata.name]) for name, node in like.items())
        view = replace(self, nodes=(*self.nodes, *nodes),
                       pods=(*self.pods, *chain.from_iterable(pods)))  # fmt: skip
        return view, like

    @cached_property
    def kept_away(self) -> Sequence[tuple[ScheduledPod, PodAffinityTerm]]:
        """Pods with each term by which they want to be away from others."""
        found = []
        for pod in chain.from_iterable(self.placed.values()):
            anti = pod.spec.affinity.pod_anti_affinity
            terms = anti.required_during_scheduling_ignored_during_execution
            found += [(pod, term) for term in terms]
        return found
