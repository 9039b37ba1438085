"""One function for each kind of the HPA's cases: calls what decides and compares."""

from typing import Any

from hpa.cluster.overlapping_hpas import OverlappingHpas
from hpa.cluster.writer import status_changes
from hpa.decide.api.spec import HPA, HpaStatus, MetricSpec, MetricStatus
from hpa.decide.behavior import (
    LimitedReplicas,
    changes_within,
    limit,
    limit_legacy,
    rate_limit,
    stabilize,
    stabilize_down,
    stored,
)
from hpa.decide.conclusion import conclude
from hpa.decide.decision import Decision
from hpa.decide.metrics.answers import summed
from hpa.decide.metrics.measuring import Invalid, MetricEvaluation, Valid, evaluate
from hpa.decide.metrics.replicas import (
    NO_MATCH,
    Tolerance,
    by_average_value,
    metric_ratio,
    resource_ratio,
    usage_per_pod,
)
from hpa.decide.metrics.requests import RequestProblem, requests_of
from hpa.decide.observation import Observation, Scale
from hpa.decide.pods import Pods, group
from hpa.decide.reconcile import decide, replay
from hpa.decide.settings import ACTUAL, acts_at_once
from podscale.core.quantity import format_milli
from podscale.core.selectors.selector import parse
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from tests.conformance import hpa_inputs as given
from tests.conformance.cases import Case
from tests.conformance.hpa_inputs import NOW


def tolerance(inputs: Case) -> Tolerance:
    return Tolerance(inputs["tolerance"]["down"], inputs["tolerance"]["up"])


def measured(case: Case, spec: MetricSpec, answer: Any, current: int) -> Valid | Invalid:
    inputs = case["inputs"]
    listed = given.pods(inputs["pods"], [inputs.get("resource", "cpu")])
    hpa = HPA(
        "test-namespace", "test-hpa", CrossVersionObjectReference("Deployment", "web"), 10, (spec,)
    )
    scale = Scale(current, current, "name=test-pod")
    pass_ = MetricEvaluation(
        Observation(hpa, scale, listed, (answer,)),
        listed,
        scale,
        tolerance(inputs),
        given.settings(case),
        NOW,
        ACTUAL,
    )
    return evaluate(spec, answer, pass_)


def bare(text: str) -> str:
    """Return the calculator's own error: without the prefixes of its callers."""
    for prefix in ("utilization: ", "usage: "):
        if text.startswith("failed to get ") and prefix in text:
            return text.split(prefix, 1)[1]
    return text


def compare(case: Case, found: Valid | Invalid, expected: Case, shown: dict[str, str]) -> None:
    if "error" in expected:
        assert isinstance(found, Invalid)
        text = bare(found.text)
        if case.get("error_match"):
            assert expected["error"] in text
        else:
            assert text == expected["error"]
        return
    assert isinstance(found, Valid), found
    got = {"replicas": found.replicas}
    got |= {key: getattr(found.calculation, field) for key, field in shown.items()}
    assert got == expected


def resource_utilization(case: Case, inputs: Case, expected: Case) -> None:
    container = inputs["container"]
    spec = MetricSpec(
        "ContainerResource" if container else "Resource",
        inputs["resource"],
        container=container,
        average_utilization=inputs["target_utilization"],
    )
    answer = given.resource_answer(inputs["metrics"], container)
    found = measured(case, spec, answer, inputs["current_replicas"])
    compare(case, found, expected, {"utilization": "utilization", "raw_average": "usage"})


def resource_average(case: Case, inputs: Case, expected: Case) -> None:
    container = inputs["container"]
    spec = MetricSpec(
        "ContainerResource" if container else "Resource",
        inputs["resource"],
        container=container,
        average_value_milli=inputs["target_average"],
    )
    answer = given.resource_answer(inputs["metrics"], container)
    found = measured(case, spec, answer, inputs["current_replicas"])
    compare(case, found, expected, {"average": "usage"})


def pods_metric(case: Case, inputs: Case, expected: Case) -> None:
    spec = MetricSpec("Pods", "qps", average_value_milli=inputs["target_average"])
    found = measured(case, spec, given.pods_answer(inputs["metrics"]), inputs["current_replicas"])
    compare(case, found, expected, {"average": "usage"})


def object_value(case: Case, inputs: Case, expected: Case) -> None:
    described = CrossVersionObjectReference("Deployment", "some-deployment", "apps/v1")
    target = inputs["target_value"]
    spec = MetricSpec("Object", "qps", described=described, target_type="Value", value_milli=target)
    answer = given.object_answer(inputs["usage"])
    found = measured(case, spec, answer, inputs["current_replicas"])
    compare(case, found, expected, {"usage": "usage"})


def external_value(case: Case, inputs: Case, expected: Case) -> None:
    spec = MetricSpec("External", "qps", value_milli=inputs["target_value"])
    answer = given.external_answer(inputs["values"])
    found = measured(case, spec, answer, inputs["current_replicas"])
    compare(case, found, expected, {"usage": "usage"})


def average_value(case: Case, inputs: Case, usage: int) -> Any:
    guards = given.settings(case).is_after_1_36
    return by_average_value(
        inputs["status_replicas"],
        inputs["target_average_value"],
        usage,
        tolerance(inputs),
        guards_zero=guards,
        caps=guards or case["kind"] == "external_average_value",
    )


def object_average_value(case: Case, inputs: Case, expected: Case) -> None:
    found = average_value(case, inputs, inputs["usage"])
    assert {"replicas": found.replicas, "usage": found.usage} == expected


def external_average_value(case: Case, inputs: Case, expected: Case) -> None:
    found = average_value(case, inputs, summed(inputs["values"]))
    assert {"replicas": found.replicas, "usage": found.usage} == expected


def per_pod_usage(case: Case, inputs: Case, expected: Case) -> None:
    guards = given.settings(case).is_after_1_36
    usage, replicas = inputs["usage"], inputs["status_replicas"]
    per_pod = usage_per_pod(usage, replicas, guards_zero=guards, caps=guards)
    assert per_pod == expected["per_pod"]


def group_pods(case: Case, inputs: Case, expected: Case) -> None:
    listed = given.pods(inputs["pods"], [inputs["resource"]])
    samples = {each["pod"]: given.sample(each, each.get("value", 0)) for each in inputs["metrics"]}
    groups = group(listed, samples, inputs["resource"], given.settings(case), NOW, NOW)
    assert groups.ready == expected["ready_count"]
    for name in ("unready", "missing", "ignored"):
        assert sorted(getattr(groups, name)) == sorted(expected[name]), name


def calculate_requests(case: Case, inputs: Case, expected: Case) -> None:
    listed: Pods = given.pods(inputs["pods"], [inputs["resource"]])
    gate = inputs["pod_level_resources_gate"]
    found = requests_of(listed, inputs["resource"], inputs["container"], pod_level=gate)
    if "error" in expected:
        assert isinstance(found, RequestProblem)
        assert found.text == expected["error"]
    else:
        assert found == expected["requests"]


def a_resource_ratio(case: Case, inputs: Case, expected: Case) -> None:
    found = resource_ratio(inputs["metrics"], inputs["requests"], inputs["target_utilization"])
    if found is None:
        assert expected == {"error": NO_MATCH}
        return
    assert expected == {
        "ratio": found.ratio,
        "utilization": found.utilization,
        "raw_average": found.raw_average,
    }


def a_metric_ratio(case: Case, inputs: Case, expected: Case) -> None:
    found = metric_ratio(inputs["metrics"], inputs["target_average"])
    assert {"ratio": found.ratio, "average": found.average} == expected


def legacy_limits(case: Case, inputs: Case, expected: Case) -> None:
    found = limit_legacy(
        inputs["current_replicas"],
        inputs["desired_replicas"],
        inputs["min_replicas"],
        inputs["max_replicas"],
    )
    assert {"replicas": found.replicas, "reason": found.reason} == expected


def legacy_stabilize(case: Case, inputs: Case, expected: Case) -> None:
    past = given.recommendations(inputs["recommendations"]) or ()
    window = inputs["downscale_stabilization_s"]
    found = stabilize_down(past, inputs["desired_replicas"], window, NOW)
    assert found.replicas == expected["replicas"]
    assert len(found.stored) == expected["stored_count"]
    if "stored" in expected:
        assert [each.replicas for each in found.stored] == numbers(expected["stored"])


def numbers(stored_: list[Any]) -> list[int]:
    return [each["replicas"] if isinstance(each, dict) else each for each in stored_]


def behavior_stabilize(case: Case, inputs: Case, expected: Case) -> None:
    desired = inputs["desired_replicas"]
    found = stabilize(
        given.recommendations(inputs["recommendations"]) or (),
        inputs["current_replicas"],
        desired,
        inputs["scale_up_window_s"],
        inputs["scale_down_window_s"],
        NOW,
    )
    assert found.replicas == expected["replicas"]
    if "stored" in expected:
        assert [each.replicas for each in found.stored] == numbers(expected["stored"])
    if "reason" in expected:
        is_up = desired >= inputs["current_replicas"]
        assert expected["reason"] == ("ScaleUpStabilized" if is_up else "ScaleDownStabilized")


def behavior_rate(case: Case, inputs: Case, expected: Case) -> None:
    current, desired = inputs["current_replicas"], inputs["desired_replicas"]
    both = given.events(inputs["scale_up_events"]), given.events(inputs["scale_down_events"])
    direction = "up" if desired > current else "down"
    rules = given.rules(inputs[f"scale_{direction}_rules"], direction)
    found = LimitedReplicas(desired, "DesiredWithinRange")
    if desired != current:
        rate = rate_limit(direction, current, *both, rules, NOW)
        found = limit(current, desired, inputs["min_replicas"], inputs["max_replicas"], rate)
    assert {"replicas": found.replicas, "reason": found.reason} == expected


def scale_limit(case: Case, inputs: Case, expected: Case) -> None:
    direction = inputs["direction"]
    found = rate_limit(
        direction,
        inputs["current_replicas"],
        given.events(inputs["scale_up_events"]),
        given.events(inputs["scale_down_events"]),
        given.rules(inputs["rules"], direction),
        NOW,
    )
    assert found.replicas == expected["limit"]


def store_scale_event(case: Case, inputs: Case, expected: Case) -> None:
    before = given.events(inputs["events"])
    assert changes_within(before, NOW)(60) == expected["change_in_last_60s_before"]
    after = before
    if inputs["rules"] is not None:
        change = abs(inputs["new_replicas"] - inputs["previous_replicas"])
        after = stored(before, change, given.rules(inputs["rules"], inputs["direction"]), NOW)
    assert shown_events(after) == expected["stored"]


def shown_events(events: Any) -> list[dict[str, Any]]:
    return [{"change": each.change, "outdated": each.is_outdated} for each in events]


def build_quantity(case: Case, inputs: Case, expected: Case) -> None:
    metric = MetricStatus("Resource", inputs["resource"], average_value_milli=inputs["raw_milli"])
    built: Any = status_changes(HpaStatus(), HpaStatus(metrics=(metric,)))["currentMetrics"]
    text = format_milli(expected["milli_value"], expected["format"])
    assert built[0]["resource"]["current"] == {"averageValue": text}


def update_enqueue(case: Case, inputs: Case, expected: Case) -> None:
    settings = given.settings({"inputs": {"gates": {"HPAGeneration": inputs["HPAGeneration"]}}})
    at_once = acts_at_once(settings, inputs["old_generation"], inputs["new_generation"])
    assert {"immediate": at_once, "rate_limited": not at_once} == expected


def selector_store(case: Case, inputs: Case, expected: Case) -> None:
    rivals = OverlappingHpas()
    does = {"put_if_absent": rivals.add, "put_if_present": rivals.change, "delete": rivals.drop}
    results = []
    for operation, namespace, hpa, *selector in inputs["operations"]:
        arguments = [parse(selector[0])] if selector and selector[0] is not None else []
        results.append(does[operation](namespace, hpa, *arguments))
    assert results == expected["results"]
    for match in expected["matches"]:
        # Upstream stops looking after ``limit``; we name them all.
        found = rivals.of(match["namespace"], "", [match["pod_labels"]])
        assert len(found[: match["limit"] or None]) == match["count"]


def concluded(case: Case, inputs: Case) -> tuple[Any, Decision]:
    decision = decide(given.observation(inputs), given.past(inputs), given.settings(case), NOW)
    assert replay(decision.trace) == decision
    return decision, conclude(decision, given.outcome(inputs), NOW)


def reconcile(case: Case, inputs: Case, expected: Case) -> None:
    decision, done = concluded(case, inputs)
    status = done.status
    got: dict[str, Any] = {
        "desired_replicas": status.desired_replicas,
        "scale_updated": decision.replicas is not None and given.outcome(inputs).scale == "written",
        "conditions": shown_conditions(status.conditions, expected.get("conditions", [])),
        "reconciliation": {"action": done.labels.action, "error": done.labels.error},
        "metric_computations": {m.type: [m.action, m.error] for m in done.labels.metrics},
        "cpu_utilization": next(
            (m.average_utilization for m in status.metrics if m.name == "cpu"), None
        ),
        "events": shown_messages(done.events, expected.get("events", [])),
        "current_metrics": [shown_metric(each) for each in status.metrics],
        "stored_recommendations": [each.replicas for each in done.past.recommendations or ()],
        "stored_scale_events": shown_events(
            done.past.scale_ups if done.labels.action == "scale_up" else done.past.scale_downs
        ),
        "status_written": done.is_status_changed,
    }
    assert {key: got[key] for key in expected} == expected


def shown_conditions(conditions: Any, like: list[Case]) -> list[Case]:
    keys = like[0].keys() if like else ("type", "status", "reason")
    return [{key: getattr(each, key) for key in keys} for each in conditions]


def shown_messages(events: Any, like: list[Case]) -> list[Case]:
    found = [{"type": e.type, "reason": e.reason, "message": e.message} for e in events]
    for mine, theirs in zip(found, like, strict=False):
        if "message" not in theirs:
            del mine["message"]
    return found


def shown_metric(metric: MetricStatus) -> Case:
    if not metric.type:
        return {"type": ""}
    current = {
        "value": metric.value_milli,
        "averageValue": metric.average_value_milli,
        "averageUtilization": metric.average_utilization,
    }
    is_resource = metric.type in ("Resource", "ContainerResource")
    shown: Case = {
        "type": metric.type,
        "resource" if is_resource else "metric": metric.name,
        "current": {key: value for key, value in current.items() if value is not None},
    }
    return shown | ({"container": metric.container} if metric.container else {})


CHECKS = {
    "resource_utilization": resource_utilization,
    "resource_average": resource_average,
    "pods_metric": pods_metric,
    "object_value": object_value,
    "external_value": external_value,
    "object_average_value": object_average_value,
    "external_average_value": external_average_value,
    "per_pod_usage": per_pod_usage,
    "group_pods": group_pods,
    "calculate_requests": calculate_requests,
    "resource_ratio": a_resource_ratio,
    "metric_ratio": a_metric_ratio,
    "legacy_limits": legacy_limits,
    "legacy_stabilize": legacy_stabilize,
    "behavior_stabilize": behavior_stabilize,
    "behavior_rate": behavior_rate,
    "scale_limit": scale_limit,
    "store_scale_event": store_scale_event,
    "build_quantity": build_quantity,
    "update_enqueue": update_enqueue,
    "selector_store": selector_store,
    "reconcile": reconcile,
}
