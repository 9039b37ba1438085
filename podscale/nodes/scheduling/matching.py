"""Selectors, taints and ports as the scheduler matches them. Pure.

Follows k8s.io/component-helpers/scheduling/corev1 and ``pkg/scheduler/framework``, Kubernetes 1.37.
"""

import re
from collections.abc import Iterable, Mapping

from podscale.core.selectors import selector as selectors
from podscale.kube.client.wire import LabelSelector, builtins
from podscale.kube.objects.cluster import Node, Taint
from podscale.nodes.scheduling.objects import (
    ContainerPort,
    NodeRequirement,
    NodeSelector,
    PodAffinityTerm,
    ScheduledPod,
    SpreadConstraint,
    Toleration,
)

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
_INTEGER = re.compile("[0-9]+")  # a sign would be no value of a label
_ANY_HOST = ("", "0.0.0.0")  # noqa: S104 - what a pod asks for, not what we bind


def matches_labels(selector: LabelSelector | None, labels: Mapping[str, str] | None) -> bool:
    """Return whether a label selector matches; none matches nothing."""
    if selector is None:
        return False
    return selectors.from_wire(builtins(selector)).matches(labels or {})


def is_spread_with(
    constraint: SpreadConstraint, pod: ScheduledPod, other: Mapping[str, str] | None
) -> bool:
    """Return whether a pod with these labels is one of those that ``pod`` is to be spread with."""
    own, labels = pod.metadata.labels or {}, other or {}
    same = all(labels.get(key) == own[key] for key in constraint.match_label_keys if key in own)
    return same and matches_labels(constraint.label_selector, labels)


def is_spread_over_nobody(constraint: SpreadConstraint, pod: ScheduledPod) -> bool:
    """Return whether no pod that is there counts: upstream takes an empty selector for none
    then, while ``pod`` itself matches it."""
    has_keys = any(key in (pod.metadata.labels or {}) for key in constraint.match_label_keys)
    selector = constraint.label_selector
    is_empty = selector is not None and not (selector.match_labels or selector.match_expressions)
    return is_empty and not has_keys


def matches_node(selector: NodeSelector | None, node: Node) -> bool:
    """Return whether one of the terms holds; no selector holds, an empty term never does."""
    if selector is None:
        return True
    labels, fields = node.metadata.labels or {}, {"metadata.name": node.metadata.name}
    return any(
        (term.match_expressions or term.match_fields)
        and all(_holds(each, labels) for each in term.match_expressions)
        and all(_holds(each, fields) for each in term.match_fields)
        for term in selector.node_selector_terms
    )


def required_affinity(pod: ScheduledPod) -> NodeSelector | None:
    return pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution


def wants_node(pod: ScheduledPod, node: Node) -> bool:
    """Return whether the pod's node selector and required affinity hold for the node."""
    labels = node.metadata.labels or {}
    by_selector = all(labels.get(k) == v for k, v in (pod.spec.node_selector or {}).items())
    return by_selector and matches_node(required_affinity(pod), node)


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """Return the first taint that keeps the pod away."""
    known = tuple(tolerations)
    for taint in taints:
        if taint.effect == "PreferNoSchedule":
            continue
        if not any(tolerates(each, taint) for each in known):
            return taint
    return None


def host_ports(pod: ScheduledPod) -> list[ContainerPort]:
    """Return the ports that the pod takes of its node."""
    running = [each for each in pod.spec.init_containers if each.restart_policy == "Always"]
    found = [port for each in (*running, *pod.spec.containers) for port in each.ports]
    return [port for port in found if port.host_port > 0]


def conflicts(one: ContainerPort, other: ContainerPort) -> bool:
    """Return whether both cannot be had on one node."""
    if (one.host_port, one.protocol) != (other.host_port, other.protocol):
        return False
    return one.host_ip == other.host_ip or one.host_ip in _ANY_HOST or other.host_ip in _ANY_HOST


def concerns(
    term: PodAffinityTerm,
    owner: ScheduledPod,
    pod: ScheduledPod,
    namespaces: Mapping[str, Mapping[str, str]],
) -> bool:
    """Return whether ``pod`` is one of those that a term of ``owner`` is about."""
    own = () if term.namespaces or term.namespace_selector else (owner.metadata.namespace,)
    namespace = pod.metadata.namespace
    is_inside = namespace in (*own, *term.namespaces) or (
        term.namespace_selector is not None
        and matches_labels(term.namespace_selector, namespaces.get(namespace, {}))
    )
    return is_inside and matches_labels(term.label_selector, pod.metadata.labels)


def _holds(requirement: NodeRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            if value is None or not (_is_integer(value) and _is_integer(requirement.values[0])):
                return False
            has, limit = int(value), int(requirement.values[0])
            return has > limit if operator == "Gt" else has < limit
    return False


def _is_integer(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and int(text) < 2**63


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether the taint does not keep away what has the toleration."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
