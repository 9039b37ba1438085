"""SPEC-RG's measures, by hand."""

import numpy as np
import pytest

from hpa.decide.settings import Settings
from hpa.simulate.loop import NeededPods, capacity_of, judge, measure, needed, oracle
from hpa.simulate.workload import LoadHistory, Plant
from tests.unit.hpa.decide.handwritten import hpa, resource
from tests.unit.hpa.simulate.loads import load, simulated, web


def need(*pods: int, known: list[bool] | None = None) -> NeededPods:
    times = 60.0 * np.arange(len(pods), dtype=np.float64)
    return NeededPods(times, np.array(pods), np.array(known or [True] * len(pods)))


def over(pods: NeededPods, *sizes: int):
    s = np.array(sizes)
    return measure(pods, s, s, np.zeros(len(sizes), np.bool_))


def test_the_measures_of_one_short_run():
    found = over(need(2, 4, 4, 2), 2, 2, 4, 4)
    assert found.pod_hours == pytest.approx(12 / 60)
    assert found.unserved == pytest.approx(2 / 12)
    assert found.under_accuracy == pytest.approx(0.5 / 4)
    assert found.over_accuracy == pytest.approx(1.0 / 4)
    assert (found.under_time, found.over_time) == (0.25, 0.25)
    # d moves up, stays, moves down; s stays, moves up, stays: never together
    assert found.instability == 1.0
    assert found.longest_lag_s == 60.0
    assert found.largest == 4
    assert found.rescales_a_day == pytest.approx(86400 / 240)


def test_reversals_are_rescales_back():
    found = over(need(*[1] * 6), 1, 2, 1, 1, 3, 4)
    assert found.rescales_a_day / found.reversals_a_day == pytest.approx(4 / 2)


def test_what_is_not_known_counts_in_no_sum():
    found = over(need(2, 9, 2, known=[True, False, True]), 2, 1, 2)
    assert found.unserved == 0.0
    assert found.pod_hours == pytest.approx(4 / 60)
    assert found.longest_lag_s == 0.0


def test_the_oracle_serves_everything_with_the_least():
    best = oracle(need(1, 5, 3, 2))
    assert (best.unserved, best.under_time, best.over_time, best.instability) == (0, 0, 0, 0)
    assert best.pod_hours == pytest.approx(11 / 60)


def test_needed_pods_are_the_fewest_and_of_the_metric_that_needs_most():
    values = load([100.0, 101.0, 0.0])
    both = LoadHistory(
        values.time_s, {**values.columns, "queue": np.array([1.0, 1.0, 30.0])}, values.hidden
    )
    assert needed(both, {"http_requests": 50.0}, 15.0).pods.tolist() == [2, 3, 0]
    assert needed(both, {"http_requests": 50.0, "queue": 10.0}, 15.0).pods.tolist() == [2, 3, 3]


def test_hidden_and_unknown_times_are_known_as_such():
    values = load([100.0, float("nan"), 100.0, 100.0])
    hidden = np.array([False, False, True, False])
    found = needed(
        LoadHistory(values.time_s, values.columns, hidden), {"http_requests": 50.0}, 15.0
    )
    assert found.is_known.tolist() == [True, False, False, True]
    assert found.left_out == 0.5


def test_a_pod_serves_its_request_or_its_target_with_headroom():
    of_cpu = hpa({"metrics": [resource(type="Utilization", averageUtilization=50)]})
    plant = Plant(requests={"app": {"cpu": 300}, "side": {"cpu": 200}})
    assert capacity_of(of_cpu.metrics[0], plant) == (0.5, "its request")
    assert capacity_of(web("40").metrics[0], plant) == (50.0, "target / 0.8")


def test_time_over_target_is_that_of_ready_pods():
    spec = web("50", maxReplicas=2)
    values = load([100.0] * 4 + [150.0] * 4)
    run = simulated(spec, values, Plant(), Settings(), 2)
    found = judge(run, spec, values, Plant(), needed(values, {"http_requests": 62.5}, 15.0))
    assert found.over_target_s == 60.0
