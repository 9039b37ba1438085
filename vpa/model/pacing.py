"""Which of many writes that have time to go first, so that no pass has to do them all.

What was written together grows old together. Each pass takes the oldest, as few as possible
with nothing late: as many as grow old in a pass on average, more only where that is too few.
"""

import numpy as np
from numpy.typing import NDArray


def share(size: int, age_s: float, interval_s: float) -> int:
    """Return how many of ``size`` objects grow old in a pass on average."""
    return size if age_s <= interval_s else int(np.ceil(size * interval_s / age_s))


def paced(
    ages: NDArray[np.float64], size: int, age_s: float, interval_s: float
) -> NDArray[np.intp]:
    """Return which to write now, oldest first; ``ages`` are those of some among ``size``.

    Nothing is written later than in the first pass in which it is ``age_s`` old, as long as
    no more than ``share`` per pass become worth writing meanwhile.
    """
    oldest = np.argsort(-ages, kind="stable")
    left_s = np.maximum(age_s - ages[oldest], 0.0)
    passes = np.ceil(left_s / interval_s)  # that may still go by
    behind = np.arange(1, ages.size + 1) - passes * share(size, age_s, interval_s)
    return oldest[: int(max(behind.max(initial=0.0), 0.0))]
