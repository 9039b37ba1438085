"""What kube-aggregator does: requests of an APIService's group go on to its server."""

import asyncio
import base64
import ssl
from collections.abc import Mapping
from typing import Any

import aiohttp
from aiohttp import web
from msgspec import Struct

from podscale.core.ascii_text import ascii_lower
from podscale.sandbox.auth import Pki
from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.objects.storage import Object
from podscale.serving import status
from podscale.serving.auth.user import MASTERS, User
from podscale.serving.status import StatusError

# An APIService with this annotation is reached there, whatever its Service says.
URL_ANNOTATION = "sandbox.podscale.io/url"
AGGREGATOR = User("system:kube-aggregator", (MASTERS,))
_HOP = frozenset(
    {"connection", "keep-alive", "te", "trailers", "transfer-encoding", "upgrade", "host"}
)
_CHECK_S = 5.0


class Upstream(Struct, frozen=True):
    """Where an extension server is."""

    url: str
    server_name: str  # the name its certificate must carry
    ca_bundle: bytes | None  # None: not verified


class Aggregator:
    """Finds, asks and checks extension servers."""

    def __init__(self, objects: SandboxObjects, pki: Pki) -> None:
        self._objects = objects
        self._pki = pki
        self._contexts: dict[bytes | None, ssl.SSLContext] = {}
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the connection pool."""
        self._session = aiohttp.ClientSession(auto_decompress=False)

    async def stop(self) -> None:
        """Close the connection pool."""
        if self._session is not None:
            await self._session.close()

    def services(self) -> list[Object]:
        """Return the APIServices that are not served by the sandbox itself."""
        return [
            service
            for service in self._objects.list("apiservices.apiregistration.k8s.io")
            if (service.get("spec") or {}).get("service") or _annotated(service)
        ]

    def find(self, group: str, version: str) -> Object | None:
        name = f"{version}.{group}"
        service = self._objects.find("apiservices.apiregistration.k8s.io", "", name)
        if service is None or not (service["spec"].get("service") or _annotated(service)):
            return None
        return service

    async def forward(
        self, service: Object, request: web.BaseRequest, user: User
    ) -> web.StreamResponse:
        """Pass a request on as ``user`` and stream the answer back."""
        headers = {
            name: value
            for name, value in request.headers.items()
            if ascii_lower(name) not in _HOP and not ascii_lower(name).startswith("x-remote-")
        }
        headers.pop("Authorization", None)
        body = await request.read() if request.can_read_body else None
        try:
            async with self._ask(
                service, request.method, request.raw_path, user, headers, body
            ) as answer:
                return await _stream(request, answer)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unavailable(str(error)) from None

    async def check(self) -> None:
        """Ask every extension server whether it is there, again and again."""
        while True:
            async with asyncio.TaskGroup() as group:
                for service in self.services():
                    group.create_task(self._check_one(service))
            await asyncio.sleep(_CHECK_S)

    async def fetch(self, service: Object, path: str, accept: str) -> bytes | None:
        """Return the body of a 200 to the aggregator itself, or None."""
        try:
            async with (
                asyncio.timeout(5),
                self._ask(service, "GET", path, AGGREGATOR, {"Accept": accept}, None) as answer,
            ):
                return await answer.read() if answer.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError, StatusError):
            return None

    def _ask(
        self,
        service: Object,
        method: str,
        path: str,
        user: User,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> Any:
        if self._session is None:
            raise _unavailable("the aggregator is not running")
        upstream = self._upstream(service)
        sent = [*headers.items(), ("X-Remote-User", user.name)]
        sent += [("X-Remote-Group", group) for group in user.groups]
        context = self._contexts.get(upstream.ca_bundle)
        if context is None:
            context = self._contexts[upstream.ca_bundle] = self._pki.proxy_context(
                upstream.ca_bundle
            )
        return self._session.request(
            method,
            upstream.url + path,
            headers=sent,
            data=body,
            ssl=context,
            server_hostname=upstream.server_name if upstream.ca_bundle is not None else None,
            allow_redirects=False,
        )

    def _upstream(self, service: Object) -> Upstream:
        spec = service["spec"]
        bundle = spec.get("caBundle")
        verified = base64.b64decode(bundle) if bundle else None
        reference = spec.get("service") or {}
        namespace, name = reference.get("namespace", ""), reference.get("name", "")
        server_name = f"{name}.{namespace}.svc"
        if url := _annotated(service):
            return Upstream(url.rstrip("/"), server_name, verified)
        port = reference.get("port", 443)
        target = self._objects.find("services", namespace, name)
        if target is None:
            raise _unavailable(f'service "{name}" not found')
        if target["spec"].get("type") != "ExternalName":
            raise _unavailable(f'no endpoints available for service "{name}"')
        host = target["spec"]["externalName"]
        return Upstream(f"https://{host}:{port}", server_name, verified)

    async def _check_one(self, service: Object) -> None:
        spec = service["spec"]
        path = f"/apis/{spec['group']}/{spec['version']}"
        answer = await self.fetch(service, path, "application/json")
        condition = {
            "type": "Available",
            "status": "True" if answer is not None else "False",
            "reason": "Passed" if answer is not None else "FailedDiscoveryCheck",
            "message": "all checks passed"
            if answer is not None
            else f"failing or missing response from {path}",
        }
        name = service["metadata"]["name"]
        current = self._objects.find("apiservices.apiregistration.k8s.io", "", name)
        if current is None:
            return
        held = ((current.get("status") or {}).get("conditions") or [{}])[0]
        if all(held.get(key) == value for key, value in condition.items()):
            return
        condition["lastTransitionTime"] = self._objects.now_text()
        new = {**current, "status": {"conditions": [condition]}}
        self._objects.update("apiservices.apiregistration.k8s.io", "", name, new, "status")


def _annotated(service: Object) -> str:
    return str((service["metadata"].get("annotations") or {}).get(URL_ANNOTATION, ""))


def _unavailable(why: str) -> StatusError:
    return StatusError(status.unavailable(f"error trying to reach service: {why}"))


async def _stream(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status)
    for name, value in answer.headers.items():
        if ascii_lower(name) not in _HOP:
            response.headers.add(name, value)
    await response.prepare(request)
    async for chunk in answer.content.iter_any():
        await response.write(chunk)
    await response.write_eof()
    return response
