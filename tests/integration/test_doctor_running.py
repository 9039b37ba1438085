"""``podscale doctor`` at a running adapter: its rules and its answers, through the aggregator.

The adapter is upstream's installation with our program, on the sandbox with RBAC enforced.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podscale.sandbox.http.extensions import URL_ANNOTATION
from tests.integration.launched import NAMESPACE, Launched
from tests.integration.upstream_arguments import INSTALLATIONS

RBAC = "rbac.authorization.k8s.io"
HPA_CONTROLLER = {
    "kind": "ServiceAccount", "name": "horizontal-pod-autoscaler", "namespace": "kube-system",
}  # fmt: skip


class Ground:
    """The running installation, and people with rights."""

    def __init__(self, launched: Launched, prometheus: str) -> None:
        self.launched, self.prometheus = launched, f"http://{prometheus}"
        self.sandbox = launched.sandbox
        self.admin = self.sandbox.kubeconfig
        path = "/apis/apiregistration.k8s.io/v1/apiservices"
        service = self.sandbox.ask(f"{path}/v1beta1.custom.metrics.k8s.io")
        url = f"https://127.0.0.1:{launched.port}"
        service["metadata"].setdefault("annotations", {})[URL_ANNOTATION] = url
        self.sandbox.ask(f"{path}/{service['metadata']['name']}", "PUT", service)
        metrics = {"apiGroups": ["custom.metrics.k8s.io"], "resources": ["*"],
                   "verbs": ["get", "list"]}  # fmt: skip
        self.grant("metrics", metrics, HPA_CONTROLLER)
        self._metrics = metrics

    def grant(self, name: str, rule: dict[str, Any], *subjects: dict[str, str]) -> None:
        about = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": name}}
        base = f"/apis/{RBAC}/v1"
        self.sandbox.ask(f"{base}/clusterroles", "POST",
                         {**about, "kind": "ClusterRole", "rules": [rule]})  # fmt: skip
        role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
        self.sandbox.ask(
            f"{base}/clusterrolebindings", "POST",
            {**about, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": list(subjects)},
        )  # fmt: skip

    def account(self, name: str) -> tuple[dict[str, str], Path]:
        """Return a new ServiceAccount as a subject, and its kubeconfig."""
        about = {"name": name, "namespace": NAMESPACE}
        base = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        self.sandbox.ask(base, "POST", {"kind": "ServiceAccount", "apiVersion": "v1",
                                        "metadata": about})  # fmt: skip
        token = self.sandbox.ask(
            f"{base}/{name}/token", "POST",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        )["status"]["token"]  # fmt: skip
        path = self.launched.directory / f"{name}.kubeconfig"
        path.write_text(self.admin.read_text().replace(self.sandbox.token, token))
        return {"kind": "ServiceAccount", **about}, path

    def doctor(
        self, *words: str, kubeconfig: Path | None = None
    ) -> tuple[int, dict[str, Any], str]:
        done = subprocess.run(
            [sys.executable, "-m", "podscale", "doctor", *words, "-o", "json",
             "--kubeconfig", str(kubeconfig or self.admin)],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    launched = Launched(INSTALLATIONS[0], tmp_path_factory.mktemp("running"))
    with launched.running():
        (url,) = (w for w in launched.program.command if w.startswith("--prometheus-url="))
        yield Ground(launched, url.partition("http://")[2])


PODS = ("--metric", "http_requests", "-n", "shop", "--selector", "app=web")


def test_a_metric_that_the_running_adapter_serves_is_healthy_without_any_other_word(ground):
    code, told, err = ground.doctor(*PODS)
    assert code == 0, (told, err)
    assert [found["stage"] for found in told["findings"]] == ["Healthy"]
    assert told["requests"]["prometheus"] == 0


def test_with_prometheus_at_hand_its_rules_are_followed_stage_by_stage(ground):
    _, told, err = ground.doctor(*PODS, "--prometheus-url", ground.prometheus)
    (found,) = told["findings"]
    assert found["stage"] == "Healthy", (found, err)
    assert "http_requests_total" in found["promql"]
    assert "of the adapter" in found["place"]
    assert told["requests"]["prometheus"] > 0


def test_what_the_adapter_lacks_is_said_in_its_own_words(ground):
    code, told, _ = ground.doctor("--metric", "http_errors", "-n", "shop")
    (found,) = told["findings"]
    assert (found["stage"], code) == ("NoSeries", 1)
    assert "http_errors" in found["seen"]
    assert "--prometheus-url" in found["change"]


def test_without_a_metric_each_rule_is_told_as_it_was_listed_last(ground):
    _, told, _ = ground.doctor("-n", "shop")
    assert len(told["rules"]) > 3
    assert any(rule["series"] > 0 for rule in told["rules"])


def test_an_hpa_is_followed_metric_by_metric(ground):
    sandbox = ground.sandbox
    target = {"type": "AverageValue", "averageValue": "5"}
    sandbox.ask("/apis/apps/v1/namespaces/shop/deployments", "POST", {
        "kind": "Deployment", "apiVersion": "apps/v1",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                         "spec": {"containers": [{"name": "c", "image": "web"}]}},
        },
    })  # fmt: skip
    sandbox.ask("/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers", "POST", {
        "kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 5,
            "metrics": [
                {"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}
                for name in ("http_requests", "http_errors")
            ],
        },
    })  # fmt: skip
    code, told, err = ground.doctor("hpa/web", "-n", "shop")
    assert [found["stage"] for found in told["findings"]] == ["Healthy", "NoSeries"], (told, err)
    assert code == 1
    # And of all HPAs together, where only what is lost is told.
    code, told, err = ground.doctor("-A")
    assert [each["asked"]["metric"] for each in told["findings"]] == ["http_errors"], (told, err)
    assert "hpa/web in shop" in told["findings"][0]["seen"]
    assert code == 1


def test_a_reader_of_metrics_may_not_therefore_read_the_rules(ground):
    subject, kubeconfig = ground.account("reader")
    metrics = {"apiGroups": ["custom.metrics.k8s.io"], "resources": ["*"],
               "verbs": ["get", "list"]}  # fmt: skip
    ground.grant("reader-metrics", metrics, subject)
    code, told, err = ground.doctor("-n", "shop", kubeconfig=kubeconfig)
    assert (code, told) == (1, {})
    assert "/podscale/rules" in err
    assert err.count("\n") == 1


def test_the_right_to_the_path_is_enough_beside(ground):
    subject, kubeconfig = ground.account("doctor")
    metrics = {"apiGroups": ["custom.metrics.k8s.io"], "resources": ["podscale-rules"],
               "verbs": ["list"]}  # fmt: skip
    ground.grant("doctor-list", metrics, subject)
    ground.grant("doctor-path", {"nonResourceURLs": ["/podscale/rules"], "verbs": ["get"]}, subject)
    path = "/apis/custom.metrics.k8s.io/v1beta1/podscale-rules"
    done = subprocess.run(
        [sys.executable, "-m", "podscale", "doctor", "-n", "shop", "--kubeconfig", str(kubeconfig)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert "rules[0]" in done.stdout, done.stderr
    assert path not in done.stdout


def test_no_adapter_of_ours_is_said_so(ground, tmp_path):
    path = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.custom.metrics.k8s.io"
    service = ground.sandbox.ask(path)
    ground.sandbox.ask(path, "DELETE")
    try:
        code, _, err = ground.doctor("-n", "shop")
    finally:
        service["metadata"].pop("resourceVersion")
        ground.sandbox.ask(path.rpartition("/")[0], "POST", service)
    assert code == 1
    assert "--config FILE" in err
