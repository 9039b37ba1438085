"""Mutating admission webhooks, called over URLs or Services as kube-apiserver calls them."""

import base64
import ssl
import uuid
from collections.abc import Mapping
from typing import Any, Literal

import aiohttp
import msgspec
from msgspec import Struct

from podscale.core.json_decoder import decode_json
from podscale.core.selectors import selector as labels
from podscale.sandbox.objects import patch
from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.objects.resources import SandboxResource
from podscale.sandbox.objects.storage import Object
from podscale.serving import status
from podscale.serving.auth.user import User
from podscale.serving.status import Status, StatusError


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

    def __init__(self, objects: SandboxObjects) -> None:
        self._objects = objects
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the connection pool."""
        self._session = aiohttp.ClientSession()

    async def stop(self) -> None:
        """Close the connection pool."""
        if self._session is not None:
            await self._session.close()

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
        if self._session is None:
            raise OSError("admission is not running")
        config = webhook["clientConfig"]
        url, server_name = self._address(config)
        context: ssl.SSLContext | bool = True
        if bundle := config.get("caBundle"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cadata=base64.b64decode(bundle).decode())
        elif url.startswith("http:"):
            context = False
        async with self._session.post(
            url,
            data=msgspec.json.encode(review),
            headers={"Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(total=webhook.get("timeoutSeconds", 10)),
            ssl=context,
            server_hostname=server_name,
        ) as answer:
            body = await answer.read()
            if answer.status != 200:
                raise ValueError(f"the server answered {answer.status}")
            decoded: dict[str, Any] = decode_json(body)
            return decoded

    def _address(self, config: Mapping[str, Any]) -> tuple[str, str | None]:
        if url := config.get("url"):
            return url, None
        reference = config["service"]
        namespace, name = reference["namespace"], reference["name"]
        service = self._objects.find("services", namespace, name)
        if service is None or service["spec"].get("type") != "ExternalName":
            raise OSError(f'service "{name}" not found or not of type ExternalName')
        host, path = service["spec"]["externalName"], reference.get("path", "/")
        return f"https://{host}:{reference.get('port', 443)}{path}", f"{name}.{namespace}.svc"


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
