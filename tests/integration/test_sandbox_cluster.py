"""Workloads, kubelets and load of the sandbox."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest

from podscale.core.selectors import selector
from podscale.sandbox.controllers.kubelet import NodeTiming
from podscale.sandbox.load import Load, Traffic
from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.objects.resources import SandboxResources
from podscale.sandbox.objects.storage import Storage
from podscale.sandbox.server import SandboxCluster, SandboxServer

QUICK = NodeTiming(start_s=0.02, ready_s=0.02, stop_s=0.02, resize_s=0.02)


@pytest.fixture
async def cluster() -> AsyncIterator[SandboxCluster]:
    async with SandboxCluster(SandboxServer(), timing=QUICK) as running:
        yield running


def deployment(replicas: int = 3, image: str = "web:1", cpu: str = "100m") -> dict[str, object]:
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu}}}
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [container]},
            },
        },
    }


async def until(cluster: SandboxCluster, holds: Callable[[], bool]) -> None:
    """Wait until ``holds``, looking again whenever a pod or a Deployment changes."""
    storage = cluster.server.storage
    async with asyncio.timeout(10):
        while True:
            pods = storage.table("", "pods").changed()
            if holds():
                return
            waits = [
                asyncio.ensure_future(event.wait())
                for event in (pods, storage.table("apps", "deployments").changed())
            ]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=0.2)
            for wait in waits:
                wait.cancel()


def ready(cluster: SandboxCluster) -> int:
    held = cluster.server.objects.get("deployments", "default", "web")
    return (held.get("status") or {}).get("readyReplicas", 0)


async def test_a_deployment_gets_ready_pods_and_follows_its_scale(cluster):
    objects = cluster.server.objects
    objects.create("deployments", "default", deployment(3))
    await until(cluster, lambda: ready(cluster) == 3)
    pods = objects.list("pods", "default", selector.parse("app=web"))
    assert len(pods) == 3
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    assert len({pod["status"]["podIP"] for pod in pods}) == 3
    held = objects.get("deployments", "default", "web")
    for replicas in (5, 1, 0):
        held = objects.get("deployments", "default", "web")
        spec = {**held["spec"], "replicas": replicas}
        objects.update("deployments", "default", "web", {**held, "spec": spec})
        await until(
            cluster,
            lambda want=replicas: (
                ready(cluster) == want and len(objects.list("pods", "default")) == want
            ),
        )


async def test_a_deleted_pod_is_replaced(cluster):
    objects = cluster.server.objects
    objects.create("deployments", "default", deployment(2))
    await until(cluster, lambda: ready(cluster) == 2)
    name = objects.list("pods", "default")[0]["metadata"]["name"]
    objects.delete("pods", "default", name)
    await until(
        cluster,
        lambda: objects.find("pods", "default", name) is None and ready(cluster) == 2,
    )


async def test_a_new_template_replaces_all_pods(cluster):
    objects = cluster.server.objects
    objects.create("deployments", "default", deployment(2))
    await until(cluster, lambda: ready(cluster) == 2)
    held = objects.get("deployments", "default", "web")
    template = deployment(2, image="web:2")["spec"]["template"]  # type: ignore[index]
    spec = {**held["spec"], "template": template}
    objects.update("deployments", "default", "web", {**held, "spec": spec})

    def is_rolled_out() -> bool:
        pods = objects.list("pods", "default")
        images = [pod["spec"]["containers"][0]["image"] for pod in pods]
        return images == ["web:2"] * 2 and ready(cluster) == 2

    await until(cluster, is_rolled_out)


async def test_deleting_the_deployment_leaves_nothing(cluster):
    objects = cluster.server.objects
    objects.create("deployments", "default", deployment(2))
    await until(cluster, lambda: ready(cluster) == 2)
    objects.delete("deployments", "default", "web")
    await until(cluster, lambda: not objects.list("pods", "default"))
    assert objects.list("replicasets", "default") == []


async def test_a_resize_is_actuated(cluster):
    objects = cluster.server.objects
    objects.create("deployments", "default", deployment(1))
    await until(cluster, lambda: ready(cluster) == 1)
    pod = objects.list("pods", "default")[0]
    wanted = {"requests": {"cpu": "300m"}}
    containers = [{**pod["spec"]["containers"][0], "resources": wanted}]
    changed = {**pod, "spec": {**pod["spec"], "containers": containers}}
    name = pod["metadata"]["name"]
    objects.update("pods", "default", name, changed)

    def actuated() -> bool:
        held = objects.get("pods", "default", name)
        return held["status"]["containerStatuses"][0]["resources"] == wanted

    await until(cluster, actuated)


async def test_what_fits_nowhere_stays_pending_until_there_is_room(cluster):
    objects = cluster.server.objects
    objects.create("deployments", "default", deployment(4, cpu="16"))
    await until(cluster, lambda: ready(cluster) == 3)
    pending = [p for p in objects.list("pods") if p["status"]["phase"] == "Pending"]
    assert [p["status"]["conditions"][0]["reason"] for p in pending] == ["Unschedulable"]
    running = next(p for p in objects.list("pods") if p["status"]["phase"] == "Running")
    objects.delete("pods", "default", running["metadata"]["name"])
    name = running["metadata"]["name"]
    await until(
        cluster, lambda: objects.find("pods", "default", name) is None and ready(cluster) == 3
    )


async def test_a_resize_gives_and_takes_room(cluster):
    objects = cluster.server.objects
    objects.create("deployments", "default", deployment(4, cpu="16"))
    await until(cluster, lambda: ready(cluster) == 3)
    pod = next(p for p in objects.list("pods") if p["status"]["phase"] == "Running")
    containers = [{**pod["spec"]["containers"][0], "resources": {"requests": {"cpu": "0"}}}]
    changed = {**pod, "spec": {**pod["spec"], "containers": containers}}
    objects.update("pods", "default", pod["metadata"]["name"], changed)
    await until(cluster, lambda: ready(cluster) == 4)


async def test_a_budget_counts_its_pods(cluster):
    objects = cluster.server.objects
    objects.create("deployments", "default", deployment(3))
    chosen = {"matchLabels": {"app": "web"}}
    budget = {"metadata": {"name": "b"}, "spec": {"maxUnavailable": 1, "selector": chosen}}
    objects.create("poddisruptionbudgets", "default", budget)

    def allowed() -> tuple[int, int]:
        status = objects.get("poddisruptionbudgets", "default", "b").get("status") or {}
        return status.get("currentHealthy", 0), status.get("disruptionsAllowed", 0)

    await until(cluster, lambda: allowed() == (3, 1))


async def test_pods_that_admission_refuses_are_tried_again(cluster):
    objects = cluster.server.objects
    configuration = {
        "kind": "MutatingWebhookConfiguration",
        "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": "down"},
        "webhooks": [
            {
                "name": "down.example.com",
                "clientConfig": {"url": "http://127.0.0.1:9/"},
                "rules": [
                    {
                        "operations": ["CREATE"],
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["pods"],
                    }
                ],
                "failurePolicy": "Fail",
            }
        ],
    }
    objects.put(configuration)
    objects.create("deployments", "default", deployment(1))
    await until(cluster, lambda: bool(objects.list("replicasets", "default")))
    assert objects.list("pods", "default") == []
    name = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
    objects.delete(name, "", "down")
    await until(cluster, lambda: ready(cluster) == 1)


async def test_the_exporter_shows_each_pods_share(cluster):
    objects = cluster.server.objects
    objects.create("deployments", "default", deployment(2))
    await until(cluster, lambda: ready(cluster) == 2)
    traffic = Traffic("default", selector.parse("app=web"), lambda _: 100.0)
    cluster.load.set("web", traffic)
    async with aiohttp.ClientSession() as session:
        pages = []
        for _ in range(2):
            async with session.get(cluster.metrics_url) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                pages.append(await answer.text())
            await asyncio.sleep(0.05)
    pattern = r'http_requests_total\{namespace="default",pod="(web-[^"]+)",node="[^"]+"\} (\S+)'
    counts = [dict(re.findall(pattern, page)) for page in pages]
    assert len(counts[1]) == 2
    assert all(float(counts[1][pod]) > float(counts[0][pod]) for pod in counts[1])


def test_cpu_stops_at_the_limit_and_unready_pods_get_nothing():
    objects = SandboxObjects(Storage(), SandboxResources())
    for name, is_up in (("a", "True"), ("b", "False")):
        limits = {"limits": {"cpu": "500m"}}
        objects.put(
            {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "resources": limits}]},
                "status": {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": is_up}],
                },
            }
        )
    load = Load(objects)
    load.set("web", Traffic("default", selector.parse("app=web"), lambda _: 1000.0))
    load.advance(1000.0)
    load.advance(1010.0)
    usage = {pod["metadata"]["name"]: used for pod, used in load.pods()}
    assert usage["a"].cpu_cores == 0.5
    assert usage["a"].cpu_s == pytest.approx(5.0)
    assert usage["a"].requests == pytest.approx(495.0)
    assert usage["b"].rps == 0.0
