"""What the HPA's decisions and the templates of workloads say about pods to come. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from podscale.core.json_decoder import decode_json
from podscale.kube.client.resource import DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, Resource
from podscale.kube.client.wire import LabelSelector, ObjectMeta, decode
from podscale.nodes.cluster.workloads import WorkloadReference, WorkloadVpa
from podscale.nodes.decide.headroom import ComingPods
from podscale.nodes.scheduling.matching import matches_labels
from podscale.nodes.scheduling.objects import ScheduledPod, ScheduledPodSpec
from podscale.nodes.scheduling.requests import requests

WITH_TEMPLATES: Mapping[str, Resource] = {
    each.kind: each for each in (DEPLOYMENTS, STATEFUL_SETS, REPLICA_SETS)
}
# What of a pod decides on which nodes it may run: these as they are, others see ``_placing``.
_PLACING = ("nodeSelector", "tolerations", "schedulerName")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class ScalingDecisionSpec(Struct, frozen=True, rename="camel"):
    scale_target_ref: WorkloadReference = WorkloadReference()
    max_replicas: int = 0


class ScalingDecisionStatus(Struct, frozen=True):
    """``status``: the explanation."""

    replicas: int | None = None  # after the decision
    proposals: tuple[int | None, ...] = ()  # one for each metric, limits aside
    forecast: int | None = None


class ScalingDecision(Struct, frozen=True):
    metadata: ObjectMeta
    spec: ScalingDecisionSpec = ScalingDecisionSpec()
    status: ScalingDecisionStatus = ScalingDecisionStatus()


class TemplateOfPods(Struct, frozen=True):
    """``spec.template``; its spec as it came."""

    spec: msgspec.Raw
    metadata: ObjectMeta = ObjectMeta()


class TemplatedSpec(Struct, frozen=True):
    template: TemplateOfPods


class TemplatedWorkload(Struct, frozen=True):
    spec: TemplatedSpec


def proposed(decision: ScalingDecision) -> int | None:
    """Return the size that the autoscaler would give without its policies; None: not known."""
    status = decision.status
    known = [each for each in (*status.proposals, status.forecast) if each is not None]
    return min(max(known), decision.spec.max_replicas) if known else None


def coming(
    workload: str, count: int, template: TemplatedWorkload, vpas: Iterable[WorkloadVpa]
) -> ComingPods:
    """Return pods of the template; ``vpas`` are those that size the workload."""
    placing = _placing(template.spec.template, workload.partition("/")[0])
    spec = decode(template.spec.template.spec, ScheduledPodSpec)
    wanted = requests(ScheduledPod(ObjectMeta(), _sized(spec, vpas)))
    return ComingPods(
        workload,
        count,
        wanted.get("cpu", 0),
        -(-wanted.get("memory", 0) // 1000),
        msgspec.json.encode(placing, order="deterministic").decode() if placing else "",
    )


def _placing(template: TemplateOfPods, namespace: str) -> dict[str, Any]:
    # As the pod spec of what holds room. What lacks a labelSelector is about those alike.
    told = decode_json(template.spec)
    placing = {name: told[name] for name in _PLACING if told.get(name)}
    affinity = told.get("affinity") or {}
    kept = {"nodeAffinity": affinity["nodeAffinity"]} if affinity.get("nodeAffinity") else {}
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = [term for term in (affinity.get(kind) or {}).get(_REQUIRED) or ()
                 if term.get("labelSelector") is not None]  # fmt: skip
        own = _of_own_kind(terms, template) if kind == "podAntiAffinity" else ()
        found = [*(_from_elsewhere(term, namespace) for term in terms),
                 *({"topologyKey": term["topologyKey"]} for term in own)]  # fmt: skip
        if found:
            kept[kind] = {_REQUIRED: found}
    hard = [each for each in told.get("topologySpreadConstraints") or ()
            if each["whenUnsatisfiable"] == "DoNotSchedule"]  # fmt: skip
    spread = [{name: each[name] for name in ("maxSkew", "topologyKey", "whenUnsatisfiable")}
              for each in _of_own_kind(hard, template)]  # fmt: skip
    more = {"affinity": kept, "topologySpreadConstraints": spread}
    return placing | {name: value for name, value in more.items() if value}


def _of_own_kind(
    terms: Iterable[Mapping[str, Any]], template: TemplateOfPods
) -> Iterator[Mapping[str, Any]]:
    # Those that are about the pods of the template themselves.
    for term in terms:
        selector = msgspec.convert(term.get("labelSelector"), LabelSelector | None)
        if matches_labels(selector, template.metadata.labels):
            yield term


def _from_elsewhere(term: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    # The same term for a pod of another namespace, which lacks the labels that keys would name.
    kept = {name: value for name, value in term.items() if not name.endswith("LabelKeys")}
    if not (kept.get("namespaces") or kept.get("namespaceSelector")):
        kept["namespaces"] = [namespace]
    return kept


def _sized(spec: ScheduledPodSpec, vpas: Iterable[WorkloadVpa]) -> ScheduledPodSpec:
    targets = {
        each.container_name: each.target
        for vpa in vpas
        if vpa.spec.update_policy.update_mode != "Off"
        for each in vpa.status.recommendation.container_recommendations
        if each.target
    }
    containers = tuple(
        replace(each, resources=replace(
            each.resources, requests={**(each.resources.requests or {}), **targets[each.name]}
        ))
        if each.name in targets else each
        for each in spec.containers
    )  # fmt: skip
    return replace(spec, containers=containers)
