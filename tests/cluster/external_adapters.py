"""Another external adapter behind ours on the plane: its rights, and who holds the APIService."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import yaml

from podscale.migrate.keda.side_by_side import ADOPT_AGAIN, GIVE_BACK
from tests.cluster.metrics_stack import NAMESPACE, SERVICE, MetricsStack
from tests.cluster.plane import Plane
from tests.integration.exporter import Exporter, Target, gauge
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import wait_until
from tests.tools.required import require

READER = "podscale-external-reader"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
EXTERNAL_SERVICE = "v1beta1.external.metrics.k8s.io"
KEDA = "scaledobject.keda.sh/name"
KEDA_NAMESPACE, KEDA_SERVICE = "keda", "keda-operator-metrics-apiserver"
LOAD, PAUSE_S = 4, 0.02  # clients, and how long each rests
API = "rbac.authorization.k8s.io/v1"


class ExternalAdapter(Protocol):
    """Where an adapter listens on this machine, and the CA that signed its certificate."""

    port: int
    ca_file: Path


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


def backends_file(directory: Path, adapter: ExternalAdapter) -> Path:
    """Write the file that names this one adapter."""
    entry = {"name": "other", "url": f"https://localhost:{adapter.port}",
             "caFile": str(adapter.ca_file), "serviceAccount": f"{NAMESPACE}/{READER}",
             "selectorLabel": KEDA, "timeout": "2s"}  # fmt: skip
    file = directory / "backends.yaml"
    file.write_text(yaml.safe_dump({"backends": [entry]}))
    return file


def hold(plane: Plane, adapter: ExternalAdapter) -> None:
    """Let the adapter hold the APIService, as KEDA's installation does."""
    for namespace in (NAMESPACE, KEDA_NAMESPACE):
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    plane.expose(KEDA_NAMESPACE, KEDA_SERVICE, adapter.port)
    plane.register_api(
        "external.metrics.k8s.io", "v1beta1", namespace=KEDA_NAMESPACE, service=KEDA_SERVICE,
        port=adapter.port, ca_pem=adapter.ca_file.read_bytes(),
    )  # fmt: skip
    plane.wait_available("external.metrics.k8s.io", "v1beta1", 60.0)


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


class Load:
    """Requests for the backend's metric, which is 30, through the API server, all the time."""

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


def adopt_and_give_back(
    plane: Plane,
    directory: Path,
    adapter: ExternalAdapter,
    prometheus: PrometheusServer,
    exporter: Exporter,
    path: str,
    unknown: Collection[int] = (404,),
) -> Load:
    """Adopt what ``hold`` made and give it back, twice, while ``path`` is asked for.

    ``unknown``: how the adapter answers what is ours.
    """
    printed = command(
        plane,
        f"kubectl get apiservice {EXTERNAL_SERVICE} -o yaml | "
        f"{sys.executable} -m podscale migrate keda --side-by-side - --only manifests",
    )
    objects = list(yaml.safe_load_all(printed))
    # The plane has no cluster DNS: the backend's Service leads to where it is.
    objects[-1]["spec"] |= {"externalName": "localhost", "ports": [{"port": adapter.port}]}
    plane.apply(*objects)
    file = directory / "backends.yaml"
    file.write_text("services: true\n")

    def holder() -> str:
        found = json.loads(plane.kubectl("get", "apiservice", EXTERNAL_SERVICE, "-o", "json"))
        return str(found["spec"]["service"]["namespace"])

    def not_external(manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
        is_external = manifest["metadata"]["name"] == EXTERNAL_SERVICE
        return None if is_external and manifest["kind"] == "APIService" else manifest

    own = f"{path.rpartition('/')[0]}/queue_messages"
    with (
        Load(plane, path) as load,
        MetricsStack(
            plane, prometheus, exporter, directory, edit=not_external,
            arguments=[f"--external-backends={file}", "--adopt"],
        ) as stack,
    ):  # fmt: skip

        def turns(to: str, then: Callable[[], object] = lambda: None) -> None:
            then()
            wait_until(f"it is {to}'s", lambda: holder() == to, 90, tuple(stack.replicas))
            time.sleep(5.0)  # under load, with whoever has it

        exporter.set(("queue", Target({"queue": "orders"}, (gauge("queue_messages", 30.0),))))
        turns("podscale")
        stack.wait_for_metric(own)
        turns("keda", lambda: command(plane, GIVE_BACK))
        ours = plane.admin.request("GET", own)
        assert ours.status in unknown, ours.raw
        turns("podscale", lambda: command(plane, ADOPT_AGAIN))
        turns("keda", lambda: command(plane, GIVE_BACK))
        load.__exit__()  # before the APIServices go with the stack
    return load
