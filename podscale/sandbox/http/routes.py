"""From an HTTP request to its answer: who asks, may they, and who answers."""

from collections import Counter

import msgspec
from aiohttp import web

from podscale.core.loopback import is_elsewhere, is_loopback
from podscale.sandbox.auth.identity import SandboxTokens, authenticate, peer_certificate
from podscale.sandbox.encoding.bodies import read_object
from podscale.sandbox.errors import SandboxApiError, foreign_origin, misdirected, unknown_path
from podscale.sandbox.http import openapi, reviews
from podscale.sandbox.http.aggregator import Aggregator
from podscale.sandbox.http.discovery import SandboxDiscovery
from podscale.sandbox.http.gate import OpenGate
from podscale.sandbox.http.request import Request, RequestedObject, parse_path, verb_of
from podscale.sandbox.http.verbs import ResourceVerbs
from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.objects.storage import Object

_encode = msgspec.json.Encoder().encode
_HEALTH = frozenset({"/healthz", "/livez", "/readyz"})


class Routes:
    """The handler of every request."""

    def __init__(
        self,
        objects: SandboxObjects,
        rest: ResourceVerbs,
        discovery: SandboxDiscovery,
        aggregator: Aggregator,
        tokens: SandboxTokens,
        gate: OpenGate,
        *,
        host: str,
        version: str,
    ) -> None:
        """``host`` is what we listen on, a name for us besides those of the loopback."""
        self._host = host
        self._objects = objects
        self._rest = rest
        self._discovery = discovery
        self._aggregator = aggregator
        self._tokens = tokens
        self._gate = gate
        self._version = version
        self.counts: Counter[tuple[str, str]] = Counter()  # (verb, resource or path) → requests

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; never raises for what a client can cause."""
        try:
            return await self._answer(request)
        except SandboxApiError as error:
            headers = {}
            retry = (error.details or {}).get("retryAfterSeconds")
            if retry:
                headers["Retry-After"] = str(retry)
            return _json(error.status(), error.code, headers)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        host = request.headers.get("Host", "")
        if not (is_loopback(host) or host.rpartition(":")[0] == self._host):
            raise misdirected(host)
        if is_elsewhere(request.headers.get("Origin", ""), host):
            raise foreign_origin()
        if (answer := await self._gate.answer(request)) is not None:
            return answer
        transport = request.transport
        tls = transport.get_extra_info("ssl_object") if transport else None
        user = authenticate(request.headers, self._tokens, peer_certificate(tls))
        target = parse_path(request.raw_path.partition("?")[0])
        query = request.query
        asked = Request(request.method, target, query, user, verb_of(request.method, target, query))
        self.counts[asked.verb, _counted(target)] += 1
        await self._gate.admit(asked, request)
        if not target.is_resource:
            return await self._plain(asked, request)
        return await self._resource(asked, request)

    async def _resource(self, asked: Request, request: web.BaseRequest) -> web.StreamResponse:
        target = asked.target
        if (service := self._aggregator.find(target.group, target.version)) is not None:
            return await self._aggregator.forward(service, request, asked.user)
        resource = self._objects.registry.find(target.group, target.version, target.plural)
        if resource is None:
            served = self._objects.registry.serves(target.group, target.version)
            if not served:  # nothing is installed there: the bare mux answers
                return web.Response(status=404, text="404 page not found\n")
            raise unknown_path()
        if target.namespace and not resource.namespaced and resource.kind != "Namespace":
            raise unknown_path()
        if resource.is_review and asked.verb == "create":
            body = await read_object(request)
            review = reviews.answer(self._gate, self._tokens, asked.user, resource, body)
            return _json(review, 201)
        return await self._rest.answer(resource, asked, request)

    async def _plain(self, asked: Request, request: web.BaseRequest) -> web.StreamResponse:
        path = asked.target.path.rstrip("/") or "/"
        segments = path.strip("/").split("/")
        if path.startswith("/openapi/v3"):
            prefix = path.removeprefix("/openapi/v3").strip("/")
            registry = self._objects.registry
            return _json_or_404(
                openapi.document(registry, prefix) if prefix else openapi.index(registry)
            )
        if path == "/openapi/v2":
            if "protobuf" not in request.headers.get("Accept", ""):
                return _json(openapi.V2_JSON)
            return web.Response(body=openapi.V2_PROTOBUF, content_type="application/octet-stream")
        if path in _HEALTH:
            return web.Response(text="ok")
        if path == "/version":
            major, minor = self._version.lstrip("v").split(".")[:2]
            return _json({"major": major, "minor": minor, "gitVersion": self._version})
        if path in ("/api", "/apis"):
            return await self._roots(path, request)
        match segments:
            case ["api", version]:
                return _json_or_404(self._discovery.legacy_resources("", version))
            case ["apis", group]:
                return _json_or_404(self._discovery.legacy_group(group))
            case ["apis", group, version]:
                if (service := self._aggregator.find(group, version)) is not None:
                    return await self._aggregator.forward(service, request, asked.user)
                return _json_or_404(self._discovery.legacy_resources(group, version))
        raise unknown_path()

    async def _roots(self, path: str, request: web.BaseRequest) -> web.Response:
        version = self._discovery.wants_aggregated(request.headers.get("Accept", ""))
        if not version:
            is_core = path == "/api"
            document = self._discovery.legacy_core if is_core else self._discovery.legacy_groups
            return _json(document())
        body, content_type, tag = await self._discovery.aggregated(
            core=path == "/api", version=version
        )
        headers = {"Content-Type": content_type, "ETag": tag, "Vary": "Accept"}
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, headers=headers)


def _counted(target: RequestedObject) -> str:
    if not target.is_resource:
        return target.path
    return f"{target.resource}/{target.subresource}" if target.subresource else target.resource


def _json_or_404(body: Object | None) -> web.Response:
    if body is None:
        raise unknown_path()
    return _json(body)


def _json(body: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=_encode(body),
        status=status,
        headers={"Content-Type": "application/json", **(headers or {})},
    )
