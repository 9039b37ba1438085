"""Somebody else's external adapter behind ours, on the real plane: one APIService for both.

It is a program on the library under KEDA's adapter (tests/cluster/go/external), with its own
authentication and authorization by the cluster; kube-controller-manager scales on both.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from podscale.migrate.keda.side_by_side import ADOPT_AGAIN, GIVE_BACK
from tests.cluster.golang import FLAGS, Go, built_once
from tests.cluster.metrics_stack import NAMESPACE, SERVICE, MetricsStack
from tests.cluster.pki import Authority
from tests.cluster.plane import Plane
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.integration.exporter import Exporter, Target, gauge
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import LOOPBACK, Program, free_port, wait_until
from tests.tools.required import require

pytestmark = pytest.mark.timeout(900)  # its program is built first, once

OURS = Path(__file__).parent / "go" / "external"
READER = "podscale-external-reader"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
EXTERNAL_SERVICE = "v1beta1.external.metrics.k8s.io"
KEDA = "scaledobject.keda.sh/name"
KEDA_NAMESPACE, KEDA_SERVICE = "keda", "keda-operator-metrics-apiserver"
LOAD, PAUSE_S = 4, 0.02  # clients, and how long each rests
API = "rbac.authorization.k8s.io/v1"


def program() -> Path:
    """Build the adapter that is not ours, once for its sources."""
    sources = {file.name: file.read_bytes() for file in OURS.iterdir()}

    def build(go: Go) -> Path:
        for name, content in sources.items():
            (go.scratch / name).write_bytes(content)
        go.run("build", *FLAGS, "-o", "executed", ".")
        return go.scratch / "executed"

    return built_once("external", sources, build)


def rights() -> list[Mapping[str, Any]]:
    """Return what docs/external-backends.md says to apply."""
    account = {"kind": "ServiceAccount", "name": READER, "namespace": NAMESPACE}
    adapter = {"kind": "ServiceAccount", "name": SERVICE, "namespace": NAMESPACE}
    rules = [
        {"apiGroups": ["external.metrics.k8s.io"], "resources": ["*"], "verbs": ["get", "list"]}
    ]
    tokens = [
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": [READER],
         "verbs": ["create"]},
    ]  # fmt: skip
    tokens_role = "podscale-external-tokens"
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount",
         "metadata": {"name": READER, "namespace": NAMESPACE}},
        {"apiVersion": API, "kind": "ClusterRole", "metadata": {"name": READER}, "rules": rules},
        {"apiVersion": API, "kind": "ClusterRoleBinding", "metadata": {"name": READER},
         "roleRef": {"apiGroup": API.partition("/")[0], "kind": "ClusterRole", "name": READER},
         "subjects": [account]},
        {"apiVersion": API, "kind": "Role", "rules": tokens,
         "metadata": {"name": tokens_role, "namespace": NAMESPACE}},
        {"apiVersion": API, "kind": "RoleBinding",
         "metadata": {"name": tokens_role, "namespace": NAMESPACE},
         "roleRef": {"apiGroup": API.partition("/")[0], "kind": "Role", "name": tokens_role},
         "subjects": [adapter]},
    ]  # fmt: skip


class Backend:
    """The other adapter, and what it serves."""

    def __init__(self, plane: Plane, directory: Path) -> None:
        self.port = free_port()
        self.values = directory / "values.json"
        self.set(lag="30")
        authority = Authority(directory, "backend-ca")
        hosts = ["localhost", LOOPBACK, f"{KEDA_SERVICE}.{KEDA_NAMESPACE}.svc"]
        pair = authority.issue("localhost", hosts=hosts, file_stem="backend")
        self.ca_file = authority.cert_file
        self.program = Program(
            "external-adapter",
            [
                program(),
                f"--values={self.values}",
                f"--secure-port={self.port}",
                f"--bind-address={LOOPBACK}",
                f"--tls-cert-file={pair.cert_file}",
                f"--tls-private-key-file={pair.key_file}",
                f"--authentication-kubeconfig={plane.admin_kubeconfig}",
                f"--authorization-kubeconfig={plane.admin_kubeconfig}",
                f"--lister-kubeconfig={plane.admin_kubeconfig}",
            ],
            directory / "external-adapter.log",
        )

    def set(self, **values: str) -> None:
        """Serve these, and the KEDA-like one that is not listed."""
        found = {**values, **{f"s0-{name}": amount for name, amount in values.items()}}
        self.values.write_text(json.dumps(found))


@pytest.fixture
def backend(plane: Plane, tmp_path: Path) -> Iterator[Backend]:
    made = Backend(plane, tmp_path)
    with made.program:
        yield made


@pytest.fixture
def stack(plane: Plane, tmp_path: Path, backend: Backend) -> Iterator[MetricsStack]:
    plane.apply(*rights())
    entry = {"name": "other", "url": f"https://localhost:{backend.port}",
             "caFile": str(backend.ca_file), "serviceAccount": f"{NAMESPACE}/{READER}",
             "selectorLabel": KEDA, "timeout": "2s"}  # fmt: skip
    file = tmp_path / "backends.yaml"
    file.write_text(yaml.safe_dump({"backends": [entry]}))
    with (
        Exporter(tmp_path) as exporter,
        PrometheusServer(tmp_path, scrape_configs=[exporter.scrape_config()]) as prometheus,
        MetricsStack(
            plane, prometheus, exporter, tmp_path, arguments=[f"--external-backends={file}"]
        ) as running,
    ):
        exporter.set(("queue", Target({"queue": "orders"}, (gauge("queue_messages", 30.0),))))
        yield running


def external(metric: str, selector: Mapping[str, str] | None = None) -> dict[str, Any]:
    named: dict[str, Any] = {"name": metric}
    if selector:
        named["selector"] = {"matchLabels": dict(selector)}
    target = {"type": "AverageValue", "averageValue": "10"}
    return {"type": "External", "external": {"metric": named, "target": target}}


def replicas(plane: Plane, namespace: str) -> dict[str, int]:
    found = json.loads(plane.kubectl("get", "deployments", "-n", namespace, "-o", "json"))
    return {each["metadata"]["name"]: each["spec"]["replicas"] for each in found["items"]}


def said(plane: Plane, namespace: str, name: str) -> str:
    found = json.loads(plane.kubectl("get", "hpa", name, "-n", namespace, "-o", "json"))
    return json.dumps(found["status"].get("conditions", []))


def test_both_scale_through_one_apiservice_and_its_death_is_its_own(
    plane: Plane, stack: MetricsStack, backend: Backend
) -> None:
    cast = {
        "listed": external("lag"),
        "claimed": external("s0-lag", {KEDA: "web"}),
        "own": external("queue_messages"),
    }
    with plane.namespace("backends") as namespace, plane.in_tree_hpa(
        1.0, "--horizontal-pod-autoscaler-downscale-stabilization=0s"
    ):  # fmt: skip
        wait_until(
            "its list is among ours",
            lambda: (
                {"lag", "queue_messages"}
                <= {each["name"] for each in stack.raw(EXTERNAL)["resources"]}
            ),
            60,
            (backend.program, *stack.replicas),
        )
        for name, metric in cast.items():
            plane.apply(
                deployment(name, namespace), horizontal_pod_autoscaler(name, namespace, metric)
            )
        wait_until(
            "all three scale", lambda: replicas(plane, namespace) == dict.fromkeys(cast, 3), 90
        )
        backend.set(lag="50")
        wait_until(
            "theirs follow theirs",
            lambda: replicas(plane, namespace) == {"listed": 5, "claimed": 5, "own": 3},
            60,
        )
        backend.program.kill()
        stack.exporter.set(("queue", Target({"queue": "orders"}, (gauge("queue_messages", 40.0),))))
        wait_until("ours go on", lambda: replicas(plane, namespace)["own"] == 4, 60)
        wait_until(
            "theirs are told as theirs",
            lambda: "the external backend other failed" in said(plane, namespace, "listed"),
            60,
        )
        assert replicas(plane, namespace) == {"listed": 5, "claimed": 5, "own": 4}
        assert "could not find" not in said(plane, namespace, "listed")
        backend.set(lag="20")
        backend.program.start()
        wait_until(
            "it heals by itself",
            lambda: replicas(plane, namespace) == {"listed": 2, "claimed": 2, "own": 4},
            90,
            tuple(stack.replicas),
        )


class Load:
    """Requests for the backend's metric through the API server, all the time."""

    def __init__(self, plane: Plane, path: str) -> None:
        self._plane, self._path = plane, path
        self.answered = 0
        self.failed: list[str] = []
        self._ended = threading.Event()
        self._clients = [threading.Thread(target=self._ask) for _ in range(LOAD)]

    def __enter__(self) -> Self:
        for each in self._clients:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it, once or twice."""
        self._ended.set()
        for each in self._clients:
            each.join()

    def _ask(self) -> None:
        while not self._ended.is_set():
            answer = self._plane.admin.request("GET", self._path)
            if answer.status == 200 and answer.body["items"][0]["value"] == "30":
                self.answered += 1
            else:
                self.failed.append(f"{answer.status} {answer.raw[:300]!r}")
            time.sleep(PAUSE_S)


def command(plane: Plane, text: str) -> str:
    """Run a printed command as a person would."""
    path = f"{Path(require('kubectl')).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "PATH": path, "KUBECONFIG": str(plane.admin_kubeconfig)},
    )  # fmt: skip
    return done.stdout


def test_adopting_and_giving_back_fail_no_request(
    plane: Plane, tmp_path: Path, backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    for namespace in (NAMESPACE, KEDA_NAMESPACE):
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    plane.expose(KEDA_NAMESPACE, KEDA_SERVICE, backend.port)
    plane.register_api(
        "external.metrics.k8s.io", "v1beta1", namespace=KEDA_NAMESPACE, service=KEDA_SERVICE,
        port=backend.port, ca_pem=backend.ca_file.read_bytes(),
    )  # fmt: skip
    plane.wait_available("external.metrics.k8s.io", "v1beta1", 60.0)
    printed = command(
        plane,
        f"kubectl get apiservice {EXTERNAL_SERVICE} -o yaml | "
        f"{sys.executable} -m podscale migrate keda --side-by-side - --only manifests",
    )
    objects = list(yaml.safe_load_all(printed))
    # The plane has no cluster DNS: the backend's Service leads to where it is.
    objects[-1]["spec"] |= {"externalName": "localhost", "ports": [{"port": backend.port}]}
    plane.apply(*objects)
    file = tmp_path / "backends.yaml"
    file.write_text("services: true\n")

    def holder() -> str:
        found = json.loads(plane.kubectl("get", "apiservice", EXTERNAL_SERVICE, "-o", "json"))
        return str(found["spec"]["service"]["namespace"])

    def not_external(manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
        is_external = manifest["metadata"]["name"] == EXTERNAL_SERVICE
        return None if is_external and manifest["kind"] == "APIService" else manifest

    with (
        plane.namespace("adopted") as namespace,
        Load(plane, f"{EXTERNAL}/namespaces/{namespace}/lag") as load,
        Exporter(tmp_path) as exporter,
        PrometheusServer(tmp_path, scrape_configs=[exporter.scrape_config()]) as prometheus,
        MetricsStack(
            plane, prometheus, exporter, tmp_path, edit=not_external,
            arguments=[f"--external-backends={file}", "--adopt"],
        ) as stack,
    ):  # fmt: skip

        def turns(to: str, then: Callable[[], object] = lambda: None) -> None:
            then()
            wait_until(f"it is {to}'s", lambda: holder() == to, 90, tuple(stack.replicas))
            time.sleep(5.0)  # under load, with whoever has it

        exporter.set(("queue", Target({"queue": "orders"}, (gauge("queue_messages", 30.0),))))
        turns("podscale")
        stack.wait_for_metric(f"{EXTERNAL}/namespaces/{namespace}/queue_messages")
        turns("keda", lambda: command(plane, GIVE_BACK))
        ours = plane.admin.request("GET", f"{EXTERNAL}/namespaces/{namespace}/queue_messages")
        assert ours.status == 404
        turns("podscale", lambda: command(plane, ADOPT_AGAIN))
        turns("keda", lambda: command(plane, GIVE_BACK))
        load.__exit__()  # before the APIServices go with the stack
    with capsys.disabled():
        print(
            f"\nadopted and given back twice: {load.answered} answered, {len(load.failed)} failed"
        )
    assert not load.failed, load.failed[:3]
    assert load.answered > 100
