"""The closed loop, against sizes that can be worked out by hand."""

import pytest

from hpa.decide.settings import Settings
from hpa.simulate.workload import Plant, SimulatedWorkload
from tests.unit.hpa.decide.handwritten import hpa, resource
from tests.unit.hpa.simulate.loads import load, simulated, web

PLANT = Plant(ready_after_s=(60.0,), metric_age_s=15.0)
SETTINGS = Settings()


def test_a_load_that_stays_leaves_the_size_alone():
    run = simulated(web(), load([200.0] * 40), PLANT, SETTINGS, 4)
    assert set(run.replicas.tolist()) == {4}
    assert set(run.ready.tolist()) == {4}


def test_a_step_is_seen_one_age_later_and_served_once_pods_are_ready():
    run = simulated(web(), load([200.0] * 4 + [400.0] * 40), PLANT, SETTINGS, 4)
    grown = run.replicas.tolist().index(8)
    assert grown == 5  # the step is in row 4, and metrics are one row old
    assert run.ready.tolist().index(8) == grown + 4  # a minute
    assert run.replicas.max() == 8  # pods that are not ready yet do not ask for more


def test_a_falling_load_waits_for_the_window():
    run = simulated(web(), load([400.0] * 4 + [100.0] * 60), PLANT, SETTINGS, 8)
    lowered = run.replicas.tolist().index(2)
    # 300 s after the last recommendation of 8, in row 4
    assert (lowered - 4) * 15.0 == pytest.approx(300.0, abs=15.0)


def test_no_sample_is_not_zero():
    nan = float("nan")
    run = simulated(web(), load([400.0] * 10 + [nan] * 100), PLANT, SETTINGS, 8)
    assert set(run.replicas.tolist()) == {8}


def test_a_gap_ends_the_last_value():
    gapped = load([400.0] * 10 + [100.0] * 10)
    times = gapped.time_s.copy()
    times[10:] += 3600.0
    from hpa.simulate.workload import LoadHistory

    run = simulated(web(), LoadHistory(times, gapped.columns, gapped.hidden), PLANT, SETTINGS, 8)
    in_gap = (run.time_s > times[9] + 120.0) & (run.time_s < times[10])
    assert in_gap.sum() > 200
    assert set(run.replicas[in_gap].tolist()) == {8}


def test_utilization_counts_requests_and_distrusts_pods_that_start():
    spec = {
        "minReplicas": 1, "maxReplicas": 50,
        "metrics": [resource(type="Utilization", averageUtilization=50)],
    }  # fmt: skip
    plant = Plant(requests={"app": {"cpu": 500}})
    run = simulated(hpa(spec), load([1.0] * 4 + [2.0] * 60, name="cpu"), plant, SETTINGS, 4)
    assert run.replicas[3] == 4
    assert run.replicas[-1] == 8  # 2 cores / (50 % of 500m)


@pytest.mark.parametrize("kind", ["Object", "External"])
def test_totals_are_divided_by_the_target_of_a_pod(kind):
    metric = {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "50"}}
    if kind == "Object":
        metric["describedObject"] = {"apiVersion": "v1", "kind": "Service", "name": "web"}
    spec = {"maxReplicas": 50, "metrics": [{"type": kind, kind.lower(): metric}]}
    run = simulated(hpa(spec), load([500.0] * 40, name="queue"), PLANT, SETTINGS, 1)
    assert run.replicas[-1] == 10


def test_a_value_target_is_met_by_what_pods_share():
    metric = {
        "metric": {"name": "queue"}, "target": {"type": "Value", "value": "50"},
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"},
    }  # fmt: skip
    spec = {"maxReplicas": 50, "metrics": [{"type": "Object", "object": metric}]}
    run = simulated(hpa(spec), load([500.0] * 60, name="queue"), PLANT, SETTINGS, 5)
    assert run.replicas[-1] == 10


def test_pods_that_are_not_ready_leave_first_and_then_the_newest():
    workload = SimulatedWorkload(PLANT, "web", 2, 1000.0)
    workload.resize(4, 1000.0)
    workload.resize(3, 1010.0)
    assert workload.ready(1010.0) == 2
    workload.resize(1, 1100.0)
    assert workload.pods(1100.0).names == ("web-000000000",)


def test_pods_beyond_the_room_wait_for_nodes():
    plant = Plant(ready_after_s=(10.0,), nodes_after_s=100.0, room=3)
    workload = SimulatedWorkload(plant, "web", 2, 1000.0)
    workload.resize(5, 1000.0)
    assert [workload.ready(at) for at in (1000.0, 1010.0, 1109.0, 1110.0)] == [2, 3, 3, 5]


def test_what_deleted_pods_served_is_not_in_the_samples_of_the_others():
    workload = SimulatedWorkload(PLANT, "web", 4, 1000.0)
    workload.resize(2, 1000.0)
    seen = workload.samples(400.0, 1010.0, in_columns=False)  # taken at 995, by four
    assert [each.value_milli for each in seen.values()] == [100_000, 100_000]
    same = workload.samples(400.0, 1015.0, in_columns=True)  # at 1000, before the pass deleted any
    assert [each.value_milli for each in same.values()] == [100_000, 100_000]
    assert workload.served_by(1015.0) == 4
    later = workload.samples(400.0, 1016.0, in_columns=True)  # taken at 1001, by two
    assert [each.value_milli for each in later.values()] == [200_000, 200_000]


def test_more_pods_than_a_cluster_has_are_never_created() -> None:
    workload = SimulatedWorkload(Plant(), "web", 2, 0.0)
    workload.resize(2**31 - 1, 0.0)
    assert len(workload) == 150_000
    workload.resize(3, 60.0)
    assert len(workload) == 3
