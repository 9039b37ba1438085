"""A forecast has to earn its place, and loses it."""

import numpy as np
import pytest

from hpa.decide.settings import Settings
from hpa.forecast.daily import delay_of
from hpa.forecast.demand import DAY
from hpa.forecast.gate import (
    CANDIDATES,
    NONE,
    DaySums,
    KnownPast,
    LoopRules,
    forecast,
    learnt,
    run,
    verdict,
)
from hpa.simulate.workload import Plant
from tests.unit.hpa.forecast.demands import AHEAD, DELAY_S, judged, jumps, walk
from tests.unit.hpa.simulate.loads import load, simulated, web


def test_a_daily_jump_is_forecast() -> None:
    found = judged(jumps(6), 5)
    assert found.taken is not None
    assert found.taken.saved > 0.5
    assert found.taken.more < 0.2
    assert found.rows[0].name == NONE
    assert found.candidate == found.taken.name


def test_a_random_walk_is_not_forecast() -> None:
    found = judged(walk(6), 5)
    assert found.candidate == NONE
    assert found.taken is None


def test_too_few_days_take_nothing() -> None:
    assert judged(jumps(2), 1).candidate == NONE


def test_a_last_day_that_was_worse_ends_it() -> None:
    pods = jumps(9)
    assert judged(pods, 8).candidate in ("day", "week")
    # On the last day there is load when nobody expects it, and none when everybody does.
    minutes = np.arange(DAY)
    is_burst = (minutes % 120 > 20) & (minutes % 120 < 60) & (minutes < DAY // 3)
    pods[-DAY:] = np.where(is_burst, 38.0, 10.0)
    found = judged(pods, 8)
    assert found.candidate not in ("day", "week")
    week = next(row for row in found.rows if row.name == "week")
    assert week.saved > 0.3, "it is the last day alone that ends it"


@pytest.mark.parametrize(("lacking", "alone", "is_taken"), [
    pytest.param([50] * 8, [100] * 8, True, id="half-of-it-each-day"),
    pytest.param([70] * 8, [100] * 8, False, id="too-little"),
    pytest.param([100] * 7 + [50], [100] * 7 + [900], False, id="one-surge"),
    pytest.param([50] * 6 + [160, 150], [100] * 6 + [900, 150], True, id="a-last-day-as-bad"),
    pytest.param([110] * 4 + [50] * 4, [100] * 4 + [900] * 4, False, id="a-half-was-worse"),
    pytest.param([100] * 4 + [50] * 4, [100] * 4 + [900] * 4, True, id="a-half-was-as-good"),
])  # fmt: skip
def test_what_is_saved_has_to_be_saved_on_more_than_one_day(
    lacking: list[int], alone: list[int], is_taken: bool
) -> None:
    # The metrics alone, the candidates of which one is any good, eight lower targets.
    days, lanes = len(alone), len(CANDIDATES) + 8
    left = np.repeat(np.array(alone, float)[:, None], lanes, axis=1)
    left[:, CANDIDATES.index("day")] = lacking
    sizes = np.tile(
        np.r_[1000.0, [1100.0] * (len(CANDIDATES) - 1), 1200.0 + 200.0 * np.arange(8)], (days, 1)
    )
    found = verdict(DaySums(sizes, left, np.full(days, 1000.0)))
    assert (found.candidate == "day") is is_taken


def test_no_forecast_knows_what_comes() -> None:
    pods = jumps(4)
    changed = pods.copy()
    changed[3 * DAY + 700 :] *= 5.0
    one, other = (KnownPast.of(each, AHEAD).forecasts(1, 4) for each in (pods, changed))
    np.testing.assert_array_equal(one[: 2 * DAY + 700], other[: 2 * DAY + 700])
    assert not np.array_equal(one[2 * DAY + 701 :], other[2 * DAY + 701 :])


def test_the_mean_is_of_all_other_candidates() -> None:
    known = KnownPast.of(jumps(4), AHEAD)
    rows = known.rows(slice(3 * DAY, 4 * DAY))
    said = {name: forecast(weights, rows) for name, weights in learnt(*known.seen(3 * DAY)).items()}
    assert [NONE, *said] == list(CANDIDATES)
    mean = said.pop("mean")
    np.testing.assert_allclose(mean, np.mean(list(said.values()), axis=0))


def test_pods_of_lanes_serve_as_soon_as_those_of_the_loop() -> None:
    plants = (Plant(ready_after_s=(each,), metric_age_s=15.0) for each in (60.0, 180.0, 600.0))
    delays = [LoopRules.of(web(), Settings(), delay_of(each)).delay for each in plants]
    assert delays == [1, 3, 10]


@pytest.mark.parametrize("spec", [
    {},
    {"behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 120}]}}},
    {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 60, "policies": [
        {"type": "Percent", "value": 10, "periodSeconds": 60}]}}},
    {"behavior": {"scaleUp": {"stabilizationWindowSeconds": 180}}},
    {"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}},
], ids=["plain", "few-up", "few-down", "up-window", "never-down"])  # fmt: skip
def test_lanes_come_to_what_the_loop_itself_comes_to(spec: dict[str, object]) -> None:
    pods = jumps(2) + 4.0 * np.sin(np.arange(2 * DAY) / 90.0)
    hpa = web("50", maxReplicas=60, **spec)
    plant = Plant(ready_after_s=(DELAY_S,), metric_age_s=0.0)
    plain = simulated(
        hpa, load((50.0 * pods).tolist(), 60.0), plant, Settings(), int(np.ceil(pods[0]))
    )
    rules = LoopRules.of(hpa, Settings(), DELAY_S)
    sizes, ready = run(
        rules, pods[:, None], np.full((len(pods), 1), np.nan), np.ones(1), np.full(1, 60.0)
    )
    exact = plain.replicas[3::4][: len(pods)]
    assert abs(sizes[:, 0].sum() / exact.sum() - 1.0) < 0.02
    lacking = np.maximum(pods - ready[:, 0], 0).sum() / pods.sum()
    missing = np.maximum(pods - plain.ready[3::4][: len(pods)], 0).sum() / pods.sum()
    assert abs(lacking - missing) < 0.003
