"""The admission cases: patches, resources, matching, validation."""

from msgspec import to_builtins
from msgspec.structs import replace

from podscale.core import quantity
from podscale.core.pod_state import PodReadiness
from podscale.core.selectors import selector
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.vpa import (
    Vpa,
    VpaSpec,
    decode,
    resource_list,
)
from tests.conformance.vpa_capping_cases import ranges
from tests.conformance.vpa_shared import Json
from tests.pods import pod_of
from vpa.admission import matching, validation
from vpa.admission.patches.patch import (
    BoostSettings,
    PatchEntry,
    admission_patch,
    parse_observed,
    resize_patch,
    resource_patch,
    resource_path,
)
from vpa.admission.patches.resources import (
    ContainerResources,
    PodResources,
    ResourcesUnavailable,
    container_resources,
    pod_resources,
)
from vpa.capping import LimitRanges
from vpa.model.amounts import wire


def _boost(i: dict[str, Json]) -> BoostSettings:
    return BoostSettings(
        i.get("cpu_startup_boost_gate", False),
        quantity.parse(i.get("max_allowed_cpu_boost", "0")),
    )


def shown_patches(entries: list[PatchEntry]) -> list[Json]:
    """Return patches with the vpaUpdates annotation taken apart."""
    shown: list[Json] = []
    for entry in entries:
        record = to_builtins(entry)
        if entry.path == "/metadata/annotations/vpaUpdates":
            record["value"] = parsed_updates(str(entry.value))
        shown.append(record)
    return shown


def parsed_updates(text: str) -> Json:
    head, _, rest = text.removeprefix("Pod resources updated by ").partition(": ")
    containers = {}
    for part in rest.split("; "):
        index, _, phrases = part.removeprefix("container ").partition(": ")
        containers[index] = sorted(phrase for phrase in phrases.split(", ") if phrase)
    return {"vpa": head, "containers": containers}


def admission_patch_kind(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    found = admission_patch(pod_of(i["pod"]), decode(i["vpa"], Vpa), ranges(i), _boost(i))
    # What the API server would refuse is not sent.
    return {"patches": [] if isinstance(found, ResourcesUnavailable) else shown_patches(found)}


def ready_pod(pod: PodView, ready_for_s: float | None) -> tuple[PodView, float]:
    """Return the pod with a Ready condition of that age, and the time of now."""
    now = 2e9
    if ready_for_s is None:
        return pod, now
    return replace(pod, ready=PodReadiness.TRUE, ready_since=now - ready_for_s), now


def inplace_patch(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    pod, now = ready_pod(pod_of(i["pod"]), i.get("ready_for_s"))
    found = resize_patch(pod, decode(i["vpa"], Vpa), ranges(i), now)
    if isinstance(found, ResourcesUnavailable):  # what the API server would refuse is not sent
        return {"resize_patches": [], "annotation_patches": []}
    return {
        "resize_patches": [to_builtins(entry) for entry in found.resize],
        "annotation_patches": [to_builtins(entry) for entry in found.annotations],
    }


def container_resources_kind(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    statuses = [i["container_status"]] if i["container_status"] else []
    pod = pod_of(
        {
            "spec": {"containers": [i["container"]]},
            "status": {"containerStatuses": statuses},
        }
    )
    vpa = decode(i["vpa"], Vpa)
    found = container_resources(
        pod,
        vpa.spec.resource_policy,
        vpa.status.recommendation,
        None,
        include_unrecommended=i["include_unrecommended_resources"],
    )
    only = found.containers[0]
    return {"requests": wire(only.requests), "limits": wire(only.limits)}


def admission_resources(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    limits: LimitRanges | ResourcesUnavailable = ranges(i)
    if i["limit_range_error"]:
        limits = ResourcesUnavailable("LimitRangesUnknown", "the LimitRanges were not read yet")
    found = pod_resources(pod_of(i["pod"]), decode(i["vpa"], Vpa), limits)
    if isinstance(found, ResourcesUnavailable):
        return {"error": True}
    only = found.containers[0]
    return {
        "error": False,
        "requests": wire(only.requests),
        "limits": wire(only.limits),
        "annotations": {name: sorted(notes) for name, notes in found.notes.items()},
    }


def calculated(i: dict[str, Json]) -> PodResources | ResourcesUnavailable:
    if i.get("provider_error"):
        return ResourcesUnavailable("LimitRangesUnknown", "the LimitRanges were not read yet")
    return PodResources(
        tuple(
            ContainerResources(resource_list(r["requests"]), resource_list(r["limits"]))
            for r in i["container_resources"]
        ),
        {name: tuple(notes) for name, notes in i.get("container_annotations", {}).items()},
    )


def resource_patch_kind(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    vpa = Vpa(metadata=decode({"name": i["vpa_name"]}, type(Vpa().metadata)))
    return _patched(resource_patch(pod_of(i["pod"]), vpa, calculated(i), BoostSettings()))


def startup_boost_patch(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    vpa = decode(i["vpa"], Vpa)
    return _patched(resource_patch(pod_of(i["pod"]), vpa, calculated(i), _boost(i)))


def _patched(found: list[PatchEntry] | ResourcesUnavailable) -> dict[str, Json]:
    if isinstance(found, ResourcesUnavailable):
        return {"error": True, "patches": []}
    return {"error": False, "patches": shown_patches(found)}


def patch_path(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    path = resource_path(i["container_index"], i["kind"], i["resource"])
    return {"path": path, "value": str(quantity.parse(i["quantity"]))}


def observed_containers_parse(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    found = parse_observed(i["annotation"])
    return {"error": found is None, "containers": found}


def match_vpa_for_pod(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    pod = pod_of(i["pod"])
    labels = selector.parse(i["label_selector_of_target"])
    index = matching.TargetIndex(matching.Candidate(decode(vpa, Vpa), labels) for vpa in i["vpas"])
    controller = None
    if pod.owner is not None:
        controller = matching.OwningController(pod.namespace, pod.owner.kind, pod.owner.name)
    found = matching.match_at_admission(pod.labels, controller, index)
    return {"vpa": found.vpa.metadata.name if found is not None else None}


def validate_vpa(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    gates = i["gates"]
    found = validation.validate(
        decode(i["spec"], VpaSpec),
        validation.Options(
            is_create=i["create"],
            in_place=gates["InPlace"],
            cpu_startup_boost=gates["CPUStartupBoost"],
            per_vpa_config=gates["PerVPAConfig"],
            existing_resources=frozenset(i["existing_unsupported_controlled_resources"] or {}),
        ),
    )
    return {
        "errors": [{"field": error.field, "type": error.type} for error in found.errors],
        "warning_count": len(found.warnings),
    }


def gate_grandfathering(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    on = i["gate_enabled"]
    gates = validation.VpaGates(
        in_place=on and i["gate"] == "InPlace",
        cpu_startup_boost=on and i["gate"] == "CPUStartupBoost",
        per_vpa_config=on and i["gate"] == "PerVPAConfig",
    )
    old = Vpa(spec=decode(i["old_spec"], VpaSpec)) if i["old_spec"] is not None else None
    options = validation.options_for(old, gates)
    allowed = {
        "InPlace": options.in_place,
        "CPUStartupBoost": options.cpu_startup_boost,
        "PerVPAConfig": options.per_vpa_config,
    }
    return {"allowed": allowed[i["gate"]]}
