"""Which filter of the scheduler refuses a pod on each node, in the scheduler's order and words.

Pure. Follows the plugins of ``pkg/scheduler/framework/plugins``, Kubernetes 1.37 (1.36 has the
same ones): NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit, those
of volumes (``volumes``), PodTopologySpread, InterPodAffinity. Not followed: dynamic resources,
gangs, room that is nominated.
"""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import chain

from podscale.core import quantity
from podscale.kube.columns.pod_set import amounts
from podscale.kube.objects.cluster import Node, Taint
from podscale.nodes.cluster.patches import TAINT_KEY
from podscale.nodes.scheduling.cluster_view import LEAST, ClusterView, NodeRefusal, PodRefusal
from podscale.nodes.scheduling.objects import PodAffinityTerm, ScheduledPod, SpreadConstraint
from podscale.nodes.scheduling.requests import requests
from podscale.nodes.scheduling.volumes import PodClaims

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
_LEAST_BALLAST = amounts(LEAST)
Verdicts = Mapping[str, NodeRefusal | None]  # by node; None: it has room


def verdicts(
    pod: ScheduledPod, cluster: ClusterView, names: Container[str] | None = None
) -> Verdicts | PodRefusal:
    """Return the first filter that refuses the pod on each node, or on those of these names."""
    if pod.spec.scheduling_gates:
        gates = " ".join(gate.name for gate in pod.spec.scheduling_gates)
        return PodRefusal("SchedulingGates", f"waiting for scheduling gates: [{gates}]")
    situation = _Situation(pod, cluster)
    only = _only_nodes(pod)
    if only is not None and not only:
        return PodRefusal("NodeAffinity", "pod affinity terms conflict")
    missing = situation.claims.refusal()
    if missing is not None:
        return missing
    return {
        node.metadata.name: NodeRefusal(
            "NodeAffinity", ("node(s) didn't satisfy plugin(s) [NodeAffinity]",)
        )
        if only is not None and node.metadata.name not in only
        else next(situation.refusals(node), None)
        for node in cluster.nodes
        if names is None or node.metadata.name in names
    }


def _only_nodes(pod: ScheduledPod) -> frozenset[str] | None:
    # Where every term names nodes, the scheduler looks at no others.
    selector = pod.required_nodes
    if selector is None or not selector.node_selector_terms:
        return None
    found: set[str] = set()
    for term in selector.node_selector_terms:
        named = [set(each.values) for each in term.match_fields
                 if each.key == "metadata.name" and each.operator == "In"]  # fmt: skip
        if not named:
            return None
        found |= set.intersection(*named)
    return frozenset(found)


class _Situation:
    """One pod among all others; what does not depend on the node is found once."""

    def __init__(self, pod: ScheduledPod, cluster: ClusterView) -> None:
        self._pod = pod
        self._cluster = cluster
        self.claims = PodClaims(pod, cluster)
        self._in_use = self.claims.in_use(chain.from_iterable(cluster.placed.values()))
        self._wanted = sorted(requests(pod).items(), key=lambda pair: _rank(pair[0]))
        self._ports = tuple(pod.host_ports())
        affinity, anti = pod.spec.affinity.pod_affinity, pod.spec.affinity.pod_anti_affinity
        self._near = affinity.required_during_scheduling_ignored_during_execution
        away = anti.required_during_scheduling_ignored_during_execution
        self._spread = [each for each in pod.spec.topology_spread_constraints
                        if each.when_unsatisfiable == "DoNotSchedule"]  # fmt: skip
        self._counts = [self._counted(each) for each in self._spread]
        self._near_to = self._places(self._near, needs_all=True)
        self._away_from = self._places(away, needs_all=False)
        self._kept_away = self._existing()

    def refusals(self, node: Node) -> Iterator[NodeRefusal]:
        """Yield what refuses the pod there, in the scheduler's order."""
        pod = self._pod
        if node.spec.unschedulable and pod.untolerated([UNSCHEDULABLE]):
            yield NodeRefusal("NodeUnschedulable", ("node(s) were unschedulable",))
        taint = pod.untolerated(node.spec.taints)
        if taint is not None and taint.key == TAINT_KEY:  # only where no other keeps the pod away
            other_taints = [each for each in node.spec.taints if each.key != TAINT_KEY]
            taint = pod.untolerated(other_taints) or taint
        if taint is not None:
            text, is_by_load = f"{taint.key}={taint.value}:{taint.effect}", taint.key == TAINT_KEY
            message = "node(s) had untolerated taint(s)"
            yield NodeRefusal("TaintToleration", (message,), text, is_by_load=is_by_load)
        if not pod.wants(node):
            text = "node(s) didn't match Pod's node affinity/selector"
            yield NodeRefusal("NodeAffinity", (text,))
        others = self._cluster.placed[node.metadata.name] if self._ports else ()
        taken = [port for each in others for port in each.host_ports()]
        if any(one.conflicts(other) for one in self._ports for other in taken):
            text = "node(s) didn't have free ports for the requested pod ports"
            yield NodeRefusal("NodePorts", (text,))
        yield from self._fit(node)
        if self._in_use is not None:
            yield self._in_use
        yield from self.claims.refusals(node)
        yield from self._skewed(node)
        yield from self._by_pods(node)

    def _fit(self, node: Node) -> Iterator[NodeRefusal]:
        room = self._cluster.room[node.metadata.name]
        has, count = room.allocatable, len(self._cluster.placed[node.metadata.name])
        messages, details, lack, is_by_load = [], [], 0.0, True
        if 1000 * (count + 1) > has.get("pods", 0):
            messages.append("Too many pods")
            details.append(f"{count} pods of {has.get('pods', 0) // 1000}")
            is_by_load = False
        for resource, wanted in self._wanted:
            size, used = has.get(resource, 0), room.used[resource]
            if wanted > 0 and wanted > size - used:
                messages.append(f"Insufficient {resource}")
                ballast = room.ballast[resource]
                by_ballast = f", {_amount(ballast)} by ballast" if ballast else ""
                details.append(
                    f"{resource}: {_amount(wanted)} wanted, {_amount(max(size - used, 0))} of "
                    f"{_amount(size)} free; {_amount(used - ballast)} requested by pods{by_ballast}"
                )
                lack = max(lack, 1 - (size - used) / wanted)
                beyond_least = ballast - _LEAST_BALLAST.get(resource, 0)
                is_by_load &= wanted <= size - used + beyond_least
        if messages:
            yield NodeRefusal(
                "NodeResourcesFit", tuple(messages), "; ".join(details), lack, is_by_load
            )

    def _counted(self, constraint: SpreadConstraint) -> Counter[str]:
        # Matching pods by domain; a domain of which no node counts is not there at all.
        keys = {each.topology_key for each in self._spread}
        pod, domains = self._pod, dict[str, str]()
        for node in self._cluster.nodes:
            labels = node.metadata.labels or {}
            if (
                keys <= labels.keys()
                and (constraint.node_affinity_policy != "Honor" or pod.wants(node))
                and (constraint.node_taints_policy != "Honor"
                     or not pod.untolerated(node.spec.taints))
            ):  # fmt: skip
                domains[node.metadata.name] = labels[constraint.topology_key]
        found = Counter(dict.fromkeys(domains.values(), 0))
        for other, counts in () if constraint.is_with_nobody(pod.labels) else self._cluster.alike:
            if (
                other.metadata.deletion_timestamp is None
                and other.metadata.namespace == pod.metadata.namespace
                and constraint.is_with(pod.labels, other.labels)
            ):
                for name in counts.keys() & domains.keys():
                    found[domains[name]] += counts[name]
        return found

    def _skewed(self, node: Node) -> Iterator[NodeRefusal]:
        labels = node.metadata.labels or {}
        refused = "node(s) didn't match pod topology spread constraints"
        for constraint, counts in zip(self._spread, self._counts, strict=True):
            domain = labels.get(constraint.topology_key)
            if domain is None:
                text = f"{refused} (missing required label)"
                yield NodeRefusal("PodTopologySpread", (text,), constraint.topology_key)
                return
            is_own = constraint.is_with(self._pod.labels, self._pod.labels)
            has_all = len(counts) >= constraint.min_domains
            least = min(counts.values(), default=2**31 - 1) if has_all else 0
            if counts[domain] + is_own - least > constraint.max_skew:
                text = f"{constraint.topology_key}={domain} has {counts[domain]}, the least {least}"
                yield NodeRefusal("PodTopologySpread", (refused,), text)
                return

    def _places(self, terms: Sequence[PodAffinityTerm], *, needs_all: bool) -> set[tuple[str, str]]:
        # Where pods are that the terms are about.
        found = set()
        for other, counts in self._cluster.alike if terms else ():
            keys = [each.topology_key for each in terms if self._concerns(each, self._pod, other)]
            if len(keys) == len(terms) or not needs_all:
                nodes = [self._cluster.node_labels[name] for name in counts]
                found |= {(key, labels[key]) for labels in nodes for key in keys if key in labels}
        return found

    def _existing(self) -> set[tuple[str, str]]:
        # Where pods that are there already want to be away from ours.
        found = set()
        for other, term in self._cluster.kept_away:
            labels = self._cluster.node_labels[other.spec.node_name]
            if term.topology_key in labels and self._concerns(term, other, self._pod):
                found.add((term.topology_key, labels[term.topology_key]))
        return found

    def _concerns(self, term: PodAffinityTerm, owner: ScheduledPod, pod: ScheduledPod) -> bool:
        return term.concerns(owner.metadata, pod.metadata, self._cluster.namespace_labels)

    def _by_pods(self, node: Node) -> Iterator[NodeRefusal]:
        labels = node.metadata.labels or {}
        looked_at = (
            ("match pod affinity rules", not self._is_near(labels)),
            ("match pod anti-affinity rules", not self._away_from.isdisjoint(labels.items())),
            ("satisfy existing pods anti-affinity rules",
             not self._kept_away.isdisjoint(labels.items())),
        )  # fmt: skip
        for what, is_refused in looked_at:
            if is_refused:
                yield NodeRefusal("InterPodAffinity", (f"node(s) didn't {what}",))

    def _is_near(self, labels: Mapping[str, str]) -> bool:
        keys = [term.topology_key for term in self._near]
        if any(key not in labels for key in keys):
            return False
        # The first of a group that wants to be near its own kind may go anywhere.
        return all((key, labels[key]) in self._near_to for key in keys) or (
            not self._near_to
            and all(self._concerns(term, self._pod, self._pod) for term in self._near)
        )


def _amount(milli: int) -> str:
    return quantity.format_milli(milli, "BinarySI")


def _rank(resource: str) -> tuple[int, str]:
    known = ("cpu", "memory", "ephemeral-storage")
    return (known.index(resource) if resource in known else len(known), resource)
