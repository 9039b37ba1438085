"""Discovery and OpenAPI: stable bytes, never empty, cheap when nothing changed."""

import asyncio
import gzip
import json
import time

from podscale.serving.apis import discovery
from podscale.serving.apis.discovery import PLACEHOLDER, ServedDiscovery
from tests.unit.serving.kit import GROUP, Shop


async def test_lists_are_sorted_and_follow_the_revision() -> None:
    shop = Shop(["pods/b", "namespaces/x", "pods/a"])
    discovery = ServedDiscovery([shop])
    key = f"{GROUP}/v1beta1"
    assert discovery.cached(key) is None
    first = await discovery.document(key)
    assert json.loads(first.body) == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": key,
        "resources": [
            {
                "name": name,
                "singularName": "",
                "namespaced": namespaced,
                "kind": "MetricValueList",
                "verbs": ["get"],
            }
            for name, namespaced in [("namespaces/x", False), ("pods/a", True), ("pods/b", True)]
        ],
    }
    assert discovery.cached(key) is first
    shop.metrics.append("pods/c")
    assert discovery.cached(key) is None
    assert (await discovery.document(key)).etag != first.etag


async def test_replicas_agree_on_bytes_whatever_their_order() -> None:
    one, two = (
        ServedDiscovery([Shop(["pods/a", "pods/b"])]),
        ServedDiscovery([Shop(["pods/b", "pods/a"])]),
    )
    for key in ("v2", "v2beta1", f"{GROUP}/v1beta2"):
        assert await one.document(key) == await two.document(key)


async def test_an_empty_group_lists_a_placeholder_everywhere() -> None:
    discovery = ServedDiscovery([Shop([])])
    listed = json.loads((await discovery.document(f"{GROUP}/v1beta1")).body)["resources"]
    assert [one["name"] for one in listed] == [PLACEHOLDER.name]
    aggregated = json.loads((await discovery.document("v2")).body)
    for version in aggregated["items"][0]["versions"]:
        assert [one["resource"] for one in version["resources"]] == [PLACEHOLDER.name]


class Bare(Shop):
    """A group whose list is an empty tuple, of which Python has one only."""

    def resources(self, version: str) -> tuple[()]:
        return ()


async def test_an_empty_tuple_is_an_empty_group() -> None:
    discovery = ServedDiscovery([Bare([])])
    listed = json.loads((await discovery.document(f"{GROUP}/v1beta1")).body)["resources"]
    assert [one["name"] for one in listed] == [PLACEHOLDER.name]


async def test_the_aggregated_form_nests_subresources_under_their_resource() -> None:
    discovery = ServedDiscovery([Shop(["pods/a", "pods/b", "nodes"])])
    document = json.loads((await discovery.document("v2")).body)
    assert (document["kind"], document["apiVersion"]) == (
        "APIGroupDiscoveryList",
        "apidiscovery.k8s.io/v2",
    )
    group = document["items"][0]
    assert group["metadata"]["name"] == GROUP
    assert [version["version"] for version in group["versions"]] == ["v1beta1", "v1beta2"]
    kind = {"group": "", "version": "", "kind": "MetricValueList"}
    nodes, pods = group["versions"][0]["resources"]
    assert nodes == {
        "resource": "nodes",
        "responseKind": kind,
        "scope": "Cluster",
        "singularResource": "",
        "verbs": ["get"],
    }
    assert pods["resource"] == "pods"
    assert pods["scope"] == "Namespaced"
    assert pods["subresources"] == [
        {"subresource": name, "responseKind": kind, "verbs": ["get"]} for name in ("a", "b")
    ]


def test_groups_name_all_versions_the_first_preferred() -> None:
    discovery = ServedDiscovery([Shop()])
    group = json.loads(discovery.group(GROUP) or b"")
    assert [one["version"] for one in group["versions"]] == ["v1beta1", "v1beta2"]
    assert group["preferredVersion"]["version"] == "v1beta1"
    assert discovery.group("other") is None
    listed = json.loads(discovery.group_list(6443))
    assert "apiVersion" not in listed
    assert listed["groups"][0]["serverAddressByClientCIDRs"] == [
        {"clientCIDR": "0.0.0.0/0", "serverAddress": ":6443"}
    ]


async def test_fifty_thousand_metrics_come_from_cache_in_two_milliseconds() -> None:
    shop = Shop([f"pods/metric_{number}" for number in range(50_000)])
    discovery = ServedDiscovery([shop])
    key = f"{GROUP}/v1beta1"
    document = await discovery.document(key)
    assert gzip.decompress(document.gzipped) == document.body
    started = time.process_time()
    for _ in range(100):
        assert discovery.cached(key) is document
    assert (time.process_time() - started) / 100 < 0.002


async def test_a_hundred_thousand_metrics_are_encoded_while_others_have_their_turns() -> None:
    shop = Shop([f"{kind}/m{n}" for n in range(50_000) for kind in ("services", "pods")])
    discovery = ServedDiscovery([shop])
    longest_s = 0.0

    async def look() -> None:
        nonlocal longest_s
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, time.perf_counter() - before)

    await discovery.document(f"{GROUP}/v1beta1")
    looking = asyncio.create_task(look())
    await asyncio.sleep(0)
    shares = []
    for key in ("v2", "v2beta1"):
        longest_s, began_s = 0.0, time.perf_counter()
        document = await discovery.document(key)
        shares.append(longest_s / (time.perf_counter() - began_s))
        assert gzip.decompress(document.gzipped) == document.body
    looking.cancel()
    # Copied and hashed as a whole on the loop, it was more than half.
    assert min(shares) < 0.2


def test_openapi_documents_refer_to_what_they_hold() -> None:
    documents = discovery.openapi_documents([Shop()], "1.0")
    assert documents == discovery.openapi_documents([Shop()], "1.0")
    index = json.loads(documents.index)["paths"]
    assert set(index) == {f"apis/{GROUP}/v1beta1", f"apis/{GROUP}/v1beta2"}
    v3 = json.loads(documents.v3[f"apis/{GROUP}/v1beta1"])
    assert v3["openapi"].startswith("3.0")
    for reference in _references(v3):
        assert reference.removeprefix("#/components/schemas/") in v3["components"]["schemas"]
    v2 = json.loads(documents.v2)
    assert v2["swagger"] == "2.0"
    found = list(_references(v2))
    assert found
    for reference in found:
        assert reference.removeprefix("#/definitions/") in v2["definitions"]
    pods = v2["paths"][f"/apis/{GROUP}/v1beta1/pods/{{name}}"]
    assert pods["parameters"] == [
        {"name": "name", "in": "path", "required": True, "type": "string"}
    ]
    assert pods["get"]["produces"] == ["application/json"]


def _references(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [one for item in value.values() for one in _references(item)]
    if isinstance(value, list):
        return [one for item in value for one in _references(item)]
    return []
