"""Autopilot's moving windows: average, load-adjusted percentile, recent maximum.

The load-adjusted percentile weighs every sample by its own value, so that time spent at
high load counts for more than the same time at low load.
"""

import numpy as np
from msgspec import Struct

from vpa.model.autopilot.signal import Tick
from vpa.model.histograms.buckets import BucketLayout
from vpa.model.histograms.matrix import ColumnArrays, Columns, Floats, HistogramMatrix

_HOURS = 24  # of maxima that count as recent


class Statistics(Struct, frozen=True):
    """What the windows say, per slot."""

    average: Floats
    percentiles: Floats  # (fractions, slots), load-adjusted
    maximum: Floats


class MovingWindows(ColumnArrays):
    """The windows of one resource, decaying with ``half_life_s``."""

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
