"""Usage of nodes over the last quarter of an hour: means, and what load-watcher tells.

The samples of all nodes lie in one ring of arrays. Pure: no I/O, no clock.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from podscale.nodes.decide.ballast import Floats

LONGEST_S = 900.0


class UsageStatistics(Struct, frozen=True, eq=False):
    """Usage within one window, arrays of shape (2, n): thousandths of a core, bytes."""

    mean: Floats  # NaN: no sample
    deviation: Floats
    latest: Floats


class UsageWindows:
    """The samples of the newest nodes that were asked about."""

    def __init__(self, period_s: float) -> None:
        """``period_s``: how often samples come, at most."""
        self.names: tuple[str, ...] = ()
        self._most = max(2, int(LONGEST_S / max(period_s, 1.0)) + 2)
        self._values: Floats = np.full((0, 2, 0), np.nan)  # samples × resources × nodes
        self._times: Floats = np.full((0, 2, 0), np.nan)  # of each sample

    def keep(self, names: Sequence[str]) -> None:
        """Know these nodes from now on; a node that stays keeps its samples."""
        wanted = tuple(names)
        if wanted == self.names:
            return
        places = {name: place for place, name in enumerate(self.names)}
        stay = [(new, places[name]) for new, name in enumerate(wanted) if name in places]
        values = np.full((len(self._times), 2, len(wanted)), np.nan)
        times = values.copy()
        if stay:
            new, old = np.array(stay).T
            values[:, :, new] = self._values[:, :, old]
            times[:, :, new] = self._times[:, :, old]
        self.names, self._values, self._times = wanted, values, times

    def add(self, usage: Floats, time_s: Floats) -> None:
        """Take in one sample of each node, (2, n) and (n,); what is no amount is no sample, and
        one that has been taken in before is not counted again."""
        with np.errstate(invalid="ignore"):
            is_new = np.isfinite(usage) & (usage >= 0) & ~(time_s <= self.newest_s())
        values, times = np.where(is_new, usage, np.nan), np.where(is_new, time_s, np.nan)
        self._values = np.concatenate([self._values[1 - self._most :], values[None]])
        self._times = np.concatenate([self._times[1 - self._most :], times[None]])

    def newest_s(self) -> Floats:
        """Return when each amount was measured last, (2, n); -inf: never."""
        times = np.where(np.isnan(self._times), -np.inf, self._times)
        return np.asarray(times.max(axis=0, initial=-np.inf))

    def measured_s(self) -> Floats:
        """Return when each node was measured last, CPU and memory; -inf: never."""
        return np.asarray(self.newest_s().min(axis=0))

    def within(self, window_s: float) -> UsageStatistics:
        """Return the statistics of the ``window_s`` up to the newest sample of each amount."""
        with np.errstate(invalid="ignore"):
            inside = self._times > self.newest_s() - window_s
        values = np.where(inside, self._values, np.nan)
        known = ~np.isnan(values)
        count = known.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(known, values, 0.0).sum(axis=0) / count
            square = np.where(known, (values - mean) ** 2, 0.0).sum(axis=0) / count
        latest = np.full(mean.shape, np.nan)
        for row in values:
            latest = np.where(np.isnan(row), latest, row)
        return UsageStatistics(mean, np.sqrt(square), latest)
