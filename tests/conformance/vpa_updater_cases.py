"""The updater's cases: priority, queue, budgets, resize, Lease."""

import math

from msgspec import to_builtins
from msgspec.structs import replace

from podscale.core.pod_state import PodReadiness
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.vpa import (
    ContainerPolicy,
    EvictionRequirement,
    ResourcePolicy,
    StartupBoost,
    Vpa,
    VpaRecommendation,
    VpaSpec,
    decode,
    resource_list,
)
from tests.conformance.vpa_admission_cases import calculated, ready_pod
from tests.conformance.vpa_capping_cases import ranges
from tests.conformance.vpa_shared import Json, decoded, seconds
from tests.pods import pod_of
from tests.unit.vpa.updater import worlds
from vpa.admission.patches.boost import expired
from vpa.admission.patches.patch import resize_entries
from vpa.admission.patches.resources import ContainerResources, PodResources, ResourcesUnavailable
from vpa.capping import cap_for_pod
from vpa.model.amounts import lower, wire
from vpa.updater.decide import disruption_budget, priority, resize
from vpa.updater.decide.decision import AdmissionLease, Pdb
from vpa.updater.decide.disruption_budget import DisruptionBudget, Owner, OwnerSize, budget_for
from vpa.updater.decide.disruption_budget import PodGroup as ReplicaGroup
from vpa.updater.decide.priority import UpdaterSettings


def _shown_priority(rank: priority.Priority) -> dict[str, Json]:
    return {
        "outside_recommended_range": rank.outside is not None,
        "scale_up": rank.scale_up,
        "resource_diff": rank.resource_diff,
    }


def update_priority(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    vpa = decode(i["vpa"], Vpa)
    return _shown_priority(priority.priority(pod_of(i["pod"]), vpa.status.recommendation))


def priority_less(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    first, second = (
        priority.Priority(scale_up=side["scale_up"], resource_diff=side["resource_diff"])
        for side in (i["a"], i["b"])
    )
    return {"a_before_b_is_lower": first.order < second.order}


def has_lower_recommendation(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    before = decoded(i["last_attempt"], VpaRecommendation)
    return {"result": priority.has_lower(before, decoded(i["new"], VpaRecommendation))}


def has_lower_resource(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    return {"result": lower(resource_list(i["a"] or {}), resource_list(i["b"] or {}))}


def effective_resources(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    pod = pod_of(i["pod"])
    requests, limits = pod.requests_and_limits(i["container"])
    known = (*pod.template.containers, *pod.states)
    present = any(container.name == i["container"] for container in known)
    # The dump shows what is not written of a container that exists as an empty list.
    return {
        "requests": wire(requests or {}) if present else None,
        "limits": wire(limits or {}) if present else None,
    }


def eviction_requirements(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    wanted = [decode(entry, EvictionRequirement) for entry in i["eviction_requirements"] or []]
    found = priority.unmet(
        pod_of(i["pod"]), decoded(i["recommendation"], VpaRecommendation), wanted
    )
    return {"admit": found is None}


def update_queue(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    vpa, now = decode(i["vpa"], Vpa), seconds(i["now"])
    settings = UpdaterSettings(
        update_threshold=i.get("pod_update_threshold", 0.1),
        lifetime_s=i.get("in_recommendation_bounds_eviction_lifetime_threshold_s", 43200.0),
        evict_after_oom_s=i.get("evict_after_oom_threshold_s", 600.0),
        per_vpa_config=i.get("per_vpa_config_gate", False),
        in_place=True,
    )
    refused = {
        uid: decode(entry, VpaRecommendation)
        for uid, entry in (i.get("infeasible_attempts_by_pod_uid") or {}).items()
    }
    queued, ranked = {}, []
    policy = vpa.spec.update_policy
    wanted = policy.eviction_requirements if policy is not None else None
    for raw in i["pods"]:
        pod = pod_of(raw)
        capped = cap_for_pod(vpa, pod, ranges(i)).recommendation
        if priority.was_tried(vpa, capped, refused.get(pod.uid)):
            continue
        found = priority.due(pod, vpa, capped, settings, now)
        if not found.is_due:
            continue
        queued[pod.name] = _shown_priority(found.priority)
        if priority.unmet(pod, capped, wanted) is None:
            ranked.append((pod, found.priority))
    ranked.sort(key=lambda entry: entry[1].order, reverse=True)
    order = [pod.name for pod, _ in ranked]
    return {"queued_priorities": queued, "update_order": order}


def _owner_size(kind: str, configured: int) -> OwnerSize:
    if kind == "DaemonSet":
        return OwnerSize(desired=configured)
    return OwnerSize(replicas=configured)


class Group:
    """One replica group in one loop, with the clock of its resizes."""

    def __init__(self, pods: list[PodView], vpa: Vpa, i: dict[str, Json], settings: Json) -> None:
        self.pods, self.vpa, self.settings = pods, vpa, settings
        kind = i.get("owner_kind", "ReplicationController")
        sizes = {Owner(kind, "rc"): _owner_size(kind, i["configured_replicas"])}
        self.budget: DisruptionBudget = budget_for(pods, vpa, sizes, settings)
        self.seen: dict[str, float] = {}

    def since(self, pod: PodView, now: float) -> float:
        if resize.state_of(pod) == "ResizeNone":
            return 0.0
        return now - self.seen.setdefault(pod.name, now)

    def can_evict(self, pod: PodView, now: float) -> bool:
        return resize.can_evict(pod, self.budget, self.since(pod, now))

    def evict(self, pod: PodView, now: float) -> bool:
        if not self.can_evict(pod, now):
            return False
        group = self.budget.group(pod)
        assert isinstance(group, ReplicaGroup)
        self.budget.began(group, pod, in_place=False)
        return True

    def can_in_place(
        self, pod: PodView, now: float, *, has_recommendation: bool = True, tried: bool = False
    ) -> str:
        return resize.can_update_in_place(
            pod,
            self.vpa,
            self.budget,
            self.settings,
            has_recommendation=has_recommendation,
            was_tried=tried,
            since_s=self.since(pod, now),
        )

    def can_unboost(self, pod: PodView, now: float) -> bool:
        settings = replace(self.settings, cpu_startup_boost=True)
        return resize.can_unboost(pod, self.budget, expired(pod, self.vpa, now), settings)

    def in_place(self, pod: PodView) -> bool:
        group = self.budget.group(pod)
        if not isinstance(group, ReplicaGroup):
            return False
        self.budget.began(group, pod, in_place=True)
        return True


def _vpa(i: dict[str, Json], mode: str) -> Vpa:
    policy: dict[str, Json] = {"updateMode": mode}
    if i.get("vpa_min_replicas") is not None:
        policy["minReplicas"] = i["vpa_min_replicas"]
    return decode({"spec": {"updatePolicy": policy}}, Vpa)


def _updater(i: dict[str, Json], *, in_place: bool) -> UpdaterSettings:
    return UpdaterSettings(
        min_replicas=i.get("min_replicas_flag", 2),
        eviction_tolerance=i.get("eviction_tolerance", 0.5),
        skip_disruption_budget=i.get("in_place_skip_disruption_budget", False),
        in_place=in_place,
    )


def disruption_group(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    pods = [pod_of(pod) for pod in i["pods"]]
    mode = i["update_mode"]
    group = Group(pods, _vpa(i, mode), i, _updater(i, in_place=True))
    now = seconds(i["now"])
    decisions: list[Json]
    actions: list[Json]
    if mode in ("InPlace", "InPlaceOrRecreate"):
        decisions = [group.can_in_place(pod, now) for pod in pods]
        actions = [group.in_place(pod) for pod in pods]
    else:
        decisions = [group.can_evict(pod, now) for pod in pods]
        actions = [group.evict(pod, now) for pod in pods]
    return {"decisions": decisions, "actions_succeed": actions}


def disruption_sequence(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    pods = []
    for number, described in enumerate(i["pods"]):
        raw: dict[str, Json] = {
            "metadata": {"name": f"pod-{number}", "namespace": "default"},
            "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": described["phase"]},
        }
        if described.get("owner") != "none":
            raw["metadata"]["ownerReferences"] = [
                {"kind": i["owner_kind"], "name": "rc", "controller": True}
            ]
        if described.get("restart_on_resize"):
            raw["spec"]["containers"][0]["resizePolicy"] = [
                {"resourceName": "cpu", "restartPolicy": "RestartContainer"}
            ]
        if "resize_condition" in described:
            raw["status"]["conditions"] = [described["resize_condition"]]
        if described.get("boosted"):
            raw["metadata"]["annotations"] = {"vpaCpuStartupBoost/c": ""}
        pods.append(pod_of(raw))
    settings = _updater(i, in_place=i.get("in_place_gate", False))
    group = Group(pods, _vpa(i, i["update_mode"]), i, settings)
    results: list[Json] = []
    for op in i["ops"]:
        pod, now = pods[op["pod"]], float(op.get("at_s", 0))
        match op["op"]:
            case "can_evict":
                results.append(group.can_evict(pod, now))
            case "evict":
                results.append(group.evict(pod, now))
            case "can_in_place":
                results.append(group.can_in_place(pod, now))
            case "in_place":
                results.append(group.in_place(pod))
            case _:
                raise NotImplementedError(op["op"])
    return {"results": results}


def can_in_place(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    pods = [pod_of(pod) for pod in i["pods"]]
    vpa = decode(i["vpa"], Vpa)
    settings = _updater(i, in_place=True)
    of_group = _vpa({}, i["group_update_mode"])
    group = Group(pods, of_group, i, settings)
    group.vpa = vpa
    pod, now = pods[i["selected_pod"]], seconds(i["now"])
    group.seen[pod.name] = seconds(i["last_in_place_attempt"])
    refused = {
        uid: decode(entry, VpaRecommendation)
        for uid, entry in (i["infeasible_attempts_by_pod_uid"] or {}).items()
    }
    found = vpa.status.recommendation
    # The dump leaves an empty recommendation out. Upstream's tests put one into every VPA
    # but those whose pods have a uid, which say themselves what is recommended, or nothing.
    has_recommendation = found is not None or not pod.uid
    tried = priority.was_tried(vpa, found, refused.get(pod.uid))
    decision = group.can_in_place(pod, now, has_recommendation=has_recommendation, tried=tried)
    return {
        "decision": decision,
        "evictable": group.can_evict(pod, now),
        "unboostable": group.can_unboost(pod, now),
    }


def can_in_place_status(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    def pod(number: int) -> PodView:
        raw: dict[str, Json] = {
            "metadata": {
                "name": f"pod-{number}",
                "ownerReferences": [
                    {"kind": "ReplicationController", "name": "rc", "controller": True}
                ],
            },
            "status": {"phase": "Running"},
        }
        if number == 0:
            raw["status"]["conditions"] = i["conditions"]
        return pod_of(raw)

    pods = [pod(number) for number in range(3)]
    settings = UpdaterSettings(in_place=True)
    group = Group(pods, _vpa({}, i["update_mode"]), {"configured_replicas": 3}, settings)
    group.seen["pod-0"] = seconds(i["last_in_place_attempt"])
    return {"decision": group.can_in_place(pods[0], seconds(i["now"]))}


def resize_status(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    return {"status": resize.state_of(pod_of({"status": {"conditions": i["conditions"]}}))}


def non_disruptive_resize(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    return {"result": resize.is_non_disruptive(pod_of(i["pod"]))}


def _in_place(decision: str) -> tuple[PodView, dict[str, Json]]:
    """Return a pod that is due and gets this in-place decision, and what is known of it."""
    if decision == "InPlaceApproved":
        return worlds.pod(), {}
    if decision == "InPlaceInfeasibleCached":
        return worlds.pod(), {"was_refused": worlds.vpa().status.recommendation}
    # Its spec asks for what is wanted already.
    asked = {"cpu": "500m", "memory": "512Mi"}
    runs = {"requests": {"cpu": "100m", "memory": "512Mi"}}
    reason = "Infeasible" if decision == "InPlaceInfeasible" else "Deferred"
    pending = {"type": "PodResizePending", "status": "True", "reason": reason}
    pod = worlds.pod(
        requests=asked, conditions=[pending], containers=[{"name": "app", "resources": runs}]
    )
    return pod, {"resize_since_s": 301.0 if decision == "InPlaceEvict" else 1.0}


def updater_mode_dispatch(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    mode, may_evict = i["update_mode"], i["can_evict"]
    pod, known = _in_place(i["in_place_decision"])
    settings = UpdaterSettings(in_place=i.get("in_place_gate", True))
    pdb = None if may_evict else Pdb("web", refuses=True)
    counts = {"evictions": 0, "in_place_attempts": 0, "infeasible_recorded": 0}
    for _ in range(i["pods"]):
        step = worlds.decided(pod, worlds.vpa(mode), settings=settings, pdb=pdb, **known)
        action = step.action
        counts["infeasible_recorded"] += step.record_infeasible
        if action == "resize":
            counts["in_place_attempts"] += 1
            if i["in_place_patch_fails"]:
                after = resize.after_refused_resize(mode, may_evict=may_evict, node_capacity=False)
                action = after.action
        counts["evictions"] += action == "evict"
    return {**counts, "selector_fetched": resize.updates(mode, in_place_gate=True)}


def rate_limiter(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    found = disruption_budget.rate_limit(i["rate"], i["burst"])
    return {"unlimited": found.rate is None, "rate": found.rate, "burst": found.burst}


def lease_validity(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    now = 1e9

    def at(age: float | None) -> float | None:
        return now - age if age is not None else None

    lease = AdmissionLease(
        "vpa-admission-controller", at(i["creation_age_s"]), at(i["renew_age_s"])
    )
    return {"valid": lease.is_alive(now, i["timeout_s"])}


def boost_expiry(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    pod = pod_of({"metadata": {"annotations": i["annotations"]}})
    ready, now = i["ready_condition"], 2e9
    if ready is not None:
        age = ready["age_s"]
        since = math.nan if isinstance(age, str) else now - age
        pod = replace(pod, ready=PodReadiness[ready["status"].upper()], ready_since=since)
    vpa = Vpa(
        spec=VpaSpec(
            startup_boost=decoded(i["startup_boost"], StartupBoost),
            resource_policy=ResourcePolicy(
                tuple(decode(entry, ContainerPolicy) for entry in i["container_policies"] or [])
            ),
        )
    )
    return {"expired": expired(pod, vpa, now)}


def inplace_resource_patch(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    pod, now = ready_pod(pod_of(i["pod"]), i["pod_ready_for_s"])
    vpa = decode(i["vpa"], Vpa)
    wanted = calculated(i)
    assert isinstance(wanted, PodResources)
    off = (vpa.spec.update_policy is not None) and vpa.spec.update_policy.update_mode == "Off"
    computed = tuple(ContainerResources() for _ in wanted.containers) if off else wanted.containers
    found = resize_entries(pod, vpa, computed, expired(pod, vpa, now))
    if isinstance(found, ResourcesUnavailable):
        return {"error": True, "patches": []}
    return {"error": False, "patches": [to_builtins(entry) for entry in found]}
