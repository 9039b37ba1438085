"""What serving's tests stand on: a scripted API server, a group, PKI, a raw client."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import trustme
from cryptography import x509

from podscale.explain.decision_api import DecisionApi
from podscale.kube.client.api import JSON, Response
from podscale.kube.client.errors import ApiError, ApiUnreachable
from podscale.sandbox.objects.patch import merge
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResource, ApiResponse, Media, Route
from podscale.serving.auth.user import ANONYMOUS_USER
from podscale.serving.certificates.issuing import KeyPair
from podscale.serving.flag_table import API_SERVER
from podscale.serving.flags import Flags, parse
from podscale.serving.monitoring.health import Health
from podscale.serving.monitoring.logs import Verbosity
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from podscale.serving.request_info import request_info
from podscale.serving.running import Clusters, RunningServer, running
from podscale.serving.status import Status
from tests.kit.api import FakeApi, Sent, ok

GROUP = "custom.metrics.k8s.io"


async def answered(
    api: DecisionApi[Any],
    path: str,
    query: Mapping[str, str],
    *,
    as_table: bool = False,
    method: str = "GET",
) -> Any:
    """Return what a group answers to anybody: a ``Status``, or the body as a client reads it."""
    values = {key: [value] for key, value in query.items()}
    request = ApiRequest(
        method, path, request_info(method, path, values), values, {}, b"", ANONYMOUS_USER,
        Media(as_table=as_table), 0.0,
    )  # fmt: skip
    answer = api.handle(request)
    if isinstance(answer, Awaitable):
        answer = await answer
    if isinstance(answer, Status):
        return answer
    assert isinstance(answer, ApiResponse)
    return msgspec.json.decode(msgspec.json.encode(answer.value))


class ScriptedApi(FakeApi):
    """An API server that knows tokens, permissions and a few objects."""

    def __init__(self) -> None:
        self.tokens: dict[str, dict[str, Any]] = {
            "admin": {"username": "admin", "groups": ["system:masters"]},
            "bob": {"username": "bob", "groups": []},
        }
        self.allowed: Callable[[Mapping[str, Any]], bool] = lambda spec: spec["user"] == "hpa"
        self.reason = "fake says no"
        self.denies = False  # rather than having no opinion
        self.objects: dict[str, dict[str, Any]] = {}
        self.is_down = False
        self.review_error = ""
        self.calls: list[tuple[str, str]] = []
        self.reviews: list[dict[str, Any]] = []
        self.hold: asyncio.Event | None = None
        self._version = 0

    async def reply(self, sent: Sent) -> Response:
        path = sent.path
        self.calls.append((sent.method, path))
        if self.hold is not None:
            await self.hold.wait()
        if self.is_down:
            raise ApiUnreachable("connection refused")
        written = sent.object or {}
        if path.endswith("/tokenreviews") and self.review_error:
            return ok({"status": {"authenticated": False, "error": self.review_error}})
        if path.endswith("/tokenreviews"):
            user = self.tokens.get(written["spec"]["token"])
            return ok({"status": {"authenticated": user is not None, "user": user or {}}})
        if path.endswith("/subjectaccessreviews"):
            self.reviews.append(written["spec"])
            allowed = self.allowed(written["spec"])
            reason = "" if allowed else self.reason
            review = {"allowed": allowed, "denied": self.denies, "reason": reason}
            return ok({"status": review})
        return self._object(sent.method, path, written)

    def _object(self, method: str, path: str, sent: dict[str, Any]) -> Response:
        if method == "POST":
            path = f"{path}/{sent['metadata']['name']}"
            if path in self.objects:
                raise ApiError.of(409, "AlreadyExists", f"{path} already exists")
        elif path not in self.objects:
            raise ApiError.of(404, "NotFound", f"{path} not found")
        if method == "GET":
            return ok(self.objects[path])
        old = self.objects.get(path, {})
        version = sent.get("metadata", {}).get("resourceVersion")
        if version is not None and version != old["metadata"]["resourceVersion"]:
            raise ApiError.of(409, "Conflict", "the object has been modified")
        new = merge(old, sent) if method == "PATCH" else sent
        self._version += 1
        new.setdefault("metadata", {})["resourceVersion"] = str(self._version)
        self.objects[path] = new
        return ok(new)


class Shop:
    """A group whose answers tests choose."""

    name = GROUP
    versions: Sequence[str] = ("v1beta1", "v1beta2")
    offers_table = False

    def __init__(self, metrics: Sequence[str] = ("pods/rps",)) -> None:
        self.metrics = list(metrics)
        self.asked: list[ApiRequest] = []
        self.answer: Callable[[ApiRequest], Any] = lambda _: ApiResponse(
            body=b'{"kind":"MetricValueList","items":[]}'
        )

    def revision(self) -> int:
        return len(self.metrics)

    def resources(self, version: str) -> Sequence[ApiResource]:
        return [
            ApiResource(name, "", not name.startswith("n"), "MetricValueList", ("get",))
            for name in self.metrics
        ]

    def schemas(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        reference = {"$ref": f"#/components/schemas/{version}.Value"}
        return {
            f"{version}.List": {"type": "object", "properties": {"items": reference}},
            f"{version}.Value": {"type": "object"},
        }

    def paths(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        schema = {"$ref": f"#/components/schemas/{version}.List"}
        name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        answer = {"description": "OK", "content": {JSON: {"schema": schema}}}
        return {"/pods/{name}": {"parameters": [name], "get": {"responses": {"200": answer}}}}

    def handle(self, request: ApiRequest) -> Any:
        if request.method != "GET":
            return status.method_not_allowed()
        self.asked.append(request)
        return self.answer(request)


class Pki:
    """A serving CA, a client CA and a front proxy's CA."""

    def __init__(self) -> None:
        self.serving = trustme.CA()
        self.clients = trustme.CA()
        self.proxies = trustme.CA()
        self.strangers = trustme.CA()

    def server(self) -> KeyPair:
        return pair_of(self.serving.issue_cert("localhost", "127.0.0.1"))

    def client(self, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.serving.configure_trust(context)
        if certificate is not None:
            certificate.configure_cert(context)
        return context

    def proxy(self, name: str = "front-proxy-client") -> trustme.LeafCert:
        return self.proxies.issue_cert(common_name=name)

    def user(self, name: str, organization: str | None = None) -> trustme.LeafCert:
        return self.clients.issue_cert(common_name=name, organization_name=organization)


def pair_of(leaf: trustme.LeafCert) -> KeyPair:
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    return KeyPair(chain, leaf.private_key_pem.bytes())


def authority(ca: trustme.CA) -> x509.Certificate:
    return x509.load_pem_x509_certificate(ca.cert_pem.bytes())


def flags_for(tmp_path: Any, pki: Pki, *more: str) -> Flags:
    """Return flags of a server on the loopback whose files lie in ``tmp_path``."""
    pair = pki.server()
    files = {
        "server.crt": pair.certificate,
        "server.key": pair.key,
        "clients.crt": pki.clients.cert_pem.bytes(),
        "proxies.crt": pki.proxies.cert_pem.bytes(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return parse(
        [
            "--bind-address=127.0.0.1",
            f"--tls-cert-file={tmp_path / 'server.crt'}",
            f"--tls-private-key-file={tmp_path / 'server.key'}",
            f"--client-ca-file={tmp_path / 'clients.crt'}",
            f"--requestheader-client-ca-file={tmp_path / 'proxies.crt'}",
            "--requestheader-allowed-names=front-proxy-client",
            "--shutdown-delay-duration=0s",
            *more,
        ],
        API_SERVER,
    )


@asynccontextmanager
async def serving(
    flags: Flags,
    api: ScriptedApi,
    *groups: Any,
    routes: Sequence[Route] = (),
    health: Health | None = None,
    metrics: SelfMetrics | None = None,
    **more: Any,
) -> AsyncIterator[RunningServer]:
    async with running(
        flags,
        clusters=Clusters(api, api),
        groups=groups or (Shop(),),
        routes=routes,
        health=health or Health(),
        metrics=metrics or SelfMetrics(),
        verbosity=Verbosity(),
        port=0,
        **more,
    ) as server:
        yield server


class Reply:
    """A parsed HTTP response."""

    def __init__(self, code: int, headers: dict[str, str], body: bytes) -> None:
        self.code = code
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """A TLS connection that sends exactly what a test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def get(self, path: str, method: str = "GET", **headers: str) -> Reply:
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return await self.send("\r\n".join([*lines, "", ""]).encode(), method)

    async def send(self, data: bytes, method: str = "GET") -> Reply:
        self.writer.write(data)
        await self.writer.drain()
        return await self.read(method)

    async def read(self, method: str = "GET") -> Reply:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        code = int(first.split(" ")[1])
        length = int(headers.get("content-length", "0"))
        body = b"" if method == "HEAD" else await self.reader.readexactly(length)
        return Reply(code, headers, body)


@asynccontextmanager
async def wire(port: int, context: ssl.SSLContext) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost"
    )
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
        with suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


async def awaited(answer: Answered, until: asyncio.Event) -> Answered:
    """Answer once ``until`` is set."""
    await until.wait()
    return answer
