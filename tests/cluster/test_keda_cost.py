"""What 300 workloads cost, scaled from Prometheus by KEDA's route and by ours: CPU by process.

One after the other on one plane, the same Deployments, numbers and Prometheus: KEDA with the HPA
controller of Kubernetes, podscale's adapter with it, and podscale's HPA, which reads Prometheus
itself. Each with its own defaults, apart from KEDA's rate of API requests while it makes its HPAs.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bench.figures import cpu_s
from tests.cluster.external_adapters import EXTERNAL_SERVICE, external, hold
from tests.cluster.hpa_stack import HpaStack
from tests.cluster.keda_stack import SCALED_OBJECTS, KedaStack, prometheus_trigger, scaled_object
from tests.cluster.metrics_stack import MetricsStack
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.integration.exporter import Exporter, Target, gauge
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import Program, wait_until
from tests.tools.programs import OLDER, release

pytestmark = [
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        bool(os.environ.get("PODSCALE_SHORT")) or release() == OLDER,
        reason="KEDA takes minutes to build: make test-full, beside the newest release",
    ),
]

COUNT = 300
WINDOW_S = 60
SETTLE_S = 15
SYNC_S = 15.0
QUEUES = [f"queue-{number}" for number in range(COUNT)]
APISERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
HPAS = "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers"
DEFAULTS = (
    "--metrics-relist-interval=10m", "--metrics-max-age=0s", "--feed-max-age=5s",
    "--v=0",
)  # fmt: skip
Spent = Mapping[str, float]  # process -> CPU, milliseconds a workload and minute


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Exporter]:
    with Exporter(tmp_path) as running:
        samples = [gauge("queue_messages", 10.0, queue=queue) for queue in QUEUES]
        running.set(("queues", Target({}, samples)))
        yield running


@pytest.fixture
def prometheus(tmp_path: Path, exporter: Exporter) -> Iterator[PrometheusServer]:
    scraped = [exporter.scrape_config(15.0)]
    with PrometheusServer(tmp_path, scrape_configs=scraped, evaluation_interval_s=15.0) as running:
        wait_until(
            "all queues are there",
            lambda: len(running.query("queue_messages")) == COUNT,
            60.0,
            (running.program,),
        )
        yield running


class Course:
    """The workloads on a plane, and what the programs spend while they are scaled."""

    def __init__(self, plane: Plane, namespace: str, prometheus: PrometheusServer) -> None:
        self._plane, self._namespace = plane, namespace
        self._always = {
            "Prometheus": prometheus.program,
            "kube-apiserver": plane.apiserver,
            "etcd": plane.etcd,
        }

    def active(self) -> int:
        """Return how many HPAs have read their metric."""
        found = self._plane.admin.get(HPAS.format(self._namespace))["items"]
        conditions = [each.get("status", {}).get("conditions") or () for each in found]
        return sum(
            any(one["type"] == "ScalingActive" and one["status"] == "True" for one in each)
            for each in conditions
        )

    def spent(self, programs: Mapping[str, Program]) -> Spent:
        """Wait until all HPAs are active, and return what each process then spends."""
        running = {**programs, **self._always}
        wait_until(
            "all HPAs are active", lambda: self.active() == COUNT, 300.0, tuple(running.values())
        )
        time.sleep(SETTLE_S)
        before = {name: cpu_s(program.pid) for name, program in running.items()}
        time.sleep(WINDOW_S)
        assert self.active() == COUNT
        return {
            name: (cpu_s(program.pid) - before[name]) * 1e3 / COUNT / (WINDOW_S / 60)
            for name, program in running.items()
        }

    @contextmanager
    def scaled_objects(self, url: str, keda: KedaStack) -> Iterator[None]:
        """Have a ScaledObject for each workload; their HPAs go with them."""
        made = [
            scaled_object(
                queue,
                self._namespace,
                prometheus_trigger(url, f'sum(queue_messages{{queue="{queue}"}})'),
                minReplicaCount=1,
            )
            for queue in QUEUES
        ]
        self._plane.apply(*made)
        keda.wait_ready(self._namespace, COUNT, 300.0)
        yield
        self._plane.admin.request("DELETE", SCALED_OBJECTS.format(self._namespace))
        wait_until("KEDA's HPAs are gone", lambda: not self._hpas(), 300.0, keda.programs)

    @contextmanager
    def autoscalers(self) -> Iterator[None]:
        """Have an HPA for each workload."""
        self._plane.apply(
            *(
                horizontal_pod_autoscaler(
                    queue, self._namespace, external("queue_messages", {"queue": queue})
                )
                for queue in QUEUES
            )
        )
        yield
        self._plane.admin.request("DELETE", HPAS.format(self._namespace))
        wait_until("no HPA is left", lambda: not self._hpas(), 60.0)

    def _hpas(self) -> Sequence[object]:
        found = self._plane.admin.get(HPAS.format(self._namespace))["items"]
        assert isinstance(found, list)
        return found


def test_our_route_spends_less_than_kedas(
    private_plane: Callable[[PlaneSettings], Plane],
    tmp_path: Path,
    exporter: Exporter,
    prometheus: PrometheusServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plane = private_plane(PlaneSettings())
    routes: dict[str, Spent] = {}
    with plane.namespace("cost") as namespace:
        course = Course(plane, namespace, prometheus)
        plane.apply(*(deployment(queue, namespace) for queue in QUEUES))
        with (
            KedaStack(plane, tmp_path, "--kube-api-qps=200", "--kube-api-burst=400") as keda,
            plane.in_tree_hpa(SYNC_S) as in_tree,
        ):
            hold(plane, keda)
            with course.scaled_objects(prometheus.url, keda):
                routes["KEDA"] = course.spent(
                    {
                        "KEDA's operator": keda.operator,
                        "KEDA's adapter": keda.adapter,
                        "kube-controller-manager": in_tree,
                    }
                )
        plane.admin.request("DELETE", f"{APISERVICES}/{EXTERNAL_SERVICE}")
        with (
            MetricsStack(plane, prometheus, exporter, tmp_path, arguments=DEFAULTS) as stack,
            plane.in_tree_hpa(SYNC_S) as in_tree,
            course.autoscalers(),
        ):
            routes["podscale adapter"] = course.spent(
                {"podscale adapter": stack.replicas[0], "kube-controller-manager": in_tree}
            )
        feed = [
            "--metrics-source=feed",
            f"--config={tmp_path / 'rules.yaml'}",
            f"--prometheus-url={prometheus.url}",
        ]
        with (
            HpaStack(plane, tmp_path, source=feed, sync_period=f"{SYNC_S:g}s") as hpa,
            course.autoscalers(),
        ):
            routes["podscale hpa"] = course.spent({"podscale hpa": hpa.replicas[0]})
    told = "\n".join(_told(routes))
    with capsys.disabled():
        print(f"\n{told}")
    assert _total(routes["podscale adapter"]) < _total(routes["KEDA"]), told
    assert _total(routes["podscale hpa"]) < _total(routes["KEDA"]), told


def _told(routes: Mapping[str, Spent]) -> Iterator[str]:
    """Yield what was spent, a route a line."""
    keda = _total(routes["KEDA"])
    yield f"CPU, ms a workload and minute, {COUNT} workloads for {WINDOW_S} s each:"
    for route, spent in routes.items():
        total = _total(spent)
        parts = json.dumps({name: round(amount, 1) for name, amount in spent.items()})
        yield f"{route}: {total:.1f}, KEDA's is {keda / total:.2f} times it: {parts}"


def _total(spent: Spent) -> float:
    """Return the whole route's: API server and etcd, whose work it makes, too."""
    return sum(spent.values())
