"""Objects of a store by what they name."""

from podscale.kube.client.wire import PartialObjectMetadata, decode, encode
from podscale.kube.informer.store import Store, StoreIndex
from tests.kit.stores import fill


def named(name: str, app: str = "", version: str = "1") -> PartialObjectMetadata:
    meta = {"namespace": "shop", "name": name, "resourceVersion": version, "uid": name}
    return decode(encode({"metadata": {**meta, "labels": {"app": app}}}), PartialObjectMetadata)


def test_entries_follow_the_objects() -> None:
    store: Store[PartialObjectMetadata] = Store()
    fill(store, [named("a", "web"), named("b", "web"), named("c")], "1")
    index = StoreIndex(
        store,
        lambda each: (
            (app, each.metadata.name) if (app := (each.metadata.labels or {})["app"]) else None
        ),
    )
    assert list(index.get("web")) == ["a", "b"]
    fill(store, [named("a", "web", "2"), named("b", "db", "2"), named("c", "", "2")], "2")
    assert (list(index.get("web")), list(index.get("db"))) == (["a"], ["b"])
    fill(store, [named("c", "db", "3")], "3")
    assert (list(index.get("web")), list(index.get("db"))) == ([], ["c"])
