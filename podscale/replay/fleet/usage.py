"""What a cluster's containers used: samples by workload, and their blocks of six hours.

Pods come and go; what is sized is a container of a workload, and every sample of any of its pods
counts. A request is exceeded in a block if usage is above it: once for memory (the kernel kills),
for CPU in more than a share of the samples (it is throttled). Both say the same of one number, the
block's *need*: the request is exceeded if and only if it lies below.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpa.model.amounts import Windows
from vpa.model.autopilot import Autopilot
from vpa.model.histograms.matrix import Columns
from vpa.model.samples.aggregates import Aggregates
from vpa.model.samples.container_rows import Containers, Intake
from vpa.model.samples.membership import VpaKey

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

BLOCK_S = 6 * 3600
DAY_BLOCKS = 86400 // BLOCK_S
THROTTLED = 0.05  # of the samples of a block: from here on a CPU counts as throttled


def needs(
    steps: Rows, values: NDArray[np.floating], block_steps: int, blocks: int, share: float
) -> Floats:
    """Return the need of each block, NaN for one without a sample.

    ``steps`` are numbers of samples on the grid, of all pods and in any order; ``share`` of a
    block's samples may be above a request that is not exceeded: 0 for memory.
    """
    block = steps // block_steps
    order = np.argsort(block.astype(np.int16), kind="stable")  # narrow integers: by radix
    counts = np.bincount(block, minlength=blocks)
    ends = np.cumsum(counts)
    # A row for each block, of which the end is empty.
    ordered = np.full((blocks, int(counts.max(initial=0)) + 1), np.nan, values.dtype)
    ordered[block[order], np.arange(len(order)) - np.repeat(ends - counts, counts)] = values[order]
    ordered.sort(axis=1)  # NaN last
    # The (floor(share * n) + 1)-th largest: above anything less, more than the share lies.
    above = np.floor(share * counts).astype(np.intp)
    found: Floats = ordered[np.arange(blocks), counts - 1 - above].astype(np.float64)
    return found  # the last of none is NaN


# What the controllers append: a template's hash, five letters of a pod, an ordinal, minutes.
_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
_SHAPES = (
    ("CronJob", re.compile(rf"(.+)-\d{{8,10}}-{_LETTERS}{{5}}")),
    ("Deployment", re.compile(rf"(.+)-{_LETTERS}{{6,10}}-{_LETTERS}{{5}}")),
    ("StatefulSet", re.compile(r"(.+)-\d{1,4}")),
    ("DaemonSet", re.compile(rf"(.+)-{_LETTERS}{{5}}")),
)
# A Deployment's ReplicaSet and a CronJob's Job, where nobody told of them.
_PARENTS = {
    "ReplicaSet": ("Deployment", re.compile(rf"(.+)-{_LETTERS}{{6,10}}")),
    "Job": ("CronJob", re.compile(r"(.+)-\d{8,10}")),
}


class FleetWorkload(NamedTuple):
    """What a person sizes."""

    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind.lower()}/{self.name}"


Owned = Mapping[tuple[str, str], tuple[str, str]]  # (namespace, name) → kind and name of its owner


def workload_of(
    namespace: str, pod: str, pods: Owned, parents: Mapping[str, Owned]
) -> FleetWorkload:
    """Return the workload; ``parents`` are owners by the kind of what is owned."""
    kind, name = pods.get((namespace, pod)) or _guessed(pod)
    if kind in ("", "<none>", "Node"):
        return FleetWorkload(namespace, "Pod", pod)  # nobody makes it anew
    above = parents.get(kind, {}).get((namespace, name))
    if above is not None and above[0] not in ("", "<none>"):
        return FleetWorkload(namespace, *above)
    if above is None and kind in _PARENTS:
        parent, shape = _PARENTS[kind]
        if found := shape.fullmatch(name):
            return FleetWorkload(namespace, parent, found[1])
    return FleetWorkload(namespace, kind, name)


def _guessed(pod: str) -> tuple[str, str]:
    for kind, shape in _SHAPES:
        if found := shape.fullmatch(pod):
            return kind, found[1]
    return "", pod


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
