"""Which checkpoints are worth writing.

Upstream writes all of them every minute; a histogram with a half-life of a day changes by
less than a thousandth meanwhile. Written are: what an OOM or a higher memory peak has
changed, at once; what has moved by the fraction; the rest when it is old.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vpa.model import buckets
from vpa.model.checkpoint import HEAVIEST, normalised
from vpa.model.cluster import Cluster
from vpa.model.groups import Groups, Named

_BUCKETS = buckets.CPU.count + buckets.MEMORY.count


class SaveBand(Struct, frozen=True):
    """How far a normalised weight must move, and after how long everything is written."""

    fraction: float = 0.01
    age_s: float = 3600.0


class Saver:
    """Remembers what was saved, in the resolution of a checkpoint."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._groups = Groups(cluster)
        self._keys: list[Named] = []
        self._saved: NDArray[np.uint16] = np.zeros((_BUCKETS, 0), dtype=np.uint16)
        self._now: NDArray[np.uint16] = self._saved
        self._saved_at = np.empty(0)
        self._saved_peak = np.empty(0)

    def due(self, now: float, band: SaveBand) -> list[Named]:
        """Return the checkpoints to write, those of OOMs and peaks first."""
        self._follow()
        size = len(self._keys)
        if not size:
            return []
        self._now = np.zeros((_BUCKETS, size), dtype=np.uint16)
        for aggregates, rows, columns in self._groups.parts():
            split = buckets.CPU.count
            self._now[:split, rows] = normalised(aggregates.cpu, columns)
            self._now[split:, rows] = normalised(aggregates.memory, columns)
        apart = np.abs(self._now.astype(np.int32) - self._saved).max(axis=0, initial=0)
        far = apart >= max(band.fraction * HEAVIEST, 1.0)
        old = now - self._saved_at >= band.age_s
        filled = self._now.any(axis=0)
        urgent = self._peaks() > self._saved_peak
        kept = set(self._cluster.killed)
        first = [self._keys[i] for i in np.flatnonzero(urgent & filled)]
        first += [key for key in self._keys if key in kept]
        rest = [self._keys[i] for i in np.flatnonzero((far | old) & filled)]
        return list(dict.fromkeys([*first, *rest]))

    def saved(self, named: list[Named], now: float) -> None:
        """Note that checkpoints were written as they were when they became due."""
        numbers = {key: row for row, key in enumerate(self._keys)}
        rows = np.array([numbers[key] for key in named if key in numbers], dtype=np.intp)
        if not rows.size:
            return
        self._saved[:, rows] = self._now[:, rows]
        self._saved_at[rows] = now
        self._saved_peak[rows] = self._peaks()[rows]
        self._cluster.killed.difference_update(named)

    def _peaks(self) -> NDArray[np.float64]:
        # A peak counts as higher when it reaches another bucket: less would not be saved.
        peaks = self._groups.largest(self._cluster.aggregates.highest_peak)
        return buckets.MEMORY.find(peaks).astype(np.float64)

    def _follow(self) -> None:
        self._groups.follow()
        if self._keys is self._groups.keys:
            return
        size = len(self._groups.keys)
        saved = np.zeros((_BUCKETS, size), dtype=np.uint16)
        at, peak = np.full(size, -np.inf), np.zeros(size)
        for old, new in self._groups.moved_from(self._keys):
            saved[:, new] = self._saved[:, old]
            at[new], peak[new] = self._saved_at[old], self._saved_peak[old]
        self._keys, self._saved = self._groups.keys, saved
        self._saved_at, self._saved_peak = at, peak
