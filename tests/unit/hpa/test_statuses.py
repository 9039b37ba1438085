"""What a status patch holds, and when it is worth a write."""

import json
from typing import Any

import pytest
from msgspec import structs

from hpa.cluster.writer import REPORTS_S, is_status_due, status_changes
from hpa.decide.api.reading import read
from hpa.decide.api.spec import HpaStatus, MetricStatus
from hpa.decide.conditions import put
from podscale.kube.client.wire import LabelSelector, convert
from podscale.kube.objects import autoscaler as wire
from podscale.kube.objects.autoscaler import AutoscalerCondition, CrossVersionObjectReference
from tests.unit.hpa.hpas import PLAIN_HPA

NOW = 1_795_000_000.0
OLD = HpaStatus(
    2,
    2,
    NOW - 600,
    (
        MetricStatus("Pods", "load", average_value_milli=1000),
        MetricStatus("Resource", "cpu", average_value_milli=50, average_utilization=50),
    ),
    (AutoscalerCondition("AbleToScale", "True", "ReadyForNewScale", "ok", NOW - 600),),
)
HPA = structs.replace(PLAIN_HPA, status=OLD)


def metrics(load: int, utilization: int) -> HpaStatus:
    return structs.replace(
        OLD,
        metrics=(
            MetricStatus("Pods", "load", average_value_milli=load),
            MetricStatus("Resource", "cpu", average_value_milli=1, average_utilization=utilization),
        ),
    )


@pytest.mark.parametrize(
    ("new", "age_s", "is_written"),
    [
        pytest.param(metrics(1099, 50), 0.0, False, id="moved-by-less-than-a-tenth-of-the-target"),
        pytest.param(metrics(1100, 50), 0.0, True, id="moved-by-a-tenth-of-the-target"),
        pytest.param(metrics(900, 50), 0.0, True, id="moved-down"),
        pytest.param(metrics(1000, 54), 0.0, False, id="utilization-within"),
        pytest.param(metrics(1000, 55), 0.0, True, id="utilization-moved"),
        pytest.param(metrics(1001, 50), REPORTS_S, True, id="after-five-minutes-anything"),
        pytest.param(structs.replace(OLD, current_replicas=3), 0.0, True, id="replicas"),
        pytest.param(structs.replace(OLD, desired_replicas=3), 0.0, True, id="desired"),
        pytest.param(structs.replace(OLD, last_scale_s=NOW), 0.0, True, id="last-scale-time"),
        pytest.param(structs.replace(OLD, observed_generation=2), 0.0, True, id="generation"),
        pytest.param(structs.replace(OLD, conditions=()), 0.0, True, id="conditions"),
        pytest.param(structs.replace(OLD, metrics=()), 0.0, True, id="metrics-gone"),
        pytest.param(
            structs.replace(OLD, metrics=(MetricStatus(), OLD.metrics[1])), 0.0, True, id="failed"
        ),
    ],
)
def test_values_alone_wait_and_everything_else_is_written_at_once(
    new: HpaStatus, age_s: float, is_written: bool
) -> None:
    assert is_status_due(HPA, new, age_s, deadband=0.1) == is_written
    assert is_status_due(HPA, new, age_s, deadband=0.0)


def test_only_what_differs_is_in_the_patch() -> None:
    assert status_changes(OLD, OLD) == {}
    assert status_changes(OLD, structs.replace(OLD, current_replicas=3)) == {"currentReplicas": 3}
    assert status_changes(OLD, structs.replace(OLD, last_scale_s=NOW + 0.9)) == {
        "lastScaleTime": "2026-11-18T11:06:40Z"
    }
    assert status_changes(OLD, structs.replace(OLD, metrics=())) == {"currentMetrics": None}


@pytest.mark.parametrize(
    ("status", "wire"),
    [
        (MetricStatus(), {"type": ""}),
        (
            MetricStatus("Resource", "memory", average_value_milli=2**30 * 1000),
            {"type": "Resource",
             "resource": {"name": "memory", "current": {"averageValue": "1Gi"}}},
        ),
        (
            MetricStatus("ContainerResource", "cpu", "app", average_value_milli=250,
                         average_utilization=25),
            {"type": "ContainerResource", "containerResource": {
                "name": "cpu", "container": "app",
                "current": {"averageValue": "250m", "averageUtilization": 25}}},
        ),
        (
            MetricStatus("Object", "load",
                         described=CrossVersionObjectReference("Service", "s", "v1"),
                         selector=LabelSelector({"a": "b"}), value_milli=1500),
            {"type": "Object", "object": {
                "metric": {"name": "load", "selector": {"matchLabels": {"a": "b"}}},
                "describedObject": {"kind": "Service", "name": "s", "apiVersion": "v1"},
                "current": {"value": "1500m"}}},
        ),
        (
            MetricStatus("External", "queue", average_value_milli=7000),
            {"type": "External", "external": {
                "metric": {"name": "queue"}, "current": {"averageValue": "7"}}},
        ),
    ],
)  # fmt: skip
def test_metrics_in_wire_form(status: MetricStatus, wire: dict[str, Any]) -> None:
    assert status_changes(OLD, structs.replace(OLD, metrics=(status,)))["currentMetrics"] == [wire]


def test_a_status_survives_its_way_to_the_wire_and_back() -> None:
    status = HpaStatus(
        3,
        4,
        1_750_000_000.0,
        (
            MetricStatus("Resource", "memory", average_value_milli=2**30 * 1000),
            MetricStatus("Pods", "qps", average_value_milli=1500),
            MetricStatus(),
        ),
        (
            AutoscalerCondition(
                "AbleToScale", "True", "ReadyForNewScale", "text", 1_749_999_000.0, 5
            ),
        ),
        7,
    )
    body: Any = status_changes(HpaStatus(), status)
    assert body["currentMetrics"][0]["resource"]["current"] == {"averageValue": "1Gi"}
    assert body["currentMetrics"][2] == {"type": ""}
    back = convert({"status": json.loads(json.dumps(body))}, wire.Autoscaler)
    assert read(back).status == status


def test_the_generation_that_somebody_wrote_into_a_condition_stays() -> None:
    # As upstream's: what is not its own to write it neither changes nor drops.
    old = AutoscalerCondition("AbleToScale", "False", "FailedGetScale", "down", NOW - 60, 5)
    conditions = [old]
    put(conditions, "AbleToScale", "True", "SucceededGetScale", "ok", NOW)
    put(conditions, "ScalingActive", "True", "ValidMetricFound", "ok", NOW)
    assert [each.observed_generation for each in conditions] == [5, None]
    patch: Any = status_changes(
        HpaStatus(conditions=(old,)), HpaStatus(conditions=tuple(conditions))
    )
    assert [each.get("observedGeneration") for each in patch["conditions"]] == [5, None]
    assert "observedGeneration" not in patch["conditions"][1]
