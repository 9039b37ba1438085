"""All parts on the real plane with their own rights: alice may edit one namespace, bob another.

Bob's HPA reads a metric of his own MetricRule, and his VPA sizes pods through recommender, updater
and webhook: whether he is served shows in what becomes of his workloads.
"""

import contextlib
import http.client
import http.server
import json
import ssl
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from tests.attacks import turns
from tests.attacks.generator import KINDS, folder
from tests.attacks.siege_objects import vpa
from tests.cluster.hpa_stack import HpaStack
from tests.cluster.metrics_stack import RULES, MetricsStack, busy_pod
from tests.cluster.nodes_stack import NodesStack
from tests.cluster.plane import Plane
from tests.cluster.test_metric_rules import CRDS, Team, kustomized
from tests.cluster.vpa_stack import VpaStack
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.integration.exporter import Exporter, Target, gauge
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import LOOPBACK, Program, wait_until

SERVED_S = 90.0
METRIC, QUERY = "queue_depth", "sum(<<.Series>>{<<.LabelMatchers>>})"
ALICES, BOBS = "alice_depth", "bob_depth"
# Everybody's rule of the name that alice and bob give to metrics of their own.
FILE = f"""\
externalRules:
- seriesQuery: everybodys_depth
  resources: {{namespaced: false}}
  name: {{as: {METRIC}}}
  metricsQuery: sum(<<.Series>>)
"""
DOWN_AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}


class FailingLists(http.server.ThreadingHTTPServer):
    """Prometheus as its clients reach it: lists of one series are answered with 503."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int) -> None:
        super().__init__((LOOPBACK, 0), _Forwarding)
        self.prometheus = port
        self.series = ""  # whose lists fail; "": none
        self.failures = 0
        self.url = f"http://{LOOPBACK}:{self.server_port}"

    @contextmanager
    def running(self) -> Iterator["FailingLists"]:
        """Forward for as long as the block."""
        thread = threading.Thread(target=self.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            self.server_close()


class _Forwarding(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FailingLists

    def do_GET(self) -> None:
        self._forward(b"")

    def do_POST(self) -> None:
        self._forward(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _forward(self, body: bytes) -> None:
        is_list = "/series" in self.path
        words = urllib.parse.unquote(f"{self.path}&{body.decode()}")
        if is_list and self.server.series and self.server.series in words:
            self.server.failures += 1
            self._answer(503, b"", "text/plain")
            return
        connection = http.client.HTTPConnection(LOOPBACK, self.server.prometheus, timeout=30)
        headers = {"Content-Type": self.headers.get("Content-Type", "")} if body else {}
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            self._answer(answer.status, answer.read(), answer.getheader("Content-Type", ""))

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Walls(Struct, frozen=True):
    """All that runs."""

    plane: Plane
    exporter: Exporter
    lists: FailingLists
    programs: Mapping[str, Program]
    ports: Mapping[str, int]  # that answer /livez
    hpas: HpaStack
    alice: Team
    bob: Team

    def measure(self, series: str, value: float) -> None:
        """Give a series of alice's or bob's its value."""
        namespace = (self.alice if series == ALICES else self.bob).namespace
        samples = (gauge(series, value),)
        self.exporter.set((series, Target({"namespace": namespace}, samples)))

    def replicas(self, team: Team, name: str) -> int:
        """Return the size of a Deployment as it is wanted."""
        path = f"/apis/apps/v1/namespaces/{team.namespace}/deployments/{name}"
        return int(self.plane.admin.get(path)["spec"]["replicas"])

    def wait(self, claim: str, probe: Any, deadline_s: float = SERVED_S) -> None:
        """Return when it is true; raises where a part has ended."""
        wait_until(claim, probe, deadline_s, tuple(self.programs.values()))

    def serve_bob(self, number: int) -> None:
        """Change bob's rule and what his HPA and VPA are to answer by; wait until all have."""
        size, cpu = (2, 4)[number % 2], f"{300 + 20 * number}m"
        query = f"{QUERY} + {number} - {number}"
        self.plane.admin.patch(self.bob.path("depth"), {"spec": {"metricsQuery": query}})
        self.measure(BOBS, 10.0 * size)
        vpas = f"/apis/autoscaling.k8s.io/v1/namespaces/{self.bob.namespace}"
        policies = [{"containerName": "*", "minAllowed": {"cpu": cpu}}]
        self.plane.admin.patch(
            f"{vpas}/verticalpodautoscalers/sized",
            {"spec": {"resourcePolicy": {"containerPolicies": policies}}},
        )
        self.wait("bob's rule is served", lambda: self.bob.value(METRIC) == str(10 * size))
        self.wait(
            "its status says so",
            lambda: self.bob.conditions("depth").get("Serving", ("", ""))[0] == "True",
        )
        self.wait("bob's HPA scales", lambda: self.replicas(self.bob, "web") == size)
        self.wait("bob's VPA sizes", lambda: self._sizes() == [cpu, cpu])
        for name, port in self.ports.items():
            self.wait(f"{name} is live", lambda port=port: _is_live(port))

    def _sizes(self) -> list[str]:
        return [
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            for pod in self.plane.pods(self.bob.namespace, {"app": "sized"})
            if not pod["metadata"].get("deletionTimestamp")
        ]

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create or change objects as alice."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.plane.kubectl(
            "apply", "--server-side", "-f", "-", kubeconfig=self.alice.kubeconfig,
            stdin=json.dumps(items),
        )  # fmt: skip

    def clear(self) -> None:
        """Delete all that alice has made."""
        for resource in KINDS:
            path = folder(resource, self.alice.namespace)
            words = "gracePeriodSeconds=0&propagationPolicy=Background"
            assert self.alice.client.request("DELETE", f"{path}?{words}").status == 200
        # Python reads no object that nests deep.
        pods = f"{folder('pods', self.alice.namespace)}?includeObject=None"
        table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        client = self.plane.admin
        self.wait(
            "alice's pods are gone",
            lambda: not client.request("GET", pods, headers=table).body["rows"],
        )


def depth_hpa(name: str, namespace: str, **more: Any) -> dict[str, Any]:
    """Return an HPA that asks for a pod for each 10 of the namespace's queue depth."""
    target = {"type": "AverageValue", "averageValue": "10"}
    metric = {"type": "External", "external": {"metric": {"name": METRIC}, "target": target}}
    words = {"most": 1000, "behavior": DOWN_AT_ONCE, **more}
    return horizontal_pod_autoscaler(name, namespace, metric, **words)


def depth_rule(name: str, namespace: str, series: str) -> dict[str, Any]:
    """Return a MetricRule that names a series as everybody's rule does."""
    return {
        "apiVersion": "metrics.podscale.io/v1alpha1", "kind": "MetricRule",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"type": "External", "seriesQuery": series, "name": {"as": METRIC},
                 "metricsQuery": QUERY},
    }  # fmt: skip


@contextmanager
def walls(plane: Plane, directory: Path) -> Iterator[Walls]:
    """Run everything for as long as the block."""
    with ExitStack() as running:
        plane.kubectl(
            "apply", "--server-side", "-f", "-", stdin=kustomized("config/crds/metric-rules")
        )
        running.callback(plane.kubectl, "delete", "crd", *CRDS)
        plane.wait_established(*CRDS)
        names = [running.enter_context(plane.namespace(each)) for each in ("alice", "bob")]
        exporter = running.enter_context(Exporter(directory))
        prometheus = running.enter_context(
            PrometheusServer(directory, scrape_configs=[exporter.scrape_config()])
        )
        lists = running.enter_context(FailingLists(prometheus.port).running())
        sources = directory / "sources.yaml"
        sources.write_text(yaml.safe_dump({"default": {"namespaces": names}}))
        reads = (f"--prometheus-url={lists.url}", f"--sources={sources}")
        adapter = MetricsStack(
            plane, prometheus, exporter, directory, arguments=reads, module=turns.__name__,
            rules=FILE + RULES[RULES.index("resourceRules:") :],
        )  # fmt: skip
        adapter.apply()
        plane.kubectl(
            "apply", "--server-side", "-f", "-", stdin=kustomized("config/rbac/metric-rules")
        )
        alice, bob = (Team(plane, each, directory, prometheus) for each in names)
        plane.apply(*_writes_vpas(alice))
        exporter.set(("everybody", Target({}, (gauge("everybodys_depth", 10.0),))))
        (directory / "nodes").mkdir()
        nodes = NodesStack(plane, exporter, prometheus, directory / "nodes", turns.__name__)
        nodes.use({f"node-{number}": (1.0, 1e9) for number in range(plane.settings.nodes)})
        running.enter_context(adapter)
        vpas = running.enter_context(VpaStack(plane, directory))
        running.enter_context(nodes)
        _workloads(plane, exporter, bob)
        feed = (
            "--metrics-source=feed", f"--config={adapter.rules}", *reads,
            "--metrics-relist-interval=2s", "--metrics-max-age=30s", "--feed-max-age=1s",
        )  # fmt: skip
        hpas = running.enter_context(HpaStack(plane, directory, source=feed, module=turns.__name__))
        admission = vpas.start_admission(module=turns.__name__)
        [port] = [int(word[7:]) for word in admission.command if word.startswith("--port=")]
        programs = {
            "adapter": adapter.replicas[0],
            "hpa": hpas.replicas[0],
            "admission": admission,
            "recommender": vpas.start(
                "recommender",
                "--metrics-source=api",
                "--recommender-interval=2s",
                module=turns.__name__,
            ),
            "updater": vpas.start("updater", "--updater-interval=2s", module=turns.__name__),
            "nodes": nodes.start("--headroom-max=cpu=40,memory=40Gi"),
        }
        hpas.register()
        ports = {
            "adapter": adapter.port, "hpa": hpas.ports[0], "admission": port, "nodes": nodes.port,
        }  # fmt: skip
        yield Walls(plane, exporter, lists, programs, ports, hpas, alice, bob)


def _writes_vpas(team: Team) -> list[dict[str, Any]]:
    # Upstream's CRD comes without roles for people; clusters add what they want.
    api, name = "rbac.authorization.k8s.io", {"name": "vpas", "namespace": team.namespace}
    rule = {"apiGroups": ["autoscaling.k8s.io"], "resources": ["verticalpodautoscalers"],
            "verbs": ["create", "patch", "deletecollection"]}  # fmt: skip
    return [
        {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": name, "rules": [rule]},
        {"apiVersion": f"{api}/v1", "kind": "RoleBinding", "metadata": name,
         "roleRef": {"apiGroup": api, "kind": "Role", "name": "vpas"},
         "subjects": [{"kind": "User", "name": team.client.identity.name, "apiGroup": api}]},
    ]  # fmt: skip


def _workloads(plane: Plane, exporter: Exporter, bob: Team) -> None:
    own = bob.namespace
    sized = vpa("sized", own)
    sized["spec"]["updatePolicy"]["updateMode"] = "Recreate"
    plane.apply(
        deployment("web", own), depth_hpa("web", own), depth_rule("depth", own, BOBS),
        deployment("sized", own, replicas=2), sized,
    )  # fmt: skip
    wait_until("bob's pods", lambda: len(plane.ready_pods(own, {"app": "sized"})) == 2, 60)
    names = plane.ready_pods(own, {"app": "sized"})
    exporter.set(*(busy_pod(own, each, requests=1) for each in names))


def _is_live(port: int) -> bool:
    tls = ssl._create_unverified_context()  # noqa: S323 - as the kubelet
    connection = http.client.HTTPSConnection(LOOPBACK, port, timeout=5, context=tls)
    with contextlib.closing(connection):
        connection.request("GET", "/livez")
        return connection.getresponse().status == 200
