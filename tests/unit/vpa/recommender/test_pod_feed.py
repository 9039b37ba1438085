"""OOM kills on their way from the pods' watch into the model."""

import json
from typing import Any

from podscale.core.selectors import selector
from podscale.kube.client.wire import decode
from podscale.kube.columns.pods import PodStore
from podscale.kube.informer.list_watch import Changes
from podscale.kube.informer.store import Store
from podscale.kube.objects.pod import Pod
from tests.unit.vpa.model.worlds import NOW, vpa
from vpa.model.cluster import ClusterModel
from vpa.recommender.pod_feed import PodFeed, StoredEvent

GIB = 2**30


def pod(version: int, restarts: int = 0, last: dict[str, Any] | None = None) -> Pod:
    running = {"running": {"startedAt": "2026-03-02T00:00:00Z"}}
    status: dict[str, Any] = {"name": "app", "restartCount": restarts, "state": running}
    if last is not None:
        status["lastState"] = {"terminated": last}
    raw = {
        "metadata": {"name": "web-0", "namespace": "shop", "labels": {"app": "web"},
                     "uid": "00000000-0000-4000-8000-000000000001",
                     "resourceVersion": str(version)},
        "spec": {"nodeName": "n", "containers": [
            {"name": "app", "resources": {"requests": {"memory": "1Gi"}}}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }  # fmt: skip
    return decode(json.dumps(raw).encode(), Pod)


def killed(reason: str = "OOMKilled") -> dict[str, Any]:
    return {"reason": reason, "startedAt": "2026-03-02T00:00:00Z",
            "finishedAt": "2026-03-02T00:05:00Z"}  # fmt: skip


class World:
    """A pod that runs, a VPA that means it, and a feed that follows."""

    def __init__(self) -> None:
        self.pods = PodStore(("",))
        self.cluster = ClusterModel()
        self.cluster.put_vpa(vpa(), selector.parse("app=web"), NOW)
        self.feed = PodFeed(self.pods, Store[StoredEvent](), self.cluster)
        self.feed.start()
        self.happens("ADDED", pod(1))
        self.feed.load(NOW, lambda _: True)

    def happens(self, kind: Any, found: Pod) -> None:
        version = found.metadata.resource_version
        self.pods.apply(Changes([(kind, found)], version), scope="", now=0.0)


def test_a_restart_count_that_grows_with_the_pods_last_state_is_a_kill() -> None:
    world = World()
    world.happens("DELETED", pod(2, 1, killed()))
    world.feed.load(NOW, lambda _: True)
    (oom,) = world.feed.take_ooms()
    # The pod stays in the model until its kills have been recorded.
    assert world.cluster.record_oom(oom)
    assert world.cluster.has_pod("shop", "web-0")
    world.feed.remove()
    assert not world.cluster.has_pod("shop", "web-0")
    assert oom.memory_bytes == GIB


def test_a_pod_that_just_goes_was_not_killed() -> None:
    for last in (None, killed("Completed")):
        world = World()
        world.happens("DELETED", pod(2, 0 if last is None else 1, last))
        assert world.feed.take_ooms() == []


def test_a_kill_that_was_seen_does_not_count_again_when_the_pod_goes() -> None:
    world = World()
    world.happens("MODIFIED", pod(2, 1, killed()))
    world.happens("DELETED", pod(3, 1, killed()))
    assert len(world.feed.take_ooms()) == 1
