"""Discovery over sockets: documents, failures of parts, misses."""

import asyncio

import msgspec
import pytest

from podscale.kube.client.connect import ApiServerTarget, connect
from podscale.kube.client.errors import ApiUnreachable, KubeError, NoMatch
from podscale.kube.client.resource import Resource
from podscale.kube.discovery import ApiDiscovery, Mapper
from tests.unit.kube.little import LittleCluster, MemoryApi, Refusal, served


def found(plural: str, kind: str, *, scope: str = "Namespaced", scale: bool = False) -> dict:
    return {
        "resource": plural,
        "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": scope,
        "singularResource": kind.lower(),
        "verbs": ["get", "list", "watch"],
        "subresources": [{"subresource": "scale"}] if scale else [],
    }


def group(name: str, *versions: tuple[str, list[dict]], freshness: str = "Current") -> dict:
    return {
        "metadata": {"name": name},
        "versions": [
            {"version": version, "resources": resources, "freshness": freshness}
            for version, resources in versions
        ],
    }


def aggregated(*groups: dict) -> dict:
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "items": list(groups),
    }


CORE = aggregated(
    group("", ("v1", [found("pods", "Pod"), found("nodes", "Node", scope="Cluster")]))
)
APPS = group("apps", ("v1", [found("deployments", "Deployment", scale=True)]))
CUSTOM = group("custom.metrics.k8s.io", ("v1beta2", []), ("v1beta1", []))


def new_cluster(*groups: dict) -> LittleCluster:
    cluster = LittleCluster()
    cluster.answers["/api"] = CORE
    cluster.answers["/apis"] = aggregated(*groups)
    return cluster


async def test_aggregated_discovery_takes_two_requests():
    cluster = new_cluster(APPS, CUSTOM)
    async with served(cluster) as url, connect(ApiServerTarget(server=url), user_agent="t") as api:
        mapper = await ApiDiscovery(api).refresh()
    assert len(cluster.requests) == 2
    assert mapper.parse("deployment.apps").kind == "Deployment"
    assert not mapper.parse("node").namespaced
    assert mapper.versions("custom.metrics.k8s.io") == ("v1beta2", "v1beta1")


async def test_what_the_aggregator_invents_for_a_lone_subresource_hides_no_other_group():
    invented = {
        "resource": "pods",
        "responseKind": {"group": "", "version": "", "kind": ""},
        "scope": "Namespaced",
        "singularResource": "",
        "verbs": None,
        "subresources": [{"subresource": "http_requests", "verbs": ["get"]}],
    }
    empty = {"metadata": {"name": "down.example.com"}, "versions": [
        {"version": "v1", "resources": None, "freshness": "Stale"}]}  # fmt: skip
    cluster = new_cluster(group("custom.metrics.k8s.io", ("v1beta1", [invented])), empty, APPS)
    async with served(cluster) as url, connect(ApiServerTarget(server=url), user_agent="t") as api:
        discovery = ApiDiscovery(api)
        mapper = await discovery.refresh()
    assert discovery.failed_groups == ("down.example.com/v1",)
    assert mapper.parse("deployment.apps").kind == "Deployment"
    assert mapper.parse("pods").group == ""


async def test_a_server_without_aggregated_discovery_is_refused_with_the_release_it_takes():
    cluster = LittleCluster()
    cluster.answers["/api"] = {"kind": "APIVersions", "versions": ["v1"]}
    cluster.answers["/apis"] = {"kind": "APIGroupList", "groups": []}
    async with served(cluster) as url, connect(ApiServerTarget(server=url), user_agent="t") as api:
        with pytest.raises(ApiUnreachable, match=r"APIGroupList where .* than Kubernetes 1\.30"):
            await ApiDiscovery(api).refresh()


async def test_of_two_versions_the_first_is_preferred_and_the_one_asked_for_comes_first():
    deployments = [found("deployments", "Deployment", scale=True)]
    cluster = new_cluster(group("apps", ("v1", deployments), ("v1beta1", deployments)))
    mapper = await ApiDiscovery(MemoryApi(cluster)).refresh()
    assert [r.version for r in mapper.for_kind("Deployment", "apps")] == ["v1", "v1beta1"]
    asked = mapper.for_kind("Deployment", "apps", "v1beta1")
    assert [r.version for r in asked] == ["v1beta1", "v1"]
    assert mapper.resource_for("deployment").kind == "Deployment"
    assert mapper.resource_for("POD").plural == "pods"


async def test_a_group_that_goes_down_keeps_what_it_served():
    cluster = new_cluster(APPS)
    discovery = ApiDiscovery(MemoryApi(cluster))
    await discovery.refresh()
    cluster.answers["/apis"] = aggregated(group("apps", ("v1", []), freshness="Stale"))
    mapper = await discovery.refresh()
    assert mapper.parse("deployments.apps").kind == "Deployment"
    assert discovery.failed_groups == ("apps/v1",)


async def test_half_of_discovery_down_leaves_the_other_half_and_what_was_known():
    cluster = new_cluster(APPS)
    discovery = ApiDiscovery(MemoryApi(cluster))
    await discovery.refresh()
    cluster.fault = lambda _method, path, _query: (
        Refusal(503, "ServiceUnavailable") if path == "/apis" else None
    )
    mapper = await discovery.refresh()
    assert mapper.parse("deployments.apps").kind == "Deployment"
    assert mapper.parse("pods").kind == "Pod"


async def test_nothing_at_all_is_an_error_and_keeps_the_mapper():
    cluster = new_cluster(APPS)
    discovery = ApiDiscovery(MemoryApi(cluster))
    before = await discovery.refresh()
    cluster.fault = lambda *_: Refusal(503, "ServiceUnavailable")
    with pytest.raises(KubeError):
        await discovery.refresh()
    assert discovery.mapper is before


@pytest.mark.looptime
async def test_a_new_crd_is_found_at_the_first_miss_and_misses_are_rationed():
    cluster = new_cluster(APPS)
    discovery = ApiDiscovery(MemoryApi(cluster), min_gap_s=5)
    await discovery.refresh()
    await asyncio.sleep(6)
    cluster.answers["/apis"] = aggregated(
        APPS, group("cheese.io", ("v1", [found("brands", "Brand")]))
    )
    assert (await discovery.resource_for("brand")).group == "cheese.io"
    asked = len(cluster.requests)
    for _ in range(20):
        with pytest.raises(NoMatch):
            await discovery.resource_for("bogus")
    assert len(cluster.requests) == asked
    await asyncio.sleep(6)
    with pytest.raises(NoMatch, match='no matches for kind "Bogus"'):
        await discovery.for_kind("Bogus", "cheese.io")
    assert len(cluster.requests) == asked + 2


def test_the_first_group_wins_and_a_prefix_counts_only_without_an_exact_group():
    mapper = Mapper(
        [
            Resource("", "v1", "events", "Event"),
            Resource("events.k8s.io", "v1", "events", "Event"),
            Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False),
            Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics"),
        ]
    )
    assert mapper.resource_for("events").group == ""
    assert mapper.parse("event.events").group == "events.k8s.io"
    assert mapper.parse("StorageClass.storage").plural == "storageclasses"
    assert mapper.parse("podmetrics").plural == "pods"
    with pytest.raises(NoMatch, match="no matches for storage/v1, Resource=storageclass"):
        mapper.resource_for("storageclass", "storage", "v1")


def test_a_recorded_resource_keeps_its_singular() -> None:
    recorded = b'{"group":"g","version":"v1","plural":"boxes","kind":"Box","singular":"bx"}'
    read = msgspec.json.decode(recorded, type=Resource)
    assert read.singular == "bx"
    assert msgspec.json.decode(msgspec.json.encode(read))["singular"] == "bx"
