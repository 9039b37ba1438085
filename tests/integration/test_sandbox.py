"""The sandbox's API server over HTTP."""

import asyncio
import base64
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from podscale.sandbox.faults import Fault
from podscale.sandbox.server import SandboxServer
from podscale.serving.certificates import make_authority, make_leaf

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


class Client:
    """A small client that answers with status and decoded body."""

    def __init__(self, server: SandboxServer, session: aiohttp.ClientSession) -> None:
        self._server = server
        self.session = session

    async def call(
        self, method: str, path: str, body: object = None, **options: Any
    ) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._server.admin_token}"}
        headers.update(options.pop("headers", {}))
        data = None if body is None else json.dumps(body)
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        url = self._server.url + path
        async with self.session.request(
            method, url, data=data, headers=headers, **options
        ) as answer:
            text = await answer.text()
            is_json = "json" in answer.headers.get("Content-Type", "")
            return answer.status, json.loads(text) if is_json and text else text

    @contextlib.asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator["Events"]:
        headers = {"Authorization": f"Bearer {self._server.admin_token}"}
        async with self.session.get(self._server.url + path, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            yield Events(answer)


class Events:
    """The events of one watch."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def next(self) -> tuple[str, Any]:
        """Return the next event's type and object; ("END", None) after the last."""
        async with asyncio.timeout(5):
            line = await self._answer.content.readline()
        if not line:
            return "END", None
        event = json.loads(line)
        return event["type"], event["object"]


@pytest.fixture
async def server() -> AsyncIterator[SandboxServer]:
    async with SandboxServer(bookmark_interval_s=0.2) as running:
        yield running


@pytest.fixture
async def client(server: SandboxServer) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(server, session)


def configmap(name: str, **data: str) -> dict[str, Any]:
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": data}


def pod(name: str, **labels: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec}


async def test_objects_are_created_read_replaced_patched_and_deleted(client):
    status, made = await client.call("POST", MAPS, configmap("a", x="1"))
    assert (status, made["data"]) == (201, {"x": "1"})
    made["data"]["x"] = "2"
    status, replaced = await client.call("PUT", f"{MAPS}/a", made)
    assert status == 200
    assert replaced["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    assert (await client.call("PUT", f"{MAPS}/a", made))[0] == 409
    for kind, patch in (
        ("application/merge-patch+json", {"data": {"y": "3"}}),
        ("application/strategic-merge-patch+json", {"data": {"y": "3"}}),
        ("application/json-patch+json", [{"op": "add", "path": "/data/y", "value": "3"}]),
    ):
        headers = {"Content-Type": kind}
        status, patched = await client.call("PATCH", f"{MAPS}/a", patch, headers=headers)
        assert (status, patched["data"]) == (200, {"x": "2", "y": "3"})
    assert (await client.call("DELETE", f"{MAPS}/a"))[0] == 200
    status, gone = await client.call("GET", f"{MAPS}/a")
    assert (status, gone["reason"], gone["message"]) == (
        404,
        "NotFound",
        'configmaps "a" not found',
    )


async def test_a_list_comes_in_pages_that_share_one_revision(client, server):
    for number in range(5):
        server.objects.put(configmap(f"m{number}"))
    status, page = await client.call("GET", f"{MAPS}?limit=2")
    assert [item["metadata"]["name"] for item in page["items"]] == ["m0", "m1"]
    assert page["metadata"]["remainingItemCount"] == 3
    assert "kind" not in page["items"][0]  # as kube-apiserver for built-in types
    server.objects.put(configmap("z"))
    token = page["metadata"]["continue"]
    _, rest = await client.call("GET", f"{MAPS}?limit=10&continue={token}")
    assert [item["metadata"]["name"] for item in rest["items"]] == ["m2", "m3", "m4", "z"]
    assert rest["metadata"]["resourceVersion"] == page["metadata"]["resourceVersion"]
    server.compact()
    server.objects.put(configmap("zz"))
    server.compact()
    status, expired = await client.call("GET", f"{MAPS}?limit=10&continue={token}")
    assert (status, expired["reason"]) == (410, "Expired")


async def test_selectors_choose_and_wrong_ones_are_told(client, server):
    server.objects.put(pod("a", app="web"))
    server.objects.put(pod("b", app="db"))
    _, found = await client.call("GET", f"{PODS}?labelSelector=app%20in%20(web)")
    assert [item["metadata"]["name"] for item in found["items"]] == ["a"]
    _, found = await client.call("GET", f"{PODS}?fieldSelector=metadata.name%3Db")
    assert [item["metadata"]["name"] for item in found["items"]] == ["b"]
    status, refused = await client.call("GET", f"{PODS}?labelSelector=a%20b")
    assert (status, refused["reason"]) == (400, "BadRequest")
    assert "expected: in, notin" in refused["message"]
    status, refused = await client.call("GET", f"{PODS}?fieldSelector=spec.x%3Db")
    assert (status, refused["message"]) == (400, "field label not supported: spec.x")


async def test_a_watch_continues_a_list_and_sees_objects_enter_and_leave_its_selector(
    client, server
):
    server.objects.put(pod("a", app="web"))
    _, listed = await client.call("GET", f"{PODS}?labelSelector=app%3Dweb")
    revision = listed["metadata"]["resourceVersion"]
    path = f"{PODS}?watch=1&labelSelector=app%3Dweb&resourceVersion={revision}"
    async with client.watch(path) as events:
        server.objects.put(pod("b", app="db"))
        server.objects.put(pod("c", app="web"))
        kind, seen = await events.next()
        assert (kind, seen["metadata"]["name"], seen["kind"]) == ("ADDED", "c", "Pod")
        held = server.objects.get("pods", "default", "c")
        changed = {**held, "metadata": {**held["metadata"], "labels": {"app": "db"}}}
        server.objects.update("pods", "default", "c", changed)
        kind, seen = await events.next()
        assert (kind, seen["metadata"]["name"]) == ("DELETED", "c")
        server.objects.delete("pods", "default", "a")
        kind, seen = await events.next()
        assert (kind, seen["metadata"]["name"]) == ("DELETED", "a")
        assert int(seen["metadata"]["resourceVersion"]) == server.storage.revision


async def test_a_watch_without_revision_begins_with_what_there_is(client, server):
    server.objects.put(pod("a"))
    async with client.watch(f"{PODS}?watch=1&timeoutSeconds=1") as events:
        assert (await events.next())[0] == "ADDED"
        server.objects.delete("pods", "default", "a")
        assert (await events.next())[0] == "DELETED"
        assert await events.next() == ("END", None)


async def test_bookmarks_come_when_asked_for(client, server):
    path = f"{PODS}?watch=1&allowWatchBookmarks=true&resourceVersion={server.storage.revision}"
    async with client.watch(path) as events:
        server.objects.put(configmap("elsewhere"))
        kind, mark = await events.next()
        assert kind == "BOOKMARK"
        assert mark["metadata"]["resourceVersion"] == str(server.storage.revision)
        assert (mark["kind"], mark["apiVersion"]) == ("Pod", "v1")


async def test_initial_events_end_with_a_marked_bookmark(client, server):
    server.objects.put(pod("a"))
    path = (
        f"{PODS}?watch=1&allowWatchBookmarks=true&sendInitialEvents=true"
        "&resourceVersionMatch=NotOlderThan"
    )
    async with client.watch(path) as events:
        assert (await events.next())[0] == "ADDED"
        kind, mark = await events.next()
        assert kind == "BOOKMARK"
        assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_watch_from_forgotten_history_gets_410(client, server):
    revision = server.storage.revision
    server.objects.put(pod("a"))
    server.compact()
    async with client.watch(f"{PODS}?watch=1&resourceVersion={revision}") as events:
        kind, status = await events.next()
        assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
        assert (await events.next())[0] == "END"


async def test_a_running_watch_survives_a_compaction(client, server):
    path = f"{PODS}?watch=1&resourceVersion={server.storage.revision}"
    async with client.watch(path) as events:
        server.objects.put(pod("a"))
        assert (await events.next())[0] == "ADDED"
        server.compact()
        server.objects.put(pod("b"))
        assert (await events.next())[0] == "ADDED"


async def test_status_and_scale_are_places_of_their_own(client, server):
    deployment = {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}},
    }
    path = "/apis/apps/v1/namespaces/default/deployments"
    await client.call("POST", path, deployment)
    _, scale = await client.call("GET", f"{path}/web/scale")
    assert (scale["spec"], scale["status"]["selector"]) == ({"replicas": 2}, "app=web")
    scale["spec"]["replicas"] = 4
    status, after = await client.call("PUT", f"{path}/web/scale", scale)
    assert (status, after["spec"]["replicas"]) == (200, 4)
    assert (await client.call("PUT", f"{path}/web/scale", scale))[0] == 409
    headers = {"Content-Type": "application/merge-patch+json"}
    body = {"status": {"replicas": 4}, "spec": {"replicas": 9}}
    status, after = await client.call("PATCH", f"{path}/web/status", body, headers=headers)
    assert (after["spec"]["replicas"], after["status"]["replicas"]) == (4, 4)
    assert after["metadata"]["generation"] == 2


async def test_eviction_and_resize(client, server):
    server.objects.put(pod("p", app="web"))
    headers = {"Content-Type": "application/strategic-merge-patch+json"}
    resources = {"requests": {"cpu": "200m"}}
    body = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
    status, after = await client.call("PATCH", f"{PODS}/p/resize", body, headers=headers)
    assert (status, after["spec"]["containers"][0]["resources"]) == (200, resources)
    eviction = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "p"}}
    assert (await client.call("POST", f"{PODS}/p/eviction", eviction))[0] == 201
    assert (await client.call("GET", f"{PODS}/p"))[0] == 404


async def test_rbac_refuses_and_reviews_tell(client, server):
    server.enforce_rbac = True
    token = server.tokens.issue("amy", "dev")
    amy = {"Authorization": f"Bearer {token}"}
    status, refused = await client.call("GET", PODS, headers=amy)
    assert status == 403
    assert refused["message"] == (
        'pods is forbidden: User "amy" cannot list resource "pods" in API group "" '
        'in the namespace "default"'
    )
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    api = "rbac.authorization.k8s.io/v1"
    meta = {"name": "r", "namespace": "default"}
    server.objects.put({"kind": "Role", "apiVersion": api, "metadata": meta, "rules": [rule]})
    server.objects.put(
        {
            "kind": "RoleBinding",
            "apiVersion": api,
            "metadata": meta,
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "Group", "name": "dev"}],
        }
    )
    assert (await client.call("GET", PODS, headers=amy))[0] == 200
    attributes = {"verb": "list", "resource": "pods", "namespace": "default"}
    review = {"spec": {"user": "amy", "groups": ["dev"], "resourceAttributes": attributes}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert (await client.call("POST", path, review))[1]["status"]["allowed"]
    review["spec"]["groups"] = []
    assert not (await client.call("POST", path, review))[1]["status"]["allowed"]
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    _, known = await client.call("POST", path, {"spec": {"token": token}})
    assert known["status"]["user"]["username"] == "amy"
    _, unknown = await client.call("POST", path, {"spec": {"token": "nonsense"}})
    assert "authenticated" not in unknown["status"]  # Go leaves out false
    bad = {"Authorization": "Bearer nonsense"}
    assert (await client.call("GET", PODS, headers=bad))[0] == 401


async def test_a_service_account_token_is_its_service_account(client, server):
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await client.call("POST", accounts, {"metadata": {"name": "bot"}})
    _, answer = await client.call("POST", f"{accounts}/bot/token", {"spec": {}})
    user = server.tokens.user(answer["status"]["token"])
    assert user is not None
    assert user.name == "system:serviceaccount:default:bot"
    assert "system:serviceaccounts:default" in user.groups


async def test_discovery_has_two_forms_that_agree(client):
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    _, document = await client.call("GET", "/apis", headers={"Accept": accept})
    aggregated = {
        (item["metadata"]["name"], version["version"], entry["resource"])
        for item in document["items"]
        for version in item["versions"]
        for entry in version["resources"]
    }
    _, groups = await client.call("GET", "/apis")
    legacy = set()
    for group in groups["groups"]:
        for version in group["versions"]:
            _, listed = await client.call("GET", f"/apis/{version['groupVersion']}")
            legacy |= {
                (group["name"], version["version"], entry["name"])
                for entry in listed["resources"]
                if "/" not in entry["name"]
            }
    assert aggregated == legacy
    async with client.session.get(
        client._server.url + "/apis",
        headers={"Accept": accept, "Authorization": f"Bearer {client._server.admin_token}"},
    ) as first:
        tag = first.headers["ETag"]
    headers = {"Accept": accept, "If-None-Match": tag}
    assert (await client.call("GET", "/apis", headers=headers))[0] == 304


async def test_faults_strike_as_told_and_no_longer(client, server):
    server.objects.put(configmap("a"))
    held = (await client.call("GET", f"{MAPS}/a"))[1]
    fault = server.faults.add(Fault(kind="conflict", resource="configmaps", count=1))
    assert (await client.call("PUT", f"{MAPS}/a", held))[0] == 409
    assert (await client.call("PUT", f"{MAPS}/a", held))[0] == 200
    assert fault.hits == 1
    body = {"kind": "status", "code": 429, "seconds": 3, "verbs": ["list"]}
    await client.call("POST", "/sandbox/faults", body)
    headers = {"Authorization": f"Bearer {server.admin_token}"}
    async with client.session.get(server.url + MAPS, headers=headers) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "3")
    assert (await client.call("GET", f"{MAPS}/a"))[0] == 200
    await client.call("DELETE", "/sandbox/faults")
    assert (await client.call("GET", MAPS))[0] == 200
    server.faults.add(Fault(kind="cut", count=1))
    with pytest.raises(aiohttp.ClientError):
        await client.call("POST", MAPS, configmap("b"))
    assert (await client.call("GET", MAPS))[0] == 200
    server.faults.add(Fault(kind="gone", verbs=("list",), count=1))
    assert (await client.call("GET", MAPS))[0] == 410


async def test_watches_can_be_cut_and_muted(client, server):
    path = f"{PODS}?watch=1&resourceVersion={server.storage.revision}"
    async with client.watch(path) as events:
        mute = server.faults.add(Fault(kind="mute"))
        server.objects.put(pod("a"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await events.next()
        server.faults.remove(mute)
        server.objects.put(pod("b"))
        assert (await events.next())[1]["metadata"]["name"] == "a"
        assert (await events.next())[1]["metadata"]["name"] == "b"
        server.faults.cut_watches()
        assert (await events.next())[0] == "END"


async def test_mutating_webhooks_change_refuse_and_may_fail(client, server):
    answers: list[Any] = []

    async def review(request: web.Request) -> web.Response:
        asked = (await request.json())["request"]
        assert (asked["operation"], asked["kind"]["kind"]) == ("CREATE", "Pod")
        answer = answers.pop()
        if answer is None:
            return web.Response(status=500)
        body = {"kind": "AdmissionReview", "response": {"uid": asked["uid"], **answer}}
        return web.json_response(body)

    app = web.Application()
    app.router.add_post("/mutate", review)
    async with _serving(app) as url:
        rule = {
            "operations": ["CREATE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["pods"],
        }
        webhook = {
            "name": "w.example.com",
            "clientConfig": {"url": f"{url}/mutate"},
            "rules": [rule],
            "failurePolicy": "Ignore",
            "objectSelector": {"matchLabels": {"app": "web"}},
        }
        configuration = {
            "kind": "MutatingWebhookConfiguration",
            "apiVersion": "admissionregistration.k8s.io/v1",
            "metadata": {"name": "w"},
            "webhooks": [webhook],
        }
        server.objects.put(configuration)
        operations = [{"op": "add", "path": "/metadata/labels/seen", "value": "yes"}]
        encoded = base64.b64encode(json.dumps(operations).encode()).decode()
        answers.append({"allowed": True, "patchType": "JSONPatch", "patch": encoded})
        _, made = await client.call("POST", PODS, pod("a", app="web"))
        assert made["metadata"]["labels"] == {"app": "web", "seen": "yes"}
        answers.append({"allowed": False, "status": {"message": "no", "code": 403}})
        status, refused = await client.call("POST", PODS, pod("b", app="web"))
        assert status == 403
        assert refused["message"] == 'admission webhook "w.example.com" denied the request: no'
        answers.append(None)
        assert (await client.call("POST", PODS, pod("b", app="web")))[0] == 201
        assert (await client.call("POST", PODS, pod("c", app="db")))[0] == 201
        webhook["failurePolicy"] = "Fail"
        server.objects.put(configuration)
        answers.append(None)
        assert (await client.call("POST", PODS, pod("d", app="web")))[0] == 500


async def test_an_apiservice_is_asked_as_the_user_with_the_front_proxys_certificate(
    client, server, tmp_path
):
    seen: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        transport = request.transport
        assert transport is not None
        seen.append((request.path, request.headers, transport.get_extra_info("peercert")))
        return web.json_response({"kind": "MetricValueList", "items": []})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    authority = make_authority("ext", now=1e9, life_s=4e9)
    pair = make_leaf(authority, ("metrics.monitoring.svc",), now=1e9, life_s=4e9)
    (tmp_path / "c").write_bytes(pair.certificate)
    (tmp_path / "k").write_bytes(pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "c", tmp_path / "k")
    context.load_verify_locations(cadata=server.pki.front_proxy_authority.certificate.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    async with _serving(app, context) as url:
        port = int(url.rpartition(":")[2])
        server.objects.put(
            {
                "kind": "Service",
                "apiVersion": "v1",
                "metadata": {"name": "metrics", "namespace": "monitoring"},
                "spec": {"type": "ExternalName", "externalName": "127.0.0.1"},
            }
        )
        reference = {"name": "metrics", "namespace": "monitoring", "port": port}
        server.objects.put(
            {
                "kind": "APIService",
                "apiVersion": "apiregistration.k8s.io/v1",
                "metadata": {"name": "v1beta2.custom.metrics.k8s.io"},
                "spec": {
                    "group": "custom.metrics.k8s.io",
                    "version": "v1beta2",
                    "service": reference,
                    "caBundle": base64.b64encode(authority.certificate).decode(),
                },
            }
        )
        token = server.tokens.issue("amy", "dev")
        headers = {"Authorization": f"Bearer {token}", "X-Remote-User": "forged"}
        path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/%2A/rps"
        status, body = await client.call("GET", path, headers=headers)
        assert (status, body["kind"]) == (200, "MetricValueList")
        asked = next(entry for entry in seen if entry[0].endswith("/rps"))
        assert asked[1].getall("X-Remote-User") == ["amy"]
        assert asked[1].getall("X-Remote-Group") == ["dev", "system:authenticated"]
        assert "Authorization" not in asked[1]
        assert (("commonName", "front-proxy-client"),) in asked[2]["subject"]
    status, body = await client.call("GET", path)
    assert (status, body["reason"]) == (503, "ServiceUnavailable")


async def test_https_knows_client_certificates(tmp_path):
    async with SandboxServer(tls=True, enforce_rbac=True) as server:
        pair = server.pki.client("amy", ["system:masters"])
        (tmp_path / "c").write_bytes(pair.certificate)
        (tmp_path / "k").write_bytes(pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=server.pki.authority.certificate.decode())
        assert await _status(server.url + PODS, context) == 403
        context.load_cert_chain(tmp_path / "c", tmp_path / "k")
        assert await _status(server.url + PODS, context) == 200


async def _status(url: str, context: ssl.SSLContext) -> int:
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as answer:
        return answer.status


@contextlib.asynccontextmanager
async def _serving(
    app: web.Application, context: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"{'https' if context else 'http'}://127.0.0.1:{port}"
    finally:
        await runner.cleanup()
