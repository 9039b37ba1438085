"""Amounts as the estimators compute them: whole milli-cores and whole bytes.

Between histograms (floats) and quantities. Conversions truncate as upstream's
``model/types.go``; -1e14 and the like cannot occur, too large becomes 1e14.
"""

from podscale.core import quantity
from podscale.core.quantity import Quantity
from vpa.model.api.quantities import of_units

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
