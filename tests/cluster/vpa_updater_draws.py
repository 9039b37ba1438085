"""Random inputs of the updater's kinds of vpa.yaml, drawn towards the borders."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from random import Random

from tests.cluster import vpa_boost_draws
from tests.cluster.vpa_drawn_objects import (
    NAMES,
    Json,
    boost,
    boosting,
    container,
    container_status,
    likely,
    pod,
    policies,
    recommendation,
    recommended,
    resizing,
    some,
)

Draw = Callable[[Random], dict[str, Json]]

SIZED = ("ReplicationController", "ReplicaSet", "StatefulSet", "DaemonSet")
NOW = 1_772_452_800


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _near(random: Random, seconds: float) -> float:
    return seconds + random.choice((-seconds, -seconds, -1, -1, 0, 1, seconds))


def update_priority(random: Random) -> dict[str, Json]:
    names = some(random)
    found = recommendation(random, names) if likely(random, 0.98) else None
    for entry in (found or {"containerRecommendations": []})["containerRecommendations"]:
        # Another recommender than ours may know more resources.
        if likely(random, 0.05):
            entry["target"]["ephemeral-storage"] = "1Gi"
    return {"pod": pod(random, names), "vpa": {"status": {"recommendation": found}}}


def _requirements(random: Random) -> list[Json]:
    resources = (["cpu"], ["memory"], ["cpu", "memory"])
    directions = ("TargetHigherThanRequests", "TargetLowerThanRequests")
    return [
        {"resources": random.choice(resources), "changeRequirement": random.choice(directions)}
        for _ in range(random.randint(1, 3))
    ]


def _run(random: Random, threshold: float) -> Json:
    # The last run of a container, which ended by its memory or otherwise.
    finished = NOW - _near(random, threshold)
    found: Json = {"exitCode": 137, "reason": random.choice(("OOMKilled", "OOMKilled", "Error"))}
    # Both are null of a container that never started.
    if likely(random, 0.97):
        found["finishedAt"] = _at(finished)
    if likely(random, 0.97):
        found["startedAt"] = _at(finished - abs(_near(random, threshold)))
    return {"terminated": found}


def _queued_pod(random: Random, number: int, lifetime: float, threshold: float) -> Json:
    names = some(random)
    found = pod(random, names, name=f"pod-{number}")
    found["metadata"]["uid"] = f"uid-{number}"
    if likely(random, 0.95):
        found["status"]["startTime"] = _at(NOW - _near(random, lifetime))
    statuses = found["status"].setdefault(
        "containerStatuses", [container_status(random, name) for name in names]
    )
    for status in statuses:
        if likely(random, 0.6):
            status["lastState"] = _run(random, threshold)
    return found


def _swap(pod: Json, entries: list[Json]) -> None:
    # What one container has too much the other lacks: far off, and no difference in all.
    targets = [each["target"] for each in entries]
    containers = pod["spec"]["containers"]
    for own, target in zip(containers, reversed(targets[: len(containers)]), strict=False):
        own["resources"] = {"requests": dict(target)}
    for status in pod["status"]["containerStatuses"]:
        status.pop("resources", None)


def _recommending(random: Random) -> Json:
    vpa: Json = {"metadata": {"name": "vpa", "namespace": "default"}, "spec": {}, "status": {}}
    if likely(random, 0.9):
        modes = ("Recreate", "InPlaceOrRecreate", "InPlace", "InPlace")
        vpa["spec"]["updatePolicy"] = {"updateMode": random.choice(modes)}
        if likely(random, 0.4):
            vpa["spec"]["updatePolicy"]["evictionRequirements"] = _requirements(random)
    entries = [recommended(random, name) for name in NAMES if likely(random, 0.8)]
    if likely(random, 0.5):
        vpa["spec"]["resourcePolicy"] = {"containerPolicies": policies(random, NAMES)}
        # What is recommended for a container that was switched off is left of before.
        if likely(random, 0.8):
            entries = [each for each in entries if not _is_off(vpa, each["containerName"])]
    if likely(random, 0.4):
        for each in entries:
            each.pop("lowerBound", None)
            each.pop("upperBound", None)
    if likely(random, 0.98):
        vpa["status"]["recommendation"] = {"containerRecommendations": entries}
    return vpa


def _is_off(vpa: Json, container: str) -> bool:
    entries = (vpa["spec"].get("resourcePolicy") or {}).get("containerPolicies", ())
    modes = {each["containerName"]: each.get("mode") for each in entries}
    return bool(modes.get(container, modes.get("*")) == "Off")


def update_queue(random: Random) -> dict[str, Json]:
    threshold = random.choice((1.0, 60.0, 600.0))
    lifetime = random.choice((1.0, 3600.0, 43200.0))
    count = random.choice((1, 2, 3, 12))
    own = random.choice((1, 30, 600, 601, 900)) if likely(random, 0.3) else None
    found: Json = {
        "now": _at(NOW + random.choice((0, 0, 0.5, -0.001))),
        "pods": [
            _queued_pod(random, number, lifetime, float(own or threshold))
            for number in range(count)
        ],
        "pod_update_threshold": random.choice((0.0, 0.05, 0.1, 0.1, 1.0)),
        "in_recommendation_bounds_eviction_lifetime_threshold_s": lifetime,
        "evict_after_oom_threshold_s": threshold,
        "per_vpa_config_gate": likely(random, 0.5),
    }
    vpa = found["vpa"] = _recommending(random)
    if vpa["spec"].get("updatePolicy") and own is not None:
        vpa["spec"]["updatePolicy"]["evictAfterOOMSeconds"] = own
    entries = vpa["status"].get("recommendation", {}).get("containerRecommendations", [])
    if len(entries) > 1 and likely(random, 0.2):
        for each in found["pods"]:
            _swap(each, entries)
    # Every pod has app. Where nothing is recommended the product asks no further, and upstream
    # with a threshold of 0 evicts.
    if all(each["containerName"] != "app" for each in entries):
        found["pod_update_threshold"] = 0.1
    if likely(random, 0.6):
        found["infeasible_attempts_by_pod_uid"] = {
            each["metadata"]["uid"]: recommendation(random, NAMES)
            for each in found["pods"]
            if likely(random, 0.5)
        }
    return found


def eviction_requirements(random: Random) -> dict[str, Json]:
    names = some(random)
    wanted = random.choice((None, [], *[_requirements(random)] * 8))
    # Where nothing is recommended nobody asks; upstream then takes no requirements for unmet.
    found = recommendation(random, names, 0.7 if wanted else 1.0)
    return {"pod": pod(random, names), "recommendation": found, "eviction_requirements": wanted}


def has_lower_recommendation(random: Random) -> dict[str, Json]:
    return {
        side: recommendation(random, NAMES) if likely(random, 0.95) else None
        for side in ("last_attempt", "new")
    }


def effective_resources(random: Random) -> dict[str, Json]:
    found = pod(random, NAMES[:2])
    if likely(random, 0.3):
        found["spec"]["initContainers"] = [container(random, random.choice(NAMES))]
    return {"pod": found, "container": random.choice(NAMES)}


def _limits(random: Random, count: int) -> dict[str, Json]:
    return {
        "configured_replicas": max(0, count + random.choice((-1, 0, 0, 0, 1, 2))),
        "min_replicas_flag": random.choice((0, 1, 2, 2, 3, count)),
        "vpa_min_replicas": random.choice((None, None, None, 1, 2, count + 1)),
        "eviction_tolerance": random.choice((0.0, 0.1, 0.25, 0.29, 0.3, 0.5, 0.5, 0.8, 1.0)),
    }


def disruption_sequence(random: Random) -> dict[str, Json]:
    count = random.choice((1, 2, 3, 4, 5, 7, 10, 31))
    pods: list[Json] = []
    for _ in range(count):
        phases = ("Running", "Running", "Running", "Running", "Pending", "Failed", "Succeeded")
        described: Json = {"phase": random.choice(phases)}
        if likely(random, 0.3):
            told = [each for each in resizing(random) if each["type"] != "Ready"]
            if told:
                described["resize_condition"] = told[0]
        if likely(random, 0.2):
            described["restart_on_resize"] = True
        if likely(random, 0.1):
            described["boosted"] = True
        pods.append(described)
    mode = random.choice(("Recreate", "Auto", "InPlaceOrRecreate", "InPlaceOrRecreate", "InPlace"))
    return {
        **_limits(random, count),
        "owner_kind": random.choice((*SIZED, *SIZED, "Job", "StrimziPodSet")),
        "pods": pods,
        "in_place_skip_disruption_budget": likely(random, 0.3),
        "update_mode": mode,
        "in_place_gate": likely(random, 0.8),
        "ops": _ops(random, count, mode),
    }


def _ops(random: Random, count: int, mode: str) -> list[Json]:
    # As a loop asks: whether in place first, and a resize that is seen is seen there.
    found: list[Json] = []
    at = 0.0
    for _ in range(random.randint(1, 3)):
        at += random.choice((0, 0, 1, 299, 300, 300.5, 3300, 3600, 3601))
        for number in random.sample(range(count), count):
            asked = ["can_in_place"] if mode.startswith("InPlace") else []
            if not asked or (mode == "InPlaceOrRecreate" and likely(random, 0.5)):
                asked += random.choice((["can_evict"], ["can_evict", "evict"], ["evict"]))
            elif likely(random, 0.5):
                asked += ["in_place"]
            found += [{"op": op, "pod": number, "at_s": at} for op in asked]
    return found


def _owned(random: Random, kind: str, owner: str, number: int) -> Json:
    found = pod(random, some(random), name=f"pod-{number}")
    found["metadata"]["ownerReferences"] = [{"kind": kind, "name": owner, "controller": True}]
    if likely(random, 0.1):
        other = {"kind": "StrimziPodSet", "name": "rc", "controller": False}
        found["metadata"]["ownerReferences"].insert(0, other)
    found["status"]["phase"] = random.choice(("Running", "Running", "Running", "Pending"))
    if likely(random, 0.4):
        found["status"]["conditions"] = resizing(random)
    if likely(random, 0.1):
        _boost(found)
    return found


def _boost(pod: Json) -> None:
    pod["metadata"].setdefault("annotations", {})["vpaCpuStartupBoost/app"] = "{}"


def disruption_group(random: Random) -> dict[str, Json]:
    count = random.choice((1, 2, 3, 4, 6))
    kind = random.choice((*SIZED, *SIZED, "Job", "StrimziPodSet"))
    pods = []
    for number in range(count):
        # One other controller is gone while its pods are not yet, one has a group of its own.
        others = (("ReplicaSet", "gone"), ("Job", "other"), ("Job", "rc"))
        owner = random.choice(others) if likely(random, 0.2) else (kind, "rc")
        pods.append(_owned(random, *owner, number))
    return {
        **_limits(random, count),
        "owner_kind": kind,
        "update_mode": random.choice(("Recreate", "InPlaceOrRecreate", "InPlace")),
        "now": _at(NOW),
        "pods": pods,
        "in_place_skip_disruption_budget": likely(random, 0.2),
    }


def _seen(random: Random) -> dict[str, Json]:
    ago = random.choice((0, 1, 299, 300, 301, 3599, 3600, 3601, 10**6))
    return {"last_in_place_attempt": _at(NOW - ago), "now": _at(NOW)}


def can_in_place(random: Random) -> dict[str, Json]:
    count = random.choice((1, 2, 3, 4))
    pods = [_owned(random, "ReplicationController", "rc", number) for number in range(count)]
    for number, each in enumerate(pods):
        each["metadata"]["uid"] = f"uid-{number}"
    selected = random.randrange(count)
    if likely(random, 0.2):
        # Nothing says how long its boost lasts: it ends as soon as the pod is ready.
        _boost(pods[selected])
        ready = {"type": "Ready", "status": random.choice(("True", "True", "False"))}
        told = pods[selected]["status"].get("conditions", ())
        others = [each for each in told if each["type"] != "Ready"]
        pods[selected]["status"]["conditions"] = [*others, ready]
    mode = random.choice(("InPlaceOrRecreate", "InPlace"))
    vpa: Json = {"spec": {"updatePolicy": {"updateMode": mode}}}
    if likely(random, 0.95):
        vpa["status"] = {"recommendation": recommendation(random, NAMES)}
    refused = {each["metadata"]["uid"]: recommendation(random, NAMES) for each in pods}
    found: Json = {
        **_limits(random, count),
        **_seen(random),
        "pods": pods,
        "selected_pod": selected,
        "in_place_skip_disruption_budget": likely(random, 0.3),
        "vpa": vpa,
        "group_update_mode": mode,
        "infeasible_attempts_by_pod_uid": refused if likely(random, 0.4) else None,
    }
    # The cases of this kind have the flag alone.
    del found["vpa_min_replicas"]
    return found


def can_in_place_status(random: Random) -> dict[str, Json]:
    mode = random.choice(("InPlaceOrRecreate", "InPlace"))
    return {"update_mode": mode, "conditions": resizing(random), **_seen(random)}


def resize_status(random: Random) -> dict[str, Json]:
    return {"conditions": resizing(random)}


def non_disruptive_resize(random: Random) -> dict[str, Json]:
    return {"pod": pod(random, some(random))}


def match_vpa_for_pod(random: Random) -> dict[str, Json]:
    kinds = (*["StatefulSet"] * 6, "ReplicaSet")
    found = pod(random, ("app",))
    if likely(random, 0.95):
        found["metadata"]["ownerReferences"] = [
            {"kind": "Node", "name": "n"},
            {
                "kind": random.choice(kinds),
                "name": random.choice(("a", "a", "a", "b")),
                "controller": True,
            },
        ][random.randrange(2) :]
    found["metadata"]["labels"] = {"app": random.choice(("a", "b")), "tier": "web"}
    vpas = []
    for number in random.sample(range(9), random.randint(1, 6)):
        modes = ("Off", "Initial", "Recreate", "Auto")
        vpa: Json = {
            "metadata": {
                "name": f"vpa-{number}",
                "namespace": random.choice(("default", "default", "default", "other")),
                "creationTimestamp": _at(NOW + random.choice((-1, 0, 0, 1))),
            },
            "spec": {},
        }
        if likely(random, 0.9):
            vpa["spec"]["targetRef"] = {
                "kind": random.choice(kinds),
                "name": random.choice(("a", "a", "a", "b")),
            }
        if likely(random, 0.8):
            vpa["spec"]["updatePolicy"] = {"updateMode": random.choice(modes)}
        if likely(random, 0.3):
            vpa["spec"]["startupBoost"] = boost(random)
        if likely(random, 0.4):
            vpa["spec"]["resourcePolicy"] = {"containerPolicies": boosting(random)}
        vpas.append(vpa)
    selectors = ("", "tier", "!tier", "app=a", "app = b", "app!=a", "app in (a,b)", "app notin (b)")
    return {"pod": found, "vpas": vpas, "label_selector_of_target": random.choice(selectors)}


DRAWS: Mapping[str, Draw] = {
    **vpa_boost_draws.DRAWS,
    **{
        draw.__name__: draw
        for draw in (
            update_queue,
            update_priority,
            disruption_sequence,
            can_in_place,
            disruption_group,
            can_in_place_status,
            resize_status,
            eviction_requirements,
            effective_resources,
            has_lower_recommendation,
            non_disruptive_resize,
            match_vpa_for_pod,
        )
    },
}


def _switches_off(inputs: Json) -> bool:
    # What is recommended for a container that was switched off since: upstream goes by it.
    recommended = inputs["vpa"]["status"].get("recommendation", {})
    entries = recommended.get("containerRecommendations", ())
    return any(_is_off(inputs["vpa"], each["containerName"]) for each in entries)


def _is_of_another_kind(inputs: Json) -> bool:
    return inputs["owner_kind"] not in (*SIZED, "Job")


DEVIATIONS: Mapping[str, Mapping[str, Callable[[Json], bool]]] = {
    **vpa_boost_draws.DEVIATIONS,
    "update_queue": {"D19": _switches_off},
    "disruption_sequence": {"D2": _is_of_another_kind},
    "disruption_group": {"D2": _is_of_another_kind},
}
