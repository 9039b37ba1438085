"""Workloads of every shape, each with two VPAs: one for each of two recommenders."""

from collections.abc import Mapping
from typing import Any

from tests.cluster.plane import Plane
from tests.cluster.workloads import deployment

NAMES = ("default", "other")  # recommenders
_GI = "Gi"


def workloads(namespace: str, count: int) -> list[dict[str, Any]]:
    """Return Deployments of one or two pods with one to three containers."""
    return [
        deployment(
            f"work-{index}", namespace, replicas=1 + index % 2, containers=containers_of(index)
        )
        for index in range(count)
    ]


def containers_of(index: int) -> tuple[str, ...]:
    return ("app", "side", "log")[: 1 + index % 3]


def vpas(namespace: str, count: int) -> list[dict[str, Any]]:
    """Return two VPAs per workload, alike but for their recommender."""
    return [_vpa(namespace, index, name) for index in range(count) for name in NAMES]


def _vpa(namespace: str, index: int, recommender: str) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"work-{index}"},
        "updatePolicy": {"updateMode": "Off"},
    }
    if recommender != "default":
        spec["recommenders"] = [{"name": recommender}]
    policies = _POLICIES[index % len(_POLICIES)]
    if policies:
        spec["resourcePolicy"] = {"containerPolicies": policies}
    metadata: dict[str, Any] = {"name": f"{recommender}-{index}", "namespace": namespace}
    if index % 5 == 4:
        key = "vpa-post-processor.kubernetes.io/app_integerCPU"
        metadata["annotations"] = {key: "true"}
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": metadata,
        "spec": spec,
    }


_POLICIES: list[list[dict[str, Any]]] = [
    [],
    [{"containerName": "app", "minAllowed": {"cpu": "200m", "memory": f"1{_GI}"}}],
    [{"containerName": "*", "maxAllowed": {"cpu": "150m", "memory": "100Mi"}}],
    [{"containerName": "*", "controlledResources": ["memory"]}],
    [{"containerName": "side", "mode": "Off"}],
    [],
    # Contradicting bounds: the larger loses, as upstream has it (D18).
    [{"containerName": "*", "minAllowed": {"cpu": "2"}, "maxAllowed": {"cpu": "1"}}],
    [
        {"containerName": "*", "maxAllowed": {"cpu": "100m"}},
        {"containerName": "app", "controlledValues": "RequestsOnly"},
    ],
    [],
]


def is_off(index: int) -> bool:
    """Whether the container ``side`` of this workload is in mode Off."""
    policies = _POLICIES[index % len(_POLICIES)]
    return any(policy.get("mode") == "Off" for policy in policies)


def recommendations(plane: Plane, namespace: str) -> Mapping[str, dict[str, Any]]:
    """Return what stands in every VPA's status, by name: the recommendation, and conditions."""
    path = f"/apis/autoscaling.k8s.io/v1/namespaces/{namespace}/verticalpodautoscalers"
    found = {}
    for vpa in plane.admin.get(path)["items"]:
        status = vpa.get("status") or {}
        conditions = {c["type"]: c["status"] for c in status.get("conditions", ())}
        containers = (status.get("recommendation") or {}).get("containerRecommendations", [])
        found[vpa["metadata"]["name"]] = {"containers": containers, "conditions": conditions}
    return found


def differences(found: Mapping[str, dict[str, Any]], count: int) -> list[str]:
    """Return where the two VPAs of a workload differ, or have no recommendation."""
    wrong = []
    for index in range(count):
        theirs, ours = (found[f"{name}-{index}"] for name in NAMES)
        if not theirs["containers"] or theirs != ours:
            wrong.append(f"{index}: {theirs} beside {ours}")
    return wrong


def checkpoints(plane: Plane, namespace: str) -> dict[str, dict[str, Any]]:
    """Return the status of every checkpoint, by name."""
    path = f"/apis/autoscaling.k8s.io/v1/namespaces/{namespace}/verticalpodautoscalercheckpoints"
    items = plane.admin.get(path)["items"]
    return {item["metadata"]["name"]: item.get("status") or {} for item in items}
