"""What the API server would refuse a patched pod for, found before the patch is sent.

Targets, policies, LimitRanges and annotations come from whoever may write them; whatever
they say, a pod that could be created without us can be created with us. Follows
``validateContainerResourceRequirements``, ``validatePodResourceConsistency`` and the plugin
LimitRanger of Kubernetes 1.37, for what a patch changes.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from podscale.core.quantity import NANO, Quantity
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.pod import Amounts, TemplateContainer
from podscale.kube.objects.vpa import LimitRangeItem, ResourceList, Resources
from vpa.admission.patches.resources import ContainerResources, ResourcesUnavailable
from vpa.capping.processor import LimitRanges
from vpa.model.api.quantities import EMPTY, RESOURCES, is_in_range, of

REFUSED = "PatchWouldBeRefused"
_MOST_ANNOTATIONS = 256 * 1024  # bytes of names and values, TotalAnnotationSizeLimitB


def patched(container: TemplateContainer, wanted: ContainerResources) -> Resources:
    """Return the container's resources with ``wanted`` written into its spec."""
    return Resources(
        ResourceList({**(container.requests or EMPTY), **wanted.requests}),
        ResourceList({**(container.limits or EMPTY), **wanted.limits}),
    )


def refused(
    pod: PodView, wanted: Sequence[ContainerResources], ranges: LimitRanges
) -> ResourcesUnavailable | None:
    """Return why the API server would refuse the pod with ``wanted`` set, None if it would not.

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
    container: TemplateContainer, wanted: ContainerResources, after: Resources
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


def _of_pod(pod: PodView, after: Sequence[Resources]) -> str:
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
    pod: PodView, after: Sequence[Resources], ranges: LimitRanges
) -> ResourcesUnavailable | None:
    if ranges.container is not None:
        for container, resources in zip(pod.template.containers, after, strict=True):
            found = _outside(f"container {container.name}", resources, ranges.container)
            if found is not None:
                return found
    if ranges.pod is None:
        return None
    whole = Resources(_totals(pod, after, "requests"), _totals(pod, after, "limits"))
    return _outside("the pod", whole, ranges.pod)


def _totals(
    pod: PodView, after: Sequence[Resources], field: Literal["requests", "limits"]
) -> ResourceList:
    # Containers and sidecars together, or the one init container that asks for more.
    init = pod.template.init_containers
    sidecars = [each for each in init if each.is_sidecar]
    running: list[Amounts] = [getattr(each, field) or EMPTY for each in (*after, *sidecars)]
    starting: list[Amounts] = [
        getattr(each, field) or EMPTY for each in init if not each.is_sidecar
    ]
    totals = ResourceList()
    for name in RESOURCES:
        if any(name in listed for listed in (*running, *starting)):
            total = sum(of(listed, name).nano for listed in running)
            most = max((of(listed, name).nano for listed in starting), default=0)
            totals[name] = Quantity(max(total, most))
    return totals


def _outside(what: str, resources: Resources, item: LimitRangeItem) -> ResourcesUnavailable | None:
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
