"""From an HTTP request to its answer: who asks, may they, and who answers."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from podscale.core.json_decoder import decode_json
from podscale.core.loopback import is_elsewhere, is_loopback
from podscale.sandbox.auth import (
    OpenGate,
    Request,
    SandboxTokens,
    authenticate,
    read_request,
)
from podscale.sandbox.errors import foreign_origin, misdirected, unknown_path
from podscale.sandbox.http.bodies import as_json, read_object
from podscale.sandbox.http.extensions import Aggregator
from podscale.sandbox.http.verbs import ResourceVerbs
from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.objects.resources import SandboxResource, SandboxResources
from podscale.sandbox.objects.storage import Object
from podscale.serving import status
from podscale.serving.apis.api import ApiResponse
from podscale.serving.auth.user import User
from podscale.serving.status import StatusError

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_INFO = {"title": "Kubernetes", "version": "v1.37.0"}
_PARAMETERS = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
# The v2 document that describes nothing, as kubectl reads it: a protobuf message whose first
# field is the version.
V2_PROTOBUF = b"\x0a\x032.0"
V2_JSON: Object = {"swagger": "2.0", "info": _INFO, "paths": {}}
_SCALE = {"group": "autoscaling", "version": "v1", "kind": "Scale"}


class SandboxDiscovery:
    """Builds the documents from the registry and the aggregated APIServices."""

    def __init__(self, registry: SandboxResources, aggregator: Aggregator) -> None:
        self._registry = registry
        self._aggregator = aggregator

    async def document(self, *, core: bool) -> bytes:
        """Return the aggregated document of /api or /apis."""
        items = [self._group(group, resources) for group, resources in self._groups(core=core)]
        if not core:
            items += [await self._foreign(group) for group in self._foreign_groups()]
        return msgspec.json.encode(
            {
                "kind": "APIGroupDiscoveryList",
                "apiVersion": "apidiscovery.k8s.io/v2",
                "metadata": {},
                "items": items,
            }
        )

    def _groups(self, *, core: bool) -> list[tuple[str, list[SandboxResource]]]:
        groups: dict[str, list[SandboxResource]] = {}
        for resource in self._registry:
            if (resource.group == "") == core:
                groups.setdefault(resource.group, []).append(resource)
        return list(groups.items())

    def _foreign_groups(self) -> dict[str, list[str]]:
        groups: dict[str, list[tuple[int, str]]] = {}
        for service in self._aggregator.services():
            spec = service["spec"]
            entry = (-spec.get("versionPriority", 0), spec["version"])
            groups.setdefault(spec["group"], []).append(entry)
        return {group: [version for _, version in sorted(found)] for group, found in groups.items()}

    def _versions(self, resources: Sequence[SandboxResource]) -> list[str]:
        served = [version for resource in resources for version in resource.served_versions]
        return list(dict.fromkeys(served))

    def _group(self, group: str, resources: Sequence[SandboxResource]) -> Object:
        versions = []
        for version in self._versions(resources):
            entries = [_entry(r, version) for r in resources if version in r.served_versions]
            versions.append({"version": version, "resources": entries, "freshness": "Current"})
        return {"metadata": {"name": group} if group else {}, "versions": versions}

    async def _foreign(self, group: str) -> Object:
        versions = []
        for version in self._foreign_groups()[group]:
            service = self._aggregator.find(group, version)
            body = None
            if service is not None:
                body = await self._aggregator.fetch(service, "/apis", AGGREGATED)
            versions.append(_foreign_version(_decoded(body), group, version))
        return {"metadata": {"name": group}, "versions": versions}


def _foreign_version(document: Object, group: str, version: str) -> Object:
    """Return a version's entry of an extension server's document; Stale where that is none."""
    is_read = document.get("kind") == "APIGroupDiscoveryList"
    for item in document.get("items") or () if is_read else ():
        for found in item.get("versions") or ():
            if (item["metadata"].get("name"), found["version"]) == (group, version):
                return {**found, "freshness": "Current"}
    freshness = "Current" if is_read else "Stale"
    return {"version": version, "resources": [], "freshness": freshness}


def _decoded(body: bytes | None) -> dict[str, Any]:
    try:
        found = decode_json(body) if body else {}
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _subresources(resource: SandboxResource) -> Iterator[dict[str, Any]]:
    def entry(name: str, kind: dict[str, str], *verbs: str) -> dict[str, Any]:
        return {"subresource": name, "responseKind": kind, "verbs": verbs}

    own = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    if resource.has_status:
        yield entry("status", own, "get", "patch", "update")
    if resource.scale is not None:
        yield entry("scale", _SCALE, "get", "patch", "update")
    if resource.name == "pods":
        eviction = {"group": "policy", "version": "v1", "kind": "Eviction"}
        yield entry("eviction", eviction, "create")
        yield entry("resize", own, "get", "patch", "update")
    if resource.name == "serviceaccounts":
        token = {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}
        yield entry("token", token, "create")


def _entry(resource: SandboxResource, version: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if below := list(_subresources(resource)):
        entry["subresources"] = below
    return entry


def openapi_index(registry: SandboxResources) -> Object:
    """Return /openapi/v3: the documents by group and version."""
    prefixes = {prefix for resource in registry for prefix, _ in _versions(resource)}
    return {"paths": {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in prefixes}}


def openapi_document(registry: SandboxResources, prefix: str) -> Object | None:
    """Return /openapi/v3/PREFIX (``apis/apps/v1``); None where nothing is served."""
    paths = {
        f"/{prefix}/{resource.plural}/{{name}}": {
            "patch": {
                "operationId": f"patch{resource.kind}",
                "parameters": _PARAMETERS,
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": {
                    "group": resource.group, "version": version, "kind": resource.kind,
                },
            }
        }
        for resource in registry
        for each, version in _versions(resource)
        if each == prefix
    }  # fmt: skip
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths} if paths else None


def _versions(resource: SandboxResource) -> Iterator[tuple[str, str]]:
    for version in resource.served_versions:
        group = resource.group
        yield (f"apis/{group}/{version}" if group else f"api/{version}"), version


_HEALTH = frozenset({"/healthz", "/livez", "/readyz"})


@dataclass(eq=False)
class Routes:
    """The handler of every request."""

    objects: SandboxObjects
    rest: ResourceVerbs
    discovery: SandboxDiscovery
    aggregator: Aggregator
    tokens: SandboxTokens
    gate: OpenGate
    # (verb, resource or path) → requests
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; never raises for what a client can cause."""
        try:
            return await self._answer(request)
        except StatusError as error:
            answer = ApiResponse.of(error.status)
            return as_json(error.status, status=answer.status, headers=answer.headers)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        host = request.headers.get("Host", "")
        if not is_loopback(host):
            raise misdirected(host)
        if is_elsewhere(request.headers.get("Origin", ""), host):
            raise foreign_origin()
        if (answer := await self.gate.answer(request)) is not None:
            return answer
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport else None
        user = authenticate(request.headers, self.tokens, certificate)
        asked = read_request(request, user)
        self.counts[asked.verb, _counted(asked)] += 1
        await self.gate.admit(asked)
        if not asked.target.is_resource:
            return await self._plain(asked)
        return await self._resource(asked)

    async def _resource(self, asked: Request) -> web.StreamResponse:
        target = asked.target
        if (service := self.aggregator.find(target.group, target.version)) is not None:
            return await self.aggregator.forward(service, asked.http, asked.user)
        resource = self.objects.registry.find(target.group, target.version, target.resource)
        if resource is None:
            served = self.objects.registry.serves(target.group, target.version)
            if not served:  # nothing is installed there: the bare mux answers
                return web.Response(status=404, text="404 page not found\n")
            raise unknown_path()
        # A Namespace has its own name for a namespace, and lies in none.
        is_itself = target.path.strip("/").split("/")[2:] == list(target.parts)
        if not resource.namespaced and target.namespace and not is_itself:
            raise unknown_path()
        if resource.is_review and asked.verb == "create":
            body = await read_object(asked.http)
            review = _review(self.gate, self.tokens, asked.user, resource, body)
            return as_json(review, status=201)
        return await self.rest.answer(resource, asked)

    async def _plain(self, asked: Request) -> web.StreamResponse:
        path = asked.target.path.rstrip("/") or "/"
        segments = path.strip("/").split("/")
        if path.startswith("/openapi/v3"):
            prefix = path.removeprefix("/openapi/v3").strip("/")
            registry = self.objects.registry
            found = openapi_document(registry, prefix) if prefix else openapi_index(registry)
            if found is None:
                raise unknown_path()
            return as_json(found)
        if path == "/openapi/v2":
            if "protobuf" not in asked.http.headers.get("Accept", ""):
                return as_json(V2_JSON)
            return web.Response(body=V2_PROTOBUF, content_type="application/octet-stream")
        if path in _HEALTH:
            return web.Response(text="ok")
        if path == "/version":
            return as_json({"major": "1", "minor": "37", "gitVersion": "v1.37.0"})
        if path in ("/api", "/apis"):
            return await self._roots(path, asked.http)
        if len(segments) == 3 and segments[0] == "apis":
            service = self.aggregator.find(*segments[1:])
            if service is not None:
                return await self.aggregator.forward(service, asked.http, asked.user)
        raise unknown_path()

    async def _roots(self, path: str, request: web.BaseRequest) -> web.Response:
        if AGGREGATED not in request.headers.get("Accept", ""):
            raise StatusError(status.not_acceptable([AGGREGATED]))
        body = await self.discovery.document(core=path == "/api")
        tag = f'"{hashlib.sha256(body).hexdigest()}"'
        headers = {"Content-Type": AGGREGATED, "ETag": tag, "Vary": "Accept"}
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, headers=headers)


def _counted(asked: Request) -> str:
    if not asked.target.is_resource:
        return asked.target.path
    below = asked.target.subresource
    return f"{asked.resource}/{below}" if below else asked.resource


def _review(
    gate: OpenGate, tokens: SandboxTokens, asker: User, resource: SandboxResource, body: Object
) -> Object:
    spec = body.get("spec") or {}
    body = {**body, "kind": resource.kind, "apiVersion": resource.api_version()}
    if resource.kind == "TokenReview":
        return {**body, "status": _token(tokens, spec)}
    user = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
    if resource.kind == "SelfSubjectAccessReview":
        user = asker
    return {**body, "status": _access(gate, user, spec)}


def _token(tokens: SandboxTokens, spec: Mapping[str, Any]) -> dict[str, Any]:
    user = tokens.user(spec.get("token", ""))
    if user is None:
        return {"user": {}, "error": "[invalid bearer token]"}
    shown: dict[str, Any] = {"username": user.name, "groups": list(user.groups)}
    status: dict[str, Any] = {"authenticated": True, "user": shown}
    if spec.get("audiences"):
        status["audiences"] = spec["audiences"]
    return status


def _access(gate: OpenGate, user: User, spec: Mapping[str, Any]) -> dict[str, Any]:
    if path := spec.get("nonResourceAttributes"):
        attributes = {"verb": path.get("verb", ""), "path": path.get("path", "")}
    else:
        attributes = dict(spec.get("resourceAttributes") or {})
        attributes.setdefault("verb", "")
        attributes.setdefault("resource", "")
    allowed, reason = gate.is_allowed(user, attributes)
    return {"allowed": allowed, "reason": reason} if reason else {"allowed": allowed}
