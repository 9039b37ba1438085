"""``podscale hpa`` on the real plane, with the rights of its manifests."""

from pathlib import Path
from typing import Any

from tests.cluster.hpa_stack import HpaStack
from tests.cluster.plane import Plane
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.tools.process import wait_until

CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}


def hpa(plane: Plane, namespace: str, name: str = "web") -> Any:
    path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{name}"
    return plane.admin.get(path)


def replicas(plane: Plane, namespace: str, name: str = "web") -> int:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    return int(plane.admin.get(path)["spec"]["replicas"])


def test_a_deployment_below_its_minimum_is_raised_without_a_metric(
    plane: Plane, tmp_path: Path
) -> None:
    with plane.namespace() as namespace, HpaStack(plane, tmp_path) as stack:
        plane.apply(
            deployment("web", namespace), horizontal_pod_autoscaler("web", namespace, CPU, least=3)
        )
        wait_until(
            "three replicas", lambda: replicas(plane, namespace) == 3, 20, tuple(stack.replicas)
        )
        wait_until(
            "the status says so",
            lambda: hpa(plane, namespace)["status"].get("lastScaleTime"),
            10,
            tuple(stack.replicas),
        )
        status = hpa(plane, namespace)["status"]
        assert status["conditions"][0]["reason"] in ("SucceededRescale", "SucceededGetScale")
        events = plane.kubectl("get", "events", "-n", namespace, "-o", "name")
        assert events
