"""Usage against target: the two ratios everything else starts from.

Follows ``metrics/utilization.go``, unchanged upstream since 2018.
"""

from collections.abc import Mapping

from msgspec import Struct

from hpa.decide.numbers import INT32_MAX, INT64_MAX, Amount, quotient, wrap32, wrap64


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


def resource_ratio(
    usage: Mapping[str, Amount], requests: Mapping[str, int], target_utilization: int
) -> ResourceRatio | None:
    """Return the ratio, or None if no pod of ``usage`` has a request above zero in sum."""
    total: Amount = 0
    requested = count = 0
    for pod, amount in usage.items():
        request = requests.get(pod)
        if request is not None:
            total += amount
            requested += request
            count += 1
    if requested == 0:
        return None
    if total >= INT64_MAX:
        utilization = INT32_MAX  # of what Go has no room for
    else:
        hundredfold = total * 100
        if isinstance(hundredfold, int):
            hundredfold = wrap64(hundredfold)
        utilization = wrap32(quotient(hundredfold, requested))
    return ResourceRatio(utilization / target_utilization, utilization, quotient(total, count))


def metric_ratio(usage: Mapping[str, Amount], target_average: int) -> MetricRatio:
    """Return the ratio over all of ``usage``, which is not empty."""
    average = quotient(sum(usage.values()), len(usage))
    # Doubles first, then the quotient: whole numbers would be divided more exactly.
    return MetricRatio(float(average) / target_average, average)
