"""The order of reasons, for situations that the case file does not hold."""

import random
from typing import Any

import pytest
from msgspec import structs

from adapter.stages import Stage
from hpa.decide.api.reading import DOWN, UP
from hpa.decide.api.spec import (
    Behavior,
    Fallback,
    HpaStatus,
    MetricSpec,
    Options,
    Rules,
)
from hpa.decide.conclusion import conclude
from hpa.decide.decision import Outcome, Trace
from hpa.decide.observation import Observation, Past, Recommendation, ScaleEvent, ScaleUnreadable
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from hpa.explain import whatif
from hpa.explain.explanation import PUT_OFF, explain, first_reason
from hpa.explain.reading import tell
from hpa.explain.whatif import Inputs
from podscale.core.metrics import (
    ExternalSample,
    NoData,
    NotFound,
    Refused,
    Sample,
    Unavailable,
)
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.explain.explanation import Explanation
from podscale.feed.http import refusals
from podscale.kube.objects.autoscaler import AutoscalerCondition, Policy
from tests.unit.hpa.decide.situations import (
    NOW,
    cpu,
    listed,
    per_pod,
    pod,
    queue,
    remembered,
    seen,
    series,
    usage,
    web,
)

FREE = remembered()
ZEROED = HpaStatus(conditions=(AutoscalerCondition("ScaledToZero", "True", "ScaledToZero"),))


def told(
    observation: Observation,
    past: Past = FREE,
    outcome: Outcome | None = None,
    **settings: Any,
) -> Explanation:
    decision = decide(observation, past, structs.replace(Settings(), **settings), NOW)
    trace = conclude(decision, outcome or Outcome(), NOW).trace
    found = explain(trace)
    assert found.first_reason == first_reason(trace)
    return found


def busy(**rest: Any) -> Observation:
    """Two pods at twice their target."""
    return seen(web(cpu(50), **rest), 2, listed(pod(), pod()), [usage(1000, 1000)])


def idle(current: int = 4, **rest: Any) -> Observation:
    pods = listed(*[pod()] * current)
    return seen(web(cpu(50), **rest), current, pods, [usage(*[50] * current)])


def test_shadow_is_named_before_what_it_hides() -> None:
    found = told(busy(), mode="shadow")
    assert found.first_reason == "ShadowMode"
    assert "MetricAboveTarget" in found.also
    assert (found.decision.get("replicas"), found.decision.get("decided")) == (2, 4)


def test_shadow_hides_nothing_where_nothing_moves() -> None:
    steady = seen(web(cpu(50)), 2, listed(pod(), pod()), [usage(500, 500)])
    found = told(steady, mode="shadow")
    assert found.first_reason == "WithinTolerance"
    assert found.decision.get("decided") is None


def test_paused_comes_before_shadow() -> None:
    found = told(busy(options=Options(is_paused=True)), mode="shadow")
    assert found.first_reason == "Paused"
    assert found.decision.get("proposals") is None


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("NotFound", "gone", "TargetNotFound"),
        ("Forbidden", "no", "ScaleForbidden"),
        ("Other", 'deployments "web" is forbidden', "ScaleForbidden"),
    ],
)
def test_an_unreadable_target_has_no_size(kind: Any, text: str, reason: str) -> None:
    observation = structs.replace(busy(), scale=ScaleUnreadable(text, kind=kind))
    found = told(observation)
    assert found.first_reason == reason
    assert found.decision.get("replicas") is None


def test_two_on_one_target_are_more_precise_than_a_shared_pod() -> None:
    found = told(structs.replace(busy(), rivals=("old",), same_target=("old",)))
    assert found.first_reason == "SameTargetAsOtherHPA"
    assert found.also == ("AmbiguousSelector",)
    assert found.facts["hpas"] == ["old", "web"]


def test_at_zero_by_itself_without_a_waking_metric() -> None:
    status = HpaStatus(0, 0, NOW - 900)
    observation = seen(web(cpu(50), low=0, status=status), 0, listed(), [NoData("Empty", "")])
    assert told(observation).first_reason == "NoWakeUpMetric"
    by_hand = structs.replace(status, desired_replicas=3)
    observation = seen(web(cpu(50), low=0, status=by_hand), 0, listed(), [NoData("Empty", "")])
    assert told(observation).first_reason == "DisabledAtZero"


def test_without_pods_that_comes_before_the_metrics_own_failure() -> None:
    found = told(seen(web(cpu(50)), 2, listed(), [NoData("EmptyResult", "")]))
    assert found.first_reason == "NoPodsMatched"
    assert {"MetricNoData", "AllMetricsInvalid"} <= set(found.also)


def test_a_metric_that_needs_no_pod_fails_by_itself() -> None:
    lost = Unavailable("PrometheusUnreachable", "connection refused")
    found = told(seen(web(queue(1000), low=0, status=ZEROED), 0, listed(), [lost]))
    assert found.first_reason == "MetricUnavailable"
    assert "NoPodsMatched" not in found.also


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (Refused("Forbidden", "not allowed"), "MetricRefused"),
        (Refused("PrometheusForbidden", "403"), "MetricRefused"),
        (NotFound("NameMismatch", "nobody knows it"), "MetricNotFound"),
        (Unavailable("PrometheusUnreachable", "down"), "MetricUnavailable"),
        (NoData("NotANumber", "NaN"), "MetricNotANumber"),
        (Unavailable("Ambiguous", "2 results"), "MetricAmbiguous"),
    ],
)
def test_a_blocked_fall_names_the_failure_and_what_it_did(failure: Any, reason: str) -> None:
    hpa = web(cpu(50), per_pod(1000))
    found = told(seen(hpa, 4, listed(*[pod()] * 4), [usage(*[50] * 4), failure]))
    assert found.first_reason == reason
    assert "ScaleDownBlockedByInvalidMetric" in found.also
    assert "AllMetricsInvalid" not in found.also
    assert found.decision.get("proposals") == (1, None)
    assert found.facts["metric"] == "qps"


@pytest.mark.parametrize(
    "failure",
    [
        refusals.failure("bad-data"),
        refusals.failure("execution"),
        Refused(Stage.QUERY_INVALID, "there is no field .LabelMatcherz"),
        Refused(Stage.NOT_NAMESPACED, "the rule names no label for namespaces"),
        Refused("ResultIsScalar", "the query of the rule gives a scalar"),
        Unavailable("QueryInvalid", "the API's answer: 500"),
    ],
)
def test_a_wrong_query_is_no_lack_of_permission(failure: Any) -> None:
    hpa = web(cpu(50), per_pod(1000))
    found = told(seen(hpa, 4, listed(*[pod()] * 4), [usage(*[50] * 4), failure]))
    assert found.first_reason == "MetricQueryInvalid"
    assert found.facts["message"] == failure.message
    assert "podscale doctor hpa/web" in found.change


def test_an_invalid_metric_beside_a_rise_is_only_mentioned() -> None:
    hpa = web(cpu(50), per_pod(1000))
    lost = Refused("Forbidden", "not allowed")
    found = told(seen(hpa, 2, listed(pod(), pod()), [usage(1000, 1000), lost]))
    assert found.first_reason == "MetricAboveTarget"
    assert {"InvalidMetricIgnored", "MetricRefused"} <= set(found.also)


def test_a_fallback_that_decides_names_the_failure() -> None:
    options = Options(fallbacks=(("qps", Fallback("hold")),))
    hpa = web(cpu(50), per_pod(1000), options=options)
    lost = NoData("EmptyResult", "")
    found = told(seen(hpa, 4, listed(*[pod()] * 4), [usage(*[50] * 4), lost]))
    assert found.first_reason == "MetricNoData"
    assert found.decision.get("proposals") == (1, 4)


def test_gone_pods_that_drive_the_number() -> None:
    answer = usage(900, 900)
    samples = {**answer.pods, "gone-0": answer.pods["web-0"]}
    observation = seen(web(per_pod(500)), 2, listed(pod(), pod()), [structs.replace(answer)])
    assert told(observation).first_reason == "MetricAboveTarget"
    small = {name: structs.replace(each, value_milli=500) for name, each in samples.items()}
    small["gone-0"] = structs.replace(small["gone-0"], value_milli=9000)
    stale = structs.replace(answer, pods=small)
    found = told(seen(web(per_pod(500)), 2, listed(pod(), pod()), [stale]))
    assert found.first_reason == "StalePodsInAnswer"
    assert found.facts["pods"] == ["gone-0"]


def test_one_series_that_gives_the_number_is_no_sum() -> None:
    observation = seen(web(queue(1000)), 2, listed(pod(), pod()), [series(2000, 0)])
    assert told(observation).first_reason == "MetricAboveTarget"


def test_starting_pods_damp_the_rise() -> None:
    young = pod(started=NOW - 60, since=NOW - 10)
    observation = seen(
        web(cpu(50)), 4, listed(pod(), pod(), young, young), [usage(1000, 1000, 900, 900)]
    )
    found = told(observation)
    assert found.first_reason == "CpuInitialization"
    assert found.facts["pods"] == ["web-2", "web-3"]
    assert found.decision.get("replicas") == 4


def test_never_ready_pods_damp_the_rise() -> None:
    broken = pod(ready=PodReadiness.FALSE, started=NOW - 900, since=NOW - 900)
    observation = seen(
        web(cpu(50)), 4, listed(pod(), pod(), pod(), broken), [usage(1000, 1000, 1000, 0)]
    )
    found = told(observation)
    assert found.first_reason == "NeverReadyPods"
    assert found.facts["pods"] == ["web-3"]


def test_missing_pods_come_before_pending_ones() -> None:
    pods = listed(*[pod()] * 4, pod(phase=PodPhase.PENDING, ready=PodReadiness.FALSE))
    observation = seen(web(per_pod(500)), 5, pods, [usage(1000, 1000, 1000, None, None)])
    found = told(observation)
    assert found.first_reason == "MissingPodMetrics"
    assert found.facts["pods"] == ["web-3"]


def test_without_behavior_the_pass_is_limited() -> None:
    found = told(seen(web(cpu(10)), 4, listed(*[pod()] * 4), [usage(*[1000] * 4)]))
    assert found.first_reason == "LegacyScaleUpLimit"
    assert found.facts["limit"] == 8


def test_a_bound_below_the_rate_is_the_bound() -> None:
    found = told(seen(web(cpu(10), high=6), 4, listed(*[pod()] * 4), [usage(*[1000] * 4)]))
    assert found.first_reason == "MaxReplicasReached"
    assert "LegacyScaleUpLimit" not in found.also


@pytest.mark.parametrize("loaded", [True, False])
def test_equal_bounds_have_a_name_of_their_own(loaded: bool) -> None:
    found = told((busy if loaded else lambda **rest: idle(2, **rest))(low=2, high=2))
    assert found.first_reason == "MinEqualsMax"


def test_disabled_directions() -> None:
    off = Rules(0, "Disabled", UP.policies)
    assert told(busy(behavior=Behavior(off, DOWN))).first_reason == "ScaleUpDisabled"
    now = structs.replace(off, window_s=0)
    assert told(idle(behavior=Behavior(UP, now))).first_reason == "ScaleDownDisabled"


@pytest.mark.parametrize(
    ("earliest", "when"), [(None, "40 s ago"), (NOW - 90, "40 s ago or earlier")]
)
def test_an_event_that_counts_against_a_policy_is_a_fact(earliest: float | None, when: str) -> None:
    rules = Rules(0, "Max", (Policy("Pods", 4, 60),))
    counted = ScaleEvent(3, NOW - 40, earliest=earliest)
    past = structs.replace(FREE, scale_ups=(counted, ScaleEvent(9, NOW - 80)))
    pods = listed(*[pod()] * 8)
    observation = seen(web(cpu(50), behavior=Behavior(rules, DOWN)), 8, pods, [usage(*[1000] * 8)])
    found = told(observation, past)
    assert found.first_reason == "ScaleUpRateLimited"
    assert found.decision.get("replicas") == 9
    assert found.facts["event"] == {"change": 3, "age_s": 40.0}
    assert f"3 pods were already added {when}, within this 60 s period." in found.sentences


def test_a_fall_without_any_limit() -> None:
    found = told(idle())
    assert found.first_reason == "AllMetricsBelowTarget"
    assert found.decision.get("replicas") == 1


def test_a_window_that_holds_nothing_is_not_named() -> None:
    found = told(idle(), remembered((9, 301)))
    assert "ScaleDownStabilized" not in {found.first_reason, *found.also}


def test_woken_to_min_is_not_called_above_target() -> None:
    behavior = Behavior(UP, DOWN)
    observation = seen(
        web(queue(1000), low=2, status=ZEROED, behavior=behavior), 0, listed(), [series(0)]
    )
    found = told(observation)
    assert (found.first_reason, found.decision.get("replicas")) == ("MinReplicasReached", 2)
    assert "MetricAboveTarget" not in found.also


def test_a_refused_write_says_what_was_decided() -> None:
    found = told(busy(), outcome=Outcome("failed", "webhook says no"))
    assert found.first_reason == "ScaleUpdateFailed"
    assert (found.decision.get("replicas"), found.decision.get("decided")) == (2, 4)
    assert found.facts["message"] == "webhook says no"
    assert any("webhook says no" in each for each in found.sentences)
    assert found.change.startswith("What refuses the write")


def test_in_shadow_mode_the_mode_is_what_would_have_to_change() -> None:
    found = told(busy(), mode="shadow")
    assert (found.first_reason, found.also[0]) == ("ShadowMode", "MetricAboveTarget")
    assert found.change.startswith("podscale runs in replace mode")


def test_a_write_that_was_not_tried_is_not_told_as_done() -> None:
    # While a watch is silent nothing shrinks, however often it is decided.
    found = told(busy(), outcome=Outcome("not_tried"))
    assert found.first_reason == "MetricAboveTarget"
    assert (found.decision["replicas"], found.decision["decided"]) == (2, 4)
    assert "4 is not written" in found.sentences[-1]
    assert found.sentences[-1].endswith("the size is still 2.")
    assert "the next pass decides again" in found.change


def test_what_is_measured_by_a_clock_ahead_of_ours_is_not_of_the_past() -> None:
    ahead = structs.replace(series(2000), series=[ExternalSample({}, Sample(2000, NOW + 3.0))])
    found = told(seen(web(queue(1000)), 2, listed(pod(), pod()), [ahead]))
    assert any("measured 0 s ago" in each for each in found.sentences)


def test_a_write_that_was_put_off_is_not_told_as_done() -> None:
    found = told(busy(), outcome=Outcome("not_tried", "a watch is silent"))
    assert found.first_reason == "MetricAboveTarget"
    assert (found.decision.get("replicas"), found.decision.get("decided")) == (2, 4)
    assert "4 is not written yet; the size is still 2: a watch is silent." in found.sentences
    assert found.change == PUT_OFF


def test_a_put_off_that_moves_nothing_is_not_told() -> None:
    steady = seen(web(cpu(50)), 2, listed(pod(), pod()), [usage(500, 500)])
    found = told(steady, outcome=Outcome("not_tried"))
    assert (found.decision.get("replicas"), found.decision.get("decided")) == (2, None)
    assert found.change != PUT_OFF


def test_a_metric_of_unknown_type_is_not_found() -> None:
    found = told(seen(web(MetricSpec("Cheese")), 2, listed(pod(), pod()), []))
    assert found.first_reason == "MetricNotFound"


def test_what_would_have_to_change_is_a_number() -> None:
    steady = seen(web(cpu(50)), 2, listed(pod(), pod()), [usage(500, 500)])
    # Below 45 % two pods are still asked for, and at exactly the target no tolerance matters.
    assert told(steady).change == "cpu rises above 55%, or cpu falls to 25% or below."


def test_a_window_that_holds_promises_nothing_where_the_direction_is_disabled() -> None:
    rules = structs.replace(DOWN, select="Disabled")
    hpa = structs.replace(web(cpu(50)), behavior=Behavior(UP, rules))
    idle = seen(hpa, 6, listed(*[pod()] * 6), [usage(*[100] * 6)])
    past = structs.replace(FREE, recommendations=(Recommendation(6, NOW - 60.0),))
    found = explain(decide(idle, past, Settings(), NOW).trace)
    assert found.first_reason == "ScaleDownStabilized"
    assert found.change == (
        "The recommendation of 6 expires in 4 min at the earliest, or you shorten the window. "
        "Also needed: behavior.scaleDown.selectPolicy is set to Max or Min."
    )


def test_annotations_that_cannot_be_read_are_mentioned() -> None:
    found = told(busy(options=Options(problems=("podscale.io/paused: 'yes' is neither",))))
    assert any("podscale.io/paused" in each for each in found.sentences)


@pytest.mark.parametrize("seed", range(20))
def test_a_few_of_many_series_tell_what_all_of_them_would(seed: int) -> None:
    chance = random.Random(seed)
    values = [chance.randrange(0, 4_000) for _ in range(30)]
    observation = seen(
        web(queue(chance.choice((100, 1_000, 5_000, 40_000)))), 4, listed(*[pod()] * 4),
        [series(*values)],
    )  # fmt: skip
    told = tell(decide(observation, FREE, Settings(), NOW).trace)
    numbers = [
        whatif.number(told, observation=structs.replace(observation, answers=(series(value),)))
        for value in values
    ]
    expected = told.trace.decided if told.trace.decided in numbers else numbers[0]
    assert whatif.with_one_series(told) == expected


def test_of_thousands_of_series_a_dozen_are_tried(monkeypatch) -> None:
    tried = 0
    actual = whatif.number

    def counted(*given: Any, **named: Any) -> int | None:
        nonlocal tried
        tried += 1
        return actual(*given, **named)

    monkeypatch.setattr(whatif, "number", counted)
    observation = seen(web(queue(1_000)), 4, listed(*[pod()] * 4), [series(*range(5_000))])
    explain(decide(observation, FREE, Settings(), NOW).trace)
    assert 0 < tried < 40


@pytest.mark.parametrize(
    ("metrics", "answers"),
    [
        ((cpu(50),), [usage(500, None, 500)]),
        ((per_pod(500),), [usage(500, None, 500)]),
        ((cpu(50), queue(1000)), [usage(500, None, 500), NotFound("NotFound", "no such metric")]),
    ],
)
def test_pods_that_were_seen_and_decided_nothing_are_named_beside(
    metrics: tuple[MetricSpec, ...], answers: list[Any]
) -> None:
    pods = listed(pod(), pod(), pod(owner="Job/batch"))
    found = told(seen(web(*metrics), 3, pods, answers))
    assert found.first_reason not in ("MissingPodMetrics", "ForeignPodsCounted")
    assert {"MissingPodMetrics", "ForeignPodsCounted"} <= set(found.also)
    assert found.facts["owner"] == "Job/batch"


def test_foreign_pods_are_not_counted_where_no_metric_counts_pods() -> None:
    pods = listed(pod(), pod(owner="Job/batch"))
    waiting = MetricSpec("External", "queue", average_value_milli=1000)
    found = told(seen(web(waiting), 2, pods, [series(2000)]))
    assert "ForeignPodsCounted" not in found.also
    assert not any("Job/batch" in each for each in found.sentences)


def test_of_thousands_of_metrics_a_few_are_tried(monkeypatch) -> None:
    made = 0
    actual = Inputs.trace

    def counted(inputs: Inputs) -> Trace:
        nonlocal made
        made += 1
        return actual(inputs)

    monkeypatch.setattr(Inputs, "trace", counted)
    for values in ((0,), (2000,), (500,), (1000,)):
        for least, most in ((1, 100), (10, 10)):
            hpa = web(*[queue(1000)] * 2000, low=least, high=most)
            told(seen(hpa, 10, listed(*[pod()] * 10), [series(*values)] * 2000))
    assert made < 8 * 60


def test_a_metric_that_is_not_found_names_the_doctors_command() -> None:
    missing = NotFound("NoSeries", "no rule exposes requests; the nearest name is request")
    found = told(seen(web(per_pod(500)), 2, listed(pod(), pod()), [missing]))
    assert found.first_reason == "MetricNotFound"
    assert "the nearest name is request; podscale doctor hpa/web -n shop finds" in found.change


NOT_READ = Unavailable("PrometheusUnreachable", "Prometheus cannot be read since 22:32:56Z")


@pytest.mark.parametrize(
    ("found", "reason", "why"),
    [
        (
            lambda: told(
                seen(web(cpu(50), options=Options(problems=("podscale.io/fallbak: unknown",))),
                     2, listed(pod(), pod()), [NOT_READ])
            ),
            "MetricUnavailable",
            "cpu cannot be used: Prometheus cannot be read since 22:32:56Z, so the size stays at 2",
        ),
        (
            lambda: told(
                structs.replace(
                    busy(options=Options(problems=("podscale.io/fallbak: unknown",))),
                    scale=ScaleUnreadable('"web" not found', kind="NotFound"),
                )
            ),
            "TargetNotFound",
            'The scale of Deployment/web cannot be read: "web" not found.',
        ),
        (
            lambda: told(seen(web(cpu(50)), 2, listed(pod(), pod()), [usage(500, 500)])),
            "WithinTolerance",
            "cpu is 50% of the request (target 50%, usage 500m per pod), within the tolerance",
        ),
        (
            lambda: told(idle(), remembered((4, 60.0))),
            "ScaleDownStabilized",
            "cpu is 5% of the request (target 50%, usage 50m per pod), which needs 1 replica",
        ),
        (
            lambda: told(busy(), mode="shadow"),
            "ShadowMode",
            "cpu is 100% of the request (target 50%, usage 1 per pod), which needs 4 replicas",
        ),
    ],
)  # fmt: skip
def test_why_is_one_sentence_from_the_metric_to_the_outcome(
    found: Any, reason: str, why: str
) -> None:
    explained = found()
    assert explained.first_reason == reason
    assert explained.why.startswith(why)
    assert explained.why.endswith(".")
    assert ". " not in explained.why
