"""What pods use: leaks that end in a kill, limits that the node has actuated, queues."""

from podscale.core.selectors import selector
from podscale.sandbox.controllers.kubelet import Kubelet
from podscale.sandbox.load import Load, Queue, Traffic
from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.objects.resources import SandboxResources
from podscale.sandbox.objects.storage import Storage

MIB = 2**20
NOW = 1_700_000_000.0
KEY = ("jobs", "worker-0")


def cluster(memory_limit="384Mi"):
    objects = SandboxObjects(Storage(wall=lambda: NOW), SandboxResources())
    resources = {"limits": {"memory": memory_limit}}
    objects.put(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": KEY[1], "namespace": KEY[0], "labels": {"app": "worker"}},
            "spec": {"containers": [{"name": "app", "resources": resources}]},
            "status": {
                "phase": "Running",
                "containerStatuses": [
                    {
                        "name": "app",
                        "ready": True,
                        "restartCount": 0,
                        "state": {"running": {"startedAt": "2023-11-14T22:00:00Z"}},
                        "resources": resources,
                    }
                ],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )
    return objects


def leaking(objects, until=10_000 * MIB):
    kubelet = Kubelet(objects)
    load = Load(objects, kubelet.kill_for_memory)
    load.set(
        "worker",
        Traffic(
            KEY[0],
            selector.parse("app=worker"),
            lambda _now: 0.0,
            memory_bytes=128 * MIB,
            leak_bytes_per_s=4 * MIB,
            leaks_until_bytes=until,
        ),
    )
    return load


def status(objects):
    return objects.get("pods", *KEY)["status"]["containerStatuses"][0]


def memory(load):
    return next(usage.memory_bytes for _, usage in load.pods())


def test_a_leak_ends_in_a_kill_that_the_pod_tells_of_and_starts_again_from_below():
    objects = cluster()
    load = leaking(objects)
    for second in range(65):
        load.advance(NOW + second)
    assert status(objects)["restartCount"] == 0
    load.advance(NOW + 65)
    found = status(objects)
    assert found["restartCount"] == 1
    assert found["lastState"]["terminated"]["reason"] == "OOMKilled"
    assert found["lastState"]["terminated"]["finishedAt"] == "2023-11-14T22:13:20Z"
    assert not found["ready"]
    load.advance(NOW + 66)
    assert memory(load) == 132 * MIB


def test_a_leak_that_ends_below_the_limit_kills_nobody():
    objects = cluster()
    load = leaking(objects, until=300 * MIB)
    for second in range(200):
        load.advance(NOW + second)
    assert status(objects)["restartCount"] == 0
    assert memory(load) == 300 * MIB


def test_the_limit_that_counts_is_the_actuated_one():
    objects = cluster()
    pod = objects.get("pods", *KEY)
    spec = {"containers": [{"name": "app", "resources": {"limits": {"memory": "1Gi"}}}]}
    objects.update("pods", *KEY, {**pod, "spec": spec})
    load = leaking(objects)
    for second in range(66):
        load.advance(NOW + second)
    assert status(objects)["restartCount"] == 1


def test_a_queue_fills_without_consumers_and_empties_with_them():
    queue = Queue("q", selector.parse("app=c"), lambda _now: 10.0, taken_per_s=5.0)
    assert queue.advance(NOW, 10.0, consumers=0) == 0
    assert queue.messages == 100
    assert queue.advance(NOW, 10.0, consumers=3) == 150
    assert queue.messages == 50
    assert queue.advance(NOW, 10.0, consumers=6) == 150
    assert queue.messages == 0
