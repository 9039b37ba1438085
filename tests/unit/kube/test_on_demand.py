"""Metadata stores that come when asked for and go when nobody asks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from podscale.core.selectors import selector
from podscale.kube.client.errors import ApiUnreachable, Forbidden
from podscale.kube.client.resource import NODES, PODS
from podscale.kube.columns.metadata import OnDemandMetadata
from tests.unit.kube.little import LittleCluster, MemoryApi, Refusal, pod, pods_path

pytestmark = pytest.mark.looptime


@asynccontextmanager
async def running(ondemand: OnDemandMetadata) -> AsyncIterator[OnDemandMetadata]:
    task = asyncio.create_task(ondemand.run())
    await asyncio.sleep(0)
    try:
        yield ondemand
    finally:
        task.cancel()
        await asyncio.wait({task})


def stocked() -> LittleCluster:
    cluster = LittleCluster()
    for namespace, name in (("shop", "web-2"), ("shop", "web-1"), ("bank", "web-3")):
        cluster.put(pods_path(namespace, name), pod({"app": "web"}))
    cluster.put("/api/v1/nodes/node-1", {"metadata": {"labels": {"pool": "big"}}})
    return cluster


async def test_names_come_in_the_order_of_a_list():
    clock = asyncio.get_running_loop().time
    async with running(OnDemandMetadata(MemoryApi(stocked()), clock=clock)) as ondemand:
        pods = await ondemand.describe(PODS)
        assert pods.names("shop", selector.parse("app=web")) == ["web-1", "web-2"]
        assert pods.names("", selector.EVERYTHING) == ["web-3", "web-1", "web-2"]
        assert pods.exists("bank", "web-3")
        assert not pods.exists("bank", "web-1")
        assert pods.labels("bank", "web-3") == {"app": "web"}
        nodes = await ondemand.describe(NODES)
        assert nodes.names("", selector.parse("pool=big")) == ["node-1"]


async def test_a_store_nobody_asks_is_dropped_and_started_again():
    cluster, clock = stocked(), asyncio.get_running_loop().time
    async with running(OnDemandMetadata(MemoryApi(cluster), idle_s=100, clock=clock)) as ondemand:
        first = await ondemand.describe(PODS)
        for _ in range(5):
            await asyncio.sleep(60)
            assert await ondemand.describe(PODS) is first
        await asyncio.sleep(200)
        assert not ondemand.stores
        cluster.put(pods_path("shop", "web-9"), pod({"app": "web"}))
        again = await ondemand.describe(PODS)
        assert again.exists("shop", "web-9")


async def test_what_may_not_be_listed_says_so_and_is_there_once_it_may():
    cluster, clock = stocked(), asyncio.get_running_loop().time
    cluster.fault = lambda *_: Refusal(403, "Forbidden", "pods is forbidden")
    async with running(OnDemandMetadata(MemoryApi(cluster), clock=clock)) as ondemand:
        with pytest.raises(Forbidden, match="pods is forbidden"):
            await ondemand.describe(PODS)
        cluster.fault = lambda *_: None
        await asyncio.sleep(60)
        assert (await ondemand.describe(PODS)).exists("shop", "web-1")


async def test_a_list_that_hangs_is_unreachable_in_time():
    cluster, clock = stocked(), asyncio.get_running_loop().time
    cluster.is_hanging = True
    async with running(OnDemandMetadata(MemoryApi(cluster), clock=clock)) as ondemand:
        with pytest.raises(ApiUnreachable, match="no list of pods within 3 s"):
            await ondemand.describe(PODS, timeout_s=3)


def refusing(*allowed: str):
    """Only these collections may be listed."""

    def fault(_method, path, _query):
        if path in allowed:
            return None
        return Refusal(403, "Forbidden", f"{path} is forbidden")

    return fault


async def test_where_not_all_may_be_listed_the_namespace_that_is_asked_for_is():
    cluster, clock = stocked(), asyncio.get_running_loop().time
    cluster.fault = refusing(pods_path("shop"))
    async with running(OnDemandMetadata(MemoryApi(cluster), clock=clock, idle_s=100)) as ondemand:
        for _ in range(3):
            own = await ondemand.describe(PODS, namespace="shop")
            assert own.names("shop", selector.EVERYTHING) == ["web-1", "web-2"]
        asked = [path for method, path, _ in cluster.requests if method == "GET"]
        assert asked.count(pods_path("shop")) == 1
        with pytest.raises(Forbidden, match="bank/pods is forbidden"):
            await ondemand.describe(PODS, namespace="bank")
        with pytest.raises(Forbidden, match="v1/pods is forbidden"):
            await ondemand.describe(PODS)
        with pytest.raises(Forbidden, match="/api/v1/nodes is forbidden"):
            await ondemand.describe(NODES, namespace="shop")
        # A server that is away after it refused takes nothing from who has a list.
        cluster.is_hanging = True
        await asyncio.sleep(90)
        assert await ondemand.describe(PODS, namespace="shop") is own
        cluster.is_hanging = False
        cluster.fault = lambda *_: None
        await asyncio.sleep(60)
        everywhere = await ondemand.describe(PODS, namespace="shop")
        assert everywhere.exists("bank", "web-3")
        for _ in range(3):
            await asyncio.sleep(60)
            await ondemand.describe(PODS, namespace="shop")
        assert list(ondemand.stores) == [PODS.path()]


async def test_watches_of_single_namespaces_are_bounded_and_lists_outlive_refusals():
    cluster, clock = stocked(), asyncio.get_running_loop().time
    cluster.fault = refusing(pods_path("shop"))
    tasks = len(asyncio.all_tasks())
    async with running(OnDemandMetadata(MemoryApi(cluster), clock=clock)) as ondemand:
        own = await ondemand.describe(PODS, namespace="shop")
        for number in range(250):
            with pytest.raises(Forbidden):
                await ondemand.describe(PODS, namespace=f"no-{number}")
        assert len(ondemand.stores) == 101
        assert await ondemand.describe(PODS, namespace="shop") is own
        assert len(asyncio.all_tasks()) - tasks < 210  # a reflector and its only source each
    assert len(asyncio.all_tasks()) == tasks


async def test_newcomers_take_the_places_of_the_idle_and_not_each_others():
    cluster, clock = stocked(), asyncio.get_running_loop().time
    cluster.fault = refusing(*(pods_path(f"n-{number}") for number in range(110)))
    async with running(OnDemandMetadata(MemoryApi(cluster), clock=clock)) as ondemand:
        for number in range(100):
            await ondemand.describe(PODS, namespace=f"n-{number}")
            await asyncio.sleep(1)
        found = await asyncio.gather(
            *(ondemand.describe(PODS, namespace=f"n-{number}") for number in range(100, 110))
        )
        assert all(store.is_synced for store in found)
        assert PODS.path("n-9") not in ondemand.stores
        assert PODS.path("n-10") in ondemand.stores


async def test_who_waits_for_a_namespace_that_had_to_make_room_is_told():
    cluster, clock = stocked(), asyncio.get_running_loop().time
    cluster.fault = refusing()
    async with running(OnDemandMetadata(MemoryApi(cluster), clock=clock)) as ondemand:
        with pytest.raises(Forbidden):
            await ondemand.describe(PODS)
        cluster.is_hanging = True
        found = await asyncio.gather(
            *(ondemand.describe(PODS, namespace=f"n-{number}") for number in range(101)),
            return_exceptions=True,
        )
    assert str(found[0]) == "too many namespaces of pods are asked for"
    assert all(isinstance(each, ApiUnreachable) for each in found)
    assert str(found[1]) == "no list of pods within 10 s"


async def test_without_its_owner_nothing_is_started():
    with pytest.raises(ApiUnreachable, match="watches are not running"):
        await OnDemandMetadata(MemoryApi(stocked())).describe(PODS)
