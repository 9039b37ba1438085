"""One series' samples in two growing columns."""

import struct

import numpy as np

from podscale.sandbox.promql.values import Times, Values

_FIRST = 64
# Prometheus's staleness marker: a NaN told from others by its bits.
STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
_STALE_BITS = np.uint64(0x7FF0000000000002)


class SeriesColumns:
    """Times and values, oldest first."""

    def __init__(self) -> None:
        self._times: Times = np.empty(_FIRST, np.int64)
        self._values: Values = np.empty(_FIRST, np.float64)
        self._begin = self._end = 0

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def times(self) -> Times:
        return self._times[self._begin : self._end]

    @property
    def values(self) -> Values:
        """All values, markers included."""
        return self._values[self._begin : self._end]

    def append(self, time_ms: int, value: float) -> None:
        """Add a sample; one that is not newer than the last is dropped, as Prometheus does."""
        if len(self) and time_ms <= self._times[self._end - 1]:
            return
        if self._end == len(self._times):
            self._make_room()
        self._times[self._end] = time_ms
        # Through bits: arithmetic on the way could quieten the marker.
        self._values.view(np.uint64)[self._end] = np.frombuffer(
            struct.pack("<d", value), np.uint64
        )[0]
        self._end += 1

    def forget(self, before_ms: int) -> None:
        """Drop what is older."""
        self._begin += int(np.searchsorted(self.times, before_ms))

    def last(self, after_ms: int, until_ms: int) -> tuple[int, float] | None:
        """Return the newest sample within (after, until]; None also where it is a marker."""
        place = int(np.searchsorted(self.times, until_ms, side="right")) - 1
        if place < 0 or self.times[place] <= after_ms:
            return None
        if self.values[place : place + 1].view(np.uint64)[0] == _STALE_BITS:
            return None
        return int(self.times[place]), float(self.values[place])

    def window(self, after_ms: int, until_ms: int) -> tuple[Times, Values]:
        """Return the samples within (after, until], without markers."""
        low = int(np.searchsorted(self.times, after_ms, side="right"))
        high = int(np.searchsorted(self.times, until_ms, side="right"))
        times, values = self.times[low:high], self.values[low:high]
        marked = values.view(np.uint64) == _STALE_BITS
        if marked.any():
            times, values = times[~marked], values[~marked]
        return times, values

    def _make_room(self) -> None:
        times, values = self.times, self.values
        size = max(_FIRST, 2 * len(self))
        self._times, self._values = np.empty(size, np.int64), np.empty(size, np.float64)
        self._times[: len(times)], self._values.view(np.uint64)[: len(values)] = (
            times,
            values.view(np.uint64),
        )
        self._begin, self._end = 0, len(times)
