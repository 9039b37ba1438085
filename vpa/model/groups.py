"""The columns of every VPA and container name, as the cluster has them now.

What a pass reads and what a checkpoint saves are sums over these groups.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vpa.model.histograms.matrix import Columns
from vpa.model.samples.aggregates import Aggregates, merged
from vpa.model.samples.entries import VpaEntry
from vpa.model.samples.membership import VpaKey

Named = tuple[VpaKey, str]  # a VPA and a container name


class ContainerGroups:
    """The groups of a cluster at one moment."""

    def __init__(self, aggregates: Aggregates, vpas: Mapping[VpaKey, VpaEntry]) -> None:
        self._aggregates = aggregates
        self.keys: list[Named] = []
        self.first: dict[VpaKey, int] = {}  # where the containers of a VPA begin
        self.count: dict[VpaKey, int] = {}
        groups: list[Columns] = []
        for key, entry in vpas.items():
            self.first[key] = len(self.keys)
            for container in entry.containers():
                self.keys.append((key, container))
                groups.append(entry.group(container))
            self.count[key] = len(self.keys) - self.first[key]
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

    def moved_from(self, before: Sequence[Named]) -> list[tuple[int, int]]:
        """Return (old, new) numbers of the groups that were there before."""
        old = {key: row for row, key in enumerate(before)}
        return [(old[key], row) for row, key in enumerate(self.keys) if key in old]
