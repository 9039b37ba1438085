"""Powers as Go computes them, to the last bit.

Go's ``math.Pow`` and ``math.Exp2`` are its own and differ from the platform's in the last
place. That is enough to move a bucket's end by a byte once it is truncated, and to decide
whether half of the weight is reached where two pods share it.
"""

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Real = TypeVar("Real", float, Floats)

_LN2_HI, _LN2_LO = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_P = (
    1.66666666666666657415e-01,
    -2.77777777770155933842e-03,
    6.61375632143793436117e-05,
    -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)


def power(x: float, n: int) -> float:
    """Return ``x ** n`` for a positive x and n >= 0: squarings of the mantissa (``pow.go``)."""
    mantissa, exponent = math.frexp(x)
    result, scale = 1.0, 0
    while n:
        if n & 1:
            result *= mantissa
            scale += exponent
        mantissa *= mantissa
        exponent <<= 1
        if mantissa < 0.5:
            mantissa += mantissa
            exponent -= 1
        n >>= 1
    return math.ldexp(result, scale)


def whole_power(x: Real, n: int) -> Real:
    """Return ``x ** n`` for n other than 0: squarings, and one division if it is negative."""
    result, square, left = x, x, abs(n) - 1
    while left:
        if left & 1:
            result = result * square
        square = square * square
        left >>= 1
    return 1.0 / result if n < 0 else result


def exp2(x: Floats) -> Floats:
    """Return ``2 ** x`` (``exp2`` and ``expmulti`` of ``exp.go``); for finite |x| below 1000."""
    whole = np.trunc(x + np.copysign(0.5, x))
    rest = x - whole
    hi, lo = rest * _LN2_HI, rest * -_LN2_LO
    r = hi - lo
    t = r * r
    c = r - t * (_P[0] + t * (_P[1] + t * (_P[2] + t * (_P[3] + t * _P[4]))))
    y: Floats = np.ldexp(1.0 - ((lo - (r * c) / (2.0 - c)) - hi), whole.astype(np.int32))
    return y
