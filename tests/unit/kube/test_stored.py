"""What a store holds and tells: our own writes at once, of objects what it was told to keep."""

import pytest
from msgspec import structs

from podscale.kube.client.wire import ObjectMeta
from podscale.kube.columns.pods import PodStore
from podscale.kube.informer.fed_store import Change
from podscale.kube.informer.list_watch import Changes
from podscale.kube.informer.store import Store
from podscale.kube.objects.pod import Pod, PodStatus
from tests.kit.stores import fill


def written(name: str, version: int, uid: str = "u", **labels: str) -> Pod:
    meta = ObjectMeta(
        name=name, namespace="shop", uid=uid, resource_version=str(version), labels=labels or None
    )
    return Pod(meta)


@pytest.mark.parametrize("make", [Store, PodStore], ids=["structs", "columns"])
class TestOwnWrites:
    """The answer to our own write enters at once and is never undone by an older state."""

    def filled(self, make: type) -> object:
        store = make()
        fill(store, [written("web", 10)], "20", now=0.0, watched_s=90.0)
        return store

    def version(self, store: object) -> str:
        obj = store.get("shop", "web")  # type: ignore[attr-defined]
        return (
            obj.resource_version
            if hasattr(obj, "resource_version")
            else (obj.metadata.resource_version)
        )

    def test_is_visible_at_once(self, make):
        store = self.filled(make)
        store.accept(written("web", 25))
        assert self.version(store) == "25"

    def test_an_older_event_does_not_undo_it(self, make):
        store = self.filled(make)
        store.accept(written("web", 25))
        store.apply(Changes([("MODIFIED", written("web", 22))], "22"), scope="", now=1.0)
        assert self.version(store) == "25"

    def test_an_older_list_does_not_undo_it(self, make):
        store = self.filled(make)
        store.accept(written("web", 25))
        store.accept(written("created", 26))
        fill(store, [written("web", 10)], "24", now=1.0, watched_s=None)
        assert self.version(store) == "25"
        assert store.get("shop", "created") is not None

    def test_what_was_deleted_meanwhile_does_not_come_back(self, make):
        store = self.filled(make)
        store.apply(Changes([("DELETED", written("web", 30))], "30"), scope="", now=1.0)
        store.accept(written("web", 25))
        assert store.get("shop", "web") is None

    def test_a_deletion_of_the_former_object_spares_the_new_one(self, make):
        store = self.filled(make)
        store.accept(written("web", 40, uid="v"))
        store.apply(Changes([("DELETED", written("web", 30))], "30"), scope="", now=1.0)
        assert self.version(store) == "40"

    def test_a_new_object_of_the_same_name_is_a_deletion_and_an_addition(self, make):
        store = self.filled(make)
        told = []
        store.subscribe(lambda change: told.append((change.old is None, change.new is None)))
        store.apply(Changes([("MODIFIED", written("web", 31, uid="v"))], "31"), scope="", now=1.0)
        assert told == [(False, True), (True, False)]


def test_what_is_kept_is_what_the_store_was_told_to_keep_and_subscribers_see():
    store = Store[Pod](keep=lambda each: structs.replace(each, status=PodStatus()))
    told: list[Change[Pod]] = []
    store.subscribe(told.append)
    store.accept(structs.replace(written("web", 1), status=PodStatus(phase="Running")))
    kept = store.get("shop", "web")
    assert kept == written("web", 1)
    assert told[-1].new is kept


def test_a_thinner_form_stands_for_its_own_state_only():
    store = Store[Pod]()
    store.accept(structs.replace(written("web", 2), status=PodStatus(phase="Running")))
    told: list[Change[Pod]] = []
    store.subscribe(told.append)
    store.thin(written("web", 1))  # of a state that has gone
    assert store.get("shop", "web").status.phase == "Running"
    store.thin(written("web", 2))
    assert store.get("shop", "web") == written("web", 2)
    store.thin(written("gone", 2))
    assert store.get("shop", "gone") is None
    assert told == []
    store.accept(written("web", 3))
    assert told[-1].old == written("web", 2)
