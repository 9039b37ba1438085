"""The VPA on the real plane: components enabled one at a time, as upstream's example does."""

from pathlib import Path
from typing import Any

from tests.cluster.metrics_stack import MetricsStack, busy_pod
from tests.cluster.plane import Plane
from tests.cluster.vpa_stack import VpaStack
from tests.cluster.workloads import deployment
from tests.integration.exporter import Exporter
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import wait_until


def vpa(namespace: str, mode: str, name: str = "hamster") -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "updatePolicy": {"updateMode": mode},
        },
    }


def read(plane: Plane, namespace: str, name: str = "hamster") -> Any:
    path = f"/apis/autoscaling.k8s.io/v1/namespaces/{namespace}/verticalpodautoscalers/{name}"
    return plane.admin.get(path)


def target(plane: Plane, namespace: str) -> dict[str, str] | None:
    status = read(plane, namespace).get("status") or {}
    entries = (status.get("recommendation") or {}).get("containerRecommendations") or ()
    return entries[0]["target"] if entries else None


def cpu(plane: Plane, namespace: str) -> set[str]:
    return {
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        for pod in plane.pods(namespace)
        if not pod["metadata"].get("deletionTimestamp")
    }


def uids(plane: Plane, namespace: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in plane.pods(namespace)}


def template(plane: Plane, namespace: str) -> Any:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/hamster"
    return plane.admin.get(path)["spec"]["template"]


def test_recommend_then_evict_while_admission_lives_then_patched_pods(
    plane: Plane, exporter: Exporter, tmp_path: Path
) -> None:
    with (
        plane.namespace() as namespace,
        PrometheusServer(tmp_path, scrape_configs=[exporter.scrape_config()]) as prometheus,
        MetricsStack(plane, prometheus, exporter, tmp_path),
        VpaStack(plane, tmp_path) as stack,
    ):
        plane.apply(deployment("hamster", namespace, replicas=2), vpa(namespace, "Recreate"))
        wait_until("pods", lambda: len(plane.ready_pods(namespace)) == 2, 30)
        names = plane.ready_pods(namespace)
        exporter.set(*(busy_pod(namespace, name, requests=1, cpu=0.4) for name in names))
        before, written = uids(plane, namespace), template(plane, namespace)

        stack.start("recommender", "--metrics-source=api", "--recommender-interval=1s")
        wait_until(
            "a recommendation", lambda: target(plane, namespace) is not None, 60, stack.programs
        )
        assert cpu(plane, namespace) == {"100m"}
        columns = plane.kubectl("get", "vpa", "-n", namespace)
        assert columns.split("\n")[0].split() == ["NAME", "MODE", "CPU", "MEM", "PROVIDED", "AGE"]
        assert columns.split("\n")[1].split()[:2] == ["hamster", "Recreate"]

        # Without admission the updater touches nothing: the pods would come back unchanged.
        stack.start("updater", "--updater-interval=1s")
        log = tmp_path / "updater.log"
        wait_until("the updater runs", lambda: "running" in log.read_text(), 20, stack.programs)
        recommended = read(plane, namespace)["metadata"]["resourceVersion"]
        wait_until(
            "more passes",
            lambda: read(plane, namespace)["metadata"]["resourceVersion"] != recommended,
            20,
            stack.programs,
        )
        assert uids(plane, namespace) == before

        stack.start_admission()
        wait_until(
            "sized pods",
            lambda: "100m" not in cpu(plane, namespace) and len(plane.ready_pods(namespace)) == 2,
            60,
            stack.programs,
        )
        assert not uids(plane, namespace) & before
        annotations = plane.pods(namespace)[0]["metadata"]["annotations"]
        assert annotations["vpaObservedContainers"] == "app"
        assert annotations["vpaUpdates"].startswith("Pod resources updated by hamster")
        assert template(plane, namespace) == written
        checkpoints = plane.kubectl("get", "vpacheckpoint", "-n", namespace, "-o", "name")
        assert checkpoints.strip().endswith("/hamster-app")
