"""Replica counts from measurements: the four calculations behind every metric.

Pure arithmetic on what a metric answered. Follows ``replica_calculator.go``, Kubernetes
1.37. Numbers are milli-units; ``current`` is the size of the target, ``status_replicas``
what its status reports, which differs during a rollout.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

from msgspec import Struct

from hpa.decide import numbers
from hpa.decide.api.spec import HPA
from hpa.decide.pods import PodGroups
from hpa.decide.settings import ACTUAL, Settings, Variation

Outcome = Literal["TargetMissed", "WithinTolerance", "DirectionWouldFlip", "SmallPodsRemain"]

NO_MATCH = "no metrics returned matched known pods"


class ResourceRatio(Struct, frozen=True, gc=False):
    """Utilization of requests, over pods that have both a sample and a request."""

    ratio: float
    utilization: int  # percent, truncated before it is divided by the target
    raw_average: int  # milli-units a pod


class MetricRatio(Struct, frozen=True, gc=False):
    """Average of a metric against its target per pod."""

    ratio: float
    average: int  # milli-units a pod, truncated


class Tolerance(Struct, frozen=True, gc=False):
    """The band in which nothing moves; fractions (0.1 is 10 %)."""

    down: float
    up: float

    def holds(self, ratio: float) -> bool:
        """Both ends belong to the band.

        Upstream's interval form, literally: ``abs(1 - ratio) <= tolerance`` is false at
        exactly 1.1 in binary floats and would scale where Kubernetes does not.
        """
        return 1.0 - self.down <= ratio <= 1.0 + self.up


def tolerance_of(hpa: HPA, settings: Settings, variation: Variation = ACTUAL) -> Tolerance:
    """Return the band that applies to ``hpa``."""
    if not variation.tolerance:
        return Tolerance(0.0, 0.0)
    down = up = settings.tolerance
    if hpa.behavior is not None and settings.gates.configurable_tolerance:
        down = down if hpa.behavior.down.tolerance is None else hpa.behavior.down.tolerance
        up = up if hpa.behavior.up.tolerance is None else hpa.behavior.up.tolerance
    return Tolerance(down, up)


def resource_ratio(
    usage: Mapping[str, numbers.Amount], requests: Mapping[str, int], target_utilization: int
) -> ResourceRatio | None:
    """Return the ratio, or None if no pod of ``usage`` has a request above zero in sum."""
    total: numbers.Amount = 0
    requested = count = 0
    for pod, amount in usage.items():
        request = requests.get(pod)
        if request is not None:
            total += amount
            requested += request
            count += 1
    if requested == 0:
        return None
    if total >= numbers.INT64_MAX:
        utilization = numbers.INT32_MAX  # of what Go has no room for
    else:
        hundredfold = total * 100
        if isinstance(hundredfold, int):
            hundredfold = numbers.wrap64(hundredfold)
        utilization = numbers.wrap32(numbers.quotient(hundredfold, requested))
    return ResourceRatio(
        utilization / target_utilization, utilization, numbers.quotient(total, count)
    )


def metric_ratio(usage: Mapping[str, numbers.Amount], target_average: int) -> MetricRatio:
    """Return the ratio over all of ``usage``, which is not empty."""
    average = numbers.quotient(sum(usage.values()), len(usage))
    # Doubles first, then the quotient: whole numbers would be divided more exactly.
    return MetricRatio(float(average) / target_average, average)


class Calculation(Struct, frozen=True, gc=False):
    """What one metric asks for and how it came about."""

    replicas: int
    ratio: float | None  # as measured; None: per pod of a target that reports no pods
    outcome: Outcome
    usage: int  # what the status reports: an average, or the sum for a Value target
    utilization: int | None = None  # percent, as measured
    corrected: float | None = None  # the ratio with silent and unready pods filled in
    groups: PodGroups | None = None


def by_utilization(
    current: int,
    target: int,
    usage: dict[str, numbers.Amount],
    requests: Mapping[str, int],
    groups: PodGroups,
    tolerance: Tolerance,
    variation: Variation = ACTUAL,
) -> Calculation | None:
    """Return the size that brings utilization to ``target`` percent; None if no pod of
    ``usage`` has a request. ``usage`` holds the pods that count and is filled in place.
    """
    first = resource_ratio(usage, requests, target)
    if first is None:
        return None
    averaged = _averaged(groups, variation)
    if averaged:
        known = [pod for pod in usage if pod in requests]
        total, requested = sum(usage[pod] for pod in known), sum(requests[pod] for pod in known)
        usage |= {pod: Fraction(total) * requests[pod] / requested for pod in averaged}
    missing, unready = _filled(groups, variation)
    ready = groups.ready + len(averaged)
    if first.ratio < 1.0:
        usage |= {pod: requests[pod] * max(100, target) // 100 for pod in missing}
    elif first.ratio > 1.0:
        usage |= dict.fromkeys(missing, 0)
        usage |= dict.fromkeys(unready, 0)
    corrected = None
    if missing or (unready and first.ratio > 1.0):
        second = resource_ratio(usage, requests, target)
        corrected = first.ratio if second is None else second.ratio
    replicas, outcome = _settle(current, first.ratio, corrected, ready, len(usage), tolerance)
    return Calculation(
        replicas, first.ratio, outcome, first.raw_average, first.utilization, corrected, groups
    )


def by_average(
    current: int,
    target: int,
    usage: dict[str, numbers.Amount],
    groups: PodGroups,
    tolerance: Tolerance,
    variation: Variation = ACTUAL,
) -> Calculation:
    """Return the size that brings the average per pod to ``target``.

    ``usage`` is not empty and is filled in place. Samples of pods that no longer exist
    are averaged in, as upstream does.
    """
    first = metric_ratio(usage, target)
    missing, unready = _filled(groups, variation)
    averaged = _averaged(groups, variation)
    if averaged:
        mean = Fraction(sum(usage.values())) / len(usage)
        usage |= dict.fromkeys(averaged, mean)
    ready = groups.ready + len(averaged)
    if first.ratio < 1.0:
        usage |= dict.fromkeys(missing, target)
    elif first.ratio > 1.0:
        usage |= dict.fromkeys(missing, 0)
        usage |= dict.fromkeys(unready, 0)
    corrected = None
    if missing or (unready and first.ratio > 1.0):
        corrected = metric_ratio(usage, target).ratio
    replicas, outcome = _settle(current, first.ratio, corrected, ready, len(usage), tolerance)
    return Calculation(replicas, first.ratio, outcome, first.average, None, corrected, groups)


def by_plain_average(
    current: int, target: int, total: int, groups: PodGroups, tolerance: Tolerance
) -> Calculation:
    """Return what ``by_average`` does where every pod is ready and has a sample: nothing is
    filled in, so that their sum says everything."""
    average = numbers.quotient(total, groups.ready)
    ratio = float(average) / target
    replicas, outcome = _settle(current, ratio, None, groups.ready, groups.ready, tolerance)
    return Calculation(replicas, ratio, outcome, average, None, None, groups)


def by_value(
    current: int, target: int, usage: int, counted_pods: int, tolerance: Tolerance
) -> Calculation:
    """Return the ratio times ``counted_pods`` (the ready ones); from zero, the ratio alone."""
    ratio = float(usage) / target
    if current == 0:
        return Calculation(numbers.ceil32(ratio), ratio, "TargetMissed", usage)
    if tolerance.holds(ratio):
        return Calculation(current, ratio, "WithinTolerance", usage)
    return Calculation(numbers.ceil32(ratio * counted_pods), ratio, "TargetMissed", usage)


def by_average_value(
    status_replicas: int,
    target: int,
    usage: int,
    tolerance: Tolerance,
    *,
    guards_zero: bool,
    caps: bool = True,
) -> Calculation:
    """Return ``usage / target``; within tolerance ``status_replicas``, whatever the spec says."""
    ratio = numbers.ratio_of(float(usage), float(target) * status_replicas)
    per_pod = usage_per_pod(usage, status_replicas, guards_zero=guards_zero, caps=caps)
    if tolerance.holds(ratio):
        return Calculation(status_replicas, ratio, "WithinTolerance", per_pod)
    shown = ratio if math.isfinite(ratio) else None
    return Calculation(numbers.ceil32(float(usage) / target), shown, "TargetMissed", per_pod)


def usage_per_pod(usage: int, status_replicas: int, *, guards_zero: bool, caps: bool = True) -> int:
    """Return usage a pod, rounded up on doubles.

    Up to 1.36 ``guards_zero`` is off (-2^63 is shown for zero replicas), and ``caps`` too
    for Object metrics: a usage at the end of int64 is divided like any other.
    """
    if guards_zero and status_replicas == 0:
        return 0
    if caps and float(usage) >= numbers.INT64_MAX:
        return numbers.INT64_MAX  # of the whole usage, not of the quotient
    if status_replicas == 0:
        return numbers.INT64_MIN
    return min(math.ceil(float(usage) / status_replicas), numbers.INT64_MAX)


def _averaged(groups: PodGroups, variation: Variation) -> tuple[str, ...]:
    names: tuple[str, ...] = getattr(groups, variation.averaged) if variation.averaged else ()
    return names


def _filled(groups: PodGroups, variation: Variation) -> tuple[tuple[str, ...], tuple[str, ...]]:
    # Silent pods, and pods that are not up, as far as they are not varied away.
    if variation.averaged is None:
        return groups.missing, groups.unready
    unready = [
        name
        for bucket in ("pending", "initializing", "never_ready")
        if bucket != variation.averaged
        for name in getattr(groups, bucket)
    ]
    return () if variation.averaged == "missing" else groups.missing, tuple(unready)


def _settle(
    current: int,
    ratio: float,
    corrected: float | None,
    ready: int,
    entries: int,
    tolerance: Tolerance,
) -> tuple[int, Outcome]:
    if corrected is None:
        if tolerance.holds(ratio):
            return current, "WithinTolerance"
        return numbers.ceil32(ratio * ready), "TargetMissed"
    # Pods that were filled in may keep the size as it is, never turn the direction round.
    if tolerance.holds(corrected):
        return current, "WithinTolerance"
    if (ratio < 1.0 and corrected > 1.0) or (ratio > 1.0 and corrected < 1.0):
        return current, "DirectionWouldFlip"
    replicas = numbers.ceil32(corrected * entries)
    if (corrected < 1.0 and replicas > current) or (corrected > 1.0 and replicas < current):
        return current, "DirectionWouldFlip"
    return replicas, "TargetMissed"
