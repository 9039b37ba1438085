"""Aggregates: what all containers of one name and one label set have used.

One aggregate is one column in the CPU and in the memory histograms, with the span and the
number of its samples. Replicas share an aggregate; a new pod template has new labels and
opens another one; a VPA reads the sum of those that match.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vpa.model.amounts import RESOURCES, Windows
from vpa.model.estimation import estimator
from vpa.model.estimation.annotations import HalfLives
from vpa.model.estimation.recommendation import RecommenderSettings, ResourceUsage
from vpa.model.histograms import buckets
from vpa.model.histograms.matrix import ZERO_TIME, ColumnArrays, Columns, Floats, HistogramMatrix
from vpa.model.samples.membership import Labels


class AggregateKey(Struct, frozen=True):
    """What containers share."""

    namespace: str
    container: str
    labels: Labels


class ResourceColumns(Struct, frozen=True):
    """One resource of many columns, as the estimators take it."""

    percentiles: Floats  # (lower bound, target, upper bound; columns), cores or bytes
    confidence: Floats
    measured: NDArray[np.bool_]


def usage_of(read: Mapping[str, ResourceColumns], column: int) -> dict[str, ResourceUsage]:
    """Return what is known of one column, by resource; one without a sample is absent."""
    found = {}
    for resource, known in read.items():
        if known.measured[column]:
            lower, target, upper = known.percentiles[:, column].tolist()
            found[resource] = ResourceUsage((lower, target, upper), float(known.confidence[column]))
    return found


class SampleSpan(ColumnArrays):
    """First and last sample and their number, per column. Empty: first inf, last ZERO_TIME.

    A sample counts 1, as upstream counts, or the minutes that it covers where it says so:
    otherwise a denser feed would pass for a longer history.
    """

    first: Floats
    last: Floats
    samples: Floats

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, first=np.inf, last=ZERO_TIME, samples=0.0)

    def add(self, columns: Columns, times: Floats, counts: Floats | float) -> None:
        """Take in one sample per entry; a column may occur several times."""
        if bool((columns[1:] > columns[:-1]).all()):  # none does: several times faster
            self.first[columns] = np.minimum(self.first[columns], times)
            self.last[columns] = np.maximum(self.last[columns], times)
            self.samples[columns] += counts
            return
        np.minimum.at(self.first, columns, times)
        np.maximum.at(self.last, columns, times)
        np.add.at(self.samples, columns, counts)

    def merge(self, into: Columns, other: "SampleSpan", columns: Columns) -> None:
        """Add the samples of ``columns`` of ``other``, pairwise."""
        self.first[into] = np.minimum(self.first[into], other.first[columns])
        self.last[into] = np.maximum(self.last[into], other.last[columns])
        self.samples[into] += other.samples[columns]

    def confidence(self, columns: Columns, interval_s: float) -> Floats:
        """Return the estimators' confidence of each column."""
        return estimator.confidence(
            self.first[columns], self.last[columns], self.samples[columns], interval_s
        )


class Aggregates(ColumnArrays):
    """Columns of aggregates; CPU and memory of one aggregate have the same number."""

    created: Floats
    kept_s: Floats  # how long a silent aggregate is kept
    highest_peak: Floats  # bytes, since the column was opened

    def __init__(
        self,
        cpu_half_life_s: float | None = 86400.0,
        memory_half_life_s: float | None = 86400.0,
        capacity: int = 256,
    ) -> None:
        self.cpu = HistogramMatrix(buckets.CPU, cpu_half_life_s, capacity)
        self.memory = HistogramMatrix(buckets.MEMORY, memory_half_life_s, capacity)
        self.cpu_span = SampleSpan(capacity)
        self.memory_span = SampleSpan(capacity)
        super().__init__(capacity, created=0.0, kept_s=0.0, highest_peak=0.0)

    def histograms(self, resource: str) -> HistogramMatrix:
        return self.cpu if resource == "cpu" else self.memory

    def span(self, resource: str) -> SampleSpan:
        """Return the span of one resource's samples; of memory also of those below a peak."""
        return self.cpu_span if resource == "cpu" else self.memory_span

    def grow(self, capacity: int) -> None:
        """Make room for more columns; the histograms make their own."""
        super().grow(capacity)
        self.cpu_span.grow(capacity)
        self.memory_span.grow(capacity)

    def open(self, count: int, now: float, windows: Windows) -> Columns:
        """Return new, empty columns."""
        columns = self.cpu.allocate(count)
        twins = self.memory.allocate(count)
        if not np.array_equal(columns, twins):
            raise RuntimeError("CPU and memory columns are handed out in different orders")
        if self.cpu.capacity > self.capacity:
            self.grow(self.cpu.capacity)
        self.created[columns] = now
        self.highest_peak[columns] = 0.0
        self.keep(columns, windows)
        return columns

    def close(self, columns: Columns) -> None:
        """Forget ``columns``; their numbers are used again."""
        for span in (self.cpu_span, self.memory_span):
            span.clear(columns)
        self.cpu.release(columns)
        self.memory.release(columns)

    def reset(self, columns: Columns, now: float) -> None:
        """Empty ``columns`` and let them begin anew, at the pace they have."""
        paces = self.cpu.half_life[columns], self.memory.half_life[columns]
        for span in (self.cpu_span, self.memory_span):
            span.clear(columns)
        self.cpu.clear(columns)
        self.memory.clear(columns)
        self.cpu.half_life[columns], self.memory.half_life[columns] = paces
        self.created[columns] = now

    def keep(self, columns: Columns, windows: Windows) -> None:
        """Set how long ``columns`` are kept without a sample."""
        self.kept_s[columns] = windows.interval_s * windows.interval_count

    def set_half_lives(self, columns: Columns, half_lives: HalfLives, now: float) -> None:
        """Let ``columns`` decay at another pace from ``now`` on."""
        self.cpu.set_half_life(columns, half_lives.cpu_s, now)
        self.memory.set_half_life(columns, half_lives.memory_s, now)

    def is_empty(self, columns: Columns) -> NDArray[np.bool_]:
        """Return which have never had a sample of either resource.

        Upstream looks at CPU only and so forgets learned memory, OOMs included (D6).
        """
        silent = (self.cpu_span.samples[columns] == 0) & (self.memory_span.samples[columns] == 0)
        return np.asarray(silent)

    def expendable(
        self, columns: Columns, now: float, contributive: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Return which may be collected: silent for longer than they are kept, or empty
        without a live pod (or its controller) behind them.
        """
        empty = self.is_empty(columns)
        last = np.maximum(self.cpu_span.last[columns], self.memory_span.last[columns])
        since = np.where(empty, self.created[columns], last)
        expired = now - since >= self.kept_s[columns]
        return np.asarray(expired | (empty & ~contributive))

    def begins(self, resource: str) -> Floats:
        """Return when the samples of one resource begin, of every column; inf: there are none.

        Upstream's checkpoints tell the span of CPU only, which is then that of both.
        """
        if resource == "cpu":
            return self.cpu_span.first
        first = self.memory_span.first
        untold = np.flatnonzero(~np.isfinite(first) & (self.memory.total > 0.0))
        found = first.copy()
        found[untold] = self.cpu_span.first[untold]
        return found

    def read(
        self, resource: str, columns: Columns, settings: RecommenderSettings
    ) -> ResourceColumns:
        """Return what the estimators need of one resource, per column.

        Confidence comes from CPU samples, as upstream counts; memory without any CPU sample
        has its own span, or its upper bound would stay infinite for ever (D6).
        """
        matrix, own = self.histograms(resource), self.span(resource)
        parameters = settings.of(resource)
        fractions = parameters.percentiles
        values = matrix.percentiles((fractions.lower, fractions.target, fractions.upper), columns)
        interval = parameters.confidence_interval_s
        alone = self.cpu_span.samples[columns] == 0
        certain = np.where(
            alone, own.confidence(columns, interval), self.cpu_span.confidence(columns, interval)
        )
        measured = (own.samples[columns] > 0) | ~matrix.is_empty(columns)
        return ResourceColumns(values, certain, measured)

    def usage(
        self, columns: Columns, settings: RecommenderSettings
    ) -> list[dict[str, ResourceUsage]]:
        """Return the same per column, as ``usage_of`` does."""
        read = {resource: self.read(resource, columns, settings) for resource in RESOURCES}
        return [usage_of(read, place) for place in range(columns.size)]


def merged(aggregates: Aggregates, groups: Sequence[Columns]) -> Aggregates:
    """Return a copy with one column per group, numbered as the groups; none may be empty.

    All groups are merged side by side, so the number of steps is that of the largest group.
    """
    result = Aggregates(capacity=max(len(groups), 1))
    result.open(len(groups), 0.0, Windows())
    deepest = max((group.size for group in groups), default=0)
    for depth in range(deepest):
        into = np.array([i for i, g in enumerate(groups) if g.size > depth], dtype=np.intp)
        columns = np.array([groups[i][depth] for i in into], dtype=np.intp)
        for resource in RESOURCES:
            mine, theirs = result.histograms(resource), aggregates.histograms(resource)
            if depth == 0:
                mine.copy_from(into, theirs, columns)
            else:
                mine.merge(into, theirs, columns)
            result.span(resource).merge(into, aggregates.span(resource), columns)
    return result
