"""The world around the adapter in cases part C: an API server and a Prometheus that follow
a script, on real sockets, and a log of what they are asked.
"""

import asyncio
import base64
import json
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import trustme
from aiohttp import web

from podscale.kube.client.resource import Resource
from podscale.kube.discovery import Mapper
from tests.conformance import adapter_cases

FAKE_DENIAL = "fake says no"
ALLOWED = {"admin", "system:apiserver", "hpa"}
TOKENS = {
    "admin": ("admin", ["system:masters", "system:authenticated"]),
    "bob": ("bob", ["system:authenticated"]),
}
T = 1700000000.5


class Authorities:
    """The CAs of clients and of the front proxy, and certificates that they signed."""

    def __init__(self, directory: Path) -> None:
        self.clients, self.proxies = trustme.CA(), trustme.CA()
        self.certificates = {
            "fp": self._issue(directory / "fp.pem", self.proxies, "front-proxy-client", None),
            "alice": self._issue(directory / "alice.pem", self.clients, "admin", "dev"),
        }

    @staticmethod
    def _issue(path: Path, ca: trustme.CA, name: str, organization: str | None) -> Path:
        issued = ca.issue_cert(common_name=name, organization_name=organization)
        issued.private_key_and_cert_chain_pem.write_to_path(path)
        return path

    def config_map(self) -> dict[str, Any]:
        """Return kube-system/extension-apiserver-authentication."""
        return {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {
                "name": "extension-apiserver-authentication",
                "namespace": "kube-system",
                "resourceVersion": "5",
            },
            "data": {
                "client-ca-file": self.clients.cert_pem.bytes().decode(),
                "requestheader-client-ca-file": self.proxies.cert_pem.bytes().decode(),
                "requestheader-allowed-names": '["front-proxy-client"]',
                "requestheader-username-headers": '["X-Remote-User"]',
                "requestheader-group-headers": '["X-Remote-Group"]',
                "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
            },
        }


class ScriptedCluster:
    """An API server with a fixed set of objects. Writes nothing, watches stay silent."""

    def __init__(
        self, resources: Sequence[Resource], objects: Iterable[Any], authorities: Authorities
    ) -> None:
        self.calls: list[str] = []
        self._resources = list(resources)
        self._authorities = authorities
        self._objects: dict[str, list[dict[str, Any]]] = {}
        for row in objects:
            kind, _, group = row["kind"].partition(".")
            resource = next(r for r in self._resources if (r.kind, r.group) == (kind, group))
            self._objects[resource.path()] = [
                self._object(resource, *entry) for entry in row["objects"]
            ]

    @staticmethod
    def _object(
        resource: Resource, namespace: str | None, name: str, labels: dict[str, str]
    ) -> dict[str, Any]:
        metadata = {"name": name, "labels": labels, "resourceVersion": "3", "uid": f"uid-{name}"}
        if namespace:
            metadata |= {"namespace": namespace, "uid": f"uid-{namespace}-{name}"}
        made = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        if resource.kind == "Pod":
            made |= {"spec": {"containers": [{"name": "c1"}]}, "status": {"phase": "Running"}}
        return made

    def app(self) -> web.Application:
        """Return the server."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if request.method == "POST":
            return self._review(path, await request.json())
        if path in ("/api", "/apis"):
            return web.json_response(discovery(self._resources, is_core=path == "/api"))
        if path.startswith("/api/v1/namespaces/kube-system/configmaps"):
            return await self._config_map(request)
        if path in {r.path() for r in self._resources}:
            return await self._collection(request, self._objects.get(path, []))
        return web.json_response({"kind": "Status", "status": "Failure", "code": 404}, status=404)

    async def _config_map(self, request: web.Request) -> web.StreamResponse:
        found = self._authorities.config_map()
        if request.path.endswith("/extension-apiserver-authentication"):
            return web.json_response(found)
        return await self._collection(request, [found])

    async def _collection(
        self, request: web.Request, items: list[dict[str, Any]]
    ) -> web.StreamResponse:
        if request.query.get("watch") in ("1", "true"):
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            bookmark = {"metadata": {"resourceVersion": "9"}}
            line = json.dumps({"type": "BOOKMARK", "object": bookmark})
            await response.write(line.encode() + b"\n")
            await asyncio.Event().wait()  # until the client goes, or the server is stopped
        self.calls.append(f"KGET {request.path_qs}")
        return web.json_response(
            {"kind": "List", "metadata": {"resourceVersion": "9"}, "items": items}
        )

    def _review(self, path: str, body: dict[str, Any]) -> web.Response:
        spec = body["spec"]
        if path.endswith("/tokenreviews"):
            known = TOKENS.get(spec["token"])
            status: dict[str, Any] = {"authenticated": known is not None}
            if known is not None:
                status["user"] = {"username": known[0], "groups": known[1]}
        elif path.endswith("/selfsubjectaccessreviews"):
            status = {"allowed": True}
        else:
            self.calls.append(f"SAR {json.dumps(spec)}")
            allowed = spec.get("user") in ALLOWED
            status = {"allowed": allowed} | ({} if allowed else {"reason": FAKE_DENIAL})
        return web.json_response({**body, "status": status}, status=201)


class ScriptedPrometheus:
    """A Prometheus that answers from the fixture; ``mode`` makes it fail."""

    def __init__(self, series: Iterable[Sequence[Any]], answers: Iterable[Sequence[Any]]) -> None:
        self.calls: list[str] = []
        self.requests: list[web.BaseRequest] = []
        self.forms: list[dict[str, str]] = []
        self.mode = ""
        self._series = {row[0]: row[1] for row in series}
        self._answers = [(re.compile(pattern), answer) for pattern, answer in answers]

    def raw(self, query: str) -> Any:
        """Return the row of the fixture that answers ``query``; ``[]`` for none."""
        return next((answer for pattern, answer in self._answers if pattern.search(query)), [])

    def series(self, query: str) -> list[dict[str, str]]:
        """Return the series of one ``match[]``."""
        return self._series.get(query, [])

    def app(self) -> web.Application:
        """Return the server."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.Response:
        form = {k: str(v) for k, v in {**request.query, **await request.post()}.items()}
        self.requests.append(request)
        self.forms.append(form)
        if request.path.endswith("/series"):
            found = self.series(form["match[]"])
            return web.json_response({"status": "success", "data": found})
        query = form["query"]
        self.calls.append(f"PROM {query}")
        if self.mode:
            return await self._failure()
        answer = self.raw(query)
        if isinstance(answer, dict) and "raw" in answer:
            return web.json_response(answer["raw"], status=answer["code"])
        return web.json_response(
            {"status": "success", "data": _data(answer, float(form.get("time") or time.time()))}
        )

    async def _failure(self) -> web.Response:
        error = {"status": "error", "errorType": "execution", "error": "boom"}
        match self.mode:
            case "down500":
                return web.Response(status=500, text="boom")
            case "down503":
                return web.json_response(error, status=503)
            case "422":
                return web.json_response(error, status=422)
            case "400":
                return web.json_response({**error, "errorType": "bad_data"}, status=400)
            case "html":
                return web.Response(text="<html>", content_type="text/html")
            case "nulldata":
                return web.json_response({"status": "success", "data": None})
            case "nullresult":
                data = {"resultType": "vector", "result": None}
                return web.json_response({"status": "success", "data": data})
            case "cut":
                text = '{"status":"success","data":{"resultType":"vector","result":[{"met'
                return web.Response(text=text, content_type="application/json")
            case "partial":
                data = {"resultType": "vector", "result": []}
                warnings = ["a store does not answer"]
                return web.json_response({"status": "success", "data": data, "warnings": warnings})
            case "hang":
                await asyncio.sleep(3600)
        raise AssertionError(f"no mode {self.mode!r}")


def _data(answer: Any, asked_s: float) -> dict[str, Any]:
    if isinstance(answer, dict):
        kind = answer["type"]
        if kind == "scalar":
            return {"resultType": kind, "result": [asked_s, answer["v"]]}
        return {"resultType": kind, "result": [asked_s, "x"] if kind == "string" else []}
    return {
        "resultType": "vector",
        "result": [
            {"metric": labels, "value": [asked_s if at is None else at, value]}
            for labels, value, at in ((*entry, None)[:3] for entry in answer)
        ],
    }


def kubeconfig(server: str) -> str:
    """Return a kubeconfig for a plain HTTP server."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
    )


def part_c_resources() -> list[Resource]:
    """Return the resources of cases C.1."""
    return [
        *adapter_cases.served_resources(),
        adapter_cases.resource("kafka.strimzi.io/v1beta2", "KafkaTopic"),
    ]


def part_c_mapper() -> Mapper:
    """Return the RESTMapper of cases C.1."""
    return Mapper(part_c_resources())


def part_c_config() -> dict[str, Any]:
    """Return the rules file of cases C.2."""
    (resource_rules,) = adapter_cases.rows("C2-3")
    return {
        "rules": adapter_cases.rows("C2"),
        "externalRules": adapter_cases.rows("C2-2"),
        "resourceRules": resource_rules,
    }


def part_c_prometheus() -> ScriptedPrometheus:
    """Return the Prometheus of cases C.3."""
    return ScriptedPrometheus(adapter_cases.rows("C3"), adapter_cases.rows("C3-2"))


def conflicts_config() -> dict[str, Any]:
    """Return the rules file of cases C.9."""
    return {"rules": adapter_cases.rows("C9"), "externalRules": adapter_cases.rows("C9-2")}


def conflicts_prometheus() -> ScriptedPrometheus:
    """Return the Prometheus of cases C.9."""
    return ScriptedPrometheus(
        adapter_cases.rows("C9-3"), [["^[A-F] ", [[{"pod": "web-1"}, "1", None]]]]
    )


def basic(user: str, password: str) -> str:
    """Return an Authorization header."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def discovery(resources: Iterable[Resource], *, is_core: bool) -> dict[str, Any]:
    """Return the aggregated discovery document of ``/api`` or ``/apis``."""
    served: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in resources:
        if (not each.group) is is_core:
            served.setdefault((each.group, each.version), []).append(
                {
                    "resource": each.plural,
                    "responseKind": {
                        "group": each.group,
                        "version": each.version,
                        "kind": each.kind,
                    },
                    "scope": "Namespaced" if each.namespaced else "Cluster",
                    "singularResource": each.singular,
                    "verbs": ["get", "list", "watch"],
                }
            )
    items = [
        {"metadata": {"name": group}, "versions": [{"version": version, "resources": found}]}
        for (group, version), found in served.items()
    ]
    return {"kind": "APIGroupDiscoveryList", "metadata": {}, "items": items}
