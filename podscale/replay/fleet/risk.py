"""How likely a request is to be exceeded, from what was needed block by block. Pure.

Three steps, each small enough to be checked by hand:

1. *Forecast.* What a coming block needs is spread like what past blocks needed: recent ones
   count for more, and where a day looks like the day before, those of the same time of day.
   Each is blurred by as much as the same time of day usually moves from day to day, and a tenth
   of it by a multiple of that: levels jump now and then.
2. *Calibration.* The same forecast is made at earlier times, for what then followed. A logistic
   line through stated and happened corrects it, for each class drawn towards that of all.
3. *A week.* Blocks exceed together. An exponent, from the same back-tests, makes the chance of
   a window from those of its blocks.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.replay.fleet.usage import DAY_BLOCKS, Floats

Groups = NDArray[np.intp]

LENGTHS = (DAY_BLOCKS, 2 * DAY_BLOCKS, 3 * DAY_BLOCKS)  # of history that lines are drawn for
WEEK_DAYS = 7
_HALF_LIFE = 4 * DAY_BLOCKS
_FLOOR = 1e-3  # of the largest need: less is alike
_BLUR, _LEAST_BLUR = 0.22, 0.02  # of the upper quartile of moves; of a need
_JUMP, _LEAST_JUMP, _JUMPS = 1.0, 0.2, 0.1  # the same for jumps, and how many there are
_SHRINK = DAY_BLOCKS  # blocks after which a daily shape is half believed
_WINDOW = 2 * DAY_BLOCKS  # that a back-test looks ahead
_QUANTILES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)  # of past needs: the requests of back-tests
_RIDGE = 100.0  # blocks' worth of belief in the line that a line is drawn towards
_MOST_GROUP = 150  # workloads of a class that back-tests look at
_SURE = 1e-4  # no chance is stated nearer to 0 or 1
_Z90 = 1.645


class Calibration(Struct, frozen=True):
    """A logistic line through stated and happened, and how blocks exceed together."""

    offset: float = 0.0
    slope: float = 1.0
    together: float = 1.0  # 1: blocks exceed independently; 0: all or none
    backtests: int = 0  # blocks that it was drawn through

    def of(self, stated: Floats) -> Floats:
        """Return corrected chances."""
        return _logistic(self.offset + self.slope * _logit(stated))


class WeekRisk(Struct, frozen=True, eq=False):
    """The chance that a request is exceeded within a week, and its 90 % interval."""

    chance: Floats
    low: Floats
    high: Floats


def forecast(past: Floats, requests: Floats, ahead: int) -> tuple[Floats, Floats]:
    """Return the chance that each request is exceeded in one block, and what it rests on.

    ``past`` are needs (workloads, blocks), oldest first, NaN for unknown; ``requests``
    (workloads, requests); ``ahead`` 0 is the block after the last. The first has the shape of
    ``requests``, the second is how many blocks the chance of a workload is worth.
    """
    known = ~np.isnan(past)
    floor = np.maximum(_FLOOR * np.where(known, past, 0.0).max(axis=1), 1e-300)[:, None]
    logs = np.log(np.maximum(past, floor))
    age = past.shape[1] - np.arange(past.shape[1]) + ahead
    recent = np.where(known, 0.5 ** (age / _HALF_LIFE), 0.0)
    alike = recent * (age % DAY_BLOCKS == 0)
    daily = np.where(alike.any(axis=1), _daily(logs), 0.0)[:, None]
    weight = (1.0 - daily) * _shares(recent) + daily * _shares(alike)
    apart = np.log(np.maximum(requests, floor))[:, :, None] - np.where(known, logs, 0.0)[:, None, :]
    moves = _moves(logs)[:, None, None]
    above = (1.0 - _JUMPS) * _logistic(-1.7 * apart / (_BLUR * moves + _LEAST_BLUR))
    above += _JUMPS * _logistic(-1.7 * apart / (_JUMP * moves + _LEAST_JUMP))
    worth = 1.0 / np.maximum((weight**2).sum(axis=1), 1e-12)
    return (weight[:, None, :] * above).sum(axis=2), worth


def calibrated(
    histories: Floats, groups: Groups, length: int
) -> tuple[Calibration, Mapping[int, Calibration]]:
    """Return the line of all workloads and those of each group, for histories of ``length``.

    ``histories`` are needs (workloads, blocks); back-tests stand at each day of them that has
    ``length`` blocks before it, and look two days ahead.
    """
    chosen = np.concatenate([
        np.flatnonzero(groups == group)[:_MOST_GROUP] for group in np.unique(groups)
    ]) if groups.size else groups  # fmt: skip
    tests = list(_backtests(histories[chosen], length))
    if not tests:
        return Calibration(), {}
    # (tests, blocks of the window, workloads, requests)
    stated = np.stack([each[0] for each in tests])
    happened = np.stack([each[1] for each in tests])  # NaN: nobody knows
    whole = _line(stated, happened, Calibration())
    return whole, {
        int(group): _line(stated[:, :, groups[chosen] == group],
                          happened[:, :, groups[chosen] == group], whole)
        for group in np.unique(groups[chosen])
    }  # fmt: skip


def of_week(past: Floats, requests: Floats, line: Calibration) -> WeekRisk:
    """Return the risk of each request (workloads, requests) within the week after ``past``."""
    stated = [forecast(past, requests, ahead) for ahead in range(DAY_BLOCKS)]
    bounds = []
    for z in (0.0, -_Z90, _Z90):
        spared = sum(
            np.log1p(-line.of(_wilson(chance, worth[:, None], z))) for chance, worth in stated
        )
        bounds.append(1.0 - np.exp(line.together * WEEK_DAYS * spared))
    return WeekRisk(*bounds)


def _backtests(histories: Floats, length: int) -> Iterator[tuple[Floats, Floats]]:
    for end in range(length, histories.shape[1] - _WINDOW + 1, DAY_BLOCKS // 2):
        past = histories[:, end - length : end]
        requests = np.stack([_quantile(past, each) for each in _QUANTILES], axis=1)
        stated, happened = [], []
        for ahead in range(_WINDOW):
            then = histories[:, end + ahead, None]
            is_known = ~np.isnan(then) & ~np.isnan(requests)
            stated.append(forecast(past, requests, ahead)[0])
            happened.append(np.where(is_known, then > requests, np.nan))
        yield np.stack(stated), np.stack(happened)


def _line(stated: Floats, happened: Floats, towards: Calibration) -> Calibration:
    known = ~np.isnan(happened) & ~np.isnan(stated)
    if not known.any():
        return towards
    x, y = _logit(stated[known]), happened[known]
    # Requests of one block exceed together: they are one piece of evidence, not many.
    evidence = 1.0 / stated.shape[-1]
    offset, slope = towards.offset, towards.slope
    for _ in range(25):  # Newton's steps; a ridge keeps them short
        chance = _logistic(offset + slope * x)
        spread = evidence * chance * (1.0 - chance)
        missed = evidence * (y - chance)
        gradient = np.array([missed.sum() - _RIDGE * (offset - towards.offset),
                             missed @ x - _RIDGE * (slope - towards.slope)])  # fmt: skip
        bend = np.array([[spread.sum() + _RIDGE, spread @ x], [spread @ x, spread @ x**2 + _RIDGE]])
        step = np.linalg.solve(bend, gradient)
        offset, slope = offset + float(step[0]), max(0.05, slope + float(step[1]))
        if np.abs(step).max() < 1e-6:
            break
    line = Calibration(offset, slope)
    whole = known.all(axis=1)  # windows of which every block is known
    if not whole.any():
        return Calibration(offset, slope, towards.together, int(known.sum()))
    missed = np.log1p(-line.of(np.where(np.isnan(stated), 0.5, stated))).sum(axis=1)[whole]
    some = (np.nan_to_num(happened).max(axis=1)[whole]).mean()
    together = 0.02
    for _ in range(30):  # Newton's steps, from below: the mean is concave
        spared = np.exp(together * missed)
        step = (some - 1.0 + spared.mean()) / max(-(missed * spared).mean(), 1e-12)
        together = min(max(together + step, 0.02), 1.0)
        if step < 1e-9 or together == 1.0:
            break
    return Calibration(offset, slope, together, int(known.sum()))


def _daily(logs: Floats) -> Floats:
    # The share of the spread that the time of day explains, less where days are few.
    count = (~np.isnan(logs)).sum(axis=1)
    within = [_variance(logs[:, each::DAY_BLOCKS]) for each in range(DAY_BLOCKS)]
    explained = 1.0 - np.mean(within, axis=0) / np.maximum(_variance(logs), 1e-12)
    found: Floats = np.clip(explained, 0.0, 1.0) * np.where(
        count >= 2 * DAY_BLOCKS, count / (count + _SHRINK), 0.0
    )
    return found


def _moves(logs: Floats) -> Floats:
    # How much the same time of day moves from day to day; of a lone day, block by block.
    apart = DAY_BLOCKS if logs.shape[1] > DAY_BLOCKS else 1
    return np.nan_to_num(_quantile(np.abs(logs[:, apart:] - logs[:, :-apart]), 0.75))


def _wilson(chance: Floats, count: Floats, z: float) -> Floats:
    # One end of Wilson's interval of a share of ``count`` trials.
    middle = chance + z * z / (2.0 * count)
    spread = np.sqrt(chance * (1.0 - chance) / count + (z / (2.0 * count)) ** 2)
    found: Floats = np.clip((middle + z * spread) / (1.0 + z * z / count), 0.0, 1.0)
    return found


def _shares(weights: Floats) -> Floats:
    found: Floats = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
    return found


def _quantile(values: Floats, quantile: float) -> Floats:
    # By row, the next larger one of those that are known; NaN without any. (np.nanquantile
    # goes row by row in Python.)
    ordered = np.sort(values, axis=1)  # NaN last
    count = (~np.isnan(values)).sum(axis=1)
    place = np.ceil(quantile * np.maximum(count - 1, 0)).astype(np.intp)
    found: Floats = ordered[np.arange(len(values)), place] if values.shape[1] else count * np.nan
    return found


def _variance(values: Floats) -> Floats:
    # By row, of those that are known; 0 without any.
    known = ~np.isnan(values)
    count = np.maximum(known.sum(axis=1), 1)
    mean = np.where(known, values, 0.0).sum(axis=1) / count
    found: Floats = (np.where(known, values - mean[:, None], 0.0) ** 2).sum(axis=1) / count
    return found


def _logit(chance: Floats) -> Floats:
    sure = np.clip(chance, _SURE, 1.0 - _SURE)
    found: Floats = np.log(sure / (1.0 - sure))
    return found


def _logistic(x: Floats) -> Floats:
    found: Floats = 1.0 / (1.0 + np.exp(-np.clip(x, -50.0, 50.0)))
    return found
