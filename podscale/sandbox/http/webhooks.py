"""Mutating admission webhooks, called over URLs or Services as kube-apiserver calls them."""

import base64
import ssl
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import msgspec

from podscale.core.selectors import selector as labels
from podscale.sandbox.objects import patch
from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.objects.resources import SandboxResource
from podscale.sandbox.objects.storage import Object
from podscale.serving import status
from podscale.serving.auth.user import User
from podscale.serving.status import Status, StatusError

_OPERATIONS = {"create": "CREATE", "update": "UPDATE", "delete": "DELETE"}


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

    async def admit(
        self,
        resource: SandboxResource,
        operation: str,
        user: User,
        namespace: str,
        content: Object,
        old: Object | None,
        subresource: str = "",
    ) -> Object:
        """Return ``content`` as the webhooks want it; raises ``StatusError``."""
        name = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
        for configuration in self._objects.list(name):
            for webhook in configuration.get("webhooks") or ():
                if self._matches(webhook, resource, operation, namespace, content, subresource):
                    review = _review(
                        resource, operation, user, namespace, content, old, subresource
                    )
                    content = await self._call(webhook, review, content)
        return content

    def _matches(
        self,
        webhook: Mapping[str, Any],
        resource: SandboxResource,
        operation: str,
        namespace: str,
        content: Object,
        subresource: str,
    ) -> bool:
        rules = webhook.get("rules") or ()
        if not any(_rule_matches(rule, resource, operation, subresource) for rule in rules):
            return False
        wanted = labels.from_wire(webhook.get("objectSelector") or {})
        if not wanted.matches(content["metadata"].get("labels") or {}):
            return False
        if not namespace:
            return True
        home = self._objects.find("namespaces", "", namespace) or {"metadata": {}}
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
        operations = msgspec.json.decode(base64.b64decode(response["patch"]))
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
            decoded: dict[str, Any] = msgspec.json.decode(body)
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


def _rule_matches(
    rule: Mapping[str, Any], resource: SandboxResource, operation: str, subresource: str
) -> bool:
    def covers(allowed: Sequence[str], value: str) -> bool:
        return "*" in allowed or value in allowed

    if not covers(rule.get("operations") or (), _OPERATIONS[operation]):
        return False
    if not covers(rule.get("apiGroups") or (), resource.group):
        return False
    if not covers(rule.get("apiVersions") or (), resource.version):
        return False
    full = f"{resource.plural}/{subresource}" if subresource else resource.plural
    resources = rule.get("resources") or ()
    if full in resources or "*/*" in resources or f"{resource.plural}/*" in resources:
        return True
    return not subresource and "*" in resources


def _review(
    resource: SandboxResource,
    operation: str,
    user: User,
    namespace: str,
    content: Object,
    old: Object | None,
    subresource: str,
) -> Object:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    named = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    request: Object = {
        "uid": str(uuid.uuid4()),
        "kind": kind,
        "resource": named,
        "requestKind": kind,
        "requestResource": named,
        "name": content["metadata"].get("name", ""),
        "operation": _OPERATIONS[operation],
        "userInfo": {"username": user.name, "groups": list(user.groups)},
        "object": content,
        "oldObject": old,
        "dryRun": False,
        "options": None,
    }
    if namespace:
        request["namespace"] = namespace
    if subresource:
        request["subResource"] = request["requestSubResource"] = subresource
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
