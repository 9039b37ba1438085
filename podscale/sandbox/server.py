"""The sandbox's API server as one object, and a whole little cluster around it: controllers,
kubelets, and load with its metrics.
"""

import asyncio
import base64
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Self

import yaml
from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from podscale.sandbox.auth import OpenGate, Pki, SandboxTokens
from podscale.sandbox.controllers.kubelet import Kubelet, NodeTiming
from podscale.sandbox.controllers.workloads import Disruption, WorkloadControllers
from podscale.sandbox.http.extensions import Admission, AdmittedWrite, Aggregator, Extensions
from podscale.sandbox.http.routes import Routes, SandboxDiscovery
from podscale.sandbox.http.verbs import ResourceVerbs
from podscale.sandbox.http.watch import OpenWatches
from podscale.sandbox.load import CONTENT_TYPE, Load, metrics_page
from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.objects.resources import SandboxResources
from podscale.sandbox.objects.storage import Object, Storage
from podscale.serving.auth.user import MASTERS, User

_HOST = "127.0.0.1"
_MOST_BODY = 64 * 1024 * 1024


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=_MOST_BODY
    )


class SandboxServer:
    """An API server in this process, on a free loopback port while the context is open.

    ``objects`` reads and seeds what it stores, ``tokens`` gives out bearer tokens, ``pki``
    certificates (with ``tls``), ``counts`` is how often each (verb, resource) was asked for.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        tls: bool = False,
        history: int = 20_000,
        bookmark_interval_s: float = 60.0,
        wall: Callable[[], float] = time.time,
        gate: OpenGate | None = None,
    ) -> None:
        """``wall`` is the cluster's time; certificates and deadlines are of the machine's."""
        self._port = port
        self._tls = tls
        self.storage = Storage(history, wall)
        self.registry = SandboxResources()
        self.objects = SandboxObjects(self.storage, self.registry)
        self.tokens = SandboxTokens()
        self.pki = Pki()
        self.admin_token = self.tokens.issue("kubernetes-admin", MASTERS)
        gate = gate or OpenGate()
        self._extensions = Extensions(self.objects, self.pki)
        self._aggregator = Aggregator(self.objects, self._extensions)
        self._admission = Admission(self.objects, self._extensions)
        self._watches = OpenWatches(self.storage, gate, bookmark_interval_s)
        rest = ResourceVerbs(self.objects, self._admission, self.tokens, self._watches)
        self._routes = Routes(
            self.objects,
            rest,
            SandboxDiscovery(self.registry, self._aggregator),
            self._aggregator,
            self.tokens,
            gate,
        )
        self._runner: web.ServerRunner | None = None
        self._checks: asyncio.Task[None] | None = None
        self._publish_authentication()

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``, or https with ``tls``."""
        return f"{'https' if self._tls else 'http'}://{_HOST}:{self._port}"

    @property
    def counts(self) -> Counter[tuple[str, str]]:
        """Requests so far by (verb, ``plural[.group][/subresource]`` or path)."""
        return self._routes.counts

    async def __aenter__(self) -> Self:
        await self._extensions.start()
        server = web.Server(self._routes.handle, request_factory=_request)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.5, access_log=None)
        await self._runner.setup()
        context = self.pki.server_context() if self._tls else None
        site = web.TCPSite(self._runner, _HOST, self._port, ssl_context=context, backlog=1024)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self._checks = asyncio.create_task(self._aggregator.check())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._checks is not None:
            self._checks.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._checks
        self.cut_watches()
        if self._runner is not None:
            await self._runner.cleanup()
        await self._extensions.stop()

    def kubeconfig(self, path: Path, token: str = "") -> Path:
        """Write a kubeconfig for a token (the administrator's by default) and return its path."""
        cluster: dict[str, str] = {"server": self.url}
        if self._tls:
            authority = base64.b64encode(self.pki.authority.certificate).decode()
            cluster["certificate-authority-data"] = authority
        context = {"cluster": "sandbox", "user": "sandbox", "namespace": "default"}
        path.write_text(
            yaml.safe_dump(
                {
                    "kind": "Config",
                    "apiVersion": "v1",
                    "clusters": [{"name": "sandbox", "cluster": cluster}],
                    "users": [{"name": "sandbox", "user": {"token": token or self.admin_token}}],
                    "contexts": [{"name": "sandbox", "context": context}],
                    "current-context": "sandbox",
                }
            )
        )
        return path

    async def create(self, resource: str, namespace: str, body: Object, user: str) -> Object:
        """Create an object as ``user`` would over HTTP, admission webhooks included."""
        found = self.objects.resource(resource)
        write = AdmittedWrite(found, "CREATE", User(user), namespace)
        body = await self._admission.admit(write, {"metadata": {}, **body})
        return self.objects.create(found, namespace, body).object

    def cut_watches(self) -> None:
        """End every open watch now; new ones are served."""
        self._watches.cut()

    def _publish_authentication(self) -> None:
        self.objects.put(
            {
                "kind": "ConfigMap",
                "apiVersion": "v1",
                "metadata": {
                    "name": "extension-apiserver-authentication",
                    "namespace": "kube-system",
                },
                "data": {
                    "client-ca-file": self.pki.authority.certificate.decode(),
                    "requestheader-client-ca-file": (
                        self.pki.front_proxy_authority.certificate.decode()
                    ),
                    "requestheader-allowed-names": '["front-proxy-client"]',
                    "requestheader-username-headers": '["X-Remote-User"]',
                    "requestheader-group-headers": '["X-Remote-Group"]',
                    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
                },
            }
        )


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
        text = metrics_page(self.load, self.server.storage.wall())
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})
