"""What one term leaves to the next: nothing lost, nothing of objects that are gone."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hpa.decide.settings import Settings
from hpa.history.configmaps import HistoryConfigMaps
from hpa.history.history import HistoryRecord
from podscale.kube.client.errors import ApiUnreachable
from podscale.kube.leadership.lease import Term
from tests.unit.hpa.webs import load, web
from tests.unit.hpa.world import NS, Cluster, World, deployment_object, hpa_object, pod_object

pytestmark = pytest.mark.looptime

SETTINGS = Settings(sync_period_s=15.0)
SLOW = {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 600}]}}


def successor(first: Cluster, size: int, wall: Callable[[], float] | None = None) -> Cluster:
    second = Cluster(settings=SETTINGS, world=first.world, wall=wall or first.wall)
    second.sync()
    second.put_pods(*(pod_object("web", n) for n in range(size)))
    load(second, 9000)
    return second


@pytest.mark.parametrize("hidden_by", ["pause", "unreadable"])
async def test_a_history_is_completed_only_once_the_size_is_known(hidden_by: str) -> None:
    first = Cluster(settings=SETTINGS)
    web(first, 2, behavior=SLOW)
    await first.run_for(1.0)
    world = first.world
    world.workloads[(NS, "web")]["spec"]["replicas"] = 4  # written, and then died
    scaler = world.hpas[(NS, "web")]
    if hidden_by == "pause":
        scaler["metadata"] |= {"annotations": {"podscale.io/paused": "true"}}
    hidden = world.workloads.pop((NS, "web")) if hidden_by == "unreadable" else None
    second = successor(first, 4)
    leading = asyncio.ensure_future(second.controller.run(Term(first.wall())))
    await asyncio.sleep(31.0)
    scaler = world.hpas[(NS, "web")]
    scaler["metadata"] |= {"annotations": {}, "resourceVersion": world.next_version()}
    if hidden is not None:
        hidden["metadata"]["resourceVersion"] = world.next_version()
        world.workloads[(NS, "web")] = hidden
    second.sync()
    await asyncio.sleep(31.0)
    assert second.scales() == []  # two were added lately, and the policy allows two
    leading.cancel()
    await asyncio.wait({leading})


async def test_a_pause_leaves_the_stored_size_for_the_next_leader() -> None:
    first = Cluster(settings=SETTINGS)
    web(first, 2, behavior=SLOW)
    leading = asyncio.ensure_future(first.controller.run(Term(None)))
    await asyncio.sleep(1.0)
    scaler = first.world.hpas[(NS, "web")]
    version = first.world.next_version()
    scaler["metadata"] |= {
        "annotations": {"podscale.io/paused": "true"}, "resourceVersion": version,
    }  # fmt: skip
    first.sync()
    await asyncio.sleep(31.0)
    leading.cancel()
    await asyncio.wait({leading})
    found = await HistoryConfigMaps(first.world, "podscale", "hpa").load()
    assert found[(NS, "web")].size == 2


async def test_a_later_object_of_the_same_name_inherits_no_history() -> None:
    first = Cluster(settings=SETTINGS)
    web(first, 2)
    load(first, 2000)
    await first.run_for(16.0)  # recommends 4, which would hold for 5 minutes
    again = hpa_object("web")
    again["metadata"] |= {"uid": "another", "resourceVersion": first.world.next_version()}
    first.world.hpas[(NS, "web")] = again
    second = successor(first, 4)
    load(second, 250)
    # The size of four that is found is remembered from now on, and from nothing earlier.
    await second.run_for(31.0, Term(first.wall()))
    entry = second.controller.catalog.get((NS, "web"))
    assert entry is not None
    assert entry.hpa is not None
    past = second.controller.state.memory.past(entry, entry.hpa, 4, second.wall())
    assert past.scale_ups == ()
    assert min(each.at for each in past.recommendations or ()) > first.wall() - 40.0


@pytest.mark.parametrize("set_s", [-7200.0, 0.0, 7200.0])
@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "only-in-the-status"])
async def test_a_rescale_is_as_old_to_a_leader_whose_clock_is_another(
    set_s: float, is_stored: bool
) -> None:
    first = Cluster(settings=SETTINGS)
    web(first, 2, behavior=SLOW)
    load(first, 9000)
    await first.run_for(1.0)
    assert first.scales() == [("web", 4)]
    if not is_stored:
        first.world.config_maps.clear()
    alive_until = first.wall()
    second = successor(first, 4, lambda: first.wall() + set_s)
    await second.run_for(31.0, Term(alive_until, set_s))
    entry = second.controller.catalog.get((NS, "web"))
    assert entry is not None
    assert entry.hpa is not None
    past = second.controller.state.memory.past(entry, entry.hpa, 4, second.wall())
    (event,) = past.scale_ups
    assert abs(event.at - (alive_until + set_s)) <= 2.0
    assert second.scales() == [("web", 4)]  # the first one's


@pytest.mark.parametrize("set_s", [-7200.0, 7200.0])
async def test_a_rescale_by_a_clock_that_was_set_since_the_last_renewal_is_not_forgotten(
    set_s: float,
) -> None:
    jumps = [0.0]
    first = Cluster(
        settings=SETTINGS,
        wall=lambda: 1_795_000_000.0 + asyncio.get_running_loop().time() + sum(jumps),
    )
    web(first, 2, behavior=SLOW)
    alive_until, renewed_at = first.wall(), asyncio.get_running_loop().time()
    term = Term(None, renewed_at=lambda: renewed_at)  # and never again
    leading = asyncio.ensure_future(first.controller.run(term))
    await asyncio.sleep(20.0)
    jumps.append(set_s)
    await asyncio.sleep(2.0)
    load(first, 9000)
    await asyncio.sleep(16.0)
    leading.cancel()
    await asyncio.wait({leading})
    assert first.scales() == [("web", 4)]
    second = successor(first, 4)
    await second.run_for(31.0, Term(alive_until, set_s))
    assert second.scales() == [("web", 4)]  # the first one's: the policy allows no more


async def test_a_renewal_by_the_clock_as_it_is_set_lets_histories_be_stored() -> None:
    jumps, loop = [0.0], asyncio.get_running_loop()
    cluster = Cluster(settings=SETTINGS, wall=lambda: 1_795_000_000.0 + loop.time() + sum(jumps))
    web(cluster, 2)
    term = Term(None, renewed_at=lambda: loop.time() - 2.0)
    leading = asyncio.ensure_future(cluster.controller.run(term))
    await asyncio.sleep(20.0)
    jumps.append(-7200.0)
    await asyncio.sleep(40.0)
    leading.cancel()
    await asyncio.wait({leading})
    found = await HistoryConfigMaps(cluster.world, "podscale", "hpa").load()
    assert found[(NS, "web")].at > cluster.wall() - 35.0
    assert found[(NS, "web")].at <= cluster.wall()


async def test_histories_of_objects_deleted_while_nobody_led_are_pruned() -> None:
    first = Cluster(settings=SETTINGS)
    web(first, 2)
    first.put(hpa_object("gone"), deployment_object("gone", 1))
    await first.run_for(16.0)
    assert "shop/gone" in first.world.histories()
    del first.world.hpas[(NS, "gone")]
    second = successor(first, 2)
    await second.run_for(76.0, Term(first.wall()))
    assert "shop/gone" not in first.world.histories()
    assert "shop/web" in first.world.histories()


async def test_a_watch_that_is_behind_costs_no_history() -> None:
    first = Cluster(settings=SETTINGS)
    web(first, 2, behavior=SLOW)
    load(first, 9000)
    await first.run_for(16.0)
    assert first.scales() == [("web", 4)]
    hidden = first.world.hpas.pop((NS, "web"))  # created lately: the next one has not seen it
    hidden["status"].pop("lastScaleTime")
    second = successor(first, 4)
    leading = asyncio.ensure_future(second.controller.run(Term(first.wall())))
    await asyncio.sleep(5.0)
    first.world.hpas[(NS, "web")] = hidden
    second.sync()
    await asyncio.sleep(40.0)
    assert first.world.workloads[(NS, "web")]["spec"]["replicas"] == 4
    leading.cancel()
    await asyncio.wait({leading})


async def test_a_second_term_starts_from_what_is_stored_and_not_from_the_first() -> None:
    one = Cluster(settings=SETTINGS)
    web(one, 2)
    one.put(hpa_object("gone"), deployment_object("gone", 1))
    await one.run_for(16.0)
    del one.world.hpas[(NS, "gone")]
    other = successor(one, 2)
    load(other, 1000)
    await other.run_for(76.0, Term(one.wall()))
    one.sync()
    load(one, 1500)
    await one.run_for(16.0, Term(one.wall()))
    assert "shop/gone" not in one.world.histories()


async def test_the_end_of_a_term_writes_the_shard_whose_write_it_interrupted() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    cluster.world.delay = lambda method, path: (
        1.0 if method != "GET" and "configmaps" in path else 0.0
    )
    await cluster.run_for(0.7)  # gathered for 0.2 s, and not through yet
    assert "shop/web" in cluster.world.histories()


async def test_histories_that_make_no_sense_hold_everything_up_and_crash_nothing() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2, least=3)
    cluster.world.config_maps["odd"] = {"metadata": {"name": 7}}
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(10.0)
    assert not leading.done()
    assert cluster.scales() == []
    cluster.world.config_maps.clear()
    await asyncio.sleep(40.0)
    assert cluster.scales() == [("web", 3)]
    leading.cancel()
    await asyncio.wait({leading})


async def test_a_term_that_ends_in_the_middle_of_several_writes_forgets_none() -> None:
    class Lingering(World):
        """Takes a moment to let go of a cancelled request, all but the first, as connections do."""

        lingering = 0

        async def request(self, *args: Any, **kwargs: Any) -> Any:
            linger_s, self.lingering = 0.01 * self.lingering, self.lingering + 1
            try:
                return await super().request(*args, **kwargs)
            except asyncio.CancelledError:
                await asyncio.sleep(linger_s)
                raise

    world = Lingering()
    shards = HistoryConfigMaps(world, "podscale", "hpa")
    names = [f"web-{n}" for n in range(100)]
    runs = tuple((n, 1_795_000_000.123 + n) for n in range(220))  # enough for several shards
    for size in (3, 4):
        await asyncio.sleep(10.0)  # all of them may be written again
        for name in names:
            shards.put((NS, name), HistoryRecord(runs, size=size, at=float(size)))
        world.lingering = 0
        running = asyncio.ensure_future(shards.run())
        await asyncio.wait({running}, timeout=8.0)
        running.cancel()
        await asyncio.wait({running})
        world.delay = lambda _method, _path: 9.0
    assert world.lingering >= 4, "several were on their way"
    world.delay = lambda _method, _path: 0.0
    await shards.flush()
    found = await HistoryConfigMaps(world, "podscale", "hpa").load()
    assert {key: record.size for key, record in found.items()} == {(NS, name): 4 for name in names}


async def test_a_cancelled_write_leaves_its_shard_waiting() -> None:
    world = Cluster().world
    shards = HistoryConfigMaps(world, "podscale", "hpa")
    world.fail = lambda _method, _path: ApiUnreachable("no route")
    shards.put((NS, "web"), HistoryRecord(size=3, at=1.0))
    await shards.flush()
    world.fail = lambda _method, _path: None
    world.delay = lambda _method, _path: 9.0
    flushing = asyncio.ensure_future(shards.flush())
    await asyncio.sleep(1.0)
    flushing.cancel()
    await asyncio.wait({flushing})
    world.delay = lambda _method, _path: 0.0
    await shards.flush()
    assert "shop/web" in world.histories()
