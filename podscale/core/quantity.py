"""Kubernetes resource quantities, exact.

A quantity is an integer number of nano-units, the finest step that Kubernetes keeps.
Grammar, rounding and canonical text follow ``resource.Quantity`` of apimachinery, with
three differences: very large exponents are refused instead of being expanded, a decimal
amount beyond exa keeps its size (upstream prints ``1000E`` as ``1``), and a parsed text
is always printed canonically (upstream echoes some texts, ``1.500`` for one).
"""

import re
from functools import lru_cache
from typing import Literal

from msgspec import Struct

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

NANO = 10**9
MICRO = 10**6  # nano-units in a milli-unit
_INT64 = 2**63
_MAX_TEXT = 128  # upstream has no limit; a canonical text never passes 30 characters
_MAX_DIGITS = 64  # digits before the point that an amount may have

_WRONG = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
# Looser than the expression in the message, as upstream's scanner is: "-" and "." are 0.
_SHAPE = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = ("", *_BINARY)
_POWER = {0: 1.0, -3: 1e-3, -6: 1e-6, -9: 1e-9}


class QuantityError(ValueError):
    """The text is not a quantity; the message names it and says what is allowed."""

    def __init__(self, text: str, reason: str) -> None:
        shown = text if len(text) <= 40 else text[:37] + "..."
        super().__init__(f"{shown!r}: {reason}")
        self.text = text
        self.reason = reason  # upstream's sentence, without the text


class Quantity(Struct, frozen=True):
    """An amount as an integer number of nano-units, with the format it is written in."""

    nano: int
    format: Format = "DecimalSI"

    def __str__(self) -> str:
        """Return the canonical form, as Go's ``Quantity.String`` after parsing."""
        return _canonical(self.nano, self.format)

    @property
    def milli(self) -> int:
        """Milli-units, rounded away from zero as Go's ``MilliValue``."""
        return _away_from_zero(self.nano, MICRO)

    @property
    def milli_int64(self) -> int:
        """``milli`` within int64. Go's overflows there, mostly to 0, which nobody asked for."""
        return min(max(self.milli, -_INT64), _INT64 - 1)

    @property
    def value(self) -> int:
        """Whole units, rounded away from zero as Go's ``Value``."""
        return _away_from_zero(self.nano, NANO)

    @property
    def approximate(self) -> float:
        """The float of Go's ``AsApproximateFloat64``, from the canonical decimal form.

        Mantissa times power of ten, which is not always the nearest float: 410m is
        0.41000000000000003. Decisions that upstream makes on this float need it exactly.
        """
        mantissa, exponent = self.nano, -9
        while exponent < 0 and mantissa % 1000 == 0:
            mantissa //= 1000
            exponent += 3
        return mantissa * _POWER[exponent]

    def __float__(self) -> float:
        """Return the nearest float, as Go's ``AsFloat64Slow``; for amounts that are shown."""
        return self.nano / NANO


@lru_cache(maxsize=16384)
def parse(text: str) -> Quantity:
    """Return the quantity that ``text`` writes; raises ``QuantityError``.

    Amounts below one nano-unit round away from zero; binary amounts stop at 2^63 - 1.
    """
    if not text or len(text) > _MAX_TEXT:
        raise QuantityError(text, _WRONG if not text else f"longer than {_MAX_TEXT} characters")
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise QuantityError(text, _WRONG)
    sign, whole, fraction, suffix = shape.groups(default="")
    digits = int((whole + fraction) or "0")
    if suffix in _BINARY:
        nano = _scaled(digits << _BINARY[suffix], 9 - len(fraction))
        notation: Format = "DecimalSI" if 0 < nano < NANO else "BinarySI"
        nano = min(nano, (_INT64 - 1) * NANO)
    else:
        exponent, notation = _decimal_suffix(text, suffix)
        if exponent < -9 and not whole + fraction:  # "m" is 0 to upstream, and "e-12" is not
            raise QuantityError(text, "unable to parse numeric part of quantity")
        power = exponent - len(fraction) + 9
        if digits and len(str(digits)) + power - 9 > _MAX_DIGITS:
            raise QuantityError(text, f"more than {_MAX_DIGITS} digits before the point")
        nano = _scaled(digits, power)
    return Quantity(-nano if sign == "-" else nano, notation)


def from_wire(value: str | int | float) -> Quantity:
    """Return the quantity of a JSON value: a text, or a bare number as in ``cpu: 2``."""
    return parse(value.strip() if isinstance(value, str) else str(value))


@lru_cache(maxsize=65536)
def format_milli(milli: int, format: Format = "DecimalSI") -> str:  # noqa: A002 - Go's word
    """Return the canonical text of ``milli`` thousandths (hot path, cached)."""
    if format == "DecimalSI" and milli % 1000:
        return f"{milli}m"
    return _canonical(milli * MICRO, format)


def _decimal_suffix(text: str, suffix: str) -> tuple[int, Format]:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix], "DecimalSI"
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None:
        raise QuantityError(text, "unable to parse quantity's suffix")
    return int(exponent[1]), "DecimalExponent"


def _scaled(digits: int, power: int) -> int:
    if power >= 0:
        # Zero first: 0e999999999 must not build the power.
        return digits * 10**power if digits else 0
    # A power of ten longer than the digits leaves the smallest amount, whatever its size.
    return _away_from_zero(digits, 10 ** min(-power, 3 * _MAX_TEXT))


def _away_from_zero(amount: int, unit: int) -> int:
    return -(-amount // unit) if amount >= 0 else amount // unit


def _canonical(nano: int, notation: Format) -> str:
    if nano == 0:
        return "0"
    if notation == "BinarySI" and abs(nano) >= 1024 * NANO and nano % NANO == 0:
        return _binary(nano // NANO)
    exponent = -9
    top = 18 if notation != "DecimalExponent" else 3 * _MAX_TEXT
    while exponent < top and nano % 1000 == 0:
        nano //= 1000
        exponent += 3
    if notation == "DecimalExponent":
        return f"{nano}e{exponent}" if exponent else str(nano)
    return f"{nano}{_DECIMAL_SUFFIX[exponent]}"


def _binary(units: int) -> str:
    power = 0
    while power < len(_BINARY_SUFFIX) - 1 and units % 1024 == 0:
        units //= 1024
        power += 1
    return f"{units}{_BINARY_SUFFIX[power]}"
