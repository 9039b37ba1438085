"""The server over real TLS sockets: who gets in."""

# A server, then its client: nested blocks read better than one block of both (SIM117); what
# a test waits for lies in the server under test, which has no event for it (ASYNC110).
# ruff: noqa: SIM117

# A server, then its client: nested blocks read better than one block of both (SIM117); what
# a test waits for lies in the server under test, which has no event for it (ASYNC110).
# ruff: noqa: SIM117

import asyncio
import ssl
from pathlib import Path

import pytest

from podscale.serving.monitoring.selfmetrics import SelfMetrics
from tests.integration.serving.asked import HPA, PODS
from tests.unit.serving.kit import GROUP, Pki, ScriptedApi, Shop, flags_for, serving, wire


async def test_proxy_certificate_speaks_for_the_user_in_its_headers(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    shop = Shop()
    flags = flags_for(tmp_path, pki, "--authorization-cluster-first=false")
    async with serving(flags, api, shop) as server:
        async with wire(server.port, pki.client(pki.proxy())) as client:
            reply = await client.get(PODS, **HPA, X_Remote_Extra_Foo="bar")
    assert reply.code == 200
    assert api.reviews == [
        {
            "resourceAttributes": {
                "namespace": "default",
                "verb": "get",
                "group": GROUP,
                "version": "v1beta2",
                "resource": "pods",
                "subresource": "rps",
                "name": "*",
            },
            "user": "hpa",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "extra": {"foo": ["bar"]},
        }
    ]
    assert shop.asked[0].user.name == "hpa"


async def test_a_group_name_with_a_comma_stays_one_group(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    async with serving(flags_for(tmp_path, pki), api) as server:
        async with wire(server.port, pki.client(pki.proxy())) as client:
            head = (
                f"GET {PODS} HTTP/1.1\r\nHost: x\r\nX-Remote-User: eve\r\n"
                "X-Remote-Group: a,system:masters\r\nX-Remote-Group: b\r\n\r\n"
            )
            reply = await client.send(head.encode())
    assert reply.code == 403
    assert api.reviews[0]["groups"] == ["a,system:masters", "b", "system:authenticated"]


@pytest.mark.parametrize(
    ("certificate", "headers", "code", "user"),
    [
        pytest.param(None, {"X_Remote_User": "hpa"}, 403, "system:anonymous", id="forged-headers"),
        pytest.param("proxy", {}, 401, None, id="proxy-without-a-user"),
        pytest.param("impostor", {"X_Remote_User": "hpa"}, 401, None, id="proxy-of-another-name"),
        pytest.param("client", {"X_Remote_User": "eve"}, 200, "hpa", id="client-wins-over-headers"),
        pytest.param(
            "client-as-proxy", {"X_Remote_User": "hpa"}, 403, "front-proxy-client",
            id="client-ca-never-makes-a-proxy",
        ),
        pytest.param(None, {"Authorization": "Bearer wrong"}, 401, None, id="bad-token"),
        pytest.param(None, {"Authorization": "Bearer bob"}, 403, "bob", id="good-token"),
        pytest.param(None, {"Authorization": "Bearer admin"}, 200, None, id="masters-pass-unasked"),
        pytest.param(
            "impostor", {"Authorization": "Bearer admin"}, 200, None, id="token-beside-bad-proxy"
        ),
    ],
)  # fmt: skip
async def test_who_gets_in(
    tmp_path: Path,
    pki: Pki,
    api: ScriptedApi,
    certificate: str | None,
    headers: dict[str, str],
    code: int,
    user: str | None,
) -> None:
    certificates = {
        "proxy": pki.proxy(),
        "impostor": pki.proxy("somebody-else"),
        "client": pki.user("hpa", "dev"),
        "client-as-proxy": pki.user("front-proxy-client"),
    }
    context = pki.client(certificates.get(certificate or ""))
    async with serving(flags_for(tmp_path, pki), api) as server:
        async with wire(server.port, context) as client:
            reply = await client.get(PODS, **headers)
    assert reply.code == code
    assert {review["user"] for review in api.reviews} == ({user} if user else set())
    if code == 401:
        assert reply.json == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Unauthorized",
            "reason": "Unauthorized",
            "code": 401,
        }


async def test_certificate_of_an_unknown_ca_ends_the_handshake(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    context = pki.client(pki.strangers.issue_cert(common_name="front-proxy-client"))
    metrics = SelfMetrics()
    async with serving(flags_for(tmp_path, pki), api, metrics=metrics) as server:
        with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError)):
            async with wire(server.port, context) as client:
                await client.get(PODS, X_Remote_User="hpa")
        async with wire(server.port, pki.client()) as client:
            assert (await client.get("/healthz")).code == 200
        assert metrics.registry.get_sample_value("apiserver_tls_handshake_errors_total") == 1
    assert api.reviews == []


async def test_a_ca_that_leaves_takes_open_connections_with_it(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    async with serving(flags_for(tmp_path, pki), api) as server:
        async with wire(server.port, pki.client(pki.proxy())) as client:
            assert (await client.get(PODS, **HPA)).code == 200
            server.trust.use_file("requestheader-client-ca-file", b"")
            assert (await client.get(PODS, **HPA)).code == 401


async def test_cluster_wide_permission_is_asked_once_for_a_group(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    async with serving(flags_for(tmp_path, pki), api) as server:
        async with wire(server.port, pki.client(pki.proxy())) as client:
            for path in (PODS, PODS.replace("default", "prod"), PODS.replace("rps", "other")):
                assert (await client.get(path, **HPA)).code == 200
    assert [review["resourceAttributes"] for review in api.reviews] == [
        {"verb": "get", "group": GROUP, "version": "*", "resource": "*"}
    ]


async def test_failing_review_is_500_in_plain_text(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    async with serving(flags_for(tmp_path, pki), api) as server:
        api.is_down = True
        async with wire(server.port, pki.client()) as client:
            reply = await client.get("/metrics?a=<b>")
    assert reply.code == 500
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.body == (b'Internal Server Error: "/metrics?a=&lt;b&gt;": connection refused\n')


async def test_verbosity_changes_at_run_time_under_authorization(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    async with serving(flags_for(tmp_path, pki), api) as server:
        async with wire(server.port, pki.client()) as client:

            async def put(token: str, value: str) -> tuple[int, bytes]:
                reply = await client.send(
                    f"PUT /debug/flags/v HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                    f"Content-Length: {len(value)}\r\n\r\n{value}".encode()
                )
                return reply.code, reply.body

            assert (await put("bob", "4"))[0] == 403
            done = b"successfully set klog.logging.verbosity to 4"
            assert await put("admin", "4") == (200, done)
            assert (await put("admin", "much"))[0] == 400
            now = await client.get("/debug/flags/v", Authorization="Bearer admin")
            assert now.body == b"4\n"
