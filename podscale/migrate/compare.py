"""Old and new side by side: what KEDA and the migrated HPA would have asked for at past moments.

Pure, over answers of Prometheus. Compared is the number that the external metrics ask for,
within the limits: no tolerance, no stabilization, no behavior, which both sides share.
"""

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

_MOST = 2.0**31 - 1


class ComparedMetric(Struct, frozen=True):
    """One metric with an average target; others depend on the size, and are left out."""

    name: str
    query: str
    target: float  # per replica
    silence_is_zero: bool  # KEDA's ignoreNullValues, on a query without a default of its own


class Comparable(Struct, frozen=True):
    """What of a ScaledObject can be compared."""

    about: str
    metrics: Sequence[ComparedMetric]
    least: int
    most: int
    fallback: int | None = None  # replicas; None: the size is held
    left_out: Sequence[str] = ()  # metrics that cannot be compared


class Moment(Struct, frozen=True):
    """What both would have asked for; ``None``: nothing, the size is held."""

    time_s: float
    values: Mapping[str, float | None]  # the answer, None where there was no number
    old: int | None
    new: int | None

    @property
    def differs(self) -> bool:
        """Return whether moving would have changed the size."""
        return self.old != self.new


def at(compared: Comparable, time_s: float, answers: Mapping[str, Sequence[float]]) -> Moment:
    """Return the moment for the elements that each query answered."""
    old: list[int | None] = []
    new: list[int | None] = []
    values: dict[str, float | None] = {}
    for metric in compared.metrics:
        numbers = [each for each in answers.get(metric.name, ()) if math.isfinite(each)]
        values[metric.name] = sum(numbers) if numbers else None
        new.append(_asked(values[metric.name], metric) if numbers else compared.fallback)
        if len(answers.get(metric.name, ())) > 1:
            old.append(compared.fallback)  # KEDA refuses several elements
        elif numbers:
            old.append(_asked(numbers[0], metric))
        else:
            old.append(_asked(0.0, metric) if metric.silence_is_zero else compared.fallback)
    return Moment(time_s, values, _within(compared, old), _within(compared, new))


def _asked(value: float | None, metric: ComparedMetric) -> int:
    asked = (value or 0.0) / metric.target
    # What is beyond any size is cut to the limits afterwards; infinity has no whole number.
    return math.ceil(max(min(asked, _MOST), -_MOST))


def _within(compared: Comparable, asked: Sequence[int | None]) -> int | None:
    known = [each for each in asked if each is not None]
    if not known:
        return None
    largest = max(known)
    return min(max(largest, compared.least), compared.most)
