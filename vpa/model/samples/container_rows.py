"""Samples of containers on their way into the histograms.

A container is a row: when its last samples were taken, and the highest memory of its open
window. CPU goes straight in; memory counts once per window, by its peak, so a higher
sample takes the old peak out and puts the new one in. An OOM is a memory sample that the
container would have needed. Follows ``model/container.go`` of upstream's recommender.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.core.metrics import ContainerColumns
from vpa.model.amounts import Windows
from vpa.model.estimation.estimator import scale
from vpa.model.histograms.matrix import ZERO_TIME, ColumnArrays, Columns, Floats, HistogramMatrix
from vpa.model.samples.aggregates import Aggregates

Mask = NDArray[np.bool_]
T = TypeVar("T", bound=np.generic)

# Every CPU sample weighs the same: upstream weighs by request, which it no longer fills in.
CPU_WEIGHT = 0.1
MEMORY_WEIGHT = 1.0
_REMEMBERED = 8  # windows of a container that an explanation can name


class OpenWindow(Struct, frozen=True, array_like=True):
    """The memory window that a container of a pod is in; times are unix seconds.

    An array on the wire, since there is one per pod.
    """

    pod: str
    end_s: float
    memory_peak: int  # bytes, 0: only OOMs so far
    oom_peak: int  # bytes, 0: no OOM
    last_memory_s: float

    @property
    def peak(self) -> int:
        """Return the bytes that stand in the histogram for this window."""
        return max(self.memory_peak, self.oom_peak)


class OomNote(Struct, frozen=True):
    """What an OOM added, and what the window would hold without it."""

    time_s: float
    requested: int  # bytes
    bumped: int  # bytes
    measured: int  # peak of the window's samples, 0: none


class PeakWindow(Struct, frozen=True):
    """A memory window, open or past, with the peak that it put into the histogram."""

    start_s: float
    end_s: float
    peak: int  # bytes
    oom: OomNote | None = None


class Containers(ColumnArrays):
    """Rows of containers. ``column`` is the aggregate that a row feeds, the same number in
    the CPU and in the memory histograms.
    """

    column: Columns
    interval: Floats
    last_cpu: Floats
    last_memory: Floats
    window_end: Floats
    memory_peak: Floats
    oom_peak: Floats
    # The last windows of each container, for explanations: a ring (windows, rows).
    _slot: Columns
    _log_end: Floats
    _log_peak: Floats

    def __init__(self, capacity: int = 256) -> None:
        super().__init__(
            capacity,
            column=np.intp(0),
            interval=0.0,
            last_cpu=ZERO_TIME,
            last_memory=ZERO_TIME,
            window_end=ZERO_TIME,
            memory_peak=0.0,
            oom_peak=0.0,
            _slot=np.intp(0),
            _log_end=np.full((_REMEMBERED, 1), ZERO_TIME),
            _log_peak=np.zeros((_REMEMBERED, 1)),
        )
        self._ooms: dict[int, dict[float, OomNote]] = {}
        self._free: list[int] = []
        self._next = 0

    def open(self, column: int, windows: Windows) -> int:
        """Return the row of a new container."""
        row = self._free.pop() if self._free else self._next
        self._next = max(self._next, row + 1)
        if row >= self.capacity:
            self.grow(self.capacity * 2)
        self.column[row] = column
        self.interval[row] = windows.interval_s
        return row

    def close(self, row: int) -> None:
        """Forget a container; what it has sampled stays in the histograms."""
        self.clear(slice(row, row + 1))
        self._ooms.pop(row, None)
        self._free.append(row)

    def peak(self, rows: NDArray[np.intp]) -> Floats:
        """Return the bytes that stand in the histogram for the open windows."""
        peaks: Floats = np.maximum(self.memory_peak[rows], self.oom_peak[rows])
        return peaks

    def window(self, row: int, pod: str) -> OpenWindow | None:
        """Return the window of a pod's container that has had a memory sample."""
        if self.window_end[row] == ZERO_TIME:
            return None
        return OpenWindow(
            pod,
            float(self.window_end[row]),
            int(self.memory_peak[row]),
            int(self.oom_peak[row]),
            float(self.last_memory[row]),
        )

    def past_windows(self, row: int) -> list[PeakWindow]:
        """Return the windows that are remembered of a container, oldest first."""
        notes = self._ooms.get(row, {})
        windows = []
        for end, peak in sorted(zip(self._log_end[:, row], self._log_peak[:, row], strict=True)):
            if end == ZERO_TIME:
                continue
            note = notes.get(float(end))
            # A later sample above the bump has taken its place.
            held = note if note is not None and note.bumped == int(peak) else None
            start = float(end - self.interval[row])
            windows.append(PeakWindow(start, float(end), int(peak), held))
        return windows

    def resume(self, row: int, window: OpenWindow) -> None:
        """Put a container back into the window that an earlier process had opened for it."""
        self._log(as_rows(row), np.array([window.end_s]), np.array([float(window.peak)]))
        self.window_end[row] = window.end_s
        self.memory_peak[row] = window.memory_peak
        self.oom_peak[row] = window.oom_peak
        self.last_memory[row] = window.last_memory_s

    def add_cpu(self, matrix: HistogramMatrix, rows: Columns, cores: Floats, times: Floats) -> Mask:
        """Add one sample per row; return which were taken.

        Negative, infinite and NaN usage is refused, and so is a sample that is not newer
        than the container's last one.
        """
        accepted = _usable(cores) & (times > self.last_cpu[rows]) & _first_of_row(rows)
        taken, at = kept(rows, accepted), kept(times, accepted)
        matrix.add(self.column[taken], kept(cores, accepted), CPU_WEIGHT, at)
        self.last_cpu[taken] = at
        return accepted

    def add_memory(
        self, matrix: HistogramMatrix, rows: Columns, used: Floats, times: Floats
    ) -> Mask:
        """Add one sample per row; return which were taken, also where the peak stayed."""
        accepted = _usable(used) & (times >= self.last_memory[rows]) & _first_of_row(rows)
        taken, at = kept(rows, accepted), kept(times, accepted)
        self._take(matrix, taken, kept(used, accepted), at, self.memory_peak)
        return accepted

    def add_oom(
        self, matrix: HistogramMatrix, row: int, requested: int, time_s: float, windows: Windows
    ) -> int | None:
        """Add what the container would have needed; return those bytes, None if too old.

        The base is the request or the measured peak, never the peak of an earlier OOM, so
        that repeated OOMs at one size do not add up.
        """
        last = self.last_memory[row]
        # Compared with the last sample: the window's end lies up to an interval ahead of it,
        # and would drop an OOM that has just happened.
        if last != ZERO_TIME and time_s < last - windows.interval_s:
            return None
        used = max(requested, int(self.memory_peak[row]))
        needed = max(used + int(windows.oom_min_bytes), scale(used, windows.oom_ratio))
        at = np.array([time_s])
        self._take(matrix, as_rows(row), np.array([float(needed)]), at, self.oom_peak)
        if self.oom_peak[row] == needed:
            end = float(self.window_end[row])
            note = OomNote(time_s, requested, needed, int(self.memory_peak[row]))
            kept = self._ooms.setdefault(row, {})
            kept[end] = note
            while len(kept) > _REMEMBERED:
                del kept[min(kept)]
        return needed

    def _take(
        self, matrix: HistogramMatrix, rows: Columns, used: Floats, times: Floats, peaks: Floats
    ) -> None:
        self.last_memory[rows] = times
        fresh = self.window_end[rows] == ZERO_TIME
        self.window_end[rows[fresh]] = times[fresh]
        inside = times < self.window_end[rows]
        # Upstream keeps a peak of 0 for ever, and with it hides the rest of the window (D8).
        higher = inside & (used > self.peak(rows))
        replaced = rows[higher]
        if replaced.size:
            matrix.subtract(
                self.column[replaced], self.peak(replaced), MEMORY_WEIGHT, self.window_end[replaced]
            )
        passed = rows[~inside]
        interval = self.interval[passed]
        late = times[~inside] - self.window_end[passed]
        self.window_end[passed] += np.floor(late / interval) * interval + interval
        self.memory_peak[passed] = self.oom_peak[passed] = 0.0
        new = higher | ~inside
        added = rows[new]
        if added.size:
            # Stamped with the window's end, up to an interval in the future.
            matrix.add(self.column[added], used[new], MEMORY_WEIGHT, self.window_end[added])
        peaks[added] = used[new]
        self._log(added, self.window_end[added], used[new])

    def _log(self, rows: Columns, ends: Floats, peaks: Floats) -> None:
        slot = self._slot[rows]
        moves = self._log_end[slot, rows] != ends
        slot = (slot + moves) % _REMEMBERED
        self._slot[rows] = slot
        self._log_end[slot, rows] = ends
        self._log_peak[slot, rows] = peaks


def as_rows(*rows: int) -> Columns:
    return np.array(rows, dtype=np.intp)


def kept(values: NDArray[T], mask: Mask) -> NDArray[T]:
    """Return the values where ``mask`` is true; mostly it is everywhere, and nothing is copied."""
    return values if mask.all() else values[mask]


def _usable(values: Floats) -> Mask:
    usable: Mask = np.isfinite(values) & (values >= 0.0)
    return usable


def _first_of_row(rows: Columns) -> Mask:
    # A container that occurs twice in one answer: the first sample counts, as the second
    # one of the same time is refused anyway.
    first = np.ones(rows.size, dtype=np.bool_)
    if rows.size > 1 and not bool((rows[1:] > rows[:-1]).all()):
        first[:] = False
        first[np.unique(rows, return_index=True)[1]] = True
    return first


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


class IntakeObserver(Protocol):
    """Another recommender that learns from the same samples."""

    def observe(
        self, resource: str, rows: Columns, columns: Columns, values: Floats, now: float
    ) -> None:
        """Take samples that were accepted: container rows, their aggregates, their values."""


class Intake:
    """Adds samples to the rows and aggregates of one model."""

    def __init__(self, aggregates: Aggregates, rows: Containers) -> None:
        self.observer: IntakeObserver | None = None
        self._aggregates = aggregates
        self._rows = rows

    def take(
        self, rows: Columns, usage: ContainerColumns, minutes: float | None
    ) -> tuple[int, int]:
        """Add ``usage``, whose containers have these rows; -1 is a container nobody knows.
        Returns how many samples of CPU and of memory were accepted.

        ``minutes`` is what a sample covers, for sources that say so; a sample without a
        time of its own gets the time that was asked for.
        """
        times = np.where(np.isnan(usage.time_s), usage.asked_s, usage.time_s)
        return (
            self.add("cpu", rows, usage.cpu_cores, times, minutes),
            self.add("memory", rows, usage.memory_bytes, times, minutes),
        )

    def add(
        self, resource: str, rows: Columns, values: Floats, times: Floats, minutes: float | None
    ) -> int:
        """Add samples of one resource, at most one per row; return how many were accepted."""
        given = (rows >= 0) & ~np.isnan(values)
        chosen, used, at = kept(rows, given), kept(values, given), kept(times, given)
        if not chosen.size:
            return 0
        take = self._rows.add_cpu if resource == "cpu" else self._rows.add_memory
        accepted = take(self._aggregates.histograms(resource), chosen, used, at)
        taken, used, taken_at = kept(chosen, accepted), kept(used, accepted), kept(at, accepted)
        columns = self._rows.column[taken]
        if self.observer is not None and taken_at.size:
            self.observer.observe(resource, taken, columns, used, float(taken_at.max()))
        counts = 1.0 if minutes is None else minutes
        self._aggregates.span(resource).add(columns, taken_at, counts)
        if resource == "memory":
            np.maximum.at(self._aggregates.highest_peak, columns, used)
        return int(accepted.sum())

    def add_oom(self, row: int, requested: int, at: float, windows: Windows) -> bool:
        """Add what a killed container would have needed; False for a kill that is too old."""
        needed = self._rows.add_oom(self._aggregates.memory, row, requested, at, windows)
        if needed is None:
            return False
        column = self._rows.column[row : row + 1]
        self._aggregates.memory_span.add(column, np.array([at]), 1.0)
        if self.observer is not None:
            self.observer.observe("memory", as_rows(row), column, np.array([float(needed)]), at)
        return True
