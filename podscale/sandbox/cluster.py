"""A whole little cluster: the API server, controllers, kubelets, and load with its metrics."""

import asyncio
import contextlib
from typing import Self

from aiohttp import web

from podscale.sandbox.controllers.kubelet import Kubelet, NodeTiming
from podscale.sandbox.controllers.workloads import Disruption, WorkloadControllers
from podscale.sandbox.load import exporter
from podscale.sandbox.load.traffic import Load
from podscale.sandbox.objects.storage import Object
from podscale.sandbox.server import SandboxServer

_CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"


class SandboxCluster:
    """Runs while the context is open; ``server`` is its API server, ``load`` what pods do.

    ``metrics_url`` is the page that a Prometheus scrapes (``honor_labels: true``).
    """

    def __init__(
        self, server: SandboxServer, *, nodes: int = 3, timing: NodeTiming | None = None
    ) -> None:
        self.server = server
        self.kubelet = Kubelet(server.objects, timing)
        self.load = Load(server.objects, self.kubelet.kill_for_memory)
        for number in range(nodes):
            self.kubelet.add_node(f"node-{number + 1}")
        self._workloads = WorkloadControllers(server.objects, self._create_pod)
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: web.ServerRunner | None = None
        self.metrics_url = ""

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        self._runner = web.ServerRunner(web.Server(self._metrics), access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.metrics_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/metrics"
        self._tasks = [
            asyncio.create_task(self._workloads.run()),
            asyncio.create_task(self.kubelet.run()),
            asyncio.create_task(Disruption(self.server.objects).run()),
        ]
        return self

    async def __aexit__(self, *reason: object) -> None:
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._runner is not None:
            await self._runner.cleanup()
        await self.server.__aexit__(*reason)

    async def _create_pod(self, namespace: str, pod: Object) -> Object:
        return await self.server.create("pods", namespace, pod, _CONTROLLER)

    async def _metrics(self, _: web.BaseRequest) -> web.Response:
        text = exporter.page(self.load, self.server.storage.wall())
        return web.Response(body=text.encode(), headers={"Content-Type": exporter.CONTENT_TYPE})
