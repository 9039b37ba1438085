"""Random inputs of vpa.yaml's kinds about resources that are set and startup boosts."""

import json
from collections.abc import Callable, Mapping
from random import Random

from podscale.kube.objects.vpa import resource_list
from tests.cluster.vpa_drawn_objects import (
    NAMES,
    Json,
    boost,
    boosting,
    cores,
    drawn,
    likely,
    milli,
    pod,
    resources,
    some,
    written,
)

Draw = Callable[[Random], dict[str, Json]]


def boost_expiry(random: Random) -> dict[str, Json]:
    annotations = {
        f"vpaCpuStartupBoost/{name}": "{}" for name in (*NAMES, "gone") if likely(random, 0.6)
    }
    ready: Json = {"status": random.choice(("True", "True", "True", "False", "Unknown"))}
    # Upstream's clock runs while it is asked, so that nothing happens at this very second.
    ages = (0.5, 1.5, 9.5, 10.5, 59.5, 60.5, 299.5, 300.5, 10**6, "unknown_zero_time")
    ready["age_s"] = random.choice(ages)
    return {
        "annotations": {**annotations, "other": "kept"},
        "ready_condition": ready if likely(random, 0.95) else None,
        "startup_boost": boost(random) if likely(random, 0.6) else None,
        "container_policies": boosting(random),
    }


def _computed(random: Random, names: tuple[str, ...]) -> list[Json]:
    def listed() -> dict[str, str]:
        return written(random, drawn(random, 0.7))

    return [
        {"requests": listed(), "limits": listed() if likely(random, 0.5) else {}}
        if likely(random, 0.8)
        else {"requests": {}, "limits": {}}
        for _ in names
    ]


def inplace_resource_patch(random: Random) -> dict[str, Json]:
    names = some(random)
    found = pod(random, names)
    for name in names:
        if likely(random, 0.5):
            annotations = found["metadata"].setdefault("annotations", {})
            annotations[f"vpaCpuStartupBoost/{name}"] = _original(random)
    modes = ("Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace")
    spec: Json = {"updatePolicy": {"updateMode": random.choice(modes)}}
    if likely(random, 0.6):
        spec["startupBoost"] = boost(random)
    if likely(random, 0.5):
        spec["resourcePolicy"] = {"containerPolicies": boosting(random)}
    return {
        "pod": found,
        "pod_ready_for_s": random.choice((None, 0.5, 9.5, 10.5, 59.5, 60.5, 1000)),
        "vpa": {"metadata": {"name": "vpa"}, "spec": spec},
        "container_resources": _computed(random, names),
    }


def _original(random: Random) -> str:
    if likely(random, 0.1):
        return random.choice(("", "{}", "{", '{"requests":{"cpu":"x"}}', '{"requests":null}'))
    return json.dumps({"requests": {}, "limits": {}, **resources(random)})


def startup_boost_patch(random: Random) -> dict[str, Json]:
    names = some(random)
    found = pod(random, names)
    # A pod that is created has no status.
    found["status"] = {}
    modes = ("Off", "Initial", "Recreate", "InPlaceOrRecreate")
    spec: Json = {"updatePolicy": {"updateMode": random.choice(modes)}}
    if likely(random, 0.7):
        spec["startupBoost"] = boost(random)
    if likely(random, 0.5):
        spec["resourcePolicy"] = {"containerPolicies": boosting(random)}
    return {
        "pod": found,
        "vpa": {"metadata": {"name": "vpa", "namespace": "default"}, "spec": spec},
        "cpu_startup_boost_gate": likely(random, 0.8),
        "max_allowed_cpu_boost": cores(random, milli(random)) if likely(random, 0.3) else "0",
        "container_resources": _computed(random, names),
    }


def _asks_for_what_is_there(inputs: Json) -> bool:
    # Upstream sends it again, and an empty object where nothing is to follow.
    annotations = inputs["pod"]["metadata"].get("annotations") or {}
    is_off = inputs["vpa"]["spec"]["updatePolicy"]["updateMode"] == "Off"
    containers = inputs["pod"]["spec"]["containers"]
    for own, given in zip(containers, inputs["container_resources"], strict=True):
        if not own["resources"]:
            return True
        kept = annotations.get(f"vpaCpuStartupBoost/{own['name']}")
        try:
            recommends = any(given.values()) and not is_off
            if _overlap(own["resources"], given if recommends else json.loads(kept or "{}")):
                return True
        except ValueError:
            continue
    return False


def _overlap(present: Json, wanted: Json) -> bool:
    for field in ("requests", "limits"):
        held = resource_list(present.get(field) or {})
        asked = resource_list(wanted.get(field) or {})
        if any(name in held and held[name].nano == asked[name].nano for name in asked):
            return True
    return False


DRAWS: Mapping[str, Draw] = {
    "boost_expiry": boost_expiry,
    "inplace_resource_patch": inplace_resource_patch,
    "startup_boost_patch": startup_boost_patch,
}
DEVIATIONS: Mapping[str, Mapping[str, Callable[[Json], bool]]] = {
    "inplace_resource_patch": {"D11": _asks_for_what_is_there},
}
