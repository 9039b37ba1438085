"""A forecast switched on and off day by day, through a history."""

import numpy as np
from msgspec import structs

from hpa.decide.settings import Settings
from hpa.forecast.daily import trial
from hpa.forecast.demand import DAY, demand_of
from hpa.simulate.workload import Plant
from tests.unit.hpa.forecast.demands import START_S, jumps
from tests.unit.hpa.simulate.loads import load, simulated, web

PLANT = Plant(ready_after_s=(600.0,))
CAPACITIES = {"http_requests": 62.5}


def history(pods):
    found = load((50.0 * pods).tolist(), 60.0)
    return structs.replace(found, time_s=START_S + 60.0 * np.arange(len(pods)))


def test_it_begins_once_it_pays_and_raises_before_the_load_does() -> None:
    past = history(jumps(6))
    hpa = web(maxReplicas=100)
    tried = trial(hpa, past, PLANT, Settings(), CAPACITIES)
    assert all(each is None for each in tried.taken[:3])
    assert tried.taken[5] is not None
    assert tried.taken[5].taken is not None
    plain = simulated(hpa, past, PLANT, Settings(), 10)
    ahead = simulated(hpa, past, PLANT, Settings(), 10, expected=tried.expected)
    last = plain.time_s >= START_S + 5 * 86400
    first_rise = [int(np.argmax(run.replicas[last] > 30)) for run in (plain, ahead)]
    assert first_rise[1] < first_rise[0], "pods are there before the load is"
    assert (ahead.replicas[~last][: 4 * DAY] == plain.replicas[~last][: 4 * DAY]).all()
    assert ahead.replicas.max() <= 100


def test_demand_is_of_the_metric_that_asks_for_most_and_unknown_where_one_is() -> None:
    values = np.array([100.0, 200.0, np.nan, 400.0] * 60)
    past = load(values.tolist(), 60.0)
    found = demand_of(web("50"), past, PLANT, CAPACITIES)
    shown = found.pods[~np.isnan(found.pods)]
    assert set(shown.tolist()) == {2.0, 4.0, 8.0}
    assert np.nanmax(found.needed) == 7
    assert np.isnan(found.pods).any()


def test_a_day_that_is_not_over_is_forecast_as_well() -> None:
    pods = jumps(6)[: 5 * DAY + 700]
    tried = trial(web(maxReplicas=100), history(pods), PLANT, Settings(), CAPACITIES)
    assert len(tried.taken) == 6
    assert len(tried.pods) == len(pods)
    assert tried.last is not None
    assert tried.last.days == 4
    now = START_S + 60.0 * (len(pods) - 1)
    assert tried.expected(now) is not None
    assert tried.expected(now + 60.0) is None
