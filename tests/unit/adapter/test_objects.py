"""What a request means of the cluster, and how it is told that it means the same again."""

import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace

from prometheus_client import Histogram

from adapter.apis.metric_apis import CustomApi
from adapter.apis.response_cache import ResponseCache
from adapter.discovery.objects import WatchedObjects
from adapter.discovery.registry import MetricRegistry
from adapter.provider import ObjectsMetric
from podscale.core.metrics import PodSamples, Sample
from podscale.core.selectors import selector
from podscale.kube.client.wire import decode, encode
from podscale.kube.columns.pods import PodStore
from podscale.kube.informer.list_watch import Changes, Kind
from podscale.kube.objects.pod import Pod
from podscale.serving.apis.api import ApiRequest, ApiResponse, Media
from podscale.serving.auth.user import ANONYMOUS_USER
from podscale.serving.request_info import request_info
from podscale.serving.status import Status
from tests.unit.adapter.world import MAPPER


def pod(name: str, version: int, app: str) -> Pod:
    metadata = {
        "name": name, "namespace": "shop", "resourceVersion": str(version), "labels": {"app": app},
    }  # fmt: skip
    return decode(encode({"metadata": metadata, "spec": {}, "status": {}}), Pod)


def feed(store: PodStore, kind: Kind, one: Pod) -> None:
    store.apply(Changes([(kind, one)], one.metadata.resource_version), scope="", now=0.0)


def test_pods_are_the_same_until_one_that_matches_changes():
    store = PodStore()
    feed(store, "ADDED", pod("web-0", 1, "web"))
    feed(store, "ADDED", pod("db-0", 2, "db"))
    objects = WatchedObjects(store, None)
    web, db = (objects.same_pods("shop", selector.parse(f"app={app}")) for app in ("web", "db"))
    nobody = objects.same_pods("shop", selector.parse("app=none"))
    assert web()
    feed(store, "MODIFIED", pod("db-0", 3, "db"))
    assert (web(), db(), nobody()) == (True, False, True)
    assert not db()  # and it stays so
    feed(store, "MODIFIED", pod("db-0", 4, "web"))  # a pod more that matches
    assert (web(), nobody()) == (False, True)
    feed(store, "ADDED", pod("none-0", 5, "none"))
    assert not nobody()


def test_pods_of_a_namespace_that_went_are_not_those_of_its_successor():
    store = PodStore()
    feed(store, "ADDED", pod("web-0", 1, "web"))
    is_same = WatchedObjects(store, None).same_pods("shop", selector.parse("app=web"))
    feed(store, "DELETED", pod("web-0", 2, "web"))
    feed(store, "ADDED", pod("web-0", 3, "web"))
    assert not is_same()


class GivenSources:
    """A metric that every pod has."""

    def __init__(self, store: PodStore, *, has_snapshot: bool) -> None:
        self.provider = SimpleNamespace(
            mapper=MAPPER, objects=WatchedObjects(store, None), at_once=self.at_once
        )
        self.has_snapshot = has_snapshot
        self.arrived: Callable[[], None] = lambda: None  # while an answer is on its way

    def at_once(self, question: ObjectsMetric) -> PodSamples | None:
        return samples_of(question) if self.has_snapshot else None

    async def read(self, questions: Sequence[ObjectsMetric]) -> list[PodSamples]:
        self.arrived()
        return [samples_of(question) for question in questions]


def samples_of(question: ObjectsMetric) -> PodSamples:
    return PodSamples({name: Sample(1000) for name in question.objects.names}, 100.0)


def api_of(sources: GivenSources) -> CustomApi:
    freshness = Histogram("age", "text", ["group"], registry=None)
    return CustomApi(
        sources, MetricRegistry, ResponseCache(60.0, lambda: 101.0), freshness, lambda: 101.0
    )


def request(app: str = "web") -> ApiRequest:
    path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/requests"
    query = {"labelSelector": [f"app={app}"]}
    info = request_info("GET", path, query)
    return ApiRequest("GET", path, info, query, {}, b"", ANONYMOUS_USER, Media(), 0.0)


def names_in(response: ApiResponse) -> list[str]:
    return [item["describedObject"]["name"] for item in json.loads(response.body)["items"]]


def test_an_answer_is_given_again_until_its_pods_change():
    store = PodStore()
    feed(store, "ADDED", pod("web-0", 1, "web"))
    api = api_of(GivenSources(store, has_snapshot=True))
    first = api.handle(request())
    feed(store, "ADDED", pod("db-0", 2, "db"))
    assert api.handle(request()) is first
    feed(store, "ADDED", pod("web-1", 3, "web"))
    assert names_in(api.handle(request())) == ["web-0", "web-1"]
    feed(store, "DELETED", pod("web-0", 4, "web"))
    assert names_in(api.handle(request())) == ["web-1"]


def test_a_kept_answer_does_not_pass_over_a_wrong_option():
    store = PodStore()
    feed(store, "ADDED", pod("web-0", 1, "web"))
    api = api_of(GivenSources(store, has_snapshot=True))
    first = api.handle(request())
    wrong, right = request(), request()
    wrong.query["limit"] = ["abc"]
    right.query["limit"] = ["500"]
    assert api.handle(request()) is first
    refused = api.handle(wrong)
    assert isinstance(refused, Status)
    assert refused.code == 400
    assert names_in(api.handle(right)) == ["web-0"]


async def test_what_changed_while_an_answer_was_on_its_way_is_not_missed():
    store = PodStore()
    feed(store, "ADDED", pod("web-0", 1, "web"))
    sources = GivenSources(store, has_snapshot=False)
    sources.arrived = lambda: feed(store, "ADDED", pod("web-1", 2, "web"))
    api = api_of(sources)
    assert names_in(await api.handle(request())) == ["web-0"]
    sources.arrived = lambda: None
    assert names_in(await api.handle(request())) == ["web-0", "web-1"]
    assert names_in(api.handle(request())) == ["web-0", "web-1"]  # from here on it is kept
