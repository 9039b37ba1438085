"""What the updater remembers about a pod between its looks at it."""

from typing import Any

import msgspec
import pytest

from podscale.kube.objects.pod import Pod
from podscale.kube.pods import PodStore
from podscale.kube.wire import decode
from vpa.stored import pod_of
from vpa.updater.observe import Observer, Seen

DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
WORKING = {"type": "PodResizeInProgress", "status": "True"}


def seen(*conditions: dict[str, str], uid: str = "1") -> Seen:
    body = {
        "metadata": {"name": "web-0", "namespace": "shop", "uid": uid, "resourceVersion": "1"},
        "spec": {"containers": [], "nodeName": "n"},
        "status": {"phase": "Running", "conditions": conditions},
    }
    store = PodStore()
    store.accept(decode(msgspec.json.encode(body), Pod))
    view = store.get("shop", "web-0")
    assert view is not None
    return Seen(view, pod_of(view))


@pytest.fixture
def observer() -> Observer:
    stores: Any = None  # a clock needs none
    return Observer(stores)


def test_a_resize_is_timed_from_when_it_was_first_seen_in_any_state(observer: Observer) -> None:
    states = (DEFERRED, WORKING, DEFERRED, WORKING)
    ages = [observer.resize_since_s(seen(each), 100.0 * n) for n, each in enumerate(states)]
    assert ages == [0.0, 100.0, 200.0, 300.0]


def test_the_next_resize_has_a_clock_of_its_own(observer: Observer) -> None:
    observer.resize_since_s(seen(DEFERRED), 0.0)
    assert observer.resize_since_s(seen(), 100.0) == 0.0
    assert observer.resize_since_s(seen(WORKING), 200.0) == 0.0
    assert observer.resize_since_s(seen(WORKING, uid="2"), 300.0) == 0.0
    observer.forget({"2"})
    assert observer.resize_since_s(seen(WORKING), 400.0) == 0.0
    assert observer.resize_since_s(seen(WORKING, uid="2"), 400.0) == 100.0
