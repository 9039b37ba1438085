"""What is wrong with hand-written HPAs."""

from typing import Any

import pytest

from hpa.decide.api.reading import to_v2
from podscale.cli.evaluation.manifest import problems as problems_of
from tests.unit.hpa.decide.handwritten import TARGET, resource, written


def problems(spec: dict[str, Any], metadata: dict[str, Any] | None = None) -> list[str]:
    return problems_of(to_v2(written(spec, metadata=metadata or {})))


OK = {"metrics": [resource(type="Utilization", averageUtilization=50)]}
QUEUE = {"metric": {"name": "q"}, "target": {"type": "Value", "value": 1}}


def test_a_sound_object_has_no_findings() -> None:
    assert problems(OK) == []


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"maxReplicas": 0}, "spec.maxReplicas: 0 must be at least 1"),
        (
            {"maxReplicas": -1},
            "spec.maxReplicas: -1 must be at least 1",
        ),
        (
            {"minReplicas": 11},
            "spec.maxReplicas: must not be less than minReplicas",
        ),
        (
            {"minReplicas": -1},
            "spec.minReplicas: -1 must be at least 0",
        ),
        (
            {"minReplicas": 0},
            "spec.metrics: minReplicas 0 needs at least one Object or External metric",
        ),
        ({"scaleTargetRef": {"kind": "Deployment"}}, "spec.scaleTargetRef.name: is required"),
        (
            {"scaleTargetRef": {**TARGET, "name": "a/b"}},
            "spec.scaleTargetRef.name: a/b must be part of a path",
        ),
        (
            {"scaleTargetRef": {**TARGET, "apiVersion": "a/b/c"}},
            "scaleTargetRef.apiVersion: a/b/c must be a group and a version",
        ),
        (
            {"scaleTargetRef": {**TARGET, "apiVersion": "v1"}},
            "scaleTargetRef.apiVersion: v1 must be a group and a version",
        ),
        (
            {"scaleTargetRef": {"kind": "Deployment", "name": "web"}},
            "scaleTargetRef.apiVersion: nothing must be a group and a version",
        ),
        ({"metrics": [{"type": "Pods"}]}, "spec.metrics[0].pods: is required by the type Pods"),
        (
            {"metrics": [{**resource(type="Utilization", averageUtilization=1), "pods": {}}]},
            "spec.metrics[0].pods: must not be beside the type Resource",
        ),
        (
            {"metrics": [{"type": "Cheese"}]},
            "spec.metrics[0].type: Cheese is none of ContainerResource, External, ",
        ),
        (
            {"metrics": [resource(type="Utilization", averageUtilization=0)]},
            "averageUtilization: 0 must be at least 1",
        ),
        (
            {"metrics": [resource(type="Value", averageValue="0")]},
            "averageValue: 0 must be positive",
        ),
        (
            {"metrics": [resource(type="Average", averageUtilization=1)]},
            "target.type: Average is none of Utilization, Value, AverageValue",
        ),
        (
            {"metrics": [resource(averageUtilization=1)]},
            "target.type: nothing is none of Utilization, Value, AverageValue",
        ),
        (
            {
                "metrics": [
                    {"type": "Object", "object": {**QUEUE, "target": {"type": "AverageValue"}}}
                ]
            },
            "averageValue: averageValue or value is required",
        ),
        ({"metrics": [resource(type="Value", averageValue="1x")]}, "averageValue: 1x: "),
        (
            {"metrics": [resource(type="Utilization")]},
            "averageUtilization: averageUtilization or averageValue is required",
        ),
        (
            {"metrics": [resource(type="AverageValue", averageValue=1, averageUtilization=1)]},
            "must not be beside ",
        ),
        (
            {
                "metrics": [
                    {
                        "type": "External",
                        "external": {
                            "metric": {"name": "q"},
                            "target": {"type": "Value", "value": 1, "averageValue": 1},
                        },
                    }
                ]
            },
            "must not be beside ",
        ),
        (
            {"metrics": [{"type": "Pods", "pods": {"metric": {}, "target": {"type": "Value"}}}]},
            "metric.name: is required",
        ),
        (
            {
                "metrics": [
                    {
                        "type": "ContainerResource",
                        "containerResource": {
                            "name": "cpu",
                            "container": "A_b",
                            "target": {"type": "Utilization", "averageUtilization": 1},
                        },
                    }
                ]
            },
            "container: a lowercase RFC 1123 label",
        ),
        ({"metrics": [{"type": "Object", "object": QUEUE}]}, "describedObject.kind: is required"),
        (
            {"behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601}}},
            "stabilizationWindowSeconds: 3601 must be at most 3600",
        ),
        (
            {"behavior": {"scaleUp": {"selectPolicy": "Most"}}},
            "selectPolicy: Most is none of Max, Min, Disabled",
        ),
        (
            {"behavior": {"scaleDown": {"policies": []}}},
            "policies: at least one policy is required",
        ),
        (
            {
                "behavior": {
                    "scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1801}]}
                }
            },
            "periodSeconds: 1801 must be at most 1800",
        ),
        (
            {
                "behavior": {
                    "scaleDown": {"policies": [{"type": "Cpu", "value": 0, "periodSeconds": 1}]}
                }
            },
            "policies[0].value: 0 must be at least 1",
        ),
        (
            {"behavior": {"scaleUp": {"tolerance": "-0.1"}}},
            "tolerance: -0.1 must be at least 0",
        ),
    ],
)
def test_a_problem_names_the_field_and_what_is_wrong(spec: dict[str, Any], text: str) -> None:
    found = problems({**OK, **spec})
    assert any(text in each for each in found), found


def test_only_the_core_group_has_no_name() -> None:
    core = {"apiVersion": "v1", "kind": "ReplicationController", "name": "web"}
    assert problems({**OK, "scaleTargetRef": core}) == []
    service = {"apiVersion": "v1", "kind": "Service", "name": "web"}
    metric = {"type": "Object", "object": {**QUEUE, "describedObject": service}}
    assert problems({"metrics": [metric]}) == []


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("cpu", True),
        ("ephemeral-storage", True),
        ("hugepages-2Mi", True),
        ("nvidia.com/gpu", True),
        ("kubernetes.io/batteries", True),
        ("pods", False),
        ("gpu", False),
        ("requests.example.com/gpu", False),
    ],
)
def test_a_container_has_standard_and_qualified_resources(name: str, is_known: bool) -> None:
    target = {"type": "Utilization", "averageUtilization": 1}
    source = {"name": name, "container": "app", "target": target}
    found = problems({"metrics": [{"type": "ContainerResource", "containerResource": source}]})
    field = "spec.metrics[0].containerResource.name"
    assert found == ([] if is_known else [f"{field}: {name} is no resource of containers"])


def test_zero_may_be_the_minimum_of_an_external_metric_and_less_may_not() -> None:
    spec = {"minReplicas": 0, "metrics": [{"type": "External", "external": QUEUE}]}
    assert problems(spec) == []
    assert problems(spec | {"minReplicas": -1}) != []


@pytest.mark.parametrize("name", ["", "Web", "a_b", "x" * 254])
def test_names_are_subdomains(name: str) -> None:
    assert any("metadata.name" in each for each in problems(OK, metadata={"name": name}))
