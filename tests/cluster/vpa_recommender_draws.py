"""Random inputs of the recommender's kinds of vpa.yaml, drawn towards the borders.

What is made of a history is drawn here, the histories themselves in ``vpa_sample_draws``.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random

from tests.cluster import vpa_sample_draws
from tests.cluster.vpa_sample_draws import CONTAINERS, DAY, START, Draw, Json, text

_MIB = 2**20


def aggregate_gc(random: Random) -> dict[str, Json]:
    """Draw one state before a collection, about as old as it may become."""
    interval, count = random.choice((1, 3600, DAY)), random.choice((1, 2, 8))
    ages = (0, 1, interval * count - 1, interval * count, interval * count + 1, 100 * DAY)
    return {
        "sample": random.choice(("none", "cpu", "cpu", "memory")),
        "sample_age_s": random.choice(ages),
        "state_age_s": random.choice(ages),
        "pod_phase": random.choice(("Pending", "Running", "Succeeded", "Failed", "Unknown")),
        "pod_deleted": random.random() < 0.3,
        "controller_exists": random.random() < 0.5,
        "memory_aggregation_interval_s": interval,
        "memory_aggregation_interval_count": count,
    }


def container_policy_defaults(random: Random) -> dict[str, Json]:
    """Draw a container's policy as the webhook lets it through."""
    if random.random() < 0.05:
        return {"policy": None, "per_vpa_config_gate": random.random() < 0.5}
    policy: dict[str, Json] = {
        name: random.choice(values)
        for name, values in {
            "mode": ("Auto", "Off"),
            "controlledResources": ([], ["cpu"], ["memory", "cpu"], ["cpu", "gpu"]),
            "oomBumpUpRatio": ("1", "1.0", "1.2", "1200m", "1.0001", "2", "1e1", 1, 3),
            "oomMinBumpUp": ("0", "1", "100Mi", "1500m", "0.0001", "1Ti", "1e9", 0, 104857600),
            "memoryAggregationIntervalSeconds": (1, 60, 86_400, 2**31 - 1),
            "memoryAggregationIntervalCount": (1, 8, 365),
        }.items()
        if random.random() < 0.5
    }
    return {"policy": policy, "per_vpa_config_gate": random.random() < 0.7}


def _span(random: Random) -> dict[str, Json]:
    if random.random() < 0.05:
        first = last = None
        count = 0
    else:
        first = text(START)
        age = random.choice((0, 1, 60, 960, 3600, DAY - 1, DAY, 8 * DAY, random.randrange(10**6)))
        last = text(START + age)
        count = random.choice((1, 2, max(age // 60, 1), age // 60 + 1, 10**6))
    return {
        "first_sample": first,
        "last_sample": last,
        "total_samples_count": count,
        "confidence_interval_s": random.choice((1, 60, 1080, 3600, 86_400, 604_800, 90)),
    }


def confidence(random: Random) -> dict[str, Json]:
    """Draw the length of a history."""
    return _span(random)


def _amount(random: Random) -> int:
    return random.choice(
        (
            1,
            2,
            12,
            1000,
            1001,
            3140000000,
            10**14 - 1,
            10**14,
            random.randrange(1, 10**6),
            random.randrange(1, 10**12),
            random.randrange(1, 10**14),
        )
    )


def confidence_multiplier(random: Random) -> dict[str, Json]:
    """Draw an amount and what is known; those are the factors of the two bounds."""
    multiplier, exponent = random.choice(((1.0, 1.0), (0.001, -2.0)))
    return {
        **_span(random),
        "multiplier": multiplier,
        "exponent": exponent,
        "base": _amount(random),
    }


def conversion(random: Random) -> dict[str, Json]:
    """Draw a number for one of the conversions."""
    function = random.choice(
        (
            "cpu_amount_from_cores",
            "memory_amount_from_bytes",
            "resource_amount_from_float",
            "scale_resource",
            "humanize_memory",
            "round_up_to_scale",
        )
    )
    inputs: dict[str, Json] = {"function": function, "value": random.choice((0, _amount(random)))}
    if function in ("memory_amount_from_bytes", "resource_amount_from_float"):
        inputs["value"] = random.choice(
            (-1.0, -0.5, 0.0, 0.999999, 1e14, 1e14 - 0.5, 1e14 + 1, 1e300, random.uniform(0, 1e9))
        )
    elif function == "cpu_amount_from_cores":
        inputs["value"] = random.choice(
            (random.randrange(10**6) / 1000, random.random(), 1e11, 1.1e11, 0.0009999, -0.1, 0.29)
        )
    elif function == "scale_resource":
        inputs["factor"] = random.choice((0.0, 0.5, 1 / 3, 1.15, 0.15, 1.0, 289.0, 1e14, -1.0))
    elif function == "humanize_memory":
        unit = 2 ** random.choice((10, 20, 30, 40))
        inputs["value"] += random.choice(
            (0, unit, unit - 1, unit * 1023 + unit // 1000, unit // 200)
        )
    elif function == "round_up_to_scale":
        inputs["scale"] = random.choice((-1, 0, 1, 2, 3, 7, 50, 1000, _MIB, 10**6, 2**31 - 1))
    return inputs


def resource_list(random: Random) -> dict[str, Json]:
    """Draw amounts and the flags that round them."""
    return {
        "cpu_millicores": random.choice((0, _amount(random))),
        "memory_bytes": random.choice((0, 1, 1023, 1024, _amount(random))),
        "humanize_memory": random.random() < 0.5,
        "round_cpu_millicores": random.choice((1, 2, 3, 13, 50, 1000, 2**31 - 1)),
        "round_memory_bytes": random.choice((1, 2, 3, 1024, _MIB, 10**6, 2**31 - 1)),
    }


def status_conditions(random: Random) -> dict[str, Json]:
    """Draw what a pass has found."""
    return {
        "pods_matched": random.random() < 0.5,
        "has_recommendation": random.random() < 0.5,
    }


_CPU = (
    "0",
    "1n",
    "1u",
    "1m",
    "999m",
    "1",
    "1000m",
    "1001m",
    "1.0000001",
    "8600m",
    "64",
    "1k",
    "1e3",
)
_MEMORY = ("0", "1", "64Mi", "1500m", "1G", "628694953")


def _amounts(random: Random) -> dict[str, str]:
    found = {}
    if random.random() < 0.9:
        found["cpu"] = random.choice(_CPU)
    if random.random() < 0.9:
        found["memory"] = random.choice(_MEMORY)
    return found


def cpu_integer_post_processor(random: Random) -> dict[str, Json]:
    """Draw a recommendation, and annotations that mean or nearly mean whole cores."""
    prefix, suffix = "vpa-post-processor.kubernetes.io/", "_integerCPU"
    keys = [f"{prefix}{name}{suffix}" for name in (*CONTAINERS, "gone", "")]
    keys += [f"{prefix}app", f"app{suffix}", f"{prefix}side{suffix}x", f"{prefix}app_integerCpu"]
    annotations = {
        key: random.choice(("true", "true", "true", "True", "false", "", "1"))
        for key in random.sample(keys, random.randrange(5))
    }
    entries = []
    for name in sorted(random.sample(CONTAINERS, random.randrange(4))):
        entry: dict[str, Json] = {"containerName": name, "target": _amounts(random)}
        for bound in ("lowerBound", "upperBound", "uncappedTarget"):
            # An empty list is none on the wire.
            if random.random() < 0.8 and (listed := _amounts(random)):
                entry[bound] = listed
        entries.append(entry)
    metadata: dict[str, Json] = {"name": "web-vpa", "namespace": "default"}
    if annotations or random.random() < 0.5:
        metadata["annotations"] = annotations
    return {
        "vpa": {"metadata": metadata, "spec": {}},
        "recommendation": {"containerRecommendations": entries},
    }


_KILLED_AT = "2026-03-02T00:01:00Z"


def _run(random: Random) -> dict[str, Json]:
    reason = random.choice(("OOMKilled", "OOMKilled", "OOMKilled", "Error", "Completed", ""))
    run = {"exitCode": random.choice((0, 1, 137)), "reason": reason, "finishedAt": _KILLED_AT}
    return {"terminated": run}


def _state(random: Random) -> dict[str, Json]:
    return random.choice(
        (
            {},
            {"running": {"startedAt": "2026-03-02T00:00:00Z"}},
            {"running": {}},
            {"waiting": {"reason": "CrashLoopBackOff"}},
            _run(random),
            _run(random),
        )
    )


def _container_status(random: Random, name: str) -> dict[str, Json]:
    status: dict[str, Json] = {"name": name, "restartCount": random.choice((0, 1, 1, 2))}
    if state := _state(random):
        status["state"] = state
    if random.random() < 0.7:
        status["lastState"] = _run(random)
    if random.random() < 0.4:
        status["resources"] = _requested(random)
    return status


def _requested(random: Random) -> dict[str, Json]:
    sizes = ("0", "1", "1023", "1Ki", "1500m", "0.1", "1G", "1Gi", "1e9", "8Ei")
    kept = random.randrange(5)
    if not kept:
        return random.choice(({}, {"requests": {}}, {"requests": {"cpu": "1"}}))
    found: dict[str, Json] = {"requests": {"memory": random.choice(sizes)}}
    if kept > 3:
        found["limits"] = {"memory": "16Gi"}
    return found


def _shown(random: Random, names: Sequence[str], statuses: Mapping[str, Json]) -> dict[str, Json]:
    pod: dict[str, Json] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": "default"},
        "spec": {"containers": [{"name": each, "resources": _requested(random)} for each in names]},
    }
    if statuses or random.random() < 0.5:
        pod["status"] = {
            "containerStatuses": [statuses[each] for each in names if each in statuses]
        }
    return pod


def oom_from_pod_update(random: Random) -> dict[str, Json]:
    """Draw two versions of a pod of which one container may have changed."""
    names = random.sample(CONTAINERS, random.choice((1, 2, 3)))
    before = {each: _container_status(random, each) for each in names}
    after = {**before, names[0]: _container_status(random, names[0])}
    for statuses in (before, after):
        if random.random() < 0.05:
            statuses.pop(random.choice(names))
    return {"old_pod": _shown(random, names, before), "new_pod": _shown(random, names, after)}


def oom_from_eviction_event(random: Random) -> dict[str, Json]:
    """Draw an event, mostly the kubelet's of an eviction for memory."""
    usages = (
        "1024Ki",
        "0",
        "1500m",
        "2Gi",
        "1e9",
        "",
        "lots",
        "-1",
        " 1Ki",
        "1Ki ",
        "8Ei",
        "+5M",
        ".5",
    )
    lists = {
        "offending_containers": ("app", "side", "proxy", ""),
        "offending_containers_usage": usages,
        "starved_resource": ("memory", "memory", "memory", "ephemeral-storage", "Memory", ""),
    }
    count = random.choice((0, 1, 1, 2, 3))
    annotations = {
        key: ",".join(random.choice(values) for _ in range(count))
        for key, values in lists.items()
        if random.random() < 0.97
    }
    if random.random() < 0.1:
        annotations[random.choice(list(lists))] = random.choice(("", "memory", "a,b", ","))
    metadata: dict[str, Json] = {"creationTimestamp": _KILLED_AT}
    if annotations or random.random() < 0.5:
        metadata["annotations"] = annotations
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": metadata,
        "reason": random.choice(("Evicted",) * 9 + ("Killing",)),
        "involvedObject": {
            "kind": random.choice(("Pod",) * 9 + ("Node",)),
            "name": "pod",
            "namespace": "default",
        },
    }
    return {"event": event}


DRAWS: Mapping[str, Draw] = {
    **vpa_sample_draws.DRAWS,
    "aggregate_gc": aggregate_gc,
    "container_policy_defaults": container_policy_defaults,
    "confidence": confidence,
    "confidence_multiplier": confidence_multiplier,
    "conversion": conversion,
    "resource_list": resource_list,
    "status_conditions": status_conditions,
    "cpu_integer_post_processor": cpu_integer_post_processor,
    "oom_from_pod_update": oom_from_pod_update,
    "oom_from_eviction_event": oom_from_eviction_event,
}

DEVIATIONS: Mapping[str, Mapping[str, Callable[[Json], bool]]] = {
    **vpa_sample_draws.DEVIATIONS,
    "aggregate_gc": {"D6": lambda inputs: inputs["sample"] == "memory"},
}
