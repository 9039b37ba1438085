"""What a workload was asked to do over time: the load of each metric, whole.

One column for each metric, in natural units (cores, bytes, requests a second); a value holds
until the next one comes. NaN is a load that nobody knows, because no sample came.
"""

from bisect import bisect_right
from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hpa.decide.api.spec import MetricSpec

Floats = NDArray[np.float64]
_LONGEST_HOLD = 4.0  # steps that a value holds: scrapes fail now and then
_SHORTEST_HOLD_S = 60.0


class LoadHistory(Struct, frozen=True, eq=False):
    """Times, ascending, and one column of them for each metric by its key (``key_of``)."""

    time_s: Floats
    columns: Mapping[str, Floats]
    hidden: NDArray[np.bool_]  # what was measured is less than what was asked for
    replicas: Floats | None = None  # as they were recorded, where somebody recorded them

    @property
    def step_s(self) -> float:
        """The usual distance of two samples."""
        return float(np.median(np.diff(self.time_s))) if len(self.time_s) > 1 else 15.0

    @property
    def end_s(self) -> float:
        """Until when the last value holds."""
        return float(self.time_s[-1]) + self.step_s


class LoadAt:
    """Reads one column at any time, which costs a pass 1 us."""

    def __init__(self, load: LoadHistory, column: Floats) -> None:
        self._times: list[float] = load.time_s.tolist()
        self._values: list[float] = column.tolist()
        self._hold_s = max(_LONGEST_HOLD * load.step_s, _SHORTEST_HOLD_S)

    def __call__(self, at_s: float) -> float:
        """Return the value; NaN before the first, and after a gap that is too long for it."""
        row = bisect_right(self._times, at_s) - 1
        if row < 0 or at_s - self._times[row] > self._hold_s:
            return float("nan")
        return self._values[row]


def key_of(metric: MetricSpec) -> str:
    """Return what a column of the load is called: the metric's name, of one container with it."""
    return f"{metric.name}/{metric.container}" if metric.container else metric.name


def held(load: LoadHistory, column: Floats, at_s: Floats) -> Floats:
    """Return what ``LoadAt`` does, for many times at once."""
    rows = np.searchsorted(load.time_s, at_s, side="right") - 1
    found = column[np.maximum(rows, 0)]
    hold_s = max(_LONGEST_HOLD * load.step_s, _SHORTEST_HOLD_S)
    is_known = (rows >= 0) & (at_s - load.time_s[np.maximum(rows, 0)] <= hold_s)
    return np.where(is_known, found, np.nan)
