"""The adapter on the real plane: its deployed RBAC, its own ServiceAccount, real Prometheus.

Starts what ``config/`` would deploy: manifests applied as they are (only the Service is
an ExternalName, because the plane has no pod network), one process or two, each with a
token of ``podscale/podscale-adapter`` and nothing else.
"""

import http.client
import json
import ssl
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import yaml

from tests.cluster.plane import Plane
from tests.integration.exporter import Exporter, Target, counter, gauge, pod
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import LOOPBACK, Program, free_port, wait_until
from tests.tools.required import require

ROOT = Path(__file__).parent.parent.parent
NAMESPACE, SERVICE = "podscale", "podscale-adapter"
CONNECTIONS = 20  # of a shared port: that all of them miss one of two replicas is unthinkable
GROUPS = (
    ("custom.metrics.k8s.io", "v1beta1"),
    ("custom.metrics.k8s.io", "v1beta2"),
    ("external.metrics.k8s.io", "v1beta1"),
    ("metrics.k8s.io", "v1beta1"),
)
MANIFESTS = (
    "config/rbac/adapter",
    "config/apiservices/custom",
    "config/apiservices/external",
    "config/apiservices/resource",
)
RULES = """\
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources:
    overrides:
      namespace: {resource: namespace}
      pod: {resource: pod}
  name: {matches: "^(.*)_total$", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[5s])) by (<<.GroupBy>>)'
- seriesQuery: '{__name__=~"queue_depth|node_temperature|namespace_load"}'
  resources: {template: "<<.Resource>>"}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'queue_messages'
  resources: {namespaced: false}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
resourceRules:
  cpu:
    containerQuery: >-
      sum(rate(container_cpu_usage_seconds_total{<<.LabelMatchers>>}[5s])) by (<<.GroupBy>>)
    nodeQuery: 'sum(rate(node_cpu_seconds_total{<<.LabelMatchers>>}[5s])) by (<<.GroupBy>>)'
    resources: {template: "<<.Resource>>"}
    containerLabel: container
  memory:
    containerQuery: 'sum(container_memory_working_set_bytes{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
    nodeQuery: 'sum(node_memory_used_bytes{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
    resources: {template: "<<.Resource>>"}
    containerLabel: container
  window: 5s
"""


def manifests() -> list[Mapping[str, Any]]:
    """Return every manifest that the adapter's deployment needs of the cluster."""
    found: list[Mapping[str, Any]] = []
    for folder in MANIFESTS:
        text = subprocess.run(
            [str(require("kubectl")), "kustomize", str(ROOT / folder)],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        found += yaml.safe_load_all(text)
    return found


def busy_pod(
    namespace: str, name: str, *, requests: float, cpu: float = 0.1, memory: float = 64e6
) -> tuple[str, Target]:
    """Return a pretend pod with a request rate (per second), CPU (cores) and memory (bytes)."""
    return pod(
        namespace,
        name,
        counter("http_requests_total", requests, 1000.0),
        counter("container_cpu_usage_seconds_total", cpu, 100.0),
        gauge("container_memory_working_set_bytes", memory),
    )


def node(name: str) -> tuple[str, Target]:
    """Return a pretend node exporter."""
    samples = (
        counter("node_cpu_seconds_total", 1.5, 10.0),
        gauge("node_memory_used_bytes", 2e9),
        gauge("node_temperature", 42.0),
    )
    return f"node.{name}", Target({"node": name}, samples)


class MetricsStack:
    """Adapter processes behind the aggregator of ``plane``; a context manager."""

    groups: Sequence[tuple[str, str]] = GROUPS  # and versions that it serves

    def __init__(
        self,
        plane: Plane,
        prometheus: PrometheusServer,
        exporter: Exporter,
        directory: Path,
        *,
        rules: str = RULES,
        replicas: int = 1,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        module: str = "podscale",
        edit: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] = lambda found: found,
    ) -> None:
        """``edit`` may change or, with ``None``, leave out each manifest."""
        self.plane, self.prometheus, self.exporter = plane, prometheus, exporter
        self.directory = directory
        self.rules = directory / "rules.yaml"
        self.rules.write_text(rules)
        self.port = free_port()
        self._arguments = arguments
        self._edit = edit
        self.replicas = [
            Program(
                f"adapter-{number}",
                self._command(module),
                directory / f"adapter-{number}.log",
                {
                    "POD_NAME": f"podscale-adapter-{number}",
                    "POD_NAMESPACE": NAMESPACE,
                    **(environment or {}),
                },
            )
            for number in range(replicas)
        ]

    def __enter__(self) -> Self:
        try:
            self.apply()
            kubeconfig = self.plane.service_account(NAMESPACE, SERVICE)
            kubeconfig.write_kubeconfig(self.directory / "adapter.kubeconfig")
            for replica in self.replicas:
                replica.start()
            for group, version in self.groups:
                self.plane.wait_available(group, version, 60.0)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for replica in self.replicas:
            replica.resume()
            replica.stop(grace_s=15.0)
        for group, version in self.groups:
            path = f"/apis/apiregistration.k8s.io/v1/apiservices/{version}.{group}"
            self.plane.admin.request("DELETE", path)

    def tails(self) -> str:
        return "\n".join(replica.tail() for replica in self.replicas)

    def apply(self) -> None:
        """Apply the manifests that the deployment would, with this machine's port."""
        self.plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        kept = [each for found in manifests() if (each := self._edit(found)) is not None]
        text = yaml.safe_dump_all(kept).replace("port: 443", f"port: {self.port}")
        self.plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
        self.plane.expose(NAMESPACE, SERVICE, self.port)

    def _command(self, module: str) -> list[str]:
        return [sys.executable, "-m", module, "adapter", *self._flags()]

    def _flags(self) -> list[str]:
        kubeconfig = self.directory / "adapter.kubeconfig"
        given = {word.partition("=")[0] for word in self._arguments}
        own = [
            f"--config={self.rules}",
            f"--prometheus-url={self.prometheus.url}",
            f"--secure-port={self.port}",
            f"--bind-address={LOOPBACK}",
            "--permit-port-sharing=true",
            f"--cert-dir={self.directory}",
            f"--service={NAMESPACE}/{SERVICE}",
            f"--lister-kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--metrics-relist-interval=2s",
            "--metrics-max-age=30s",
            "--feed-max-age=1s",
            "--v=2",
        ]
        return [*(word for word in own if word.partition("=")[0] not in given), *self._arguments]

    def raw(self, path: str) -> Any:
        """Return what ``kubectl get --raw`` answers, through the aggregator."""
        return json.loads(self.plane.kubectl("get", "--raw", path))

    def direct(
        self, path: str, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, Any]]:
        """Return status and body of a request to our own port, past the aggregator."""
        status, body = self._asked(path, headers)
        return status, json.loads(body)

    def wait_for_replicas(self, deadline_s: float = 45.0) -> None:
        """Wait until every replica is ready, as a Service would before it sends one anything."""

        def probe() -> bool:
            if not all(b"port=" in replica.log.read_bytes() for replica in self.replicas):
                return False
            # Each is a connection of its own, which any of them may take.
            return all(self._asked("/readyz")[0] == HTTPStatus.OK for _ in range(CONNECTIONS))

        wait_until("every replica is ready", probe, deadline_s, tuple(self.replicas))

    def _asked(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        # What is tested is whom the server believes, not its certificate.
        tls = ssl._create_unverified_context()  # noqa: S323
        connection = http.client.HTTPSConnection(LOOPBACK, self.port, timeout=10, context=tls)
        try:
            connection.request("GET", path, headers=dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def wait_for_metric(self, path: str, count: int = 1, deadline_s: float = 45.0) -> Any:
        """Return the list at ``path`` once it has ``count`` items."""
        last: list[Any] = [None]

        def probe() -> bool:
            try:
                last[0] = self.raw(path)
            except subprocess.CalledProcessError as error:
                last[0] = error.cmd
                return False
            return len(last[0]["items"]) >= count

        wait_until(f"{path} has {count} items", probe, deadline_s, tuple(self.replicas))
        return last[0]
