"""Samples of many containers on their way into rows and aggregates.

One batch is one sample per container and resource; NaN is none. Whoever else learns from
the same samples (the recommender ``autopilot``) observes what was accepted.
"""

from typing import Protocol

import numpy as np

from podscale.core.metrics import ContainerColumns
from vpa.model.api.policy import Windows
from vpa.model.histograms.matrix import Columns, Floats
from vpa.model.samples.aggregates import Aggregates
from vpa.model.samples.container_rows import Containers, as_rows, kept


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
