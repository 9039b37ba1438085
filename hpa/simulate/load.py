"""What a workload was asked to do over time: the load of each metric, whole.

One column for each metric, in natural units (cores, bytes, requests a second); a value holds
until the next one comes. NaN is a load that nobody knows, because no sample came.
"""

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hpa.decide.api.spec import MetricSpec

Floats = NDArray[np.float64]
_LONGEST_HOLD = 4.0  # steps that a value holds: scrapes fail now and then
_SHORTEST_HOLD_S = 60.0


class LoadHistory(Struct, frozen=True, eq=False, dict=True):
    """Times, ascending, and one column of them for each metric by its key (``key_of``)."""

    time_s: Floats
    columns: Mapping[str, Floats]
    hidden: NDArray[np.bool_]  # what was measured is less than what was asked for
    replicas: Floats | None = None  # as they were recorded, where somebody recorded them

    @cached_property
    def step_s(self) -> float:
        """The usual distance of two samples."""
        return float(np.median(np.diff(self.time_s))) if len(self.time_s) > 1 else 15.0

    @property
    def end_s(self) -> float:
        """Until when the last value holds."""
        return float(self.time_s[-1]) + self.step_s


def key_of(metric: MetricSpec) -> str:
    """Return what a column of the load is called: the metric's name, of one container with it."""
    return f"{metric.name}/{metric.container}" if metric.container else metric.name


def held(load: LoadHistory, column: Floats, at_s: Floats) -> Floats:
    """Return the values at these times; NaN before the first, and after a gap that is too long."""
    rows = np.searchsorted(load.time_s, at_s, side="right") - 1
    found = column[np.maximum(rows, 0)]
    hold_s = max(_LONGEST_HOLD * load.step_s, _SHORTEST_HOLD_S)
    is_known = (rows >= 0) & (at_s - load.time_s[np.maximum(rows, 0)] <= hold_s)
    return np.where(is_known, found, np.nan)
