"""The candidates: what each makes of the features. A candidate is one weight for each of them.

Seasonal ones take one feature as it is; ridge weighs all of them, so that demand lies above the
forecast in a given share of the training days (an expectile: Newey and Powell, 1987).
"""

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from hpa.forecast.demand import DAY, FEATURES
from hpa.simulate.load import Floats

NONE = "none"
# Holt-Winters without a trend of its own: the smoothed level, and the season's peak from there.
SEASONAL = {"day": "day", "week": "week", "level": "level", "holt-winters": "trend"}
RIDGES = {"ridge": 0.5, "ridge 0.8": 0.8, "ridge 0.95": 0.95}
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
    wanted = {name: above for name, above in RIDGES.items() if only in (None, name)}
    if wanted:
        known = ~np.isnan(rows).any(axis=1) & ~np.isnan(peak)
        if known.sum() >= DAY // LEARNT_EVERY:
            found += _ridges(rows[known], peak[known], wanted)
    return found


def _ridges(rows: Floats, peak: Floats, wanted: Mapping[str, float]) -> Iterator[Weights]:
    size = np.sqrt((rows**2).mean(axis=0)) + 1e-9
    scaled = rows / size
    squares, products = scaled.T @ scaled, scaled.T @ peak
    mean = _solved(squares, products)
    for name, above in wanted.items():
        answer, low = mean, 1.0 - above
        for _ in range(_ROUNDS if above != low else 0):
            # Peaks that the last answer lies below weigh ``above``, the others the rest of 1.
            is_below = peak > scaled @ answer
            part = scaled[is_below]
            answer = _solved(
                low * squares + (above - low) * (part.T @ part),
                low * products + (above - low) * (part.T @ peak[is_below]),
            )
        yield Weights(name, tuple((answer / size).tolist()))


def _solved(squares: Floats, products: Floats) -> Floats:
    shrink = _SHRINK * np.trace(squares) / len(squares)
    answer: Floats = np.linalg.solve(squares + shrink * np.eye(len(squares)), products)
    return answer
