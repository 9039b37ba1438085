"""What each container should request: the recommender's own estimators, bounded by nodes and
LimitRanges.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from podscale.core.quantity import Quantity
from podscale.kube.objects.vpa import LimitRangeItem, ResourceList
from podscale.replay.fleet.reading import Amounts, FleetPast
from podscale.replay.fleet.usage import FleetContainer
from vpa.capping.limits import apply_container_range
from vpa.model.api.quantities import RESOURCES, of_units, units
from vpa.model.estimation.recommendation import (
    NodeShape,
    RecommendedUsage,
    RecommenderSettings,
    ResourceUsage,
    largest,
    recommend,
    without_margin,
)

Estimator = Literal["vpa", "autopilot", "percentile"]


class RequestChoice(Struct, frozen=True):
    """Which estimator, and its settings."""

    estimator: Estimator = "vpa"
    percentile: float = 0.9  # of the VPA's histogram; of all samples for ``percentile``
    min_cpu_milli: float = 25.0  # of a pod
    min_memory_mb: float = 250.0


class SizedAmount(Struct, frozen=True):
    """A recommended request, cores or bytes, and what bounded it."""

    amount: float
    bounds: tuple[str, ...] = ()  # tokens: NodeSize, LimitRangeMin …


def recommended(
    past: FleetPast, choice: RequestChoice, percentiles: Mapping[tuple[int, str], float]
) -> dict[FleetContainer, dict[str, SizedAmount]]:
    """Return the amounts by container and resource; ``percentiles`` are those of all samples
    by column and resource, which the estimator ``percentile`` recommends.
    """
    settings = _settings(choice)
    shapes = _shapes(past.nodes)
    by_workload: dict[tuple[str, str], list[FleetContainer]] = {}
    for sized in past.usage.containers:
        by_workload.setdefault(sized.vpa, []).append(sized)
    usages = dict(_usages(past, choice, settings, percentiles))
    found: dict[FleetContainer, dict[str, SizedAmount]] = {}
    for named in by_workload.values():
        trace = recommend([usages[each] for each in named], settings, shapes=shapes)
        for sized in named:
            for resource in RESOURCES:
                amount = trace.amounts.get((sized.container, resource, "target"))
                if amount is None:
                    continue
                bounds = tuple(step.reason for step in amount.steps)
                value, more = _within(sized, resource, amount.published, past)
                found.setdefault(sized, {})[resource] = SizedAmount(value, bounds + more)
    return found


def _settings(choice: RequestChoice) -> RecommenderSettings:
    base = RecommenderSettings(
        min_cpu_milli=choice.min_cpu_milli, min_memory_mb=choice.min_memory_mb
    )
    if choice.estimator != "vpa":
        return without_margin(base)  # Autopilot's amounts have it; a percentile is what it is
    percentiles = replace(base.cpu.percentiles, target=choice.percentile)
    chosen = replace(base.cpu, percentiles=percentiles)
    return replace(base, cpu=chosen, memory=chosen)


def _usages(
    past: FleetPast,
    choice: RequestChoice,
    settings: RecommenderSettings,
    percentiles: Mapping[tuple[int, str], float],
) -> Iterator[tuple[FleetContainer, RecommendedUsage]]:
    usage = past.usage
    named = list(usage.containers)
    if usage.autopilot is not None:
        keys = [(each.vpa, each.container) for each in named]
        read = {resource: usage.autopilot.read(resource, keys) for resource in RESOURCES}
        for place, each in enumerate(named):
            yield each, RecommendedUsage(each.container, {
                resource: ResourceUsage(_triple(bounds.percentiles[1, place]), 1.0)
                for resource, bounds in read.items() if bounds.measured[place]
            })  # fmt: skip
        return
    if choice.estimator == "percentile":
        for each, column in usage.containers.items():
            yield each, RecommendedUsage(each.container, {
                resource: ResourceUsage(_triple(percentiles[column, resource]), 1.0)
                for resource in RESOURCES if (column, resource) in percentiles
            })  # fmt: skip
        return
    columns = np.array(list(usage.containers.values()), np.intp)
    for each, known in zip(named, usage.aggregates.usage(columns, settings), strict=True):
        yield each, RecommendedUsage(each.container, known)


def _triple(value: float) -> tuple[float, float, float]:
    return float(value), float(value), float(value)


def _shapes(nodes: Mapping[str, Amounts]) -> Sequence[NodeShape]:
    return largest(
        NodeShape(name, round(1000.0 * node.get("cpu", 0.0)), round(node.get("memory", 0.0)))
        for name, node in sorted(nodes.items())
    )


def _within(
    sized: FleetContainer, resource: str, amount: Quantity, past: FleetPast
) -> tuple[float, tuple[str, ...]]:
    # Within the LimitRange of containers, whose limits keep their ratio to the request.
    bounds = past.bounds.get((sized.workload.namespace, "Container"))
    caps: tuple[str, ...] = ()
    if bounds is not None:
        item = LimitRangeItem(
            "Container", *(_list(bounds.get(each)) for each in ("min", "max", "default"))
        )
        requests, limits = _list(past.requests.get(sized)), _list(past.limits.get(sized))
        capped, found = apply_container_range({resource: amount}, requests, limits, item)
        amount, caps = capped[resource], tuple(cap.reason for cap in found)
    whole = units(resource, amount)
    return (whole / 1000.0 if resource == "cpu" else float(whole)), caps


def _list(amounts: Mapping[str, float] | None) -> ResourceList | None:
    if not amounts:
        return None
    return ResourceList({
        resource: of_units(resource, round(value * (1000.0 if resource == "cpu" else 1.0)))
        for resource, value in amounts.items() if resource in RESOURCES
    })  # fmt: skip
