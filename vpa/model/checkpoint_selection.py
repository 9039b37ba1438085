"""Which checkpoints are worth writing.

Upstream writes all of them every minute; a histogram with a half-life of a day changes by
less than a thousandth meanwhile. Written are: what an OOM or a higher memory peak has
changed, at once; what has moved by the fraction; the rest when it is old. The latter two
take turns where they are many: all windows of a cluster may end in the same minute.
"""

from collections.abc import Callable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vpa.model.cluster import ClusterModel
from vpa.model.groups import ContainerGroups, Named, paced, share
from vpa.model.histograms import buckets
from vpa.model.samples.checkpoints import HEAVIEST, normalised

_BUCKETS = buckets.CPU.count + buckets.MEMORY.count
# What has moved is written at a multiple of the pace at which everything grows old, so that
# it never waits longer than a third of that age; as many as these are no burst.
_PACE, _NO_BURST = 3, 1000
_RESTS = 5  # passes in which what failed comes last


class SaveBand(Struct, frozen=True):
    """How far a normalised weight must move, and after how long everything is written.

    A fraction of 0 is upstream's way: everything is due in every pass.
    """

    fraction: float = 0.01
    age_s: float = 3600.0


class CheckpointSelection:
    """Remembers what was saved, in the resolution of a checkpoint."""

    def __init__(self, cluster: ClusterModel) -> None:
        self._cluster = cluster
        self._groups = ContainerGroups(cluster.aggregates, {})  # as of the last look
        self._saved: NDArray[np.uint16] = np.zeros((_BUCKETS, 0), dtype=np.uint16)
        self._now: NDArray[np.uint16] = self._saved
        self._saved_at = np.empty(0)
        self._saved_peak = np.empty(0)
        self._failed_at: dict[Named, float] = {}

    def due(self, now: float, band: SaveBand, interval_s: float = 60.0) -> list[Named]:
        """Return the checkpoints to write, those of OOMs and peaks first, then the oldest.

        What failed in the last passes comes behind all others: a write that hangs takes its time
        from those that would go through. ``interval_s`` is the time to the next pass.
        """
        self._follow()
        keys = self._groups.keys
        size = len(keys)
        if not size:
            return []
        self._now = np.zeros((_BUCKETS, size), dtype=np.uint16)
        for aggregates, rows, columns in self._groups.parts():
            split = buckets.CPU.count
            self._now[:split, rows] = normalised(aggregates.cpu, columns)
            self._now[split:, rows] = normalised(aggregates.memory, columns)
        filled: NDArray[np.bool_] = np.asarray(self._now.any(axis=0))
        # A peak is higher than what is saved; where nothing is, the window is just being met.
        urgent = (self._peaks() > self._saved_peak) & (self._saved_at > -np.inf)
        kept = set(self._cluster.killed)

        def failed_at(key: Named) -> float:
            # For a while only: behind thousands that move, its turn would never come.
            at = self._failed_at.get(key, -np.inf)
            return at if now - at < _RESTS * interval_s else -np.inf

        first = [keys[i] for i in np.flatnonzero(urgent & filled)]
        first += [key for key in keys if key in kept]
        rest = [keys[i] for i in self._in_turn(filled, now, band, interval_s, failed_at)]
        found = list(dict.fromkeys([*first, *rest]))
        return sorted(found, key=failed_at)

    def _in_turn(
        self,
        filled: NDArray[np.bool_],
        now: float,
        band: SaveBand,
        interval_s: float,
        failed_at: Callable[[Named], float],
    ) -> NDArray[np.intp]:
        # What has moved or is old, the oldest first.
        ages = now - self._saved_at
        far = filled  # counts and times move with every sample, whatever the weights do
        if band.fraction > 0:
            apart = np.maximum(self._now, self._saved) - np.minimum(self._now, self._saved)
            far = apart.max(axis=0, initial=0) >= max(band.fraction * HEAVIEST, 1.0)
        moved = np.flatnonzero((far | np.isinf(ages)) & filled)
        failed = np.array([failed_at(self._groups.keys[i]) for i in moved])
        moved = moved[np.lexsort((-ages[moved], failed))]
        if band.fraction > 0:
            pace = _PACE * share(filled.size, band.age_s, interval_s)
            moved = moved[: max(pace, _NO_BURST)]
        known = np.flatnonzero(filled & np.isfinite(ages))
        old = known[paced(ages[known], filled.size, band.age_s, interval_s)]
        return np.concatenate([moved, old])

    def failed(self, named: list[Named], now: float) -> None:
        """Note that writes were tried; ``saved`` takes back those that went through."""
        self._failed_at.update(dict.fromkeys(named, now))

    def saved(self, named: list[Named], now: float) -> None:
        """Note that checkpoints were written as they were when they became due."""
        for key in named:
            self._failed_at.pop(key, None)
        numbers = {key: row for row, key in enumerate(self._groups.keys)}
        rows = np.array([numbers[key] for key in named if key in numbers], dtype=np.intp)
        if not rows.size:
            return
        self._saved[:, rows] = self._now[:, rows]
        self._saved_at[rows] = now
        self._saved_peak[rows] = self._peaks()[rows]
        self._cluster.killed.difference_update(named)

    def _peaks(self) -> NDArray[np.float64]:
        # A peak counts as higher when it reaches another bucket: less would not be saved.
        peaks = self._groups.reduced(np.maximum, self._cluster.aggregates.highest_peak)
        return buckets.MEMORY.find(peaks).astype(np.float64)

    def _follow(self) -> None:
        groups = self._cluster.groups()
        if groups is self._groups:
            return
        size = len(groups.keys)
        saved = np.zeros((_BUCKETS, size), dtype=np.uint16)
        at, peak = np.full(size, -np.inf), np.zeros(size)
        for old, new in groups.moved_from(self._groups.keys):
            saved[:, new] = self._saved[:, old]
            at[new], peak[new] = self._saved_at[old], self._saved_peak[old]
        self._groups, self._saved = groups, saved
        self._saved_at, self._saved_peak = at, peak
        if self._failed_at:
            here = set(groups.keys)
            self._failed_at = {key: at for key, at in self._failed_at.items() if key in here}
