"""Requests and limits that a pod's containers should have.

From the capped recommendation to one entry per container, in the order of the pod's spec.
"""

from collections.abc import Mapping

from msgspec import Struct

from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.pod import Amounts
from podscale.kube.objects.vpa import (
    LimitRangeItem,
    ResourceList,
    ResourcePolicy,
    Vpa,
    VpaRecommendation,
    controlled_values,
    update_mode,
)
from vpa.capping.limits import proportional_limits
from vpa.capping.processor import Capped, LimitRanges, cap_for_pod
from vpa.model.api.quantities import EMPTY, RESOURCES


class ContainerResources(Struct, frozen=True):
    """What to set on one container; both empty: leave it as it is."""

    requests: ResourceList = EMPTY
    limits: ResourceList = EMPTY

    @property
    def is_set(self) -> bool:
        """Whether anything is to be set."""
        return bool(self.requests or self.limits)

    def beyond(self, requests: Amounts | None, limits: Amounts | None) -> "ContainerResources":
        """Return what differs from these amounts."""
        return ContainerResources(
            _differing(requests, self.requests), _differing(limits, self.limits)
        )


class PodResources(Struct, frozen=True):
    """One entry per container, and phrases for the annotation by container name."""

    containers: tuple[ContainerResources, ...]
    notes: Mapping[str, tuple[str, ...]]
    capped: Capped = Capped(None)  # what they were computed from


class ResourcesUnavailable(Struct, frozen=True):
    """The resources cannot be computed now; the pod passes unchanged."""

    reason: str  # stable CamelCase token
    message: str


MOST_CONTAINERS = 100  # of a pod that is sized: others must not wait for the work


def too_large(pod: PodView) -> ResourcesUnavailable | None:
    """Return why a pod is left as it is whatever its VPA says, None if it is not."""
    count = len(pod.template.containers)
    if count <= MOST_CONTAINERS:
        return None
    return ResourcesUnavailable(
        "TooManyContainers", f"{count} containers; pods are sized up to {MOST_CONTAINERS}"
    )


def container_resources(
    pod: PodView,
    policy: ResourcePolicy | None,
    recommendation: VpaRecommendation | None,
    item: LimitRangeItem | None,
    *,
    include_unrecommended: bool,
) -> PodResources:
    """Return resources and notes; ``include_unrecommended`` keeps what is not recommended
    as it is now, which a resize has to write out.
    """
    entries, notes = [], {}
    for container in pod.template.containers:
        name = container.name
        requests, limits = pod.requests_and_limits(name)
        found = recommendation.of(name) if recommendation is not None else None
        if found is None and not include_unrecommended:
            entries.append(ContainerResources())
            continue
        wanted = (requests if found is None else found.target) or EMPTY
        # A key that is no resource name would make the whole patch invalid.
        wanted = ResourceList({key: value for key, value in wanted.items() if key})
        scaled = EMPTY
        if controlled_values(policy, name) == "RequestsAndLimits":
            default = item.default if item is not None else None
            scaled, texts = proportional_limits(limits, requests, wanted, default)
            if texts:
                notes[name] = tuple(texts)
        if include_unrecommended:
            wanted = _filled(wanted, requests)
            scaled = _filled(scaled, limits)
        entries.append(ContainerResources(wanted, scaled))
    return PodResources(tuple(entries), notes)


def pod_resources(
    pod: PodView, vpa: Vpa, ranges: LimitRanges | ResourcesUnavailable
) -> PodResources | ResourcesUnavailable:
    """Return what admission or a resize sets; empty entries without a recommendation."""
    if isinstance(ranges, ResourcesUnavailable):
        return ranges
    large = too_large(pod)
    if large is not None:
        return large
    if vpa.status.recommendation is None:
        unset = tuple(ContainerResources() for _ in pod.template.containers)
        return PodResources(unset, {}, cap_for_pod(vpa, pod, ranges))
    capped = cap_for_pod(vpa, pod, ranges)
    policy = vpa.spec.resource_policy if update_mode(vpa) != "Off" else None
    found = container_resources(
        pod, policy, capped.recommendation, ranges.container, include_unrecommended=False
    )
    names = {*found.notes, *capped.caps}
    notes = {name: (*capped.notes(name), *found.notes.get(name, ())) for name in names}
    return PodResources(found.containers, notes, capped)


def _differing(present: Amounts | None, wanted: ResourceList) -> ResourceList:
    held = present or EMPTY
    return ResourceList(
        {
            name: value
            for name, value in wanted.items()
            if name not in held or held[name].nano != value.nano
        }
    )


def _filled(resources: ResourceList, present: Amounts | None) -> ResourceList:
    kept = {name: (present or EMPTY)[name] for name in RESOURCES if name in (present or EMPTY)}
    return ResourceList({**kept, **resources})
