"""The sandbox's API server over HTTP: who asks, and who is asked in turn."""

import base64
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from aiohttp import web

from podscale.serving.certificates.issuing import make_authority, make_leaf
from tests.integration.sandbox.client import PODS, pod
from tests.kit.apiserver.server import FaultySandbox


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
    async with FaultySandbox(tls=True, enforce_rbac=True) as server:
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
