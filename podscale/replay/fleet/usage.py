"""Samples of a cluster's containers, by workload, on their way into estimators and figures.

Pods come and go; what is sized is a container of a workload, and every sample of any of its
pods counts. Samples stay what they are, four bytes each: 10,000 containers over eight days at
five minutes are 184 MB for both resources.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from podscale.replay.fleet.blocks import Floats
from podscale.replay.fleet.owners import FleetWorkload
from vpa.model.api.policy import Windows
from vpa.model.autopilot import Autopilot
from vpa.model.histograms.matrix import Columns
from vpa.model.samples.aggregates import Aggregates
from vpa.model.samples.container_rows import Containers, Intake
from vpa.model.samples.membership import VpaKey


class FleetContainer(NamedTuple):
    """A container of a workload: one line of a report."""

    workload: FleetWorkload
    container: str

    @property
    def vpa(self) -> VpaKey:
        """Return what the estimators call its workload."""
        workload = self.workload
        return VpaKey(workload.namespace, f"{workload.kind}/{workload.name}")


class FleetUsage:
    """What was used, step by step; ``add`` takes slices in the order of time."""

    def __init__(self, start_s: float, step_s: int, *, is_autopilot: bool = False) -> None:
        self.start_s, self.step_s = start_s, step_s
        self.containers: dict[FleetContainer, int] = {}  # → column
        self.aggregates = Aggregates()
        self.autopilot = Autopilot() if is_autopilot else None
        self._rows = Containers()
        self._intake = Intake(self.aggregates, self._rows)
        self._intake.observer = self if is_autopilot else None
        self._row_of: dict[tuple[str, str, str], int] = {}
        self._chunks: dict[tuple[int, str], list[tuple[int, NDArray[np.float32]]]] = {}

    def row(self, sized: FleetContainer, pod: str) -> int:
        """Return the row of a pod's container."""
        key = sized.workload.namespace, pod, sized.container
        found = self._row_of.get(key)
        if found is None:
            column = self.containers.get(sized)
            if column is None:
                column = int(self.aggregates.open(1, self.start_s, Windows())[0])
                self.containers[sized] = column
                if self.autopilot is not None:
                    self.autopilot.slot(sized.vpa, sized.container)  # numbered as columns are
            found = self._row_of[key] = self._rows.open(column, Windows())
        return found

    def add(self, resource: str, rows: Columns, grid: Floats, first_step: int) -> None:
        """Add values (series, steps), NaN for none; no row occurs twice."""
        columns = self._rows.column[rows]
        for column, values in zip(columns.tolist(), grid.astype(np.float32), strict=True):
            self._chunks.setdefault((column, resource), []).append((first_step, values))
        minutes = self.step_s / 60.0
        order = np.argsort(columns, kind="stable")  # several times faster where they ascend
        ordered = rows[order]
        for number, values in enumerate(np.ascontiguousarray(grid[order].T)):
            at = self.start_s + (first_step + number) * self.step_s
            self._intake.add(resource, ordered, values, np.full(rows.size, at), minutes)

    def observe(
        self, resource: str, rows: Columns, columns: Columns, values: Floats, now: float
    ) -> None:
        """Hand accepted samples to Autopilot."""
        if self.autopilot is not None:
            self.autopilot.take(resource, rows, columns, values, now)

    def samples(self, column: int, resource: str) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Return steps and values of all pods of a container; the order is that of slices."""
        chunks = self._chunks.get((column, resource), [])
        if not chunks:
            return np.empty(0, np.intp), np.empty(0, np.float32)
        values = np.concatenate([values for _, values in chunks])
        lengths = np.array([len(values) for _, values in chunks])
        begins = np.array([first for first, _ in chunks]) - (np.cumsum(lengths) - lengths)
        steps = np.arange(len(values)) + np.repeat(begins, lengths)
        known = ~np.isnan(values)
        return steps[known], values[known]
