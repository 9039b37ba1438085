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
