"""Hand-written objects of every version: defaults, and what v1 hides away."""

import json
from typing import Any

import pytest

from hpa.decide.api.reading import DEFAULT_METRIC, DOWN, UP, ConversionError, read, to_v2
from hpa.decide.api.spec import HPA, MetricSpec, Rules
from podscale.cli.evaluation.manifest import problems
from podscale.kube.objects import autoscaler as wire
from podscale.kube.objects.autoscaler import AutoscalerCondition, Policy
from tests.unit.hpa.decide.handwritten import TARGET, hpa, resource, written


def test_nothing_written_is_one_replica_and_80_percent_of_cpu() -> None:
    found = hpa({})
    assert found.min_replicas == 1
    assert found.metrics == (DEFAULT_METRIC,)
    assert found.behavior is None


def test_an_empty_behavior_fills_both_directions() -> None:
    found = hpa({"behavior": {}}).behavior
    assert found is not None
    assert (found.up, found.down) == (UP, DOWN)


def test_behavior_is_filled_field_by_field() -> None:
    policies = [{"type": "Pods", "value": 1, "periodSeconds": 60}]
    down = {"policies": policies, "tolerance": "5m"}
    found = hpa({"behavior": {"scaleUp": {"selectPolicy": "Min"}, "scaleDown": down}}).behavior
    assert found is not None
    assert found.up == Rules(0, "Min", UP.policies)
    assert found.down == Rules(None, "Max", (Policy("Pods", 1, 60),), 0.005)


def test_quantities_become_milli_units() -> None:
    found = hpa({"metrics": [resource(type="AverageValue", averageValue="1500m")]})
    assert found.metrics[0].average_value_milli == 1500
    memory = {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}
    found = hpa({"metrics": [{"type": "Resource", "resource": memory}]})
    assert found.metrics[0].average_value_milli == 2**30 * 1000


def test_no_selector_and_an_empty_one_are_told_apart() -> None:
    def external(metric: dict[str, Any]) -> str:
        source = {"metric": metric, "target": {"type": "Value", "value": 1}}
        found = hpa({"metrics": [{"type": "External", "external": source}]})
        return str(found.metrics[0].selector)

    assert external({"name": "q"}) == "None"
    assert external({"name": "q", "selector": {}}) == (
        "&LabelSelector{MatchLabels:map[string]string{},"
        "MatchExpressions:[]LabelSelectorRequirement{},}"
    )
    expression = {"key": "q", "operator": "In", "values": ["a", "b"]}
    assert external(
        {"name": "q", "selector": {"matchLabels": {"b": "2", "a": "1"},
                                   "matchExpressions": [expression]}}
    ) == (
        "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:"
        "[]LabelSelectorRequirement{LabelSelectorRequirement{Key:q,Operator:In,Values:[a b],},},}"
    )  # fmt: skip


def test_our_own_kind_has_the_same_schema() -> None:
    spec = {"metrics": [resource(type="Utilization", averageUtilization=60)]}
    assert hpa(spec, "autoscaling.podscale.io/v1") == hpa(spec)


V1_METRICS = [
    {"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": 70}},
    {"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "100Mi"}},
    {"type": "Pods", "pods": {"metricName": "qps", "targetAverageValue": "10"}},
    {
        "type": "Object",
        "object": {"metricName": "hits", "target": TARGET, "targetValue": "5"},
    },
    {
        "type": "Object",
        "object": {
            "metricName": "hits",
            "target": TARGET,
            "targetValue": "0",
            "averageValue": "5",
        },
    },
    {
        "type": "External",
        "external": {
            "metricName": "queue",
            "metricSelector": {"matchLabels": {"q": "a"}},
            "targetAverageValue": "3",
        },
    },
]


def test_targets_of_v1_are_read() -> None:
    found = v1_with("metrics", json.dumps(V1_METRICS))
    cpu, memory, pods, by_value, by_average, external = found.metrics
    assert cpu.average_utilization == 70
    assert memory.average_value_milli == 100 * 2**20 * 1000
    assert (pods.name, pods.average_value_milli) == ("qps", 10_000)
    assert (by_value.target_type, by_value.value_milli) == ("Value", 5000)
    assert by_value.described is not None
    assert by_value.described.name == "web"
    assert (by_average.target_type, by_average.average_value_milli) == ("AverageValue", 5000)
    assert external.average_value_milli == 3000
    assert external.selector is not None
    assert external.selector.match_labels == {"q": "a"}


def test_v1_has_metrics_first_and_cpu_last() -> None:
    annotations = {
        "autoscaling.alpha.kubernetes.io/metrics": json.dumps(V1_METRICS[2:3]),
        "autoscaling.alpha.kubernetes.io/behavior": json.dumps(
            {"ScaleUp": {"SelectPolicy": "Disabled", "StabilizationWindowSeconds": 30}}
        ),
        "autoscaling.alpha.kubernetes.io/conditions": json.dumps(
            [{"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"}]
        ),
        "podscale.io/paused": "true",
    }
    found = hpa(
        {"targetCPUUtilizationPercentage": 55},
        "autoscaling/v1",
        metadata={"annotations": annotations},
        status={"currentReplicas": 2, "currentCPUUtilizationPercentage": 40},
    )
    assert [each.name for each in found.metrics] == ["qps", "cpu"]
    assert found.metrics[1].average_utilization == 55
    assert found.behavior is not None
    assert (found.behavior.up.select, found.behavior.up.window_s) == ("Disabled", 30)
    assert found.status.conditions == (
        AutoscalerCondition("AbleToScale", "True", "ReadyForNewScale"),
    )
    assert found.options.is_paused


def test_v1_alone_is_80_percent_of_cpu() -> None:
    assert hpa({}, "autoscaling/v1").metrics == (DEFAULT_METRIC,)


def test_v1_annotations_on_a_v2_object_have_no_effect() -> None:
    annotations = {"autoscaling.alpha.kubernetes.io/metrics": "not JSON at all"}
    found = to_v2(written({}, metadata={"annotations": annotations}))
    assert found.metadata.annotations == {}
    assert read(found).metrics == (DEFAULT_METRIC,)


def v1_with(key: str, text: str, **rest: Any) -> HPA:
    annotations = {f"autoscaling.alpha.kubernetes.io/{key}": text}
    return hpa({}, "autoscaling/v1", metadata={"annotations": annotations}, **rest)


@pytest.mark.parametrize("key", ["metrics", "behavior", "conditions"])
@pytest.mark.parametrize("text", ["{", "", "5", '["text"]', '[{"type": 5}]', '{"ScaleUp": 5}'])
def test_an_annotation_of_v1_that_cannot_be_decoded_is_left_out(key: str, text: str) -> None:
    status = {"currentCPUUtilizationPercentage": 40}
    assert v1_with(key, text, status=status) == hpa({}, "autoscaling/v1", status=status)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("metrics", [{"type": "Pods", "pods": {"metricName": "q", "targetAverageValue": "ten"}}]),
        ("metrics", [{"type": "Resource", "resource": {"targetAverageUtilization": 2**31}}]),
        ("behavior", {"ScaleUp": {"Tolerance": "wide"}}),
        ("behavior", {"ScaleUp": {"StabilizationWindowSeconds": 2**31}}),
    ],
)
def test_amounts_that_are_none_make_an_annotation_undecodable(key: str, value: Any) -> None:
    assert v1_with(key, json.dumps(value)) == hpa({}, "autoscaling/v1")


@pytest.mark.parametrize("text", ["{}", "null", '{"ScaleUp": null, "ScaleDown": null}'])
def test_a_behavior_annotation_without_a_direction_sets_none(text: str) -> None:
    assert v1_with("behavior", text).behavior is None
    assert v1_with("behavior", '{"ScaleUp": {}}').behavior is not None


@pytest.mark.parametrize(("zero", "kept"), [("0", None), ("0m", None), ("7", "7")])
def test_beside_an_average_a_zero_of_v1_is_no_value(zero: str, kept: str | None) -> None:
    source = {"metricName": "hits", "target": TARGET, "targetValue": zero, "averageValue": "5"}
    annotations = {
        "autoscaling.alpha.kubernetes.io/metrics": json.dumps(
            [{"type": "Object", "object": source}]
        )
    }
    found = to_v2(written({}, "autoscaling/v1", metadata={"annotations": annotations}))
    assert found.spec.metrics is not None
    assert found.spec.metrics[0].object is not None
    assert found.spec.metrics[0].object.target == wire.MetricTarget(kept, "5", type="AverageValue")
    assert problems(found) == []


@pytest.mark.parametrize("version", ["autoscaling/v2beta2", "autoscaling/v3", "apps/v1"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(ConversionError, match=version):
        to_v2(written({}, version))


def test_a_field_of_the_wrong_type_is_named() -> None:
    with pytest.raises(ConversionError, match="maxReplicas"):
        to_v2(written({"maxReplicas": "ten"}))


POLICY = {"type": "Pods", "value": 2**31, "periodSeconds": 60}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"maxReplicas": 2**31}, r"spec\.maxReplicas: 2147483648 does not fit"),
        ({"minReplicas": -(2**31) - 1}, r"spec\.minReplicas"),
        (
            {"metrics": [resource(type="Utilization", averageUtilization=2**40)]},
            r"spec\.metrics\[0\]\.resource\.target\.averageUtilization",
        ),
        (
            {"behavior": {"scaleUp": {"policies": [POLICY]}}},
            r"spec\.behavior\.scaleUp\.policies\[0\]\.value",
        ),
    ],
)
def test_what_go_has_no_room_for_is_refused(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(ConversionError, match=field):
        to_v2(written(spec))


def test_what_is_wide_in_go_is_read() -> None:
    found = hpa(
        {"metrics": [resource(type="AverageValue", averageValue=2**40)]},
        metadata={"generation": 2**40},
        status={"observedGeneration": 2**40},
    )
    assert found.generation == found.status.observed_generation == 2**40
    assert found.metrics[0].average_value_milli == 2**40 * 1000


def test_an_unknown_type_keeps_its_name() -> None:
    assert hpa({"metrics": [{"type": "CheddarCheese"}]}).metrics == (MetricSpec("CheddarCheese"),)
