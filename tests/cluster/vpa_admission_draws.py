"""Random inputs of the admission and capping kinds of vpa.yaml, drawn towards the borders.

Objects are as an API server lets them through: a limit is not below its request, and a
request that is not given where there is a limit is that limit.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from podscale.core.quantity import parse
from podscale.kube.objects.vpa import ResourcePolicy, is_off
from tests.conformance.vpa_shared import decoded

Json = Any
Draw = Callable[[Random], dict[str, Json]]

# From small to large.
_CPU = ("0", "1m", "5m", "10m", "100m", "250m", "999m", "1", "1001m", "1.5", "2", "3", "7", "64")
_MEMORY = (
    "0", "1000", "999Ki", "1Mi", "50M", "64Mi", "100Mi", "128Mi", "1G", "1Gi", "3Gi", "5000000001",
    "64Gi",
)  # fmt: skip
_SCALES: Mapping[str, Sequence[str]] = {"cpu": _CPU, "memory": _MEMORY}
# What an object may hold and the webhook has to judge: below a milli-core, below a byte.
_ODD = ("100u", "1500u", "0.0005", "1.5", "-1", "0", "1", "500m", "0.9999", "-0.5", "1Ki")
_SMALLEST = {"cpu": 10**6, "memory": 10**9}  # in nano
_CONTAINERS = ("app", "side", "proxy")
_MODES = ("Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace", "Auto")


def _amounts(random: Random, share: float = 0.8) -> dict[str, str]:
    return {
        resource: random.choice(scale)
        for resource, scale in _SCALES.items()
        if random.random() < share
    }


def _ordered(
    random: Random, count: int, share: float = 0.8, *, least: int = 0
) -> list[dict[str, str]]:
    """Return lists of amounts, each resource's from small to large, from a place in its scale."""
    found: list[dict[str, str]] = [{} for _ in range(count)]
    for resource, scale in _SCALES.items():
        places = sorted(random.randrange(least, len(scale)) for _ in found)
        for each, place in zip(found, places, strict=True):
            if random.random() < share:
                each[resource] = scale[place]
    return found


def _resources(random: Random) -> dict[str, Json]:
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    for resource, scale in _SCALES.items():
        request, limit = sorted(random.randrange(len(scale)) for _ in range(2))
        if random.random() < 0.2:
            request = limit
        kept = random.randrange(4)
        if kept:
            requests[resource] = scale[request]
        if kept > 1:
            limits[resource] = scale[limit]
    found: dict[str, Json] = {"requests": requests, "limits": limits}
    return {name: each for name, each in found.items() if each}


def _annotations(random: Random, names: Sequence[str]) -> dict[str, str] | None:
    if random.random() < 0.4:
        return None
    found = {}
    if random.random() < 0.3:
        found["a"] = "b"
    for name in names:
        if random.random() < 0.3:
            found[f"vpaCpuStartupBoost/{name}"] = json.dumps(_resources(random))
    return found or None


def _pod(random: Random) -> dict[str, Json]:
    names = random.sample(_CONTAINERS, random.choice((1, 1, 2, 3)))
    pod: dict[str, Json] = {
        "metadata": {"name": "pod", "namespace": "default", "labels": {"app": "x"}},
        "spec": {"containers": [{"name": name, "resources": _resources(random)} for name in names]},
    }
    annotations = _annotations(random, names)
    if annotations is not None:
        pod["metadata"]["annotations"] = annotations
    if random.random() < 0.3:
        pod["spec"]["initContainers"] = [{"name": "init", "resources": _resources(random)}]
    if random.random() < 0.3:
        pod["status"] = {
            "containerStatuses": [
                {"name": name, "resources": _resources(random)}
                for name in names
                if random.random() < 0.7
            ]
        }
    return pod


def _boost(random: Random) -> dict[str, Json]:
    cpu: dict[str, Json] = {"type": random.choice(("Factor", "Quantity"))}
    if cpu["type"] == "Factor" or random.random() < 0.2:
        cpu["factor"] = random.choice((1, 2, 3, 100))
    if cpu["type"] == "Quantity" or random.random() < 0.2:
        cpu["quantity"] = random.choice(_CPU)
    if random.random() < 0.7:
        cpu["durationSeconds"] = random.choice((0, 1, 60))
    return {"cpu": cpu} if random.random() < 0.9 else {}


def _policy(random: Random, name: str) -> dict[str, Json]:
    policy: dict[str, Json] = {"containerName": name}
    least, most = _ordered(random, 2, 0.6)
    if least and random.random() < 0.5:
        policy["minAllowed"] = least
    if most and random.random() < 0.5:
        policy["maxAllowed"] = most
    if random.random() < 0.3:
        policy["controlledValues"] = random.choice(("RequestsOnly", "RequestsAndLimits"))
    if random.random() < 0.3:
        policy["controlledResources"] = random.choice(([], ["cpu"], ["memory"], ["cpu", "memory"]))
    if random.random() < 0.1:
        policy["mode"] = random.choice(("Auto", "Off"))
    if random.random() < 0.2:
        policy["startupBoost"] = _boost(random)
    return policy


def _recommended(random: Random, name: str) -> dict[str, Json]:
    lower, target, upper = _ordered(random, 3, 0.95, least=1)
    found = {"containerName": name, "target": target}
    if random.random() < 0.8:
        found |= {"lowerBound": lower, "upperBound": upper}
    if random.random() < 0.8:
        found["uncappedTarget"] = _amounts(random)
    return found


def _vpa(random: Random) -> dict[str, Json]:
    spec: dict[str, Json] = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    }
    if random.random() < 0.8:
        spec["updatePolicy"] = {"updateMode": random.choice(_MODES)}
    if random.random() < 0.6:
        names = random.sample((*_CONTAINERS, "*"), random.randrange(1, 4))
        spec["resourcePolicy"] = {"containerPolicies": [_policy(random, each) for each in names]}
    if random.random() < 0.2:
        spec["startupBoost"] = _boost(random)
    vpa = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "web-vpa", "namespace": "default"},
        "spec": spec,
    }
    if random.random() < 0.95:
        names = [each for each in (*_CONTAINERS, "gone") if random.random() < 0.8]
        entries = [_recommended(random, each) for each in names]
        vpa["status"] = {"recommendation": {"containerRecommendations": entries}}
    return vpa


def _range(random: Random, kind: str) -> dict[str, Json] | None:
    if random.random() < 0.5:
        return None
    least, most = _ordered(random, 2, 0.6)
    found: dict[str, Json] = {"type": kind}
    if least:
        found["min"] = least
    if most:
        found["max"] = most
    if kind == "Container" and random.random() < 0.4:
        found["default"] = _amounts(random)
    return found


def capping(random: Random) -> dict[str, Json]:
    """Draw what one pod's recommendation is cut to."""
    return {
        "pod": _pod(random),
        "vpa": _vpa(random),
        "container_limit_range": _range(random, "Container"),
        "pod_limit_range": _range(random, "Pod"),
    }


def admission_patch(random: Random) -> dict[str, Json]:
    """Draw a pod at its creation."""
    inputs = capping(random)
    inputs["pod"].pop("status", None)
    inputs["cpu_startup_boost_gate"] = random.random() < 0.6
    inputs["max_allowed_cpu_boost"] = random.choice(("0", "0", "500m", "1", "4"))
    return inputs


def inplace_patch(random: Random) -> dict[str, Json]:
    """Draw a running pod that is to be resized."""
    inputs = capping(random)
    inputs["pod"]["metadata"].setdefault("annotations", {"vpaObservedContainers": "app"})
    if random.random() < 0.5:
        inputs["ready_for_s"] = random.choice((0, 0.5, 2, 59, 61, 600))  # there a clock runs
    return inputs


def limit_range_merge(random: Random) -> dict[str, Json]:
    """Draw the LimitRanges of a namespace; defaults in one of them only.

    Of several the last one counts, and which that is a map decides.
    """
    items = []
    for number in range(random.randrange(4)):
        kinds = random.sample(("Container", "Pod", "PersistentVolumeClaim"), random.randrange(1, 3))
        limits = [each for kind in kinds if (each := _range(random, kind))]
        for each in limits if number else ():
            each.pop("default", None)
        items.append({"metadata": {"name": f"range-{number}"}, "spec": {"limits": limits}})
    return {"limit_ranges": items, "type": random.choice(("Container", "Pod"))}


def _odd_policy(random: Random) -> dict[str, Json]:
    policy = _policy(random, random.choice(("app", "*", "")))
    for bound in ("minAllowed", "maxAllowed"):
        if random.random() < 0.4:
            policy[bound] = {
                name: random.choice(_ODD) for name in random.sample(("cpu", "memory", "gpu"), 2)
            }
    if random.random() < 0.3:
        policy["mode"] = random.choice(("Auto", "Off", "Best"))
    if random.random() < 0.3:
        policy["controlledResources"] = random.sample(("cpu", "memory", "gpu", "disk"), 2)
    for name, values in {
        "oomBumpUpRatio": _ODD,
        "oomMinBumpUp": _ODD,
        "memoryAggregationIntervalSeconds": (-1, 0, 1, 86400),
        "memoryAggregationIntervalCount": (-1, 0, 1, 8),
    }.items():
        if random.random() < 0.2:
            policy[name] = random.choice(values)
    if random.random() < 0.3:
        policy["startupBoost"] = _odd_boost(random)
    return policy


def _odd_boost(random: Random) -> dict[str, Json]:
    boost = _boost(random)
    if "cpu" in boost:
        boost["cpu"]["type"] = random.choice(("Factor", "Quantity", "Best", ""))
        if random.random() < 0.4:
            boost["cpu"]["factor"] = random.choice((-1, 0, 1))
        if random.random() < 0.4:
            boost["cpu"]["quantity"] = random.choice(_ODD)
    return boost


def validate_vpa(random: Random) -> dict[str, Json]:
    """Draw a hand-written VPA with a little of everything wrong."""
    spec: dict[str, Json] = {}
    if random.random() < 0.8:
        spec["targetRef"] = {"kind": "Deployment", "name": "web"}
    if random.random() < 0.7:
        spec["updatePolicy"] = update = {}
        if random.random() < 0.9:
            update["updateMode"] = random.choice((*_MODES, "Best", ""))
        if random.random() < 0.3:
            update["minReplicas"] = random.choice((-1, 0, 1, 3))
        if random.random() < 0.3:
            update["evictAfterOOMSeconds"] = random.choice((-1, 0, 1, 600))
    if random.random() < 0.8:
        policies = [_odd_policy(random) for _ in range(random.randrange(3))]
        spec["resourcePolicy"] = {"containerPolicies": policies}
    if random.random() < 0.3:
        spec["startupBoost"] = _odd_boost(random)
    if random.random() < 0.2:
        names = random.sample(("default", "mine", "yours"), random.randrange(3))
        spec["recommenders"] = [{"name": each} for each in names]
    return {
        "spec": spec,
        "create": random.random() < 0.5,
        "gates": {
            gate: random.random() < 0.5 for gate in ("InPlace", "CPUStartupBoost", "PerVPAConfig")
        },
        "existing_unsupported_controlled_resources": random.choice((None, {"gpu": True})),
    }


DRAWS: Mapping[str, Draw] = {
    "capping": capping,
    "admission_patch": admission_patch,
    "inplace_patch": inplace_patch,
    "limit_range_merge": limit_range_merge,
    "validate_vpa": validate_vpa,
}


def _containers(inputs: Json) -> list[str]:
    return [each["name"] for each in inputs["pod"]["spec"]["containers"]]


def _has_off(inputs: Json) -> bool:
    policy = decoded(inputs["vpa"]["spec"].get("resourcePolicy"), ResourcePolicy)
    return any(is_off(policy, name) for name in _containers(inputs))


def _lacks_a_bound(inputs: Json) -> bool:
    status = inputs["vpa"].get("status", {"recommendation": {"containerRecommendations": []}})
    entries = status["recommendation"]["containerRecommendations"]
    bounds = ("target", "lowerBound", "upperBound")
    full = {
        each["containerName"]
        for each in entries
        if all(each.get(bound, {}).keys() == _SCALES.keys() for bound in bounds)
    }
    return bool(inputs["pod_limit_range"]) and not full.issuperset(_containers(inputs))


def _has_a_least_memory(inputs: Json) -> bool:
    return "memory" in (inputs["pod_limit_range"] or {}).get("min", {})


def changes_of(inputs: Json, told: Json) -> Json:
    """Return the original's resize without what is so already, which we do not send (D11)."""
    resources = [each["resources"] for each in inputs["pod"]["spec"]["containers"]]

    def is_change(entry: Json) -> bool:
        _, _, _, number, _, *rest = entry["path"].split("/")
        if len(rest) < 2:
            return True
        present = resources[int(number)].get(rest[0], {}).get(rest[1])
        return present is None or parse(present).nano != parse(entry["value"]).nano

    changed = [each for each in told["resize_patches"] if is_change(each)]
    # An empty map is made for what is laid into it.
    parents = {each["path"].rsplit("/", depth)[0] for each in changed for depth in (1, 2)}
    kept = [each for each in changed if each["value"] != {} or each["path"] in parents]
    return {**told, "resize_patches": kept}


def with_negatives(inputs: Json, told: Json) -> Json:
    """Return the original's findings, and the negative amounts that it lets through.

    With one every pod of the workload would be refused.
    """
    spec = inputs["spec"]
    policies = (spec.get("resourcePolicy") or {}).get("containerPolicies", ())
    paths = {f"spec.resourcePolicy.containerPolicies[{n}]": one for n, one in enumerate(policies)}
    amounts = [
        (f"{path}.{bound}[{name}]", name, amount)
        for path, policy in paths.items()
        for bound in ("minAllowed", "maxAllowed")
        for name, amount in policy.get(bound, {}).items()
    ]
    if inputs["gates"]["CPUStartupBoost"]:
        for path, owner in {"spec": spec, **paths}.items():
            boost = owner.get("startupBoost", {}).get("cpu", {})
            if boost.get("type") == "Quantity" and "quantity" in boost:
                amounts.append((f"{path}.startupBoost.cpu.quantity", "cpu", boost["quantity"]))
    unnoticed = [
        {"field": field, "type": "Invalid value"}
        for field, name, amount in amounts
        # Of a part of a byte, or of a milli-core, it tells itself.
        if parse(amount).nano < 0 and parse(amount).nano % _SMALLEST.get(name, 1) == 0
    ]
    return {**told, "errors": [*told["errors"], *unnoticed]}


_CAPPING = {"D19": _has_off, "D1": _lacks_a_bound, "D10": _has_a_least_memory}
DEVIATIONS: Mapping[str, Mapping[str, Callable[[Json], bool]]] = {
    "capping": _CAPPING,
    "admission_patch": _CAPPING,
    "inplace_patch": _CAPPING,
}
CHANGES: Mapping[str, Callable[[Json, Json], Json]] = {
    "inplace_patch": changes_of,
    "validate_vpa": with_negatives,
}
