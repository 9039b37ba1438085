"""Bucket layouts: which bucket a value falls into and where buckets begin.

First thing the model does with a sample. Formulas follow upstream's
``histogram_options.go``, because v3 checkpoints store bucket numbers: another layout
needs another kind of checkpoint. Values are cores or bytes.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vpa.model.histograms import gomath

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
        [0.0] + [first * (gomath.power(ratio, n) - 1.0) / (ratio - 1.0) for n in range(1, count)]
    )
    return BucketLayout(first, ratio, count, epsilon, starts, np.append(starts[1:], starts[-1]))


CPU = exponential(first=0.01, ratio=1.05, maximum=1000.0, epsilon=1e-4)  # cores
MEMORY = exponential(first=1e7, ratio=1.05, maximum=1e12, epsilon=1e-4)  # bytes
