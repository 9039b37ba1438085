"""What holds a memory amount up: one OOM, or one high window.

Asked by explanations: the histogram is changed in a copy as if the one thing had not
happened, and the percentile is read again.
"""

from collections.abc import Sequence

import numpy as np

from vpa.model.histograms.matrix import HistogramMatrix
from vpa.model.samples.container_rows import MEMORY_WEIGHT, PeakWindow, as_rows


def holding(
    memory: HistogramMatrix, column: int, windows: Sequence[PeakWindow], fraction: float
) -> PeakWindow | None:
    """Return the window without whose OOM, or without which, the percentile would be lower.

    OOMs come before windows, higher peaks before lower ones. The only window that there is
    holds nothing up: without it nothing would have been measured.
    """
    present = memory.percentiles((fraction,), as_rows(column))
    by_peak = sorted(windows, key=lambda window: -window.peak)
    for window in by_peak:
        if window.oom is None:
            continue
        without = _without(memory, column, window)
        if window.oom.measured:
            at = np.array([window.end_s])
            without.add(_COPY, np.array([float(window.oom.measured)]), MEMORY_WEIGHT, at)
        if without.percentiles((fraction,), _COPY) < present:
            return window
    for window in by_peak:
        without = _without(memory, column, window)
        if not without.is_empty(_COPY) and without.percentiles((fraction,), _COPY) < present:
            return window
    return None


_COPY = as_rows(0)


def _without(memory: HistogramMatrix, column: int, window: PeakWindow) -> HistogramMatrix:
    copy = HistogramMatrix(memory.layout, None, capacity=1)
    copy.copy_from(_COPY, memory, as_rows(column))
    peak, at = np.array([float(window.peak)]), np.array([window.end_s])
    copy.subtract(_COPY, peak, MEMORY_WEIGHT, at)
    return copy
