"""A recommendation made to fit one pod: what admission would really set.

Pod LimitRange over all containers, then per container the Container LimitRange, the VPA's
policy, and with RequestsOnly the container's limit. Updater and admission run the same
function, which is why nothing is evicted that admission would not change.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from podscale.core.quantity import Quantity
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.vpa import (
    ContainerPolicy,
    ContainerRecommendation,
    LimitRangeItem,
    ResourceList,
    ResourcePolicy,
    Vpa,
    VpaRecommendation,
    container_policy,
    controlled_values,
    is_off,
)
from vpa.capping.limits import apply_container_range, proportional_limit
from vpa.model.api.policy import Cap, allowed, capped
from vpa.model.api.quantities import EMPTY, RESOURCES, of, scaled

# One bound of all containers: container name to its resource list.
Bounds = Mapping[str, ResourceList]


def apply_pod_range(
    resource: str, bounds: Bounds, pod: PodView, item: LimitRangeItem
) -> dict[str, ResourceList]:
    """Return ``bounds`` of one resource, scaled into a Pod item of a LimitRange.

    The sums are those of the containers' limits as they would become, and of their recommended
    requests. Containers without a list or without this resource in it count with what they
    request now and do not change.
    """
    least, most = of(item.min, resource), of(item.max, resource)
    default = of(item.default, resource)
    recommended: dict[str, Quantity] = {}
    limit_sum = request_sum = 0
    for container in pod.template.containers:
        requests, limits = pod.requests_and_limits(container.name)
        request = of(requests, resource)
        own = bounds.get(container.name)
        if own is None or resource not in own:
            wanted = request
        else:
            wanted = recommended[container.name] = own[resource]
        limit = proportional_limit(resource, of(limits, resource), request, wanted, default).limit
        limit_sum += limit.nano if limit is not None else 0
        request_sum += wanted.nano
    too_large = most.nano > 0 and most.nano < limit_sum
    if least.nano <= limit_sum and least.nano <= request_sum and not too_large:
        return dict(bounds)
    if limit_sum <= 0:
        return dict(bounds)
    if least.nano > request_sum:
        # Rounded up for both resources: upstream floors memory and so stays a byte under
        # the minimum that it was to reach (D10).
        return _scaled(resource, bounds, recommended, Quantity(request_sum), least, up=True)
    total = most if too_large else least
    return _scaled(resource, bounds, recommended, Quantity(limit_sum), total, up=False)


def with_missing(
    entries: Sequence[ContainerRecommendation], pod: PodView, policy: ResourcePolicy | None
) -> list[ContainerRecommendation]:
    """Return the entries, and one with its present requests for every container without.

    They take part in the scaling of the targets; containers with mode Off do not.
    """
    known = {entry.container_name for entry in entries}
    result = list(entries)
    for container in pod.template.containers:
        if container.name in known or is_off(policy, container.name):
            continue
        requests, _ = pod.requests_and_limits(container.name)
        if requests:
            result.append(ContainerRecommendation(container.name, target=ResourceList(requests)))
    return result


def _scaled(
    resource: str,
    bounds: Bounds,
    recommended: Mapping[str, Quantity],
    base: Quantity,
    total: Quantity,
    *,
    up: bool,
) -> dict[str, ResourceList]:
    result = dict(bounds)
    if base.nano <= 0:
        return result
    for name, wanted in recommended.items():
        value, _ = scaled(resource, wanted, base, total, up=up)
        result[name] = ResourceList({**bounds[name], resource: value})
    return result


class LimitRanges(Struct, frozen=True):
    """The merged LimitRanges of the pod's namespace."""

    container: LimitRangeItem | None = None
    pod: LimitRangeItem | None = None


NO_RANGES = LimitRanges()


class Capped(Struct, frozen=True):
    """The recommendation of one pod, and what changed its targets, by container."""

    recommendation: VpaRecommendation | None
    caps: Mapping[str, tuple[Cap, ...]] = {}
    pod_range: frozenset[tuple[str, str]] = frozenset()  # (container, resource) it changed

    def notes(self, container: str) -> list[str]:
        return [cap.note for cap in self.caps.get(container, ())]


def cap_for_pod(vpa: Vpa, pod: PodView, ranges: LimitRanges) -> Capped:
    """Return the VPA's recommendation as it applies to ``pod``.

    Containers that the pod does not have are dropped, and so are those with mode Off:
    upstream still applies what was recommended to them before (D19).
    """
    policy = vpa.spec.resource_policy
    recommendation = vpa.status.recommendation
    if recommendation is None:
        return Capped(None if policy is None else VpaRecommendation(container_recommendations=()))
    present = {container.name for container in pod.template.containers}
    entries = [
        entry
        for entry in recommendation.container_recommendations or ()
        if entry.container_name in present and not is_off(policy, entry.container_name)
    ]
    changed: frozenset[tuple[str, str]] = frozenset()
    if ranges.pod is not None:
        before = with_missing(entries, pod, policy)
        entries = _within_pod_range(before, pod, ranges.pod)
        changed = _changed(before, entries)
    results, caps = [], {}
    for entry in entries:
        result, found = _capped_entry(entry, pod, ranges.container, policy)
        results.append(result)
        if found:
            caps[entry.container_name] = tuple(found)
    return Capped(VpaRecommendation(container_recommendations=tuple(results)), caps, changed)


def _within_pod_range(
    entries: list[ContainerRecommendation], pod: PodView, item: LimitRangeItem
) -> list[ContainerRecommendation]:
    bounds: dict[str, dict[str, ResourceList]] = {}
    for field in ("upper_bound", "target", "lower_bound"):
        lists: dict[str, ResourceList] = {
            entry.container_name: found
            for entry in entries
            if (found := getattr(entry, field)) is not None
        }
        for resource in RESOURCES:
            if lists:
                lists = apply_pod_range(resource, lists, pod, item)
        bounds[field] = lists
    return [
        structs.replace(
            entry, **{field: lists.get(entry.container_name) for field, lists in bounds.items()}
        )
        for entry in entries
    ]


def _changed(
    before: list[ContainerRecommendation], after: list[ContainerRecommendation]
) -> frozenset[tuple[str, str]]:
    return frozenset(
        (old.container_name, resource)
        for old, new in zip(before, after, strict=True)
        for resource, value in (new.target or {}).items()
        if old.target is None or old.target.get(resource) != value
    )


def _capped_entry(
    entry: ContainerRecommendation,
    pod: PodView,
    item: LimitRangeItem | None,
    policy: ResourcePolicy | None,
) -> tuple[ContainerRecommendation, list[Cap]]:
    name = entry.container_name
    requests, limits = pod.requests_and_limits(name)
    own = container_policy(policy, name)
    requests_only = controlled_values(policy, name) == "RequestsOnly"
    ceiling = limits if requests_only and limits is not None else EMPTY

    def fit(bound: ResourceList | None) -> tuple[ResourceList | None, list[Cap]]:
        if bound is None:
            return None, []
        ranged, caps = apply_container_range(bound, requests, limits, item)
        ranged, of_policy = _within_policy(ranged, own)
        ranged, of_limit = _below(ranged, ceiling)
        return ranged, [*caps, *of_policy, *of_limit]

    target, caps = fit(entry.target)
    lower, upper = fit(entry.lower_bound)[0], fit(entry.upper_bound)[0]
    return structs.replace(entry, target=target, lower_bound=lower, upper_bound=upper), caps


def _within_policy(
    resources: ResourceList, policy: ContainerPolicy | None
) -> tuple[ResourceList, list[Cap]]:
    bounds = allowed(policy, EMPTY)
    result, caps = ResourceList(), []
    for name, value in resources.items():
        result[name], found = capped(name, value, bounds)
        caps += found
    return result, caps


def _below(
    resources: ResourceList, ceiling: Mapping[str, Quantity]
) -> tuple[ResourceList, list[Cap]]:
    result, caps = ResourceList(resources), []
    for name, limit in ceiling.items():
        if name in result and result[name].milli > limit.milli:
            result[name] = limit
            caps.append(Cap(name, "ContainerLimit", limit))
    return result, caps
