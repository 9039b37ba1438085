"""A recommendation made to fit one pod: what admission would really set.

Pod LimitRange over all containers, then per container the Container LimitRange, the VPA's
policy, and with RequestsOnly the container's limit. A limit keeps its original ratio to the
request, as in upstream's ``limit_and_request_scaling.go``. Updater and admission run the same
function, which is why nothing is evicted that admission would not change.
"""

from collections.abc import Iterable, Mapping, Sequence

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
from vpa.model import amounts


class Limit(Struct, frozen=True):
    """A proportional limit, None if none is to be set, and the note for the pod."""

    limit: Quantity | None
    note: str = ""


def _absent(amount: Quantity | None) -> bool:
    # A single nano-unit is not absent: Value() rounds away from zero. Less than nothing comes
    # from somebody's mistake only.
    return amount is None or amount.nano <= 0


def proportional_limit(
    resource: str,
    limit: Quantity | None,
    request: Quantity | None,
    recommended: Quantity | None,
    default: Quantity | None,
) -> Limit:
    """Return the limit for a recommended request; ``default`` is the LimitRange's."""
    limit = default if _absent(limit) and default is not None else limit
    if limit is None or _absent(limit):
        return Limit(None, f"{resource}: limit NOT set since originalLimit is nil or 0")
    if recommended is None or _absent(recommended):
        return Limit(None, f"{resource}: limit NOT set since recommendedRequest is nil or 0")
    # Without a request Kubernetes takes the limit for it.
    if request is None or _absent(request) or _milli(request) == _milli(limit):
        return Limit(recommended)
    result, cut = amounts.scaled(resource, limit, request, recommended)
    note = f"{resource}: failed to keep limit to request ratio; capping limit to int64"
    return Limit(result, note if cut else "")


def proportional_limits(
    limits: Mapping[str, Quantity] | None,
    requests: Mapping[str, Quantity] | None,
    recommended: Mapping[str, Quantity] | None,
    defaults: Mapping[str, Quantity] | None,
) -> tuple[ResourceList, list[str]]:
    """Return the limits to set and the notes; no notes where there is no limit to set."""
    result, notes = ResourceList(), []
    for resource in amounts.RESOURCES:
        # An absent amount is a zero here, as upstream's accessors have it: only so does an
        # unset default of a LimitRange leave the limit unset.
        found = proportional_limit(
            resource,
            amounts.of(limits, resource),
            amounts.of(requests, resource),
            amounts.of(recommended, resource),
            amounts.of(defaults, resource),
        )
        if found.limit is not None:
            result[resource] = found.limit
        if found.note:
            notes.append(found.note)
    return result, notes if result else []


def boundary_request(
    resource: str,
    request: Quantity | None,
    limit: Quantity | None,
    boundary: Quantity,
    default: Quantity | None,
) -> Quantity:
    """Return the request whose proportional limit is ``boundary``; 0 is no boundary."""
    limit = default if _absent(limit) and default is not None else limit
    if limit is None or _absent(limit):
        return amounts.ZERO
    if request is None or _absent(request):
        return boundary
    return amounts.scaled(resource, request, limit, boundary)[0]


def _milli(amount: Quantity) -> int:
    return min(amount.milli, amounts.INT64_MAX)


class LimitRangeSpec(Struct, frozen=True):
    limits: tuple[LimitRangeItem, ...] = ()


def merged(items: Iterable[LimitRangeItem], kind: str) -> LimitRangeItem | None:
    """Return the effect of all items of one type: smallest max, largest min, last default."""
    result_max: ResourceList | None = None
    result_min: ResourceList | None = None
    default: ResourceList | None = None
    ratio: ResourceList | None = None
    for item in items:
        if item.type != kind:
            continue
        default = item.default if item.default is not None else default
        result_max = _tightest(result_max, item.max, smaller=True)
        result_min = _tightest(result_min, item.min, smaller=False)
        ratio = _tightest(ratio, item.max_limit_request_ratio, smaller=True)
    if result_max is None and result_min is None and default is None and ratio is None:
        return None
    return LimitRangeItem(kind, result_min, result_max, default, ratio)


def apply_container_range(
    recommendation: Mapping[str, Quantity],
    requests: Mapping[str, Quantity] | None,
    limits: Mapping[str, Quantity] | None,
    item: LimitRangeItem | None,
) -> tuple[ResourceList, list[amounts.Cap]]:
    """Return amounts whose proportional limits lie within the item, and what was cut.

    The minimum comes first and the maximum wins. A container without limit has no maximum.
    """
    result, caps = ResourceList(recommendation), []
    if item is None:
        return result, []
    for resource in amounts.RESOURCES:
        if resource not in result:
            continue
        value = result[resource]
        request = (requests or amounts.EMPTY).get(resource)
        limit = (limits or amounts.EMPTY).get(resource)
        default = amounts.of(item.default, resource)
        least, most = amounts.of(item.min, resource), amounts.of(item.max, resource)
        # Limit and request both have to reach the minimum.
        lowest = max(
            boundary_request(resource, request, limit, least, default), least, key=lambda q: q.nano
        )
        highest = boundary_request(resource, request, limit, most, default)
        if amounts.is_set(lowest) and value.nano < lowest.nano:
            value = lowest
            caps.append(amounts.Cap(resource, "LimitRangeMin", least))
        if amounts.is_set(highest) and value.nano > highest.nano:
            value = highest
            caps.append(amounts.Cap(resource, "LimitRangeMax", most))
        result[resource] = value
    return result, caps


def _tightest(
    known: ResourceList | None, item: ResourceList | None, *, smaller: bool
) -> ResourceList | None:
    if item is None or known is None:
        return known if item is None else item
    result = ResourceList(known)
    for resource in (name for name in amounts.RESOURCES if name in item):
        value = item[resource]
        if resource not in result or (value.nano < result[resource].nano) == smaller:
            result[resource] = value
    return result


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
    least, most = amounts.of(item.min, resource), amounts.of(item.max, resource)
    default = amounts.of(item.default, resource)
    recommended: dict[str, Quantity] = {}
    limit_sum = request_sum = 0
    for container in pod.template.containers:
        requests, limits = pod.requests_and_limits(container.name)
        request = amounts.of(requests, resource)
        own = bounds.get(container.name)
        if own is None or resource not in own:
            wanted = request
        else:
            wanted = recommended[container.name] = own[resource]
        limit = proportional_limit(
            resource, amounts.of(limits, resource), request, wanted, default
        ).limit
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
        value, _ = amounts.scaled(resource, wanted, base, total, up=up)
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
    caps: Mapping[str, tuple[amounts.Cap, ...]] = {}
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
        return Capped(None if policy is None else VpaRecommendation(()))
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
    return Capped(VpaRecommendation(tuple(results)), caps, changed)


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
        for resource in amounts.RESOURCES:
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
) -> tuple[ContainerRecommendation, list[amounts.Cap]]:
    name = entry.container_name
    requests, limits = pod.requests_and_limits(name)
    own = container_policy(policy, name)
    requests_only = controlled_values(policy, name) == "RequestsOnly"
    ceiling = limits if requests_only and limits is not None else amounts.EMPTY

    def fit(bound: ResourceList | None) -> tuple[ResourceList | None, list[amounts.Cap]]:
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
) -> tuple[ResourceList, list[amounts.Cap]]:
    bounds = amounts.allowed(policy, amounts.EMPTY)
    result, caps = ResourceList(), []
    for name, value in resources.items():
        result[name], found = amounts.capped(name, value, bounds)
        caps += found
    return result, caps


def _below(
    resources: ResourceList, ceiling: Mapping[str, Quantity]
) -> tuple[ResourceList, list[amounts.Cap]]:
    result, caps = ResourceList(resources), []
    for name, limit in ceiling.items():
        if name in result and result[name].milli > limit.milli:
            result[name] = limit
            caps.append(amounts.Cap(name, "ContainerLimit", limit))
    return result, caps
