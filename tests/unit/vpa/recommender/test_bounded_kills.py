"""OOM kills that tenants write into Events: none of them hides another's."""

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

from prometheus_client import CollectorRegistry

from podscale.core.selectors import selector
from podscale.kube.client.wire import decode, encode
from podscale.kube.informer.list_watch import Changes
from podscale.kube.informer.store import Store
from podscale.kube.objects.pod import Pod
from tests.unit.vpa.model.worlds import NOW, vpa
from tests.unit.vpa.test_stores import API, NoKinds
from vpa.model.groups import Oom
from vpa.recommender.flags import Options
from vpa.recommender.loop import Recommender
from vpa.recommender.part import RecommenderPart
from vpa.recommender.pod_feed import StoredEvent
from vpa.recommender.selfmetrics import RecommenderMetrics
from vpa.stores import VpaStores

MANY = [f"c{number}" for number in range(8_000)]


class World:
    """A recommender whose VPA ``shop/web`` means the pods with ``app: web``."""

    def __init__(self) -> None:
        self.stores = VpaStores(API, NoKinds())
        self.evictions: Store[StoredEvent] = Store(("",))
        provider: Any = None  # nothing is measured
        metrics = RecommenderMetrics(CollectorRegistry())
        made = Recommender(API, self.stores, self.evictions, provider, Options(), metrics)
        made.cluster.put_vpa(vpa(), selector.parse("app=web"), NOW)
        self.feed = made._feed
        self.feed.start()
        self._versions = count(1)

    def pod(self, name: str, app: str) -> None:
        meta = {"name": name, "namespace": "shop", "uid": name, "labels": {"app": app}}
        raw = {"metadata": meta, "spec": {"containers": [{"name": "app"}]}}
        self._happens(self.stores.pods, raw, Pod)

    def evicted(self, namespace: str, pod: str, containers: Sequence[str] = ("app",)) -> None:
        """Write the Event of the kubelet, as whoever may create Events can."""
        notes = {
            "offending_containers": ",".join(containers),
            "offending_containers_usage": ",".join("1Gi" for _ in containers),
            "starved_resource": ",".join("memory" for _ in containers),
        }
        meta = {"name": f"event-{next(self._versions)}", "namespace": namespace,
                "creationTimestamp": "2026-03-02T00:00:00Z", "annotations": notes}  # fmt: skip
        about = {"kind": "Pod", "namespace": namespace, "name": pod}
        raw = {"metadata": meta, "reason": "Evicted", "involvedObject": about}
        self._happens(self.evictions, raw, StoredEvent)

    def _happens(self, store: Any, raw: dict[str, Any], kind: Any) -> None:
        version = raw["metadata"]["resourceVersion"] = str(next(self._versions))
        added = decode(json.dumps(raw).encode(), kind)
        store.apply(Changes([("ADDED", added)], version), scope="", now=0.0)

    def kills(self) -> list[Oom]:
        return self.feed.take_ooms()


def test_one_event_with_thousands_of_containers_hides_no_kill_of_another_namespace() -> None:
    world = World()
    world.evicted("alice", "pod", MANY)
    world.evicted("bob", "pod")
    kills = world.kills()
    assert [oom.namespace for oom in kills].count("alice") == 100
    assert [oom.pod for oom in kills if oom.namespace == "bob"] == ["pod"]


def test_whatever_is_written_in_a_namespace_the_others_have_their_room() -> None:
    world = World()
    for number in range(60):
        world.evicted("alice", f"pod-{number}", MANY[:100])
    world.evicted("bob", "pod")
    kills = world.kills()
    assert len(kills) == 1001
    assert kills[-1].namespace == "bob"


def test_one_pod_adds_no_more_than_its_containers_can_be() -> None:
    world = World()
    for first in range(0, 8_000, 50):
        world.evicted("alice", "pod", MANY[first : first + 50])
    assert len(world.kills()) == 100
    world.evicted("alice", "pod")  # and again in the next pass
    assert len(world.kills()) == 1


def test_pods_without_a_vpa_leave_the_room_to_those_that_have_one() -> None:
    world = World()
    world.pod("web", "web")
    world.pod("other", "other")
    for number in range(60):
        world.evicted("shop", f"pod-{number}", MANY[:100])
    world.evicted("shop", "other")
    world.evicted("shop", "web")
    assert [oom.pod for oom in world.kills() if oom.container == "app"] == ["web"]


def test_of_an_event_larger_than_a_kubelets_little_is_kept() -> None:
    provider: Any = None
    part = RecommenderPart(
        API, VpaStores(API, NoKinds()), provider, Options(), CollectorRegistry(), lease=None
    )
    world = World()
    world.evictions = part._evictions
    world.evicted("alice", "pod", MANY)
    world.evicted("bob", "pod")
    sizes = {each.metadata.namespace: len(encode(each)) for each in part._evictions.values()}
    assert sizes["alice"] < sizes["bob"] < 1024


def test_of_what_somebody_adds_to_an_event_nothing_is_kept() -> None:
    added = {f"{place}": "" for place in range(1000)}
    raw = {
        "metadata": {"name": "e", "namespace": "alice", "labels": added,
                     "annotations": {**added, "starved_resource": "memory"}},
        "reason": "Evicted", "involvedObject": {"kind": "Pod", "name": "p", "namespace": "alice"},
    }  # fmt: skip
    kept = decode(json.dumps(raw).encode(), StoredEvent).kept()
    assert kept.metadata.annotations == {"starved_resource": "memory"}
    assert kept.metadata.labels is None
    assert kept.involved_object.name == "p"
