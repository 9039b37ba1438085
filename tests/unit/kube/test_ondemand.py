"""Metadata stores that come when asked for and go when nobody asks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from podscale.core import selector
from podscale.kube.errors import Forbidden, Unreachable
from podscale.kube.ondemand import OnDemand
from podscale.kube.resource import NODES, PODS
from tests.unit.kube.little import LittleCluster, MemoryApi, Refusal, pod, pods_path

pytestmark = pytest.mark.looptime


@asynccontextmanager
async def running(ondemand: OnDemand) -> AsyncIterator[OnDemand]:
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
    async with running(OnDemand(MemoryApi(stocked()), clock=clock)) as ondemand:
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
    async with running(OnDemand(MemoryApi(cluster), idle_s=100, clock=clock)) as ondemand:
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
    async with running(OnDemand(MemoryApi(cluster), clock=clock)) as ondemand:
        with pytest.raises(Forbidden, match="pods is forbidden"):
            await ondemand.describe(PODS)
        cluster.fault = lambda *_: None
        await asyncio.sleep(60)
        assert (await ondemand.describe(PODS)).exists("shop", "web-1")


async def test_a_list_that_hangs_is_unreachable_in_time():
    cluster, clock = stocked(), asyncio.get_running_loop().time
    cluster.is_hanging = True
    async with running(OnDemand(MemoryApi(cluster), clock=clock)) as ondemand:
        with pytest.raises(Unreachable, match="no list of pods within 3 s"):
            await ondemand.describe(PODS, timeout_s=3)


async def test_only_the_named_namespaces_are_watched():
    cluster, clock = stocked(), asyncio.get_running_loop().time
    api = MemoryApi(cluster)
    async with running(OnDemand(api, namespaces=("shop",), clock=clock)) as ondemand:
        pods = await ondemand.describe(PODS)
        assert pods.exists("shop", "web-1")
        assert not pods.exists("bank", "web-3")
        assert (await ondemand.describe(NODES)).exists("", "node-1")
    assert pods_path("shop") in [path for _, path, _ in cluster.requests]


async def test_without_its_owner_nothing_is_started():
    with pytest.raises(Unreachable, match="watches are not running"):
        await OnDemand(MemoryApi(stocked())).describe(PODS)
