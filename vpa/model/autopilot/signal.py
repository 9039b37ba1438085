"""Usage in ticks of five minutes: the signal that Autopilot's recommenders read.

CPU: how often each bucket was seen in the tick, over all tasks. Memory: the highest value
of each task in the tick, counted once. Follows section 3 of "Autopilot: workload
autoscaling at Google" (EuroSys 2020).
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vpa.model.histograms.buckets import BucketLayout
from vpa.model.histograms.matrix import ColumnArrays, Columns, Floats

TICK_S = 300.0


class Tick(Struct, frozen=True):
    """One tick of one resource: samples per bucket and slot, and the highest value."""

    end_s: float
    counts: Floats  # (buckets, slots)
    peaks: Floats  # (slots,); 0 where nothing was seen
    seen: NDArray[np.bool_]  # (slots,)


class Ticker(ColumnArrays):
    """Collects samples of one resource until their tick is over."""

    _counts: Floats  # (buckets, slots)
    _peaks: Floats

    def __init__(self, layout: BucketLayout, slots: int, *, peaks_only: bool) -> None:
        super().__init__(slots, _counts=np.zeros((layout.count, 1)), _peaks=0.0)
        self.layout = layout
        self.peaks_only = peaks_only
        self._end = 0.0
        self._task_peaks: dict[int, tuple[int, float]] = {}  # task: slot and highest value

    def add(self, tasks: Columns, slots: Columns, values: Floats, now: float) -> list[Tick]:
        """Add one sample per task; return the ticks that ended before ``now``.

        ``tasks`` are numbers of containers; a task's samples of one tick count by their
        peak where only peaks count.
        """
        done = self._close(now)
        np.maximum.at(self._peaks, slots, values)
        if self.peaks_only:
            for task, slot, value in zip(
                tasks.tolist(), slots.tolist(), values.tolist(), strict=True
            ):
                known = self._task_peaks.get(task)
                if known is None or known[0] != slot or known[1] < value:
                    self._task_peaks[task] = (slot, value)
        else:
            np.add.at(self._counts, (self.layout.find(values), slots), 1.0)
        return done

    def forget(self, slot: int) -> None:
        """Drop what a slot has collected: another VPA takes its number."""
        self.clear(slice(slot, slot + 1))
        self._task_peaks = {t: kept for t, kept in self._task_peaks.items() if kept[0] != slot}

    def _close(self, now: float) -> list[Tick]:
        end = (now // TICK_S + 1) * TICK_S
        if self._end == 0.0:
            self._end = end
        if end <= self._end:
            return []
        if self._task_peaks:
            slots, values = zip(*self._task_peaks.values(), strict=True)
            found = self.layout.find(np.array(values))
            np.add.at(self._counts, (found, np.array(slots, dtype=np.intp)), 1.0)
        seen = self._counts.sum(axis=0) > 0.0
        tick = Tick(self._end, self._counts, self._peaks, seen)
        self._end = end
        self._counts = np.zeros_like(tick.counts)
        self._peaks = np.zeros_like(tick.peaks)
        self._task_peaks = {}
        return [tick]
