"""Between the look and the write time passes: what was decided is done only while it holds."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hpa.cluster.stores import TargetWorkload
from hpa.decide.settings import Settings
from hpa.loop.state import Options
from podscale.kube.client.errors import ApiUnreachable, ServerFailed, WriteConflict
from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import decode
from podscale.kube.informer.list_watch import WatchBroken
from podscale.kube.leadership.lease import Term
from tests.unit.hpa.webs import load, web
from tests.unit.hpa.world import (
    NS,
    Cluster,
    KnownKinds,
    deployment_object,
    hpa_object,
    pod_object,
    writer,
)

pytestmark = pytest.mark.looptime

SETTINGS = Settings(sync_period_s=15.0, downscale_stabilization_s=0.0)
Change = Callable[[Cluster], None]


def two(cluster: Cluster, size: int) -> None:
    """Put two workloads that want to be scaled; only one can be written at a time."""
    for name in ("first", "second"):
        cluster.put(hpa_object(name, most=10), deployment_object(name, size))
    cluster.put_pods(*(pod_object(n, row) for n in ("first", "second") for row in range(size)))


def rewritten(cluster: Cluster, **metadata: Any) -> dict[str, Any]:
    """Store ``second`` with other metadata, as another client's write."""
    found = cluster.world.hpas[(NS, "second")]
    version = cluster.world.next_version()
    meta = {**found["metadata"], **metadata, "resourceVersion": version}
    found = cluster.world.hpas[(NS, "second")] = {**found, "metadata": meta}
    return found


def deleted(cluster: Cluster) -> None:
    del cluster.world.hpas[(NS, "second")]
    cluster.sync()


def replaced(cluster: Cluster) -> None:
    rewritten(cluster, uid="another")
    cluster.sync()


def paused(cluster: Cluster) -> None:
    rewritten(cluster, annotations={"podscale.io/paused": "true"})
    cluster.sync()


def edited(cluster: Cluster) -> None:
    found = rewritten(cluster, generation=2)
    found["spec"] = {**found["spec"], "minReplicas": 4, "maxReplicas": 4}
    cluster.sync()


def taken(cluster: Cluster) -> None:
    rewritten(cluster, managedFields=[writer("kube-controller-manager", "2026-11-21T10:00:00Z")])
    cluster.sync()


def blinded(cluster: Cluster) -> None:
    cluster.stores.pods.apply(WatchBroken("the stream broke", None), scope="", now=0.0)


SIZES = (("second", 2), ("other", 7))
CHANGES = [deleted, replaced, paused, edited, taken]


def sizes(cluster: Cluster, name: str) -> list[int]:
    return [size for each, size in cluster.scales() if each == name]


@pytest.mark.parametrize("change", [*CHANGES, blinded])
async def test_what_waited_for_its_turn_is_looked_at_again(change: Change) -> None:
    cluster = Cluster(settings=SETTINGS, options=Options(writes=1))
    two(cluster, 4)
    cluster.provider.usage = lambda _question, _pod: 500
    cluster.world.delay = lambda method, path: (
        5.0 if method == "PUT" and "first/scale" in path else 0.0
    )
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(16.0)  # the first pass remembers the size it found
    change(cluster)
    await asyncio.sleep(6.0)
    assert sizes(cluster, "first") == [2]
    assert 2 not in sizes(cluster, "second")
    leading.cancel()
    await asyncio.wait({leading})


async def test_a_look_at_a_broken_watch_shrinks_nothing_though_it_is_mended_since() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 4)
    load(cluster, 500)
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(14.0)  # the first pass remembers the size it found
    blinded(cluster)
    cluster.provider.delay_s = 10.0
    await asyncio.sleep(5.0)
    # Eight pods, of which the pass on its way knows four.
    cluster.put_pods(*(pod_object("web", n) for n in range(8)))
    cluster.provider.delay_s = 0.0
    await asyncio.sleep(8.0)
    trace = cluster.controller.traces.last((NS, "web"))
    assert trace is not None
    assert (trace.outcome.scale, cluster.scales()) == ("not_tried", [])
    leading.cancel()
    await asyncio.wait({leading})


@pytest.mark.parametrize("change", [*CHANGES, blinded])
async def test_after_a_conflict_it_is_looked_at_again(change: Change) -> None:
    cluster = Cluster(settings=SETTINGS)
    two(cluster, 4)
    cluster.provider.usage = lambda _question, _pod: 500
    tried: list[int] = []

    def fail(method: str, path: str) -> Exception | None:
        if method == "PUT" and path.endswith("second/scale"):
            tried.append(1)
            if len(tried) == 1:
                change(cluster)
                return WriteConflict(409, "Conflict", "the object has been modified")
        return None

    cluster.world.fail = fail  # type: ignore[assignment]
    await cluster.run_for(16.0)
    assert sizes(cluster, "first") == [2]
    assert sizes(cluster, "second")[:1] == [2]
    assert 2 not in sizes(cluster, "second")[1:]


async def test_what_waited_for_minutes_is_decided_anew_from_what_is_measured_then() -> None:
    cluster = Cluster(settings=SETTINGS, options=Options(writes=8))  # two of one namespace
    for number in range(40):
        name = f"web{number:02}"
        cluster.put(hpa_object(name, most=10), deployment_object(name, 5))
    cluster.put_pods(*(pod_object(f"web{n:02}", row) for n in range(40) for row in range(5)))
    cluster.provider.usage = lambda _question, _pod: 1000  # as it should be
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(31.0)
    assert cluster.scales() == []
    # The API server hangs: what is written takes 10 s, and then it fails.
    cluster.world.delay = lambda method, _path: 0.0 if method == "GET" else 10.0
    cluster.world.fail = lambda method, _path: (
        None if method == "GET" else ApiUnreachable("too late", is_timeout=True)
    )
    cluster.provider.usage = lambda _question, _pod: 100  # nobody knows why
    await asyncio.sleep(25.0)
    cluster.provider.usage = lambda _question, _pod: 1000
    await asyncio.sleep(20.0)
    cluster.world.delay = lambda _method, _path: 0.0
    cluster.world.fail = lambda _method, _path: None
    before = len(cluster.scales())
    await asyncio.sleep(300.0)
    assert cluster.scales()[before:] == []
    assert {each["spec"]["replicas"] for each in cluster.world.workloads.values()} == {5}
    for name in ("web00", "web39"):  # and all are decided on again
        trace = cluster.controller.traces.last((NS, name))
        assert trace is not None
        assert cluster.wall() - trace.now <= 15.0
    leading.cancel()
    await asyncio.wait({leading})


async def test_where_more_is_wanted_than_goes_in_everybody_gets_a_turn() -> None:
    cluster = Cluster(settings=SETTINGS, options=Options(writes=8))  # two of one namespace
    names = [f"web{number:02}" for number in range(12)]
    for name in names:
        cluster.put(hpa_object(name, most=10), deployment_object(name, 4))
    cluster.put_pods(*(pod_object(name, row) for name in names for row in range(4)))
    cluster.world.delay = lambda method, _path: 0.0 if method == "GET" else 5.0

    def usage(_question: object, pod: str) -> int:
        if pod[:5] in names[-4:]:
            return 2000  # the last ones are to be doubled, the others have a status to write
        return 1050 if asyncio.get_running_loop().time() // 15.0 % 2 else 920

    cluster.provider.usage = usage
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(300.0)
    assert {name for name, _ in cluster.scales()} == {*names[-4:]}
    leading.cancel()
    await asyncio.wait({leading})


async def test_a_refusal_that_came_late_is_told() -> None:
    cluster = Cluster(settings=SETTINGS, options=Options(writes=1))
    two(cluster, 4)
    cluster.provider.usage = lambda _question, _pod: 500
    cluster.world.delay = lambda _method, path: 9.0 if path.endswith("/scale") else 0.0
    cluster.world.fail = lambda method, path: (
        ServerFailed(500, "InternalError", "the webhook hangs")
        if method == "PUT" and path.endswith("/scale")
        else None
    )
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(45.0)
    told = {
        name
        for name, status in cluster.statuses()
        for each in status.get("conditions", ())
        if each["reason"] == "FailedUpdateScale"
    }
    assert told == {"first", "second"}
    leading.cancel()
    await asyncio.wait({leading})


async def test_a_status_that_waited_for_minutes_is_not_written_any_more() -> None:
    cluster = Cluster(settings=SETTINGS, options=Options(writes=1))
    two(cluster, 4)
    cluster.world.delay = lambda method, path: (
        16.0 if method == "PATCH" and "first/status" in path else 0.0
    )
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(16.5)  # so long the second one waits
    assert [name for name, _ in cluster.statuses()] == ["first"]
    await asyncio.sleep(31.0)
    assert "second" in [name for name, _ in cluster.statuses()]
    leading.cancel()
    await asyncio.wait({leading})


# While its scale is read, and while those of others of its batch still are.
@pytest.mark.parametrize(("read_s", "edited_s"), [(5.0, 2.0), (0.1, 0.5)])
async def test_a_target_that_is_another_after_its_scale_was_read_is_read_anew(
    read_s: float, edited_s: float
) -> None:
    rollouts = Resource("argoproj.io", "v1alpha1", "rollouts", "Rollout")
    cluster = Cluster(settings=SETTINGS, kinds=KnownKinds(rollouts))
    target = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "second"}
    cluster.put(
        hpa_object("second", scaleTargetRef=target),
        {**deployment_object("second", 2), "kind": "ReplicaSet"},
        {**deployment_object("other", 7), "kind": "ReplicaSet"},
    )
    cluster.put_pods(*(pod_object(n, row) for n, size in SIZES for row in range(size)))
    cluster.put(hpa_object("third", scaleTargetRef={**target, "name": "other"}))
    delays = {"second": read_s, "other": 0.9}
    cluster.world.delay = lambda _method, path: next(
        (each for name, each in delays.items() if f"rollouts/{name}/scale" in path), 0.0
    )
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(edited_s)
    found = rewritten(cluster, generation=2)
    found["spec"] = {**found["spec"], "scaleTargetRef": {**target, "name": "other"}}
    cluster.sync()
    await asyncio.sleep(20.0)
    statuses = [status for name, status in cluster.statuses() if name == "second"]
    assert {status["currentReplicas"] for status in statuses if "currentReplicas" in status} <= {7}
    assert cluster.scales() == []
    leading.cancel()
    await asyncio.wait({leading})


async def test_a_conflict_with_another_size_is_decided_anew_and_not_undone() -> None:
    cluster = Cluster(settings=SETTINGS)
    cluster.put(hpa_object("web", most=20), deployment_object("web", 4))
    cluster.put_pods(*(pod_object("web", row) for row in range(4)))
    cluster.provider.usage = lambda _question, _pod: 1500  # 6

    def fail(method: str, path: str) -> Exception | None:
        found = cluster.world.workloads[(NS, "web")]
        if method == "PUT" and path.endswith("web/scale") and found["spec"]["replicas"] == 4:
            found["spec"] = {**found["spec"], "replicas": 15}
            found["metadata"]["resourceVersion"] = cluster.world.next_version()
        return None

    cluster.world.fail = fail  # type: ignore[assignment]
    await cluster.run_for(1.0)
    assert cluster.scales() == [("web", 6)]
    assert cluster.world.workloads[(NS, "web")]["spec"]["replicas"] == 15
    trace = cluster.controller.traces.last((NS, "web"))
    assert trace is not None
    assert trace.outcome is not None
    assert trace.outcome.scale == "conflict"


async def test_the_status_is_written_against_the_version_that_was_decided_on() -> None:
    cluster = Cluster(settings=SETTINGS)
    cluster.put(hpa_object("second"), deployment_object("second", 2))
    cluster.put_pods(pod_object("second", 0), pod_object("second", 1))
    cluster.provider.usage = lambda _question, _pod: 2000
    cluster.world.delay = lambda _method, path: 5.0 if path.endswith("/scale") else 0.0
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(1.0)
    rewritten(cluster, labels={"by": "somebody"})
    cluster.sync()
    await asyncio.sleep(6.0)
    patches = [body for method, _, body in cluster.world.writes if method == "PATCH"]
    assert patches[0]["metadata"]["resourceVersion"] == "1"
    assert "FailedUpdateStatus" in [event[2] for event in cluster.recorder.events]
    await asyncio.sleep(30.0)
    assert cluster.world.hpas[(NS, "second")]["status"]["desiredReplicas"] == 4
    leading.cancel()
    await asyncio.wait({leading})


async def test_nothing_of_an_object_comes_back_that_was_deleted_mid_pass() -> None:
    cluster = Cluster(settings=SETTINGS)
    two(cluster, 4)
    cluster.provider.delay_s = 5.0
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(1.0)
    deleted(cluster)
    await asyncio.sleep(40.0)
    assert cluster.controller.traces.last((NS, "first")) is not None
    assert cluster.controller.traces.last((NS, "second")) is None
    assert "shop/first" in cluster.world.histories()
    assert "shop/second" not in cluster.world.histories()
    assert sizes(cluster, "second") == []
    leading.cancel()
    await asyncio.wait({leading})


async def test_of_a_thousand_rescales_one_in_twenty_meets_a_conflict_at_most() -> None:
    # As a Deployment's controller does: after each change of size its status changes for seconds.
    cluster = Cluster(settings=SETTINGS)
    names = [f"web{number:02}" for number in range(50)]
    policies = [{"type": "Pods", "value": 100, "periodSeconds": 15}]
    behavior = {
        "scaleUp": {"policies": policies, "stabilizationWindowSeconds": 0},
        "scaleDown": {"policies": policies, "stabilizationWindowSeconds": 0},
    }
    for name in names:
        cluster.world.hpas[NS, name] = hpa_object(name, behavior=behavior)
        cluster.world.workloads[NS, name] = deployment_object(name, 2)
    cluster.sync()
    cluster.put_pods(*(pod_object(name, row) for name in names for row in range(2)))
    cluster.provider.delay_s = 0.7  # metrics are waited for meanwhile
    ends = asyncio.get_running_loop().time() + 330.0

    async def roll(name: str, every_s: float) -> None:
        while asyncio.get_running_loop().time() < ends:
            await asyncio.sleep(every_s)
            found = cluster.world.workloads[NS, name]
            found["metadata"]["resourceVersion"] = cluster.world.next_version()
            told = decode(msgspec.json.encode(found), TargetWorkload)
            await asyncio.sleep(0.02)  # what a watch takes to tell
            cluster.stores.deployments.accept(told)

    async def alternate() -> None:
        while asyncio.get_running_loop().time() < ends:
            for usage in (2000, 500):
                load(cluster, usage)
                await asyncio.sleep(15.0)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(alternate())
        for number, name in enumerate(names):
            tasks.create_task(roll(name, 0.5 + number / 100))
        tasks.create_task(cluster.run_for(330.0))
    writes = cluster.metrics.writes
    puts = writes["scale", "ok"] + writes.get(("scale", "conflict"), 0)
    print(f"{puts} PUTs of scales, {writes.get(('scale', 'conflict'), 0)} conflicts")
    assert puts >= 1000
    assert writes.get(("scale", "conflict"), 0) <= puts / 20
