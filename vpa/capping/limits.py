"""Limits that follow their requests, and requests whose limits would break a boundary.

A limit keeps its original ratio to the request. Follows upstream's
``limit_and_request_scaling.go``.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from podscale.core.quantity import Quantity
from podscale.kube.objects.vpa import LimitRangeItem, ResourceList
from vpa.model.api.policy import Cap
from vpa.model.api.quantities import EMPTY, INT64_MAX, RESOURCES, ZERO, is_set, of, scaled


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
    result, cut = scaled(resource, limit, request, recommended)
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
    for resource in RESOURCES:
        # An absent amount is a zero here, as upstream's accessors have it: only so does an
        # unset default of a LimitRange leave the limit unset.
        found = proportional_limit(
            resource,
            of(limits, resource),
            of(requests, resource),
            of(recommended, resource),
            of(defaults, resource),
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
        return ZERO
    if request is None or _absent(request):
        return boundary
    return scaled(resource, request, limit, boundary)[0]


def _milli(amount: Quantity) -> int:
    return min(amount.milli, INT64_MAX)


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
) -> tuple[ResourceList, list[Cap]]:
    """Return amounts whose proportional limits lie within the item, and what was cut.

    The minimum comes first and the maximum wins. A container without limit has no maximum.
    """
    result, caps = ResourceList(recommendation), []
    if item is None:
        return result, []
    for resource in RESOURCES:
        if resource not in result:
            continue
        value = result[resource]
        request = (requests or EMPTY).get(resource)
        limit = (limits or EMPTY).get(resource)
        default = of(item.default, resource)
        least, most = of(item.min, resource), of(item.max, resource)
        # Limit and request both have to reach the minimum.
        lowest = max(
            boundary_request(resource, request, limit, least, default), least, key=lambda q: q.nano
        )
        highest = boundary_request(resource, request, limit, most, default)
        if is_set(lowest) and value.nano < lowest.nano:
            value = lowest
            caps.append(Cap(resource, "LimitRangeMin", least))
        if is_set(highest) and value.nano > highest.nano:
            value = highest
            caps.append(Cap(resource, "LimitRangeMax", most))
        result[resource] = value
    return result, caps


def _tightest(
    known: ResourceList | None, item: ResourceList | None, *, smaller: bool
) -> ResourceList | None:
    if item is None or known is None:
        return known if item is None else item
    result = ResourceList(known)
    for resource in (name for name in RESOURCES if name in item):
        value = item[resource]
        if resource not in result or (value.nano < result[resource].nano) == smaller:
            result[resource] = value
    return result
