"""Usage of nodes over the last quarter of an hour: means, and what load-watcher tells.

The samples of all nodes lie in one ring of arrays. Pure: no I/O, no clock.
"""

from collections.abc import Sequence

import numpy as np

from podscale.nodes.decide.ballast import Bools, Floats

LONGEST_S = 900.0


class UsageWindows:
    """The samples of the newest nodes that were asked about."""

    def __init__(self, period_s: float) -> None:
        """``period_s``: how often samples come, at most."""
        self.names: tuple[str, ...] = ()
        most = max(2, int(LONGEST_S / max(period_s, 1.0)) + 2)
        self._next = 0  # where the next samples go, over the oldest
        self._values: Floats = np.full((most, 2, 0), np.nan)  # samples × resources × nodes
        self._times: Floats = np.full((most, 2, 0), np.nan)  # of each sample
        self._last: Floats = np.full(most, -np.inf)  # of these the last one, by sample
        self._latest: Floats = np.full((2, 0), np.nan)
        self.newest_s: Floats = np.full((2, 0), -np.inf)  # when that was measured; -inf: never

    def keep(self, names: Sequence[str]) -> None:
        """Know these nodes from now on; a node that stays keeps its samples."""
        wanted = tuple(names)
        if wanted == self.names:
            return
        places = {name: place for place, name in enumerate(self.names)}
        found = np.array([places.get(name, -1) for name in wanted], np.int64)

        def kept(array: Floats, unknown: float) -> Floats:
            spare = np.full((*array.shape[:-1], 1), unknown)  # at -1
            return np.concatenate([array, spare], axis=-1)[..., found]

        self._values, self._times = kept(self._values, np.nan), kept(self._times, np.nan)
        self._latest, self.newest_s = kept(self._latest, np.nan), kept(self.newest_s, -np.inf)
        self.names = wanted

    def add(self, usage: Floats, time_s: Floats) -> None:
        """Take in one sample of each node, (2, n) and (n,); what is no amount is no sample, and
        one that has been taken in before is not counted again."""
        with np.errstate(invalid="ignore"):
            is_new = np.isfinite(usage) & (usage >= 0) & ~(time_s <= self.newest_s)
        # A clock that was ahead for a while keeps samples out until its own is written over.
        newest = np.where(self._times[self._next] == self.newest_s, -np.inf, self.newest_s)
        self._values[self._next] = np.where(is_new, usage, np.nan)
        self._times[self._next] = np.where(is_new, time_s, np.nan)
        self._last[self._next] = np.fmax.reduce(
            np.where(is_new, time_s, -np.inf), axis=None, initial=-np.inf
        )
        self._next = (self._next + 1) % len(self._times)
        self._latest = np.where(is_new, usage, self._latest)
        self.newest_s = np.where(is_new, time_s, newest)

    def measured_s(self) -> Floats:
        """Return when each node was measured last, CPU and memory; -inf: never."""
        return np.asarray(self.newest_s.min(axis=0))

    def mean(self, window_s: float) -> Floats:
        """Return the mean of the ``window_s`` up to the newest sample of each amount, (2, n);
        NaN: no sample."""
        return _mean(*self._within(window_s))

    def within(self, window_s: float, which: slice = slice(None)) -> Floats:
        """Return mean, deviation and latest usage of the same time, of shape (3, 2, n), for the
        nodes of ``which``; NaN: no sample."""
        values, known = self._within(window_s, which)
        mean = _mean(values, known)
        deviation = np.sqrt(_mean((values - mean) ** 2, known))
        latest = np.where(known.any(axis=0), self._latest[:, which], np.nan)
        return np.stack([mean, deviation, latest])

    def _within(self, window_s: float, which: slice = slice(None)) -> tuple[Floats, Bools]:
        # Most of the ring is older than the windows of all nodes.
        newest_s = self.newest_s[:, which]
        rows = self._last > newest_s.min(initial=np.inf, where=np.isfinite(newest_s)) - window_s
        # What is no sample has no time.
        inside = self._times[..., which][rows] > newest_s - window_s
        return self._values[..., which][rows], inside


def _mean(values: Floats, known: Bools) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(values.sum(axis=0, where=known) / known.sum(axis=0))
