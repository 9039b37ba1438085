"""What a VPA asks for per container: mode, controlled resources, memory windows, OOM bump.

Read from the container policy, the gate ``PerVPAConfig`` and the flags; applied to samples
and to recommendations. Follows ``UpdateFromPolicy`` of upstream's aggregate state.
"""

from collections.abc import Mapping

from msgspec import Struct

from podscale.core.quantity import Quantity
from vpa.model.objects import (
    ContainerPolicy,
    ContainerRecommendation,
    Recommendation,
    ResourcePolicy,
    amount,
    container_policy,
)
from vpa.model.quantities import RESOURCES, ResourceList, is_set


class Windows(Struct, frozen=True):
    """How memory peaks and OOMs of one container are taken in."""

    interval_s: float = 86400.0  # one peak per interval
    interval_count: int = 8  # intervals after which an aggregate expires
    oom_ratio: float = 1.2
    oom_min_bytes: float = 100.0 * 2**20


class ContainerSettings(Struct, frozen=True):
    """The policy of one container with every default filled in."""

    mode: str = "Auto"
    controlled_resources: tuple[str, ...] = RESOURCES
    windows: Windows = Windows()


def settings_of(
    policy: ContainerPolicy | None, defaults: Windows, *, per_vpa_config: bool
) -> ContainerSettings:
    """Return the effective settings; with the gate off the gated fields have no effect."""
    if policy is None:
        return ContainerSettings(windows=defaults)
    windows = defaults
    if per_vpa_config:
        windows = Windows(
            interval_s=float(policy.memory_aggregation_interval_seconds or defaults.interval_s),
            interval_count=policy.memory_aggregation_interval_count or defaults.interval_count,
            oom_ratio=_milli(policy.oom_bump_up_ratio, defaults.oom_ratio),
            oom_min_bytes=_milli(policy.oom_min_bump_up, defaults.oom_min_bytes),
        )
    controlled = policy.controlled_resources
    return ContainerSettings(
        mode=policy.mode or "Auto",
        controlled_resources=RESOURCES if controlled is None else controlled,
        windows=windows,
    )


class PolicyCap(Struct, frozen=True):
    """A bound of the policy that changed an amount."""

    resource: str
    reason: str  # MinAllowed or MaxAllowed
    bound: Quantity


def apply_policy(
    recommendation: Recommendation | None,
    policy: ResourcePolicy | None,
    global_max: Mapping[str, Quantity],
) -> Recommendation | None:
    """Return the recommendation within minAllowed and maxAllowed; uncappedTarget stays.

    maxAllowed comes second and therefore wins over minAllowed, also where it is the
    cluster-wide one: upstream's order, wanted by the conformance cases (D18).
    """
    if recommendation is None:
        return None
    entries = recommendation.container_recommendations or ()
    return Recommendation(
        container_recommendations=tuple(
            capped_entry(entry, container_policy(policy, entry.container_name), global_max)
            for entry in entries
        )
    )


def capped_entry(
    entry: ContainerRecommendation,
    policy: ContainerPolicy | None,
    global_max: Mapping[str, Quantity],
) -> ContainerRecommendation:
    """Return one container's recommendation within its policy."""
    lowest = (policy.min_allowed if policy is not None else None) or ResourceList()
    # A maxAllowed that is present hides the global one per resource, also when it is zero.
    highest = {
        **global_max,
        **((policy.max_allowed if policy is not None else None) or ResourceList()),
    }
    return ContainerRecommendation(
        container_name=entry.container_name,
        target=_bounded(entry.target, lowest, highest),
        lower_bound=_bounded(entry.lower_bound, lowest, highest),
        upper_bound=_bounded(entry.upper_bound, lowest, highest),
        uncapped_target=entry.uncapped_target,
    )


def capped(
    resource: str,
    value: Quantity,
    lowest: Mapping[str, Quantity],
    highest: Mapping[str, Quantity],
) -> tuple[Quantity, list[PolicyCap]]:
    """Return ``value`` within the bounds that are set, and which of them changed it."""
    caps = []
    least, most = lowest.get(resource), highest.get(resource)
    if least is not None and is_set(least) and value.nano < least.nano:
        value = least
        caps.append(PolicyCap(resource, "MinAllowed", least))
    if most is not None and is_set(most) and value.nano > most.nano:
        value = most
        caps.append(PolicyCap(resource, "MaxAllowed", most))
    return value, caps


def _bounded(
    resources: ResourceList | None,
    lowest: Mapping[str, Quantity],
    highest: Mapping[str, Quantity],
) -> ResourceList | None:
    if resources is None:
        return None
    return ResourceList(
        {name: capped(name, value, lowest, highest)[0] for name, value in resources.items()}
    )


def _milli(value: str | int | float | None, default: float) -> float:
    return default if value is None else amount(value).milli / 1000.0
