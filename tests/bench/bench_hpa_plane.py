"""1,000 HPAs on the real API server: Kubernetes' own controller, ours, and theirs once more, on
the same objects. On a shared machine the same work takes up to twice the CPU time from one minute
to the next: the mean of all periods of theirs, as many just before ours as just after, is compared
with the mean of all of ours, and each period is printed.

Etcd, kube-apiserver and Prometheus are real; nothing else runs, so that the CPU of all of
them is that of autoscaling (and what they cost idle, which is measured and subtracted). The
in-tree controller gets its metrics through our adapter, whose CPU is not counted, with a query
for every question: that is its pattern behind prometheus-adapter. What it costs behind our
adapter as we deploy it, whose queries are the fewest that this controller can cause, is printed
too. Each acts as it is deployed: theirs with the certificate of its kubeconfig, ours with its
account's token and its roles.
``PODSCALE_BENCH_PLANE_HPAS``: another number.
"""

import http.client
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from tests.bench.bench_hpa import PERIOD_S, RULES
from tests.bench.figures import Figures, resident_mb
from tests.bench.hpa_cluster import PER_NAMESPACE, PODS, hpa, name_of, namespace_of, pod, workload
from tests.bench.periods import Period, Pids, mean, measure
from tests.bench.reconciles import reconciles
from tests.cluster.hpa_stack import ACCOUNT, NAMESPACE, grant
from tests.cluster.metrics_stack import MetricsStack
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.integration.exporter import Exporter
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import LOOPBACK, Program, free_port, wait_until

# At first it handles all HPAs in one dense burst a period. From the fourth period on they are
# spread over half of it and, with the same requests, cost 1.1 to 1.55 times as much.
THEIR_WARM_S = 4 * PERIOD_S
THEIR_PERIODS = 6  # on each side of ours
NOTED_PERIODS = 3  # of what no goal depends on
IDLE_PERIODS = 4  # a tenth of what ours costs is the difference between two idle periods
OURS_WARM_S = 6 * PERIOD_S  # until what is written in a first minute only is over
OUR_PERIODS = 20  # five minutes: in that time every status and every Event is due once
SEEDERS = 6
TUNED = (
    "--kube-api-qps=1000",
    "--kube-api-burst=2000",
    "--concurrent-horizontal-pod-autoscaler-syncs=50",
)
ADAPTER = "adapter (not counted)"
ONE_BY_ONE = ("--coalescing=off", "--sample-timestamps=off")  # as prometheus-adapter asks


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


def versions(plane: Plane) -> dict[str, str]:
    """Return the resourceVersion of every HPA."""
    listed = plane.admin.get("/apis/autoscaling/v2/horizontalpodautoscalers")["items"]
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in listed}


def main() -> int:
    count = int(os.environ.get("PODSCALE_BENCH_PLANE_HPAS", "1000"))
    figures = Figures("hpa on the real API server")
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as exit_:
        directory = Path(scratch)
        plane = Plane(directory, PlaneSettings(nodes=0))
        exit_.callback(plane.stop)
        plane.etcd.start()
        plane.start_apiserver()
        began = time.monotonic()
        seed(plane, count)
        figures.note(f"{count} HPAs, {count * PODS} pods made in {time.monotonic() - began:.0f} s")
        prometheus = _prometheus(exit_, directory, count)
        servers = {
            "API server": plane.apiserver.pid,
            "etcd": plane.etcd.pid,
            "Prometheus": prometheus.program.pid,
        }
        time.sleep(5.0)
        idle = mean(measure(servers, IDLE_PERIODS, PERIOD_S))
        figures.note(f"idle: {_told(idle)}")
        stage = (plane, prometheus, directory, servers, count)
        _in_tree(figures, (), ONE_BY_ONE, NOTED_PERIODS, idle, *stage)
        before = _in_tree(figures, TUNED, ONE_BY_ONE, THEIR_PERIODS, idle, *stage)
        # Anew: it is a larger part of what ours costs.
        idle = mean(measure(servers, IDLE_PERIODS, PERIOD_S))
        figures.note(f"idle once more: {_told(idle)}")
        ours = _ours(figures, idle, *stage)
        after = _in_tree(figures, TUNED, ONE_BY_ONE, THEIR_PERIODS, idle, *stage)
        behind_ours = _in_tree(figures, TUNED, (), NOTED_PERIODS, idle, *stage)
        theirs = fmean((*before, *after))
        figures.at_least(
            "times less CPU of controller, API server, etcd and Prometheus",
            theirs / fmean(ours), 10.0,
            f"(means of {len(before)} periods before and {len(after)} after, {fmean(before):.2f} "
            f"and {fmean(after):.2f} ms, against {len(ours)} of ours, {fmean(ours):.3f} ms per "
            "HPA and period)",
        )  # fmt: skip
        merged = fmean(behind_ours) / fmean(ours)
        figures.note(f"  behind our adapter with merged queries: {merged:.2f} times")
    return figures.finish()


def _prometheus(exit_: ExitStack, directory: Path, count: int) -> PrometheusServer:
    port = free_port()
    command = [
        sys.executable, "-m", "tests.bench.noise", "--hpas", str(count), "--port", str(port),
    ]  # fmt: skip
    exit_.enter_context(Program("noise", command, directory / "noise.log"))
    scrape = {
        "job_name": "noise",
        "honor_labels": True,
        "scrape_interval": f"{PERIOD_S:g}s",
        "scrape_timeout": "14s",
        "static_configs": [{"targets": [f"{LOOPBACK}:{port}"]}],
    }
    server = exit_.enter_context(PrometheusServer(directory, scrape_configs=[scrape]))
    server.wait_for("count(load)", deadline_s=60)
    return server


def _in_tree(
    figures: Figures,
    flags: Sequence[str],
    queries: Sequence[str],
    number: int,
    idle: Mapping[str, float],
    plane: Plane,
    prometheus: PrometheusServer,
    directory: Path,
    servers: Pids,
    count: int,
) -> list[float]:
    """Return the CPU in ms per HPA of ``number`` periods with the in-tree controller."""
    rare = ("--metrics-relist-interval=1m", "--metrics-max-age=5m", "--feed-max-age=5s")
    arguments = (*rare, *queries)
    with (
        Exporter(directory) as exporter,
        MetricsStack(
            plane, prometheus, exporter, directory, rules=RULES, arguments=arguments
        ) as stack,
    ):
        namespace, name = namespace_of(0), name_of(0)
        stack.wait_for_metric(
            f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/pods/*/load"
            f"?labelSelector=app%3D{name}",
            PODS,
        )
        with plane.in_tree_hpa(PERIOD_S, *flags) as controller:
            time.sleep(THEIR_WARM_S)
            before = reconciles(plane, controller)
            pids = {"controller": controller.pid, **servers, ADAPTER: stack.replicas[0].pid}
            periods = measure(pids, number, PERIOD_S)
            made = (reconciles(plane, controller) - before) / count / number
            memory = resident_mb(controller.pid)
    periods = _above(idle, periods)
    figures.note(
        f"in-tree, {' '.join(flags) or 'its default flags'}, "
        f"{'a query each' if queries else 'queries merged'}: {made:.2f} reconciles per HPA and "
        f"period; CPU a period: {_told(mean(periods))}; {memory:.0f} MB"
    )
    if flags:
        assert 0.8 <= made <= 1.05, "the peer does not keep its period: this tells nothing"
    return _each(figures, periods, count)


def _ours(
    figures: Figures,
    idle: Mapping[str, float],
    plane: Plane,
    prometheus: PrometheusServer,
    directory: Path,
    servers: Pids,
    count: int,
) -> list[float]:
    """Return the CPU in ms per HPA of each period of ours."""
    grant(plane)
    rules = directory / "hpa-rules.yaml"
    rules.write_text(RULES)
    kubeconfig = plane.kubeconfig_for(NAMESPACE, ACCOUNT)
    port = free_port()
    command: Sequence[str] = [
        sys.executable, "-m", "podscale", "hpa",
        f"--config={rules}", f"--prometheus-url={prometheus.url}",
        f"--kubeconfig={kubeconfig}", f"--lister-kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}",
        f"--secure-port={port}", f"--bind-address={LOOPBACK}", f"--cert-dir={directory}/hpa",
        "--metrics-relist-interval=1m", "--metrics-max-age=5m",
        "--leader-elect=false",  # as the plane's controller manager
    ]  # fmt: skip
    with Program("hpa", command, directory / "hpa.log") as program:
        untouched = versions(plane)
        wait_until(
            "ours wrote statuses of its own",
            lambda: sum(untouched[k] != v for k, v in versions(plane).items()) >= count * 0.03,
            120,
            (program,),
        )
        # The foreign controller's traces expire, caches fill, every status is written once.
        time.sleep(OURS_WARM_S)
        before = versions(plane)
        periods = measure({"controller": program.pid, **servers}, OUR_PERIODS, PERIOD_S)
        reached = sum(before[k] != v for k, v in versions(plane).items())
        memory = resident_mb(program.pid)
    periods = _above(idle, periods)
    figures.note(
        f"podscale hpa: statuses of {reached} HPAs written in {OUR_PERIODS} periods; CPU a "
        f"period: {_told(mean(periods))}; {memory:.0f} MB"
    )
    restless = sum(1 for index in range(count) if index % 20 == 0)
    assert reached >= restless, "ours does not act: this run tells nothing"
    return _each(figures, periods, count)


def _above(idle: Mapping[str, float], periods: Sequence[Period]) -> list[Period]:
    """Return ``periods`` without what each program costs idle."""
    return [
        replace(each, used={name: used - idle.get(name, 0.0) for name, used in each.used.items()})
        for each in periods
    ]


def _each(figures: Figures, periods: Sequence[Period], count: int) -> list[float]:
    """Return the CPU in ms per HPA of each period, and print it."""
    found = [
        sum(used for name, used in each.used.items() if name != ADAPTER) / count * 1e3
        for each in periods
    ]
    figures.note(f"  each period, ms per HPA: {' '.join(f'{each:.2f}' for each in found)}")
    others = " ".join(f"{each.others / PERIOD_S:.2f}" for each in periods)
    figures.note(f"  cores that others used:  {others}")
    return found


def _told(used: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in used.items())


if __name__ == "__main__":
    sys.exit(main())
