"""Percentiles that follow their histogram instead of being searched for.

A cursor stands, for one histogram and one fraction, on the bucket where the cumulative
weight reaches the fraction, and knows the weight below and up to that bucket. Adding a
sample moves those two sums; reading lets each cursor take the few steps that it has fallen
behind. Only where rounding could decide is a column walked from its first bucket.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Floats = NDArray[np.float64]

# The sums drift from those of a fresh walk by rounding, some 1e-16 of the total a sample.
# A threshold nearer than this to either sum is left to the walk, so that equal weights
# tie exactly as they do upstream.
_SLACK = 1e-9


class Cursors:
    """One cursor per tracked fraction and column."""

    def __init__(self, fractions: Sequence[float], capacity: int, index: DTypeLike) -> None:
        self.fractions = tuple(fractions)
        self.bucket: NDArray[np.unsignedinteger[Any]] = np.zeros(
            (len(self.fractions), capacity), dtype=index
        )
        self.below = np.zeros((len(self.fractions), capacity))
        self.upto = np.zeros((len(self.fractions), capacity))
        self.stale = np.ones(capacity, dtype=np.bool_)

    @property
    def nbytes(self) -> int:
        """Memory of all cursors."""
        return self.bucket.nbytes + self.below.nbytes + self.upto.nbytes + self.stale.nbytes

    def added(
        self,
        chosen: slice | NDArray[np.intp],
        buckets: NDArray[np.integer[Any]],
        weights: Floats,
    ) -> None:
        """Follow one sample per chosen column."""
        for number in range(len(self.fractions)):
            position = self.bucket[number, chosen]
            self.below[number, chosen] += weights * (buckets < position)
            self.upto[number, chosen] += weights * (buckets <= position)

    def settle(self, start: int, stop: int, weights: Floats, total: Floats) -> None:
        """Let the cursors of columns ``start`` to ``stop`` reach their fraction again.

        ``weights`` and ``total`` are those of the whole matrix. Columns that this cannot
        decide are left marked stale.
        """
        chosen = slice(start, stop)
        slack = total[chosen] * _SLACK
        for number, fraction in enumerate(self.fractions):
            threshold = total[chosen] * fraction
            lagging = np.flatnonzero(threshold > self.upto[number, chosen])
            while lagging.size:
                columns = lagging + start
                position = self.bucket[number, columns] + 1
                inside = position < weights.shape[0]
                if not inside.all():
                    self.stale[columns[~inside]] = True
                    lagging, columns, position = lagging[inside], columns[inside], position[inside]
                upto = self.upto[number, columns]
                self.below[number, columns] = upto
                upto += weights[position, columns]
                self.upto[number, columns] = upto
                self.bucket[number, columns] = position
                lagging = lagging[threshold[lagging] > upto]
            leading = np.flatnonzero(threshold <= self.below[number, chosen])
            while leading.size:
                columns = leading + start
                inside = self.bucket[number, columns] > 0
                if not inside.all():
                    self.stale[columns[~inside]] = True
                    leading, columns = leading[inside], columns[inside]
                position = self.bucket[number, columns] - 1
                below = self.below[number, columns]
                self.upto[number, columns] = below
                below -= weights[position, columns]
                self.below[number, columns] = below
                self.bucket[number, columns] = position
                leading = leading[threshold[leading] <= below]
            near = threshold - self.below[number, chosen] < slack
            near |= self.upto[number, chosen] - threshold < slack
            self.stale[chosen] |= near

    def placed(
        self,
        columns: NDArray[np.intp],
        buckets: NDArray[np.integer[Any]],
        below: Floats,
        upto: Floats,
    ) -> None:
        """Put the cursors of ``columns`` where a walk found them; shapes (fractions, columns)."""
        self.bucket[:, columns] = buckets
        self.below[:, columns] = below
        self.upto[:, columns] = upto
        self.stale[columns] = False

    def resized(self, capacity: int) -> "Cursors":
        """Return the same cursors with room for more columns."""
        larger = Cursors(self.fractions, capacity, self.bucket.dtype)
        size = self.stale.size
        larger.bucket[:, :size] = self.bucket
        larger.below[:, :size] = self.below
        larger.upto[:, :size] = self.upto
        larger.stale[:size] = self.stale
        return larger
