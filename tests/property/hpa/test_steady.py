"""Passes settled many at once come to what ``decide`` says pass by pass, history carried on.

Random specs of every kind that ``covers``, random loads, plants, flags; a run of some hundred
passes each. And where it does not cover, every pass is decided plainly.
"""

import os
import random

import numpy as np
import pytest
from msgspec import structs

from hpa.decide.api.spec import HPA, Fallback, Options
from hpa.decide.settings import Gates, Settings
from hpa.simulate.loop import pass_times, simulate
from hpa.simulate.steady import covers
from hpa.simulate.workload import LoadHistory, Plant, key_of
from tests.kit import traces
from tests.unit.hpa.decide.handwritten import hpa, resource
from tests.unit.hpa.simulate.loads import START_S, load, no_forecast, simulated, web

PASSES = 40_000 if os.environ.get("PODSCALE_SHORT") else 1_000_000
HOURS = 6 if os.environ.get("PODSCALE_SHORT") else 72
KINDS = "Utilization", "usage", "container", "memory", "Pods", "Object", "External"
PLANT = Plant(ready_after_s=(50.0,), requests={"app": {"cpu": 500}})


def metric(dice: random.Random, name: str) -> dict[str, object]:
    amount = f"{dice.choice([0.003, 0.5, 5, 50, 333])}"
    kind = dice.choice(
        ["Utilization", "usage", "container", "memory", "Pods", "Object", "External"]
    )
    average = {"type": "AverageValue", "averageValue": amount}
    if kind in ("Object", "External"):
        whole = dice.choice([average, {"type": "Value", "value": amount}])
        source = {"metric": {"name": name}, "target": whole}
        if kind == "Object":
            source["describedObject"] = {"apiVersion": "v1", "kind": "Service", "name": "web"}
        return {"type": kind, kind.lower(): source}
    if kind == "Pods":
        return {"type": "Pods", "pods": {"metric": {"name": name}, "target": average}}
    used = {"type": "Utilization", "averageUtilization": dice.choice([1, 50, 80, 130])}
    if kind == "container":
        source = {"name": "cpu", "container": "app", "target": dice.choice([used, average])}
        return {"type": "ContainerResource", "containerResource": source}
    of = "memory" if kind == "memory" else "cpu"
    target = average if kind == "usage" else used
    return {"type": "Resource", "resource": {"name": of, "target": target}}


def rules(dice: random.Random) -> dict[str, object]:
    found: dict[str, object] = {}
    if dice.random() < 0.7:
        found["stabilizationWindowSeconds"] = dice.choice([0, 0, 15, 50, 300, 900])
    if dice.random() < 0.3:
        found["selectPolicy"] = dice.choice(["Max", "Min", "Disabled"])
    if dice.random() < 0.3:
        found["tolerance"] = dice.choice(["0", "0.05", "0.5"])
    if dice.random() < 0.6:
        found["policies"] = [
            {"type": dice.choice(["Pods", "Percent"]), "value": dice.choice([1, 2, 10, 100]),
             "periodSeconds": dice.choice([15, 40, 120, 600])}
            for _ in range(dice.randint(1, 3))
        ]  # fmt: skip
    return found


def spec(dice: random.Random) -> HPA:
    least = dice.randint(1, 5)
    written: dict[str, object] = {
        "minReplicas": least, "maxReplicas": least + dice.choice([0, 5, 20, 40]),
        "metrics": [metric(dice, f"m{place}") for place in range(dice.choice([1, 1, 1, 2, 3]))],
    }  # fmt: skip
    if dice.random() < 0.6:
        written["behavior"] = {
            way: rules(dice) for way in ("scaleUp", "scaleDown") if dice.random() < 0.8
        }
    annotations = {"podscale.io/sync-period": "20s"} if dice.random() < 0.2 else {}
    return hpa(written, metadata={"annotations": annotations})


def history(dice: random.Random, of: HPA) -> LoadHistory:
    """Levels that last, noise, and times that nobody measured."""
    noise = np.random.default_rng(dice.getrandbits(32))
    count, step_s = dice.choice([(200, 15.0), (60, 60.0), (150, 20.0)])
    times = START_S + step_s * np.arange(count)
    columns = {}
    for each in of.metrics:
        target = (each.average_value_milli or each.value_milli or 0) / 1e3 or (
            (each.average_utilization or 0) / 100 * 0.5
        )
        calm = dice.choice([2.0, 5.0, 20.0, 100.0])
        levels = noise.choice([0, 0.01, 0.3, 1, 2, 3, 8, 20], count)
        lasting = np.repeat(levels, noise.geometric(1 / calm, count))[:count]
        jitter = dice.choice([0, 0.01, 0.1, 0.3]) * noise.normal(size=count)
        values = lasting * target * (1 + jitter)
        values = np.maximum(values, 0.0)
        if dice.random() < 0.3:
            start = dice.randrange(count)
            values[start : start + dice.choice([1, 10, 60])] = np.nan
        columns[key_of(each)] = values
    return LoadHistory(times, columns, np.zeros(count, np.bool_))


def plant(dice: random.Random) -> Plant:
    ready = dice.choice([(60.0,), (0.0,), (50.0,), (300.0,), (10.0, 90.0, 40.0)])
    return Plant(
        ready_after_s=ready, metric_age_s=dice.choice([0.0, 15.0, 40.0, 120.0]),
        nodes_after_s=dice.choice([0.0, 120.0]), room=dice.choice([None, 4]),
        requests={"app": {"cpu": 500, "memory": 500}},
    )  # fmt: skip


def settings(dice: random.Random) -> Settings:
    return Settings(
        release=dice.choice(["1.36", "1.37", "1.38"]),
        gates=Gates(configurable_tolerance=dice.random() < 0.8),
        tolerance=dice.choice([0.1, 0.1, 0.0, 0.25]),
        downscale_stabilization_s=dice.choice([300.0, 0.0, 30.0]),
        cpu_initialization_s=dice.choice([300.0, 0.0, 60.0]),
    )


@pytest.mark.timeout(900)
def test_a_million_passes_come_to_the_same_as_decided_one_by_one():
    passes = rescales = together = 0
    seed = 0
    while passes < PASSES:
        seed += 1
        dice = random.Random(seed)
        of, on, under = spec(dice), plant(dice), settings(dice)
        loads, first = history(dice, of), dice.choice([1, 2, 5, 60])
        assert covers(of, loads, on, under), of
        times = pass_times(loads, under.sync_period_s)
        if dice.random() < 0.3:
            times += np.random.default_rng(seed).uniform(0.0, 14.0, len(times))
        plainly = simulate(of, loads, on, under, first, times, expected=no_forecast)
        found = simulate(of, loads, on, under, first, times)
        for one, other in ((plainly.replicas, found.replicas), (plainly.ready, found.ready)):
            apart = np.flatnonzero(one != other)
            assert not len(apart), (seed, apart[:5], one[apart[:5]], other[apart[:5]])
        passes += len(found.replicas)
        rescales += int((np.diff(found.replicas) != 0).sum())
        together += found.together
    print(f"{passes} passes, {rescales} rescales, {together / passes:.0%} settled together")
    assert rescales > passes / 200
    assert together > passes / 3  # otherwise nothing has been compared


def test_ten_traces_both_ways():
    for file in traces.files("crane"):
        times, values = np.loadtxt(file, delimiter=",", skiprows=1, unpack=True)[:, : HOURS * 60]
        loads = LoadHistory(times, {"http_requests": values / values.max() * 1000},
                            np.zeros(len(times), np.bool_))  # fmt: skip
        plainly = simulated(web(), loads, Plant(), Settings(), 3, expected=no_forecast)
        found = simulated(web(), loads, Plant(), Settings(), 3)
        assert plainly.replicas.tolist() == found.replicas.tolist(), file.name
        assert plainly.ready.tolist() == found.ready.tolist(), file.name
        assert found.together > len(times)  # of four passes a minute


WAVES = [100.0, 100.0, 400.0, 400.0, 100.0] * 40
UTILIZATION = resource(type="Utilization", averageUtilization=50)


@pytest.mark.parametrize(
    ("of", "on", "under"),
    [
        (web(minReplicas=0), PLANT, Settings()),
        (structs.replace(web(), options=Options(is_paused=True)), PLANT, Settings()),
        (
            structs.replace(web(), options=Options(
                fallbacks=(("http_requests", Fallback("replicas", 9)),))),
            PLANT, Settings(),
        ),
        (structs.replace(web(), options=Options(refused_schedule="25 entries")), PLANT, Settings()),
        (web(), PLANT, Settings(metric_max_age_s=10.0)),
        (web(), PLANT, Settings(mode="shadow")),
        (hpa({"metrics": [UTILIZATION]}), Plant(requests={"app": {"memory": 1}}), Settings()),
        (
            hpa({"metrics": [UTILIZATION]}),
            Plant(requests={"app": {"cpu": 500}, "log": {"memory": 1}}), Settings(),
        ),
    ],
    ids=["zero", "paused", "fallback", "refused", "age", "shadow", "request", "request-of-one"],
)  # fmt: skip
def test_what_is_not_covered_is_decided_plainly(of: HPA, on: Plant, under: Settings):
    name = key_of(of.metrics[0])
    loads = load([*WAVES, *[float("nan")] * 60, *WAVES], name=name)
    assert not covers(of, loads, on, under)
    found = simulated(of, loads, on, under, 2)
    plainly = simulated(of, loads, on, under, 2, expected=no_forecast)
    assert found.together == 0
    assert found.replicas.tolist() == plainly.replicas.tolist()


@pytest.mark.parametrize("value", [-1.0, 1e13])
def test_loads_beyond_exact_numbers_are_not_covered(value):
    assert covers(web(), load([1.0, 2.0]), PLANT, Settings())
    assert not covers(web(), load([1.0, value]), PLANT, Settings())


def test_policies_that_let_nothing_through_do_not_make_every_pass_a_single_one():
    """A scale-down that is Disabled wants to go down in every pass, and is asked about once."""
    never = {"scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}}
    slow = {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1800}]}}
    for behavior in (never, slow):
        loads = load([500.0] * 40 + [50.0] * 4000)
        found = simulated(web(behavior=behavior), loads, PLANT, Settings(), 10)
        assert found.together > 0.98 * len(pass_times(loads, 15.0))
