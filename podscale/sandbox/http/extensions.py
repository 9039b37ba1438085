"""Servers that the API server calls: requests of an APIService's group go on to its server, as by
kube-aggregator, and writes pass mutating admission webhooks.
"""

import asyncio
import base64
import ssl
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import aiohttp
import msgspec
from aiohttp import web
from msgspec import Struct

from podscale.core.ascii_text import ascii_lower
from podscale.core.json_decoder import decode_json
from podscale.core.selectors import selector as labels
from podscale.sandbox.auth import Pki
from podscale.sandbox.objects import patch
from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.objects.resources import SandboxResource
from podscale.sandbox.objects.storage import Object
from podscale.serving import status
from podscale.serving.auth.user import MASTERS, User
from podscale.serving.status import Status, StatusError

# An APIService with this annotation is reached there, whatever its Service says.
URL_ANNOTATION = "sandbox.podscale.io/url"
AGGREGATOR = User("system:kube-aggregator", (MASTERS,))
_HOP = frozenset(
    {"connection", "keep-alive", "te", "trailers", "transfer-encoding", "upgrade", "host"}
)
_CHECK_S = 5.0
_SERVICES = "apiservices.apiregistration.k8s.io"


class Extensions:
    """Sends requests to servers that a URL or a Service of type ExternalName names."""

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

    def request(
        self,
        method: str,
        path: str,
        config: Mapping[str, Any],
        *,
        headers: Iterable[tuple[str, str]],
        body: bytes | None,
        timeout_s: float | None = None,
    ) -> Any:
        """Return the request to send; raises OSError.

        ``config`` is a webhook's clientConfig: ``url`` or else ``service`` says where, and without
        a ``caBundle`` the certificate is not verified.
        """
        if self._session is None:
            raise OSError("the sandbox is not running")
        service, bundle = config.get("service") or {}, None
        if config.get("caBundle"):
            bundle = base64.b64decode(config["caBundle"])
        if bundle not in self._contexts:
            self._contexts[bundle] = self._pki.proxy_context(bundle)
        namespace, name = service.get("namespace", ""), service.get("name", "")
        return self._session.request(
            method,
            (config.get("url", "").rstrip("/") or self._url(service)) + path,
            headers=headers,
            data=body,
            ssl=self._contexts[bundle],
            server_hostname=f"{name}.{namespace}.svc" if name and bundle is not None else None,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=timeout_s),
        )

    def _url(self, reference: Mapping[str, Any]) -> str:
        name = reference.get("name", "")
        service = self._objects.find("services", reference.get("namespace", ""), name)
        if service is None:
            raise OSError(f'service "{name}" not found')
        if service["spec"].get("type") != "ExternalName":
            raise OSError(f'no endpoints available for service "{name}"')
        return f"https://{service['spec']['externalName']}:{reference.get('port', 443)}"


class Aggregator:
    """Finds, asks and checks extension servers."""

    def __init__(self, objects: SandboxObjects, extensions: Extensions) -> None:
        self._objects = objects
        self._extensions = extensions

    def services(self) -> list[Object]:
        """Return the APIServices that are not served by the sandbox itself."""
        return [service for service in self._objects.list(_SERVICES) if _is_foreign(service)]

    def find(self, group: str, version: str) -> Object | None:
        service = self._objects.find(_SERVICES, "", f"{version}.{group}")
        return service if service is not None and _is_foreign(service) else None

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
            message = f"error trying to reach service: {error}"
            raise StatusError(status.unavailable(message)) from None

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
        except (aiohttp.ClientError, OSError, TimeoutError):
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
        groups = [("X-Remote-Group", group) for group in user.groups]
        return self._extensions.request(
            method,
            path,
            {**service["spec"], "url": _annotated(service)},
            headers=[*headers.items(), ("X-Remote-User", user.name), *groups],
            body=body,
        )

    async def _check_one(self, service: Object) -> None:
        spec = service["spec"]
        path = f"/apis/{spec['group']}/{spec['version']}"
        found = "False", "FailedDiscoveryCheck", f"failing or missing response from {path}"
        if await self.fetch(service, path, "application/json") is not None:
            found = "True", "Passed", "all checks passed"
        condition = {"type": "Available"} | dict(
            zip(("status", "reason", "message"), found, strict=True)
        )
        name = service["metadata"]["name"]
        current = self._objects.find(_SERVICES, "", name)
        if current is None:
            return
        held = ((current.get("status") or {}).get("conditions") or [{}])[0]
        if all(held.get(key) == value for key, value in condition.items()):
            return
        condition["lastTransitionTime"] = self._objects.now_text()
        new = {**current, "status": {"conditions": [condition]}}
        self._objects.update(_SERVICES, "", name, new, "status")


def _is_foreign(service: Object) -> bool:
    return bool((service.get("spec") or {}).get("service") or _annotated(service))


def _annotated(service: Object) -> str:
    return str((service["metadata"].get("annotations") or {}).get(URL_ANNOTATION, ""))


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


class AdmittedWrite(Struct, frozen=True):
    """A write that webhooks are asked about, but for its object."""

    resource: SandboxResource
    operation: Literal["CREATE", "UPDATE"]
    user: User
    namespace: str
    old: Object | None = None
    subresource: str = ""


class Admission:
    """Sends objects through the MutatingWebhookConfigurations that match them."""

    def __init__(self, objects: SandboxObjects, extensions: Extensions) -> None:
        self._objects = objects
        self._extensions = extensions

    async def admit(self, write: AdmittedWrite, content: Object) -> Object:
        """Return ``content`` as the webhooks want it; raises ``StatusError``."""
        name = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
        for configuration in self._objects.list(name):
            for webhook in configuration.get("webhooks") or ():
                if self._matches(webhook, write, content):
                    content = await self._call(webhook, _review(write, content), content)
        return content

    def _matches(self, webhook: Mapping[str, Any], write: AdmittedWrite, content: Object) -> bool:
        if not any(_rule_matches(rule, write) for rule in webhook.get("rules") or ()):
            return False
        wanted = labels.from_wire(webhook.get("objectSelector") or {})
        if not wanted.matches(content["metadata"].get("labels") or {}):
            return False
        if not write.namespace:
            return True
        home = self._objects.find("namespaces", "", write.namespace) or {"metadata": {}}
        wanted = labels.from_wire(webhook.get("namespaceSelector") or {})
        return wanted.matches(home["metadata"].get("labels") or {})

    async def _call(self, webhook: Mapping[str, Any], review: Object, content: Object) -> Object:
        name = webhook["name"]
        try:
            answer = await self._post(webhook, review)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            if webhook.get("failurePolicy", "Fail") == "Ignore":
                return content
            message = f'failed calling webhook "{name}": {error}'
            raise StatusError(status.internal_error(message)) from None
        response = answer.get("response") or {}
        if not response.get("allowed"):
            given = response.get("status") or {}
            why = given.get("message") or "without explanation"
            message = f'admission webhook "{name}" denied the request: {why}'
            code, reason = given.get("code") or 403, given.get("reason") or "Forbidden"
            raise StatusError(Status(message=message, reason=reason, code=code))
        if not response.get("patch"):
            return content
        operations = decode_json(base64.b64decode(response["patch"]))
        patched: Object = patch.json_patch(content, operations)
        return patched

    async def _post(self, webhook: Mapping[str, Any], review: Object) -> dict[str, Any]:
        config = webhook["clientConfig"]
        async with self._extensions.request(
            "POST",
            config["service"].get("path", "/") if config.get("service") else "",
            config,
            headers=[("Content-Type", "application/json")],
            body=msgspec.json.encode(review),
            timeout_s=webhook.get("timeoutSeconds", 10),
        ) as answer:
            body = await answer.read()
            if answer.status != 200:
                raise ValueError(f"the server answered {answer.status}")
            decoded: dict[str, Any] = decode_json(body)
            return decoded


def _rule_matches(rule: Mapping[str, Any], write: AdmittedWrite) -> bool:
    resource, below = write.resource, write.subresource
    for key, value in (
        ("operations", write.operation),
        ("apiGroups", resource.group),
        ("apiVersions", resource.version),
    ):
        allowed = rule.get(key) or ()
        if "*" not in allowed and value not in allowed:
            return False
    full = f"{resource.plural}/{below}" if below else resource.plural
    resources = rule.get("resources") or ()
    if full in resources or "*/*" in resources or f"{resource.plural}/*" in resources:
        return True
    return not below and "*" in resources


def _review(write: AdmittedWrite, content: Object) -> Object:
    resource, user = write.resource, write.user
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    named = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    request: Object = {
        "uid": str(uuid.uuid4()),
        "kind": kind,
        "resource": named,
        "requestKind": kind,
        "requestResource": named,
        "name": content["metadata"].get("name", ""),
        "operation": write.operation,
        "userInfo": {"username": user.name, "groups": list(user.groups)},
        "object": content,
        "oldObject": write.old,
        "dryRun": False,
        "options": None,
    }
    if write.namespace:
        request["namespace"] = write.namespace
    if write.subresource:
        request["subResource"] = request["requestSubResource"] = write.subresource
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
