"""After an outage of the source nothing shrinks by what was measured over it."""

import pytest
from msgspec import structs

from hpa.decide.api.spec import HpaStatus
from hpa.decide.decision import Decision
from hpa.decide.observation import Observation, Past
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from hpa.explain.explanation import explain
from hpa.history.decision_log import PackedTrace
from podscale.core.metrics import CLUSTER_APIS, NoData, ObjectSample, PodSamples, Sample, SampleGap
from tests.unit.hpa.decide.situations import (
    NOW,
    cpu,
    listed,
    per_pod,
    pod,
    queue,
    seen,
    series,
    usage,
    web,
)

# Away for three minutes, until a minute ago.
GAP = SampleGap(NOW - 240, NOW - 60, 120.0, NOW + 90)
OVER = structs.replace(GAP, whole_s=NOW)
POD = per_pod(500)
SETTINGS = Settings()


def observed(*answers, metrics=(POD,)) -> Observation:
    return seen(web(*metrics), 4, listed(*[pod()] * 4), answers)


def made(observation: Observation, settings: Settings = SETTINGS) -> Decision:
    return decide(observation, Past(recommendations=()), settings, NOW)


def size(*answers, metrics=(POD,), settings: Settings = SETTINGS) -> int | None:
    return made(observed(*answers, metrics=metrics), settings).trace.decided


def low(gap: SampleGap | None) -> PodSamples:
    return structs.replace(usage(200, 200, 200, 200), gap=gap)


@pytest.mark.parametrize(("gap", "replicas"), [
    pytest.param(None, 2, id="no-outage-was-seen"),
    pytest.param(GAP, 4, id="the-window-reaches-into-it"),
    pytest.param(OVER, 2, id="the-window-is-whole-again"),
])  # fmt: skip
def test_a_window_with_a_hole_lowers_nothing(gap, replicas):
    assert size(low(gap)) == replicas


@pytest.mark.parametrize(("gap", "begin"), [
    (GAP, "Prometheus was away from"),
    (structs.replace(GAP, source=CLUSTER_APIS), "The cluster's metrics API was away from"),
], ids=["feed", "api"])  # fmt: skip
def test_who_was_away_is_told(gap, begin):
    found = explain(made(observed(low(gap))).trace)
    assert any(text.startswith(begin) for text in found.sentences)


def test_every_kind_of_metric_can_have_one():
    assert size(low(GAP), metrics=(cpu(50),)) == 4
    queued = series(1000)
    assert size(queued, metrics=(queue(4000),)) == 1
    assert size(structs.replace(queued, gap=GAP), metrics=(queue(4000),)) == 4
    sample = ObjectSample(Sample(1000, NOW), NOW, GAP)
    spec = structs.replace(queue(4000), type="Object", described=web().target, target_type="Value")
    assert size(sample, metrics=(spec,)) == 4
    assert size(structs.replace(sample, gap=None), metrics=(spec,)) == 1


def test_growing_is_as_without_one():
    high = usage(2000, 2000, 2000, 2000)
    grown = size(high)
    assert grown is not None
    assert grown > 4
    assert size(structs.replace(high, gap=GAP)) == grown


def test_one_of_two_metrics_is_enough():
    whole = usage(200, 200, 200, 200)
    both = (POD, per_pod(600, "load"))
    assert size(whole, whole, metrics=both) == 2
    assert size(whole, low(GAP), metrics=both) == 4
    assert size(whole, NoData("EmptyResult", ""), metrics=both) is None


def test_the_flag_turns_it_off():
    assert size(low(GAP), settings=Settings(holds_after_outage=False)) == 2


def test_where_another_one_acts_nothing_is_held():
    shadow = made(observed(low(GAP)), Settings(mode="shadow"))
    assert shadow.trace.decided == 2
    assert shadow.past.recommendations[-1].replicas == 2
    assert explain(shadow.trace).first_reason != "GapInWindow"


def test_condition_event_and_explanation_say_it_once():
    decision = made(observed(low(GAP)))
    (able,) = [each for each in decision.status.conditions if each.type == "AbleToScale"]
    text = (
        "Prometheus was away from 15:02:40Z to 15:05:40Z; 2m rates are reliable again at "
        "15:08:10Z, and until then nothing is scaled down"
    )
    assert (able.status, able.reason, able.message) == ("True", "GapInWindow", text)
    assert [(each.reason, each.message) for each in decision.events] == [("GapInWindow", text)]
    again = observed(low(GAP))
    status = HpaStatus(4, 4, conditions=decision.status.conditions)
    again = structs.replace(again, hpa=structs.replace(again.hpa, status=status))
    assert made(again).events == ()
    told = explain(decision.trace)
    assert told.first_reason == "GapInWindow"
    assert any(line.startswith(text) for line in told.sentences), told
    assert told.facts["whole"] == "2025-06-15T15:08:10Z"
    assert "2025-06-15T15:08:10Z" in told.change


def test_what_is_whole_again_on_another_day_is_told_with_its_date():
    daily = structs.replace(GAP, window_s=86400.0, whole_s=NOW + 108000)
    assert (
        "are reliable again at 2025-06-16T21:06:40Z" in made(observed(low(daily))).events[0].message
    )


def test_the_longest_one_counts_and_a_kept_trace_has_it():
    longer = structs.replace(GAP, window_s=300.0, whole_s=NOW + 315)
    both = (POD, per_pod(600, "load"))
    decision = made(observed(low(GAP), low(longer), metrics=both))
    assert "; 5m rates are" in decision.events[0].message
    assert PackedTrace.of(decision.trace).trace() == decision.trace
