"""The three metrics APIs through the real kube-aggregator, with the deployed rights."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.identity import Client
from tests.cluster.metrics_stack import MetricsStack, busy_pod, node
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.integration.exporter import Exporter, Target, gauge
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import NotReadyError, wait_until

CUSTOM = "/apis/custom.metrics.k8s.io"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
RESOURCE = "/apis/metrics.k8s.io/v1beta1"
RATE = "http_requests_per_second"


pytestmark = pytest.mark.timeout(300)  # the HPA's own period, twice, beside slow machines


@pytest.fixture(scope="module")
def stack(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetricsStack]:
    directory = tmp_path_factory.mktemp("adapter")
    with (
        Exporter(directory) as exporter,
        PrometheusServer(directory, scrape_configs=[exporter.scrape_config()]) as prometheus,
        MetricsStack(plane, prometheus, exporter, directory) as running,
    ):
        exporter.set(*(node(f"node-{n}") for n in range(plane.settings.nodes)))
        exporter.set(("queue", Target({"queue": "orders"}, (gauge("queue_messages", 40.0),))))
        yield running


@pytest.fixture(scope="module")
def shop(plane: Plane, stack: MetricsStack) -> Iterator[str]:
    """A namespace with three pods at 10 requests/s, a Service and a Namespace metric."""
    with plane.namespace("shop") as namespace:
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "orders", "namespace": namespace},
            "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}},
        }
        plane.apply(deployment("web", namespace, replicas=3), service)
        wait_until("three pods", lambda: len(plane.ready_pods(namespace)) == 3, deadline_s=30)
        names = plane.ready_pods(namespace)
        stack.exporter.set(*(busy_pod(namespace, name, requests=10) for name in names))
        stack.exporter.set(
            (
                f"{namespace}.queue",
                Target({"namespace": namespace, "service": "orders"}, (gauge("queue_depth", 7.0),)),
            ),
            (f"{namespace}.load", Target({"namespace": namespace}, (gauge("namespace_load", 3),))),
        )
        settle(stack, f"{CUSTOM}/v1beta1/namespaces/{namespace}/pods/*/{RATE}", 3)
        yield namespace


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_every_custom_path_is_served_through_the_aggregator(
    stack: MetricsStack, shop: str, version: str
) -> None:
    base = f"{CUSTOM}/{version}"
    pods = stack.plane.ready_pods(shop)
    everything = stack.raw(f"{base}/namespaces/{shop}/pods/*/{RATE}?labelSelector=app%3Dweb")
    assert sorted(i["describedObject"]["name"] for i in everything["items"]) == sorted(pods)
    for item in everything["items"]:
        assert 9000 <= milli(item["value"]) <= 11000
        assert ("metricName" in item) == (version == "v1beta1")
        assert ("metric" in item) == (version == "v1beta2")
    one = stack.raw(f"{base}/namespaces/{shop}/pods/{pods[0]}/{RATE}")
    assert [i["describedObject"]["name"] for i in one["items"]] == [pods[0]]
    assert stack.raw(f"{base}/namespaces/{shop}/pods/%2A/{RATE}")["items"]
    service = stack.wait_for_metric(f"{base}/namespaces/{shop}/services/orders/queue_depth")
    assert service["items"][0]["value"] == "7"
    whole = stack.wait_for_metric(f"{base}/namespaces/{shop}/metrics/namespace_load")
    assert whole["items"][0]["describedObject"]["kind"] == "Namespace"
    assert stack.raw(f"{base}/namespaces/*/metrics/namespace_load")["items"]
    assert stack.raw(f"{base}/nodes/node-0/node_temperature")["items"][0]["value"] == "42"
    assert len(stack.raw(f"{base}/nodes/*/node_temperature")["items"]) == 3


def test_external_and_resource_metrics_are_served(stack: MetricsStack, shop: str) -> None:
    external = stack.wait_for_metric(f"{EXTERNAL}/namespaces/{shop}/queue_messages")
    assert (external["items"][0]["metricLabels"], external["items"][0]["value"]) == (
        {"queue": "orders"},
        "40",
    )
    pods = stack.wait_for_metric(f"{RESOURCE}/namespaces/{shop}/pods", 3)["items"]
    usage = pods[0]["containers"][0]["usage"]
    assert 90 <= milli(usage["cpu"]) <= 110
    assert usage["memory"] == "62500Ki"
    assert len(stack.raw(f"{RESOURCE}/nodes")["items"]) == 3
    name = pods[0]["metadata"]["name"]
    assert stack.raw(f"{RESOURCE}/namespaces/{shop}/pods/{name}")["kind"] == "PodMetrics"


def test_kubectl_top_and_api_resources_understand_us(stack: MetricsStack, shop: str) -> None:
    top = stack.plane.kubectl("top", "pods", "-n", shop)
    assert len(top.splitlines()) == 4
    cpu = [int(line.split()[1].removesuffix("m")) for line in top.splitlines()[1:]]
    assert all(90 <= each <= 110 for each in cpu)
    assert "node-0" in stack.plane.kubectl("top", "nodes")
    listed = ["--verbs=get", "-o", "name"]
    try:
        wait_until(
            # A minute after its last look, which it may have had a minute before we listed.
            "the aggregator has read our discovery",
            lambda: (
                {"queue_messages.external.metrics.k8s.io", "pods.metrics.k8s.io"}
                <= set(stack.plane.kubectl("api-resources", *listed).split())
            ),
            deadline_s=180,
        )
    except NotReadyError as late:
        said = [
            stack.plane.kubectl("api-resources", *listed, "--api-group", "external.metrics.k8s.io"),
            stack.plane.kubectl("api-resources", *listed, "--api-group", "metrics.k8s.io"),
            json.dumps(stack.raw(EXTERNAL)),
            stack.plane.kubectl("get", "apiservices", "-o", "wide"),
        ]
        raise NotReadyError("\n".join([str(late), *said])) from None
    # kubectl leaves out every name with a slash, as it leaves out pods/log.
    names = {r["name"] for r in stack.raw(f"{CUSTOM}/v1beta2")["resources"]}
    assert {f"pods/{RATE}", "services/queue_depth", "nodes/node_temperature"} <= names


def settle(stack: MetricsStack, path: str, count: int) -> None:
    """Wait until ``count`` pods have their full 10 requests/s: a rate begins low."""

    def probe() -> bool:
        items = stack.raw(path)["items"]
        return len(items) == count and all(milli(i["value"]) >= 9500 for i in items)

    stack.wait_for_metric(path, count)
    wait_until("the rates have settled", probe, deadline_s=30)


def milli(text: str) -> int:
    """Read the few forms of quantities these tests meet."""
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


PODS_METRIC = {
    "type": "Pods",
    "pods": {"metric": {"name": RATE}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
OBJECT_METRIC = {
    "type": "Object",
    "object": {
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "load"},
        "metric": {"name": "queue_depth"},
        "target": {"type": "AverageValue", "averageValue": "10"},
    },
}
NAMESPACE_METRIC = {
    "type": "Object",
    "object": {
        "describedObject": {"apiVersion": "v1", "kind": "Namespace", "name": "any"},
        "metric": {"name": "namespace_load"},
        "target": {"type": "AverageValue", "averageValue": "10"},
    },
}
EXTERNAL_METRIC = {
    "type": "External",
    "external": {
        "metric": {"name": "queue_messages", "selector": {"matchLabels": {"queue": "QUEUE"}}},
        "target": {"type": "AverageValue", "averageValue": "10"},
    },
}
RESOURCE_METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 100}},
}
CONTAINER_METRIC = {
    "type": "ContainerResource",
    "containerResource": {
        "name": "memory",
        "container": "app",
        "target": {"type": "AverageValue", "averageValue": "100M"},
    },
}
NOW = {"scaleDown": {"stabilizationWindowSeconds": 0}}


@pytest.mark.parametrize(
    "metric",
    [
        pytest.param(PODS_METRIC, id="Pods"),
        pytest.param(OBJECT_METRIC, id="Object"),
        pytest.param(NAMESPACE_METRIC, id="Object-of-kind-Namespace"),
        pytest.param(EXTERNAL_METRIC, id="External"),
        pytest.param(RESOURCE_METRIC, id="Resource"),
        pytest.param(CONTAINER_METRIC, id="ContainerResource"),
    ],
)
def test_the_in_tree_hpa_scales_up_and_down_on_what_we_serve(
    plane: Plane, stack: MetricsStack, metric: dict[str, Any]
) -> None:
    with plane.namespace("hpa") as namespace:
        metric = json.loads(json.dumps(metric).replace("QUEUE", namespace))
        plane.apply(
            deployment("web", namespace, replicas=2),
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "load", "namespace": namespace},
                "spec": {"ports": [{"port": 80}]},
            },
            horizontal_pod_autoscaler("web", namespace, metric, least=1, most=6, behavior=NOW),
        )
        wait_until("two pods", lambda: len(plane.ready_pods(namespace)) == 2, deadline_s=30)
        with plane.in_tree_hpa(
            1.0,
            "--horizontal-pod-autoscaler-cpu-initialization-period=0s",
            "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
        ):
            # Rates lag behind the load they measure, so the way up may pass 4 and come back.
            for load, wanted in ((40.0, {4, 5, 6}), (7.0, {1})):
                try:
                    wait_until(
                        f"{wanted} replicas at a load of {load}",
                        lambda wanted=wanted, load=load: (
                            keep_load(plane, stack, namespace, load)
                            and replicas(plane, namespace) in wanted
                        ),
                        deadline_s=150,
                        programs=tuple(stack.replicas),
                    )
                except NotReadyError as late:
                    pods = stack.raw(f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods")
                    said = plane.kubectl("describe", "hpa", "-n", namespace)
                    raise NotReadyError(f"{late}\n{said}\n{json.dumps(pods)}") from None


def replicas(plane: Plane, namespace: str) -> int:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    return int(plane.admin.get(path)["spec"]["replicas"])


def keep_load(plane: Plane, stack: MetricsStack, namespace: str, load: float) -> bool:
    """Spread ``load`` over the pods there are now, in every form the metrics take."""
    names = plane.ready_pods(namespace)
    share = load / max(len(names), 1)
    gone = [
        target
        for target in stack.exporter.targets
        if target.startswith(f"{namespace}.")
        and target.split(".", 1)[1] not in names
        and not target.endswith((".queue", ".load", ".messages"))
    ]
    stack.exporter.remove(*gone)
    stack.exporter.set(
        *(
            busy_pod(namespace, name, requests=share, cpu=share / 100, memory=share * 1e7)
            for name in names
        ),
        (
            f"{namespace}.queue",
            Target({"namespace": namespace, "service": "load"}, (gauge("queue_depth", load),)),
        ),
        (f"{namespace}.load", Target({"namespace": namespace}, (gauge("namespace_load", load),))),
        (f"{namespace}.messages", Target({"queue": namespace}, (gauge("queue_messages", load),))),
    )
    return True


def test_who_may_not_read_is_refused(plane: Plane, stack: MetricsStack, shop: str) -> None:
    path = f"{CUSTOM}/v1beta1/namespaces/{shop}/pods/*/{RATE}"
    refused = Client(plane.user("mallory", "dev")).request("GET", path)
    assert refused.status == 403
    assert f'cannot get resource "pods/{RATE}"' in refused.body["message"]
    assert Client(plane.anonymous()).request("GET", path).status == 403
    status, body = stack.direct(path, {"Authorization": "Bearer nonsense"})
    assert (status, body["reason"]) == (401, "Unauthorized")
    status, _ = stack.direct(path)
    assert status == 403


def test_forged_proxy_headers_are_not_believed(stack: MetricsStack, shop: str) -> None:
    forged = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    status, body = stack.direct(f"{CUSTOM}/v1beta1/namespaces/{shop}/pods/*/{RATE}", forged)
    assert status == 403
    assert "system:anonymous" in body["message"]


def test_pods_whose_exporter_dies_become_stale_and_no_answer_falls_towards_zero(
    plane: Plane, stack: MetricsStack
) -> None:
    with plane.namespace("stale") as namespace:
        plane.apply(deployment("web", namespace, replicas=10))
        wait_until("ten pods", lambda: len(plane.ready_pods(namespace)) == 10, deadline_s=30)
        names = plane.ready_pods(namespace)
        stack.exporter.set(*(busy_pod(namespace, name, requests=10) for name in names))
        path = f"{CUSTOM}/v1beta1/namespaces/{namespace}/pods/*/{RATE}"
        settle(stack, path, 10)
        killed = set(names[:3])
        stack.exporter.weather("down", *(f"{namespace}.{name}" for name in killed))
        deadline = time.monotonic() + 15
        while True:
            items = stack.raw(path)["items"]
            low = {
                i["describedObject"]["name"]: i["value"] for i in items if milli(i["value"]) < 8000
            }
            assert low == {}
            left = {i["describedObject"]["name"] for i in items}
            if not killed & left:
                break
            assert time.monotonic() < deadline, "a silent pod is still served"
        assert left == set(names) - killed
        with pytest.raises(subprocess.CalledProcessError, match="could not find the metric"):
            stack.raw(f"{CUSTOM}/v1beta1/namespaces/{namespace}/pods/{names[0]}/{RATE}")


def test_a_namespace_deletes_cleanly_while_prometheus_is_down(
    plane: Plane, stack: MetricsStack
) -> None:
    with plane.namespace("doomed") as namespace:
        stack.prometheus.pause()
        try:
            delete_and_wait(plane, namespace, deadline_s=30)
        finally:
            stack.prometheus.resume()


def delete_and_wait(plane: Plane, namespace: str, deadline_s: float) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    plane.admin.request("DELETE", path)
    wait_until(
        f"{namespace} is gone", lambda: plane.admin.request("GET", path).status == 404, deadline_s
    )


def test_namespaces_delete_without_rules_and_after_an_outage_of_ours(
    private_plane: Callable[[PlaneSettings], Plane], tmp_path: Path
) -> None:
    plane = private_plane(PlaneSettings(nodes=1))
    with (
        Exporter(tmp_path) as exporter,
        PrometheusServer(tmp_path, scrape_configs=[exporter.scrape_config()]) as prometheus,
    ):
        prometheus.pause()  # so that the first relist never ends
        with MetricsStack(plane, prometheus, exporter, tmp_path, rules="") as stack:
            with plane.namespace() as namespace:
                delete_and_wait(plane, namespace, deadline_s=30)
            for replica in stack.replicas:
                replica.stop()
            name = "v1beta1.custom.metrics.k8s.io"
            service = f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"
            wait_until(
                "the aggregator has noticed",
                lambda: "FailedDiscoveryCheck" in json.dumps(plane.admin.get(service)["status"]),
                deadline_s=60,
            )
            with plane.namespace() as namespace:
                path = f"/api/v1/namespaces/{namespace}"
                plane.admin.request("DELETE", path)
                wait_until(
                    "the namespace waits for us",
                    lambda: "DiscoveryFailed" in json.dumps(plane.admin.get(path)["status"]),
                    deadline_s=60,
                )
                for replica in stack.replicas:
                    replica.start()
                delete_and_wait(plane, namespace, deadline_s=60)
        prometheus.resume()
