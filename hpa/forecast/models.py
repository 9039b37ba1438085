"""The candidates: what each makes of the features. A candidate is one weight for each of them.

Seasonal ones take one feature as it is; ridge weighs all of them, so that demand lies above the
forecast in a given share of the training days (an expectile: Newey and Powell, 1987).
"""

import numpy as np
from msgspec import Struct

from hpa.forecast.demand import DAY, FEATURES
from hpa.simulate.load import Floats

NONE = "none"
# Holt-Winters without a trend of its own: the smoothed level, and the season's peak from there.
SEASONAL = {"day": "day", "week": "week", "level": "level", "holt-winters": "trend"}
RIDGES = {"ridge": 0.5, "ridge 0.8": 0.8, "ridge 0.95": 0.95}
_SHRINK = 1e-3  # of the mean of the diagonal
_ROUNDS = 6
_EVERY = 5  # minutes between two rows that are learnt from


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
    if not wanted:
        return found
    rows, peak = rows[::_EVERY], peak[::_EVERY]
    known = ~np.isnan(rows).any(axis=1) & ~np.isnan(peak)
    if known.sum() >= DAY // _EVERY:
        for name, above in wanted.items():
            found.append(Weights(name, _ridge(rows[known], peak[known], above)))
    return found


def _ridge(rows: Floats, peak: Floats, above: float) -> tuple[float, ...]:
    size = np.sqrt((rows**2).mean(axis=0)) + 1e-9
    scaled = rows / size
    weight = np.ones(len(peak))
    answer = np.zeros(rows.shape[1])
    for _ in range(_ROUNDS if above != 0.5 else 1):
        weighted = scaled * weight[:, None]
        square = scaled.T @ weighted
        shrink = _SHRINK * np.trace(square) / len(square)
        answer = np.linalg.solve(square + shrink * np.eye(len(square)), weighted.T @ peak)
        weight = np.where(peak > scaled @ answer, above, 1.0 - above)
    return tuple((answer / size).tolist())
