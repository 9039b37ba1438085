"""What goes beyond upstream: annotations, owners, shadow mode, one target named twice."""

import pytest
from msgspec import structs

from hpa.decide.api.options import read_options
from hpa.decide.api.reading import DOWN, UP
from hpa.decide.api.spec import Behavior, Fallback, MetricSpec, Options
from hpa.decide.decision import Decision
from hpa.decide.metrics.proposals import key_of
from hpa.decide.observation import Observation, Past, ScaleUnreadable
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from hpa.explain.explanation import explain
from podscale.core.metrics import (
    ExternalSample,
    ExternalSamples,
    NoData,
    Sample,
    Stale,
    Unavailable,
)
from podscale.kube.client.wire import LabelSelector
from tests.unit.hpa.decide.situations import (
    NOW,
    cpu,
    listed,
    per_pod,
    pod,
    remembered,
    seen,
    usage,
    web,
)

DOWN_NOW = remembered()
LOST = Unavailable("PrometheusUnreachable", "connection refused")


def made(observation: Observation, past: Past = DOWN_NOW, **settings: object) -> Decision:
    return decide(observation, past, structs.replace(Settings(), **settings), NOW)


def two_metrics(options: Options, answer: object) -> Observation:
    hpa = web(per_pod(1000), cpu(50), options=options)
    return seen(hpa, 4, listed(*[pod()] * 4), [answer, usage(*[100] * 4)])  # type: ignore[list-item]


def fallback(kind: Fallback, *, may_lower: bool = False) -> Options:
    return Options(fallbacks=(("qps", kind),), may_lower=may_lower)


def test_a_paused_object_is_left_alone() -> None:
    hpa = web(cpu(50), options=Options(is_paused=True))
    decision = made(seen(hpa, 2, listed(pod(), pod()), [usage(1000, 1000)]))
    assert decision.replicas is None
    assert not decision.is_status_changed
    assert decision.events == ()
    assert decision.past == DOWN_NOW


def test_without_fallback_an_unreadable_metric_blocks_the_fall() -> None:
    assert made(two_metrics(Options(), LOST)).replicas is None


def test_hold_keeps_the_size_and_says_so() -> None:
    decision = made(two_metrics(fallback(Fallback("hold")), LOST))
    assert decision.replicas is None
    assert decision.trace.decided == 4


def test_a_number_raises_freely() -> None:
    assert made(two_metrics(fallback(Fallback("replicas", 6)), LOST)).replicas == 6


@pytest.mark.parametrize(("may_lower", "replicas"), [(False, None), (True, 2)])
def test_a_number_lowers_only_where_allowed(may_lower: bool, replicas: int | None) -> None:
    options = fallback(Fallback("replicas", 2), may_lower=may_lower)
    assert made(two_metrics(options, LOST)).replicas == replicas


def test_last_stands_in_until_it_is_too_old() -> None:
    options = fallback(Fallback("last", max_age_s=60))
    good = made(two_metrics(options, usage(*[1500] * 4)))
    assert good.replicas == 6
    soon = decide(two_metrics(options, LOST), good.past, Settings(), NOW + 60)
    assert soon.trace.decided == 6
    late = decide(two_metrics(options, LOST), good.past, Settings(), NOW + 61)
    assert late.trace.decided is None


def test_the_last_numbers_of_metrics_that_went_are_forgotten() -> None:
    options, past = fallback(Fallback("last", max_age_s=60)), Past()
    for release in range(10):
        selector = LabelSelector({"release": str(release)})
        metric = structs.replace(per_pod(1000), selector=selector)
        hpa = web(metric, cpu(50), options=options)
        answers = [usage(*[1500] * 4), usage(*[100] * 4)]
        past = decide(seen(hpa, 4, listed(*[pod()] * 4), answers), past, Settings(), NOW).past
    assert len(past.good) <= 2
    assert past.good[-1].metric == key_of(metric)


def test_a_failing_metric_with_a_fallback_still_warns() -> None:
    decision = made(two_metrics(fallback(Fallback("hold")), LOST))
    assert [event.reason for event in decision.events] == ["FailedGetPodsMetric"]
    assert decision.status.metrics[0].type == ""


def test_pods_by_owner_leaves_out_pods_and_samples_of_others() -> None:
    pods = listed(pod(), pod(), pod(owner="Job/batch"))
    by_labels = seen(web(cpu(50)), 2, pods, [usage(500, 500, 5000)])
    hpa = web(cpu(50), options=Options(pods_by_owner=True))
    assert made(by_labels).replicas is not None
    assert made(seen(hpa, 2, pods, [usage(500, 500, 5000)])).replicas is None


def test_shadow_decides_and_writes_nothing() -> None:
    behavior = Behavior(UP, DOWN)
    growing = seen(web(cpu(50), behavior=behavior), 2, listed(pod(), pod()), [usage(1000, 1000)])
    decision = made(growing, mode="shadow")
    assert decision.replicas is None
    assert decision.trace.decided == 4
    assert not decision.is_status_changed
    assert decision.events == ()
    assert decision.past.scale_ups == ()
    assert [each.replicas for each in decision.past.recommendations or ()] == [4]


def test_shadow_is_silent_about_a_target_that_is_not_there() -> None:
    absent = Observation(web(cpu(50)), ScaleUnreadable('deployments.apps "web" not found'))
    decision = made(absent, mode="shadow")
    assert not decision.is_status_changed
    assert decision.events == decision.closing == ()
    assert decision.trace.steps == made(absent).trace.steps


def test_two_hpas_on_one_target_stand_still_even_without_pods() -> None:
    decision = made(seen(web(cpu(50)), 2, listed(), [], same_target=("other",)))
    assert decision.replicas is None
    assert decision.status.conditions[-1].reason == "AmbiguousSelector"
    assert "other" in decision.status.conditions[-1].message


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ("1.36", "multiple HPAs: [shop/another shop/web shop/worker]"),
        ("1.37", "more than one HPA (e.g. [shop/another shop/web])"),
    ],
)
def test_rivals_are_named_as_the_release_names_them(release: str, said: str) -> None:
    rivals = ("worker", "another")
    decision = made(seen(web(cpu(50)), 1, listed(pod()), [], rivals=rivals), release=release)
    text = f"pods by selector app=web are controlled by {said}"
    assert decision.status.conditions[-1].message == text
    assert decision.events[0].message == text


def test_a_stale_sample_is_a_failure() -> None:
    old = seen(web(per_pod(1000)), 2, listed(pod(), pod()), [usage(0, 0, age=301)])
    decision = made(old, metric_max_age_s=300.0)
    assert decision.trace.decided is None
    assert made(old).replicas == 1


def test_only_stale_pods_are_no_zero() -> None:
    answer = structs.replace(usage(), stale=frozenset({"web-0", "web-1"}))
    decision = made(seen(web(per_pod(1000)), 2, listed(pod(), pod()), [answer]))
    assert decision.trace.decided is None


def test_the_rest_of_an_external_metric_is_not_the_metric() -> None:
    queue = MetricSpec("External", "queue", target_type="AverageValue", average_value_milli=1000)
    series = [ExternalSample({}, Sample(10, NOW))]
    whole, rest = ExternalSamples(series, NOW), ExternalSamples(series, NOW, left_out=1)
    assert made(seen(web(queue), 4, listed(*[pod()] * 4), [whole])).replicas == 1
    assert made(seen(web(queue), 4, listed(*[pod()] * 4), [rest])).replicas is None


@pytest.mark.parametrize("answer", [NoData("EmptyResult", ""), Stale("Stale", "old", 900.0), LOST])
def test_no_failure_is_ever_the_number_zero(answer: object) -> None:
    hpa = web(per_pod(1000))
    decision = made(seen(hpa, 2, listed(pod(), pod()), [answer]))  # type: ignore[list-item]
    assert decision.replicas is None
    assert decision.status.metrics[0].type == ""


def test_annotations_are_read_together() -> None:
    options = read_options(
        {
            "podscale.io/paused": "true",
            "podscale.io/sync-period": "30s",
            "podscale.io/fallback": '{"qps": "last:5m", "queue": "replicas:3", "cpu": "hold"}',
            "podscale.io/fallback-may-lower": "true",
            "podscale.io/pods-by": "owner",
        }
    )
    assert options.is_paused
    assert options.may_lower
    assert options.pods_by_owner
    assert options.sync_period_s == 30
    assert dict(options.fallbacks) == {
        "qps": Fallback("last", max_age_s=300),
        "queue": Fallback("replicas", replicas=3),
        "cpu": Fallback("hold"),
    }
    assert options.problems == ()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("paused", "yes"),
        ("sync-period", "soon"),
        ("sync-period", "500ms"),
        ("sync-period", "2h"),
        ("fallback", "hold"),
        ("fallback", '["hold"]'),
        ("fallback", '{"qps": "replicas:-1"}'),
        ("fallback", '{"qps": "last:0s"}'),
        ("fallback", '{"qps": 3}'),
        ("pods-by", "uid"),
        ("fallback-may-lower", "1"),
    ],
)
def test_an_annotation_that_cannot_be_read_is_named_and_ignored(key: str, text: str) -> None:
    options = read_options({f"podscale.io/{key}": text})
    assert len(options.problems) == 1
    assert f"podscale.io/{key}" in options.problems[0]
    assert structs.replace(options, problems=()) == Options()


KINDS = [Fallback("hold"), Fallback("replicas", 2), Fallback("last", max_age_s=60)]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_shrinks_because_a_namespace_asks_too_much(kind: Fallback) -> None:
    options = fallback(kind, may_lower=True)
    good = made(two_metrics(options, usage(*[100] * 4)))
    assert good.replicas is not None
    assert good.replicas < 4
    over = Unavailable("NoBudget", "not asked: the budget of the namespace is 1000 queries in 15 s")
    decision = decide(two_metrics(options, over), good.past, Settings(), NOW + 30)
    assert decision.replicas is None
    found = explain(decision.trace)
    assert "MetricUnavailable" in (found.first_reason, *found.also)
    assert any("not asked: the budget of the namespace" in each for each in found.sentences)
