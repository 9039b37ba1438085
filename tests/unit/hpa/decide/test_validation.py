"""What is found wrong with hand-written objects."""

from typing import Any

import pytest

from hpa.decide.api.conversion import to_v2
from hpa.decide.api.validation import validate
from hpa.decide.settings import Release
from tests.unit.hpa.decide.handwritten import TARGET, resource, written


def problems(spec: dict[str, Any], **rest: Any) -> list[str]:
    metadata = rest.pop("metadata", {})
    return [str(each) for each in validate(to_v2(written(spec, metadata=metadata)), **rest)]


OK = {"metrics": [resource(type="Utilization", averageUtilization=50)]}
QUEUE = {"metric": {"name": "q"}, "target": {"type": "Value", "value": 1}}


def test_a_sound_object_has_no_findings() -> None:
    assert problems(OK) == []


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"maxReplicas": 0}, "spec.maxReplicas: Required value"),
        (
            {"maxReplicas": -1},
            "spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1",
        ),
        (
            {"minReplicas": 11},
            "spec.maxReplicas: Invalid value: 10: must be greater than or equal to `minReplicas`",
        ),
        (
            {"minReplicas": -1},
            "spec.minReplicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            {"minReplicas": 0},
            "spec.metrics: Forbidden: must specify at least one Object or External metric",
        ),
        ({"scaleTargetRef": {"kind": "Deployment"}}, "spec.scaleTargetRef.name: Required value"),
        (
            {"scaleTargetRef": {**TARGET, "name": "a/b"}},
            "spec.scaleTargetRef.name: Invalid value: \"a/b\": may not contain '/'",
        ),
        (
            {"scaleTargetRef": {**TARGET, "apiVersion": "a/b/c"}},
            "unexpected GroupVersion string: a/b/c",
        ),
        (
            {"scaleTargetRef": {**TARGET, "apiVersion": "v1"}},
            'scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group',
        ),
        (
            {"scaleTargetRef": {"kind": "Deployment", "name": "web"}},
            'scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group',
        ),
        ({"metrics": [{"type": "Pods"}]}, "must populate information for the given metric source"),
        (
            {"metrics": [{**resource(type="Utilization", averageUtilization=1), "pods": {}}]},
            "spec.metrics[0].pods: Forbidden: must populate the given metric source only",
        ),
        ({"metrics": [{"type": "Cheese"}]}, 'Unsupported value: "Cheese"'),
        ({"metrics": [resource(type="Utilization", averageUtilization=0)]}, "greater than 0"),
        ({"metrics": [resource(type="Value", averageValue="0")]}, "must be positive"),
        (
            {"metrics": [resource(type="Average", averageUtilization=1)]},
            'target.type: Invalid value: "Average": must be either Utilization, Value, or',
        ),
        ({"metrics": [resource(averageUtilization=1)]}, "must specify a metric target type"),
        (
            {"metrics": [resource(averageUtilization=1)]},
            'target.type: Invalid value: "": must be either Utilization, Value, or AverageValue',
        ),
        (
            {
                "metrics": [
                    {"type": "Object", "object": {**QUEUE, "target": {"type": "AverageValue"}}}
                ]
            },
            "averageValue: Required value: must set either a target value or averageValue",
        ),
        ({"metrics": [resource(type="Value", averageValue="1x")]}, "averageValue: Invalid value"),
        ({"metrics": [resource(type="Utilization")]}, "averageUtilization: Required value"),
        (
            {"metrics": [resource(type="AverageValue", averageValue=1, averageUtilization=1)]},
            "may not set both",
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
            "may not set both",
        ),
        (
            {"metrics": [{"type": "Pods", "pods": {"metric": {}, "target": {"type": "Value"}}}]},
            "metric.name: Required value",
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
            "container: Invalid value",
        ),
        ({"metrics": [{"type": "Object", "object": QUEUE}]}, "describedObject.kind: Required"),
        (
            {"behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601}}},
            "must be less than or equal to 3600",
        ),
        ({"behavior": {"scaleUp": {"selectPolicy": "Most"}}}, "selectPolicy: Unsupported value"),
        ({"behavior": {"scaleDown": {"policies": []}}}, "must specify at least one Policy"),
        (
            {
                "behavior": {
                    "scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1801}]}
                }
            },
            "periodSeconds: Invalid value: 1801",
        ),
        (
            {
                "behavior": {
                    "scaleDown": {"policies": [{"type": "Cpu", "value": 0, "periodSeconds": 1}]}
                }
            },
            "policies[0].value: Invalid value: 0",
        ),
        (
            {"behavior": {"scaleUp": {"tolerance": "-0.1"}}},
            'tolerance: Invalid value: "-100m": must be greater than or equal to 0',
        ),
    ],
)
def test_findings_are_told_in_the_servers_words(spec: dict[str, Any], text: str) -> None:
    found = problems({**OK, **spec})
    assert any(text in each for each in found), found


def test_only_the_core_group_has_no_name() -> None:
    core = {"apiVersion": "v1", "kind": "ReplicationController", "name": "web"}
    assert problems({**OK, "scaleTargetRef": core}) == []
    service = {"apiVersion": "v1", "kind": "Service", "name": "web"}
    metric = {"type": "Object", "object": {**QUEUE, "describedObject": service}}
    assert problems({"metrics": [metric]}) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cpu", []),
        ("ephemeral-storage", []),
        ("hugepages-2Mi", []),
        ("nvidia.com/gpu", []),
        ("kubernetes.io/batteries", []),
        ("pods", ["must be a standard resource for containers"]),
        (
            "gpu",
            [
                "must be a standard resource type or fully qualified",
                "must be a standard resource for containers",
            ],
        ),
        ("requests.example.com/gpu", ["doesn't follow extended resource name standard"]),
    ],
)
def test_a_container_has_standard_and_qualified_resources(name: str, expected: list[str]) -> None:
    target = {"type": "Utilization", "averageUtilization": 1}
    source = {"name": name, "container": "app", "target": target}
    found = problems({"metrics": [{"type": "ContainerResource", "containerResource": source}]})
    field = "spec.metrics[0].containerResource.name"
    assert found == [f'{field}: Invalid value: "{name}": {each}' for each in expected]


def test_zero_may_be_the_minimum_of_an_external_metric_and_less_may_not() -> None:
    spec = {"minReplicas": 0, "metrics": [{"type": "External", "external": QUEUE}]}
    assert problems(spec) == []
    assert problems(spec | {"minReplicas": -1}) != []


@pytest.mark.parametrize("name", ["", "Web", "a_b", "x" * 254])
def test_names_are_subdomains(name: str) -> None:
    assert any("metadata.name" in each for each in problems(OK, metadata={"name": name}))


@pytest.mark.parametrize(
    ("release", "missing", "times"),
    [
        ("1.36", "spec.maxReplicas: Required value: must be set and greater than 0", 2),
        ("1.37", "spec.maxReplicas: Required value", 1),
        ("1.38", "spec.maxReplicas: Required value", 1),
    ],
)
def test_a_release_has_its_own_words(release: Release, missing: str, times: int) -> None:
    found = problems({**OK, "maxReplicas": 0, "metrics": [{"type": "Best"}]}, release=release)
    assert missing in found
    assert len([each for each in found if each.startswith("spec.metrics[0].type: ")]) == times
