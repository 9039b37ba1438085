"""Sentences agree in number with what they tell of."""

from typing import Literal

import pytest
from msgspec import structs

from hpa.decide.api.reading import DOWN, UP
from hpa.decide.api.spec import Behavior, HpaStatus, MetricSpec
from hpa.decide.metrics.answers import BAD_SELECTOR
from hpa.decide.observation import Observation, ScaleUnreadable
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from hpa.explain.explanation import explain
from podscale.core.metrics import (
    CLUSTER_APIS,
    ExternalSamples,
    ObjectSample,
    PodSamples,
    Refused,
    Sample,
)
from podscale.core.pod_state import PodReadiness
from podscale.explain.explanation import Explanation
from podscale.kube.objects.autoscaler import (
    AutoscalerCondition,
    CrossVersionObjectReference,
    Policy,
)
from podscale.kube.objects.pod import TemplateContainer, WirePodTemplate
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


def words(observation: Observation, *entries: tuple[int, float]) -> str:
    found = explain(decide(observation, remembered(*entries), Settings(), NOW).trace)
    return " ".join([*found.sentences, found.change])


JOB = pod(owner="Job/web")
ONE_FOREIGN = seen(web(cpu(50)), 2, listed(pod(), JOB), [usage(900, 90)])
TWO_FOREIGN = seen(web(cpu(50)), 3, listed(pod(), JOB, JOB), [usage(900, 90, 90)])
ONE_SILENT = seen(web(per_pod(1000)), 2, listed(pod(), pod()), [usage(1500, None)])
TWO_SILENT = seen(web(per_pod(1000)), 3, listed(pod(), pod(), pod()), [usage(1500, None, None)])
ONE_UNREADY = seen(web(cpu(50)), 2, listed(pod(), pod(ready=PodReadiness.FALSE)), [usage(600, 900)])
ONE_GONE = seen(web(per_pod(1000)), 1, listed(pod()), [usage(1500, 100)])


@pytest.mark.parametrize(
    ("observation", "expected"),
    [
        (ONE_FOREIGN, "web-1 belongs to Job/web and is counted"),
        (TWO_FOREIGN, "web-1, web-2 belong to Job/web and are counted"),
        (ONE_SILENT, "web-1 reports the metric."),
        (TWO_SILENT, "web-1, web-2 report the metric."),
        (ONE_UNREADY, "web-1 becomes ready"),
        (ONE_GONE, "still contain web-1, which does not exist"),
    ],
)
def test_one_is_told_as_one_and_two_as_two(observation: Observation, expected: str) -> None:
    assert expected in words(observation)


@pytest.mark.parametrize(
    ("age_s", "expected"),
    [
        (120.0, "expires in 3 min at the earliest, or"),
        (300.0, "expires at the next check, or"),
    ],
)
def test_a_window_that_ends_now_is_not_told_to_end_in_no_time(age_s: float, expected: str) -> None:
    idle = seen(web(cpu(50)), 4, listed(*[pod()] * 4), [usage(*[50] * 4)])
    assert expected in words(idle, (4, age_s))


def explained(observation: Observation, *entries: tuple[int, float]) -> Explanation:
    return explain(decide(observation, remembered(*entries), Settings(), NOW).trace)


ZEROED = HpaStatus(conditions=(AutoscalerCondition("ScaledToZero", "True", "ScaledToZero"),))


def test_a_target_woken_to_min_tells_what_the_metrics_ask_for() -> None:
    hpa = web(queue(1000), low=4, status=ZEROED, behavior=Behavior(UP, DOWN))
    found = explained(seen(hpa, 0, listed(), [series(2000)]))
    assert found.change == "minReplicas is lowered from 4 (the metrics ask for 2)."
    assert found.facts["desired"] == 2
    assert "minReplicas raises 2 to 4." in found.sentences


def test_a_metric_that_no_pod_shares_is_told_as_a_whole() -> None:
    a_pod = MetricSpec("External", "queue", average_value_milli=30_000)
    hpa = web(a_pod, low=0, status=ZEROED, behavior=Behavior(UP, DOWN))
    asleep = words(seen(hpa, 0, listed(), [series(72_000, 3_000)]))
    assert "queue is 75 and there are no pods (target 30 per pod)" in asleep
    awake = words(seen(hpa, 2, listed(pod(), pod()), [series(75_000)]))
    assert "queue is 37.5 per pod (target 30)" in awake


def test_whose_answer_it_was_is_told() -> None:
    found = structs.replace(series(75_000), answered_by="keda")
    told = words(seen(web(queue(1000)), 2, listed(pod(), pod()), [found]))
    assert ", answered by the external backend keda" in told


@pytest.mark.parametrize("found", [
    (queue(1000), series(75_000)), (cpu(50), usage(900, 90)),
], ids=["external", "cpu"])  # fmt: skip
def test_what_the_clusters_metrics_api_answered_is_told(
    found: tuple[MetricSpec, ExternalSamples | PodSamples],
) -> None:
    metric, answer = found
    answer = structs.replace(answer, answered_by=CLUSTER_APIS)
    told = words(seen(web(metric), 2, listed(pod(), pod()), [answer]))
    assert ", answered by the cluster's metrics API" in told
    assert "external backend" not in told


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("Value", "is 90 (target 60)"), ("AverageValue", "is 45 per pod (target 30)")],
)
def test_an_object_with_both_targets_is_told_by_the_one_that_counts(
    kind: str, expected: str
) -> None:
    both = MetricSpec(
        "Object", "hits", described=CrossVersionObjectReference("Service", "web", "v1"),
        target_type=kind, value_milli=60_000, average_value_milli=30_000,
    )  # fmt: skip
    answer = ObjectSample(Sample(90_000, NOW), NOW)
    assert expected in words(seen(web(both), 2, listed(pod(), pod()), [answer]))


WHOLE = TemplateContainer("app", {"memory": 0})


@pytest.mark.parametrize(
    ("container", "template", "expected"),
    [
        pytest.param(
            "",
            WirePodTemplate((WHOLE,)),
            "The pods get a request for memory above zero, or the metric uses averageValue",
            id="requests of nothing",
        ),
        pytest.param(
            "app",
            WirePodTemplate((WHOLE,)),
            "Container app gets a request for memory above zero, or",
            id="of nothing in one container",
        ),
        pytest.param(
            "",
            WirePodTemplate((TemplateContainer("app", {}),), (), {"cpu": 1000}),
            "Pod web-0 gets a request for memory, or",
            id="not at the level of pods",
        ),
        pytest.param(
            "",
            WirePodTemplate((TemplateContainer("app", {}),)),
            "Container app gets a request for memory, or",
            id="none in a container",
        ),
    ],
)
def test_a_request_is_asked_for_where_it_is_missing(
    container: str, template: WirePodTemplate, expected: str
) -> None:
    kind = "ContainerResource" if container else "Resource"
    memory = MetricSpec(kind, "memory", container, average_utilization=50)
    pods = structs.replace(listed(pod()), templates=(template,))
    found = explained(seen(web(memory), 1, pods, [usage(900)]))
    assert found.first_reason == "RequestMissing"
    assert found.change.startswith(expected)


def test_the_tolerance_is_told_of_the_metric_that_it_holds() -> None:
    # queue asks for 2 in any case; load would ask for 3 without its tolerance.
    hpa = web(queue(1000), per_pod(1000, "load"))
    answers = [series(700), usage(1050, 1050)]
    found = explained(seen(hpa, 2, listed(pod(), pod()), answers))
    assert found.first_reason == "WithinTolerance"
    assert found.facts["metric"] == "load"
    # Where it falls, queue still asks for 2.
    assert found.change.startswith("load rises above 1.1, or a smaller tolerance is set")
    assert "target_value" not in found.facts


def test_a_selector_that_cannot_be_parsed_is_the_specs_fault() -> None:
    bad = Refused(BAD_SELECTOR, '"Foo" is not a valid label selector operator')
    found = explained(seen(web(queue(1000)), 1, listed(pod()), [bad]))
    assert found.first_reason == "MetricNotFound"
    assert found.change == (
        'The selector of queue is corrected in the HPA ("Foo" is not a valid label selector '
        "operator), or you set a fallback (podscale.io/fallback)."
    )


@pytest.mark.parametrize("stage", ["mapping", "get"])
@pytest.mark.parametrize("text", ["503: the server is down", "discovery timed out"])
def test_a_scale_that_could_not_be_read_is_not_told_as_a_target_that_is_gone(
    stage: Literal["mapping", "get"], text: str
) -> None:
    said = words(structs.replace(ONE_FOREIGN, scale=ScaleUnreadable(text, stage)))
    assert f"The scale of Deployment/web cannot be read: {text}." in said
    assert "Whether Deployment/web exists is not known from that." in said
    assert f"The scale of Deployment/web becomes readable ({text})." in said
    assert "under the name in scaleTargetRef" not in said


def test_a_target_that_is_gone_is_told_as_gone() -> None:
    gone = ScaleUnreadable('deployments.apps "web" not found', kind="NotFound")
    said = words(structs.replace(ONE_FOREIGN, scale=gone))
    assert 'cannot be read: deployments.apps "web" not found.' in said
    assert "is not known" not in said
    assert said.endswith("The target exists under the name in scaleTargetRef.")


BUSY = [usage(*[2500] * 4)]
IDLE = [usage(*[300] * 12)]
SLOW = Behavior(
    structs.replace(UP, policies=(Policy("Pods", 2, 60),)),
    structs.replace(DOWN, window_s=120, policies=(Policy("Percent", 100, 15),)),
)


@pytest.mark.parametrize(
    ("observation", "entries", "headline"),
    [
        pytest.param(
            seen(web(per_pod(1000), high=9), 8, listed(*[pod()] * 8), [usage(*[1800] * 8)]), (),
            "qps is 1.8 per pod (target 1), which needs 15 replicas; maxReplicas cuts 15 to 9, so "
            "the size changes from 8 to 9.",
            id="a bound",
        ),
        pytest.param(
            seen(web(per_pod(1000), behavior=SLOW), 4, listed(*[pod()] * 4), BUSY), (),
            "qps is 2.5 per pod (target 1), which needs 10 replicas; a policy (2 pods in 60 s) "
            "allows at most 6 for now, so the size changes from 4 to 6.",
            id="a policy",
        ),
        pytest.param(
            seen(web(per_pod(1000), behavior=SLOW), 12, listed(*[pod()] * 12), IDLE), ((9, 60.0),),
            "qps is 0.3 per pod (target 1), which needs 4 replicas; the 2 min stabilization window "
            "still contains a recommendation of 9, so the size changes from 12 to 9.",
            id="a change that a window limits",
        ),
        pytest.param(
            seen(web(per_pod(1000), queue(10_000)), 2, listed(pod(), pod()),
                 [usage(1500, 1500), series(2000)]), (),
            "qps is 1.5 per pod (target 1), which needs 3 replicas, the most of 2 metrics, so the "
            "size changes from 2 to 3.",
            id="the most of two",
        ),
    ],
)  # fmt: skip
def test_the_headline_has_metric_value_target_limit_and_outcome(
    observation: Observation, entries: tuple[tuple[int, float], ...], headline: str
) -> None:
    assert explained(observation, *entries).why == headline


def test_a_window_is_told_with_the_bound_that_the_present_size_is() -> None:
    idle = seen(web(per_pod(1000), behavior=SLOW), 9, listed(*[pod()] * 9), [usage(*[850] * 9)])
    assert (
        "Held at 9, the present size: the 2 min stabilization window still contains a "
        "recommendation of 10 (metrics now ask for 8)." in explained(idle, (10, 60.0)).sentences
    )


def test_a_percent_is_utilization_and_never_a_share_of_the_target() -> None:
    busy = seen(web(cpu(60)), 2, listed(pod(), pod()), [usage(1130, 1130)])
    (text,) = (each for each in explained(busy).sentences if each.startswith("cpu is "))
    assert text == (
        "cpu is 113% of the request (target 60%, usage 1130m per pod), measured 0 s ago, "
        "1.883 times the target."
    )
