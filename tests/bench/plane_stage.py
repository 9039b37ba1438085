"""Etcd, API server and Prometheus, all real, full of HPAs with their pods and series.

Nothing else runs, so that the CPU of all of them is that of autoscaling, and what they cost idle.
"""

import http.client
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from tests.bench.bench_hpa import PERIOD_S, RULES
from tests.bench.figures import Figures
from tests.bench.hpa_cluster import PER_NAMESPACE, PODS, hpa, name_of, namespace_of, pod, workload
from tests.cluster.metrics_stack import GROUPS, MetricsStack
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.integration.exporter import Exporter
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import LOOPBACK, Program, free_port
from tests.tools.required import require

SEEDERS = 6
RARE = ("--metrics-relist-interval=1m", "--metrics-max-age=5m", "--v=0")
PEER = ("--client-qps=1000",)  # its default of five API requests a second would be no peer
OURS = ("--feed-max-age=5s",)  # as is its default


class PrometheusAdapter(MetricsStack):
    """prometheus-adapter 0.12 in the place of ours, with the same account and routes."""

    groups = GROUPS[:3]  # without resource rules it serves no metrics.k8s.io

    def _command(self, _: str) -> list[str]:
        unknown = ("--service=", "--feed-max-age=")
        flags = [flag for flag in self._flags() if not flag.startswith(unknown)]
        return [str(require("prometheus-adapter")), *flags]


def _unsigned(manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return an APIService that prometheus-adapter serves with a certificate of its own making."""
    if manifest["kind"] != "APIService":
        return manifest
    if manifest["spec"]["group"] == "metrics.k8s.io":
        return None
    return {**manifest, "spec": {**manifest["spec"], "insecureSkipTLSVerify": True}}


class PlaneStage:
    """The servers and ``count`` HPAs on them; a context manager."""

    def __init__(self, directory: Path, figures: Figures, count: int) -> None:
        self.directory, self.figures, self.count = directory, figures, count
        self.plane = Plane(directory, PlaneSettings(nodes=0))
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def _start(self) -> None:
        self._exit.callback(self.plane.stop)
        self.plane.etcd.start()
        self.plane.start_apiserver()
        began = time.monotonic()
        seed(self.plane, self.count)
        made = f"{self.count} HPAs, {self.count * PODS} pods made in"
        self.figures.note(f"{made} {time.monotonic() - began:.0f} s")
        self.prometheus = self._prometheus()
        self.servers = {
            "API server": self.plane.apiserver.pid,
            "etcd": self.plane.etcd.pid,
            "Prometheus": self.prometheus.program.pid,
        }

    def _prometheus(self) -> PrometheusServer:
        port = free_port()
        command = [
            sys.executable, "-m", "tests.bench.noise",
            "--hpas", str(self.count), "--port", str(port),
        ]  # fmt: skip
        self._exit.enter_context(Program("noise", command, self.directory / "noise.log"))
        scrape = {
            "job_name": "noise",
            "honor_labels": True,
            "scrape_interval": f"{PERIOD_S:g}s",
            "scrape_timeout": "14s",
            "static_configs": [{"targets": [f"{LOOPBACK}:{port}"]}],
        }
        server = PrometheusServer(self.directory, scrape_configs=[scrape])
        self._exit.enter_context(server)
        server.wait_for("count(load)", deadline_s=60)
        return server

    @contextmanager
    def adapter(self, *, is_upstream: bool) -> Iterator[MetricsStack]:
        """Run prometheus-adapter, or ours, behind the API server."""
        directory = Path(tempfile.mkdtemp(dir=self.directory))
        about = (self.plane, self.prometheus, Exporter(directory), directory)
        stack = (
            PrometheusAdapter(*about, rules=RULES, arguments=(*RARE, *PEER), edit=_unsigned)
            if is_upstream
            else MetricsStack(*about, rules=RULES, arguments=(*RARE, *OURS))
        )
        with stack:
            stack.wait_for_metric(pods_question(0, "load"), PODS)
            yield stack


def pods_question(index: int, metric: str) -> str:
    """Return the path of what an HPA asks about a Pods metric."""
    return (
        f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace_of(index)}/pods/*/{metric}"
        f"?labelSelector=app%3D{name_of(index)}"
    )


class Seeder:
    """Creates objects over a connection of its own."""

    def __init__(self, plane: Plane) -> None:
        client = plane.admin
        self._connection = http.client.HTTPSConnection(
            LOOPBACK, client.identity.port, context=client._tls, timeout=60
        )

    def send(self, method: str, path: str, body: object) -> Any:
        patch = "application/merge-patch+json"
        kind = patch if method == "PATCH" else "application/json"
        headers = {"Content-Type": kind, "Accept": "application/json"}
        self._connection.request(method, path, json.dumps(body), headers)
        answer = self._connection.getresponse()
        raw = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {raw[:300]!r}")
        return json.loads(raw)

    def seed(self, index: int) -> None:
        """Create one HPA, its Deployment and its running pods."""
        namespace, name = namespace_of(index), name_of(index)
        if index % PER_NAMESPACE == 0:
            self.send("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        made = self.send("POST", deployments, workload(index, "Deployment", PODS, None))
        sizes = {"replicas": PODS, "readyReplicas": PODS}
        # No controller of Deployments runs, and an External AverageValue divides by this.
        self.send("PATCH", f"{deployments}/{name}/status", {"status": sizes})
        pods = f"/api/v1/namespaces/{namespace}/pods"
        owner = {**made, "apiVersion": "apps/v1", "kind": "Deployment"}
        for number in range(PODS):
            written = pod(index, number, owner)
            self.send("POST", pods, written)
            path = f"{pods}/{written['metadata']['name']}/status"
            self.send("PATCH", path, {"status": written["status"]})
        autoscalers = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        self.send("POST", autoscalers, hpa(index))


def seed(plane: Plane, count: int) -> None:
    """Create everything, several namespaces at a time."""
    waiting: Iterator[int] = iter(range(0, count, PER_NAMESPACE))
    lock = threading.Lock()
    failures: list[Exception] = []

    def work() -> None:
        seeder = Seeder(plane)
        try:
            while True:
                with lock:
                    first = next(waiting, None)
                if first is None:
                    return
                for index in range(first, min(first + PER_NAMESPACE, count)):
                    seeder.seed(index)
        except (OSError, RuntimeError) as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(SEEDERS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if failures:
        raise failures[0]
