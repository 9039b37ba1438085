"""The candidates: what each makes of the features. A candidate is one weight for each of them.

Seasonal ones take one feature as it is; ridge weighs all of them, so that demand rarely lies above
the forecast in the training days (an expectile: Newey and Powell, 1987).
"""

import numpy as np
from msgspec import Struct

from hpa.forecast.demand import DAY, FEATURES
from hpa.simulate.load import Floats

NONE = "none"
# Holt-Winters without a trend of its own: the smoothed level, and the season's peak from there.
SEASONAL = {"day": "day", "week": "week", "level": "level", "holt-winters": "trend"}
RIDGE = "ridge"
_ABOVE = 0.95  # the weight of peaks above ridge; those below weigh the rest of 1
_SHRINK = 1e-3  # of the mean of the diagonal
_ROUNDS = 5
LEARNT_EVERY = 5  # minutes between two rows that are learnt from


class Weights(Struct, frozen=True):
    """One candidate; the forecast is the sum of its weights times the features, in pods."""

    name: str
    values: tuple[float, ...]

    def forecast(self, rows: Floats) -> Floats:
        """Return the forecast of each row; NaN where a feature is not known that counts."""
        used = [place for place, value in enumerate(self.values) if value]
        found: Floats = rows[:, used] @ np.array(self.values)[used]
        return found


def candidates(rows: Floats, peak: Floats, only: str | None = None) -> list[Weights]:
    """Return every candidate, or the one that is called ``only``; ridge learns from ``rows`` and
    the peaks that came after them."""
    found = [
        Weights(name, tuple(float(each == feature) for each in FEATURES))
        for name, feature in SEASONAL.items()
        if only in (None, name)
    ]
    if only in (None, RIDGE):
        known = ~np.isnan(rows).any(axis=1) & ~np.isnan(peak)
        if known.sum() >= DAY // LEARNT_EVERY:
            found.append(Weights(RIDGE, _ridge(rows[known], peak[known])))
    return found


def _ridge(rows: Floats, peak: Floats) -> tuple[float, ...]:
    size = np.sqrt((rows**2).mean(axis=0)) + 1e-9
    scaled = rows / size
    low, more = 1.0 - _ABOVE, 2.0 * _ABOVE - 1.0
    squares, products = scaled.T @ scaled, scaled.T @ peak
    answer = _solved(squares, products)
    for _ in range(_ROUNDS):
        is_above = peak > scaled @ answer
        part = scaled[is_above]
        answer = _solved(
            low * squares + more * (part.T @ part),
            low * products + more * (part.T @ peak[is_above]),
        )
    return tuple((answer / size).tolist())


def _solved(squares: Floats, products: Floats) -> Floats:
    shrink = _SHRINK * np.trace(squares) / len(squares)
    answer: Floats = np.linalg.solve(squares + shrink * np.eye(len(squares)), products)
    return answer
