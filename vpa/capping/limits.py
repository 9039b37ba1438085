"""Limits that follow their requests, and requests whose limits would break a boundary.

A limit keeps its original ratio to the request. Follows upstream's
``limit_and_request_scaling.go``.
"""

from collections.abc import Mapping

from msgspec import Struct

from podscale.core.quantity import Quantity
from vpa.model.api.quantities import INT64_MAX, RESOURCES, ZERO, ResourceList, of, scaled


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
