"""LimitRanges: their merged effect in a namespace, and what it does to one container."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from podscale.core.quantity import Quantity
from vpa.capping.limits import boundary_request
from vpa.model.api.objects import LimitRangeItem
from vpa.model.api.quantities import EMPTY, RESOURCES, ResourceList, is_set, of


class LimitRangeSpec(Struct, frozen=True):
    limits: tuple[LimitRangeItem, ...] = ()


class Cap(Struct, frozen=True):
    """A boundary that changed an amount; ``note`` goes into the pod's annotation."""

    resource: str
    reason: str  # token of an explanation
    note: str
    limit: Quantity  # the bound as the user wrote it

    @property
    def fact(self) -> dict[str, str]:
        """The bound as an explanation has it."""
        names = {"ContainerLimit": "limit", "MinAllowed": "min", "LimitRangeMin": "min"}
        return {names.get(self.reason, "max"): str(self.limit)}


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
    requests: ResourceList | None,
    limits: ResourceList | None,
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
            note = f"{resource} capped to fit Min in container LimitRange"
            caps.append(Cap(resource, "LimitRangeMin", note, least))
        if is_set(highest) and value.nano > highest.nano:
            value = highest
            note = f"{resource} capped to fit Max in container LimitRange"
            caps.append(Cap(resource, "LimitRangeMax", note, most))
        result[resource] = value
    return result, caps


def _tightest(
    known: ResourceList | None, item: ResourceList | None, *, smaller: bool
) -> ResourceList | None:
    if item is None:
        return known
    if known is None:
        return item
    result = ResourceList(known)
    for resource in RESOURCES:
        if resource not in item:
            continue
        value = item[resource]
        if resource not in result or (value.nano < result[resource].nano) == smaller:
            result[resource] = value
    return result
