"""What each container's usage is like, and what it should request: the recommender's own
estimators, bounded by nodes and LimitRanges.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from podscale.core.quantity import Quantity
from podscale.kube.objects.vpa import LimitRangeItem, ResourceList
from podscale.replay.fleet.reading import Amounts, FleetPast
from podscale.replay.fleet.usage import FleetContainer, Floats
from vpa.capping import apply_container_range
from vpa.model.amounts import RESOURCES, of_units, units
from vpa.model.estimation.recommendation import (
    NodeShape,
    RecommendedUsage,
    RecommenderSettings,
    ResourceUsage,
    largest,
    recommend,
    without_margin,
)

UsageClass = Literal["steady", "daily", "bursty", "growing", "idle", "batch"]
CLASSES: tuple[UsageClass, ...] = get_args(UsageClass)

_HOURS = 24
_IDLE_CORES = 0.01
_ACTIVE = 0.02  # of the 99th percentile: from here on an hour counts as active
_SELDOM = 0.35  # of the hours
_PLATEAU = 0.5  # of the 99th percentile: what runs seldom, and then with as much, is a batch
_BURST = 3.0  # times the median
_MOVES = 0.1  # of the mean: less spread than this is steady, whatever its shape
_EXPLAINED = 0.5  # of the spread, by the time of day or by a line
_GROWTH = 0.2  # of the mean, in a week
_FEWEST_DAYS = 3


class UsageShape(Struct, frozen=True):
    """The class and the numbers behind it."""

    usage_class: UsageClass
    active: float  # share of the hours, of those that are known, with more than next to nothing
    burst: float  # the 99th percentile, in times of the median
    daily: float  # share of the spread between hours that the time of day explains
    growth: float  # in a week, of the mean; 0 where no line explains it
    seen: float  # share of the hours that are known, since the first sample


def shape_of(
    resource: str,
    steps: NDArray[np.intp],
    values: NDArray[np.floating],
    ordered: NDArray[np.floating],
    hour_steps: int,
) -> UsageShape:
    """Return the shape of samples on a grid with ``hour_steps`` steps an hour; at least one.

    ``ordered`` are the same values, the smallest first.
    """
    begins, ends = int(steps.min()), int(steps.max()) + 1
    hour = (steps - begins) // hour_steps
    hours = (ends - begins - 1) // hour_steps + 1
    count = np.bincount(hour, minlength=hours)
    known = np.flatnonzero(count)
    mean = (np.bincount(hour, values, hours) / np.maximum(count, 1))[known]
    middle, high, largest = ordered[[len(values) // 2, int(0.99 * (len(values) - 1)), -1]].tolist()
    spread = float(mean.var())
    level = float(mean.mean())
    is_active = mean > _ACTIVE * high if high > 0.0 else np.zeros(len(mean), np.bool_)
    active = int(np.count_nonzero(is_active)) / len(mean)
    seen = len(known) / hours
    burst = high / middle if middle > 0.0 else (np.inf if high > 0.0 else 1.0)
    moves = spread**0.5 / level if level > 0.0 else 0.0
    daily = _of_day(known, mean) if hours >= 2 * _HOURS else 0.0
    growth = _growth(known, mean, level) if hours >= _FEWEST_DAYS * _HOURS else 0.0
    found: UsageClass
    if resource == "cpu" and largest < _IDLE_CORES:
        found = "idle"
    elif seen < 1.0 - _SELDOM or (
        0.0 < active < _SELDOM and np.median(mean[is_active]) > _PLATEAU * high
    ):
        found = "batch"
    elif growth >= _GROWTH:
        found = "growing"
    elif daily >= _EXPLAINED and moves >= _MOVES:
        found = "daily"
    elif burst >= _BURST:
        found = "bursty"
    else:
        found = "steady"
    return UsageShape(found, active, min(burst, 1e6), daily, growth, seen)


def _of_day(known: NDArray[np.intp], mean: Floats) -> float:
    hour = known % _HOURS
    count = np.bincount(hour, minlength=_HOURS)
    of_day = np.bincount(hour, mean, _HOURS) / np.maximum(count, 1)
    left, whole = ((mean - of_day[hour]) ** 2).sum(), ((mean - mean.mean()) ** 2).sum()
    free = max(1, len(mean) - int((count > 0).sum()))  # each hour of the day has a mean of its own
    return float(max(0.0, 1.0 - (left / free) / (whole / (len(mean) - 1)))) if whole > 0.0 else 0.0


def _growth(known: NDArray[np.intp], mean: Floats, level: float) -> float:
    # Of means of days: a daily shape is no growth.
    day = known // _HOURS
    count = np.bincount(day)
    days = np.flatnonzero(count)
    means = np.bincount(day, mean)[days] / count[days]
    if len(days) < _FEWEST_DAYS or level <= 0.0:
        return 0.0
    at = days - days.mean()
    slope = float((at * means).sum() / (at * at).sum())
    whole = float(((means - means.mean()) ** 2).sum())
    explained = slope**2 * float((at * at).sum()) / whole if whole > 0.0 else 0.0
    return slope * 7.0 / level if explained >= _EXPLAINED else 0.0


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
