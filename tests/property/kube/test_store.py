"""Whatever happens to the watch, the store ends up as a fresh list would show it."""

import asyncio
import random

import looptime
from hypothesis import given, settings
from hypothesis import strategies as st

from podscale.core.selectors import selector
from podscale.kube.client.resource import PODS
from podscale.kube.client.wire import ListOf, decode, encode
from podscale.kube.columns.pods import PodStore
from podscale.kube.informer.fed_store import Change
from podscale.kube.informer.list_watch import WatchSource, WatchTiming
from podscale.kube.informer.reflector import Reflector
from podscale.kube.informer.store import Store
from podscale.kube.objects.pod import Pod
from tests.unit.kube.little import LittleCluster, MemoryApi, Refusal, pod, pods_path

NAMES = st.sampled_from([("shop", "a"), ("shop", "b"), ("shop", "c"), ("bank", "a"), ("bank", "d")])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, st.sampled_from(["web", "api", "db"])),
        st.tuples(st.just("delete"), NAMES, st.just("")),
        st.tuples(st.just("write"), NAMES, st.sampled_from(["web", "mine"])),
        st.tuples(st.just("late write"), NAMES, st.just("late")),
        st.tuples(st.just("cut"), st.none(), st.just("")),
        st.tuples(st.just("compact"), st.none(), st.just("")),
        st.tuples(st.just("expire"), st.none(), st.just("")),
        st.tuples(st.just("vanish"), NAMES, st.just("")),
        st.tuples(st.just("fail"), st.none(), st.sampled_from(["GET", "WATCH"])),
        st.tuples(st.just("partition"), st.none(), st.just("")),
        st.tuples(st.just("heal"), st.none(), st.just("")),
        st.tuples(st.just("wait"), st.none(), st.just("")),
    ),
    min_size=8,
    max_size=40,
)


async def play(steps: list, seed: int) -> None:
    api, structs, columns = MemoryApi(LittleCluster()), Store[Pod](), PodStore()
    clock = asyncio.get_running_loop().time
    source = WatchSource(PODS, Pod, rhythm=WatchTiming(page_size=2, backoff_s=0.1, silence_s=30))
    tasks = [
        asyncio.create_task(Reflector(api, source, store, clock=clock).run())
        for store in (structs, columns)
    ]
    try:
        await happen(api, structs, columns, steps, random.Random(seed))
        await settle(api, structs, columns)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def happen(
    api: MemoryApi, structs: Store[Pod], columns: PodStore, steps: list, pauses: random.Random
) -> None:
    cluster = api.cluster
    failing = 0
    unaccepted: list[Pod] = []

    def never_backwards(change: Change[Pod]) -> None:
        if change.old is not None and change.new is not None:
            old, new = change.old.metadata, change.new.metadata
            assert int(new.resource_version) > int(old.resource_version)

    structs.subscribe(never_backwards)

    def fault(method: str, path: str, query: object) -> Refusal | None:
        nonlocal failing
        if failing and method in failing_methods:
            failing -= 1
            return Refusal(503, "ServiceUnavailable")
        return None

    failing_methods: set[str] = set()
    cluster.fault = fault
    for where in (("shop", "a"), ("shop", "b"), ("bank", "d")):
        cluster.put(pods_path(*where), pod({"app": "web"}))
    await asyncio.sleep(1)
    for action, where, what in steps:
        if action == "put":
            cluster.put(pods_path(*where), pod({"app": what}))
        elif action == "delete" and pods_path(*where) in cluster.objects:
            cluster.delete(pods_path(*where))
        elif action == "write" and pods_path(*where) in cluster.objects:
            # Our own write: its answer goes into the stores, perhaps before the watch.
            answer = cluster.put(pods_path(*where), pod({"app": what}))
            mine = decode(encode(answer), Pod)
            for store in (structs, columns):
                store.accept(mine)
                shown = store.get(*where)
                labels = shown.labels if hasattr(shown, "labels") else shown.metadata.labels
                assert labels == {"app": what}
        elif action == "late write" and pods_path(*where) in cluster.objects:
            # The answer is still on its way while the watch goes on.
            answer = cluster.put(pods_path(*where), pod({"app": what}))
            unaccepted.append(decode(encode(answer), Pod))
        elif action == "cut":
            cluster.cut()
        elif action == "vanish" and pods_path(*where) in cluster.objects:
            # Deleted in a gap of the watch: only the next list can tell.
            cluster.delete(pods_path(*where))
            cluster.compact()
            cluster.cut()
        elif action == "expire":
            cluster.compact()
            cluster.cut()
        elif action == "compact":
            cluster.compact()
        elif action == "fail":
            failing, failing_methods = 2, {what}
        elif action == "partition":
            api.is_cut_off = True
        elif action == "heal":
            api.is_cut_off = False
        else:
            await asyncio.sleep(pauses.choice([0.01, 1, 40]))
        if pauses.random() < 0.6:
            await asyncio.sleep(pauses.choice([0.001, 0.05, 1, 3]))
        if pauses.random() < 0.3:
            for late in unaccepted:
                structs.accept(late)
                columns.accept(late)
            unaccepted.clear()
    api.is_cut_off, failing = False, 0


async def settle(api: MemoryApi, structs: Store[Pod], columns: PodStore) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(400)
    assert structs.is_current(loop.time())
    assert columns.is_current(loop.time())
    answer = await api.request("GET", PODS.path())
    fresh = decode(answer.body, ListOf[Pod]).items or []
    wanted = {(p.metadata.namespace, p.metadata.name): p for p in fresh}
    assert {(p.metadata.namespace, p.metadata.name): p for p in structs.values()} == wanted
    shown = {(v.namespace, v.name): v for v in columns.select_all().views()}
    assert {key: (v.resource_version, v.labels, v.uid) for key, v in shown.items()} == {
        key: (p.metadata.resource_version, p.metadata.labels, p.metadata.uid)
        for key, p in wanted.items()
    }
    for app in ("web", "api", "db", "mine"):
        assert columns.names("", selector.parse(f"app={app}")) == [
            name for (_, name), p in sorted(wanted.items()) if p.metadata.labels == {"app": app}
        ]


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(0, 2**32))
def test_the_store_equals_a_fresh_list_whatever_happened(steps, seed):
    loop = looptime.new_event_loop()
    try:
        loop.run_until_complete(play(steps, seed))
    finally:
        loop.close()
