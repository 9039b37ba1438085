"""The server over real TLS sockets: who gets in, what is answered, how it ends."""

# A server, then its client: nested blocks read better than one block of both (SIM117); what
# a test waits for lies in the server under test, which has no event for it (ASYNC110).
# ruff: noqa: SIM117, ASYNC110

import asyncio
import gc
import gzip
import io
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from blockbuster import blockbuster_ctx

from podscale.serving.api import ApiRequest, ApiResponse, Route
from podscale.serving.connection import Limits
from podscale.serving.health import Health, Verdict
from podscale.serving.logs import Verbosity, configure
from podscale.serving.selfmetrics import SelfMetrics
from podscale.serving.status import internal_error
from tests.unit.serving.kit import (
    GROUP,
    Pki,
    ScriptedApi,
    Shop,
    Wire,
    awaited,
    flags_for,
    serving,
    wire,
)

PODS = f"/apis/{GROUP}/v1beta2/namespaces/default/pods/*/rps"
HPA = {"X_Remote_User": "hpa", "X_Remote_Group": "system:serviceaccounts"}


@pytest.fixture(scope="module")
def pki() -> Pki:
    return Pki()


@pytest.fixture(autouse=True)
def logged() -> io.StringIO:
    stream = io.StringIO()
    configure("json", Verbosity(), stream)
    return stream


@pytest.fixture(autouse=True)
async def never_blocks() -> AsyncIterator[None]:
    with blockbuster_ctx(scanned_modules=["podscale"]) as buster:
        # A certificate is loaded from a memfd: no disk is involved.
        buster.functions["io.BufferedWriter.write"].can_block_in("serving/tls.py", {"_load"})
        for name in ("os.stat", "io.TextIOWrapper.read", "io.BufferedReader.read"):
            if name in buster.functions:  # the source lines of a traceback that is logged
                buster.functions[name].can_block_in("linecache.py", {"checkcache", "updatecache"})
        yield


@pytest.fixture
def api() -> ScriptedApi:
    return ScriptedApi()


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
        gc.collect()
        assert metrics.registry.get_sample_value("apiserver_tls_handshake_errors_total") == 1
    assert api.reviews == []


async def test_a_ca_that_leaves_takes_open_connections_with_it(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    async with serving(flags_for(tmp_path, pki), api) as server:
        async with wire(server.port, pki.client(pki.proxy())) as client:
            assert (await client.get(PODS, **HPA)).code == 200
            server.trust.use_files({"client-ca-file": pki.clients.cert_pem.bytes()})
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


async def test_methods_media_types_and_unknown_paths(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    admin = {"Authorization": "Bearer admin"}
    async with serving(flags_for(tmp_path, pki), api) as server:
        async with wire(server.port, pki.client()) as client:
            assert (await client.get(PODS, "POST", **admin)).json["reason"] == "MethodNotAllowed"
            head = await client.get(PODS, "HEAD", **admin)
            assert (head.code, head.body) == (405, b"")
            html = await client.get(PODS, Accept="text/html", **admin)
            assert (html.code, html.json["message"]) == (
                406,
                (
                    "only the following media types are accepted: application/json, "
                    "application/yaml, application/vnd.kubernetes.protobuf"
                ),
            )
            protobuf = "application/vnd.kubernetes.protobuf"
            assert (await client.get(PODS, Accept=protobuf, **admin)).code == 406
            hpa = await client.get(PODS, Accept=f"{protobuf}, */*", **admin)
            assert (hpa.code, hpa.headers["content-type"]) == (200, "application/json")
            yaml = await client.get(PODS, Accept="application/yaml", **admin)
            assert yaml.body == b"items: []\nkind: MetricValueList\n"
            pretty = await client.get(f"{PODS}?pretty=true", **admin)
            assert pretty.body.startswith(b'{\n  "kind"')
            for path in (f"/apis/{GROUP}/v9/x/y", "/apis/none", "/nothing", "/apis/", "/%00%ff"):
                reply = await client.get(path, **admin)
                assert (reply.code, reply.json["reason"]) == (404, "NotFound"), path
            legacy = await client.get("/api", **admin)
            assert legacy.code == 404
            assert "/apis" in legacy.json["paths"]


async def test_every_reply_carries_the_standard_headers(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    async with serving(flags_for(tmp_path, pki), api) as server:
        async with wire(server.port, pki.client()) as client:
            reply = await client.get("/livez")
            again = await client.get("/livez", Audit_Id="from-the-aggregator")
    assert reply.headers["cache-control"] == "no-cache, private"
    assert len(reply.headers["audit-id"]) == 36
    assert reply.headers["date"].endswith(" GMT")
    assert again.headers["audit-id"] == "from-the-aggregator"


async def test_late_answers_are_504_as_text(tmp_path: Path, pki: Pki, api: ScriptedApi) -> None:
    shop = Shop()
    never = asyncio.Event()
    shop.answer = lambda _: awaited(ApiResponse(), never)
    async with serving(flags_for(tmp_path, pki), api, shop) as server:
        async with wire(server.port, pki.client()) as client:
            reply = await client.get(f"{PODS}?timeout=50ms", Authorization="Bearer admin")
            wrong = await client.get(f"{PODS}?timeout=soon", Authorization="Bearer admin")
    assert (reply.code, reply.headers["content-type"]) == (504, "text/plain; charset=utf-8")
    assert reply.json["message"] == (
        "Timeout: request did not complete within the allotted timeout"
    )
    assert wrong.code == 400


async def test_a_failing_handler_is_a_status_without_its_secrets(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    shop = Shop()

    def fail(_request: ApiRequest) -> Any:
        raise RuntimeError("the password is swordfish")

    async def fail_later(_request: ApiRequest) -> Any:
        raise TimeoutError("prometheus://user:swordfish@host")

    async with serving(flags_for(tmp_path, pki), api, shop) as server:
        async with wire(server.port, pki.client()) as client:
            for answer in (fail, fail_later):
                shop.answer = answer
                reply = await client.get(PODS, Authorization="Bearer admin")
                assert (reply.code, reply.json["reason"]) == (500, "InternalError")
                assert b"swordfish" not in reply.body


async def test_beyond_the_limit_requests_get_429(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    shop = Shop()
    go = asyncio.Event()
    shop.answer = lambda _: awaited(ApiResponse(body=b"{}"), go)
    flags = flags_for(tmp_path, pki, "--max-requests-inflight=2")
    async with serving(flags, api, shop) as server:

        async def ask() -> int:
            async with wire(server.port, pki.client()) as client:
                return (await client.get(PODS, Authorization="Bearer admin")).code

        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(ask()) for _ in range(2)]
            while len(shop.asked) < 2:
                await asyncio.sleep(0.01)
            async with wire(server.port, pki.client()) as client:
                refused = await client.get(PODS, Authorization="Bearer admin")
                alive = await client.get("/livez")
            go.set()
    assert (refused.code, refused.headers["retry-after"]) == (429, "1")
    assert alive.code == 200
    assert [task.result() for task in waiting] == [200, 200]


async def test_a_client_that_hangs_up_cancels_its_request(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    shop = Shop()
    cancelled = asyncio.Event()

    async def wait(_request: ApiRequest) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    shop.answer = wait
    async with serving(flags_for(tmp_path, pki), api, shop) as server:
        async with wire(server.port, pki.client()) as client:
            client.writer.write(
                f"GET {PODS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\n\r\n".encode()
            )
            while not shop.asked:
                await asyncio.sleep(0.01)
        await asyncio.wait_for(cancelled.wait(), 5)
        while server.server.reading:
            await asyncio.sleep(0.01)


async def test_pipelined_requests_are_answered_in_order(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    shop = Shop()

    async def echo(request: ApiRequest) -> Any:
        await asyncio.sleep(0)
        return ApiResponse(value={"name": request.info.name})

    shop.answer = echo
    async with serving(flags_for(tmp_path, pki), api, shop) as server:
        async with wire(server.port, pki.client()) as client:
            for number in range(50):
                path = PODS.replace("*", str(number))
                client.writer.write(
                    f"GET {path} HTTP/1.1\r\nHost: x\r\n"
                    "Authorization: Bearer admin\r\n\r\n".encode()
                )
            names = [(await client.read()).json["name"] for _ in range(50)]
    assert names == [str(number) for number in range(50)]


async def test_large_answers_are_compressed_for_those_who_accept_it(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    shop = Shop()
    body = json.dumps({"items": ["x" * 100] * 3000}).encode()
    shop.answer = lambda _: ApiResponse(body=body)
    admin = {"Authorization": "Bearer admin"}
    async with serving(flags_for(tmp_path, pki), api, shop) as server:
        async with wire(server.port, pki.client()) as client:
            zipped = await client.get(PODS, Accept_Encoding="gzip", **admin)
            plain = await client.get(PODS, **admin)
    assert zipped.headers["content-encoding"] == "gzip"
    assert gzip.decompress(zipped.body) == body == plain.body
    assert len(zipped.body) < len(body) / 20


async def test_a_public_route_takes_bodies_without_credentials(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    def mutate(request: ApiRequest) -> ApiResponse:
        return ApiResponse(value={"length": len(request.body), "user": request.user.name})

    route = Route("/", mutate, ("POST",), is_public=True)
    async with serving(flags_for(tmp_path, pki), api, routes=[route]) as server:
        async with wire(server.port, pki.client()) as client:
            body = b"x" * 300_000
            head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            whole = await client.send(head.encode() + body)
            chunked = await client.send(
                b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: v\r\n\r\n"
            )
            client.writer.write(
                b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
            )
            assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
            continued = await client.send(b"ok")
    assert whole.json == {"length": 300_000, "user": "system:anonymous"}
    assert chunked.json["length"] == 11
    assert continued.json["length"] == 2
    assert api.calls == []


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 70_000, 431, id="64k-header"),
        pytest.param(b"GET /" + b"a" * 70_000, 431, id="64k-target"),
        pytest.param(b"nonsense\r\n\r\n", 400, id="nonsense"),
        pytest.param(b"GET / HTTP/1.1\n\n", 400, id="bare-lf"),
        pytest.param(b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 400, id="version"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", 400, id="no-host"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", 413, id="body"
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            400,
            id="two-lengths",
        ),
    ],
)
async def test_bad_requests_get_a_status_and_the_connection_ends(
    tmp_path: Path, pki: Pki, api: ScriptedApi, sent: bytes, code: int
) -> None:
    async with serving(flags_for(tmp_path, pki), api) as server:
        async with wire(server.port, pki.client()) as client:
            reply = await client.send(sent)
            assert (reply.code, reply.json["kind"]) == (code, "Status")
            assert await client.reader.read() == b""


async def test_slow_clients_are_given_up(tmp_path: Path, pki: Pki, api: ScriptedApi) -> None:
    limits = Limits(header_s=0.3, body_s=0.3, idle_s=0.6)
    async with serving(flags_for(tmp_path, pki), api, limits=limits) as server:

        async def last_words(*parts: bytes) -> bytes:
            async with wire(server.port, pki.client()) as client:
                for part in parts:
                    client.writer.write(part)
                    await asyncio.sleep(0.05)
                return await asyncio.wait_for(client.reader.read(), 10)

        async with asyncio.TaskGroup() as tasks:
            silent = tasks.create_task(last_words())
            header = tasks.create_task(last_words(b"GET / HTTP/1.1\r\n", b"Host:"))
            body = tasks.create_task(
                last_words(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", b"a")
            )
            idle = tasks.create_task(last_words(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"))
        assert silent.result() == b""
        assert header.result().startswith(b"HTTP/1.1 408 ")
        assert body.result().startswith(b"HTTP/1.1 408 ")
        assert idle.result().startswith(b"HTTP/1.1 200 ")
        assert not server.server.connections


async def test_a_reader_that_stalls_does_not_hold_our_memory(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    shop = Shop()
    shop.answer = lambda _: ApiResponse(body=b"x" * 20_000_000, content_type="text/plain")
    limits = Limits(write_s=0.3)
    async with serving(flags_for(tmp_path, pki), api, shop, limits=limits) as server:
        async with wire(server.port, pki.client()) as client:
            client.writer.write(
                f"GET {PODS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\n\r\n".encode()
            )
            while not server.server.connections or not any(
                connection.is_busy for connection in server.server.connections
            ):
                await asyncio.sleep(0.01)
            async with asyncio.timeout(10):
                while server.server.connections:
                    await asyncio.sleep(0.05)


async def test_draining_fails_readiness_first_and_lets_requests_finish(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    shop = Shop()
    go = asyncio.Event()
    shop.answer = lambda _: awaited(ApiResponse(body=b"{}"), go)
    flags = flags_for(tmp_path, pki, "--shutdown-delay-duration=300ms")
    async with serving(flags, api, shop) as server:
        async with (
            wire(server.port, pki.client()) as busy,
            wire(server.port, pki.client()) as probe,
            asyncio.TaskGroup() as tasks,
        ):
            answer = tasks.create_task(busy.get(PODS, Authorization="Bearer admin"))
            while not shop.asked:
                await asyncio.sleep(0.01)
            draining = tasks.create_task(server.drain(grace_s=5))
            await asyncio.sleep(0.05)
            assert (await probe.get("/readyz")).code == 500
            assert (await probe.get("/livez")).code == 200
            await asyncio.sleep(0.4)
            with pytest.raises(OSError):
                async with wire(server.port, pki.client()):
                    pass
            go.set()
            assert (await answer).headers["connection"] == "close"
            await draining
        assert not server.server.connections


async def test_health_endpoints_and_their_checks(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    health = Health()
    state = {"synced": False}
    health.add_readiness("stores", lambda: Verdict(state["synced"], "pods are not listed yet"))
    async with serving(flags_for(tmp_path, pki), api, health=health) as server:
        async with wire(server.port, pki.client()) as client:
            assert (await client.get("/livez")).body == b"ok"
            unready = await client.get("/readyz")
            assert unready.code == 500
            assert b"[-]stores failed: pods are not listed yet\n" in unready.body
            state["synced"] = True
            assert (await client.get("/readyz")).body == b"ok"
            verbose = await client.get("/readyz?verbose")
            assert verbose.body.endswith(b"readyz check passed\n")
            admin = {"Authorization": "Bearer admin"}
            assert (await client.get("/readyz/stores", **admin)).body == b"ok"
            assert (await client.get("/readyz/none", **admin)).code == 404
            assert (await client.get("/readyz/stores")).code == 403


async def test_ten_thousand_requests_leave_figures_under_upstreams_names(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    metrics = SelfMetrics()
    async with serving(flags_for(tmp_path, pki), api, metrics=metrics) as server:
        async with wire(server.port, pki.client()) as client:
            for number in range(300):
                path = f"/apis/{GROUP}/v1beta2/namespaces/default/r{number}/x/m"
                await client.get(path, Authorization="Bearer admin")
            text = (await client.get("/metrics", Authorization="Bearer admin")).body.decode()
    assert 'resource="other"' in text
    resources = {
        line.split('resource="')[1].split('"')[0]
        for line in text.splitlines()
        if line.startswith("apiserver_request_total{")
    }
    assert len(resources) <= 102
    for name in (
        "apiserver_request_duration_seconds_bucket",
        "apiserver_current_inflight_requests",
        "apiserver_delegated_authn_request_total",
        "apiserver_tls_handshake_errors_total",
        "process_cpu_seconds_total",
    ):
        assert name in text, name


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


async def test_serving_certificate_changes_without_a_restart(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    async with serving(flags_for(tmp_path, pki), api) as server:
        async with wire(server.port, pki.client()) as old:
            other = Pki()
            server.tls.use_pair(other.server())
            async with wire(server.port, other.client()) as new:
                assert (await new.get("/livez")).code == 200
            assert (await old.get("/livez")).code == 200
            with pytest.raises(ssl.SSLError):
                async with wire(server.port, pki.client()):
                    pass


async def test_status_values_are_answers(tmp_path: Path, pki: Pki, api: ScriptedApi) -> None:
    shop = Shop()
    shop.answer = lambda _: internal_error("unable to fetch metrics")
    async with serving(flags_for(tmp_path, pki), api, shop) as server:
        async with wire(server.port, pki.client()) as client:
            reply = await client.get(PODS, Authorization="Bearer admin")
    assert reply.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Internal error occurred: unable to fetch metrics",
        "reason": "InternalError",
        "details": {"causes": [{"message": "unable to fetch metrics"}]},
        "code": 500,
    }


async def test_many_idle_connections_cost_nothing_but_themselves(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    context = pki.client()
    async with serving(flags_for(tmp_path, pki), api) as server:

        async def connect() -> Wire:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=context, server_hostname="localhost"
            )
            return Wire(reader, writer)

        clients = []
        for _ in range(10):
            clients += await asyncio.gather(*(connect() for _ in range(20)))
        codes = {(await client.get("/livez")).code for client in clients}
        assert codes == {200}
        for client in clients:
            client.writer.close()
