"""A forecast is told: what it rests on, what it asks for, and what it was worth."""

from msgspec import structs

from hpa.decide.observation import ExpectedDemand, Observation, Past, Scale
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from hpa.explain.explanation import explain
from hpa.simulate.workload import Plant, SimulatedWorkload
from podscale.core.metrics import PodSamples
from tests.unit.hpa.simulate.loads import START_S, web

EXPECTED = ExpectedDemand(
    pods=6.5, at=START_S, highest=8.0, candidate="ridge", within_s=600.0, day_before=6.2,
    saved=0.31, more=0.04, days=8,
)  # fmt: skip


def seen(expected: ExpectedDemand | None, size: int = 4) -> Observation:
    workload = SimulatedWorkload(Plant(), "web", size, START_S)
    samples = workload.samples(50.0 * size, START_S, in_columns=True)
    pods = workload.pods(START_S)
    return Observation(
        web(), Scale(size, size, "app=web"), pods, (PodSamples(samples, START_S),), (), (), expected
    )


def test_a_rescale_ahead_of_demand_names_the_forecast() -> None:
    decision = decide(seen(EXPECTED), Past(), Settings(), START_S)
    assert decision.replicas == 7
    told = explain(decision.trace)
    assert told.first_reason == "ForecastAboveMetrics"
    assert "MetricAboveTarget" not in told.also
    assert told.decision["forecast"] == 7
    assert (
        "Yesterday at this hour 310; forecast 325 within 10 min asks for 7 (ridge; it has saved "
        "31% of unserved demand in the last 8 days at 4% more pod-hours)."
        in " ".join(told.sentences)
    )
    assert decision.reason == "demand forecast above target"


def test_a_forecast_keeps_pods_that_the_metrics_would_remove() -> None:
    low = structs.replace(EXPECTED, pods=9.0, highest=10.0)
    quiet = PodSamples(
        SimulatedWorkload(Plant(), "web", 10, START_S).samples(200.0, START_S, in_columns=True),
        START_S,
    )
    observation = structs.replace(seen(low, 10), answers=(quiet,))
    decision = decide(observation, Past(()), Settings(), START_S)
    assert decision.trace.decided == 9
    assert explain(decision.trace).first_reason == "ForecastAboveMetrics"
    assert decide(structs.replace(observation, expected=None), Past(()), Settings(),
                  START_S).trace.decided == 4  # fmt: skip


def test_a_forecast_below_the_metrics_is_not_told() -> None:
    decision = decide(seen(structs.replace(EXPECTED, pods=3.0)), Past(), Settings(), START_S)
    assert "orecast" not in " ".join(explain(decision.trace).sentences)
