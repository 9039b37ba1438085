"""Lists and watches that make a store, and every way in which they break."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from podscale.core.selectors import selector
from podscale.kube.client.api import Method, Response
from podscale.kube.client.connect import ApiServerTarget, connect
from podscale.kube.client.errors import ApiUnreachable
from podscale.kube.client.resource import PODS
from podscale.kube.client.wire import PartialObjectMetadata
from podscale.kube.columns.pods import PodStore
from podscale.kube.informer.fed_store import Change
from podscale.kube.informer.list_watch import (
    ListBegan,
    ListEnded,
    WatchAlive,
    WatchBroken,
    WatchSource,
    WatchTiming,
)
from podscale.kube.informer.reflector import Reflector
from podscale.kube.informer.store import Store
from podscale.kube.objects.pod import Pod
from tests.kit.nested import managed
from tests.unit.kube.little import LittleCluster, MemoryApi, Refusal, pod, pods_path, served

QUICK = WatchTiming(page_size=3, backoff_s=0.02, backoff_max_s=0.1, poll_s=0.1, silence_s=5.0)


async def until(claim: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Wait until ``claim`` holds."""
    async with asyncio.timeout(timeout_s):
        while not claim():  # noqa: ASYNC110 - stores call back, but claims are about anything
            await asyncio.sleep(0.005)


@asynccontextmanager
async def reflected(
    cluster: LittleCluster, store: object, source: WatchSource[Pod]
) -> AsyncIterator[None]:
    """Keep ``store`` fed over HTTP."""
    async with (
        served(cluster) as url,
        connect(ApiServerTarget(server=url), user_agent="test") as api,
    ):
        task = asyncio.create_task(Reflector(api, source, store).run())  # type: ignore[arg-type]
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})


def names(store: Store[Pod]) -> list[str]:
    return sorted(obj.metadata.name for obj in store.values())


ALL = WatchSource(PODS, Pod, rhythm=QUICK)


async def test_a_paged_list_and_its_watch_make_the_store():
    cluster, store = LittleCluster(), Store[Pod]()
    for index in range(8):
        cluster.put(pods_path("shop", f"web-{index}"), pod({"app": "web"}))
    async with reflected(cluster, store, ALL):
        await until(store.is_current)
        assert len(store) == 8
        cluster.put(pods_path("shop", "web-8"), pod({"app": "web"}))
        cluster.delete(pods_path("shop", "web-0"))
        cluster.put(pods_path("shop", "web-1"), pod({"app": "api"}))
        await until(lambda: store.get("shop", "web-0") is None)
        assert [p.metadata.name for p in store.select("shop", selector.parse("app=api"))] == [
            "web-1"
        ]
    pages = [query for method, _, query in cluster.requests if method == "GET"]
    assert len(pages) == 3
    assert all(query["limit"] == "3" for query in pages)


async def test_a_page_of_huge_objects_comes_in_smaller_ones():
    cluster, store = LittleCluster(), Store[Pod]()
    for index in range(40):
        large = {"annotations": {"a": "x" * 50_000}} if index > 8 else {}
        cluster.put(pods_path("shop", f"web-{index:02}"), {**pod(), "metadata": large})
    rhythm = replace(QUICK, page_size=16, page_bytes=200_000)
    async with reflected(cluster, store, WatchSource(PODS, Pod, rhythm=rhythm)):
        await until(store.is_current)
        assert len(store) == 40
    sizes = [int(query["limit"]) for method, _, query in cluster.requests if method == "GET"]
    assert sizes == [16, *[2] * 20]


async def test_an_object_longer_than_a_page_is_told_and_asks_no_further():
    cluster, store = LittleCluster(), Store[Pod]()
    cluster.put(pods_path("shop", "web"), {**pod(), "metadata": {"annotations": {"a": "x" * 999}}})
    rhythm = replace(QUICK, page_size=500, page_bytes=500)
    async with reflected(cluster, store, WatchSource(PODS, Pod, rhythm=rhythm)):
        await until(lambda: store.freshness().error is not None)
        assert "more than 500 bytes" in str(store.freshness().error)
        sizes = [query["limit"] for method, _, query in cluster.requests if method == "GET"]
    assert sizes[:4] == ["500", "62", "7", "1"]


async def test_a_cut_watch_goes_on_where_it_stopped_without_a_list():
    cluster, store = LittleCluster(), Store[Pod]()
    cluster.put(pods_path("shop", "web-0"), pod())
    async with reflected(cluster, store, ALL):
        await until(store.is_current)
        cluster.cut()
        cluster.put(pods_path("shop", "web-1"), pod())
        await until(lambda: len(store) == 2)
    assert [method for method, _, _ in cluster.requests].count("GET") == 1


async def test_an_expired_version_lists_again_and_drops_what_has_gone():
    cluster, store = LittleCluster(), Store[Pod]()
    changes: list[Change[Pod]] = []
    cluster.put(pods_path("shop", "gone"), pod())
    cluster.put(pods_path("shop", "stays"), pod())
    store.subscribe(changes.append)
    async with reflected(cluster, store, ALL):
        await until(store.is_current)
        cluster.delete(pods_path("shop", "gone"))
        cluster.put(pods_path("shop", "new"), pod())
        cluster.compact()
        cluster.cut()
        await until(lambda: names(store) == ["new", "stays"])
    told = [(change.name, change.old is None, change.new is None) for change in changes]
    assert ("gone", False, True) in told
    assert told.count(("stays", True, False)) == 1


async def test_an_expired_continue_token_starts_the_list_again():
    cluster, store = LittleCluster(), Store[Pod]()
    for index in range(7):
        cluster.put(pods_path("shop", f"web-{index}"), pod())
    expired = []

    def expire(method: str, path: str, query: object) -> Refusal | None:
        if "continue" in query and len(expired) < 2:  # type: ignore[operator]
            expired.append(path)
            return Refusal(410, "Expired")
        return None

    cluster.fault = expire
    async with reflected(cluster, store, ALL):
        await until(store.is_current)
    assert len(store) == 7
    limits = [query.get("limit") for method, _, query in cluster.requests if method == "GET"]
    assert limits == ["3", "3", "3", "3", None]


async def test_history_that_goes_backwards_replaces_everything():
    cluster, store = LittleCluster(), Store[Pod]()
    path = pods_path("shop", "web-0")
    for _ in range(50):
        cluster.put(path, pod({"at": "later"}))
    async with reflected(cluster, store, ALL):
        await until(store.is_current)
        cluster.objects[path]["metadata"]["labels"] = {"at": "backup"}  # type: ignore[index]
        cluster.fault = lambda method, *_: (
            Refusal(504, "Timeout", "Too large resource version") if method == "WATCH" else None
        )
        cluster.restore(20)
        await until(lambda: store.get("shop", "web-0").metadata.labels == {"at": "backup"})  # type: ignore[union-attr]


async def test_a_forbidden_watch_becomes_lists():
    cluster, store = LittleCluster(), Store[Pod]()
    cluster.put(pods_path("shop", "web-0"), pod())
    cluster.fault = lambda method, *_: (
        Refusal(403, "Forbidden", "cannot watch") if method == "WATCH" else None
    )
    async with reflected(cluster, store, ALL):
        await until(lambda: store.freshness().is_polling)
        assert store.is_current()
        cluster.put(pods_path("shop", "web-1"), pod())
        await until(lambda: len(store) == 2)
        assert store.is_current()


@pytest.mark.looptime
async def test_what_is_listed_instead_of_watched_is_believed_while_watching_is_tried_again():
    loop = asyncio.get_running_loop()
    cluster, store = LittleCluster(), Store[Pod]()
    cluster.fault = lambda method, *_: (
        Refusal(403, "Forbidden", "cannot watch") if method == "WATCH" else None
    )
    task = asyncio.create_task(
        Reflector(MemoryApi(cluster), WatchSource(PODS, Pod), store, clock=loop.time).run()
    )
    await asyncio.sleep(1)
    since = loop.time()
    await asyncio.sleep(1000)
    assert [method for method, _, _ in cluster.requests].count("WATCH") > 2
    assert store.is_current(loop.time(), since=since)
    task.cancel()
    await asyncio.wait({task})


async def test_a_forbidden_list_is_told_and_retried():
    cluster, store = LittleCluster(), Store[Pod]()
    cluster.fault = lambda *_: Refusal(403, "Forbidden", "pods is forbidden")
    async with reflected(cluster, store, ALL):
        await until(lambda: "forbidden" in store.freshness().reason)
        assert not store.is_synced
        cluster.fault = lambda *_: None
        await until(store.is_current)


async def test_one_store_over_several_namespaces_keeps_each_ones_list_apart():
    cluster, store = LittleCluster(), Store[Pod](("shop", "bank"))
    cluster.put(pods_path("shop", "web-0"), pod())
    cluster.put(pods_path("bank", "web-0"), pod())
    cluster.put(pods_path("other", "web-0"), pod())
    async with reflected(cluster, store, ALL):
        await until(store.is_current)
        assert {obj.metadata.namespace for obj in store.values()} == {"shop", "bank"}
        cluster.compact()
        cluster.cut()
        cluster.delete(pods_path("bank", "web-0"))
        await until(lambda: {obj.metadata.namespace for obj in store.values()} == {"shop"})


async def test_an_unreadable_object_affects_itself_only():
    cluster, store = LittleCluster(), Store[Pod]()
    cluster.put(pods_path("shop", "bad"), {"spec": {"containers": "none"}})
    cluster.put(pods_path("shop", "good"), pod())
    async with reflected(cluster, store, ALL):
        await until(store.is_current)
        assert names(store) == ["good"]
        cluster.put(pods_path("shop", "good"), {"status": {"phase": 7}})
        cluster.put(pods_path("shop", "other"), pod())
        await until(lambda: names(store) == ["other"])


async def test_a_pod_that_becomes_unreadable_is_gone_for_those_who_listen_too():
    cluster, store = LittleCluster(), PodStore()
    left: list[str] = []
    store.subscribe(lambda change: left.append(change.name) if change.new is None else None)
    cluster.put(pods_path("shop", "good"), pod())
    async with reflected(cluster, store, ALL):
        await until(store.is_current)
        cluster.put(pods_path("shop", "good"), {"status": {"phase": 7}})
        cluster.put(pods_path("shop", "other"), pod())
        await until(lambda: store.exists("shop", "other") and not store.exists("shop", "good"))
    assert left == ["good"]


@pytest.mark.parametrize("levels", [3_000, 9_995])
@pytest.mark.parametrize("kind", [Store, PodStore])
async def test_an_object_that_nests_too_deep_is_read_without_what_does(kind, levels):
    cluster, store = LittleCluster(), kind()
    deep = {"managedFields": managed(levels)}
    cluster.put(pods_path("shop", "listed"), pod() | {"metadata": deep})
    cluster.put(pods_path("shop", "good"), pod())
    async with reflected(cluster, store, ALL):
        await until(store.is_current)
        cluster.put(pods_path("shop", "watched"), pod() | {"metadata": deep})
        await until(lambda: store.get("shop", "watched") is not None)
        assert store.get("shop", "listed") is not None
        assert store.get("shop", "good") is not None


async def test_a_store_that_fails_is_not_believed_and_is_filled_again():
    class Failing(Store[Pod]):
        failures = 2

        def apply(self, happening: Any, *, scope: str, now: float) -> None:
            if isinstance(happening, ListEnded) and self.failures:
                self.failures -= 1
                assert not self.is_current()
                raise RecursionError("maximum recursion depth exceeded")
            if isinstance(happening, WatchBroken):
                reasons.append(happening.reason)
            super().apply(happening, scope=scope, now=now)

    reasons: list[str] = []
    cluster, store = LittleCluster(), Failing()
    cluster.put(pods_path("shop", "good"), pod())
    async with reflected(cluster, store, ALL):
        await until(store.is_current)
        assert names(store) == ["good"]
    assert len(reasons) == 2
    assert "RecursionError" in reasons[0]


async def test_a_watch_line_that_is_no_json_lists_again():
    class Garbled(LittleCluster):
        async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
            if not any(each[0] == "GARBLED" for each in self.requests):
                self.requests.append(("GARBLED", path, {}))
                yield b'{"type":"ADDED","object":{]\n'
            async for line in super().watch(path, query):
                yield line

    cluster, store = Garbled(), Store[Pod]()
    cluster.put(pods_path("shop", "good"), pod())
    async with reflected(cluster, store, ALL):
        await until(lambda: [method for method, *_ in cluster.requests].count("GET") == 2)
        await until(store.is_current)
    assert names(store) == ["good"]


async def test_an_event_that_a_store_cannot_take_in_is_the_only_one_lost():
    class Picky(Store[Pod]):
        def _put(self, obj: Pod, *, is_forced: bool = False) -> None:
            if obj.metadata.name.startswith("bad"):
                raise ZeroDivisionError
            super()._put(obj, is_forced=is_forced)

    cluster, store = LittleCluster(), Picky()
    cluster.put(pods_path("shop", "bad-0"), pod())
    cluster.put(pods_path("shop", "listed"), pod())
    async with reflected(cluster, store, ALL):
        await until(store.is_current)
        assert names(store) == ["listed"]
        cluster.put(pods_path("shop", "bad-1"), pod())
        cluster.put(pods_path("shop", "watched"), pod())
        await until(lambda: names(store) == ["listed", "watched"])


async def test_a_selector_and_metadata_only_are_asked_of_the_server():
    cluster, store = LittleCluster(), Store[PartialObjectMetadata]()
    cluster.put(pods_path("shop", "web-0"), pod({"app": "web"}))
    cluster.put(pods_path("shop", "api-0"), pod({"app": "api"}))
    source = WatchSource(
        PODS, PartialObjectMetadata, label_selector="app=web", metadata_only=True, rhythm=QUICK
    )
    async with reflected(cluster, store, source):  # type: ignore[arg-type]
        await until(store.is_current)
        assert [obj.metadata.name for obj in store.values()] == ["web-0"]


@pytest.mark.looptime
async def test_a_silent_watch_is_not_current_and_is_opened_again():
    loop = asyncio.get_running_loop()
    cluster, store = LittleCluster(), Store[Pod]()
    api = MemoryApi(cluster)
    rhythm = WatchTiming(silence_s=90)
    reflector = Reflector(api, WatchSource(PODS, Pod, rhythm=rhythm), store, clock=loop.time)
    task = asyncio.create_task(reflector.run())
    await asyncio.sleep(1)
    assert store.is_current(loop.time())
    api.is_cut_off = True
    await asyncio.sleep(80)
    assert store.is_current(loop.time())  # nobody can know yet
    await asyncio.sleep(30)
    assert not store.is_current(loop.time())
    assert "silence" in store.freshness(loop.time()).reason
    cluster.put(pods_path("shop", "web-0"), pod())
    api.is_cut_off = False
    await asyncio.sleep(200)
    assert store.is_current(loop.time())
    assert len(store) == 1
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.looptime
async def test_a_quiet_watch_begins_anew_without_a_list_and_without_a_doubt():
    loop = asyncio.get_running_loop()
    cluster, store = LittleCluster(), Store[Pod]()
    api = QuietApi(cluster)
    source = WatchSource(PODS, Pod, rhythm=WatchTiming(silence_s=90))
    task = asyncio.create_task(Reflector(api, source, store, clock=loop.time).run())
    for _ in range(300):
        await asyncio.sleep(5)
        assert store.is_current(loop.time())
    assert api.lists == 1
    cluster.put(pods_path("shop", "web-0"), pod())  # which this watch does not tell
    await asyncio.sleep(95)
    assert len(store) == 1
    assert api.lists == 1
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.looptime
async def test_a_quiet_watch_is_doubted_while_the_server_lists_nothing():
    loop = asyncio.get_running_loop()
    cluster, store = LittleCluster(), Store[Pod]()
    api = QuietApi(cluster)
    source = WatchSource(PODS, Pod, rhythm=WatchTiming(silence_s=90))
    task = asyncio.create_task(Reflector(api, source, store, clock=loop.time).run())
    await asyncio.sleep(1)
    assert store.is_current(loop.time())
    api.is_refusing = True
    await asyncio.sleep(101)
    for _ in range(200):
        assert not store.is_current(loop.time())
        await asyncio.sleep(5)
    api.is_refusing = False
    await asyncio.sleep(60)
    assert store.is_current(loop.time())
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.looptime
async def test_a_quiet_watch_without_a_cache_lists_again_without_a_doubt():
    loop = asyncio.get_running_loop()
    cluster, store = LittleCluster(), Store[Pod]()
    api = QuietApi(cluster)
    source = WatchSource(PODS, Pod, rhythm=WatchTiming(silence_s=90))
    with capture_logs() as logs:
        task = asyncio.create_task(Reflector(api, source, store, clock=loop.time).run())
        await asyncio.sleep(1)
        for _ in range(300):
            cluster.put("/api/v1/namespaces/shop/configmaps/other", {})
            cluster.compact()  # etcd forgets the version that the watch has seen last
            await asyncio.sleep(5)
            assert store.is_current(loop.time(), since=1.0)
        assert api.lists > 10
        cluster.put(pods_path("shop", "web-0"), pod())
        cluster.compact()
        await asyncio.sleep(95)
        assert len(store) == 1
        task.cancel()
        await asyncio.wait({task})
    assert not logs


@pytest.mark.looptime
async def test_a_quiet_watch_asks_for_any_one_object_and_not_for_one_that_is_selected():
    loop = asyncio.get_running_loop()
    for selected, asked in (("spec.nodeName=a", ""), ("metadata.name=web", "metadata.name=web")):
        api = QuietApi(LittleCluster())
        source = WatchSource(
            PODS, Pod, field_selector=selected, label_selector=selected, rhythm=WatchTiming()
        )
        task = asyncio.create_task(Reflector(api, source, Store[Pod](), clock=loop.time).run())
        await asyncio.sleep(100)
        (probe,) = [query for query in api.queries if query["limit"] == "1"]
        assert probe.get("fieldSelector", "") == probe.get("labelSelector", "") == asked
        task.cancel()
        await asyncio.wait({task})


@pytest.mark.looptime
async def test_a_reason_that_comes_again_later_is_logged_again():
    loop = asyncio.get_running_loop()
    cluster, store = LittleCluster(), Store[Pod]()
    api = MemoryApi(cluster)
    with capture_logs() as logs:
        reflector = Reflector(api, WatchSource(PODS, Pod), store, clock=loop.time)
        task = asyncio.create_task(reflector.run())
        for outages in (1, 2):
            await asyncio.sleep(600)
            assert store.is_current(loop.time())
            cluster.fault = lambda *_: Refusal(503, "ServiceUnavailable", "cut")
            cluster.cut()
            await asyncio.sleep(600)
            cluster.fault = lambda *_: None
            assert len(logs) == outages  # once for each outage, however often it is tried
        task.cancel()
        await asyncio.wait({task})


class QuietApi(MemoryApi):
    """A watch says what was missed before it began, and nothing after."""

    lists = 0
    queries: Sequence[Mapping[str, str]] = ()  # of the lists
    is_refusing = False

    async def request(self, method: Method, path: str, **more: Any) -> Response:
        self.lists += more["query"]["limit"] != "1"
        self.queries = [*self.queries, more["query"]]
        if self.is_refusing:
            raise ApiUnreachable("connection refused")
        return await super().request(method, path, **more)

    async def _batches(
        self, lines: AsyncIterator[bytes], silence_s: float
    ) -> AsyncIterator[list[bytes]]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                while True:
                    yield [await anext(lines)]
        await asyncio.sleep(silence_s)


def test_a_process_that_slept_does_not_believe_its_store():
    store = Store[Pod]()
    for step in (ListBegan(), ListEnded("1"), WatchAlive("1", 90.0)):
        store.apply(step, scope="", now=1000.0)
    assert store.is_current(1089.0)
    assert not store.is_current(1091.0)


async def test_a_server_that_asks_for_an_hour_is_asked_again_after_the_longest_pause():
    cluster, store = LittleCluster(), Store[Pod]()
    cluster.put(pods_path("shop", "web"), pod())
    asked = 0

    def fault(_method: str, _path: str, query: Mapping[str, str]) -> Refusal | None:
        nonlocal asked
        asked += "watch" in query
        later = Refusal(503, "ServiceUnavailable", retry_after="3600")
        return later if "watch" in query and asked <= 2 else None

    cluster.fault = fault
    async with reflected(cluster, store, ALL):
        await until(store.is_current)
    assert asked == 3
