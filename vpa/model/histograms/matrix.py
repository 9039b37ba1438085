"""All histograms of one resource in one matrix: a row per bucket, a column per aggregate.

Samples come in as columns (which histogram, value, weight, time), percentiles go out the
same way; nothing loops over histograms. Weights decay by growing: a sample at ``t`` weighs
``2**((t - reference) / half_life)``, so old weights never have to be touched until the
exponent passes 100 half-lives and the reference moves. Follows ``histogram.go`` and
``decaying_histogram.go`` of upstream's recommender.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpa.model.histograms.buckets import BucketLayout, exp2

Floats = NDArray[np.float64]
Columns = NDArray[np.intp]
Buckets = NDArray[np.integer[Any]]
Mask = NDArray[np.bool_]

# Go's zero time, the reference of a histogram that has never seen a sample: 0001-01-01 UTC.
ZERO_TIME = -62135596800.0
_MAX_EXPONENT = 100  # half-lives that a sample may be newer than the reference
_CHUNK = 8192  # columns read at a time: partial sums and thresholds stay in the L2 cache


class ColumnArrays:
    """Attributes that are arrays with a place for each column along their last axis, grown and
    emptied together.
    """

    def __init__(self, capacity: int, **empty: float | np.generic | NDArray[Any]) -> None:
        """``empty`` names the arrays, with what they hold of an empty column: one value, or
        those along the other axes and a last axis of 1.
        """
        self._empty = {name: np.atleast_1d(value) for name, value in empty.items()}
        self.capacity = 0
        for name, value in self._empty.items():
            setattr(self, name, value[..., :0])
        self.grow(capacity)

    def grow(self, capacity: int) -> None:
        """Make room for more columns, which are empty."""
        for name, value in self._empty.items():
            shape = (*value.shape[:-1], capacity)
            # Zeros take no memory before they are written.
            grown = np.full(shape, value) if value.any() else np.zeros(shape, value.dtype)
            grown[..., : self.capacity] = getattr(self, name)
            setattr(self, name, grown)
        self.capacity = capacity

    def copy_from(self, columns: Columns, other: "ColumnArrays", theirs: Columns) -> None:
        """Let ``columns`` become copies of columns of another one with the same arrays."""
        for name in self._empty:
            getattr(self, name)[..., columns] = getattr(other, name)[..., theirs]

    def clear(self, columns: Columns | slice) -> None:
        """Let columns be as they are in the beginning."""
        for name, value in self._empty.items():
            getattr(self, name)[..., columns] = value


class HistogramMatrix(ColumnArrays):
    """Decaying histograms, float64 as upstream's: v3 checkpoints and ties of equal weights
    must come out the same, which single precision cannot promise after a few million samples.

    ``half_life_s`` is that of new columns, None keeps every weight for ever. Columns are
    handed out by ``allocate``.
    """

    weights: Floats  # (buckets, columns)
    total: Floats
    reference: Floats
    half_life: Floats
    # First and last bucket that is not empty; a fresh column has them crossed.
    lowest: Buckets
    highest: Buckets

    def __init__(
        self, layout: BucketLayout, half_life_s: float | None, capacity: int = 256
    ) -> None:
        self.layout = layout
        index = np.uint8 if layout.count <= 256 else np.uint16
        super().__init__(
            capacity,
            weights=np.zeros((layout.count, 1)),
            total=0.0,
            reference=ZERO_TIME,
            half_life=math.inf if half_life_s is None else half_life_s,
            lowest=index(layout.count - 1),
            highest=index(0),
        )
        self._free: list[int] = []
        self._next = 0

    def allocate(self, count: int = 1) -> Columns:
        """Return the numbers of ``count`` empty columns; freed ones are used again."""
        taken = [self._free.pop() for _ in range(min(count, len(self._free)))]
        fresh = count - len(taken)
        if self._next + fresh > self.capacity:
            self.grow(max(self._next + fresh, self.capacity * 2))
        columns = np.arange(self._next, self._next + fresh)
        self._next += fresh
        return np.concatenate([np.array(taken, dtype=np.intp), columns])

    def release(self, columns: Columns) -> None:
        """Empty ``columns`` and give them back."""
        self.clear(columns)
        self._free.extend(int(column) for column in columns)

    def add(self, columns: Columns, values: Floats, weights: float | Floats, times: Floats) -> None:
        """Add one sample per entry. A column may occur several times."""
        if not columns.size:
            return
        grown = self._decayed(columns, weights, times)
        buckets = self.layout.find(values)
        np.add.at(self.weights, (buckets, columns), grown)
        np.add.at(self.total, columns, grown)
        filled = self.weights[buckets, columns] >= self.layout.epsilon
        self._widen(columns[filled], buckets[filled].astype(self.lowest.dtype))

    def _widen(self, columns: Columns, buckets: Buckets) -> None:
        np.minimum.at(self.lowest, columns, buckets)
        np.maximum.at(self.highest, columns, buckets)

    def subtract(self, columns: Columns, values: Floats, weights: float, times: Floats) -> None:
        """Take back samples that were added before; a column may occur several times."""
        grown = self._decayed(columns, weights, times)
        buckets = self.layout.find(values)
        epsilon = self.layout.epsilon
        np.subtract.at(self.weights, (buckets, columns), grown)
        left = self.weights[buckets, columns]
        self.weights[buckets, columns] = np.where(left < epsilon, 0.0, left)
        np.subtract.at(self.total, columns, grown)
        total = self.total[columns]
        self.total[columns] = np.where(total < epsilon, 0.0, total)
        self._tighten(np.unique(columns))

    def merge(self, into: Columns, other: "HistogramMatrix", columns: Columns) -> None:
        """Add the samples of columns of ``other`` to ``into``, pairwise; each of both once.

        ``other`` has the same layout and half-lives, may be this matrix, and is not changed.
        """
        if not into.size:
            return
        ours_at, theirs_at = self.reference[into], other.reference[columns]
        # The older one moves to the other's reference in whole half-lives, which is not quite
        # that one where a checkpoint brought it from a time of another half-life.
        shared = self._rounded(np.maximum(ours_at, theirs_at), self.half_life[into])
        self._shift(into, np.where(ours_at < theirs_at, shared, ours_at))
        factors = other.factors(columns, np.where(theirs_at < ours_at, shared, theirs_at))
        lowest, highest = other.lowest[columns], other.highest[columns]
        rows = slice(int(lowest.min()), int(highest.max()) + 1)
        weights = other.weights[rows, columns] * factors
        lowest, highest = self._bounds(weights, lowest, highest, rows.start)
        weights *= self._inside(lowest, highest, rows)
        self.weights[rows, into] += weights
        self.total[into] += other.total[columns] * factors
        self.lowest[into] = np.minimum(self.lowest[into], lowest)
        self.highest[into] = np.maximum(self.highest[into], highest)

    def load(self, columns: Columns, weights: Floats, total: Floats, references: Floats) -> None:
        """Add weights of shape (buckets, columns) and let their references replace ours."""
        filled = weights > 0.0
        rows = np.arange(self.layout.count)[:, None]
        first = np.where(filled, rows, self.layout.count - 1).min(axis=0)
        last = np.where(filled, rows, 0).max(axis=0)
        self.weights[:, columns] += weights
        self.total[columns] += total
        self.reference[columns] = references
        self.lowest[columns] = np.minimum(self.lowest[columns], first)
        self.highest[columns] = np.maximum(self.highest[columns], last)
        self._tighten(columns)

    def set_half_life(self, columns: Columns, half_life_s: float, now: float) -> None:
        """Decay ``columns`` at another pace from ``now`` on; weights keep their present ratio."""
        changed = columns[self.half_life[columns] != half_life_s]
        if not changed.size:
            return
        seen = changed[self.reference[changed] != ZERO_TIME]
        self._shift(seen, self._rounded(np.full(seen.size, now), self.half_life[seen]))
        self.half_life[changed] = half_life_s

    def is_empty(self, columns: Columns) -> NDArray[np.bool_]:
        """Return where no bucket weighs anything."""
        return self.weights[self.lowest[columns].astype(np.intp), columns] < self.layout.epsilon

    def percentiles(self, fractions: Sequence[float], columns: Columns) -> Floats:
        """Return values of shape (fractions, columns): the END of the bucket where the
        cumulative weight reaches the fraction, 0 for an empty column.
        """
        found = np.zeros((len(fractions), columns.size), dtype=self.lowest.dtype)
        for start in range(0, columns.size, _CHUNK):
            chosen = columns[start : start + _CHUNK]
            found[:, start : start + _CHUNK] = self._walk(fractions, chosen)
        values = self.layout.ends[found]
        # Crossed bounds are the cheap sign of an empty column; a lone bucket may also have
        # them crossed (0 never raises ``highest``), hence the second look.
        doubtful = np.flatnonzero(self.lowest[columns] >= self.highest[columns])
        if doubtful.size:
            values[:, doubtful[self.is_empty(columns[doubtful])]] = 0.0
        return values

    def _walk(self, fractions: Sequence[float], chosen: Columns) -> NDArray[np.intp]:
        # Counts, per column and fraction, the rows whose cumulative weight falls short.
        lowest, highest = self.lowest[chosen], self.highest[chosen]
        first, last = int(lowest.min()), int(highest.max())
        threshold = np.multiply.outer(np.asarray(fractions, dtype=np.float64), self.total[chosen])
        partial = np.zeros(lowest.size)
        short = np.empty(threshold.shape, dtype=np.bool_)
        counted = np.zeros(threshold.shape, dtype=self.lowest.dtype)
        flags = short.view(np.uint8)
        for row in range(first, last):
            partial += self.weights[row, chosen]
            np.less(partial, threshold, out=short)
            counted += flags
        # Not np.clip: a column with nothing between crossed bounds stands on its highest.
        stepped = np.maximum(counted.astype(np.intp) + first, lowest)
        return np.where(lowest < highest, np.minimum(stepped, highest), lowest)

    def _decayed(self, columns: Columns, weights: float | Floats, times: Floats) -> Floats:
        while True:
            ages = (times - self.reference[columns]) / self.half_life[columns]
            newest = ages.max()
            if newest <= _MAX_EXPONENT:
                if newest == ages.min():  # samples of one pass mostly share their time
                    ages = ages[:1]
                grown: Floats = np.broadcast_to(exp2(ages) * weights, times.shape)
                return grown
            # One shift per column, to its first sample that is too new, as if they had
            # come one by one.
            late = np.flatnonzero(ages > _MAX_EXPONENT)
            moved, firsts = np.unique(columns[late], return_index=True)
            self._shift(moved, self._rounded(times[late][firsts], self.half_life[moved]))

    @staticmethod
    def _rounded(times: Floats, half_life: Floats) -> Floats:
        # Multiples of the half-life are counted from year 1, as Go's time.Round does;
        # for 24 h that is the nearest UTC midnight.
        with np.errstate(invalid="ignore"):
            periods = np.floor((times - ZERO_TIME) / half_life + 0.5)
            return np.where(np.isinf(half_life), times, periods * half_life + ZERO_TIME)

    def factors(self, columns: Columns, references: Floats) -> Floats:
        """Return what weights have to be multiplied by to count from other references."""
        apart = (self.reference[columns] - references) / self.half_life[columns]
        steps = np.maximum(np.floor(apart + 0.5), -5000.0).astype(np.int64)
        factors: Floats = np.ldexp(np.ones(columns.size), steps)
        return factors

    def _shift(self, columns: Columns, references: Floats) -> None:
        moving = self.reference[columns] != references
        if not moving.any():
            return
        columns, references = columns[moving], references[moving]
        factors = self.factors(columns, references)
        # What lies outside the bounds weighs next to nothing and keeps that, as upstream.
        lowest, highest = self.lowest[columns], self.highest[columns]
        rows = slice(int(lowest.min()), int(highest.max()) + 1)
        inside = self._inside(lowest, highest, rows)
        self.weights[rows, columns] *= np.where(inside, factors, 1.0)
        self.total[columns] *= factors
        self.reference[columns] = references
        self._tighten(columns)

    def _tighten(self, columns: Columns) -> None:
        lowest, highest = self.lowest[columns], self.highest[columns]
        rows = slice(int(lowest.min()), int(highest.max()) + 1)
        bounds = self._bounds(self.weights[rows, columns], lowest, highest, rows.start)
        self.lowest[columns], self.highest[columns] = bounds

    def _bounds(
        self,
        weights: Floats,
        lowest: NDArray[np.integer],
        highest: NDArray[np.integer],
        first: int = 0,
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        # The bounds only move inwards; with nothing left they cross, as in a fresh column.
        rows = np.arange(first, first + len(weights))[:, None]
        filled = weights >= self.layout.epsilon
        end = self.layout.count - 1
        above = np.where(filled & (rows >= lowest), rows, end).min(axis=0, initial=end)
        below = np.where(filled & (rows <= highest), rows, 0).max(axis=0, initial=0)
        return above, below

    @staticmethod
    def _inside(lowest: NDArray[np.integer], highest: NDArray[np.integer], rows: slice) -> Mask:
        numbers = np.arange(rows.start, rows.stop)[:, None]
        inside: Mask = (numbers >= lowest) & (numbers <= highest)
        return inside
