"""Whatever the load: bounds hold, nothing is lost, and shares are shares."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpa.decide.settings import Settings
from hpa.simulate.loop import judge, measure, needed, oracle
from hpa.simulate.workload import Plant, SimulatedWorkload
from tests.unit.hpa.simulate.loads import load, simulated, web

VALUES = st.lists(st.one_of(st.floats(0, 5000), st.just(float("nan"))), min_size=2, max_size=120)
PLANTS = st.builds(
    Plant,
    ready_after_s=st.lists(st.floats(0, 200), min_size=1, max_size=3).map(tuple),
    metric_age_s=st.sampled_from([0.0, 15.0, 40.0]),
    room=st.none() | st.integers(1, 20),
    nodes_after_s=st.sampled_from([0.0, 120.0]),
)


@given(VALUES, PLANTS, st.integers(1, 30))
def test_sizes_stay_within_bounds_and_readiness_within_sizes(values, plant, first):
    spec = web("50", minReplicas=2, maxReplicas=30)
    history = load(values)
    run = simulated(spec, history, plant, Settings(), first)
    assert ((run.replicas >= 2) & (run.replicas <= 30)).all()
    assert (run.ready <= run.replicas).all()
    need = needed(history, {"http_requests": 62.5}, 15.0)
    found, best = judge(run, spec, history, plant, need), oracle(need)
    for share in (found.unserved, found.under_time, found.over_time, found.instability):
        assert 0.0 <= share <= 1.0
    assert found.under_time + found.over_time <= 1.0 + 1e-9
    assert best.unserved == 0.0
    if found.unserved == 0.0:
        assert found.pod_hours >= best.pod_hours - 1e-9


@given(st.integers(1, 40), st.floats(0, 1e6), st.booleans())
def test_samples_of_pods_add_up_to_the_load(count, whole, in_columns):
    workload = SimulatedWorkload(Plant(), "web", count, 1000.0)
    seen = workload.samples(whole, 1000.0, in_columns=in_columns)
    assert len(seen) == count
    assert sum(each.value_milli for each in seen.values()) == round(whole * 1000.0)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=2, max_size=50),
    st.integers(1, 4),
)
def test_measures_do_not_depend_on_how_finely_time_is_cut(pairs, finer):
    """Each row said ``finer`` times over a time as much shorter is the same history."""

    def of(times_each: int):
        d = np.repeat([d for d, _ in pairs], times_each)
        s = np.repeat([s for _, s in pairs], times_each)
        from hpa.simulate.loop import NeededPods

        times = np.arange(len(d)) * (60.0 / times_each)
        need = NeededPods(times, d, np.ones(len(d), np.bool_))
        return measure(need, s, s, np.zeros(len(d), np.bool_))

    one, many = of(1), of(finer)
    for name in (
        "pod_hours", "unserved", "under_accuracy", "over_accuracy", "under_time", "over_time",
        "longest_lag_s", "rescales_a_day", "reversals_a_day",
    ):  # fmt: skip
        np.testing.assert_allclose(getattr(one, name), getattr(many, name), rtol=1e-9)
