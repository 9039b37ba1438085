"""Three real Prometheis behind one adapter on the real plane, and one of them frozen.

The second one wants TLS and a password, the third one stands behind a proxy that demands the
tenant's header and refuses POST. kube-controller-manager scales on all three.
"""

import contextlib
import http.client
import json
import os
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme
import yaml

from tests.cluster.metrics_stack import MetricsStack
from tests.cluster.plane import Plane
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.integration.exporter import Exporter, Target, gauge
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import LOOPBACK, wait_until

pytestmark = pytest.mark.timeout(600)

FROZEN_S = 5.0 if os.environ.get("PODSCALE_SHORT") else 60.0  # a window, of either kind
WINDOWS = 3  # of each kind, alternating
PAUSE_S = 0.02
P99 = 2.0  # times that of the control windows
PASSWORD = "podscale"
HASH = "$2b$10$abcdefghijklmnopqrstuucccvjbFFzYQKYmACQMTTzCmqofdH.R6"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces"
RULES = {
    "externalRules": [
        {
            "seriesQuery": f"{name}_depth",
            "resources": {"namespaced": False},
            "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>})",
            **({"source": name} if name != "own" else {}),
        }
        for name in ("own", "infra", "tenant")
    ]
}


class SecuredPrometheus(PrometheusServer):
    """A Prometheus that serves TLS and asks for a password."""

    def __init__(self, directory: Path, authority: trustme.CA, **given: Any) -> None:
        directory.mkdir()
        issued = authority.issue_cert("localhost", LOOPBACK)
        issued.private_key_pem.write_to_path(directory / "tls.key")
        issued.cert_chain_pems[0].write_to_path(directory / "tls.crt")
        web = {
            "tls_server_config": {"cert_file": "tls.crt", "key_file": "tls.key"},
            "basic_auth_users": {"podscale": HASH},
        }
        (directory / "web.yaml").write_text(json.dumps(web))
        self._tls = ssl.create_default_context()
        authority.configure_trust(self._tls)
        super().__init__(
            directory, arguments=[f"--web.config.file={directory / 'web.yaml'}"], **given
        )
        self.url = f"https://localhost:{self.port}"

    def _request(
        self, method: str, path: str, body: bytes | None = None, timeout_s: float = 30.0
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection(
            "localhost", self.port, timeout=timeout_s, context=self._tls
        )
        word = b64encode(f"podscale:{PASSWORD}".encode()).decode()
        headers = {
            "Content-Type": "application/x-www-form-urlencoded", "Authorization": f"Basic {word}"
        }  # fmt: skip
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()


@contextlib.contextmanager
def tenant_proxy(behind: PrometheusServer) -> Iterator[str]:
    """Yield the URL of a gateway that lets reads of the tenant ``shop`` through, by GET only."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.headers.get("X-Scope-OrgID") != "shop":
                self._send(401, b"no org id")
            else:
                self._send(*behind._request("GET", self.path))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._send(405, b"read only")

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{LOOPBACK}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class Sources:
    """The stack, and what each Prometheus scrapes."""

    def __init__(self, stack: MetricsStack, exporter: Exporter, frozen: PrometheusServer) -> None:
        self.stack, self.exporter, self.frozen = stack, exporter, frozen

    def depth(self, name: str, value: float) -> None:
        """Set a queue's depth, on the target that only its Prometheus keeps."""
        self.exporter.set((name, Target({"of": name}, (gauge(f"{name}_depth", value),))))


@pytest.fixture
def sources(plane: Plane, tmp_path: Path) -> Iterator[Sources]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")

    with contextlib.ExitStack() as held:
        exporter = held.enter_context(Exporter(tmp_path))

        def scrape(name: str) -> list[Mapping[str, Any]]:
            kept = {"source_labels": ["of"], "regex": name, "action": "keep"}
            return [{**exporter.scrape_config(), "relabel_configs": [kept]}]

        for name in ("own", "tenant"):
            (tmp_path / name).mkdir()
        own = held.enter_context(PrometheusServer(tmp_path / "own", scrape_configs=scrape("own")))
        infra = held.enter_context(
            SecuredPrometheus(tmp_path / "infra", authority, scrape_configs=scrape("infra"))
        )
        tenant = held.enter_context(
            PrometheusServer(tmp_path / "tenant", scrape_configs=scrape("tenant"))
        )
        named = [
            {"name": "infra", "url": infra.url, "caFile": str(tmp_path / "ca.crt"),
             "username": "podscale", "passwordEnv": "INFRA_PASSWORD"},
            {"name": "tenant", "url": held.enter_context(tenant_proxy(tenant)),
             "headers": {"X-Scope-OrgID": "shop"}},
        ]  # fmt: skip
        file = tmp_path / "sources.yaml"
        file.write_text(yaml.safe_dump({"sources": named}))
        stack = held.enter_context(
            MetricsStack(
                plane, own, exporter, tmp_path, rules=yaml.safe_dump(RULES),
                arguments=[f"--sources={file}", "--prometheus-timeout=2s"],
                environment={"INFRA_PASSWORD": PASSWORD},
            )
        )  # fmt: skip
        found = Sources(stack, exporter, infra)
        for name in ("own", "infra", "tenant"):
            found.depth(name, 30.0)
        yield found


def external(name: str) -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": "10"}
    return {
        "type": "External",
        "external": {"metric": {"name": f"{name}_depth"}, "target": target},
    }


def replicas(plane: Plane, namespace: str) -> dict[str, int]:
    found = json.loads(plane.kubectl("get", "deployments", "-n", namespace, "-o", "json"))
    return {each["metadata"]["name"]: each["spec"]["replicas"] for each in found["items"]}


class Asking:
    """Requests for the metrics of two sources, one after the other, each with its time."""

    def __init__(self, stack: MetricsStack, namespace: str) -> None:
        self._admin = stack.plane.admin
        self._paths = [f"{EXTERNAL}/{namespace}/{name}_depth" for name in ("own", "tenant")]
        self.seconds: list[float] = []
        self.failed: list[object] = []

    def during(self, seconds: float) -> None:
        """Ask for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for path in self._paths:
                began = time.monotonic()
                answer = self._admin.request("GET", path)
                self.seconds.append(time.monotonic() - began)
                if answer.status != 200 or not answer.body["items"]:
                    self.failed.append((path, answer.status, answer.raw[:300]))
            time.sleep(PAUSE_S)


def test_all_scale_and_one_that_freezes_changes_nothing_for_the_others(
    plane: Plane, sources: Sources, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("own", "infra", "tenant")
    with (
        plane.namespace("sources") as namespace,
        plane.in_tree_hpa(1.0, "--horizontal-pod-autoscaler-downscale-stabilization=0s"),
    ):
        for name in names:
            plane.apply(
                deployment(name, namespace),
                horizontal_pod_autoscaler(name, namespace, external(name)),
            )
            sources.stack.wait_for_metric(f"{EXTERNAL}/{namespace}/{name}_depth")
        wait_until(
            "all three scale",
            lambda: replicas(plane, namespace) == dict.fromkeys(names, 3),
            deadline_s=60,
        )
        control, frozen = Asking(sources.stack, namespace), Asking(sources.stack, namespace)
        even = dict.fromkeys(names, 3)
        for turn in range(2 * WINDOWS):
            is_control = turn % 2 == 0
            if not is_control:
                sources.frozen.pause()
            try:
                for name in names:
                    sources.depth(name, 50.0)
                (control if is_control else frozen).during(FROZEN_S)
                found = replicas(plane, namespace)
                assert found == {"own": 5, "tenant": 5, "infra": 5 if is_control else 3}
            finally:
                sources.frozen.resume()
            wait_until(
                "the frozen one heals",
                lambda: replicas(plane, namespace) == dict.fromkeys(names, 5),
                deadline_s=60,
            )
            for name in names:
                sources.depth(name, 30.0)
            wait_until(
                "all are as before", lambda: replicas(plane, namespace) == even, deadline_s=60
            )
    assert not frozen.failed, frozen.failed[:3]
    assert not control.failed, control.failed[:3]
    p99 = [float(np.quantile(each.seconds, 0.99)) for each in (frozen, control)]
    with capsys.disabled():
        print(
            f"\nanother source frozen: {len(frozen.seconds)} requests, p99 {p99[0] * 1000:.1f} ms; "
            f"control: {len(control.seconds)}, p99 {p99[1] * 1000:.1f} ms; 0 failed"
        )
    assert p99[0] <= P99 * p99[1]
