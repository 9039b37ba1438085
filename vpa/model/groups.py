"""The columns of every VPA and container name, as the cluster has them now.

What a pass reads and what a checkpoint saves are sums over these groups.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vpa.model.cluster import ClusterModel
from vpa.model.histograms.matrix import Columns
from vpa.model.samples.aggregates import Aggregates
from vpa.model.samples.membership import VpaKey
from vpa.model.samples.merged import merged

Named = tuple[VpaKey, str]  # a VPA and a container name


class ContainerGroups:
    """Follows a cluster; ``number`` changes whenever the groups do."""

    def __init__(self, cluster: ClusterModel) -> None:
        self._cluster = cluster
        self.number = -1
        self.keys: list[Named] = []
        self.first: dict[VpaKey, int] = {}  # where the containers of a VPA begin
        self.count: dict[VpaKey, int] = {}
        self._groups: list[Columns] = []
        self._single = self._several = self._lone = np.empty(0, dtype=np.intp)
        self._flat = self._starts = np.empty(0, dtype=np.intp)

    def follow(self) -> None:
        """Take over what has changed in the cluster."""
        if self._cluster.version == self.number:
            return
        keys: list[Named] = []
        groups: list[Columns] = []
        self.first, self.count = {}, {}
        for key, entry in self._cluster.vpas.items():
            self.first[key] = len(keys)
            for container in entry.containers():
                keys.append((key, container))
                groups.append(entry.group(container))
            self.count[key] = len(keys) - self.first[key]
        sizes = np.array([group.size for group in groups], dtype=np.intp)
        self._single, self._several = np.flatnonzero(sizes == 1), np.flatnonzero(sizes > 1)
        self._lone = np.array([groups[i][0] for i in self._single], dtype=np.intp)
        self._flat = np.concatenate(groups) if groups else np.empty(0, dtype=np.intp)
        self._starts = np.cumsum(sizes) - sizes
        self.keys, self._groups, self.number = keys, groups, self._cluster.version

    def parts(self) -> Iterator[tuple[Aggregates, Columns, Columns]]:
        """Yield histograms, numbers of groups, and their columns in the histograms.

        Lone columns are read where they are; only real sums are made.
        """
        if self._single.size:
            yield self._cluster.aggregates, self._single, self._lone
        if self._several.size:
            sums = merged(self._cluster.aggregates, [self._groups[i] for i in self._several])
            yield sums, self._several, np.arange(self._several.size)

    def largest(self, of_columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the largest value among the columns of each group."""
        if not self._flat.size:
            return np.empty(0)
        return np.maximum.reduceat(of_columns[self._flat], self._starts)

    def least(self, of_columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the least value among the columns of each group."""
        if not self._flat.size:
            return np.empty(0)
        return np.minimum.reduceat(of_columns[self._flat], self._starts)

    def places(self, size: int) -> Columns:
        """Return the number of the group of each column, -1 where it is in none; of several
        groups the last.
        """
        found = np.full(size, -1, dtype=np.intp)
        sizes = np.diff(self._starts, append=self._flat.size)
        found[self._flat] = np.repeat(np.arange(len(self.keys)), sizes)
        return found

    def moved_from(self, before: list[Named]) -> list[tuple[int, int]]:
        """Return (old, new) numbers of the groups that were there before."""
        old = {key: row for row, key in enumerate(before)}
        return [(old[key], row) for row, key in enumerate(self.keys) if key in old]
