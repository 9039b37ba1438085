"""JSON patches: what admission does to a new pod and what a resize does to a running one.

Entries come in upstream's order; resources within one map are sorted.
"""

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, structs

from podscale.core.quantity import Quantity
from podscale.core.selectors.labels import is_label
from podscale.kube.columns.pod_set import NO_ANNOTATIONS, PodView
from podscale.kube.objects import vpa as objects
from podscale.kube.objects.pod import Amounts
from vpa.admission.patches import boost as boosts
from vpa.admission.patches import resources as sizing
from vpa.capping import NO_RANGES, LimitRanges
from vpa.model.amounts import EMPTY, ZERO

UPDATES = "vpaUpdates"
OBSERVED = "vpaObservedContainers"
IN_PLACE_UPDATED = "vpaInPlaceUpdated"
_SEPARATOR = ", "

PodField = Literal["requests", "limits"]


class PatchEntry(Struct, frozen=True):
    """One operation of a JSON patch (RFC 6902)."""

    op: Literal["add", "remove", "replace"]
    path: str
    value: Any = UNSET  # ``remove`` has none


class BoostSettings(Struct, frozen=True):
    """Gate ``CPUStartupBoost`` and ``--max-allowed-cpu-boost``, 0 for no limit."""

    enabled: bool = False
    max_cpu: Quantity = ZERO


class ResizePatch(Struct, frozen=True):
    """What goes to ``pods/resize``, and to the pod afterwards."""

    resize: tuple[PatchEntry, ...]
    annotations: tuple[PatchEntry, ...]


def admission_patch(
    pod: PodView,
    vpa: objects.Vpa,
    ranges: LimitRanges | sizing.ResourcesUnavailable,
    boost: BoostSettings,
    resources: sizing.PodResources | sizing.ResourcesUnavailable | None = None,
) -> list[PatchEntry] | sizing.ResourcesUnavailable:
    """Return the whole patch of a new pod; Unavailable lets it pass unchanged.

    ``resources`` are ``pod_resources``, where they are known already. A new pod has no status
    but what its creator wrote, which the API server drops: there is none here either.
    """
    pod = structs.replace(pod, states=())
    resources = resources or sizing.pod_resources(pod, vpa, ranges)
    entries = resource_patch(pod, vpa, resources, boost, _ranges(ranges))
    if isinstance(entries, sizing.ResourcesUnavailable):
        return entries
    first = [] if pod.annotations is not NO_ANNOTATIONS else [_add("/metadata/annotations", {})]
    observed = _SEPARATOR.join(container.name for container in pod.template.containers)
    found = [*first, *entries, annotation(OBSERVED, observed)]
    return sizing.refused_annotations(pod, annotations_of(found)) or found


def resource_patch(
    pod: PodView,
    vpa: objects.Vpa,
    resources: sizing.PodResources | sizing.ResourcesUnavailable,
    boost: BoostSettings,
    ranges: LimitRanges = NO_RANGES,
) -> list[PatchEntry] | sizing.ResourcesUnavailable:
    """Return the entries of requests, limits and boost, and the annotation that names them."""
    if isinstance(resources, sizing.ResourcesUnavailable):
        return resources
    off = objects.update_mode(vpa) == "Off"
    entries: list[PatchEntry] = []
    phrases: list[str] = []
    wholes: list[sizing.ContainerResources] = []  # what is set on each container at last
    for index, container in enumerate(pod.template.containers):
        # In mode Off nothing is applied but the boost, which starts from the pod's own CPU.
        wanted = sizing.ContainerResources() if off else resources.containers[index]
        notes = [] if off else list(resources.notes.get(container.name, ()))
        wholes.append(sizing.ContainerResources())
        if boost.enabled:
            if objects.is_off(vpa.spec.resource_policy, container.name):
                continue
            raised = boosts.boosted(container, vpa, wanted, boost.max_cpu)
            if isinstance(raised, sizing.ResourcesUnavailable):
                return raised
            if raised is not None:
                wanted = raised
                key = boosts.ANNOTATION_PREFIX + container.name
                entries.append(annotation(key, boosts.original_resources(container)))
        wholes[-1] = wanted
        changes, texts = _container_patch(pod, index, wanted)
        if changes:
            entries.extend(changes)
            phrases.append(f"container {index}: {_SEPARATOR.join([*notes, *texts])}")
    if phrases:
        text = f"Pod resources updated by {vpa.metadata.name}: {'; '.join(phrases)}"
        entries.append(annotation(UPDATES, text))
    return sizing.refused(pod, wholes, ranges) or entries


def resize_patch(
    pod: PodView, vpa: objects.Vpa, ranges: LimitRanges | sizing.ResourcesUnavailable, now: float
) -> ResizePatch | sizing.ResourcesUnavailable:
    """Return the patches of an in-place update; without a change nothing is resized.

    Containers still boosted are left alone, those whose boost is over get the
    recommendation, or their original resources where there is none.
    """
    large = sizing.too_large(pod)
    if large is not None:
        return large
    over = boosts.expired(pod, vpa, now)
    resources: sizing.PodResources | sizing.ResourcesUnavailable = sizing.PodResources(
        tuple(sizing.ContainerResources() for _ in pod.template.containers), {}
    )
    if objects.update_mode(vpa) != "Off":
        resources = sizing.pod_resources(pod, vpa, ranges)
    if isinstance(resources, sizing.ResourcesUnavailable):
        return resources
    resize = resize_entries(pod, vpa, resources.containers, over, _ranges(ranges))
    if isinstance(resize, sizing.ResourcesUnavailable):
        return resize
    first = [] if pod.annotations is not NO_ANNOTATIONS else [_add("/metadata/annotations", {})]
    removals = [PatchEntry("remove", _annotation_path(key)) for key in over]
    marks = [*first, annotation(IN_PLACE_UPDATED, "true"), *removals]
    return ResizePatch(tuple(resize), tuple(marks))


def resize_entries(
    pod: PodView,
    vpa: objects.Vpa,
    wanted: Sequence[sizing.ContainerResources],
    over: Sequence[str],
    ranges: LimitRanges = NO_RANGES,
) -> list[PatchEntry] | sizing.ResourcesUnavailable:
    """Return the entries for ``pods/resize``: only what differs from the pod's spec.

    Upstream sends amounts that are in force already (D11); the API server answers them
    with a new resourceVersion and an event, every loop.
    """
    entries: list[PatchEntry] = []
    ended = frozenset(over)
    wholes: list[sizing.ContainerResources] = []  # what is set on each container at last
    for index, container in enumerate(pod.template.containers):
        key = boosts.ANNOTATION_PREFIX + container.name
        target = wanted[index]
        wholes.append(sizing.ContainerResources())
        if key in ended:
            original = boosts.read_original(pod, container.name)
            if isinstance(original, objects.ObjectError):
                return sizing.ResourcesUnavailable("StartupBoostInvalid", str(original))
            if not target.is_set and original is not None:
                target = sizing.ContainerResources(
                    original.requests or EMPTY, original.limits or EMPTY
                )
        elif key in pod.annotations or objects.update_mode(vpa) == "Off":
            continue
        wholes[-1] = target
        new = target.beyond(container.requests, container.limits)
        changed = [
            *_map_patch(index, "requests", container.requests, new.requests),
            *_map_patch(index, "limits", container.limits, new.limits),
        ]
        if changed and container.requests is None and container.limits is None:
            entries.append(_add(f"/spec/containers/{index}/resources", {}))
        entries.extend(changed)
    return sizing.refused(pod, wholes, ranges) or entries


def resource_path(index: int, field: PodField, resource: str) -> str:
    """Return the path of one amount; ``~`` and ``/`` of the name are escaped."""
    return f"/spec/containers/{index}/resources/{field}/{_escaped(resource)}"


def annotation(key: str, value: str) -> PatchEntry:
    return _add(_annotation_path(key), value)


def annotations_of(entries: Sequence[PatchEntry]) -> dict[str, str]:
    path = _annotation_path("")
    return {
        each.path.removeprefix(path).replace("~1", "/").replace("~0", "~"): str(each.value)
        for each in entries
        if each.path.startswith(path)
    }


def parse_observed(value: str) -> list[str] | None:
    """Return the container names of ``vpaObservedContainers``; None if it is not a list."""
    if not value:
        return []
    names = value.split(_SEPARATOR)
    return names if all(map(is_label, names)) else None


def observed_containers(pod: PodView) -> frozenset[str] | None:
    """Return the containers that admission saw; None if it left no readable word of it."""
    value = pod.annotations.get(OBSERVED)
    names = parse_observed(value) if value is not None else None
    return frozenset(names) if names is not None else None


def _container_patch(
    pod: PodView, index: int, wanted: sizing.ContainerResources
) -> tuple[list[PatchEntry], list[str]]:
    requests, limits = pod.requests_and_limits(pod.template.containers[index].name)
    entries = [
        *_map_patch(index, "requests", requests, wanted.requests),
        *_map_patch(index, "limits", limits, wanted.limits),
    ]
    if requests is None and limits is None:
        # Upstream writes the empty object also where nothing follows.
        entries.insert(0, _add(f"/spec/containers/{index}/resources", {}))
    texts = [f"{name} request" for name in sorted(wanted.requests)]
    texts += [f"{name} limit" for name in sorted(wanted.limits)]
    return entries, texts


def _map_patch(
    index: int, field: PodField, present: Amounts | None, wanted: objects.ResourceList
) -> list[PatchEntry]:
    if not wanted:
        return []
    first = [_add(f"/spec/containers/{index}/resources/{field}", {})] if present is None else []
    return [
        *first,
        *(_add(resource_path(index, field, name), str(wanted[name])) for name in sorted(wanted)),
    ]


def _ranges(ranges: LimitRanges | sizing.ResourcesUnavailable) -> LimitRanges:
    return NO_RANGES if isinstance(ranges, sizing.ResourcesUnavailable) else ranges


def _annotation_path(key: str) -> str:
    return f"/metadata/annotations/{_escaped(key)}"


def _escaped(token: str) -> str:
    return token.replace("~", "~0").replace("/", "~1")


def _add(path: str, value: Any) -> PatchEntry:
    return PatchEntry("add", path, value)
