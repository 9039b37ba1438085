"""A web page in a browser on this machine neither writes to the demo's API server nor reads it."""

import json

import aiohttp
import pytest

from podscale.core.loopback import is_elsewhere, is_loopback
from tests.kit.apiserver.server import FaultySandbox

MAPS = "/api/v1/namespaces/default/configmaps"
OBJECT = json.dumps({"metadata": {"name": "page"}})
FAULT = json.dumps({"kind": "cut-watches"})


async def _status(server: FaultySandbox, path: str, body: str | None, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with aiohttp.ClientSession(skip_auto_headers=("Content-Type",)) as session:
        method = "GET" if body is None else "POST"
        async with session.request(
            method, server.url + path, data=body and body.encode(), headers=named
        ) as answer:
            return answer.status


@pytest.mark.parametrize("path", [MAPS, "/sandbox/faults"])
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("text/plain", id="text"),
        pytest.param("text/plain;charset=UTF-8", id="text-of-fetch"),
        pytest.param("application/x-www-form-urlencoded", id="form"),
        pytest.param("multipart/form-data; boundary=x", id="multipart"),
        pytest.param("", id="nothing-as-of-a-blob"),
    ],
)
@pytest.mark.parametrize("origin", ["https://elsewhere.example", "null", "http://localhost:1"])
async def test_what_a_page_can_send_without_asking_changes_nothing(
    path: str, kind: str, origin: str
) -> None:
    async with FaultySandbox() as server:
        headers = {"Origin": origin} | ({"Content-Type": kind} if kind else {})
        body = OBJECT if path == MAPS else FAULT
        assert await _status(server, path, body, **headers) == 403
        assert await _status(server, f"{MAPS}/page", None) == 404


@pytest.mark.parametrize("path", [MAPS, "/sandbox/faults"])
async def test_a_body_of_another_kind_is_refused_without_an_origin_as_well(path: str) -> None:
    async with FaultySandbox() as server:
        body = OBJECT if path == MAPS else FAULT
        assert await _status(server, path, body, Content_Type="text/plain") == 415
        assert await _status(server, path, body, Content_Type="application/json") in (200, 201)


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize(
    "host", ["elsewhere.example", "elsewhere.example:80", "127.0.0.1.x.example"]
)
async def test_another_name_that_leads_here_is_not_answered(host: str, method: str) -> None:
    async with FaultySandbox() as server:
        body = None if method == "get" else OBJECT
        for path in (MAPS, "/sandbox/faults"):
            headers = {"Host": host, "Content_Type": "application/json"}
            assert await _status(server, path, body, **headers) == 421


async def test_this_machines_programs_and_our_own_page_are_answered() -> None:
    async with FaultySandbox() as server:
        port = server.url.rpartition(":")[2]
        assert await _status(server, MAPS, OBJECT) == 201
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
            assert await _status(server, MAPS, None, Host=host, Origin=f"http://{host}") == 200


@pytest.mark.parametrize(
    ("host", "claim"),
    [
        ("127.0.0.1", True), ("localhost:80", True), ("[::1]:80", True), ("[::1]", True),
        ("", False), ("localhost.example", False), ("127.0.0.2.example:80", False),
        ("x@localhost", False), ("localhost:80:80", False),
    ],
)  # fmt: skip
def test_names_of_the_loopback(host: str, claim: bool) -> None:
    assert is_loopback(host) is claim
    assert not is_elsewhere("", host)
