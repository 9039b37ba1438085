"""Which lists a term waits for, and for how long."""

import asyncio

import pytest

from hpa.cluster.stores import HpaStores
from podscale.kube.client.errors import ApiUnreachable, Forbidden, KubeError, ServerFailed
from podscale.kube.columns.pods import PodStore
from podscale.kube.informer.list_watch import (
    WatchAlive,
    WatchBroken,
)
from podscale.kube.leadership.lease import Term
from tests.kit.stores import fill
from tests.unit.hpa.webs import SETTINGS, as_read, load, web
from tests.unit.hpa.world import NS, Cluster, pod_object

pytestmark = pytest.mark.looptime


def fed(*, but: str = "") -> HpaStores:
    """Return stores that were listed, ``but`` one."""
    stores = HpaStores((), PodStore(keep_annotations=()))
    found = {
        "autoscalers": stores.autoscalers,
        "pods": stores.pods,
        "deployments": stores.deployments,
        "statefulsets": stores.stateful_sets,
        "replicasets": stores.replica_sets,
        "replicationcontrollers": stores.replication_controllers,
    }
    for name, store in found.items():
        if name != but:
            fill(store, now=0.0)
    return stores


async def waited_s(stores: HpaStores) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(1000.0):
        await stores.wait_synced()
    return loop.time() - began


@pytest.mark.parametrize(("error", "at_most_s"), [
    (Forbidden(403, "Forbidden", "no list"), 1.0),
    (ServerFailed(500, "InternalError", "etcd: cannot decode one of them"), 61.0),
    (None, 61.0),  # it hangs
])  # fmt: skip
async def test_a_workload_that_cannot_be_listed_holds_nobody_up_for_ever(
    error: KubeError | None, at_most_s: float
) -> None:
    stores = fed(but="replicasets")
    if error is not None:
        stores.replica_sets.apply(WatchBroken(str(error), error), scope="", now=0.0)
    assert await waited_s(stores) <= at_most_s


@pytest.mark.parametrize("without", ["autoscalers", "pods"])
async def test_what_cannot_be_done_without_is_waited_for(without: str) -> None:
    with pytest.raises(TimeoutError):
        await waited_s(fed(but=without))


@pytest.mark.parametrize("broken", ["bank", NS])
async def test_a_namespace_that_is_not_heard_holds_no_other_one_up(broken: str) -> None:
    cluster = Cluster(settings=SETTINGS, namespaces=(NS, "bank"))
    web(cluster, 6, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    await cluster.run_for(20.0)
    load(cluster, 500)
    for store in (cluster.stores.autoscalers, cluster.stores.pods, cluster.stores.deployments):
        store.apply(WatchBroken("no right to watch any more"), scope=broken, now=20.0)
    await cluster.run_for(40.0, Term(as_read(cluster.wall())))
    assert bool(cluster.scales()) == (broken != NS)


async def test_a_size_that_is_not_listed_is_read_by_get() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    load(cluster, 2000)
    hidden = Cluster(settings=SETTINGS, world=cluster.world)
    deployments = hidden.stores.deployments
    hidden.stores.deployments = type(deployments)()  # fed instead of the one that is read
    hidden.sync()
    hidden.stores.deployments = deployments
    hidden.put_pods(*(pod_object("web", n) for n in range(2)))
    load(hidden, 2000)
    await hidden.run_for(70.0)
    assert hidden.scales() == [("web", 4)]


async def test_a_kind_whose_watch_stays_silent_is_read_by_get() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 6, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    load(cluster, 600)
    no_right = Forbidden(403, "Forbidden", "deployments may not be listed any more")
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(20.0)
    assert cluster.scales() == [("web", 4)]
    cluster.put_pods(*(pod_object("web", n) for n in range(4)))
    cluster.stores.deployments.apply(WatchBroken(str(no_right), no_right), scope="", now=20.0)
    # Somebody scales by hand, and no watch tells.
    workload = cluster.world.workloads[(NS, "web")]
    workload["spec"]["replicas"] = 8
    workload["metadata"]["resourceVersion"] = cluster.world.next_version()
    await asyncio.sleep(150.0)
    assert cluster.scales() == [("web", 4)]  # it may be back at any moment
    assert [path for path in cluster.world.reads if path.endswith("/scale")] == []
    await asyncio.sleep(60.0)
    assert cluster.scales()[:2] == [("web", 4), ("web", 3)]
    cluster.sync()
    await asyncio.sleep(16.0)
    cluster.world.reads.clear()
    await asyncio.sleep(60.0)
    assert [path for path in cluster.world.reads if path.endswith("/scale")] == []
    leading.cancel()
    await asyncio.wait({leading})


async def test_while_the_whole_api_server_is_silent_nothing_is_asked() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 6, behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(20.0)
    load(cluster, 600)
    for store in (cluster.stores.deployments, cluster.stores.pods):
        store.apply(WatchBroken("gone"), scope="", now=20.0)  # type: ignore[attr-defined]
    await asyncio.sleep(600.0)
    assert cluster.scales() == []
    assert [path for path in cluster.world.reads if path.endswith("/scale")] == []
    leading.cancel()
    await asyncio.wait({leading})


async def test_what_was_at_hand_before_a_silence_is_not_believed_because_of_it() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 6)
    targets = cluster.controller.state.targets
    entry = cluster.controller.catalog.get((NS, "web"))
    assert entry is not None
    seen = targets.at_hand(entry)
    assert seen is not None
    cluster.stores.deployments.apply(WatchBroken("gone"), scope="", now=0.0)
    targets.note_silence(600.0, is_other_heard=True)
    assert not targets.is_current(entry, seen)
    assert targets.at_hand(entry) is None
    assert targets.is_current(entry, await targets.fetch(entry))


async def test_a_watch_without_a_bookmark_is_not_taken_for_a_silent_one() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 6)
    targets, deployments = cluster.controller.state.targets, cluster.stores.deployments
    entry = cluster.controller.catalog.get((NS, "web"))
    assert entry is not None
    silent = ApiUnreachable("silent", is_timeout=True)
    # Two connections in a row said nothing, and the next list is about to come.
    deployments.apply(WatchAlive("1", 90.0), scope="", now=0.0)
    for at in (90.5, 181.0):
        deployments.apply(WatchBroken("silent", silent), scope="", now=at)
    targets.note_silence(182.0, is_other_heard=True)
    assert targets.at_hand(entry) is not None


async def test_a_size_that_is_read_by_get_stays_so_while_others_are_not_heard() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 6)
    targets, deployments = cluster.controller.state.targets, cluster.stores.deployments
    entry = cluster.controller.catalog.get((NS, "web"))
    assert entry is not None
    deployments.apply(WatchBroken("gone"), scope="", now=0.0)
    for is_other_heard in (True, False):
        targets.note_silence(600.0, is_other_heard=is_other_heard)
        assert targets.at_hand(entry) is None  # what the watch told last is ten minutes old
    deployments.apply(WatchAlive("1", 90.0), scope="", now=601.0)
    targets.note_silence(602.0, is_other_heard=False)
    assert targets.at_hand(entry) is not None
