"""``podscale hpa`` on the real plane, with the rights of its manifests."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.hpa_stack import ROOT, HpaStack
from tests.cluster.metrics_stack import RULES, MetricsStack, busy_pod
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings, audited
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.integration.exporter import Exporter
from tests.integration.prometheus import PrometheusServer
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


def milli(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


def test_load_scales_a_deployment_up_and_every_way_of_asking_says_why(
    plane: Plane, tmp_path: Path
) -> None:
    with (
        Exporter(tmp_path) as exporter,
        PrometheusServer(tmp_path, scrape_configs=[exporter.scrape_config()]) as prometheus,
        plane.namespace("shop") as namespace,
    ):
        rules = tmp_path / "rules.yaml"
        rules.write_text(RULES)
        feed = (
            "--metrics-source=feed",
            f"--config={rules}",
            f"--prometheus-url={prometheus.url}",
            "--metrics-relist-interval=2s",
            "--metrics-max-age=30s",
            "--feed-max-age=500ms",
        )
        early = ("--horizontal-pod-autoscaler-cpu-initialization-period=0s",)
        with HpaStack(plane, tmp_path, *early, source=feed) as stack:
            plane.apply(deployment("web", namespace, replicas=1))
            wait_until("a pod", lambda: plane.ready_pods(namespace), 30)
            pods = plane.ready_pods(namespace)
            exporter.set(*(busy_pod(namespace, pod, requests=10, cpu=0.2) for pod in pods))
            plane.apply(horizontal_pod_autoscaler("web", namespace, CPU))
            wait_until(
                "200 % of the request against 50 % asks for four",
                lambda: replicas(plane, namespace) == 4,
                60,
                tuple(stack.replicas),
            )
            wait_until(
                "the status tells the utilization",
                lambda: "currentMetrics" in hpa(plane, namespace)["status"],
                10,
            )
            current = hpa(plane, namespace)["status"]["currentMetrics"][0]["resource"]["current"]
            assert 150 < current["averageUtilization"] <= 240
            assert 150 < milli(current["averageValue"]) <= 240
            described = plane.kubectl("describe", "hpa", "web", "-n", namespace)
            assert "New size: 4; reason: cpu resource utilization" in described
            assert "ValidMetricFound" in described
            for words in (
                "resource cpu on pods  (as a percentage of request):",
                "Min replicas:", "Max replicas:", "4 desired", "AbleToScale", "ScalingLimited",
            ):  # fmt: skip
                assert words in described, described
            told = stack.decision(namespace, "web")
            assert told["status"]["facts"]["target"] == "Deployment/web"
            stack.register()
            shown = plane.kubectl("get", "scalingdecisions", "-n", namespace)
            assert "Deployment/web" in shown
            assert "REASON" in shown
            words = explained(plane, "hpa/web", "-n", namespace)
            assert "Deployment/web has 4 replicas" in words
            earlier = explained(plane, "hpa/web", "-n", namespace, "--at", "1h", fails=True)
            assert "only recent ones are kept" in earlier
            nobody = plane.user("mallory").write_kubeconfig(tmp_path / "mallory.kubeconfig")
            with pytest.raises(subprocess.CalledProcessError, match="forbidden"):
                plane.kubectl("get", "sd", "-n", namespace, kubeconfig=nobody)


def test_what_no_rule_covers_comes_from_the_clusters_metrics_api(
    plane: Plane, exporter: Exporter, prometheus: PrometheusServer, tmp_path: Path
) -> None:
    rules, of_others = tmp_path / "none.yaml", tmp_path / "others"
    rules.write_text("rules: []")
    of_others.mkdir()
    source = (f"--config={rules}", f"--prometheus-url={prometheus.url}")
    early = ("--horizontal-pod-autoscaler-cpu-initialization-period=0s",)
    with (
        plane.namespace("shop") as namespace,
        MetricsStack(plane, prometheus, exporter, of_others),
        HpaStack(plane, tmp_path, *early, source=source) as stack,
    ):
        plane.apply(deployment("web", namespace, replicas=1))
        wait_until("a pod", lambda: plane.ready_pods(namespace), 30)
        pods = plane.ready_pods(namespace)
        exporter.set(*(busy_pod(namespace, pod, requests=10, cpu=0.2) for pod in pods))
        plane.apply(horizontal_pod_autoscaler("web", namespace, CPU))
        wait_until(
            "metrics.k8s.io asks for four",
            lambda: replicas(plane, namespace) == 4,
            60,
            tuple(stack.replicas),
        )
        told = str(stack.decision(namespace, "web"))
        assert ", answered by the cluster's metrics API" in told


def explained(plane: Plane, *words: str, fails: bool = False) -> str:
    """Return what ``podscale explain`` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "podscale", "explain", *words,
         "--kubeconfig", str(plane.admin_kubeconfig)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert bool(done.returncode) == fails, done.stderr
    return done.stderr if fails else done.stdout


def test_own_mode_scales_by_pod_autoscalers_and_leaves_hpas_alone(
    plane: Plane, tmp_path: Path
) -> None:
    crd = ROOT / "config/crds/podautoscaler.yaml"
    plane.kubectl("apply", "--server-side", "-f", str(crd))
    plane.wait_established("podautoscalers.autoscaling.podscale.io")
    with plane.namespace() as namespace, HpaStack(plane, tmp_path, "--mode=own") as stack:
        ours = horizontal_pod_autoscaler("ours", namespace, CPU, least=2)
        ours |= {"apiVersion": "autoscaling.podscale.io/v1", "kind": "PodAutoscaler"}
        plane.apply(
            deployment("ours", namespace),
            deployment("theirs", namespace),
            ours,
            horizontal_pod_autoscaler("theirs", namespace, CPU, least=2),
        )
        wait_until(
            "two replicas", lambda: replicas(plane, namespace, "ours") == 2, 20,
            tuple(stack.replicas),
        )  # fmt: skip
        path = f"/apis/autoscaling.podscale.io/v1/namespaces/{namespace}/podautoscalers/ours"
        wait_until(
            "its status", lambda: plane.admin.get(path).get("status", {}).get("conditions"), 10
        )
        assert plane.admin.get(path)["status"]["currentReplicas"] in (1, 2)
        assert replicas(plane, namespace, "theirs") == 1
        assert "conditions" not in hpa(plane, namespace, "theirs").get("status", {})


def test_beside_the_in_tree_controller_nothing_is_written(
    private_plane: Callable[[PlaneSettings], Plane], tmp_path: Path
) -> None:
    audit = audited(
        "horizontalpodautoscalers/status.autoscaling", "deployments/scale.apps",
        verbs=("update", "patch"),
    )  # fmt: skip
    plane = private_plane(PlaneSettings(nodes=1, audit=(audit,)))
    with plane.namespace() as namespace, plane.in_tree_hpa(sync_period_s=1.0):
        plane.apply(
            deployment("web", namespace, replicas=4),
            horizontal_pod_autoscaler("web", namespace, CPU, least=2),
        )
        wait_until(
            "the in-tree controller wrote a status",
            lambda: "conditions" in hpa(plane, namespace).get("status", {}),
            30,
        )
        with HpaStack(plane, tmp_path) as stack:
            wait_until("a decision", lambda: "status" in told(stack, namespace, "web"), 30)
            # Below its minimum: both controllers would correct it at once.
            path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/web"
            plane.admin.patch(path, {"spec": {"minReplicas": 5}})
            wait_until("somebody corrects", lambda: replicas(plane, namespace) == 5, 20)
            wait_until(
                "ForeignController is told",
                lambda: conditions(stack, namespace, "web") == ["ForeignController"],
                20,
                tuple(stack.replicas),
            )
            assert stack.decision(namespace, "web")["spec"]["mode"] == "shadow"
    writers = {entry["user"]["username"] for entry in plane.audit()}
    assert "system:serviceaccount:kube-system:horizontal-pod-autoscaler" in writers
    assert "system:serviceaccount:podscale:podscale-hpa" not in writers


def told(stack: HpaStack, namespace: str, name: str) -> Any:
    found = stack.decision(namespace, name)
    return found if found.get("kind") == "ScalingDecision" else {}


def conditions(stack: HpaStack, namespace: str, name: str) -> list[str]:
    return [each["type"] for each in told(stack, namespace, name)["status"]["conditions"]]
