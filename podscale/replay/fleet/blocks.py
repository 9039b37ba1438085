"""Usage in blocks of six hours: the least request that would just not have been exceeded. Pure.

A request is exceeded in a block if usage is above it: once for memory (the kernel kills), for
CPU in more than a share of the samples (it is throttled). Both say the same of one number, the
block's *need*: the request is exceeded if and only if it lies below.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

BLOCK_S = 6 * 3600
DAY_BLOCKS = 86400 // BLOCK_S
THROTTLED = 0.05  # of the samples of a block: from here on a CPU counts as throttled


def needs(steps: Rows, values: Floats, block_steps: int, blocks: int, share: float) -> Floats:
    """Return the need of each block, NaN for one without a sample.

    ``steps`` are numbers of samples on the grid, of all pods and in any order; ``share`` of a
    block's samples may be above a request that is not exceeded: 0 for memory.
    """
    # By value, then by block: narrow integers are sorted by radix, ten times faster than lexsort.
    order = np.argsort(values)
    block = (steps // block_steps).astype(np.int16)[order]
    by_block = np.argsort(block, kind="stable")
    order = order[by_block]
    ends = np.searchsorted(block[by_block], np.arange(blocks + 1))
    counts = np.diff(ends)
    found = np.full(blocks, np.nan)
    known = counts > 0
    # The (floor(share * n) + 1)-th largest: above anything less, more than the share lies.
    above = np.floor(share * counts[known]).astype(np.intp)
    found[known] = values[order][ends[1:][known] - 1 - above]
    return found
