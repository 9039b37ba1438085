"""A term whose stored histories cannot be read: what goes on without them, and what does not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hpa import flags
from hpa.cluster.stores import HpaStores
from hpa.decide.observation import GoodProposal, Past, Recommendation, ScaleEvent
from hpa.explain.explanation import explain
from hpa.history import history
from hpa.history.clock import SteadyClock
from hpa.history.configmaps import HistoryConfigMaps
from hpa.history.memory import HistoryMemory
from hpa.part import HpaPart
from podscale.kube.client.errors import Forbidden, KubeError, ServerFailed
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.informer.list_watch import WatchBroken
from podscale.kube.leadership.lease import Term
from podscale.serving.flags import parse
from podscale.serving.monitoring.health import Health
from tests.unit.hpa.webs import SETTINGS, load, web
from tests.unit.hpa.world import NS, Cluster, World, hpa_object, pod_object

pytestmark = pytest.mark.looptime

FOUR_IN_TEN_MINUTES = [{"type": "Pods", "value": 4, "periodSeconds": 600}]
BEHAVIOR = {
    "scaleUp": {"policies": FOUR_IN_TEN_MINUTES},
    "scaleDown": {"policies": FOUR_IN_TEN_MINUTES, "stabilizationWindowSeconds": 0},
}
FORBIDDEN = Forbidden(403, "Forbidden", "no list")
FAILING = ServerFailed(500, "InternalError", "etcd")


def hide(world: World, refusal: KubeError = FORBIDDEN) -> None:
    """Let nobody read the histories."""
    world.fail = lambda method, path: refusal if "configmaps" in path and method == "GET" else None


def show(world: World) -> None:
    world.fail = lambda _method, _path: None


@asynccontextmanager
async def leading(cluster: Cluster, term: Term | None = None) -> AsyncIterator[None]:
    task = asyncio.ensure_future(cluster.controller.run(term or Term(None)))
    try:
        yield
    finally:
        assert not task.done()
        task.cancel()
        await asyncio.wait({task})


async def grown_to_six(**spec: Any) -> Cluster:
    """Return a cluster whose leader has just scaled from 2 to 4 and from 4 to 6, and gone."""
    first = Cluster(settings=SETTINGS)
    web(first, 2, most=20, behavior=BEHAVIOR, **spec)
    load(first, 2000)
    async with leading(first):
        await asyncio.sleep(1.0)
        load(first, 3000)
        await asyncio.sleep(16.0)
    assert first.scales() == [("web", 4), ("web", 6)]
    first.world.writes.clear()
    return first


def successor(first: Cluster, milli: int) -> Cluster:
    second = Cluster(settings=SETTINGS, world=first.world, wall=first.wall)
    second.sync()
    second.put_pods(*(pod_object("web", n) for n in range(6)))
    load(second, milli)
    return second


@pytest.mark.parametrize("refusal", [FORBIDDEN, FAILING])
async def test_growth_goes_on_after_a_minute(refusal: KubeError) -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    load(cluster, 2000)
    hide(cluster.world, refusal)
    async with leading(cluster):
        await asyncio.sleep(59.0)
        assert cluster.scales() == []
        assert 58.0 <= cluster.metrics.read.unread_s() <= 60.0
        await asyncio.sleep(2.0)
        assert cluster.scales() == [("web", 4)]
    assert cluster.metrics.read.unread_s() == 0.0


async def test_a_window_begins_with_the_term_and_is_kept() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 4)
    load(cluster, 100)
    hide(cluster.world)
    async with leading(cluster):
        await asyncio.sleep(355.0)
        assert cluster.scales() == []
        await asyncio.sleep(25.0)
        assert cluster.scales() == [("web", 1)]


@pytest.mark.parametrize("milli", [9000, 100], ids=["up", "down"])
async def test_policies_that_reach_back_to_before_the_term_hold(milli: int) -> None:
    second = successor(await grown_to_six(), milli)
    hide(second.world)
    async with leading(second, Term(second.wall())):
        await asyncio.sleep(598.0)
        assert second.scales() == []
        trace = second.controller.traces.last((NS, "web"))
        assert trace is not None
        assert any("histories could not be read" in said for said in explain(trace).sentences)
        await asyncio.sleep(20.0)
        assert second.scales() == [("web", 10 if milli == 9000 else 2)]


async def test_what_is_read_late_counts_from_then_on() -> None:
    second = successor(await grown_to_six(), 9000)
    hide(second.world)
    async with leading(second, Term(second.wall())):
        await asyncio.sleep(100.0)
        show(second.world)
        await asyncio.sleep(430.0)
        assert second.metrics.read.unread_s() == 0.0
        assert second.scales() == []  # four were added within ten minutes
        stored = await HistoryConfigMaps(second.world, "podscale", "hpa").load()
        assert [change for change, _ in stored[(NS, "web")].ups] == [2, 2]
        await asyncio.sleep(75.0)
        # The first two left the period after 583 s: two may be added, and then two more.
        assert second.scales() == [("web", 8), ("web", 10)]


async def test_a_size_that_nothing_explains_counts_when_it_is_read_late() -> None:
    first = await grown_to_six()
    first.world.workloads[(NS, "web")]["spec"]["replicas"] = 8  # written, and then died
    del first.world.hpas[(NS, "web")]["status"]["lastScaleTime"]
    second = successor(first, 100)
    hide(second.world)
    async with leading(second, Term(second.wall())):
        await asyncio.sleep(100.0)
        show(second.world)
        await asyncio.sleep(60.0)
        entry = second.controller.catalog.get((NS, "web"))
        assert entry is not None
        assert entry.hpa is not None
        past = second.controller.state.memory.past(entry, entry.hpa, 8, second.wall())
        assert [each.change for each in past.scale_ups] == [2, 2, 2]


async def test_a_size_that_a_broken_watch_tells_is_no_rescale_of_another() -> None:
    first = await grown_to_six()
    now = first.world.workloads[(NS, "web")]
    first.world.workloads[(NS, "web")] = {
        **now,
        "spec": {**now["spec"], "replicas": 4},
        "metadata": {**now["metadata"], "resourceVersion": "1"},
    }
    second = successor(first, 1000)  # sees the size before the last write, and then nothing
    first.world.workloads[(NS, "web")] = now
    second.stores.deployments.apply(WatchBroken("the stream broke"), scope="", now=0.0)
    hide(second.world)
    async with leading(second, Term(second.wall())):
        await asyncio.sleep(70.0)
        second.sync()
        await asyncio.sleep(30.0)
        entry = second.controller.catalog.get((NS, "web"))
        assert entry is not None
        assert entry.hpa is not None
        past = second.controller.state.memory.past(entry, entry.hpa, 6, second.wall())
        assert past.scale_downs == ()


async def test_corrections_to_the_bounds_are_made_whatever_the_policies_say() -> None:
    first = await grown_to_six()
    first.world.hpas[(NS, "web")]["spec"] |= {"minReplicas": 7}
    second = successor(first, 1000)
    hide(second.world)
    await second.run_for(70.0, Term(second.wall()))
    assert second.scales() == [("web", 7)]


async def test_nothing_is_written_over_what_could_not_be_read() -> None:
    first = await grown_to_six()
    before = first.world.histories()
    second = successor(first, 1000)
    hide(second.world)
    await second.run_for(200.0, Term(second.wall()))
    assert [path for _, path, _ in second.world.writes if "configmaps" in path] == []
    assert second.world.histories() == before


async def test_a_pass_that_was_on_its_way_writes_nothing_over_what_is_read_late() -> None:
    second = successor(await grown_to_six(), 1000)
    shards = HistoryConfigMaps(second.world, "podscale", "hpa")
    before = (await shards.load())[(NS, "web")]
    entry = second.controller.catalog.get((NS, "web"))
    assert entry is not None
    assert entry.hpa is not None
    memory, now = HistoryMemory(shards, second.clock), second.wall()
    memory.begin()
    past = memory.past(entry, entry.hpa, 6, now)
    await memory.load(now)
    memory.put(entry, past, 6, now)
    await shards.flush()
    assert (await HistoryConfigMaps(second.world, "podscale", "hpa").load())[(NS, "web")] == before
    past = memory.past(entry, entry.hpa, 6, now + 15.0)
    memory.put(entry, past, 6, now + 15.0)
    await shards.flush()
    stored = (await HistoryConfigMaps(second.world, "podscale", "hpa").load())[(NS, "web")]
    assert (stored.ups, stored.at) == (before.ups, pytest.approx(now + 15.0, abs=0.01))


async def test_a_later_object_of_the_same_name_takes_nothing_of_what_is_read_late() -> None:
    first = await grown_to_six()
    second = successor(first, 1000)
    hide(second.world)
    async with leading(second, Term(second.wall())):
        await asyncio.sleep(70.0)
        again = hpa_object("web", most=20, behavior=BEHAVIOR)
        again["metadata"] |= {"uid": "another", "resourceVersion": second.world.next_version()}
        second.put(again)
        await asyncio.sleep(30.0)
        show(second.world)
        await asyncio.sleep(60.0)
    stored = await HistoryConfigMaps(second.world, "podscale", "hpa").load()
    assert (stored[(NS, "web")].uid, stored[(NS, "web")].ups) == ("another", ())


def test_joined_histories_tell_of_each_rescale_once() -> None:
    before = Past(
        (Recommendation(4, 90.0),),
        scale_ups=(ScaleEvent(2, 95.7),),
        good=(GoodProposal("a", 3, 80.0), GoodProposal("b", 5, 80.0)),
    )
    # What the status says of that rescale, in whole seconds, and one of our own.
    past = Past(
        (Recommendation(4, 160.0),),
        scale_ups=(ScaleEvent(2, 95.0), ScaleEvent(1, 170.0)),
        good=(GoodProposal("a", 4, 165.0),),
    )
    assert history.joined(before, past) == Past(
        (Recommendation(4, 90.0), Recommendation(4, 160.0)),
        scale_ups=(ScaleEvent(2, 95.7), ScaleEvent(1, 170.0)),
        good=(GoodProposal("b", 5, 80.0), GoodProposal("a", 4, 165.0)),
    )


async def test_a_clock_that_is_set_shortens_no_hold() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2, behavior=BEHAVIOR)
    entry = cluster.controller.catalog.get((NS, "web"))
    assert entry is not None
    assert entry.hpa is not None
    set_s, passed_s = 0.0, 1000.0
    clock = SteadyClock(lambda: 1_795_000_000.0 + passed_s + set_s, lambda: passed_s)
    memory = HistoryMemory(HistoryConfigMaps(cluster.world, "podscale", "hpa"), clock)
    memory.begin()
    set_s = 3600.0
    assert clock.look() == 3600.0
    passed_s += 599.0
    assert not memory.knows_rescales(entry.hpa, is_up=True)
    passed_s += 1.0
    assert memory.knows_rescales(entry.hpa, is_up=True)


async def test_a_part_without_its_histories_is_ready_and_says_so() -> None:
    cluster = Cluster()
    chosen = flags.choice(parse([], flags.TABLE), own_namespace="podscale")
    part = HpaPart(
        cluster.world,
        chosen,
        ApiDiscovery(cluster.world),
        cluster.provider,
        HpaStores((), PodStore(keep_annotations=())),
    )
    health = Health()
    part.register(health)
    part.metrics.read.unread_s = lambda: 75.0
    told = health.report("readyz", is_verbose=True, excluded=["autoscalers-synced"])
    assert told.status == 200
    assert "[+]histories-read ok: stored histories could not be read for 75 s" in told.text
