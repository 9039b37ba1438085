"""Requests and limits that a pod's containers should have.

From the capped recommendation to one entry per container, in the order of the pod's spec, and
what of it the API server would refuse: found before a patch is sent.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from podscale.core.quantity import NANO, Quantity
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects import vpa as objects
from podscale.kube.objects.pod import Amounts, TemplateContainer
from vpa.capping import Capped, LimitRanges, cap_for_pod, proportional_limits
from vpa.model.amounts import EMPTY, RESOURCES, is_in_range, of


class ContainerResources(Struct, frozen=True):
    """What to set on one container; both empty: leave it as it is."""

    requests: objects.ResourceList = EMPTY
    limits: objects.ResourceList = EMPTY

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
    policy: objects.ResourcePolicy | None,
    recommendation: objects.VpaRecommendation | None,
    item: objects.LimitRangeItem | None,
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
        wanted = objects.ResourceList({key: value for key, value in wanted.items() if key})
        scaled = EMPTY
        if objects.controlled_values(policy, name) == "RequestsAndLimits":
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
    pod: PodView, vpa: objects.Vpa, ranges: LimitRanges | ResourcesUnavailable
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
    policy = vpa.spec.resource_policy if objects.update_mode(vpa) != "Off" else None
    found = container_resources(
        pod, policy, capped.recommendation, ranges.container, include_unrecommended=False
    )
    names = {*found.notes, *capped.caps}
    notes = {name: (*capped.notes(name), *found.notes.get(name, ())) for name in names}
    return PodResources(found.containers, notes, capped)


def _differing(present: Amounts | None, wanted: objects.ResourceList) -> objects.ResourceList:
    held = present or EMPTY
    return objects.ResourceList(
        {
            name: value
            for name, value in wanted.items()
            if name not in held or held[name].nano != value.nano
        }
    )


def _filled(resources: objects.ResourceList, present: Amounts | None) -> objects.ResourceList:
    kept = {name: (present or EMPTY)[name] for name in RESOURCES if name in (present or EMPTY)}
    return objects.ResourceList({**kept, **resources})


REFUSED = "PatchWouldBeRefused"
_MOST_ANNOTATIONS = 256 * 1024  # bytes of names and values, TotalAnnotationSizeLimitB


def patched(container: TemplateContainer, wanted: ContainerResources) -> objects.Resources:
    """Return the container's resources with ``wanted`` written into its spec."""
    return objects.Resources(
        objects.ResourceList({**(container.requests or EMPTY), **wanted.requests}),
        objects.ResourceList({**(container.limits or EMPTY), **wanted.limits}),
    )


def refused(
    pod: PodView, wanted: Sequence[ContainerResources], ranges: LimitRanges
) -> ResourcesUnavailable | None:
    """Return why the API server would refuse the pod with ``wanted`` set, None if it would not.

    Targets, policies, LimitRanges and annotations come from whoever may write them; whatever
    they say, a pod that could be created without us can be created with us. Follows
    ``validateContainerResourceRequirements``, ``validatePodResourceConsistency`` and the plugin
    LimitRanger of Kubernetes 1.37, for what a patch changes.

    The reason is LimitRangeMax or LimitRangeMin where a LimitRange says no, else ``REFUSED``.
    """
    if not any(each.is_set for each in wanted):
        return None
    containers = pod.template.containers
    after = [patched(*pair) for pair in zip(containers, wanted, strict=True)]
    for container, sets, resources in zip(containers, wanted, after, strict=True):
        text = _of_container(container, sets, resources)
        if text:
            return ResourcesUnavailable(REFUSED, f"container {container.name}: {text}")
    text = _of_pod(pod, after)
    return ResourcesUnavailable(REFUSED, text) if text else _of_ranges(pod, after, ranges)


def refused_annotations(pod: PodView, added: Mapping[str, str]) -> ResourcesUnavailable | None:
    """Return why the pod could not carry these annotations as well, None if it could."""
    after = {**pod.annotations, **added}
    size = sum(len(key.encode()) + len(value.encode()) for key, value in after.items())
    if size <= _MOST_ANNOTATIONS:
        return None
    return ResourcesUnavailable(
        REFUSED, f"annotations: {size} bytes, of at most {_MOST_ANNOTATIONS}"
    )


def _of_container(
    container: TemplateContainer, wanted: ContainerResources, after: objects.Resources
) -> str:
    for field, listed, present in (
        ("request", wanted.requests, container.requests),
        ("limit", wanted.limits, container.limits),
    ):
        for name, value in listed.items():
            if value == (present or EMPTY).get(name):
                continue  # was there before us
            if name not in RESOURCES:
                return f"{field} of {name[:40]!r}: only cpu and memory are sized"
            if not is_in_range(name, value):
                return f"{name} {field} {_short(value)} is no amount that a container can have"
    for name in (*wanted.requests, *wanted.limits):
        request, limit = (after.requests or EMPTY).get(name), (after.limits or EMPTY).get(name)
        if request is not None and limit is not None and request.nano > limit.nano:
            return f"{name} request {_short(request)} exceeds its limit {_short(limit)}"
    return ""


def _of_pod(pod: PodView, after: Sequence[objects.Resources]) -> str:
    requests, limits = pod.template.pod_requests or EMPTY, pod.template.pod_limits or EMPTY
    if not requests and not limits:
        return ""
    totals = _totals(pod, after, "requests")
    for name in RESOURCES:
        if name in requests and of(totals, name).nano > requests[name].nano:
            return f"{name}: the requests exceed the pod's own, {requests[name]}"
        most = limits.get(name)
        if most is not None and any(of(each.limits, name).nano > most.nano for each in after):
            return f"{name}: a limit exceeds the pod's own, {most}"
    return ""


def _of_ranges(
    pod: PodView, after: Sequence[objects.Resources], ranges: LimitRanges
) -> ResourcesUnavailable | None:
    if ranges.container is not None:
        for container, resources in zip(pod.template.containers, after, strict=True):
            found = _outside(f"container {container.name}", resources, ranges.container)
            if found is not None:
                return found
    if ranges.pod is None:
        return None
    whole = objects.Resources(_totals(pod, after, "requests"), _totals(pod, after, "limits"))
    return _outside("the pod", whole, ranges.pod)


def _totals(
    pod: PodView, after: Sequence[objects.Resources], field: Literal["requests", "limits"]
) -> objects.ResourceList:
    # Containers and sidecars together, or the one init container that asks for more.
    init = pod.template.init_containers
    sidecars = [each for each in init if each.is_sidecar]
    running: list[Amounts] = [getattr(each, field) or EMPTY for each in (*after, *sidecars)]
    starting: list[Amounts] = [
        getattr(each, field) or EMPTY for each in init if not each.is_sidecar
    ]
    totals = objects.ResourceList()
    for name in RESOURCES:
        if any(name in listed for listed in (*running, *starting)):
            total = sum(of(listed, name).nano for listed in running)
            most = max((of(listed, name).nano for listed in starting), default=0)
            totals[name] = Quantity(max(total, most))
    return totals


def _outside(
    what: str, resources: objects.Resources, item: objects.LimitRangeItem
) -> ResourcesUnavailable | None:
    for name in RESOURCES:
        request = (resources.requests or EMPTY).get(name)
        limit = (resources.limits or EMPTY).get(name)
        most, least = of(item.max, name), of(item.min, name)
        for value in (request, limit):
            if value is not None and most.nano > 0 and value.nano > most.nano:
                text = f"{name} of {what} would exceed max {most} of the LimitRange"
                return ResourcesUnavailable("LimitRangeMax", text)
            if value is not None and value.nano < least.nano:
                text = f"{name} of {what} would be below min {least} of the LimitRange"
                return ResourcesUnavailable("LimitRangeMin", text)
        ratio = of(item.max_limit_request_ratio, name)
        if request is None or limit is None or ratio.nano <= 0:
            continue
        if limit.nano * NANO > ratio.nano * request.nano:
            text = f"{name} of {what}: limit {limit} is more than {ratio} times {request}"
            return ResourcesUnavailable(REFUSED, f"{text}, which the LimitRange forbids")
    return None


def _short(value: Quantity) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
