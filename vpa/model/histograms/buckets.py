"""Bucket layouts: which bucket a value falls into and where buckets begin.

First thing the model does with a sample. Formulas follow upstream's
``histogram_options.go``, because v3 checkpoints store bucket numbers: another layout
needs another kind of checkpoint. Values are cores or bytes.

Powers are computed as Go does, to the last bit: its ``math.Pow`` and ``math.Exp2`` differ from the
platform's in the last place. That is enough to move a bucket's end by a byte once it is truncated,
and to decide whether half of the weight is reached where two pods share it.
"""

import math
from dataclasses import dataclass, field
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


# Nearer than this to a whole number the vectorised logarithm may round to the other side
# than the scalar one of the platform, which is the one that agrees with Go.
_DOUBT = 1e-9


class LayoutError(ValueError):
    """The layout cannot exist; the message says which number is wrong."""


@dataclass(frozen=True, eq=True)
class BucketLayout:
    """Buckets ``0 .. count-1``; the last one has no end. Made by ``exponential``."""

    first: float  # width of the first bucket
    ratio: float  # width of a bucket over that of the one before
    count: int
    epsilon: float  # a bucket lighter than this counts as empty
    starts: NDArray[np.float64] = field(repr=False, compare=False)
    ends: NDArray[np.float64] = field(repr=False, compare=False)  # of the last bucket: its start

    def find(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the bucket of each value; below the first start is 0, NaN is not allowed."""
        # The log form decides at boundaries, not the stored starts: 0.0205 is the
        # nominal start of CPU bucket 2 and belongs to bucket 1.
        index = np.log(values * ((self.ratio - 1.0) / self.first) + 1.0)
        index /= math.log(self.ratio)
        doubtful = np.flatnonzero(np.abs(index - np.rint(index)) < _DOUBT)
        for i in doubtful[values[doubtful] >= self.first]:
            index[i] = self._exact(float(values[i]))
        np.floor(index, out=index)
        index[values < self.first] = 0
        np.clip(index, 0, self.count - 1, out=index)
        return index.astype(np.intp)

    def _exact(self, value: float) -> float:
        grown = value * (self.ratio - 1.0) / self.first + 1.0
        return math.floor(math.log(grown) / math.log(self.ratio))


def exponential(*, first: float, ratio: float, maximum: float, epsilon: float) -> BucketLayout:
    """Return buckets of widths ``first * ratio**n`` up to ``maximum``; raises LayoutError."""
    if first <= 0.0 or ratio <= 1.0 or maximum <= 0.0 or epsilon <= 0.0:
        raise LayoutError("an exponential layout needs first, maximum, epsilon > 0 and ratio > 1")
    count = math.ceil(math.log(maximum * (ratio - 1.0) / first + 1.0) / math.log(ratio)) + 1
    starts = np.array(
        [0.0] + [first * (power(ratio, n) - 1.0) / (ratio - 1.0) for n in range(1, count)]
    )
    return BucketLayout(first, ratio, count, epsilon, starts, np.append(starts[1:], starts[-1]))


CPU = exponential(first=0.01, ratio=1.05, maximum=1000.0, epsilon=1e-4)  # cores
MEMORY = exponential(first=1e7, ratio=1.05, maximum=1e12, epsilon=1e-4)  # bytes
