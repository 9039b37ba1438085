"""`podscale run` on the real plane: the overlay as it is, with the rights of its one account.

The plane has no pod network and pulls no image, so a process on this machine plays the pod:
its name, its token, its arguments. Only addresses differ.
"""

import http.client
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.identity import Client
from tests.cluster.metrics_stack import RULES, busy_pod
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.cluster.workloads import deployment
from tests.integration.exporter import Exporter
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import LOOPBACK, Program, free_port, wait_until
from tests.tools.required import require

ROOT = Path(__file__).parent.parent.parent
NAMESPACE = "podscale"
READER, OUTSIDER = "reader", "outsider"
APIS = (
    ("custom.metrics.k8s.io", "v1beta1"),
    ("custom.metrics.k8s.io", "v1beta2"),
    ("external.metrics.k8s.io", "v1beta1"),
    ("metrics.k8s.io", "v1beta1"),
    ("hpa.podscale.io", "v1alpha1"),
    ("vpa.podscale.io", "v1alpha1"),
)


class AllInOne:
    """The installed overlay and the process that plays its pod."""

    def __init__(self, plane: Plane, exporter: Exporter, directory: Path) -> None:
        self.plane, self.exporter = plane, exporter
        self.directory = directory
        self.port, self.webhook_port = free_port(), free_port()
        self.log = directory / "run.log"

    def install(self) -> list[str]:
        """Apply the overlay, with Services that lead to this machine; return its arguments."""
        overlay = ROOT / "deploy/kustomize/overlays/all-in-one"
        text = subprocess.run(
            [str(require("kubectl")), "kustomize", str(overlay)],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        found = list(yaml.safe_load_all(text))
        [words] = [
            each["spec"]["template"]["spec"]["containers"][0]["args"]
            for each in found
            if each["kind"] == "Deployment"
        ]
        services = [each["metadata"]["name"] for each in found if each["kind"] == "Service"]
        kept = yaml.safe_dump_all([each for each in found if each["kind"] != "Service"])
        self.plane.kubectl(
            "apply", "--server-side", "-f", "-",
            stdin=kept.replace("port: 443", f"port: {self.port}"),
        )  # fmt: skip
        for service in services:
            self.plane.expose(NAMESPACE, service, self.port)
        self.plane.apply(*accounts())
        return list(words)

    def program(self, words: list[str], prometheus_url: str) -> Program:
        """Return the process that plays the Deployment's pod, once there is one."""
        wait_until("a pod of it runs", lambda: self.plane.ready_pods(NAMESPACE) != [], 30)
        kubeconfig = self.plane.kubeconfig_for(NAMESPACE, "podscale")
        rules = self.directory / "rules.yaml"
        rules.write_text(RULES)
        where = [
            f"--config={rules}",
            f"--prometheus-url={prometheus_url}",
            f"--kubeconfig={kubeconfig}",
            f"--lister-kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--cert-dir={self.directory}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self.port}",
            "--page-port=0",
            # The API server cannot reach a Service of this plane.
            f"--admission.port={self.webhook_port}",
            "--register-by-url=true",
            f"--webhook-address={LOOPBACK}",
            f"--webhook-port={self.webhook_port}",
        ]
        soon = [
            "--metrics-relist-interval=2s",
            "--metrics-max-age=30s",
            "--feed-max-age=1s",
            "--horizontal-pod-autoscaler-sync-period=1s",
            "--recommender-interval=1s",
            "--updater-interval=1s",
        ]
        return Program(
            "podscale-run",
            [sys.executable, "-m", "podscale", *words, *where, *soon],
            self.log,
            {"POD_NAME": self.plane.ready_pods(NAMESPACE)[0], "POD_NAMESPACE": NAMESPACE},
        )

    def leases(self, namespace: str) -> set[str]:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        found = self.plane.admin.get(path)["items"]
        return {each["metadata"]["name"] for each in found if each["spec"].get("holderIdentity")}

    def status_of_page(self, account: str) -> int:
        """Return how the page on our own port answers an account of the namespace."""
        tls = ssl._create_unverified_context()  # noqa: S323 - what is tested is who gets in
        connection = http.client.HTTPSConnection(LOOPBACK, self.port, timeout=10, context=tls)
        try:
            token = self.plane.service_account(NAMESPACE, account).token
            connection.request("GET", "/page/", headers={"Authorization": f"Bearer {token}"})
            return connection.getresponse().status
        finally:
            connection.close()


def accounts() -> list[dict[str, Any]]:
    """Return one account that is bound to what the overlay leaves to be bound, and one not."""
    made = [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": NAMESPACE},
        }
        for name in (READER, OUTSIDER)
    ]
    bound = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"test-{role}"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role,
            },
            "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": NAMESPACE}],
        }
        for role in ("podscale:doctor", "podscale:page-reader", "podscale:custom-metrics-reader")
    ]
    return [*made, *bound]


def hpa(namespace: str) -> dict[str, Any]:
    metric = {
        "metric": {"name": "http_requests_per_second"},
        "target": {"type": "AverageValue", "averageValue": "10"},
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": [{"type": "Pods", "pods": metric}],
        },
    }


def vpa(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "worker", "namespace": namespace},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "worker"},
            "updatePolicy": {"updateMode": "Recreate"},
        },
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A plane of our own: what is installed here stays."""
    with Plane(tmp_path_factory.mktemp("all-in-one"), PlaneSettings(nodes=2)) as plane:
        yield plane


def test_the_rights_of_the_overlay_are_enough_for_every_part_and_nothing_is_refused(
    cluster: Plane, exporter: Exporter, prometheus: PrometheusServer, tmp_path: Path
) -> None:
    installed = AllInOne(cluster, exporter, tmp_path)
    words = installed.install()
    with (
        cluster.namespace("shop") as namespace,
        installed.program(words, prometheus.url) as program,
    ):
        for group, version in APIS:
            cluster.wait_available(group, version, 60.0)
        both = deployment("web", namespace), deployment("worker", namespace, replicas=2)
        cluster.apply(*both)
        wait_until("pods", lambda: len(cluster.ready_pods(namespace)) == 3, 30)
        exporter.set(
            *(
                busy_pod(namespace, name, requests=30, cpu=0.4)
                for name in cluster.ready_pods(namespace)
            )
        )
        cluster.apply(hpa(namespace), vpa(namespace))
        apps = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        wait_until(
            "the HPA has scaled",
            lambda: cluster.admin.get(f"{apps}/web")["spec"]["replicas"] == 3,
            60,
            (program,),
        )

        def sizes() -> set[str]:
            return {
                pod["spec"]["containers"][0]["resources"]["requests"]["memory"]
                for pod in cluster.pods(namespace, {"app": "worker"})
                if not pod["metadata"].get("deletionTimestamp")
            }

        wait_until(
            "the VPA's pods have been evicted and come back sized",
            lambda: sizes() == {"250Mi"},  # the recommender's least for a pod
            90,
            (program,),
        )
        decisions = json.loads(
            cluster.kubectl("get", "sizingdecisions", "-n", namespace, "-o", "json")
        )
        assert [each["metadata"]["name"] for each in decisions["items"]] == ["worker"]
        assert installed.leases(NAMESPACE) >= {
            "podscale-hpa", "podscale-adapter-certificates", "podscale-admission-webhook",
        }  # fmt: skip
        assert installed.leases("kube-system") >= {
            "vpa-recommender-lease", "vpa-updater", "vpa-admission-controller",
        }  # fmt: skip
        [pod] = cluster.pods(NAMESPACE)
        leading = {label for label in pod["metadata"]["labels"] if label.startswith("leader.")}
        assert leading == {
            f"leader.podscale.io/{part}" for part in ("hpa", "recommender", "updater")
        }

        rules = "/apis/custom.metrics.k8s.io/v1beta2/podscale-rules"
        reader, outsider = (
            Client(cluster.service_account(NAMESPACE, name)) for name in (READER, OUTSIDER)
        )
        assert reader.request("GET", rules).body["kind"] == "PodscaleRules"
        assert outsider.request("GET", rules).status == 403
        assert installed.status_of_page(READER) == 200
        assert installed.status_of_page(OUTSIDER) == 403
        program.stop()
        assert program.exit_code == 0
    refused = [
        line for line in installed.log.read_text().splitlines() if "forbidden" in line.lower()
    ]
    assert refused == []
