"""The wire fixtures of the original adapter (cases C.4 and C.7) that concern serving alone.

The groups here list what the fixtures list; the bodies of metrics are the adapter's and
are compared in the conformance ring.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from podscale.serving import status
from podscale.serving.apis.api import ApiRequest, ApiResource, ApiResponse
from tests.unit.serving.kit import Pki, Reply, ScriptedApi, flags_for, serving, wire

CASES = Path(__file__).parents[1] / "conformance" / "cases" / "adapter"
CUSTOM, EXTERNAL, METRICS = "custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"


def rows(name: str) -> list[list[Any]]:
    return [json.loads(line) for line in (CASES / f"{name}.jsonl").read_text().splitlines()]


C4 = {row[0]: row for row in rows("C4")}
C7 = list(enumerate(rows("C7"), 1))


class Listed:
    """A group with the resources of a fixture."""

    def __init__(self, name: str, versions: Sequence[str], *, offers_table: bool = False) -> None:
        self.name = name
        self.versions = versions
        self.offers_table = offers_table
        fixture = C4[f"/apis/{name}/{versions[-1]}"][3]["resources"]
        self._resources = [
            ApiResource(
                one["name"],
                one["singularName"],
                one["namespaced"],
                one["kind"],
                tuple(one["verbs"]),
            )
            for one in fixture
        ]

    def revision(self) -> int:
        return 1

    def resources(self, version: str) -> Sequence[ApiResource]:
        return self._resources[::-1]

    def schemas(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        return {}

    def paths(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        return {}

    def handle(self, request: ApiRequest) -> Any:
        if request.method != "GET":
            return status.method_not_allowed()
        return ApiResponse(body=b'{"kind":"List"}')


@pytest.fixture(scope="module")
def pki() -> Pki:
    return Pki()


async def ask(
    tmp_path: Path, pki: Pki, path: str, options: Mapping[str, Any]
) -> tuple[Reply, ScriptedApi]:
    api = ScriptedApi()
    api.allowed = lambda spec: spec["user"] in ("admin", "system:apiserver", "hpa")
    groups = (
        Listed(METRICS, ("v1beta1",), offers_table=True),
        Listed(CUSTOM, ("v1beta1", "v1beta2")),
        Listed(EXTERNAL, ("v1beta1",)),
    )
    certificate = {"fp": pki.proxy(), "alice": pki.user("admin", "dev")}.get(options.get("cert"))
    headers = {"Accept": "application/json", **options.get("headers", {})}
    token = options.get("token", "admin")
    if token:
        headers["Authorization"] = f"Bearer {token}"
    flags = flags_for(tmp_path, pki, "--authorization-cluster-first=false")
    async with (
        serving(flags, api, *groups) as server,
        wire(server.port, pki.client(certificate)) as client,
    ):
        return await client.get(path, options.get("method", "GET"), **headers), api


ELSEWHERE = {
    f"/apis/{CUSTOM}": "v1beta2 is listed too (adapter.md 12)",
    "/": "check names are ours (adapter.md 12)",
    "/api": "check names are ours (adapter.md 12)",
    "/livez?verbose": "check names are ours (adapter.md 12)",
}


@pytest.mark.parametrize("path", [path for path in C4 if path not in ELSEWHERE])
async def test_discovery_and_meta_endpoints(tmp_path: Path, pki: Pki, path: str) -> None:
    _, code, content_type, body, _ = C4[path]
    reply, _ = await ask(tmp_path, pki, path, {})
    assert (reply.code, reply.headers["content-type"]) == (code, content_type)
    assert (reply.body.decode() if isinstance(body, str) else reply.json) == body


async def test_where_discovery_differs_it_differs_as_written(tmp_path: Path, pki: Pki) -> None:
    group, _ = await ask(tmp_path, pki, f"/apis/{CUSTOM}", {})
    expected = C4[f"/apis/{CUSTOM}"][3]
    second = {"groupVersion": f"{CUSTOM}/v1beta2", "version": "v1beta2"}
    assert group.json == {**expected, "versions": [*expected["versions"], second]}
    for path, code in (("/", 200), ("/api", 404)):
        index, _ = await ask(tmp_path, pki, path, {})
        ours = {one for one in C4[path][3]["paths"] if one.count("/") != 2 or "/apis" in one}
        ours = {one for one in ours if "poststarthook" not in one}
        assert index.code == code
        assert ours <= set(index.json["paths"])


@pytest.mark.parametrize("number", [number for number, row in C7 if row[2] in (401, 403, 405, 406)])
async def test_refusals(tmp_path: Path, pki: Pki, number: int) -> None:
    path, options, code, content_type, body, calls = dict(C7)[number]
    reply, api = await ask(tmp_path, pki, path, options)
    assert (reply.code, reply.headers["content-type"]) == (code, content_type)
    assert (reply.body.decode() if isinstance(body, str) else reply.json) == body
    asked = [json.loads(call.removeprefix("SAR ")) for call in calls if call.startswith("SAR ")]
    if asked:
        assert api.reviews == asked


@pytest.mark.parametrize("number", [7, 9, 15, 16])
async def test_those_who_get_in(tmp_path: Path, pki: Pki, number: int) -> None:
    path, options, code, content_type, _, calls = dict(C7)[number]
    reply, api = await ask(tmp_path, pki, path, options)
    assert (reply.code, reply.headers["content-type"]) == (code, content_type)
    asked = [json.loads(call.removeprefix("SAR ")) for call in calls if call.startswith("SAR ")]
    if asked:
        assert api.reviews == asked


@pytest.mark.parametrize("number", [23, 24])
async def test_aggregated_discovery_holds_what_the_original_holds_and_our_groups(
    tmp_path: Path, pki: Pki, number: int
) -> None:
    path, options, code, content_type, body, _ = dict(C7)[number]
    reply, _ = await ask(tmp_path, pki, path, options)
    assert (reply.code, reply.headers["content-type"]) == (code, content_type)
    got = reply.json
    assert {**got, "items": []} == {**body, "items": []}
    assert got["items"][2] == body["items"][0]
    assert [item["metadata"]["name"] for item in got["items"]] == [CUSTOM, EXTERNAL, METRICS]


async def test_the_group_list(tmp_path: Path, pki: Pki) -> None:
    path, options, code, _, body, _ = dict(C7)[25]
    reply, _ = await ask(tmp_path, pki, path, options)
    assert reply.code == code
    assert "apiVersion" not in reply.json
    assert [group["name"] for group in reply.json["groups"]] == [
        group["name"] for group in body["groups"]
    ]
    for got, wanted in zip(reply.json["groups"][1:], body["groups"][1:], strict=True):
        assert {**got, "serverAddressByClientCIDRs": None} == {
            **wanted,
            "serverAddressByClientCIDRs": None,
        }
        address = got["serverAddressByClientCIDRs"][0]
        assert address["clientCIDR"] == "0.0.0.0/0"
        assert address["serverAddress"].startswith(":")
