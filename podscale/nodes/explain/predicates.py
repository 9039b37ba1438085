"""Which filter of the scheduler refuses a pod on each node, in the scheduler's order and words.

Pure. Follows the plugins of ``pkg/scheduler/framework/plugins``, Kubernetes 1.37 (1.36 has the
same ones): NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit,
VolumeBinding as far as claims are missing or bound, PodTopologySpread, InterPodAffinity. Not
followed: limits of CSI volumes, zones of volumes, dynamic resources, gangs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from podscale.kube.columns.pod_shapes import amounts
from podscale.kube.objects.cluster import Node
from podscale.nodes.cluster.pod_sums import BALLAST_LABELS
from podscale.nodes.decide.requests import ContainerAmounts, pod_request
from podscale.nodes.explain.matching import (
    UNSCHEDULABLE,
    concerns,
    conflicts,
    host_ports,
    matches_labels,
    matches_node,
    required_affinity,
    untolerated,
    wants_node,
)
from podscale.nodes.explain.objects import (
    ClusterView,
    PodAffinityTerm,
    ScheduledContainer,
    ScheduledPod,
    SpreadConstraint,
)


class NodeRefusal(Struct, frozen=True):
    """Why one node cannot take the pod."""

    plugin: str  # the scheduler's name: NodeResourcesFit
    messages: tuple[str, ...]  # the scheduler's words; several resources may lack
    detail: str = ""  # in numbers, for a person


class PodRefusal(Struct, frozen=True):
    """Why no node is even looked at."""

    plugin: str
    message: str


Verdicts = Mapping[str, NodeRefusal | None]  # by node; None: it has room


def verdicts(pod: ScheduledPod, cluster: ClusterView) -> Verdicts | PodRefusal:
    """Return the first filter that refuses the pod on each node."""
    if pod.spec.scheduling_gates:
        names = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        return PodRefusal("SchedulingGates", f"waiting for scheduling gates: {names}")
    situation = _Situation(pod, cluster)
    only = _only_nodes(pod)
    if only is not None and not only:
        return PodRefusal("NodeAffinity", "pod affinity terms conflict")
    missing = situation.missing_claim()
    if missing is not None:
        return PodRefusal("VolumeBinding", missing)
    return {
        node.metadata.name: NodeRefusal(
            "NodeAffinity", ("node(s) didn't satisfy plugin(s) [NodeAffinity]",)
        )
        if only is not None and node.metadata.name not in only
        else next(situation.refusals(node), None)
        for node in cluster.nodes
    }


def _only_nodes(pod: ScheduledPod) -> frozenset[str] | None:
    # Where every term names nodes, the scheduler looks at no others.
    selector = required_affinity(pod)
    if selector is None or not selector.node_selector_terms:
        return None
    found: set[str] = set()
    for term in selector.node_selector_terms:
        named = [
            set(each.values)
            for each in term.match_fields
            if each.key == "metadata.name" and each.operator == "In"
        ]
        if not named:
            return None
        found |= set.intersection(*named)
    return frozenset(found)


class _Situation:
    """One pod among all others; what does not depend on the node is found once."""

    def __init__(self, pod: ScheduledPod, cluster: ClusterView) -> None:
        self._pod = pod
        self._cluster = cluster
        self._namespaces = {
            each.metadata.name: each.metadata.labels or {} for each in cluster.namespaces
        }
        self._on: dict[str, list[ScheduledPod]] = {}
        for other in cluster.pods:
            has_ended = other.status.phase in ("Succeeded", "Failed")
            if other.spec.node_name and not has_ended:
                self._on.setdefault(other.spec.node_name, []).append(other)
        self._labels = {node.metadata.name: node.metadata.labels or {} for node in cluster.nodes}
        self._wanted = requests(pod)
        affinity, anti = pod.spec.affinity.pod_affinity, pod.spec.affinity.pod_anti_affinity
        self._near = affinity.required_during_scheduling_ignored_during_execution
        self._away = anti.required_during_scheduling_ignored_during_execution
        self._spread = [
            each
            for each in pod.spec.topology_spread_constraints
            if each.when_unsatisfiable == "DoNotSchedule"
        ]
        self._counts = [self._counted(each) for each in self._spread]
        self._near_counts = self._places(self._near, needs_all=True)
        self._away_counts = self._places(self._away, needs_all=False)
        self._kept_away = self._existing()

    def refusals(self, node: Node) -> Iterator[NodeRefusal]:
        """Yield what refuses the pod there, in the scheduler's order."""
        tolerations = self._pod.spec.tolerations
        if node.spec.unschedulable and untolerated([UNSCHEDULABLE], tolerations):
            yield NodeRefusal("NodeUnschedulable", ("node(s) were unschedulable",))
        taint = untolerated(node.spec.taints, tolerations)
        if taint is not None:
            text = f"{taint.key}={taint.value}:{taint.effect}"
            yield NodeRefusal("TaintToleration", ("node(s) had untolerated taint(s)",), text)
        if not wants_node(self._pod, node):
            text = "node(s) didn't match Pod's node affinity/selector"
            yield NodeRefusal("NodeAffinity", (text,))
        others = self._on.get(node.metadata.name, [])
        mine = host_ports(self._pod)
        taken = [port for other in others for port in host_ports(other)]
        if any(conflicts(one, other) for one in mine for other in taken):
            text = "node(s) didn't have free ports for the requested pod ports"
            yield NodeRefusal("NodePorts", (text,))
        yield from self._fit(node, others)
        yield from self._bound_elsewhere(node)
        yield from self._skewed(node)
        yield from self._by_pods(node)

    def _fit(self, node: Node, others: Sequence[ScheduledPod]) -> Iterator[NodeRefusal]:
        has = amounts(node.status.allocatable)
        messages, details = [], []
        if 1000 * (len(others) + 1) > has.get("pods", 0):
            messages.append("Too many pods")
            details.append(f"{len(others)} pods of {has.get('pods', 0) // 1000}")
        for resource, wanted in sorted(self._wanted.items(), key=lambda pair: _rank(pair[0])):
            used = ballast = 0
            for other in others:
                amount = requests(other).get(resource, 0)
                used += amount
                ballast += amount if BALLAST_LABELS.matches(other.metadata.labels or {}) else 0
            if wanted > 0 and wanted > has.get(resource, 0) - used:
                messages.append(f"Insufficient {resource}")
                held = f", {_amount(ballast)} of it ballast" if ballast else ""
                details.append(
                    f"{resource}: {_amount(wanted)} wanted, {_amount(used)} of "
                    f"{_amount(has.get(resource, 0))} requested{held}"
                )
        if messages:
            yield NodeRefusal("NodeResourcesFit", tuple(messages), "; ".join(details))

    def missing_claim(self) -> str | None:
        """Return what the scheduler says where claims keep the pod from every node."""
        claims = {(each.metadata.namespace, each.metadata.name): each
                  for each in self._cluster.claims}  # fmt: skip
        classes = {each.metadata.name: each for each in self._cluster.classes}
        is_unbound = False
        for name in self._claim_names():
            claim = claims.get((self._pod.metadata.namespace, name))
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            known = classes.get(claim.spec.storage_class_name)
            waits = known is not None and known.volume_binding_mode == "WaitForFirstConsumer"
            is_unbound = is_unbound or not (claim.spec.volume_name or waits)
        return "pod has unbound immediate PersistentVolumeClaims" if is_unbound else None

    def _claim_names(self) -> Iterator[str]:
        for volume in self._pod.spec.volumes:
            if volume.persistent_volume_claim is not None:
                yield volume.persistent_volume_claim.claim_name
            elif volume.ephemeral is not None:
                yield f"{self._pod.metadata.name}-{volume.name}"

    def _bound_elsewhere(self, node: Node) -> Iterator[NodeRefusal]:
        names = set(self._claim_names())
        bound = {
            claim.spec.volume_name
            for claim in self._cluster.claims
            if claim.metadata.namespace == self._pod.metadata.namespace
            and claim.metadata.name in names
        }
        for volume in self._cluster.volumes:
            is_ours = volume.metadata.name in bound
            if is_ours and not matches_node(volume.spec.node_affinity.required, node):
                text = "node(s) didn't match PersistentVolume's node affinity"
                yield NodeRefusal("VolumeBinding", (text,), volume.metadata.name)
                return

    def _counted(self, constraint: SpreadConstraint) -> Counter[str]:
        # Matching pods by domain; a domain of which no node counts is not there at all.
        keys = {each.topology_key for each in self._spread}
        found: Counter[str] = Counter()
        for node in self._cluster.nodes:
            labels = node.metadata.labels or {}
            if not keys <= labels.keys():
                continue
            if constraint.node_affinity_policy == "Honor" and not wants_node(self._pod, node):
                continue
            tolerations = self._pod.spec.tolerations
            if constraint.node_taints_policy == "Honor" and untolerated(
                node.spec.taints, tolerations
            ):
                continue
            found[labels[constraint.topology_key]] += sum(
                other.metadata.deletion_timestamp is None
                and other.metadata.namespace == self._pod.metadata.namespace
                and matches_labels(constraint.label_selector, other.metadata.labels)
                for other in self._on.get(node.metadata.name, ())
            )
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
            is_own = matches_labels(constraint.label_selector, self._pod.metadata.labels)
            has_all = len(counts) >= constraint.min_domains
            least = min(counts.values(), default=2**31 - 1) if has_all else 0
            if counts[domain] + is_own - least > constraint.max_skew:
                text = f"{constraint.topology_key}={domain} has {counts[domain]}, the least {least}"
                yield NodeRefusal("PodTopologySpread", (refused,), text)
                return

    def _places(
        self, terms: Sequence[PodAffinityTerm], *, needs_all: bool
    ) -> Counter[tuple[str, str]]:
        # Of the pods that the terms are about: how many in each place.
        found: Counter[tuple[str, str]] = Counter()
        for node, others in self._on.items():
            labels = self._labels.get(node, {})
            for other in others:
                hits = [each for each in terms
                        if concerns(each, self._pod, other, self._namespaces)]  # fmt: skip
                if needs_all and len(hits) < len(terms):
                    continue
                for term in hits:
                    if term.topology_key in labels:
                        found[term.topology_key, labels[term.topology_key]] += 1
        return found

    def _existing(self) -> set[tuple[str, str]]:
        # Where pods that are there already want to be away from ours.
        found = set()
        for node, others in self._on.items():
            labels = self._labels.get(node, {})
            for other in others:
                anti = other.spec.affinity.pod_anti_affinity
                for term in anti.required_during_scheduling_ignored_during_execution:
                    if term.topology_key in labels and concerns(
                        term, other, self._pod, self._namespaces
                    ):
                        found.add((term.topology_key, labels[term.topology_key]))
        return found

    def _by_pods(self, node: Node) -> Iterator[NodeRefusal]:
        labels = node.metadata.labels or {}
        if self._near and not self._is_near(labels):
            yield NodeRefusal("InterPodAffinity", ("node(s) didn't match pod affinity rules",))
        if any(self._away_counts[t.topology_key, labels.get(t.topology_key, "")] > 0
               for t in self._away if t.topology_key in labels):  # fmt: skip
            text = "node(s) didn't match pod anti-affinity rules"
            yield NodeRefusal("InterPodAffinity", (text,))
        if not self._kept_away.isdisjoint(labels.items()):
            text = "node(s) didn't satisfy existing pods anti-affinity rules"
            yield NodeRefusal("InterPodAffinity", (text,))

    def _is_near(self, labels: Mapping[str, str]) -> bool:
        if any(term.topology_key not in labels for term in self._near):
            return False
        if all(self._near_counts[t.topology_key, labels[t.topology_key]] > 0 for t in self._near):
            return True
        # The first of a group that wants to be near its own kind may go anywhere.
        return not self._near_counts and all(
            concerns(term, self._pod, self._pod, self._namespaces) for term in self._near
        )


def requests(pod: ScheduledPod) -> dict[str, int]:
    """Return thousandths of every resource that the pod requests."""
    spec = pod.spec
    containers, init = (
        [_amounts_of(each) for each in some] for some in (spec.containers, spec.init_containers)
    )
    pod_level = None if spec.resources is None else amounts(spec.resources.requests)
    overhead = amounts(spec.overhead)
    names = {name for each in (*containers, *init) for name in each.requests}
    return {
        name: pod_request(name, containers, init, pod_level=pod_level, overhead=overhead)
        for name in names | (pod_level or {}).keys() | overhead.keys()
    }


def _amounts_of(container: ScheduledContainer) -> ContainerAmounts:
    has = amounts(container.resources.requests)
    return ContainerAmounts(has, container.restart_policy == "Always")


def _rank(resource: str) -> tuple[int, str]:
    known = ("cpu", "memory", "ephemeral-storage")
    return (known.index(resource) if resource in known else len(known), resource)


def _amount(milli: int) -> str:
    whole = milli // 1000
    if milli % 1000:
        return f"{milli}m"
    for power, suffix in ((30, "Gi"), (20, "Mi")):
        if whole >= 2**power and whole % 2**20 == 0:
            return f"{whole / 2**power:.4g}{suffix}"
    return str(whole)
