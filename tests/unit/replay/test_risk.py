"""The chance that a request is exceeded: what follows from little, and what comes true."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscale.replay.fleet import risk
from podscale.replay.fleet.usage import DAY_BLOCKS, THROTTLED, needs
from tests.calibration import brier, histories, spiegelhalter, verdicts

SEEDS = st.integers(0, 2**32 - 1)
IDENTITY = risk.Calibration()


def noise(seed: int, workloads: int, blocks: int, spread: float = 0.3) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).normal(0.0, spread, (workloads, blocks)))


@given(SEEDS, st.sampled_from([0.0, THROTTLED]), st.integers(1, 4))
def test_a_request_is_exceeded_exactly_where_it_lies_below_the_need(seed, share, pods):
    rng = np.random.default_rng(seed)
    steps = np.tile(np.arange(4 * 12), pods)
    values = np.round(rng.exponential(1.0, steps.size), 1)
    kept = rng.random(steps.size) < 0.7
    found = needs(steps[kept], values[kept], 12, 4, share)
    for block in range(4):
        inside = values[kept & (steps // 12 == block)]
        for request in np.arange(0.0, 5.0, 0.1).round(1):
            is_exceeded = inside.size and (inside > request).sum() > share * inside.size
            assert (found[block] > request) == bool(is_exceeded)


@given(SEEDS)
def test_more_is_never_riskier_and_units_do_not_matter(seed):
    past, requests = noise(seed, 5, 32), np.sort(noise(seed + 1, 5, 9), axis=1)
    past[np.random.default_rng(seed).random(past.shape) < 0.2] = np.nan
    line = risk.Calibration(0.1, 1.2, 0.6)
    found = risk.of_week(past, requests, line)
    for each in (found.chance, found.low, found.high):
        assert (np.diff(each, axis=1) <= 1e-12).all()
        assert ((each >= 0.0) & (each <= 1.0)).all()
    assert (found.low <= found.chance).all()
    assert (found.chance <= found.high).all()
    scaled = risk.of_week(past * 2.0**30, requests * 2.0**30, line)
    np.testing.assert_allclose(scaled.chance, found.chance, atol=1e-9)


def test_less_history_widens_the_interval():
    past = noise(3, 50, 32)
    requests = np.quantile(past, [0.95], axis=1).T
    long = risk.of_week(past, requests, IDENTITY)
    short = risk.of_week(past[:, -6:], requests, IDENTITY)
    assert (short.high - short.low).mean() > 1.3 * (long.high - long.low).mean()


def test_the_time_of_day_counts_where_days_are_alike():
    peaks = np.tile([1.0, 1.0, 10.0, 1.0], (1, 8)) * noise(1, 1, 32, 0.02)
    chance = [float(risk.forecast(peaks, np.array([[5.0]]), each)[0][0, 0]) for each in range(4)]
    assert chance[2] > 0.75
    assert max(chance[0], chance[1], chance[3]) < 0.2


def test_back_tests_correct_a_forecast_that_history_belies():
    # Each day is a quarter above the one before: the past alone says "seldom".
    days = 1.25 ** (np.arange(32) // DAY_BLOCKS)
    growing = days * noise(5, 100, 32, 0.05)
    groups = np.zeros(100, np.intp)
    line, of_group = risk.calibrated(growing, groups, risk.LENGTHS[-1])
    request = np.quantile(growing, [0.95], axis=1).T
    plain = IDENTITY.of(risk.forecast(growing, request, 0)[0]).mean()
    assert line.of(risk.forecast(growing, request, 0)[0]).mean() > 1.5 * plain
    assert of_group[0].backtests > 0


def test_nothing_is_known_without_back_tests():
    line, of_group = risk.calibrated(noise(1, 3, 6), np.zeros(3, np.intp), risk.LENGTHS[-1])
    assert (line, of_group) == (IDENTITY, {})


def test_windows_come_true_as_often_as_stated():
    # Noise that no workload's own past can foretell: two days exceed as often as is said.
    past = noise(11, 400, 40)
    line, _ = risk.calibrated(past[:, :32], np.zeros(400, np.intp), risk.LENGTHS[-1])
    requests = np.quantile(past[:, :32], [0.8, 0.9, 0.95, 0.99], axis=1).T
    spared = sum(
        np.log1p(-line.of(risk.forecast(past[:, :32], requests, each)[0])) for each in range(8)
    )
    stated = 1.0 - np.exp(line.together * spared)
    came = (past[:, 32:, None] > requests[:, None, :]).any(axis=1)
    np.testing.assert_allclose(stated.mean(axis=0), came.mean(axis=0), atol=0.12)


@pytest.mark.parametrize("skip", [0, 4, 12])
def test_what_is_stated_for_production_comes_true(skip):
    found = verdicts(histories(), skip)
    assert len(found.names) >= 30
    score, base, of_quantile = brier(found)
    assert score < of_quantile < base
    assert abs(spiegelhalter(found)) <= 2.6
    assert abs(spiegelhalter(found, by_series=True)) <= 2.6
