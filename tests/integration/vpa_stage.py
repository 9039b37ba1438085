"""A small cluster with the VPA's CRDs, and usage that a test sets."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from podscale.core.metrics import Answer, ContainerColumns, Question, Unavailable
from podscale.kube.client.api import Api
from podscale.kube.client.connect import ApiServerTarget, connect
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.informer.list_watch import WatchTiming
from podscale.sandbox.controllers.kubelet import NodeTiming
from podscale.sandbox.server import SandboxCluster, SandboxServer
from vpa.stores import VpaStores

ROOT = Path(__file__).parent.parent.parent
QUICK = NodeTiming(start_s=0.02, ready_s=0.02, stop_s=0.02, resize_s=0.02)
RHYTHM = WatchTiming(backoff_s=0.02, backoff_max_s=0.2, poll_s=0.2)


class Usage:
    """A source of usage: every container of the cluster uses the same, at the time it is asked."""

    def __init__(self, cluster: SandboxCluster) -> None:
        self._cluster = cluster
        self.cores, self.memory = 0.2, 300.0 * 2**20
        self.is_down = False
        self.now = 1_800_000_000.0
        self.step_s = 60.0

    async def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        self.now += self.step_s
        return [self._columns() for _ in questions]

    def _columns(self) -> Answer:
        if self.is_down:
            return Unavailable("Down", "Prometheus does not answer")
        rows = [
            (pod["metadata"]["namespace"], pod["metadata"]["name"], container["name"])
            for pod in self._cluster.server.objects.list("pods")
            if (pod.get("status") or {}).get("phase") == "Running"
            for container in pod["spec"]["containers"]
        ]
        count = len(rows)
        return ContainerColumns(
            namespace=[row[0] for row in rows],
            pod=[row[1] for row in rows],
            container=[row[2] for row in rows],
            cpu_cores=np.full(count, self.cores),
            memory_bytes=np.full(count, self.memory),
            time_s=np.full(count, self.now),
            asked_s=self.now,
        )


class Stage:
    """A cluster, a connection to it, and helpers."""

    def __init__(self, cluster: SandboxCluster, api: Api, discovery: ApiDiscovery) -> None:
        self.cluster, self.api, self.discovery = cluster, api, discovery
        self.objects = cluster.server.objects
        self.usage = Usage(cluster)

    def stores(self, **more: Any) -> VpaStores:
        return VpaStores(self.api, self.discovery, **more)

    def vpa(self, name: str = "web") -> dict[str, Any]:
        return self.objects.get("verticalpodautoscalers", "default", name)

    def pods(self) -> list[dict[str, Any]]:
        found = self.objects.list("pods", "default")
        return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]

    def ready(self) -> int:
        return sum(_is_ready(pod) for pod in self.pods())

    async def until(self, claim: Callable[[], bool], timeout_s: float = 15.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not claim():  # noqa: ASYNC110 - claims are about anything
                await asyncio.sleep(0.02)


@asynccontextmanager
async def stage(directory: Path) -> AsyncIterator[Stage]:
    """Start a cluster with the CRDs."""
    cluster = SandboxCluster(SandboxServer(tls=True, bookmark_interval_s=0.5), timing=QUICK)
    async with cluster:
        for crd in yaml.safe_load_all((ROOT / "config/crds/vpa/vpa.yaml").read_text()):
            cluster.server.objects.create("customresourcedefinitions", "", crd)
        kubeconfig = cluster.server.kubeconfig(directory / "kubeconfig")
        async with connect(ApiServerTarget(kubeconfig=str(kubeconfig)), user_agent="test") as api:
            discovery = ApiDiscovery(api)
            await discovery.refresh()
            yield Stage(cluster, api, discovery)


def deployment(
    replicas: int = 2,
    name: str = "web",
    cpu: str = "100m",
    memory: str = "64Mi",
    limits: dict[str, str] | None = None,
) -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": {"cpu": cpu, "memory": memory}}
    if limits:
        resources["limits"] = limits
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "resources": resources}]},
            },
        },
    }


def vpa(mode: str | None = None, name: str = "web", **spec: Any) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        **spec,
    }
    if mode is not None:
        wanted["updatePolicy"] = {"updateMode": mode, **wanted.get("updatePolicy", {})}
    return {
        "kind": "VerticalPodAutoscaler",
        "apiVersion": "autoscaling.k8s.io/v1",
        "metadata": {"name": name},
        "spec": wanted,
    }


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
