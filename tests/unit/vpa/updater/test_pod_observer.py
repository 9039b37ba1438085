"""What the updater remembers about a pod between its looks at it."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from podscale.core.selectors.selector import parse
from podscale.kube.client.wire import decode
from podscale.kube.columns.pod_set import PodView
from podscale.kube.columns.pods import PodStore
from podscale.kube.objects.pod import Pod
from tests.unit.vpa.updater.worlds import vpa
from vpa.admission.matching import Candidate, target_of
from vpa.updater.cluster.pod_observer import PodObserver

DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
WORKING = {"type": "PodResizeInProgress", "status": "True"}


def seen(*conditions: dict[str, str], uid: str = "1") -> PodView:
    body = {
        "metadata": {"name": "web-0", "namespace": "shop", "uid": uid, "resourceVersion": "1"},
        "spec": {"containers": [], "nodeName": "n"},
        "status": {"phase": "Running", "conditions": conditions},
    }
    store = PodStore()
    store.accept(decode(msgspec.json.encode(body), Pod))
    view = store.get("shop", "web-0")
    assert view is not None
    return view


class Moments:
    """A monotonic clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Moments:
    return Moments()


@pytest.fixture
def observer(clock: Moments) -> PodObserver:
    stores: Any = None  # a clock needs none
    return PodObserver(stores, clock=clock)


def test_a_resize_is_timed_from_when_it_was_first_seen_in_any_state(
    observer: PodObserver, clock: Moments
) -> None:
    ages = []
    for state in (DEFERRED, WORKING, DEFERRED, WORKING):
        ages.append(observer.resize_since_s(seen(state)))
        clock.now += 100.0
    assert ages == [0.0, 100.0, 200.0, 300.0]


def test_the_next_resize_has_a_clock_of_its_own(observer: PodObserver, clock: Moments) -> None:
    observer.resize_since_s(seen(DEFERRED))
    clock.now = 100.0
    assert observer.resize_since_s(seen()) == 0.0
    clock.now = 200.0
    assert observer.resize_since_s(seen(WORKING)) == 0.0
    clock.now = 300.0
    assert observer.resize_since_s(seen(WORKING, uid="2")) == 0.0
    observer.forget({"2"})
    clock.now = 400.0
    assert observer.resize_since_s(seen(WORKING)) == 0.0
    assert observer.resize_since_s(seen(WORKING, uid="2")) == 100.0


async def test_pods_without_a_node_are_seen_and_do_not_live() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs"}
    store = PodStore()
    for name, node, phase, deleted in (
        ("lives", "n", "Running", None),
        ("waits", "", "Pending", None),
        ("over", "n", "Succeeded", None),
        ("leaves", "", "Pending", "2026-03-09T12:00:00Z"),
    ):
        body = {
            "metadata": {
                "name": name, "namespace": "shop", "uid": name, "resourceVersion": "1",
                "labels": {"app": "web"}, "ownerReferences": [{**owner, "controller": True}],
                "deletionTimestamp": deleted,
            },
            "spec": {"containers": [], "nodeName": node},
            "status": {"phase": phase},
        }  # fmt: skip
        store.accept(decode(msgspec.json.encode(body), Pod))
    of_vpa = vpa(targetRef={"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})

    async def topmost(*_where: Any) -> Any:
        return target_of(of_vpa)

    stores: Any = SimpleNamespace(pods=store, workloads=SimpleNamespace(topmost=topmost))
    live, unscheduled = await PodObserver(stores).pods_of([Candidate(of_vpa, parse("app=web"))])
    assert [one.name for one in live] == ["lives"]
    assert [one.name for one in unscheduled] == ["waits"]
