"""Resource lists, the ``requests``, ``limits``, ``target`` and ``minAllowed`` of API objects, and
what a VPA asks for per container: controlled resources, bounds, memory windows, OOM bump.

Every decision of the VPA reads amounts through here. They are exact quantities; scaling
follows upstream's ``limit_and_request_scaling.go``: CPU in milli-cores, memory in bytes. What is
asked for is read from the container policy, the gate ``PerVPAConfig`` and the flags, and applied to
samples and to recommendations; follows ``UpdateFromPolicy`` of upstream's aggregate state.
"""

from collections.abc import Mapping

from msgspec import Struct

from podscale.core import quantity
from podscale.core.quantity import Format, Quantity, QuantityError
from podscale.kube.objects import vpa as objects

INT64_MAX = 2**63 - 1
RESOURCES = ("cpu", "memory")  # all that the VPA sizes
ZERO = Quantity(0)


EMPTY = objects.ResourceList()


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


class Windows(Struct, frozen=True):
    """How memory peaks and OOMs of one container are taken in."""

    interval_s: float = 86400.0  # one peak per interval
    interval_count: int = 8  # intervals after which an aggregate expires
    oom_ratio: float = 1.2
    oom_min_bytes: float = 100.0 * 2**20


class Mistake(Struct, frozen=True):
    """A setting of a VPA that has no effect, and why."""

    annotation: str  # or field of the spec
    message: str


def windows_of(
    policy: objects.ContainerPolicy | None, defaults: Windows, *, per_vpa_config: bool
) -> Windows:
    """Return the effective windows; with the gate off the gated fields have no effect, nor
    have values that the schema forbids (``mistakes_of`` tells of them).
    """
    if policy is None or not per_vpa_config:
        return defaults
    return Windows(
        _at_least(policy.memory_aggregation_interval_seconds, 1, defaults.interval_s),
        round(_at_least(policy.memory_aggregation_interval_count, 1, defaults.interval_count)),
        _at_least(policy.oom_bump_up_ratio, 1, defaults.oom_ratio),
        _at_least(policy.oom_min_bump_up, 0, defaults.oom_min_bytes),
    )


def gated(policy: objects.ContainerPolicy) -> dict[str, tuple[objects.Amount | None, int]]:
    """Return the fields that ``PerVPAConfig`` covers, each with the least that it may be."""
    return {
        "oomBumpUpRatio": (policy.oom_bump_up_ratio, 1),
        "oomMinBumpUp": (policy.oom_min_bump_up, 0),
        "memoryAggregationIntervalSeconds": (policy.memory_aggregation_interval_seconds, 1),
        "memoryAggregationIntervalCount": (policy.memory_aggregation_interval_count, 1),
    }


def controlled_resources(policy: objects.ContainerPolicy | None) -> tuple[str, ...]:
    """Return what is sized of a container; what else an old object names the VPA does not size."""
    if policy is None or policy.controlled_resources is None:
        return RESOURCES
    return tuple(name for name in policy.controlled_resources if name in RESOURCES)


_CAPPED_TO = {
    "LimitRangeMin": "fit Min in container LimitRange",
    "LimitRangeMax": "fit Max in container LimitRange",
    "MinAllowed": "minAllowed",
    "MaxAllowed": "maxAllowed",
    "ContainerLimit": "container limit",
}


class Cap(Struct, frozen=True):
    """A boundary that changed an amount."""

    resource: str
    reason: str  # token of an explanation
    limit: Quantity  # the bound as the user wrote it

    @property
    def note(self) -> str:
        """What the pod's annotation says of it."""
        return f"{self.resource} capped to {_CAPPED_TO[self.reason]}"

    @property
    def fact(self) -> dict[str, str]:
        """The bound as an explanation has it."""
        names = {"ContainerLimit": "limit", "MinAllowed": "min", "LimitRangeMin": "min"}
        return {names.get(self.reason, "max"): str(self.limit)}


class Allowed(Struct, frozen=True):
    """What a container may have."""

    lowest: Mapping[str, Quantity]
    highest: Mapping[str, Quantity]


def allowed(policy: objects.ContainerPolicy | None, global_max: Mapping[str, Quantity]) -> Allowed:
    """Return minAllowed and maxAllowed; one of the policy hides the global one per resource,
    also when it is zero.
    """
    if policy is None:
        return Allowed(EMPTY, global_max)
    return Allowed(policy.min_allowed or EMPTY, {**global_max, **(policy.max_allowed or EMPTY)})


def capped(resource: str, value: Quantity, bounds: Allowed) -> tuple[Quantity, list[Cap]]:
    """Return ``value`` within the bounds that are set, and which of them changed it.

    maxAllowed comes second and therefore wins over minAllowed, also where it is the
    cluster-wide one: upstream's order.
    """
    caps = []
    least, most = bounds.lowest.get(resource), bounds.highest.get(resource)
    # Unset is 0, and less is no bound.
    if least is not None and value.nano < least.nano > 0 and is_in_range(resource, least):
        value = least
        caps.append(Cap(resource, "MinAllowed", least))
    if most is not None and 0 < most.nano < value.nano and is_in_range(resource, most):
        value = most
        caps.append(Cap(resource, "MaxAllowed", most))
    return value, caps


def mistakes_of(
    policy: objects.ResourcePolicy | None, *, per_vpa_config: bool
) -> tuple[Mistake, ...]:
    """Return the fields whose values cannot be used: bounds that no container can have, and
    with the gate those that it covers, for which the flags count instead.
    """
    found = []
    for number, entry in enumerate(objects.container_policies(policy)):
        path = f"spec.resourcePolicy.containerPolicies[{number}]"
        for name, bounds in (("minAllowed", entry.min_allowed), ("maxAllowed", entry.max_allowed)):
            for resource in RESOURCES:
                bound = (bounds or EMPTY).get(resource)
                if bound is not None and not is_in_range(resource, bound):
                    text = "is no amount that a container can have: it bounds nothing"
                    found.append(Mistake(f"{path}.{name}[{resource}]", text))
        if not per_vpa_config:
            continue
        for name, (value, least) in gated(entry).items():
            if value is not None and _at_least(value, least, -1.0) < 0.0:
                text = f"{value!r} is not a quantity of at least {least}"
                found.append(Mistake(f"{path}.{name}", text))
    return tuple(found)


def _at_least(value: objects.Amount | None, least: float, default: float) -> float:
    try:
        found = default if value is None else quantity.from_wire(value).milli / 1000.0
    except (QuantityError, ValueError):
        return default
    return found if found >= least else default
