"""Go's integer and float rules where they change a replica count.

Saturating where upstream converts an out-of-range float (which on amd64 becomes -2^31 and
scales to the minimum), and for amounts that its int64 cannot hold; wrapping only in
utilization, as upstream does (docs/decisions/002-amounts-of-64-bits.md).
"""

import math
from fractions import Fraction

INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31)
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

Amount = int | Fraction  # fractions occur only where an explanation asks "what if"


def ceil32(value: float) -> int:
    """Return the next whole number upwards within int32; NaN never occurs (targets > 0)."""
    if value >= INT32_MAX:
        return INT32_MAX
    if value <= INT32_MIN:
        return INT32_MIN
    return math.ceil(value)


def quotient(amount: Amount, divisor: int) -> int:
    """Return the integer quotient, truncated towards zero as Go's; ``divisor`` > 0."""
    return amount // divisor if amount >= 0 else -(-amount // divisor)


def ratio_of(amount: float, target: float) -> float:
    """Return ``amount / target`` as IEEE doubles do, zero divisors included."""
    if target:
        return amount / target
    if amount == 0:
        return math.nan
    return math.copysign(math.inf, amount)


def wrap32(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def wrap64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
