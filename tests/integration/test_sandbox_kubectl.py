"""kubectl against the sandbox: what people will try in the demo."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from podscale.sandbox.http.extensions import URL_ANNOTATION
from tests.kit.apiserver.server import FaultySandbox
from tests.tools.required import require

MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: "IMAGE", ports: [{containerPort: 80}]}
      - {name: side, image: "side:1"}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 5
  metrics:
  - type: Pods
    pods: {metric: {name: rps}, target: {type: AverageValue, averageValue: "5"}}
"""
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing, shortNames: [th]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Mode, type: string, jsonPath: .spec.mode}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {mode: {type: string, default: Auto}}}
"""
THING = """
apiVersion: example.com/v1
kind: Thing
metadata: {name: one}
spec: {}
"""


class Kubectl:
    """Runs kubectl as a process."""

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        self._kubeconfig = kubeconfig
        self._directory = directory

    async def run(self, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        process = await asyncio.create_subprocess_exec(
            require("kubectl"),
            f"--kubeconfig={self._kubeconfig}",
            f"--cache-dir={self._directory / 'cache'}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(30):
            out, err = await process.communicate(stdin.encode())
        assert (process.returncode != 0) == fails, (arguments, out.decode(), err.decode())
        return (err if fails else out).decode()

    async def apply(self, manifest: str, *arguments: str) -> list[str]:
        out = await self.run("apply", *arguments, "-f", "-", stdin=manifest)
        return [line.rpartition(" ")[2] for line in out.splitlines()]


@pytest.fixture
async def server() -> AsyncIterator[FaultySandbox]:
    async with FaultySandbox(tls=True) as running:
        yield running


@pytest.fixture
def kubectl(server: FaultySandbox, tmp_path: Path) -> Kubectl:
    return Kubectl(server.kubeconfig(tmp_path / "kubeconfig"), tmp_path)


def manifest(replicas: int = 2, image: str = "main:1") -> str:
    return MANIFEST.replace("REPLICAS", str(replicas)).replace("IMAGE", image)


async def test_apply_creates_then_leaves_alone_then_changes(kubectl, server):
    assert await kubectl.apply(manifest()) == ["created", "created"]
    assert await kubectl.apply(manifest()) == ["unchanged", "unchanged"]
    held = server.objects.get("deployments", "default", "web")
    spec = json.loads(json.dumps(held["spec"]))
    spec["template"]["spec"]["containers"].append({"name": "injected", "image": "i"})
    server.objects.update("deployments", "default", "web", {**held, "spec": spec})
    assert await kubectl.apply(manifest(image="main:2")) == ["configured", "unchanged"]
    containers = server.objects.get("deployments", "default", "web")["spec"]["template"]["spec"][
        "containers"
    ]
    images = {container["name"]: container["image"] for container in containers}
    assert images == {"main": "main:2", "side": "side:1", "injected": "i"}


@pytest.mark.parametrize("kind", ["List", "ConfigMapList"])
async def test_a_list_is_applied_item_by_item(kubectl, server, kind):
    items = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}
        for name in ("one", "two")
    ]
    listed = {"apiVersion": "v1", "kind": kind, "items": items}
    assert await kubectl.apply(json.dumps(listed)) == ["created", "created"]
    items[1]["data"] = {"a": "c"}
    assert await kubectl.apply(json.dumps(listed)) == ["unchanged", "configured"]
    assert server.objects.get("configmaps", "default", "two")["data"] == {"a": "c"}
    astray = {**items[0], "metadata": {"name": "three", "namespace": "nowhere"}}
    more = {**listed, "items": [astray, {**items[0], "data": {"a": "d"}}]}
    refusal = await kubectl.run("apply", "-f", "-", stdin=json.dumps(more), fails=True)
    assert 'namespaces "nowhere" not found' in refusal
    assert server.objects.get("configmaps", "default", "one")["data"] == {"a": "d"}
    await kubectl.run("delete", "-f", "-", stdin=json.dumps(listed))
    assert server.objects.find("configmaps", "default", "one") is None


async def test_get_scale_patch_label_and_delete(kubectl, server):
    await kubectl.apply(manifest())
    table = await kubectl.run("get", "deploy,hpa")
    assert "deployment.apps/web   0/2" in table
    assert "Deployment/web   <unknown>/5 (avg)" in table
    await kubectl.run("scale", "deploy/web", "--replicas=4", "--current-replicas=2")
    assert server.objects.get("deployments", "default", "web")["spec"]["replicas"] == 4
    await kubectl.run("patch", "deploy", "web", "-p", '{"spec":{"replicas":3}}')
    await kubectl.run("label", "deploy", "web", "tier=front")
    await kubectl.run("annotate", "hpa", "web", "podscale.io/paused=true")
    out = await kubectl.run("get", "deploy", "-l", "tier=front", "-o", "jsonpath={..replicas}")
    assert out == "3"
    out = await kubectl.run("get", "deploy/web", "-o", "jsonpath={.metadata.generation}")
    assert out == "3"
    await kubectl.run("delete", "deploy,hpa", "--all", "--timeout=10s")
    assert server.objects.list("deployments") == []
    missing = await kubectl.run("get", "deploy", "web", fails=True)
    assert 'deployments.apps "web" not found' in missing


async def test_describe_shows_conditions_and_events(kubectl, server):
    await kubectl.apply(manifest())
    hpa = server.objects.get("horizontalpodautoscalers", "default", "web")
    condition = {
        "type": "AbleToScale",
        "status": "True",
        "reason": "ReadyForNewScale",
        "message": "recommended size matches current size",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"currentReplicas": 2, "desiredReplicas": 2, "conditions": [condition]}
    server.objects.update(
        "horizontalpodautoscalers", "default", "web", {**hpa, "status": status}, "status"
    )
    server.objects.put(
        {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": "e", "namespace": "default"},
            "involvedObject": {
                "kind": "HorizontalPodAutoscaler",
                "name": "web",
                "namespace": "default",
                "uid": hpa["metadata"]["uid"],
            },
            "type": "Normal",
            "reason": "SuccessfulRescale",
            "message": "New size: 2; reason: test",
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }
    )
    text = await kubectl.run("describe", "hpa", "web")
    assert "AbleToScale  True    ReadyForNewScale" in text
    assert "SuccessfulRescale" in text
    assert "New size: 2; reason: test" in text
    assert "Replicas:" in await kubectl.run("describe", "deploy", "web")


async def test_watching_with_kubectl_sees_changes(kubectl, server):
    await kubectl.apply(manifest())
    waiting = asyncio.create_task(
        kubectl.run("wait", "--for=jsonpath={.spec.replicas}=7", "deploy/web", "--timeout=20s")
    )
    while not server.counts["watch", "deployments.apps"]:  # noqa: ASYNC110 - kubectl decides when
        await asyncio.sleep(0.02)
    held = server.objects.get("deployments", "default", "web")
    spec = {**held["spec"], "replicas": 7}
    server.objects.update("deployments", "default", "web", {**held, "spec": spec})
    assert "condition met" in await waiting


async def test_custom_resources_are_served_printed_and_removed(kubectl):
    await kubectl.apply(CRD)
    await kubectl.run("wait", "--for=condition=Established", "crd/things.example.com")
    await kubectl.apply(THING)
    table = await kubectl.run("get", "th")
    assert table.split() == ["NAME", "MODE", "one", "Auto"]
    await kubectl.run("patch", "thing", "one", "--type=merge", "-p", '{"spec":{"mode":"Off"}}')
    assert (await kubectl.run("get", "thing", "one", "-o", "jsonpath={.spec.mode}")) == "Off"
    await kubectl.run("delete", "crd", "things.example.com")
    refused = await kubectl.run("get", "th", fails=True)
    assert "could not find the requested resource" in refused


async def test_top_reads_metrics_through_the_aggregated_api(kubectl, server):
    usage = {"cpu": "250m", "memory": "64Mi"}
    times = {"timestamp": "2026-01-01T00:00:00Z", "window": "30s"}
    pod = {
        "metadata": {"name": "web-1", "namespace": "default"},
        "containers": [{"name": "main", "usage": usage}],
        **times,
    }
    node = {"metadata": {"name": "n1"}, "usage": usage, **times}
    api = "metrics.k8s.io/v1beta1"
    resources = [
        {
            "resource": name,
            "singularResource": "",
            "scope": scope,
            "responseKind": {"group": "", "version": "", "kind": kind},
            "verbs": ["get", "list"],
        }
        for name, scope, kind in (
            ("nodes", "Cluster", "NodeMetrics"),
            ("pods", "Namespaced", "PodMetrics"),
        )
    ]
    served = {"version": "v1beta1", "resources": resources}
    documents = {
        "/apis": {
            "kind": "APIGroupDiscoveryList",
            "items": [{"metadata": {"name": "metrics.k8s.io"}, "versions": [served]}],
        },
        f"/apis/{api}": {"kind": "APIResourceList", "resources": []},
        f"/apis/{api}/namespaces/default/pods": {
            "kind": "PodMetricsList",
            "apiVersion": api,
            "metadata": {},
            "items": [pod],
        },
        f"/apis/{api}/nodes": {
            "kind": "NodeMetricsList",
            "apiVersion": api,
            "metadata": {},
            "items": [node],
        },
    }

    async def answer(request: web.Request) -> web.Response:
        document = documents.get(request.path)
        return web.json_response(document, status=200 if document else 404)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        server.objects.put(
            {
                "kind": "APIService",
                "apiVersion": "apiregistration.k8s.io/v1",
                "metadata": {
                    "name": "v1beta1.metrics.k8s.io",
                    "annotations": {URL_ANNOTATION: f"http://127.0.0.1:{runner.addresses[0][1]}"},
                },
                "spec": {"group": "metrics.k8s.io", "version": "v1beta1"},
            }
        )
        capacity = {"cpu": "1", "memory": "128Mi"}
        server.objects.put(
            {
                "kind": "Node",
                "apiVersion": "v1",
                "metadata": {"name": "n1"},
                "spec": {},
                "status": {"allocatable": capacity, "capacity": capacity},
            }
        )
        assert (await kubectl.run("top", "pods")).split()[-3:] == ["web-1", "250m", "64Mi"]
        out = (await kubectl.run("top", "nodes")).split()[-5:]
        assert out == ["n1", "250m", "25%", "64Mi", "50%"]
        listed = await kubectl.run("api-resources", "--api-group=metrics.k8s.io")
        assert "PodMetrics" in listed
    finally:
        await runner.cleanup()


async def test_what_is_not_served_is_refused_plainly(kubectl, server):
    for words in (
        ("create", "namespace", "team"),
        ("apply", "--server-side", "-f", "-"),
    ):
        refused = await kubectl.run(*words, stdin=manifest(), fails=True)
        assert "accepted media types include: application/json" in refused
    assert server.objects.find("namespaces", "", "team") is None


@pytest.mark.needs("kubectl")
async def test_the_sandbox_runs_as_a_process_of_its_own(tmp_path):
    (tmp_path / "web.yaml").write_text(manifest())
    kubeconfig = tmp_path / "kubeconfig"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.kit.sandbox", "--tls", "--nodes=1", f"--kubeconfig={kubeconfig}"),
        str(tmp_path / "web.yaml"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            lines = [(await process.stdout.readline()).decode().strip() for _ in range(2)]
        assert lines[0].startswith("https://127.0.0.1:")
        assert lines[1].endswith("/metrics")
        kubectl = Kubectl(kubeconfig, tmp_path)
        wanted = "--for=jsonpath={.status.readyReplicas}=2"
        await kubectl.run("wait", wanted, "deploy/web", "--timeout=20s")
    finally:
        process.terminate()
        assert await process.wait() == 0


@pytest.mark.needs("kubectl")
async def test_a_token_limits_kubectl_to_what_rbac_allows(server, tmp_path):
    server.enforce_rbac = True
    token = server.tokens.issue("amy")
    kubectl = Kubectl(server.kubeconfig(tmp_path / "amy", token=token), tmp_path)
    refused = await kubectl.run("get", "pods", fails=True)
    assert 'User "amy" cannot list resource "pods"' in refused
