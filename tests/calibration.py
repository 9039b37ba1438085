"""How well stated chances are kept: the traces of production, their last two days, and the sums.

A trace stands for both resources: as CPU by its mean of each five minutes, as memory by its peak.
"""

import csv
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from podscale.replay.fleet import risk
from podscale.replay.fleet.usage import BLOCK_S, THROTTLED, Floats, needs
from tests.kit import traces

STEP_S, DAYS, TEST_BLOCKS = 300, 8, 8
QUANTILES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
FEWEST = 30  # blocks of a bin
_STEPS = BLOCK_S // STEP_S


class Verdicts(NamedTuple):
    """Chances and what happened, (series and resource, block, quantile), and whose they are."""

    names: Sequence[str]
    stated: Floats
    happened: Floats


class Bin(NamedTuple):
    """Blocks of about the same chance."""

    stated: float
    happened: float
    blocks: int


def read(file: Path) -> tuple[np.ndarray, Floats]:
    """Return the numbers of the five minutes of a trace's samples, and the samples."""
    times, values = [], []
    for at, value in list(csv.reader(traces.text(file).splitlines()))[1:]:
        try:
            times.append(float(at))
        except ValueError:
            times.append(datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp())
        values.append(float(value))
    at_s = np.array(times)
    return ((at_s - at_s.min()) // STEP_S).astype(np.intp), np.array(values)


def histories() -> dict[str, tuple[np.ndarray, Floats]]:
    """Return each trace and resource by name: steps and values."""
    found = {}
    for file in [*traces.files("crane"), *traces.files("nab")]:
        steps, values = read(file)
        grid, counts = np.unique(steps, return_counts=True)
        begins = np.cumsum(counts) - counts
        order = np.argsort(steps, kind="stable")
        name = traces.name(file)
        found[f"{name} cpu"] = grid, np.add.reduceat(values[order], begins) / counts
        found[f"{name} memory"] = grid, np.maximum.reduceat(values[order], begins)
    return found


def verdicts(series: dict[str, tuple[np.ndarray, Floats]], skip: int = 0) -> Verdicts:
    """Return what was stated for the last two days and came; ``skip`` blocks are left out."""
    pasts, requests, then, names = [], [], [], []
    blocks = DAYS * risk.DAY_BLOCKS
    for name, (steps, values) in series.items():
        end = (int(steps.max()) + 1) // _STEPS * _STEPS - skip * _STEPS
        begin = end - (blocks + TEST_BLOCKS) * _STEPS
        inside = (steps >= begin) & (steps < end)
        share = THROTTLED if name.endswith("cpu") else 0.0
        found = needs(steps[inside] - begin, values[inside], _STEPS, blocks + TEST_BLOCKS, share)
        if np.isnan(found).mean() > 0.5:
            continue
        names.append(name)
        pasts.append(found[:blocks])
        then.append(found[blocks:])
        known = values[inside & (steps < end - TEST_BLOCKS * _STEPS)]
        requests.append(np.quantile(known, QUANTILES, method="higher"))
    past, asked = np.array(pasts), np.array(requests)
    line, _ = risk.calibrated(past, np.zeros(len(past), np.intp), risk.LENGTHS[-1])
    stated = [line.of(risk.forecast(past, asked, ahead)[0]) for ahead in range(TEST_BLOCKS)]
    happened = (np.array(then)[:, :, None] > asked[:, None, :]).astype(float)
    return Verdicts(names, np.stack(stated, axis=1), happened)


def spiegelhalter(found: Verdicts, *, by_series: bool = False, rounds: int = 1000) -> float:
    """Return Spiegelhalter's z, its spread by a bootstrap over blocks of six hours.

    A block of a series is drawn with all its quantiles and both resources, which are the same
    hours; ``by_series`` draws whole series instead.
    """
    score = ((found.happened - found.stated) * (1.0 - 2.0 * found.stated)).sum(axis=2)
    series = np.unique([name.rpartition(" ")[0] for name in found.names], return_inverse=True)[1]
    total = np.zeros((series.max() + 1, score.shape[1]))
    np.add.at(total, series, score)
    pieces = total.sum(axis=1) if by_series else total.ravel()
    drawn = np.random.default_rng(1).integers(0, len(pieces), (rounds, len(pieces)))
    return float(pieces.sum() / pieces[drawn].sum(axis=1).std())


def brier(found: Verdicts) -> tuple[float, float, float]:
    """Return the Brier score, that of the base rate, and that of each quantile's base rate."""
    happened = found.happened
    each = happened.mean(axis=(0, 1))
    whole = float(happened.mean())
    score = float(((found.stated - happened) ** 2).mean())
    return score, whole * (1.0 - whole), float((each * (1.0 - each)).mean())


def bins(found: Verdicts) -> list[Bin]:
    """Return tenths of the chance; one with fewer than 30 blocks joins the next."""
    place = np.minimum((found.stated * 10).astype(int), 9).ravel()
    stated, happened = found.stated.ravel(), found.happened.ravel()
    made: list[np.ndarray] = []
    for number in range(10):
        rows = np.flatnonzero(place == number)
        if made and len(made[-1]) < FEWEST:
            made[-1] = np.concatenate([made[-1], rows])
        else:
            made.append(rows)
    if len(made) > 1 and len(made[-1]) < FEWEST:
        last = made.pop()
        made[-1] = np.concatenate([made[-1], last])
    return [Bin(float(stated[r].mean()), float(happened[r].mean()), len(r)) for r in made if len(r)]
