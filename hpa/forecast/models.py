"""The candidates: what each makes of the features. A candidate is one weight for each of them.

Seasonal ones take one feature as it is; ridge weighs all of them, so that demand rarely lies above
the forecast in the training days (an expectile: Newey and Powell, 1987). Each errs in its own
way, so that their mean often errs less (Bates and Granger, 1969).
"""

import numpy as np

from hpa.forecast.demand import DAY, FEATURES
from hpa.simulate.load import Floats

NONE = "none"
# Holt-Winters without a trend of its own: the smoothed level, and the season's peak from there.
_FEATURE_OF = {"day": "day", "week": "week", "level": "level", "holt-winters": "trend"}
SEASONAL = {name: np.array([float(each == feature) for each in FEATURES])
            for name, feature in _FEATURE_OF.items()}  # fmt: skip
_RIDGE, _MEAN = "ridge", "mean"
CANDIDATES = (NONE, *SEASONAL, _RIDGE, _MEAN)  # in the order of a gate's columns
_ABOVE = 0.95  # the weight of peaks above ridge; those below weigh the rest of 1
_SHRINK = 1e-3  # of the mean of the diagonal
_ROUNDS = 5
LEARNT_EVERY = 5  # minutes between two rows that are learnt from


def learnt(rows: Floats, peak: Floats) -> dict[str, Floats]:
    """Return what each candidate weighs each feature by; ridge learns it from ``rows``, one for
    each feature, and the peaks that came after them, and is missing where they are too few."""
    found = dict(SEASONAL)
    known = ~np.isnan(rows).any(axis=0) & ~np.isnan(peak)
    if known.sum() >= DAY // LEARNT_EVERY:
        found[_RIDGE] = _ridge(rows[:, known], peak[known])
    found[_MEAN] = np.mean(list(found.values()), axis=0)
    return found


def forecast(weights: Floats, rows: Floats) -> Floats:
    """Return the forecast of each minute, in pods; NaN where a feature is not known that counts."""
    used = np.flatnonzero(weights)
    found: Floats = weights[used] @ rows[used]
    return found


def _ridge(rows: Floats, peak: Floats) -> Floats:
    size = np.sqrt((rows**2).mean(axis=1)) + 1e-9
    scaled = rows / size[:, None]
    low, more = 1.0 - _ABOVE, 2.0 * _ABOVE - 1.0
    squares, products = scaled @ scaled.T, scaled @ peak
    answer = _solved(squares, products)
    for _ in range(_ROUNDS):
        is_above = peak > answer @ scaled
        part = scaled[:, is_above]
        answer = _solved(
            low * squares + more * (part @ part.T),
            low * products + more * (part @ peak[is_above]),
        )
    weights: Floats = answer / size
    return weights


def _solved(squares: Floats, products: Floats) -> Floats:
    shrink = _SHRINK * np.trace(squares) / len(squares)
    answer: Floats = np.linalg.solve(squares + shrink * np.eye(len(squares)), products)
    return answer
