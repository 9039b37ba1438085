"""What the HPA's decisions and the templates of workloads say about pods to come. Pure."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from podscale.kube.client.resource import DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, Resource
from podscale.kube.client.wire import ObjectMeta, decode
from podscale.nodes.cluster.workloads import WorkloadReference, WorkloadVpa
from podscale.nodes.decide.headroom import ComingPods
from podscale.nodes.scheduling.objects import ScheduledPod, ScheduledPodSpec
from podscale.nodes.scheduling.requests import requests

WITH_TEMPLATES: Mapping[str, Resource] = {
    each.kind: each for each in (DEPLOYMENTS, STATEFUL_SETS, REPLICA_SETS)
}
# What of a pod decides on which nodes it may run, whatever other pods are there.
_PLACING = ("nodeSelector", "tolerations", "schedulerName")


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
    raw = template.spec.template.spec
    told = msgspec.json.decode(raw)
    placing = {name: told[name] for name in _PLACING if told.get(name)}
    node_affinity = (told.get("affinity") or {}).get("nodeAffinity")
    if node_affinity:
        placing["affinity"] = {"nodeAffinity": node_affinity}
    wanted = requests(ScheduledPod(ObjectMeta(), _sized(decode(raw, ScheduledPodSpec), vpas)))
    return ComingPods(
        workload,
        count,
        wanted.get("cpu", 0),
        -(-wanted.get("memory", 0) // 1000),
        msgspec.json.encode(placing, order="deterministic").decode() if placing else "",
    )


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
