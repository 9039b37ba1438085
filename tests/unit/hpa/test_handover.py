"""The loop over a scripted API: what the next leader knows."""

import asyncio
from typing import Any

import pytest

from podscale.kube.client.errors import Forbidden, ServerFailed
from podscale.kube.informer.list_watch import WatchBroken
from podscale.kube.leadership.lease import Term
from tests.unit.hpa.webs import SETTINGS, as_read, load, web
from tests.unit.hpa.world import NS, Cluster, pod_object

pytestmark = pytest.mark.looptime


async def test_the_next_leader_keeps_the_window_of_the_last_one() -> None:
    first = Cluster(settings=SETTINGS)
    web(first, 2)
    load(first, 2000)
    await first.run_for(16.0)  # recommends 4
    world = first.world
    second = Cluster(settings=SETTINGS, world=world, wall=first.wall)
    second.sync()
    second.put_pods(*(pod_object("web", n) for n in range(4)))
    load(second, 100)
    await second.run_for(60.0, Term(as_read(first.wall())))
    assert world.workloads[(NS, "web")]["spec"]["replicas"] >= 4
    assert second.controller.traces.reason((NS, "web")) == "ScaleDownStabilized"


async def test_a_leader_that_died_before_storing_is_found_out_by_the_status() -> None:
    policy = [{"type": "Pods", "value": 2, "periodSeconds": 600}]
    first = Cluster(settings=SETTINGS)
    web(first, 2, behavior={"scaleUp": {"policies": policy}})
    load(first, 9000)
    await first.run_for(1.0)
    assert first.scales() == [("web", 4)]
    first.world.config_maps.clear()
    second = Cluster(settings=SETTINGS, world=first.world, wall=first.wall)
    second.sync()
    second.put_pods(*(pod_object("web", n) for n in range(4)))
    load(second, 9000)
    await second.run_for(31.0, Term(first.wall()))
    assert second.scales() == [("web", 4)]  # only the write of the first one


@pytest.mark.parametrize("is_blind", [False, True])  # the watch of workloads is broken
async def test_a_size_that_nothing_explains_counts_as_a_rescale_of_now(*, is_blind: bool) -> None:
    policy = [{"type": "Pods", "value": 2, "periodSeconds": 600}]
    first = Cluster(settings=SETTINGS)
    web(first, 2, behavior={"scaleUp": {"policies": policy}})
    await first.run_for(1.0)
    first.world.workloads[(NS, "web")]["spec"]["replicas"] = 4  # written, and then died
    second = Cluster(settings=SETTINGS, world=first.world, wall=first.wall)
    second.sync()
    if is_blind:
        second.stores.deployments.apply(WatchBroken("the stream broke", None), scope="", now=0.0)
    second.put_pods(*(pod_object("web", n) for n in range(4)))
    load(second, 9000)
    await second.run_for(31.0, Term(first.wall()))
    assert second.scales() == []


@pytest.mark.parametrize("behavior", [None, {"scaleUp": {"stabilizationWindowSeconds": 0}}])
async def test_a_size_that_nothing_explains_is_asked_for_only_where_policies_count(
    behavior: dict[str, Any] | None,
) -> None:
    first = Cluster(settings=SETTINGS)
    web(first, 4, **({} if behavior is None else {"behavior": behavior}))
    await first.run_for(1.0)
    first.world.workloads[(NS, "web")]["spec"]["replicas"] = 5
    second = Cluster(settings=SETTINGS, world=first.world, wall=first.wall)
    second.sync()
    second.put_pods(*(pod_object("web", n) for n in range(5)))
    load(second, 1800)
    first.world.fail = lambda method, path: (
        ServerFailed(503, "", "down") if (method, path[-6:]) == ("GET", "/scale") else None
    )
    await second.run_for(31.0, Term(first.wall()))
    assert second.scales() == ([("web", 9)] if behavior is None else [])


async def test_a_size_that_nothing_explains_gives_the_other_direction_no_room() -> None:
    policy = [{"type": "Pods", "value": 1, "periodSeconds": 15}]
    first = Cluster(settings=SETTINGS)
    web(first, 8, behavior={"scaleUp": {"policies": policy}})
    await first.run_for(1.0)
    first.world.workloads[(NS, "web")]["spec"]["replicas"] = 6  # at any time since
    await asyncio.sleep(40.0)
    second = Cluster(settings=SETTINGS, world=first.world, wall=first.wall)
    second.sync()
    second.put_pods(*(pod_object("web", n) for n in range(6)))
    load(second, 9000)
    await second.run_for(10.0, Term(first.wall()))
    assert second.scales() == [("web", 7)]


@pytest.mark.parametrize("is_blind", [False, True])  # its watch is broken at first
@pytest.mark.parametrize("nobody_for_s", [40.0, 400.0, 4000.0])
async def test_after_a_time_without_a_leader_one_sample_shrinks_nothing(
    *, nobody_for_s: float, is_blind: bool
) -> None:
    first = Cluster(settings=SETTINGS)
    web(first, 6)
    await first.run_for(61.0)  # recommends 6
    alive_until = first.wall()
    await asyncio.sleep(nobody_for_s)
    second = Cluster(settings=SETTINGS, world=first.world, wall=first.wall)
    second.sync()
    second.put_pods(*(pod_object("web", n) for n in range(6)))
    load(second, 100)
    if is_blind:
        second.stores.deployments.apply(WatchBroken("the stream broke", None), scope="", now=0.0)
        asyncio.get_running_loop().call_later(40.0, second.sync)
    await second.run_for(200.0, Term(as_read(alive_until)))
    assert second.scales() == []
    assert second.controller.traces.reason((NS, "web")) == "ScaleDownStabilized"
    await second.run_for(310.0, Term(as_read(second.wall())))
    assert second.scales() == [("web", 1)]


async def nine_of_ten() -> Cluster:
    """Return a cluster that has shrunk by one, and may by three in ten minutes."""
    policy = [{"type": "Pods", "value": 3, "periodSeconds": 600}]
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 10, behavior={"scaleDown": {"policies": policy, "stabilizationWindowSeconds": 0}})
    load(cluster, 850)
    await cluster.run_for(31.0)
    assert cluster.scales() == [("web", 9)]
    return cluster


async def lead_idle(cluster: Cluster, size: int, *, sync_after_s: float) -> None:
    """Lead for a minute and more without any load; what the watches miss comes late."""
    cluster.put_pods(*(pod_object("web", n) for n in range(size)))
    load(cluster, 100)
    leading = asyncio.ensure_future(cluster.controller.run(Term(as_read(cluster.wall()))))
    await asyncio.sleep(sync_after_s)
    cluster.sync()
    cluster.provider.delay_s = 0.0
    await asyncio.sleep(60.0)
    leading.cancel()
    await asyncio.wait({leading})


@pytest.mark.parametrize("watch", ["broken", "mended-mid-pass", "behind"])
async def test_a_size_that_a_watch_tells_which_is_behind_is_no_rescale_of_another(
    watch: str,
) -> None:
    first = await nine_of_ten()
    second = Cluster(settings=SETTINGS, world=first.world, wall=first.wall)
    workload = first.world.workloads[(NS, "web")]
    before = {**workload, "spec": {**workload["spec"], "replicas": 10}}
    before["metadata"] = {**workload["metadata"], "resourceVersion": "1"}
    first.world.workloads[(NS, "web")] = before
    second.sync()  # as it was before the first one wrote
    first.world.workloads[(NS, "web")] = workload
    if watch != "behind":
        second.stores.deployments.apply(WatchBroken("the stream broke", None), scope="", now=0.0)
    is_mid_pass = watch == "mended-mid-pass"
    if is_mid_pass:
        second.provider.delay_s = 25.0
    await lead_idle(second, 9, sync_after_s=20.0 if is_mid_pass else 40.0)
    assert first.scales() == [("web", 9), ("web", 7)]  # of ten, three in ten minutes


@pytest.mark.parametrize("delay_s", [0.0, 25.0], ids=["between-passes", "mid-pass"])
async def test_a_rescale_of_another_counts_that_a_watch_tells_late(delay_s: float) -> None:
    first = await nine_of_ten()
    second = Cluster(settings=SETTINGS, world=first.world, wall=first.wall)
    second.sync()
    second.stores.deployments.apply(WatchBroken("the stream broke", None), scope="", now=0.0)
    workload = first.world.workloads[(NS, "web")]
    workload["spec"]["replicas"] = 10
    workload["metadata"]["resourceVersion"] = first.world.next_version()
    second.provider.delay_s = delay_s
    await lead_idle(second, 10, sync_after_s=20.0)
    # Of ten three in ten minutes: the one that went before came back.
    assert first.scales() == [("web", 9), ("web", 7)]


async def test_who_looks_late_after_an_ordinary_hand_over_finds_its_window_as_it_was() -> None:
    period = {"podscale.io/sync-period": "5m"}
    first = Cluster(settings=SETTINGS)
    web(first, 6)
    first.world.hpas[(NS, "web")]["metadata"]["annotations"] = period
    first.sync()
    load(first, 1000)
    await first.run_for(61.0)
    alive_until = first.wall()
    second = Cluster(settings=SETTINGS, world=first.world, wall=first.wall)
    second.sync()
    second.put_pods(*(pod_object("web", n) for n in range(6)))
    memory, now = second.controller.state.memory, alive_until + 2.0
    second.clock.unix = lambda: now  # type: ignore[method-assign]
    await memory.load(as_read(alive_until))
    entry = second.controller.catalog.get((NS, "web"))
    assert entry is not None
    assert entry.hpa is not None
    past = memory.past(entry, entry.hpa, 6, now + 300.0)
    assert [each.at for each in past.recommendations or ()] == [as_read(alive_until)]


@pytest.mark.parametrize("is_low", [False, True])
async def test_a_history_older_than_the_last_rescale_brings_no_old_size_back(
    *, is_low: bool
) -> None:
    first = Cluster(settings=SETTINGS)
    web(first, 8)
    await first.run_for(61.0)  # recommends 8, stored
    load(first, 300)
    term = Term(as_read(first.wall()))
    first.world.fail = lambda method, path: (
        Forbidden(403, "Forbidden", "no quota")
        if "configmaps" in path and method != "GET"
        else None
    )
    await first.run_for(700.0, term)
    assert first.scales() == [("web", 3)]
    second = Cluster(settings=SETTINGS, world=first.world, wall=first.wall)
    second.sync()
    second.put_pods(*(pod_object("web", n) for n in range(3)))
    first.world.fail = lambda _method, _path: None
    load(second, 100 if is_low else 1000)
    await second.run_for(60.0, Term(as_read(first.wall())))
    assert second.scales() == [("web", 3)]  # that of the first one


async def test_histories_that_cannot_be_read_yet_hold_everything_up() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2, least=3)
    cluster.world.fail = lambda _method, path: (
        ServerFailed(503, "", "down") if "configmaps" in path else None
    )
    await cluster.run_for(10.0)
    assert cluster.scales() == []
    cluster.world.fail = lambda _method, _path: None
    await cluster.run_for(10.0)
    assert cluster.scales() == [("web", 3)]
