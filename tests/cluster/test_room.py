"""Room on the real plane: for a resize that waits, and for the pods of a ramp."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from podscale.core import quantity
from podscale.nodes.cluster.pod_sums import HEADROOM_NAMESPACE
from tests.cluster.hpa_stack import HpaStack
from tests.cluster.identity import RefusedError
from tests.cluster.kubelet import kubelet
from tests.cluster.metrics_stack import RULES
from tests.cluster.nodes_stack import ROOT, NodesStack
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.integration.exporter import Exporter, Target, gauge
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import wait_until
from tests.tools.programs import OLDER, release
from tests.unit.nodes.test_headroom import HeadroomCluster

HOST = "kubernetes.io/hostname"
GATE = 'name="InPlacePodVerticalScalingSchedulerPreemption"'
Start = Callable[[PlaneSettings], Plane]


def vpa(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace,
                     "annotations": {"vpa.podscale.io/make-room": "true"}},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                 "updatePolicy": {"updateMode": "InPlaceOrRecreate"}},
    }  # fmt: skip


def fitting(name: str, namespace: str, cpu: str) -> dict[str, Any]:
    """Two pods whose resizes the pretended kubelet grants where the node has room."""
    made = deployment(name, namespace, replicas=2, requests={"cpu": cpu, "memory": "64Mi"})
    made["spec"]["template"]["metadata"]["labels"] = {"app": name, "kubelet": "fits"}
    return made


def reason(plane: Plane, namespace: str, name: str) -> str:
    """Return why a pod's resize waits; empty: it does not."""
    pod = plane.admin.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
    conditions = pod["status"].get("conditions", ())
    return next((each["reason"] for each in conditions if each["type"] == "PodResizePending"), "")


def test_a_deferred_resize_becomes_feasible(
    private_plane: Start, exporter: Exporter, prometheus: PrometheusServer, tmp_path: Path
) -> None:
    plane = private_plane(PlaneSettings(nodes=2, node_cpu="10", node_memory="64Gi"))
    plane.kubectl("apply", "--server-side", "-f", str(ROOT / "config/crds/vpa/vpa.yaml"))
    plane.wait_established("verticalpodautoscalers.autoscaling.k8s.io")
    if release() != OLDER:
        # By this line it is known whether the scheduler preempts for resizes itself.
        metrics = plane.admin.request("GET", "/metrics").raw.decode()
        lines = [line for line in metrics.splitlines() if GATE in line]
        assert [line.rpartition(" ")[2] for line in lines] == ["0"]
    with (
        plane.namespace("shop") as namespace,
        NodesStack(plane, exporter, prometheus, tmp_path) as stack,
        kubelet(plane, namespace),
    ):
        plane.kubectl("cordon", "node-1")
        sizes = {"web": "2", "large": "1900m", "small": "400m"}
        plane.apply(
            *(fitting(name, namespace, cpu) for name, cpu in sizes.items()),
            *(vpa(name, namespace) for name in sizes),
            {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
             "metadata": {"name": "large", "namespace": namespace},
             "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "large"}}}},
        )  # fmt: skip
        wait_until("all run on node-0", lambda: len(plane.ready_pods(namespace)) == 6, 60.0)
        plane.kubectl("uncordon", "node-1")
        before = {name: plane.ready_pods(namespace, {"app": name}) for name in sizes}
        grows = before["web"][0]
        part = stack.start("--make-room")
        wait_until("the part leads", lambda: "leading" in part.tail(), 30.0, (part,))

        container = {"name": "app", "resources": {"requests": {"cpu": "4"}}}
        plane.kubectl("patch", "pod", grows, "-n", namespace, "--subresource=resize",
                      "-p", json.dumps({"spec": {"containers": [container]}}))  # fmt: skip
        wait_until("the resize waits", lambda: reason(plane, namespace, grows) == "Deferred", 20.0)
        waits = time.monotonic()

        def is_granted() -> bool:
            pod = plane.admin.get(f"/api/v1/namespaces/{namespace}/pods/{grows}")
            actual = pod["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"]
            assert len(plane.ready_pods(namespace, {"app": "large"})) >= 1
            return actual == "4" and not reason(plane, namespace, grows)

        wait_until("the resize is granted", is_granted, 60.0, (part,))
        took_s = time.monotonic() - waits
        wait_until(
            "who went came back", lambda: len(plane.ready_pods(namespace)) == 6, 30.0, (part,)
        )
        gone = {
            name: len(set(pods) - set(plane.ready_pods(namespace, {"app": name})))
            for name, pods in before.items()
        }
        assert gone == {"web": 0, "large": 1, "small": 0}

        def is_told() -> bool:
            return "RoomMade" in plane.kubectl("get", "events", "-n", namespace)

        wait_until("the events are written", is_told, 20.0)
        print(f"a resize that was Deferred was granted {took_s:.1f} s later, after 1 eviction")


@dataclass
class NodeAdder:
    """A pretended node autoscaler: a node for pods that fit nowhere, some time after."""

    plane: Plane
    cores: int
    delay_s: float = 12.0
    added: list[float] = field(default_factory=list)  # when nodes came
    most_held: float = 0.0  # cores that headroom has requested at once
    waits: dict[str, tuple[float, float | None]] = field(default_factory=dict)  # seen, ready

    def look(self, namespace: str, ordered: list[float]) -> None:
        now = time.monotonic()
        while ordered and ordered[0] + self.delay_s <= now:
            ordered.pop(0)
            self.plane.add_node(f"added-{len(self.added)}-{namespace}")
            self.added.append(now)
        pods = self.plane.admin.get("/api/v1/pods")["items"]
        pending, held = 0, 0
        for pod in pods:
            if "deletionTimestamp" in pod["metadata"]:
                continue
            conditions = {each["type"]: each for each in pod["status"].get("conditions", ())}
            cpu = pod["spec"]["containers"][0]["resources"].get("requests", {}).get("cpu", "0")
            if conditions.get("PodScheduled", {}).get("reason") == "Unschedulable":
                pending += quantity.parse(cpu).milli
            if pod["metadata"]["namespace"] == "podscale-headroom":
                held += quantity.parse(cpu).milli
            if pod["metadata"]["namespace"] == namespace:
                seen, ready = self.waits.get(pod["metadata"]["uid"], (now, None))
                is_ready = conditions.get("Ready", {}).get("status") == "True"
                self.waits[pod["metadata"]["uid"]] = seen, ready or (now if is_ready else None)
        self.most_held = max(self.most_held, held / 1000)
        while pending > len(ordered) * (self.cores - 1) * 1000:
            ordered.append(now)

    @contextmanager
    def running(self, namespace: str) -> Iterator[None]:
        end, ordered, failures = threading.Event(), [], []  # type: ignore[var-annotated]

        def run() -> None:
            while not end.wait(0.2):
                try:
                    self.look(namespace, ordered)
                except (OSError, RefusedError) as error:
                    failures.append(str(error))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
        assert not failures, failures[:3]

    def seconds(self) -> list[float]:
        """How long each pod took from when it was seen until it was ready."""
        return [ready - seen for seen, ready in self.waits.values() if ready is not None]


def ramp(
    plane: Plane, exporter: Exporter, prometheus: PrometheusServer, tmp_path: Path, *words: str
) -> tuple[NodeAdder, float]:
    """Let an HPA go from 2 pods of a core to 14, two every five seconds; returns what came of it
    and the node-seconds until all run."""
    tmp_path.mkdir()
    rules = tmp_path / "hpa-rules.yaml"
    rules.write_text(RULES)
    source = (
        "--metrics-source=feed",
        f"--config={rules}",
        f"--prometheus-url={prometheus.url}",
        "--metrics-relist-interval=2s",
        "--metrics-max-age=30s",
        "--feed-max-age=500ms",
    )
    adder = NodeAdder(plane, 4)
    metric = {"type": "External", "external": {
        "metric": {"name": "queue_messages"}, "target": {"type": "AverageValue",
                                                         "averageValue": "10"}}}  # fmt: skip
    growth = {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 5}]}
    with (
        plane.namespace("ramp") as namespace,
        HpaStack(plane, tmp_path, source=source) as hpas,
        NodesStack(plane, exporter, prometheus, tmp_path) as stack,
    ):
        hpas.register()
        part = stack.start(*words)
        exporter.set(("queue", Target({"queue": "orders"}, [gauge("queue_messages", 20.0)])))
        plane.apply(
            deployment("web", namespace, replicas=2, requests={"cpu": "1", "memory": "64Mi"}),
            horizontal_pod_autoscaler("web", namespace, metric, least=2, most=14,
                                      behavior={"scaleUp": growth}),
        )  # fmt: skip
        programs = (part, *hpas.replicas)
        wait_until("two run", lambda: len(plane.ready_pods(namespace)) == 2, 30.0, programs)

        def is_decided() -> bool:
            status = hpas.decision(namespace, "web").get("status")
            return isinstance(status, dict) and status.get("proposals") == [2]

        wait_until("a decision is told", is_decided, 40.0, programs)
        wait_until("the part leads", lambda: "leading" in part.tail(), 30.0, programs)
        with adder.running(namespace):
            exporter.set(("queue", Target({"queue": "orders"}, [gauge("queue_messages", 140.0)])))
            wait_until("all run", lambda: len(plane.ready_pods(namespace)) == 14, 150.0, programs)
            done = time.monotonic()
            wait_until("all were seen", lambda: len(adder.seconds()) == 14, 10.0)
        cost = sum(done - came for came in adder.added)
        stack.stop(part)
        plane.admin.request("DELETE", f"/apis/apps/v1/namespaces/{namespace}/deployments/web")
        wait_until("its pods are gone", lambda: not plane.pods(namespace), 30.0)
    for number in range(len(adder.added)):
        plane.admin.request("DELETE", f"/api/v1/nodes/added-{number}-{namespace}")
    return adder, cost


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.timeout(600)
def test_a_ramp_with_headroom_waits_less_for_nodes(
    private_plane: Start, exporter: Exporter, prometheus: PrometheusServer, tmp_path: Path
) -> None:
    plane = private_plane(PlaneSettings(nodes=1, node_cpu="4", node_memory="64Gi"))
    without, alone = ramp(plane, exporter, prometheus, tmp_path / "without")
    limit = "--headroom-max=cpu=6,memory=4Gi"
    with_, cost = ramp(plane, exporter, prometheus, tmp_path / "with", limit)
    for name, made, seconds in (("without", without, alone), ("with", with_, cost)):
        waits = made.seconds()  # the first two were there
        print(
            f"{name} headroom: {len(waits)} pods ready after {mean(waits):.1f} s in the mean, "
            f"{max(waits):.1f} s at most; {len(made.added)} nodes, {seconds:.0f} node-seconds "
            f"until all ran, up to {made.most_held:g} cores held"
        )
    assert 0 < with_.most_held <= 6
    assert without.most_held == 0
    assert mean(with_.seconds()) < 0.7 * mean(without.seconds())


def filler(node: str) -> dict[str, Any]:
    requests = {"cpu": "5", "memory": "64Mi"}
    containers = [{"name": "app", "image": "pretend", "resources": {"requests": requests}}]
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"filler-{node}", "namespace": "default"},
            "spec": {"nodeName": node, "containers": containers}}  # fmt: skip


def test_headroom_for_pods_that_keep_apart_lies_where_they_will_run(
    private_plane: Start, exporter: Exporter, prometheus: PrometheusServer, tmp_path: Path
) -> None:
    plane = private_plane(PlaneSettings(nodes=3, node_cpu="10", node_memory="64Gi"))
    with plane.namespace("shop") as namespace, NodesStack(plane, exporter, prometheus, tmp_path):
        web = deployment("web", namespace, requests={"cpu": "1", "memory": "64Mi"})
        term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOST}
        apart = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        web["spec"]["template"]["spec"]["affinity"] = {"podAntiAffinity": apart}
        plane.apply(web)
        wait_until("it runs", lambda: plane.ready_pods(namespace), 30.0)
        # Its own node is the emptiest, so that without reason nothing goes elsewhere.
        own = plane.pods(namespace)[0]["spec"]["nodeName"]
        others = {f"node-{number}" for number in range(3)} - {own}
        plane.apply(*(filler(name) for name in others))
        keeper = HeadroomCluster()
        keeper.workloads["web"] = web
        keeper.decide("web", 1, 3, namespace=namespace)
        asyncio.run(keeper.round())
        (held,) = keeper.held["deployments"].values()
        plane.apply(held)
        wait_until("headroom runs", lambda: len(plane.ready_pods(HEADROOM_NAMESPACE)) == 2, 30.0)
        assert {pod["spec"]["nodeName"] for pod in plane.pods(HEADROOM_NAMESPACE)} == others
        # The pods come and take their room, which keeps them away as long as it is held.
        plane.kubectl("scale", "deployment/web", "--replicas=3", f"--namespace={namespace}")
        wait_until("all run", lambda: len(plane.ready_pods(namespace)) == 3, 30.0)
