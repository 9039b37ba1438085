"""`podscale run`, and `serve` with `control`, on the real plane: the overlays as they are, with the
rights of their accounts.

The plane has no pod network and pulls no image, so a process on this machine plays the pod of
each Deployment: its name, its token, its arguments. Only addresses differ.
"""

import http.client
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from podscale.cli.parts import KINDS
from podscale.process.flags import merged
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
PARTS = {
    "run": tuple(KINDS),
    "serve": ("adapter", "admission"),
    "control": ("hpa", "recommender", "updater"),
}
ACTS = ("run", "control")  # the commands of which each overlay has one


class Played:
    """One Deployment, and the process that plays its pod."""

    def __init__(self, plane: Plane, manifest: Mapping[str, Any], directory: Path) -> None:
        template = manifest["spec"]["template"]
        self.plane = plane
        self.name: str = manifest["metadata"]["name"]
        self.labels: Mapping[str, str] = template["metadata"]["labels"]
        self.account: str = template["spec"]["serviceAccountName"]
        self.command, *self.words = template["spec"]["containers"][0]["args"]
        self.port = free_port()
        self.log = directory / f"{self.name}.log"
        self.pod = ""
        self._directory = directory / self.name
        self._directory.mkdir()

    def program(self, prometheus_url: str) -> Program:
        """Return the process, once the Deployment has a pod for it to play."""
        wait_until(
            f"a pod of {self.name} runs",
            lambda: self.plane.ready_pods(NAMESPACE, self.labels) != [],
            30,
        )
        self.pod = self.plane.ready_pods(NAMESPACE, self.labels)[0]
        own = self._own(prometheus_url)
        replaced = {word.partition("=")[0] for word in own}
        kept = [word for word in self.words if word.partition("=")[0] not in replaced]
        words = [self.command, *kept, *own]
        return Program(
            self.name,
            [sys.executable, "-m", "podscale", *words],
            self.log,
            {"POD_NAME": self.pod, "POD_NAMESPACE": NAMESPACE},
        )

    def break_rules(self) -> None:
        """Make the rules file one that cannot be read."""
        (self._directory / "rules.yaml").write_text("rules: [{metricQuery: x}]")

    def told(self) -> set[str]:
        """Return the reasons of the events about the pod."""
        events = self.plane.admin.get(f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
        return {each["reason"] for each in events if each["involvedObject"]["name"] == self.pod}

    def leading(self) -> set[str]:
        """Return the labels of leaders that the pod has."""
        [pod] = [
            each
            for each in self.plane.pods(NAMESPACE, self.labels)
            if each["metadata"]["name"] == self.pod
        ]
        return {label for label in pod["metadata"]["labels"] if label.startswith("leader.")}

    def status_of_page(self, account: str) -> int:
        """Return how the page on its port answers an account of the namespace."""
        tls = ssl._create_unverified_context()  # noqa: S323 - what is tested is who gets in
        connection = http.client.HTTPSConnection(LOOPBACK, self.port, timeout=10, context=tls)
        try:
            token = self.plane.service_account(NAMESPACE, account).token
            connection.request("GET", "/page/", headers={"Authorization": f"Bearer {token}"})
            return connection.getresponse().status
        finally:
            connection.close()

    def _own(self, prometheus_url: str) -> list[str]:
        """Return where this machine differs from the cluster, and what must not take minutes."""
        kubeconfig = self.plane.kubeconfig_for(NAMESPACE, self.account)
        rules = self._directory / "rules.yaml"
        rules.write_text(RULES)
        webhook_port = free_port()
        given = {
            "config": rules,
            "prometheus-url": prometheus_url,
            "kubeconfig": kubeconfig,
            "lister-kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "cert-dir": self._directory,
            "bind-address": LOOPBACK,
            "secure-port": self.port,
            # The API server cannot reach a Service of this plane.
            "admission.port": webhook_port,
            "register-by-url": "true",
            "webhook-address": LOOPBACK,
            "webhook-port": webhook_port,
            "metrics-relist-interval": "2s",
            "metrics-max-age": "30s",
            "feed-max-age": "1s",
            "horizontal-pod-autoscaler-sync-period": "1s",
            "recommender-interval": "1s",
            "updater-interval": "1s",
        }
        known = {
            flag.name for flag in merged({part: KINDS[part].table for part in PARTS[self.command]})
        }
        words = [f"--{name}={value}" for name, value in given.items() if name in known]
        return [*words, *(["--page-port=0"] if "--page" in self.words else [])]


class Installed:
    """An overlay on a plane."""

    def __init__(self, plane: Plane, overlay: str, directory: Path) -> None:
        """Apply the overlay, with Services that lead to this machine."""
        self.plane = plane
        folder = ROOT / "deploy/kustomize/overlays" / overlay
        text = subprocess.run(
            [str(require("kubectl")), "kustomize", str(folder)],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        found = list(yaml.safe_load_all(text))
        self.played = {
            each.command: each
            for each in (
                Played(plane, manifest, directory)
                for manifest in found
                if manifest["kind"] == "Deployment"
            )
        }
        ports = {
            service["metadata"]["name"]: self._behind(service).port
            for service in found
            if service["kind"] == "Service"
        }
        for each in found:
            if each["kind"] == "APIService":
                each["spec"]["service"]["port"] = ports[each["spec"]["service"]["name"]]
        kept = yaml.safe_dump_all([each for each in found if each["kind"] != "Service"])
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=kept)
        for service, port in ports.items():
            plane.expose(NAMESPACE, service, port)
        plane.apply(*accounts())

    def that(self, commands: tuple[str, ...]) -> Played:
        """Return whichever of the commands is here."""
        [found] = [self.played[command] for command in commands if command in self.played]
        return found

    def leases(self, namespace: str) -> set[str]:
        """Return the Leases that somebody holds."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        found = self.plane.admin.get(path)["items"]
        return {each["metadata"]["name"] for each in found if each["spec"].get("holderIdentity")}

    def refused(self) -> list[str]:
        """Return what the API server let none of the processes do."""
        return [
            f"{each.name}: {line}"
            for each in self.played.values()
            for line in each.log.read_text().splitlines()
            if "forbidden" in line.lower() or "right missing" in line
        ]

    def _behind(self, service: Mapping[str, Any]) -> Played:
        chosen = service["spec"]["selector"].items()
        wanted = {label for label in chosen if not label[0].startswith("leader.podscale.io/")}
        [found] = [each for each in self.played.values() if wanted <= each.labels.items()]
        return found


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


def hpa(namespace: str, *, most: int = 3) -> dict[str, Any]:
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
            "maxReplicas": most,
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


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Plane]:
    """A plane of our own: what is installed here stays."""
    with Plane(tmp_path, PlaneSettings(nodes=2)) as plane:
        yield plane


@pytest.mark.parametrize("overlay", ["all-in-one", "serve-control"])
def test_the_rights_of_the_overlay_are_enough_for_every_part_and_nothing_is_refused(
    cluster: Plane, exporter: Exporter, prometheus: PrometheusServer, tmp_path: Path, overlay: str
) -> None:
    installed = Installed(cluster, overlay, tmp_path)
    with cluster.namespace("shop") as namespace, ExitStack() as running:
        programs = [
            running.enter_context(installed.played[command].program(prometheus.url))
            for command in PARTS  # `serve` before `control`
            if command in installed.played
        ]
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
            programs,
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
            programs,
        )
        decisions = json.loads(
            cluster.kubectl("get", "sizingdecisions", "-n", namespace, "-o", "json")
        )
        assert [each["metadata"]["name"] for each in decisions["items"]] == ["worker"]
        # One for the certificate of each process that serves APIs.
        of_certificates = {"podscale-adapter-certificates"}
        if "control" in installed.played:
            of_certificates.add("podscale-hpa-certificates")
        assert installed.leases(NAMESPACE) == {
            "podscale-hpa", "podscale-admission-webhook", *of_certificates,
        }  # fmt: skip
        assert installed.leases("kube-system") >= {
            "vpa-recommender-lease", "vpa-updater", "vpa-admission-controller",
        }  # fmt: skip
        acting = installed.that(ACTS)
        assert acting.leading() == {
            f"leader.podscale.io/{part}" for part in ("hpa", "recommender", "updater")
        }

        rules = "/apis/custom.metrics.k8s.io/v1beta2/podscale-rules"
        reader, outsider = (
            Client(cluster.service_account(NAMESPACE, name)) for name in (READER, OUTSIDER)
        )
        assert reader.request("GET", rules).body["kind"] == "PodscaleRules"
        assert outsider.request("GET", rules).status == 403
        assert acting.status_of_page(READER) == 200
        assert acting.status_of_page(OUTSIDER) == 403

        for each in installed.played.values():
            each.break_rules()
        wait_until(
            "each has told of its rules",
            lambda: all("RulesNotReloaded" in each.told() for each in installed.played.values()),
            30,
            programs,
        )
        serving, *others = programs
        serving.stop()
        if others:
            # Whoever acts reads Prometheus itself: nobody else has to be there.
            exporter.set(
                *(
                    busy_pod(namespace, name, requests=90, cpu=0.4)
                    for name in cluster.ready_pods(namespace)
                )
            )
            cluster.apply(hpa(namespace, most=4))
            wait_until(
                "the HPA has scaled while nobody serves metrics",
                lambda: cluster.admin.get(f"{apps}/web")["spec"]["replicas"] == 4,
                60,
                others,
            )
        for program in others:
            program.stop()
        assert [program.exit_code for program in programs] == [0] * len(programs)
    assert installed.refused() == []
