"""The sandbox's API server as one object: start it and ask it."""

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

from podscale.sandbox.auth import Pki, SandboxTokens
from podscale.sandbox.http.aggregator import Aggregator
from podscale.sandbox.http.discovery import SandboxDiscovery
from podscale.sandbox.http.request import OpenGate
from podscale.sandbox.http.routes import Routes
from podscale.sandbox.http.verbs import ResourceVerbs
from podscale.sandbox.http.watch import OpenWatches
from podscale.sandbox.http.webhooks import Admission, AdmittedWrite
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
        self._aggregator = Aggregator(self.objects, self.pki)
        self._admission = Admission(self.objects)
        self._watches = OpenWatches(self.storage, gate, bookmark_interval_s)
        rest = ResourceVerbs(
            self.objects,
            self._admission,
            self.tokens,
            self._watches,
        )
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
        await self._aggregator.start()
        await self._admission.start()
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
        await self._admission.stop()
        await self._aggregator.stop()

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
