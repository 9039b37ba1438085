"""The server over real TLS sockets: what is answered."""

# A server, then its client: nested blocks read better than one block of both (SIM117); what
# a test waits for lies in the server under test, which has no event for it (ASYNC110).
# ruff: noqa: SIM117, ASYNC110

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from podscale.serving.apis.api import ApiRequest, ApiResponse, Media, Route
from podscale.serving.apis.negotiate import formatted
from podscale.serving.status import internal_error
from tests.integration.serving.asked import PODS
from tests.unit.serving.kit import GROUP, Pki, ScriptedApi, Shop, awaited, flags_for, serving, wire


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
                    "406: Not Acceptable\n\nAvailable representations: application/json, "
                    "application/yaml, application/vnd.kubernetes.protobuf, application/json;"
                    "stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
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


@pytest.mark.parametrize("sent", ["a\tb", "caf\u00e9", "a\u0085b", "x" * 65, ""])
async def test_only_a_plain_audit_id_is_sent_back(
    tmp_path: Path, pki: Pki, api: ScriptedApi, sent: str
) -> None:
    async with serving(flags_for(tmp_path, pki), api) as server:
        async with wire(server.port, pki.client()) as client:
            reply = await client.get("/livez", Audit_Id=sent)
    assert reply.code == 200
    assert len(reply.headers["audit-id"]) == 36


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


async def test_a_large_answer_in_yaml_is_the_same_as_a_small_ones(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    shop = Shop()
    items = [{"name": f"web-{number}", "value": "1500m"} for number in range(6000)]
    body = json.dumps({"kind": "MetricValueList", "items": items}).encode()
    shop.answer = lambda _: ApiResponse(body=body)
    headers = {"Authorization": "Bearer admin", "Accept": "application/yaml"}
    async with serving(flags_for(tmp_path, pki), api, shop) as server:
        async with (
            wire(server.port, pki.client()) as client,
            wire(server.port, pki.client()) as other,
        ):
            asked = asyncio.create_task(client.get(PODS, **headers))
            while not shop.asked:
                await asyncio.sleep(0)
            assert (await other.get("/livez")).code == 200
            assert not asked.done(), "others are answered meanwhile"
            plain = await asked
            zipped = await client.get(PODS, Accept_Encoding="gzip", **headers)
    assert plain.headers["content-type"] == "application/yaml"
    assert plain.body == formatted(body, Media("application/yaml"))
    assert zipped.headers["content-encoding"] == "gzip"
    assert gzip.decompress(zipped.body) == plain.body


async def test_a_public_route_takes_bodies_without_credentials(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    def mutate(request: ApiRequest) -> ApiResponse:
        return ApiResponse(value={"length": len(request.body), "user": request.user.name})

    route = Route("/", mutate, ("POST",), is_public=True, body_limit=400_000)
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
