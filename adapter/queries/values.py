"""From Prometheus's floats to the milli-units of the metrics APIs.

NaN, ±Inf and what does not fit are no values: upstream serves them as 0 or as
-9223372036854775808m, and autoscalers believed it (adapter.md 3.4 and 12).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_LIMIT = float(2**63)


def milli(value: float) -> int | None:
    """Return ``value`` in thousandths, truncated towards zero; ``None``: not a number.

    The product is taken in float64 as upstream does: 1.005 is 1004, 1.001 is 1000.
    """
    product = value * 1000.0
    # False for NaN as well.
    return int(product) if -_LIMIT < product < _LIMIT else None


def all_milli(samples: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Return ``milli`` of every value; ``None``: one of them is no number."""
    with np.errstate(over="ignore", invalid="ignore"):
        products = samples * 1000.0
        # False for NaN as well.
        if len(products) and not np.abs(products).max() < _LIMIT:
            return None
    return products.astype(np.int64)


def fitting(samples: NDArray[np.float64]) -> Sequence[int]:
    """Return the places of the values for which ``milli`` returns a number."""
    with np.errstate(over="ignore", invalid="ignore"):
        fits = np.abs(samples * 1000.0) < _LIMIT
    # 100,000 integers would take the loop 2 ms, and nearly always it is all of them.
    if fits.all():
        return range(len(samples))
    found: list[int] = np.flatnonzero(fits).tolist()
    return found


def usage_milli(value: float) -> int | None:
    """Return a usage in thousandths; a negative one is no measurement either."""
    found = milli(value)
    return None if found is None or found < 0 else found
