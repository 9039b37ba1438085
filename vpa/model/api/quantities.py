"""Resource lists: the ``requests``, ``limits``, ``target`` and ``minAllowed`` of API objects.

Every decision of the VPA reads them through here. Amounts are exact quantities; scaling
follows upstream's ``limit_and_request_scaling.go``: CPU in milli-cores, memory in bytes.
"""

from collections.abc import Mapping

from podscale.core import quantity
from podscale.core.quantity import Format, Quantity
from podscale.kube.objects.vpa import ResourceList

INT64_MAX = 2**63 - 1
RESOURCES = ("cpu", "memory")  # all that the VPA sizes
ZERO = Quantity(0)


EMPTY = ResourceList()


def of(resources: Mapping[str, Quantity] | None, name: str) -> Quantity:
    """Return the amount of one resource; an absent one is zero, as upstream's accessors say."""
    return (resources or EMPTY).get(name, ZERO)


def wire(resources: Mapping[str, Quantity]) -> dict[str, str]:
    """Return canonical texts, in the order of the names as Go's JSON has them."""
    return {name: str(resources[name]) for name in sorted(resources)}


def units(resource: str, amount: Quantity) -> int:
    """Return whole milli-cores of CPU, whole bytes of anything else, rounded up."""
    return amount.milli if resource == "cpu" else amount.value


def of_units(resource: str, count: int, notation: Format | None = None) -> Quantity:
    """Return ``count`` milli-cores or bytes; without a notation that of the VPA's status."""
    if resource == "cpu":
        return Quantity(count * quantity.MICRO, notation or "DecimalSI")
    return Quantity(count * quantity.NANO, notation or "BinarySI")


def scaled(
    resource: str, amount: Quantity, base: Quantity, result: Quantity, *, up: bool = False
) -> tuple[Quantity, bool]:
    """Return ``amount * result / base``, floored (or ``up``), and whether it was cut to int64.

    ``base`` is not zero. The notation is that of ``amount``.
    """
    product = units(resource, amount) * units(resource, result)
    divisor = units(resource, base)
    count = -(-product // divisor) if up else product // divisor
    if count > INT64_MAX:
        return of_units(resource, INT64_MAX, amount.format), True
    return of_units(resource, count, amount.format), False


def is_set(amount: Quantity | None) -> bool:
    """Return whether there is an amount: in policies zero means unset, and less is no bound."""
    return amount is not None and amount.nano > 0


def is_in_range(resource: str, amount: Quantity) -> bool:
    """Return whether the amount is one that a container can have: not negative, and an int64
    of milli-cores or bytes, in which everybody behind the API server counts.
    """
    return 0 <= units(resource, amount) <= INT64_MAX


def lower(first: Mapping[str, Quantity], second: Mapping[str, Quantity]) -> bool:
    """Return whether ``second`` has less of any resource that both name."""
    return any(name in second and second[name].nano < amount.nano for name, amount in first.items())
