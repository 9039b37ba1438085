"""Two replicas whose CA and leaves turn every few seconds, while clients keep asking."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.identity import Client
from tests.cluster.metrics_stack import MetricsStack, busy_pod
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.cluster.workloads import deployment
from tests.integration.exporter import Exporter
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import wait_until

RATE = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/pods/*/http_requests_per_second"
BUNDLE = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.custom.metrics.k8s.io"
CLIENTS = 4


class Load:
    """Clients that ask through the aggregator in closed loops, each with its own identity."""

    def __init__(self, plane: Plane) -> None:
        self._stop = threading.Event()
        self.answered = 0
        self.refused: list[str] = []
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._ask, args=(Client(plane.admin.identity),))
            for _ in range(CLIENTS)
        ]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, client: Client) -> None:
        while not self._stop.is_set():
            answer = client.request("GET", RATE)
            with self._lock:
                self.answered += 1
                if answer.status != 200:
                    self.refused.append(f"{answer.status}: {answer.raw[:300]!r}")
            time.sleep(0.01)


@pytest.mark.timeout(300)
def test_no_request_fails_while_ca_and_leaves_rotate(
    private_plane: Callable[[PlaneSettings], Plane], tmp_path: Path
) -> None:
    plane = private_plane(PlaneSettings(nodes=1))
    plane.admin.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
    plane.apply(deployment("web", "shop", replicas=1))
    wait_until("a pod", lambda: plane.ready_pods("shop"), deadline_s=30)
    with (
        Exporter(tmp_path) as exporter,
        PrometheusServer(tmp_path, scrape_configs=[exporter.scrape_config()]) as prometheus,
    ):
        exporter.set(busy_pod("shop", plane.ready_pods("shop")[0], requests=10))
        # Before the replicas start: the first relist of either finds it.
        prometheus.wait_for("http_requests_total")
        with MetricsStack(
            plane,
            prometheus,
            exporter,
            tmp_path,
            replicas=2,
            module="tests.cluster.short_times",
        ) as stack:
            stack.wait_for_replicas()
            stack.wait_for_metric(RATE)
            bundles = set()
            with Load(plane) as load:
                deadline = time.monotonic() + 75
                while time.monotonic() < deadline:
                    spec = plane.admin.get(BUNDLE)["spec"]
                    assert not spec.get("insecureSkipTLSVerify")
                    bundles.add(spec["caBundle"])
                    time.sleep(0.5)
            print(f"{load.answered} requests, {len(load.refused)} refused, {len(bundles)} bundles")
            assert load.refused == []
            assert load.answered > 500
            assert len(bundles) >= 4, "the CA did not rotate twice"
            for replica in stack.replicas:
                assert replica.is_running
