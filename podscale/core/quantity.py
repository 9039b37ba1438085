"""Kubernetes resource quantities, exact. (Contract first; the body follows.)"""

from typing import Literal

from msgspec import Struct

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]


class QuantityError(ValueError):
    """The text is not a quantity; the message names it and says what is allowed."""


class Quantity(Struct, frozen=True, order=False):
    """An amount as an integer number of nano-units, with the format it is written in."""

    nano: int
    format: Format = "DecimalSI"

    def __str__(self) -> str:
        """Return the canonical form, as Go's ``Quantity.String`` after parsing."""
        raise NotImplementedError

    @property
    def milli(self) -> int:
        """Milli-units, rounded away from zero as Go's ``MilliValue``."""
        raise NotImplementedError

    @property
    def value(self) -> int:
        """Whole units, rounded away from zero as Go's ``Value``."""
        raise NotImplementedError


def parse(text: str) -> Quantity:
    """Return the quantity that ``text`` writes; raises ``QuantityError``."""
    raise NotImplementedError


def from_milli(milli: int, format: Format = "DecimalSI") -> Quantity:
    """Return ``milli`` thousandths as a quantity."""
    raise NotImplementedError


def format_milli(milli: int, format: Format = "DecimalSI") -> str:
    """Return the canonical text of ``milli`` thousandths (hot path, cached)."""
    raise NotImplementedError
