"""What the model keeps of pods, of OOM kills and of VPAs; the columns of every VPA and container
name, over which a pass and a checkpoint take sums; and which of many writes go first.

A write that has time waits (``paced``), so that no pass has to do them all: each takes the oldest,
as many as grow old in a pass on average (``share``), and more only where something would be late.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from podscale.kube.objects.vpa import Vpa, is_off
from vpa.model.amounts import Mistake, Windows
from vpa.model.estimation.annotations import VpaSettings
from vpa.model.histograms.matrix import Columns
from vpa.model.samples.aggregates import AggregateKey, Aggregates, merged
from vpa.model.samples.container_rows import OpenWindow
from vpa.model.samples.membership import Labels, VpaKey

Named = tuple[VpaKey, str]  # a VPA and a container name
ContainerKey = tuple[str, str, str]  # namespace, pod, container


class PodEntry(Struct, frozen=True):
    """A pod as the model knows it."""

    labels: Labels
    containers: tuple[str, ...]
    is_active: bool  # neither succeeded nor failed


class Oom(Struct, frozen=True):
    """One out-of-memory kill; ``memory_bytes`` is the request, or the usage in an event."""

    namespace: str
    pod: str
    container: str
    memory_bytes: int
    time_s: float
    source: str = ""  # where the request was read, in upstream's words; empty: nowhere


class AggregateEntry(Struct):
    """An aggregate as the model knows it."""

    column: int
    windows: Windows
    users: set[ContainerKey]


class VpaEntry(Struct):
    """A VPA in the model: its object, what it sets for itself, what it has gathered."""

    vpa: Vpa
    settings: VpaSettings
    mistakes: tuple[Mistake, ...]
    columns: dict[str, dict[AggregateKey, int]]  # by container name
    initial: dict[str, int]  # columns that checkpoints filled
    pending: dict[str, dict[str, OpenWindow]]  # open windows of checkpoints, by pod
    is_resolved: bool = True  # whether its target is known now

    def group(self, container: str) -> Columns:
        """Return all columns of one container name, the checkpoint's last."""
        own = list(self.columns.get(container, {}).values())
        if container in self.initial:
            own.append(self.initial[container])
        return np.array(own, dtype=np.intp)

    def containers(self) -> list[str]:
        """Return the container names that are known, those with mode Off left out."""
        policy = self.vpa.spec.resource_policy
        names = sorted({*self.columns, *self.initial})
        return [name for name in names if not is_off(policy, name)]


class ParkedCheckpoints(Struct, frozen=True):
    """What checkpoints brought of a VPA that is not in the model now, as ``VpaEntry`` has it."""

    since_s: float
    target: CrossVersionObjectReference | None  # whose history it is
    initial: dict[str, int]
    pending: dict[str, dict[str, OpenWindow]]

    def is_of(self, target: CrossVersionObjectReference | None) -> bool:
        """Return whether it is the history of what ``target`` names, in whatever version."""
        before = self.target
        if before is None or target is None:
            return before is target
        return (before.kind, before.name) == (target.kind, target.name)


class ContainerGroups:
    """The groups of a cluster at one moment."""

    def __init__(
        self, aggregates: Aggregates, vpas: Mapping[VpaKey, VpaEntry], version: int = 0
    ) -> None:
        self._aggregates = aggregates
        self.version = version  # of the cluster
        self.keys: list[Named] = []
        self.rows: dict[VpaKey, slice] = {}  # of the containers of a VPA
        groups: list[Columns] = []
        for key, entry in vpas.items():
            first = len(self.keys)
            for container in entry.containers():
                self.keys.append((key, container))
                groups.append(entry.group(container))
            self.rows[key] = slice(first, len(self.keys))
        self._groups = groups
        sizes = np.array([group.size for group in groups], dtype=np.intp)
        self._single, self._several = np.flatnonzero(sizes == 1), np.flatnonzero(sizes > 1)
        self._lone = np.array([groups[i][0] for i in self._single], dtype=np.intp)
        self._flat = np.concatenate(groups) if groups else np.empty(0, dtype=np.intp)
        self._starts = np.cumsum(sizes) - sizes

    def parts(self) -> Iterator[tuple[Aggregates, Columns, Columns]]:
        """Yield histograms, numbers of groups, and their columns in the histograms.

        Lone columns are read where they are; only real sums are made.
        """
        if self._single.size:
            yield self._aggregates, self._single, self._lone
        if self._several.size:
            sums = merged(self._aggregates, [self._groups[i] for i in self._several])
            yield sums, self._several, np.arange(self._several.size)

    def reduced(self, by: np.ufunc, of_columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values of the columns of each group as one, by ``np.maximum`` or another."""
        if not self._flat.size:
            return np.empty(0)
        return np.asarray(by.reduceat(of_columns[self._flat], self._starts))

    def places(self, size: int) -> Columns:
        """Return the number of the group of each column, -1 where it is in none; of several
        groups the last.
        """
        found = np.full(size, -1, dtype=np.intp)
        sizes = np.diff(self._starts, append=self._flat.size)
        found[self._flat] = np.repeat(np.arange(len(self.keys)), sizes)
        return found

    def moved_from(self, before: Sequence[Named]) -> list[tuple[int, int]]:
        """Return (old, new) numbers of the groups that were there before."""
        old = {key: row for row, key in enumerate(before)}
        return [(old[key], row) for row, key in enumerate(self.keys) if key in old]


def share(size: int, age_s: float, interval_s: float) -> int:
    """Return how many of ``size`` objects grow old in a pass on average."""
    return size if age_s <= interval_s else int(np.ceil(size * interval_s / age_s))


def paced(
    ages: NDArray[np.float64], size: int, age_s: float, interval_s: float
) -> NDArray[np.intp]:
    """Return which to write now, oldest first; ``ages`` are those of some among ``size``.

    What was written together grows old together, and each pass takes as few as possible. Nothing is
    written later than in the first pass in which it is ``age_s`` old, as long as no more than
    ``share`` per pass become worth writing meanwhile.
    """
    oldest = np.argsort(-ages, kind="stable")
    left_s = np.maximum(age_s - ages[oldest], 0.0)
    passes = np.ceil(left_s / interval_s)  # that may still go by
    behind = np.arange(1, ages.size + 1) - passes * share(size, age_s, interval_s)
    return oldest[: int(max(behind.max(initial=0.0), 0.0))]
