"""One histogram: a column of the matrix, for tests that think of a single one."""

from dataclasses import dataclass

import numpy as np

from vpa.model.histograms.buckets import BucketLayout, LayoutError
from vpa.model.histograms.matrix import ZERO_TIME, Columns, Floats, HistogramMatrix
from vpa.model.samples.checkpoints import HistogramCheckpoint, load_histogram, save_histograms


@dataclass(frozen=True)
class LinearLayout(BucketLayout):
    """Buckets of one width: upstream's library has them, its recommender does not use them."""

    def find(self, values: Floats) -> Columns:
        return np.clip(np.floor(values / self.first), 0, self.count - 1).astype(np.intp)


def linear(*, width: float, maximum: float, epsilon: float) -> LinearLayout:
    if width <= 0.0 or maximum <= 0.0 or epsilon <= 0.0:
        raise LayoutError("a linear layout needs width, maximum and epsilon > 0")
    count = int(np.ceil(maximum / width)) + 1
    starts = np.arange(count) * width
    ends = np.append(starts[1:], starts[-1])
    return LinearLayout(width, 1.0, count, epsilon, starts, ends)


class Histogram:
    """A thin view of one column; all arithmetic is the matrix's."""

    def __init__(self, matrix: HistogramMatrix, column: int) -> None:
        self.matrix = matrix
        self.columns = np.array([column], dtype=np.intp)

    @classmethod
    def alone(cls, layout: BucketLayout, half_life_s: float | None) -> "Histogram":
        """Return an empty histogram in a matrix of its own."""
        matrix = HistogramMatrix(layout, half_life_s, capacity=1)
        return cls(matrix, int(matrix.allocate()[0]))

    @property
    def is_empty(self) -> bool:
        return bool(self.matrix.is_empty(self.columns)[0])

    def add(self, value: float, weight: float, time_s: float = ZERO_TIME) -> None:
        """Add one sample; ``value`` in cores or bytes."""
        self.matrix.add(self.columns, np.array([value]), weight, np.array([time_s]))

    def subtract(self, value: float, weight: float, time_s: float = ZERO_TIME) -> None:
        """Take back one sample."""
        self.matrix.subtract(self.columns, np.array([value]), weight, np.array([time_s]))

    def merge(self, other: "Histogram") -> None:
        """Add the samples of ``other``, which does not change."""
        self.matrix.merge(self.columns, other.matrix, other.columns)

    def percentile(self, fraction: float) -> float:
        """Return the end of the bucket where ``fraction`` of the weight is reached; 0 if empty."""
        return float(self.matrix.percentiles((fraction,), self.columns)[0, 0])

    def save(self) -> HistogramCheckpoint:
        """Return the checkpoint."""
        return save_histograms(self.matrix, self.columns)[0]

    def load(self, checkpoint: HistogramCheckpoint) -> None:
        """Add the samples of a checkpoint; raises CheckpointError and changes nothing."""
        load_histogram(self.matrix, int(self.columns[0]), checkpoint)
