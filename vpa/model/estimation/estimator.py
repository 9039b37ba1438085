"""From percentiles to bounds: margin, confidence, minimum; each step kept.

Follows ``logic/estimator.go`` and ``logic/recommender.go`` of upstream. Amounts are whole
milli-cores or bytes; every step truncates. Columns in, columns out; the derivation of one
amount is made from the same steps by ``derive``.
"""

import math
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.core import quantity
from podscale.core.quantity import Quantity
from vpa.model.amounts import of_units
from vpa.model.histograms.buckets import whole_power
from vpa.model.histograms.matrix import Floats

Bound = Literal["lowerBound", "target", "upperBound"]
Amounts = NDArray[np.int64]

BOUNDS: tuple[Bound, ...] = ("lowerBound", "target", "upperBound")
# base * (1 + multiplier / confidence) ** exponent; the target has none.
_CONFIDENCE: dict[Bound, tuple[float, int]] = {"lowerBound": (0.001, -2), "upperBound": (1.0, 1)}


class Percentiles(Struct, frozen=True):
    """Fractions of the weight at which the three bounds are read."""

    lower: float = 0.5
    target: float = 0.9
    upper: float = 0.95

    def of(self, bound: Bound) -> float:
        """Return the fraction of one bound."""
        return {"lowerBound": self.lower, "target": self.target, "upperBound": self.upper}[bound]


class EstimatorSettings(Struct, frozen=True):
    """The estimators' parameters of one resource: flags, or annotations of a VPA."""

    percentiles: Percentiles = Percentiles()
    margin: float = 0.15
    confidence_interval_s: float = 86400.0


class Derivation(Struct, frozen=True, gc=False):
    """How one amount came about, in the order of the steps; milli-cores or bytes."""

    fraction: float
    usage: int  # end of the percentile's bucket
    with_margin: int
    margin: float
    confidence: float
    factor: float  # what confidence multiplied by; 1 for the target
    with_confidence: int
    minimum: int  # of the container
    amount: int


def confidence(first: Floats, last: Floats, samples: Floats, interval_s: float) -> Floats:
    """Return the history's length in intervals, by time or by samples a minute, the smaller."""
    by_time = (last - first) / interval_s
    by_count = samples / (interval_s / 60.0)
    known: Floats = np.where(samples > 0, np.minimum(by_time, by_count), 0.0)
    return known


def with_margin(amounts: Amounts, margin: float) -> Amounts:
    """Return ``amounts`` and a fraction of them on top, truncated."""
    on_top: Floats = amounts.astype(np.float64) * margin
    sums: Amounts = np.add(amounts, _truncated(on_top))
    return sums


def with_confidence(amounts: Amounts, known: Floats, multiplier: float, exponent: int) -> Amounts:
    """Return ``amounts`` moved away from the target the more, the less is known.

    With no confidence a positive exponent gives 1e14 and a negative one gives 0.
    """
    # 0 * inf: a measured zero with nothing known about it stays zero.
    with np.errstate(invalid="ignore"):
        product: Floats = amounts * factor(known, multiplier, exponent)
    return _truncated(np.nan_to_num(product, nan=0.0, posinf=float(MAX_AMOUNT)))


def factor(known: Floats, multiplier: float, exponent: int) -> Floats:
    """Return ``(1 + multiplier / known) ** exponent``; inf or 0 where nothing is known."""
    with np.errstate(divide="ignore"):
        return whole_power(1.0 + multiplier / np.maximum(known, 0.0), exponent)


def with_minimum(amounts: Amounts, minimum: Amounts | int) -> Amounts:
    """Return ``amounts``, at least ``minimum``."""
    return np.maximum(amounts, minimum)


def amounts(resource: str, usage: Floats) -> Amounts:
    """Return percentile values, cores or bytes, as milli-cores or bytes."""
    return _truncated(usage * 1000.0 if resource == "cpu" else usage)


def estimate(
    resource: str,
    bound: Bound,
    usage: Floats,
    known: Floats,
    minimum: Amounts | int,
    settings: EstimatorSettings,
) -> Amounts:
    """Return one bound of many containers; ``usage`` is its percentile, cores or bytes."""
    wanted = with_margin(amounts(resource, usage), settings.margin)
    if bound in _CONFIDENCE:
        wanted = with_confidence(wanted, known, *_CONFIDENCE[bound])
    return with_minimum(wanted, minimum)


def derive(
    resource: str,
    bound: Bound,
    usage: float,
    known: float,
    minimum: int,
    settings: EstimatorSettings,
) -> Derivation:
    """Return the steps behind one amount of ``estimate``: the same arithmetic on one number,
    without arrays, because a pass may publish a hundred thousand amounts.
    """
    base = from_float(usage * 1000.0 if resource == "cpu" else usage)
    margin = base + from_float(base * settings.margin)
    multiplied, sized = 1.0, margin
    if bound in _CONFIDENCE:
        multiplier, exponent = _CONFIDENCE[bound]
        if known > 0.0:
            multiplied = whole_power(1.0 + multiplier / known, exponent)
        else:
            multiplied = math.inf if exponent > 0 else 0.0
        sized = from_float(margin * multiplied) if margin else 0
    return Derivation(
        fraction=settings.percentiles.of(bound),
        usage=base,
        with_margin=margin,
        margin=settings.margin,
        confidence=known,
        factor=multiplied,
        with_confidence=sized,
        minimum=minimum,
        amount=max(sized, minimum),
    )


def _truncated(values: Floats) -> Amounts:
    return np.clip(values, 0.0, float(MAX_AMOUNT)).astype(np.int64)


MAX_AMOUNT = 10**14  # "no upper bound": 100G cores, 100 TB

_STEPS = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))


def from_float(value: float) -> int:
    """Return ``value`` truncated and kept within 0..1e14; NaN counts as nothing."""
    if value >= MAX_AMOUNT:
        return MAX_AMOUNT
    return int(value) if value > 0.0 else 0


def from_cores(cores: float) -> int:
    return from_float(cores * 1000.0)


def scale(amount: int, factor: float) -> int:
    """Return ``amount * factor``, truncated."""
    return from_float(amount * factor)


def rounded_up(amount: int, step: int) -> int:
    """Return the next multiple of ``step``; raises ValueError for a step below 1."""
    if step < 1:
        raise ValueError(f"the rounding step must be at least 1, not {step}")
    return -(-amount // step) * step


def humanized(memory_bytes: int) -> str:
    """Return bytes with two decimals of the largest binary unit that fits: ``15.23Gi``."""
    for size, unit in _STEPS:
        if memory_bytes >= size:
            return f"{memory_bytes / size:.2f}{unit}"
    return f"{memory_bytes}"


def as_quantity(resource: str, amount: int, *, step: int = 1, humanize: bool = False) -> Quantity:
    """Return ``amount`` rounded up to ``step``; humanised memory may have fractional bytes."""
    amount = rounded_up(amount, step)
    if resource == "memory" and humanize:
        return quantity.parse(humanized(amount))
    return of_units(resource, amount)


def whole(value: Quantity) -> Quantity:
    """Return the amount in whole bytes, rounded up.

    Upstream publishes humanised memory with its fraction (``628694712320m``), which is not
    an amount that a container can request (D12).
    """
    return Quantity(value.value * quantity.NANO, "BinarySI")
