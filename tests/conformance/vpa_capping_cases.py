"""The capping cases: limits, policies, LimitRanges."""

from msgspec.structs import replace

from podscale.kube.objects.vpa import (
    ContainerRecommendation,
    LimitRangeItem,
    ResourceList,
    ResourcePolicy,
    Vpa,
    VpaRecommendation,
    container_policy,
    decode,
    resource_list,
)
from tests.conformance.vpa_shared import Json, amount, decoded, shown_recommendation
from tests.pods import pod_of
from vpa.capping import (
    LimitRanges,
    LimitRangeSpec,
    apply_pod_range,
    cap_for_pod,
    merged,
    proportional_limit,
)
from vpa.model.amounts import allowed, capped, wire


def proportional_limit_kind(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    found = proportional_limit(
        i["resource"],
        amount(i["original_limit"]),
        amount(i["original_request"]),
        amount(i["recommended_request"]),
        amount(i["default_limit"]),
    )
    limit = str(found.limit) if found.limit is not None else None
    return {"limit": limit, "annotation": bool(found.note)}


def apply_vpa_policy(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    given = i["recommendation"]
    policy = decoded(i["resource_policy"], ResourcePolicy)
    most = resource_list(i["global_max_allowed"] or {})

    def bounded(entry: ContainerRecommendation, values: ResourceList | None) -> ResourceList | None:
        if values is None:
            return None
        bounds = allowed(container_policy(policy, entry.container_name), most)
        return ResourceList(
            {name: capped(name, value, bounds)[0] for name, value in values.items()}
        )

    if given is None:
        return {"recommendation": None}
    entries = tuple(
        replace(
            entry,
            target=bounded(entry, entry.target),
            lower_bound=bounded(entry, entry.lower_bound),
            upper_bound=bounded(entry, entry.upper_bound),
        )
        for entry in decode(given, VpaRecommendation).container_recommendations or ()
    )
    return {"recommendation": shown_recommendation(VpaRecommendation(entries))}


def apply_pod_limit_range(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    entries = [decode(entry, ContainerRecommendation) for entry in i["recommendations"]]
    bounds = {entry.container_name: entry.target or ResourceList() for entry in entries}
    found = apply_pod_range(
        i["resource"], bounds, pod_of(i["pod"]), decode(i["limit_range"], LimitRangeItem)
    )
    return {
        "recommendations": [
            {"containerName": entry.container_name, "target": wire(found[entry.container_name])}
            for entry in entries
        ]
    }


def ranges(i: dict[str, Json]) -> LimitRanges:
    return LimitRanges(
        container=decoded(i.get("container_limit_range"), LimitRangeItem),
        pod=decoded(i.get("pod_limit_range"), LimitRangeItem),
    )


def capping(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    found = cap_for_pod(decode(i["vpa"], Vpa), pod_of(i["pod"]), ranges(i))
    return {
        "recommendation": shown_recommendation(found.recommendation),
        "annotations": {name: sorted(found.notes(name)) for name in found.caps},
    }


def limit_range_merge(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    # A lister shows the objects of one namespace, which is that of what is asked about.
    listed = [
        entry
        for entry in i["limit_ranges"] or ()
        if (entry.get("metadata") or {}).get("namespace", i["namespace"]) == i["namespace"]
    ]
    items = (each for entry in listed for each in decode(entry["spec"], LimitRangeSpec).limits)
    found = merged(items, i["type"])
    if found is None:
        return {"item": None}
    bounds = {"min": found.min, "max": found.max, "default": found.default}
    item: dict[str, Json] = {k: wire(v) for k, v in bounds.items() if v is not None}
    return {"item": {"type": found.type, **item}}
