"""Points of one workload over time, in a bounded number of bytes.

A full ring thins the older half of itself: what is recent keeps every point, what is older
becomes coarser, and the first point stays. Missing values are NaN, never zero.
"""

import numpy as np
from numpy.typing import NDArray

MOST_POINTS = 240
_FIRST_POINTS = 30  # most workloads of a short run never need more


class PointRing:
    """Columns of float32 beside a time; 4 bytes a value.

    Times are kept relative to the first point, so float32 resolves 8 ms after a day.
    """

    __slots__ = ("_base", "_count", "_table")

    def __init__(self, columns: int) -> None:
        self._base = 0.0
        self._count = 0
        self._table = np.empty((_FIRST_POINTS, columns + 1), np.float32)

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        """What the points take."""
        return self._table.nbytes

    def add(self, at: float, *values: float | None) -> None:
        """Append one point; None is not known. A point of the same or an older time replaces
        the last one: time never runs backwards on a line.
        """
        if not self._count:
            self._base = at
        offset = at - self._base
        row = self._count
        if row and offset <= self._table[row - 1, 0]:
            row -= 1
            offset = float(self._table[row, 0])
        if row == len(self._table):
            row = self._make_room()
        self._table[row, 0] = offset
        for column, value in enumerate(values, start=1):
            self._table[row, column] = np.nan if value is None else value
        self._count = row + 1

    def times(self, *, since: float = 0.0) -> NDArray[np.float64]:
        """Return the unix times of the points from ``since`` on."""
        return self._from(since)[:, 0].astype(np.float64) + self._base

    def columns(self, *, since: float = 0.0) -> list[NDArray[np.float64]]:
        """Return the columns without the time, of the points from ``since`` on."""
        return list(self._from(since)[:, 1:].T.astype(np.float64))

    def _from(self, since: float) -> NDArray[np.float32]:
        table = self._table[: self._count]
        if since <= self._base:
            return table
        return table[np.searchsorted(table[:, 0], since - self._base) :]

    def _make_room(self) -> int:
        table, count = self._table, self._count
        if count < MOST_POINTS:
            grown = np.empty((min(2 * count, MOST_POINTS), table.shape[1]), np.float32)
            grown[:count] = table
            self._table = grown
            return count
        half = count // 2
        kept = (half + 1) // 2
        table[:kept] = table[:half:2].copy()
        table[kept : kept + count - half] = table[half:].copy()
        return kept + count - half
