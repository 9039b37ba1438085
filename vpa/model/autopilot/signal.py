"""Usage in ticks of five minutes, and the windows over it that Autopilot's recommenders read.

CPU: how often each bucket was seen in the tick, over all tasks. Memory: the highest value
of each task in the tick, counted once. Follows section 3 of "Autopilot: workload
autoscaling at Google" (EuroSys 2020).
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vpa.model.histograms.buckets import BucketLayout
from vpa.model.histograms.matrix import ColumnArrays, Columns, Floats, HistogramMatrix

TICK_S = 300.0
_HOURS = 24  # of maxima that count as recent


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


class Statistics(Struct, frozen=True):
    """What the windows say, per slot."""

    average: Floats
    percentiles: Floats  # (fractions, slots), load-adjusted
    maximum: Floats


class MovingWindows(ColumnArrays):
    """The windows of one resource, decaying with ``half_life_s``.

    Average, recent maximum, and percentiles that weigh every sample by its own value, so that
    time spent at high load counts for more than the same time at low load.
    """

    _sum: Floats
    _weight: Floats
    _hourly: Floats  # (hours, slots)

    def __init__(self, layout: BucketLayout, half_life_s: float, slots: int) -> None:
        self.layout = layout
        # What a sample of a bucket is worth: its end, as percentiles are reported.
        self.worth = layout.ends.copy()
        self._half_life = half_life_s
        self._adjusted = HistogramMatrix(layout, half_life_s, slots)
        super().__init__(slots, _sum=0.0, _weight=0.0, _hourly=np.zeros((_HOURS, 1)))
        self._at = 0.0
        self._hour = 0

    def observe(self, tick: Tick) -> None:
        self._decay_to(tick.end_s)
        count = tick.counts.sum(axis=0)
        mean = (tick.counts * self.worth[:, None]).sum(axis=0) / np.maximum(count, 1.0)
        self._sum += np.where(tick.seen, mean, 0.0)
        self._weight += tick.seen
        buckets, slots = np.nonzero(tick.counts)
        if buckets.size:
            inside = (self.layout.starts[buckets] + self.worth[buckets]) / 2.0
            weights = tick.counts[buckets, slots] * self.worth[buckets] / self.worth[1]
            at = np.full(slots.size, tick.end_s)
            self._adjusted.add(slots, inside, weights, at)
        hour = self._hourly[self._hour % _HOURS]
        np.maximum(hour, tick.peaks, out=hour)

    def statistics(self, fractions: tuple[float, ...]) -> Statistics:
        slots = np.arange(self._sum.size)
        average = self._sum / np.maximum(self._weight, 1e-12)
        return Statistics(
            average, self._adjusted.percentiles(fractions, slots), self._hourly.max(axis=0)
        )

    def grow(self, capacity: int) -> None:
        self._adjusted.allocate(capacity - self.capacity)
        super().grow(capacity)

    def clear(self, columns: Columns | slice) -> None:
        self._adjusted.clear(columns)
        super().clear(columns)

    def _decay_to(self, now: float) -> None:
        if self._at:
            factor = 0.5 ** ((now - self._at) / self._half_life)
            self._sum *= factor
            self._weight *= factor
            hours = int(now // 3600.0) - int(self._at // 3600.0)
            for _ in range(min(hours, _HOURS)):
                self._hour += 1
                self._hourly[self._hour % _HOURS] = 0.0
        self._at = now
