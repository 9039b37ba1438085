"""What a request means of the cluster, and how it is told that it means the same again."""

from adapter.objects import Objects
from podscale.core import selector
from podscale.kube.objects.pod import Pod
from podscale.kube.pods import PodStore
from podscale.kube.watching import Changes, Kind
from podscale.kube.wire import decode, encode


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
    objects = Objects(store, None)
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
    is_same = Objects(store, None).same_pods("shop", selector.parse("app=web"))
    feed(store, "DELETED", pod("web-0", 2, "web"))
    assert not is_same()
    feed(store, "ADDED", pod("web-0", 3, "web"))
    assert not is_same()
