"""What the HPA's decisions and the templates of workloads say about pods to come, and how much
room is kept for them. Pure.

CPU is in thousandths of a core, memory in bytes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from podscale.core.json_decoder import decode_json
from podscale.kube.client.resource import DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, Resource
from podscale.kube.client.wire import LabelSelector, ObjectMeta, Quantity, decode
from podscale.kube.columns.pod_set import amounts
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from podscale.kube.objects.cluster import Taint
from podscale.kube.objects.vpa import Vpa, update_mode
from podscale.nodes.scheduling.objects import ScheduledPod, ScheduledPodSpec, matches_labels
from podscale.nodes.scheduling.requests import limits, requests

WITH_TEMPLATES: Mapping[str, Resource] = {
    each.kind: each for each in (DEPLOYMENTS, STATEFUL_SETS, REPLICA_SETS)
}
# What of a pod decides on which nodes it may run: these as they are, others see ``_placing``.
_PLACING = ("nodeSelector", "schedulerName")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_Key = tuple[str, str]

HOLD_S = 300.0  # for so long a workload is expected to reach what was once proposed


class HeadroomLimit(Struct, frozen=True):
    """The most that all headroom requests."""

    cpu_milli: int
    memory_bytes: int
    pods: int = 50


class ExpectedSize(Struct, frozen=True):
    """The pods that a workload is expected to have."""

    replicas: int
    until: float  # unix seconds


class ComingPods(Struct, frozen=True):
    """Pods of one workload that are expected and not there yet."""

    workload: str  # namespace/kind/name
    count: int
    cpu_milli: int
    memory_bytes: int
    placement: str = ""  # JSON of what decides about their nodes; equal texts are one class
    # What one takes of its namespace's ResourceQuotas, in thousandths by their names for it.
    quota: Mapping[str, int] = MappingProxyType({})

    @property
    def namespace(self) -> str:
        return self.workload.partition("/")[0]


class SizeClass(Struct, frozen=True, order=True):
    """Pods that one size of pause pod holds room for."""

    placement: str
    cpu_milli: int
    memory_bytes: int


def expected(known: ExpectedSize | None, proposed: int | None, now: float) -> ExpectedSize | None:
    """Return the size to expect: the largest that was proposed within ``HOLD_S``, so that a
    number that wavers does not; None where nothing was proposed for so long."""
    if known is not None and now > known.until:
        known = None
    if proposed is None or (known is not None and proposed < known.replicas):
        return known
    return ExpectedSize(proposed, now + HOLD_S)


def headroom(
    coming: Sequence[ComingPods], limit: HeadroomLimit, quotas: Mapping[str, Mapping[str, int]]
) -> dict[SizeClass, int]:
    """Return how many pods of each class hold room: within the limit, of whose pods one namespace
    has a third, and within ``quotas``, by namespace what its ResourceQuotas leave, in thousandths.

    Where it is not enough for all, workloads get one pod each in turn; those that request nothing
    need no room.
    """
    pods = [each for each in sorted(coming, key=lambda each: each.workload)
            if each.count > 0 and (each.cpu_milli or each.memory_bytes)]  # fmt: skip
    # By namespace ("": of all together) and resource; of namespaces in thousandths.
    room = {("", "cpu"): limit.cpu_milli, ("", "memory"): limit.memory_bytes}
    room["", "pods"] = limit.pods
    third = 1000 * max(limit.pods // 3, 1)
    for namespace in {each.namespace for each in pods}:
        quota = quotas.get(namespace, {})
        room |= {(namespace, resource): amount for resource, amount in quota.items()}
        room[namespace, "pods"] = min(quota.get("pods", third), third)
    takes = {each.workload: _takes(each, room) for each in pods}
    left = {each.workload: each.count for each in pods}
    found = Counter[SizeClass]()
    while pods:
        together = Counter[_Key]()
        for each in pods:
            together.update(takes[each.workload])
        # As many turns as all have room for are one step, a last one for each by itself another.
        turns = min(_times(room, together), *(left[each.workload] for each in pods))
        for each in pods:
            own = takes[each.workload]
            count = turns or min(_times(room, own), 1)
            for key, amount in own.items():
                room[key] -= count * amount
            found[size_class(each)] += count
            left[each.workload] = left[each.workload] - count if count else 0
        pods = [each for each in pods if left[each.workload]]
    return +found


def _takes(pods: ComingPods, room: Mapping[_Key, int]) -> dict[_Key, int]:
    # What one of them takes of it.
    size = size_class(pods)
    found = {("", "cpu"): size.cpu_milli, ("", "memory"): size.memory_bytes, ("", "pods"): 1}
    found[pods.namespace, "pods"] = 1000
    found |= {(pods.namespace, resource): amount for resource, amount in pods.quota.items()}
    return {key: amount for key, amount in found.items() if amount and key in room}


def _times(room: Mapping[_Key, int], takes: Mapping[_Key, int]) -> int:
    return max(min(room[key] // amount for key, amount in takes.items()), 0)


def size_class(pods: ComingPods) -> SizeClass:
    """Return the class of these pods: amounts rounded up, by less than a quarter."""
    cpu, memory = pods.cpu_milli, pods.memory_bytes
    return SizeClass(
        pods.placement,
        _quarter_up(cpu, 10 ** (len(str(cpu)) - 1)),  # people write tenths of cores
        _quarter_up(memory, 1 << max(memory.bit_length() - 1, 0)),  # and powers of two
    )


def _quarter_up(amount: int, power: int) -> int:
    # To quarters of ``power``, the largest of its kind up to the amount.
    step = max(power // 4, 1)
    return -(-amount // step) * step


class ScalingDecisionSpec(Struct, frozen=True, rename="camel"):
    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()
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


class QuotaSpec(Struct, frozen=True):
    hard: Mapping[str, Quantity] = {}
    scopes: tuple[str, ...] = ()


class QuotaStatus(Struct, frozen=True):
    used: Mapping[str, Quantity] = {}


class Quota(Struct, frozen=True):
    """A ResourceQuota."""

    metadata: ObjectMeta
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


def left_of(quotas: Iterable[Quota]) -> dict[str, dict[str, int]]:
    """Return what pods to come may still take, in thousandths by namespace and resource.

    Of pods that run on and request something are all quotas but those of two scopes; whether one
    is of their priority is not looked at.
    """
    found: dict[str, dict[str, int]] = {}
    for quota in quotas:
        if {"BestEffort", "Terminating"}.isdisjoint(quota.spec.scopes):
            room, used = found.setdefault(quota.metadata.namespace, {}), amounts(quota.status.used)
            for name, hard in amounts(quota.spec.hard).items():
                left = hard - used.get(name, 0)
                room[name] = min(room.get(name, left), left)
    return found


def proposed(decision: ScalingDecision) -> int | None:
    """Return the size that the autoscaler would give without its policies; None: not known."""
    status = decision.status
    known = [each for each in (*status.proposals, status.forecast) if each is not None]
    return min(max(known), decision.spec.max_replicas) if known else None


def coming(
    workload: str,
    count: int,
    template: TemplatedWorkload,
    vpas: Iterable[Vpa],
    taints: Iterable[Taint] = (),
) -> ComingPods:
    """Return pods of the template; ``vpas`` are those that size the workload, ``taints`` those of
    nodes on which pods of its namespace run."""
    placing = _placing(template.spec.template, workload.partition("/")[0])
    spec = decode(template.spec.template.spec, ScheduledPodSpec)
    # To these alone: whoever writes a template may tolerate the nodes of others.
    tolerated = [{"key": each.key, "operator": "Equal", "value": each.value, "effect": each.effect}
                 for each in sorted(set(taints), key=msgspec.structs.astuple)
                 if any(known.tolerates(each) for known in spec.tolerations)]  # fmt: skip
    if tolerated:
        placing["tolerations"] = tolerated
    pod = ScheduledPod(ObjectMeta(), _sized(spec, vpas))
    wanted = requests(pod)
    return ComingPods(
        workload,
        count,
        wanted.get("cpu", 0),
        -(-wanted.get("memory", 0) // 1000),
        msgspec.json.encode(placing, order="deterministic").decode() if placing else "",
        {"pods": 1000, "count/pods": 1000, **wanted,
         **{f"requests.{name}": amount for name, amount in wanted.items()},
         **{f"limits.{name}": amount for name, amount in limits(pod).items()}},
    )  # fmt: skip


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


def _sized(spec: ScheduledPodSpec, vpas: Iterable[Vpa]) -> ScheduledPodSpec:
    targets = {
        each.container_name: {name: str(amount) for name, amount in each.target.items()}
        for vpa in vpas
        if update_mode(vpa) != "Off" and vpa.status.recommendation is not None
        for each in vpa.status.recommendation.container_recommendations or ()
        if each.target
    }
    containers = tuple(
        replace(each, resources=replace(each.resources, requests={
            # The API server takes a limit for the request that is missing.
            **(each.resources.limits or {}), **(each.resources.requests or {}),
            **targets.get(each.name, {}),
        }))
        for each in spec.containers
    )  # fmt: skip
    return replace(spec, containers=containers)
