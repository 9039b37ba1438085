"""The model's cases: estimators, recommendations, OOMs, conditions."""

import msgspec
import numpy as np
from msgspec import structs

from podscale.core.times import duration
from podscale.kube.client.wire import decode as wire_decode
from podscale.kube.objects.vpa import (
    ContainerPolicy,
    ContainerRecommendation,
    ResourceList,
    ResourcePolicy,
    Vpa,
    VpaRecommendation,
    decode,
    is_off,
    resource_list,
)
from podscale.serving.flags import parse
from tests.conformance.vpa_sample_cases import Sampled
from tests.conformance.vpa_shared import Json, seconds, shown_recommendation
from tests.pods import pod_of
from vpa.model.amounts import Windows, controlled_resources, windows_of, wire
from vpa.model.estimation import estimator, status
from vpa.model.estimation.recommendation import (
    RecommendedUsage,
    RecommenderSettings,
    integer_cpu_containers,
    recommend,
    whole_cores,
)
from vpa.model.groups import Oom
from vpa.model.histograms.matrix import Floats
from vpa.model.samples.aggregates import Aggregates
from vpa.recommender import flags as recommender_flags
from vpa.recommender.pod_feed import StoredEvent, from_pod_update, ooms_of


def _confidence(i: dict[str, Json]) -> Floats:
    first, last = seconds(i["first_sample"]), seconds(i["last_sample"])
    return estimator.confidence(
        np.array([first]),
        np.array([last]),
        np.array([float(i["total_samples_count"])]),
        i["confidence_interval_s"],
    )


def confidence(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    return {"confidence": float(_confidence(i)[0])}


def confidence_multiplier(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    known = _confidence(i)
    base = np.array([i["base"]], dtype=np.int64)
    result = estimator.with_confidence(base, known, i["multiplier"], int(i["exponent"]))
    return {"confidence": float(known[0]), "result": int(result[0])}


def margin(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    base = np.array([i["base"]], dtype=np.int64)
    return {"result": int(estimator.with_margin(base, i["margin_fraction"])[0])}


def min_resource(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    base = np.array([i["base"]], dtype=np.int64)
    return {"result": int(estimator.with_minimum(base, i["min"])[0])}


def series(entries: list[dict[str, Json]], events: list[dict[str, Json]]) -> list[Json]:
    """Return all samples and OOMs of one container in the order of time, samples first."""
    feed = []
    for number, entry in enumerate(entries):
        values = entry["values"] * entry.get("repeat", 1)
        start = seconds(entry["start"])
        for step, value in enumerate(values):
            feed.append((start + step * entry["step_s"], number, entry["resource"], value))
    feed.sort(key=lambda sample: sample[:2])
    ordered = [(resource, value, at) for at, _, resource, value in feed]
    # OOMs come after all samples of their container, as the cases were made.
    ordered += [("oom", oom["requested_memory_bytes"], seconds(oom["t"])) for oom in events]
    return ordered


def flag_seconds(flags: dict[str, Json], name: str, default: float) -> float:
    """Return a flag that is a Go duration, or a number of seconds."""
    value = flags.get(name, default)
    return duration.parse_go(value) if isinstance(value, str) else float(value)


def recommender_settings(config: dict[str, Json], flags: dict[str, Json]) -> RecommenderSettings:
    """Return settings from a case's config (upstream's struct) or from flags by name."""

    def of(name: str) -> estimator.EstimatorSettings:
        def fraction(bound: str, default: float) -> float:
            key = {
                "target": f"target_{name}_percentile",
                "lower": f"lower_bound_{name}_percentile",
                "upper": f"upper_bound_{name}_percentile",
            }[bound]
            flag = {
                "target": f"target-{name}-percentile",
                "lower": f"recommendation-lower-bound-{name}-percentile",
                "upper": f"recommendation-upper-bound-{name}-percentile",
            }[bound]
            return float(config.get(key, flags.get(flag, default)))

        interval = config.get(
            f"confidence_interval_{name}_s",
            flag_seconds(flags, f"confidence-interval-{name}", 86400),
        )
        return estimator.EstimatorSettings(
            percentiles=estimator.Percentiles(
                fraction("lower", 0.5), fraction("target", 0.9), fraction("upper", 0.95)
            ),
            margin=float(
                config.get(
                    "safety_margin_fraction", flags.get("recommendation-margin-fraction", 0.15)
                )
            ),
            confidence_interval_s=float(interval),
        )

    top = {
        name: flags[f"container-recommendation-max-allowed-{name}"]
        for name in ("cpu", "memory")
        if f"container-recommendation-max-allowed-{name}" in flags
    }
    return RecommenderSettings(
        cpu=of("cpu"),
        memory=of("memory"),
        min_cpu_milli=float(
            config.get(
                "pod_min_cpu_millicores", flags.get("pod-recommendation-min-cpu-millicores", 25)
            )
        ),
        min_memory_mb=float(
            config.get("pod_min_memory_mb", flags.get("pod-recommendation-min-memory-mb", 250))
        ),
        round_cpu_milli=int(flags.get("round-cpu-millicores", 1)),
        round_memory_bytes=int(flags.get("round-memory-bytes", 1)),
        humanize_memory=bool(flags.get("humanize-memory", False)),
        integer_cpu=bool(flags.get("cpu-integer-post-processor-enabled", False)),
        max_allowed=resource_list(top),
    )


def recommendation(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    settings = recommender_settings(i.get("config", {}), {})
    settings = RecommenderSettings(
        cpu=settings.cpu,
        memory=settings.memory,
        min_cpu_milli=settings.min_cpu_milli,
        min_memory_mb=settings.min_memory_mb,
        round_cpu_milli=i.get("round_cpu_millicores", 1),
        round_memory_bytes=i.get("round_memory_bytes", 1),
        humanize_memory=i.get("humanize_memory", False),
    )
    usages, policies, known = [], [], {}
    for entry in i["containers"]:
        sampled = Sampled()
        for resource, value, at in series(entry["series"], entry.get("ooms", [])):
            sampled.feed(resource, value, at)
        usage = sampled.usage(settings)
        usages.append(RecommendedUsage(entry["name"], usage))
        known[entry["name"]] = max((r.confidence for r in usage.values()), default=0.0)
        if "controlled_resources" in entry:
            policies.append(
                ContainerPolicy(
                    container_name=entry["name"],
                    controlled_resources=tuple(entry["controlled_resources"]),
                )
            )
    trace = recommend(usages, settings, policy=ResourcePolicy(tuple(policies)))
    published = trace.recommendation.container_recommendations or ()
    amounts_by: dict[str, Json] = {
        entry.container_name: {bound: {} for bound in estimator.BOUNDS} for entry in published
    }
    for (container, resource, bound), amount in trace.amounts.items():
        amounts_by[container][bound][resource] = amount.derivation.amount
    return {
        "amounts": amounts_by,
        "confidence": known,
        "containerRecommendations": shown_recommendation(trace.recommendation)[
            "containerRecommendations"
        ],
    }


def aggregate_gc(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    now = 2e9
    windows = Windows(
        interval_s=i["memory_aggregation_interval_s"],
        interval_count=i["memory_aggregation_interval_count"],
    )
    aggregates = Aggregates(capacity=1)
    columns = aggregates.open(1, now - i["state_age_s"], windows)
    at = np.array([now - i["sample_age_s"]])
    if i["sample"] == "cpu":
        aggregates.cpu_span.add(columns, at, 1.0)
    elif i["sample"] == "memory":
        aggregates.memory_span.add(columns, at, 1.0)
    # A finished pod still holds its state while its controller may start another one.
    active = i["pod_phase"] not in ("Succeeded", "Failed") or i["controller_exists"]
    contributive = np.array([not i["pod_deleted"] and active])
    return {"state_deleted": bool(aggregates.expendable(columns, now, contributive)[0])}


def prometheus_history_queries(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    flags = parse([f"--{name}={value}" for name, value in i.items()], recommender_flags.TABLE)
    if any("history-" in problem for problem in recommender_flags.problems(flags)):
        return {"error": "invalid_duration"}
    found, span = recommender_flags.history_of(flags), recommender_flags.history_span(flags)
    calls: list[Json] = [
        {"api": "query_range", "query": each.text, "length_s": span.length_s, "step_s": span.step_s}
        for each in (*found.cpu, *found.memory)
    ]
    # Asked as a range, too, which a selector of a range is left away for (D15).
    assert found.labels is not None
    _, bracket, left_away = i["metric-for-pod-labels"].partition("[")
    calls.append({"api": "query", "query": found.labels.text + bracket + left_away})
    return {"calls": calls}


def conversion(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    match i["function"]:
        case "cpu_amount_from_cores":
            return {"result": estimator.from_cores(i["value"])}
        case "memory_amount_from_bytes" | "resource_amount_from_float":
            return {"result": estimator.from_float(i["value"])}
        case "scale_resource":
            return {"result": estimator.scale(i["value"], i["factor"])}
        case "humanize_memory":
            return {"result": estimator.humanized(i["value"])}
        case "round_up_to_scale":
            try:
                return {"result": estimator.rounded_up(i["value"], i["scale"]), "error": False}
            except ValueError:
                return {"result": i["value"], "error": True}
    raise NotImplementedError(i["function"])


def resource_list_kind(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    cpu, memory = i["cpu_millicores"], i["memory_bytes"]
    step, humanize = i["round_memory_bytes"], i["humanize_memory"]
    made = {
        "cpu": estimator.as_quantity("cpu", cpu, step=i["round_cpu_millicores"]),
        "memory": estimator.as_quantity("memory", memory, step=step, humanize=humanize),
    }
    return dict(wire(ResourceList(made)))


def container_policy_defaults(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    policy = decode(i["policy"], ContainerPolicy) if i["policy"] is not None else None
    found = windows_of(policy, Windows(), per_vpa_config=i.get("per_vpa_config_gate", False))
    whole = ResourcePolicy(() if policy is None else (policy,))
    name = "" if policy is None else policy.container_name
    return {
        "mode": "Off" if is_off(whole, name) else "Auto",
        "controlled_resources": list(controlled_resources(policy)),
        "memory_aggregation_interval_s": found.interval_s,
        "memory_aggregation_interval_count": found.interval_count,
        "oom_bump_up_ratio": found.oom_ratio,
        "oom_min_bump_up_bytes": found.oom_min_bytes,
    }


def status_conditions(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    found = status.conditions(
        [],
        1.0,
        has_recommendation=i["has_recommendation"],
        pods_matched=i["pods_matched"],
    )
    shown = []
    for condition in found:
        entry = {"type": condition.type, "status": condition.status}
        if condition.reason:
            entry["reason"] = condition.reason
        shown.append(entry)
    present = {condition.type for condition in found}
    return {
        "conditions": shown,
        "absent": [name for name in e["absent"] or () if name not in present],
    }


def cpu_integer_post_processor(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    vpa = decode(i["vpa"], Vpa)
    given = decode(i["recommendation"], VpaRecommendation).container_recommendations or ()
    containers = integer_cpu_containers(vpa.metadata.annotations)
    found = [_whole(each) if each.container_name in containers else each for each in given]
    return {"recommendation": shown_recommendation(VpaRecommendation(tuple(found)))}


def _whole(given: ContainerRecommendation) -> ContainerRecommendation:
    name, *lists = structs.astuple(given)
    return ContainerRecommendation(name, *(each and _with_whole_cores(each) for each in lists))


def _with_whole_cores(listed: ResourceList) -> ResourceList:
    whole = {"cpu": whole_cores(listed["cpu"])} if "cpu" in listed else {}
    return ResourceList({**listed, **whole})


def cpu_integer_round(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    return {"resources": wire(_with_whole_cores(resource_list(i["resources"])))}


def _shown_oom(oom: Oom) -> dict[str, Json]:
    return {
        "namespace": oom.namespace,
        "pod": oom.pod,
        "container": oom.container,
        "memory_bytes": oom.memory_bytes,
        "timestamp": oom.time_s,
    }


def oom_from_pod_update(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    found = from_pod_update(pod_of(i["old_pod"]), pod_of(i["new_pod"]))
    assert len(found) <= 1
    return {"oom": _shown_oom(found[0]) if found else None}


def oom_from_eviction_event(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    found = ooms_of(wire_decode(msgspec.json.encode(i["event"]), StoredEvent))
    return {"ooms": [_shown_oom(oom) for oom in found]}
