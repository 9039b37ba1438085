"""What the API server makes of autoscaling/v1 is what we make of it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from hpa.decide.api.reading import PREFIX, read, to_v2
from hpa.decide.api.spec import HPA
from tests.cluster.plane import Plane

SERVICE = {"kind": "Service", "name": "web", "apiVersion": "v1"}
POLICIES = [{"Type": "Pods", "Value": 2, "PeriodSeconds": 60}]
UP = {"StabilizationWindowSeconds": 30, "Policies": POLICIES}
NOT_DOWN = {"SelectPolicy": "Disabled", "Policies": POLICIES}


def written(name: str) -> dict[str, Any]:
    percent, annotations = OBJECTS[name]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec: dict[str, Any] = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 5}
    if percent is not None:
        spec["targetCPUUtilizationPercentage"] = percent
    texts = {
        PREFIX + key: value if isinstance(value, str) else json.dumps(value)
        for key, value in annotations.items()
    }
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "annotations": texts},
        "spec": spec,
    }


def a_metric(kind: str, **source: Any) -> dict[str, Any]:
    return {"type": kind, kind[0].lower() + kind[1:]: source}


OBJECTS: Mapping[str, tuple[int | None, Mapping[str, Any]]] = {
    "nothing": (None, {}),
    "cpu": (70, {}),
    "metrics-and-cpu": (
        70,
        {"metrics": [a_metric("Pods", metricName="load", targetAverageValue="1500m")]},
    ),
    "resources": (
        None,
        {
            "metrics": [
                a_metric("Resource", name="memory", targetAverageValue="1Gi"),
                a_metric("Resource", name="cpu", targetAverageUtilization=30),
                a_metric(
                    "ContainerResource", name="cpu", container="app", targetAverageUtilization=40
                ),
            ]
        },
    ),
    "object-value": (
        None,
        {"metrics": [a_metric("Object", target=SERVICE, metricName="hits", targetValue="10")]},
    ),
    "object-average": (
        None,
        {
            "metrics": [
                a_metric(
                    "Object",
                    target=SERVICE,
                    metricName="hits",
                    targetValue="0",
                    averageValue="2",
                    selector={"matchLabels": {"a": "b"}},
                )
            ]
        },
    ),
    "external": (
        None,
        {
            "metrics": [
                a_metric("External", metricName="queue", targetValue="30"),
                a_metric(
                    "External",
                    metricName="jobs",
                    targetAverageValue="3",
                    metricSelector={"matchLabels": {"a": "b"}},
                ),
            ]
        },
    ),
    "metrics-no-json": (None, {"metrics": "[{"}),
    "metrics-no-list": (60, {"metrics": {"type": "Pods"}}),
    "metrics-none": (None, {"metrics": []}),
    "behavior": (70, {"behavior": {"ScaleUp": UP, "ScaleDown": None}}),
    "behavior-of-select": (70, {"behavior": {"ScaleDown": NOT_DOWN}}),
    "behavior-empty": (70, {"behavior": {}}),
    "behavior-null": (70, {"behavior": {"ScaleUp": None, "ScaleDown": None}}),
    "behavior-no-json": (70, {"behavior": "{"}),
    "behavior-too-large": (70, {"behavior": {"ScaleUp": {"StabilizationWindowSeconds": 2**40}}}),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(plane: Plane) -> Mapping[str, HPA]:
    """Each object as the API server reads it out in v2."""
    found = {}
    with plane.namespace() as namespace:
        for name in OBJECTS:
            where = f"namespaces/{namespace}/horizontalpodautoscalers"
            plane.admin.post(f"/apis/autoscaling/v1/{where}", written(name))
            answer = plane.admin.get(f"/apis/autoscaling/v2/{where}/{name}")
            found[name] = read(to_v2(answer))
    return found


@pytest.mark.parametrize("name", OBJECTS)
def test_a_v1_object_is_read_as_the_api_server_does(name: str, made: Mapping[str, HPA]) -> None:
    ours, theirs = read(to_v2(written(name))), made[name]
    for field in ("target", "min_replicas", "max_replicas", "metrics", "behavior"):
        assert getattr(ours, field) == getattr(theirs, field), field
