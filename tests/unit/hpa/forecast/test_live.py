"""A forecast at work: what it follows, what it says, and what the daily gate makes of it."""

import math

import numpy as np
import pytest
from msgspec import structs

from hpa.decide.observation import HeldTarget, MetricAnswer, Observation, Past, Scale
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from hpa.forecast import daily
from hpa.forecast.daily import DAY_S, GateQuestion, GateSight
from hpa.forecast.demand import DAY, lags, measured, next_lags
from hpa.forecast.gate import NONE, KnownPast, forecast, slots_ahead
from hpa.forecast.plan import ForecastVerdict, LivedDay, LiveForecast
from hpa.simulate.workload import LoadHistory, Plant, SimulatedWorkload
from podscale.core.metrics import ExternalSample, ExternalSamples, NoData, PodSamples, Sample
from tests.unit.hpa.forecast.demands import DELAY_S, jumps, walk
from tests.unit.hpa.simulate.loads import pods_metric, web

MIDNIGHT_S = 1_700_006_400.0  # of UTC
PLANT = Plant(ready_after_s=(DELAY_S - 15.0,))


def sight(pods: np.ndarray, start_s: float, **question: object) -> GateSight:
    """Return what a gate sees of a demand: the metric of ``web`` at its target."""
    hpa = structs.replace(web(), max_replicas=1000)
    target = (hpa.metrics[0].average_value_milli or 0) / 1000.0
    times = start_s + 60.0 * np.arange(len(pods))
    load = LoadHistory(times, {hpa.metrics[0].name: pods * target}, np.zeros(len(pods), np.bool_))
    return GateSight(GateQuestion(hpa, {}, **question), load, PLANT)  # type: ignore[arg-type]


def test_one_minute_more_comes_to_the_same_as_all_of_them_together() -> None:
    pods = walk(1)
    row = lags(pods[:1])[:, -1].tolist()
    for value in pods[1:]:
        row = next_lags(row, float(value))
    np.testing.assert_allclose(row, lags(pods)[:, -1], rtol=1e-9)


def test_a_day_more_comes_to_the_same_as_all_days_anew() -> None:
    pods = jumps(8)
    (first,) = daily.answers(
        [sight(pods[: 7 * DAY], MIDNIGHT_S)], Settings(), MIDNIGHT_S + 7 * DAY_S
    )
    assert first.verdict.is_taken
    now = MIDNIGHT_S + 8 * DAY_S + 600.0
    later = sight(pods, MIDNIGHT_S, verdict=first.verdict, sums=first.sums)
    (again,) = daily.answers([later], Settings(), now)
    (whole,) = daily.answers([sight(pods, MIDNIGHT_S)], Settings(), now)
    assert again.verdict.candidate == whole.verdict.candidate
    assert again.verdict.days == whole.verdict.days == 7
    assert again.verdict.saved == pytest.approx(whole.verdict.saved, abs=0.02)
    assert again.verdict.at == MIDNIGHT_S + 8 * DAY_S


def test_a_verdict_of_today_stands_and_only_its_plan_is_made() -> None:
    pods = jumps(5)
    now = MIDNIGHT_S + 4 * DAY_S + 3600.0
    said = ForecastVerdict("week", MIDNIGHT_S + 4 * DAY_S, 0.31, 0.04, 4)
    (found,) = daily.answers(
        [sight(pods[: 4 * DAY + 60], MIDNIGHT_S, verdict=said)], Settings(), now
    )
    assert found.verdict == said
    assert found.plan is not None
    assert found.plan.verdict == said
    assert found.plan.at_s == now


@pytest.mark.parametrize("pods", [jumps(2), walk(6)], ids=["two-days", "nothing-tells"])
def test_what_does_not_pay_or_is_too_short_gets_no_forecast(pods: np.ndarray) -> None:
    now = MIDNIGHT_S + len(pods) * 60.0
    (found,) = daily.answers([sight(pods, MIDNIGHT_S)], Settings(), now)
    assert found.verdict.candidate == NONE
    assert found.plan is None


def test_a_history_that_begins_within_a_day_counts_from_the_next_on() -> None:
    pods = jumps(5)
    seen = sight(pods[600:], MIDNIGHT_S + 600 * 60.0)
    (found,) = daily.answers([seen], Settings(), MIDNIGHT_S + 5 * DAY_S)
    assert found.verdict.days == 3


@pytest.mark.parametrize("name", ["day", "level", "holt-winters", "ridge", "mean"])
def test_live_says_what_the_gate_would_have_replayed(name: str) -> None:
    pods, now = jumps(6), MIDNIGHT_S + 5 * DAY_S
    seen = sight(pods[: 5 * DAY], MIDNIGHT_S, verdict=ForecastVerdict(name, now))
    (found,) = daily.answers([seen], Settings(), now)
    plan = found.plan
    assert plan is not None
    live = LiveForecast(plan)
    known = KnownPast.of(pods, slots_ahead(DELAY_S))
    said = []
    for minute in range(5 * DAY, 6 * DAY):
        now = MIDNIGHT_S + 60.0 * minute + 15.0
        told = live.expected(now)
        assert told is not None
        said.append(told.pods)
        live.note(float(pods[minute]), now)
    wanted = forecast(plan.weights, known.rows(slice(5 * DAY, 6 * DAY)))
    # Seasons have three digits; those of the last minutes are of peaks that came after the gate.
    shown = slice(0, -slots_ahead(DELAY_S))
    np.testing.assert_allclose(said[shown], wanted[shown], rtol=3e-3)
    assert told.highest == pytest.approx(pods[: 5 * DAY].max())
    np.testing.assert_allclose(live.lived().pods, pods[5 * DAY : -1], rtol=1e-6)


def test_demand_that_nobody_sees_makes_the_expectation_old() -> None:
    (found,) = daily.answers([sight(jumps(5), MIDNIGHT_S)], Settings(), MIDNIGHT_S + 5 * DAY_S)
    assert found.plan is not None
    live, start_s = LiveForecast(found.plan), MIDNIGHT_S + 5 * DAY_S
    for minute in range(20):
        now = start_s + 60.0 * minute
        told = live.expected(now)
        live.note(10.0 if minute < 5 else np.nan, now)
    assert told is not None
    assert told.at == start_s + 4 * 60.0
    assert live.expected(start_s - 600.0) is None, "the clock was set back"
    assert live.expected(start_s + 3 * DAY_S) is None, "the plan is too old"


def test_a_forecast_that_leaves_more_unserved_with_as_many_pods_is_regretted() -> None:
    hpa = structs.replace(web(), max_replicas=1000)
    pods = jumps(1)
    wasted = np.where(np.arange(DAY) % DAY > 3 * DAY // 4, 40.0, np.nan)  # pods for the night
    early = np.where((np.arange(DAY) % DAY > DAY // 3 - 15), 40.0, np.nan)
    early[3 * DAY // 4 :] = np.nan
    for said, is_regretted in ((wasted, True), (early, False)):
        lived = LivedDay(pods, said, 0.8, DELAY_S)
        question = GateQuestion(hpa, {}, lived=lived)
        assert daily.regrets([question, question], Settings()) == [is_regretted] * 2
    short = LivedDay(pods[:300], wasted[:300], 0.8, DELAY_S)
    assert daily.regrets([GateQuestion(hpa, {}, lived=short)], Settings()) == [False]


QUEUE = {"metric": {"name": "queue"}}
DEMANDING = {
    "pods": pods_metric("50"),
    "utilization": {"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
    "average-of-a-whole": {"type": "External", "external": {
        **QUEUE, "target": {"type": "AverageValue", "averageValue": "50"}}},
    "shared-whole": {"type": "External", "external": {
        **QUEUE, "target": {"type": "Value", "value": "50"}}},
}  # fmt: skip


@pytest.mark.parametrize("kind", DEMANDING)
def test_a_pass_measures_the_demand_that_history_has(kind: str) -> None:
    """Four pods serve a load of twelve targets, two more come up; each of them sees a share."""
    now = MIDNIGHT_S
    plant = Plant(ready_after_s=(60.0,), requests={"app": {"cpu": 100_000}})
    workload = SimulatedWorkload(plant, "web", 4, now)
    workload.resize(6, now)
    load = 600.0 / (4 if kind == "shared-whole" else 1)
    if kind in ("pods", "utilization"):
        samples = workload.samples(load, now, in_columns=kind == "pods")
        answer: MetricAnswer = PodSamples(samples, now)
    else:
        answer = ExternalSamples((ExternalSample({}, Sample(round(load * 1e3), now)),), now)
    seen = Observation(
        web(metrics=[DEMANDING[kind]]), Scale(6, 6, "app=web"), workload.pods(now), (answer,)
    )
    found = measured(decide(seen, Past(), Settings(), now).trace)
    assert found == pytest.approx(12.0)
    failed = structs.replace(seen, answers=(NoData("NoSample", "there is none"),))
    assert math.isnan(measured(decide(failed, Past(), Settings(), now).trace))
    held = structs.replace(seen, held=HeldTarget("AnchorMissing", "there is none"))
    assert math.isnan(measured(decide(held, Past(), Settings(), now).trace))
