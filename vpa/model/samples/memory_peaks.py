"""What holds a memory amount up: one OOM, or one high window.

Asked by explanations: the histogram is changed in a copy as if the one thing had not
happened, and the percentile is read again.
"""

from collections.abc import Sequence

import numpy as np

from vpa.model.histograms.histogram import Histogram
from vpa.model.histograms.matrix import HistogramMatrix
from vpa.model.samples.samples import MEMORY_WEIGHT, PeakWindow


def holding(
    memory: HistogramMatrix, column: int, windows: Sequence[PeakWindow], fraction: float
) -> PeakWindow | None:
    """Return the window without whose OOM, or without which, the percentile would be lower.

    OOMs come before windows, higher peaks before lower ones. The only window that there is
    holds nothing up: without it nothing would have been measured.
    """
    present = Histogram(memory, column).percentile(fraction)
    by_peak = sorted(windows, key=lambda window: -window.peak)
    for window in by_peak:
        if window.oom is None:
            continue
        without = _without(memory, column, window)
        if window.oom.measured:
            without.add(float(window.oom.measured), MEMORY_WEIGHT, window.end_s)
        if without.percentile(fraction) < present:
            return window
    for window in by_peak:
        without = _without(memory, column, window)
        if not without.is_empty and without.percentile(fraction) < present:
            return window
    return None


def _without(memory: HistogramMatrix, column: int, window: PeakWindow) -> Histogram:
    copy = Histogram.alone(memory.layout, None)
    copy.matrix.copy_from(copy.columns, memory, np.array([column], dtype=np.intp))
    copy.subtract(float(window.peak), MEMORY_WEIGHT, window.end_s)
    return copy
