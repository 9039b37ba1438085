"""What upstream's own tests do not pin: hpa.md section 11, row by row, and what follows it."""

from typing import Any

import pytest
from msgspec import structs

from hpa.decide.api.reading import DOWN, UP, read_rules
from hpa.decide.api.spec import Behavior, HpaStatus, MetricSpec, Rules
from hpa.decide.behavior import limit, rate_limit, stabilize_down, stored
from hpa.decide.conclusion import conclude
from hpa.decide.decision import Decision, Measured, MetricLabels, Outcome
from hpa.decide.observation import Observation, Past, Recommendation, ScaleEvent
from hpa.decide.pods import group
from hpa.decide.reconcile import decide
from hpa.decide.settings import Gates, Release, Settings
from hpa.loop.observe import questions
from podscale.core.metrics import NoData, Refused, Unavailable
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.kube.client.wire import LabelSelector, LabelSelectorRequirement
from podscale.kube.discovery import Mapper
from podscale.kube.objects import autoscaler as wire
from podscale.kube.objects.autoscaler import (
    AutoscalerCondition,
    CrossVersionObjectReference,
    Policy,
)
from tests.unit.hpa.decide.situations import (
    NOW,
    OLD,
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

UPSTREAM = Settings(cpu_initialization_s=120, initial_readiness_delay_s=10)
FREE = remembered()  # an entry without recommendations: nothing holds the number


def made(observation: Observation, past: Past = FREE, settings: Settings = UPSTREAM) -> Decision:
    return decide(observation, past, settings, NOW)


def proposal(decision: Decision) -> int | None:
    step = next(step for step in decision.trace.steps if isinstance(step, Measured))
    return step.replicas


def reasons(status: HpaStatus) -> dict[str, str]:
    return {each.type: each.reason for each in status.conditions}


def test_1_unready_pods_are_filled_with_their_own_request() -> None:
    pods = listed(
        pod(3000, ready=PodReadiness.FALSE, started=NOW - 60, since=NOW - 60), pod(), pod()
    )
    decision = made(seen(web(cpu(30)), 3, pods, [usage(0, 500, 500)]))
    assert proposal(decision) == 3


@pytest.mark.parametrize(("percent", "replicas"), [(55, 10), (45, 10), (56, 12), (44, 9)])
def test_2_tolerance_includes_both_ends(percent: int, replicas: int) -> None:
    pods = listed(*[pod()] * 10)
    decision = made(seen(web(cpu(50)), 10, pods, [usage(*[percent * 10] * 10)]))
    assert proposal(decision) == replicas


def test_3_utilization_is_truncated_before_the_ratio() -> None:
    pods = listed(*[pod()] * 10)
    decision = made(seen(web(cpu(100)), 10, pods, [usage(*[1109] * 10)]))
    assert proposal(decision) == 10


def test_4_not_ready_in_the_initialization_period_is_unready_whatever_the_window() -> None:
    young = pod(ready=PodReadiness.FALSE, started=NOW - 60, since=NOW - 50)
    decision = made(seen(web(cpu(50)), 2, listed(pod(), young), [usage(500, 500)]))
    step = decision.trace.steps[0]
    assert isinstance(step, Measured)
    assert step.result.calculation.groups.initializing == ("web-1",)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("ready", "started", "since", "bucket"),
    [
        pytest.param(PodReadiness.TRUE, NOW - 60, None, "ready", id="long ready, of a young pod"),
        pytest.param(PodReadiness.FALSE, NOW - 60, None, "initializing", id="not ready and young"),
        pytest.param(PodReadiness.TRUE, OLD, None, "ready", id="ready and old"),
        pytest.param(PodReadiness.FALSE, OLD, None, "never_ready", id="not ready since ever"),
        pytest.param(PodReadiness.ABSENT, OLD, None, "never_ready", id="no condition"),
        pytest.param(PodReadiness.TRUE, None, NOW, "never_ready", id="no start"),
    ],
)
def test_a_condition_without_a_time_is_one_of_the_zero_time(
    ready: PodReadiness, started: float | None, since: float | None, bucket: str
) -> None:
    one = pod(ready=ready, started=started, since=since)
    found = group(listed(one), usage(500).pods, "cpu", UPSTREAM, NOW, NOW)
    assert (found.ready if bucket == "ready" else len(getattr(found, bucket))) == 1


@pytest.mark.parametrize(
    ("target", "used", "tolerance", "replicas"),
    [
        # 1 - 0.41 is above 0.59 and 1 - 410 * 0.001 is not.
        pytest.param(100, 59, "410m", 10, id="410m is a little more"),
        pytest.param(100, 58, "410m", 6, id="beyond it"),
    ],
)
def test_the_tolerance_is_the_float_that_upstream_makes_of_it(
    target: int, used: int, tolerance: str, replicas: int
) -> None:
    rules = read_rules(wire.ScalingRules(tolerance=tolerance), DOWN)
    hpa = web(cpu(target), behavior=Behavior(UP, rules))
    pods = listed(*[pod()] * 10)
    decision = made(seen(hpa, 10, pods, [usage(*[used * 10] * 10)]))
    assert proposal(decision) == replicas


def test_5_disabled_shows_as_a_rate_limit() -> None:
    off = Rules(0, "Disabled", (Policy("Pods", 4, 15),))
    up, down = rate_limit("up", 10, (), (), off, NOW), rate_limit("down", 10, (), (), off, NOW)
    grown, shrunk = limit(10, 50, 1, 100, up), limit(10, 5, 1, 100, down)
    assert (grown.replicas, grown.reason) == (10, "ScaleUpLimit")
    assert (shrunk.replicas, shrunk.reason) == (10, "ScaleDownLimit")


def test_6_percent_down_truncates_the_floor() -> None:
    rules = Rules(0, "Max", (Policy("Percent", 10, 60),))
    down = rate_limit("down", 15, (), (), rules, NOW)
    assert limit(15, 1, 1, 100, down).replicas == 13


@pytest.mark.parametrize(("current", "allowed"), [(50, 56), (100, 111), (10, 11)])
def test_7_percent_up_rounds_doubles_up(current: int, allowed: int) -> None:
    rules = Rules(0, "Max", (Policy("Percent", 10, 60),))
    assert rate_limit("up", current, (), (), rules, NOW).replicas == allowed


@pytest.mark.parametrize(("current", "allowed"), [(100, 200), (1, 5)])
def test_8_default_behavior_doubles_or_adds_four(current: int, allowed: int) -> None:
    up = rate_limit("up", current, (), (), UP, NOW)
    assert limit(current, 1000, 1, 2000, up).replicas == allowed


def test_9_missing_pods_are_not_filled_at_a_ratio_of_one() -> None:
    decision = made(seen(web(cpu(50)), 2, listed(pod(), pod()), [usage(500, None)]))
    assert proposal(decision) == 2


def test_10_requests_are_read_of_ignored_pods_too() -> None:
    pods = listed(pod(), pod(None, phase=PodPhase.FAILED))
    decision = made(seen(web(cpu(50)), 2, pods, [usage(900)]))
    assert decision.replicas is None
    assert "missing request for cpu in container app of Pod web-1" in (decision.error or "")


def test_11_a_proposal_equal_to_the_size_is_accepted_beside_an_invalid_metric() -> None:
    hpa = web(per_pod(1000, "lost"), cpu(50))
    broken = Unavailable("PrometheusUnreachable", "down")
    decision = made(seen(hpa, 2, listed(pod(), pod()), [broken, usage(500, 500)]))
    assert decision.replicas is None
    assert reasons(decision.status)["ScalingActive"] == "ValidMetricFound"
    assert decision.labels.error == "internal"
    assert decision.error is not None
    assert not decision.closing


def test_12_the_last_obsolete_slot_is_reused() -> None:
    past = (Recommendation(10, NOW - 600), Recommendation(9, NOW - 540))
    found = stabilize_down(past, 3, 300, NOW)
    assert [each.replicas for each in found.stored] == [10, 3]


@pytest.mark.parametrize(
    ("events", "stored_at"),
    [
        pytest.param((100, 20), (100, 20, 0), id="none marked"),
        pytest.param((100, 2000), (100, 0), id="beyond the longest period"),
        pytest.param((-100, 20), (0, 20), id="marked by a shorter one before"),
        pytest.param((-100, -20, 10), (-100, 0, 10), id="the last marked"),
    ],
)
def test_a_slot_once_out_of_reach_stays_free(
    events: tuple[int, ...], stored_at: tuple[int, ...]
) -> None:
    # Ages; those below zero carry the mark.
    past = tuple(ScaleEvent(1, NOW - abs(each), each < 0) for each in events)
    found = stored(past, 3, Rules(0, "Max", (Policy("Pods", 4, 1800),)), NOW)
    assert [NOW - each.at for each in found] == [abs(each) for each in stored_at]


def test_13_without_behavior_min_wins_over_the_rate_limit() -> None:
    woken = (AutoscalerCondition("ScaledToZero", "True", "ScaledToZero"),)
    hpa = web(queue(1000), low=9, status=HpaStatus(conditions=woken))
    decision = made(seen(hpa, 0, listed(), [series(1000)]))
    assert decision.replicas == 9
    assert reasons(decision.status)["ScalingLimited"] == "TooFewReplicas"


def test_14_no_load_at_all_goes_to_min() -> None:
    pods = listed(*[pod()] * 5)
    decision = made(seen(web(cpu(50), low=2), 5, pods, [usage(0, 0, 0, 0, 0)]))
    assert (proposal(decision), decision.replicas) == (0, 2)


def test_15_metric_actions_compare_with_the_previous_status() -> None:
    hpa = web(cpu(50), status=HpaStatus(current_replicas=9))
    decision = made(seen(hpa, 2, listed(pod(), pod()), [usage(500, 500)]))
    assert decision.labels.metrics == (MetricLabels("Resource", "scale_down", "none"),)
    assert decision.labels.action == "none"


def test_16_a_woken_hpa_without_a_waking_metric_stays_at_zero() -> None:
    woken = (AutoscalerCondition("ScaledToZero", "True", "ScaledToZero"),)
    hpa = web(cpu(50), status=HpaStatus(conditions=woken))
    decision = made(seen(hpa, 0, listed(), [NoData("EmptyResult", "")]))
    assert decision.replicas is None
    assert reasons(decision.status)["ScalingActive"] == "FailedGetResourceMetric"


def growing(**rest: Any) -> Observation:
    return seen(web(cpu(50), **rest), 2, listed(pod(), pod()), [usage(1000, 1000)])


def on_ingress(kind: str, selector: LabelSelector | None = None) -> MetricSpec:
    return MetricSpec(
        "Object",
        "hits",
        described=CrossVersionObjectReference("Ingress", "web", "networking.k8s.io/v1"),
        selector=selector,
        target_type=kind,
        value_milli=1000 if kind == "Value" else None,
        average_value_milli=1000 if kind == "AverageValue" else None,
    )


@pytest.mark.parametrize(
    ("release", "about"),
    [
        ("1.36", "unable to get metric hits: Ingress on shop web/"),
        ("1.37", "unable to get metric hits on Ingress shop/web: "),
        ("1.38", "unable to get metric hits on Ingress shop/web: "),
    ],
)
@pytest.mark.parametrize(
    ("kind", "middle"), [("Value", ""), ("AverageValue", "failed to get hits object metric: ")]
)
def test_only_an_average_of_an_object_is_prefixed_twice(
    kind: str, middle: str, release: Release, about: str
) -> None:
    text = f"{about}unable to fetch metrics from custom metrics API: down"
    decision = made(
        seen(web(on_ingress(kind)), 1, listed(pod()), [Unavailable("Unreachable", "down")]),
        settings=Settings(release=release),
    )
    active = {each.type: each.message for each in decision.status.conditions}["ScalingActive"]
    assert active == f"the HPA was unable to compute the replica count: {text}"
    assert decision.error is not None
    assert decision.error.endswith(f"failed to get object metric value: {middle}{text}")


NEAR = LabelSelector(None, (LabelSelectorRequirement("a", "Foo", ()),))
NO_OPERATOR = '"Foo" is not a valid label selector operator'
EXTERNAL = "failed to get queue external metric value: "


@pytest.mark.parametrize(
    ("spec", "prefix"),
    [
        (on_ingress("Value", NEAR), "failed to get object metric value: "),
        (on_ingress("AverageValue", NEAR), "failed to get object metric value: "),
        (on_ingress("", NEAR), "failed to get object metric value: "),  # before the target
        (
            MetricSpec("Pods", "load", selector=NEAR, average_value_milli=1),
            "failed to get pods metric value: ",
        ),
        (
            MetricSpec("External", "queue", selector=NEAR, average_value_milli=1),
            f"{EXTERNAL}failed to get queue external metric: ",
        ),
        (
            MetricSpec("External", "queue", selector=NEAR, value_milli=1),
            f"{EXTERNAL}failed to get external metric queue: ",
        ),
    ],
)
def test_a_selector_that_cannot_be_parsed_is_told_bare(spec: MetricSpec, prefix: str) -> None:
    hpa = web(spec)
    (answer,) = questions(hpa, "app=web", Mapper([]))
    assert isinstance(answer, Refused)
    decision = made(seen(hpa, 1, listed(pod()), [answer]))
    active = {each.type: each.message for each in decision.status.conditions}["ScalingActive"]
    assert active == f"the HPA was unable to compute the replica count: {NO_OPERATOR}"
    assert decision.error is not None
    assert decision.error.endswith(f"first error is: {prefix}{NO_OPERATOR}")


def concluded(observation: Observation, outcome: Outcome) -> Decision:
    return conclude(made(observation), outcome, NOW)


def test_a_failing_status_write_comes_before_the_metric_event_and_the_metric_error_stands() -> None:
    lost = seen(web(cpu(50)), 2, listed(pod(), pod()), [NoData("EmptyResult", "")])
    done = concluded(lost, Outcome(status_error="backend down"))
    assert [event.reason for event in done.events] == [
        "FailedGetResourceMetric",
        "FailedUpdateStatus",
        "FailedComputeMetricsReplicas",
    ]
    assert done.error is not None
    assert done.error.startswith("failed to compute desired number of replicas")


def test_a_rescale_with_a_failing_status_write_counts_as_both() -> None:
    done = concluded(growing(), Outcome(status_error="backend down"))
    assert (done.labels.action, done.labels.error) == ("scale_up", "internal")


def test_a_conflict_to_the_end_is_a_failed_rescale() -> None:
    done = concluded(growing(), Outcome("conflict", "the object has been modified"))
    assert [event.reason for event in done.events] == ["FailedRescale"]
    assert done.events[0].message == (
        "New size: 4; reason: cpu resource utilization (percentage of request) above target; "
        "error: the object has been modified"
    )
    assert done.status.desired_replicas == 0  # as before the pass
    assert done.status.last_scale_s is None
    assert (done.labels.action, done.labels.error) == ("none", "internal")


def test_a_failed_rescale_is_not_remembered_and_its_recommendation_is() -> None:
    observation = growing(behavior=Behavior(UP, DOWN))
    refused = concluded(observation, Outcome("failed", "forbidden"))
    assert refused.past.scale_ups == ()
    assert [each.replicas for each in refused.past.recommendations or ()] == [4]
    written = concluded(observation, Outcome())
    assert [each.change for each in written.past.scale_ups] == [2]


@pytest.mark.parametrize(("window_s", "replicas"), [
    pytest.param(300, None, id="outage-and-rate-window-fit"),
    pytest.param(180, 1, id="only-the-outage-fits"),
])  # fmt: skip
def test_a_size_of_before_an_outage_holds_for_the_stabilization_window(
    window_s: int, replicas: int | None
) -> None:
    outage_s, rate_window_s = 170, 120
    hpa = web(cpu(50), behavior=Behavior(UP, structs.replace(DOWN, window_s=window_s)))
    pods = listed(*[pod()] * 4)
    down = [Unavailable("PrometheusTimeout", "down")]
    past = decide(seen(hpa, 4, pods, [usage(*[500] * 4)]), FREE, UPSTREAM, NOW).past
    for second in range(15, outage_s, 15):
        failed = decide(seen(hpa, 4, pods, down), past, UPSTREAM, NOW + second)
        assert (failed.replicas, failed.past.recommendations) == (None, past.recommendations)
        past = failed.past
    # The rate's window is almost full, and what it says still far too low.
    too_low = seen(hpa, 4, pods, [usage(*[100] * 4)])
    after = decide(too_low, past, UPSTREAM, NOW + outage_s + rate_window_s - 1)
    assert after.replicas == replicas


def test_the_pod_named_for_a_missing_request_is_the_first_by_name() -> None:
    pods = listed(pod(), pod(None), pod(None))
    decision = made(seen(web(cpu(50)), 3, pods, [usage(500, 500, 500)]))
    assert "Pod web-1" in (decision.error or "")


def test_a_rescale_that_leaves_the_very_same_status_writes_none() -> None:
    first = growing()
    status = concluded(first, Outcome()).status
    again = structs.replace(first, hpa=structs.replace(first.hpa, status=status))
    assert concluded(first, Outcome()).is_status_changed
    assert not concluded(again, Outcome()).is_status_changed


def test_a_write_that_was_not_tried_leaves_no_trace_in_status_or_events() -> None:
    done = concluded(growing(), Outcome("not_tried"))
    assert done.events == ()
    assert not done.is_status_changed
    assert done.past.scale_ups == ()


def test_a_transition_time_moves_only_with_the_status() -> None:
    before = HpaStatus(
        2,
        2,
        conditions=(
            AutoscalerCondition("AbleToScale", "True", "SucceededGetScale", "", NOW - 500),
            AutoscalerCondition("ScalingActive", "False", "FailedGetResourceMetric", "", NOW - 500),
        ),
    )
    observation = seen(web(cpu(50), status=before), 2, listed(pod(), pod()), [usage(500, 500)])
    able, active, limited = made(observation).status.conditions
    assert (able.reason, able.last_transition_time) == ("ReadyForNewScale", NOW - 500)
    assert (active.reason, active.last_transition_time) == ("ValidMetricFound", NOW)
    assert (limited.reason, limited.last_transition_time) == ("DesiredWithinRange", NOW)


def test_an_unchanged_status_is_not_written() -> None:
    observation = seen(web(cpu(50)), 2, listed(pod(), pod()), [usage(500, 500)])
    first = made(observation)
    hpa = web(cpu(50), status=first.status)
    again = made(seen(hpa, 2, listed(pod(), pod()), [usage(500, 500)]))
    assert first.is_status_changed
    assert not again.is_status_changed


def test_average_value_within_tolerance_follows_the_status() -> None:
    spec = MetricSpec("External", "queue", average_value_milli=1000)
    observation = seen(web(spec), 10, listed(*[pod()] * 10), [series(11_000)], status=12)
    assert made(observation).replicas == 12


def test_the_error_label_of_a_spec_error_depends_on_the_release() -> None:
    hpa = web(MetricSpec("CheddarCheese"))
    observation = seen(hpa, 2, listed(pod(), pod()), [])
    assert made(observation).labels.error == "spec"
    assert made(observation, settings=Settings(release="1.36")).labels.error == "internal"


def test_generation_is_written_from_1_37_on() -> None:
    observation = growing(generation=7)
    assert made(observation).status.observed_generation == 7
    assert made(observation, settings=Settings(release="1.36")).status.observed_generation is None
    off = Settings(gates=Gates(generation=False))
    assert made(observation, settings=off).status.observed_generation is None
