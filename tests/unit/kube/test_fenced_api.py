"""What leadership does to writes and to the pod's label."""

import asyncio
import json

import pytest

from podscale.kube.client.errors import NotLeading
from podscale.kube.client.resource import PODS
from podscale.kube.leadership.leading import FencedApi, leader_label
from podscale.kube.leadership.lease import Elector, Term
from tests.unit.kube.little import LittleCluster, MemoryApi, Refusal, pod, pods_path
from tests.unit.kube.replicas import Replica

pytestmark = pytest.mark.looptime


async def test_a_frozen_leader_knows_at_the_next_write_that_it_lost():
    cluster = LittleCluster()
    one = Replica(cluster, "one")
    await asyncio.sleep(5)
    writes = FencedApi(one.api, one.elector)
    cluster.put(pods_path("shop", "web"), pod())
    body = json.dumps({"metadata": {"labels": {"a": "b"}}}).encode()
    await writes.request("PATCH", pods_path("shop", "web"), body=body)
    one.clock.jump_s = 11.0  # SIGSTOP, SIGCONT: no task has run yet
    with pytest.raises(NotLeading):
        await writes.request("PATCH", pods_path("shop", "web"), body=body)
    assert (await writes.request("GET", pods_path("shop", "web"))).status == 200
    await one.stop()


async def test_a_leader_frozen_while_a_write_waits_does_not_send_it():
    cluster = LittleCluster()
    one = Replica(cluster, "one")
    await asyncio.sleep(5)
    cluster.put(pods_path("shop", "web"), pod())
    one.api.delay_s = 1.0
    write = asyncio.create_task(
        FencedApi(one.api, one.elector).request("PATCH", pods_path("shop", "web"), body=b"{}")
    )
    await asyncio.sleep(0.5)
    one.clock.jump_s = 11.0
    with pytest.raises(NotLeading):
        await write
    assert ("PATCH", pods_path("shop", "web"), {}) not in cluster.requests
    await one.stop()


async def test_the_leader_label_goes_with_the_lease():
    cluster = LittleCluster()
    key = "leader.podscale.io/hpa"
    cluster.put(pods_path("podscale", "one"), pod())
    cluster.put(pods_path("podscale", "dead"), pod({key: "true"}))

    def label(name: str) -> object:
        return cluster.objects[pods_path("podscale", name)]["metadata"]["labels"].get(key)  # type: ignore[index]

    on_change = leader_label(MemoryApi(cluster), namespace="podscale", pod="one", part="hpa")
    one = Replica(cluster, "one", on_change)
    await asyncio.sleep(5)
    assert (label("one"), label("dead")) == ("true", None)
    await one.stop()
    assert label("one") is None


async def test_a_label_that_another_pod_keeps_is_taken_off_in_the_same_term():
    cluster = LittleCluster()
    key = "leader.podscale.io/hpa"
    for name, labels in (("one", {}), ("dead", {key: "true"}), ("left", {key: "true"})):
        cluster.put(pods_path("podscale", name), pod(labels))
    cluster.fault = lambda method, path, _query: (
        Refusal(503, "ServiceUnavailable") if method == "PATCH" and "dead" in path else None
    )

    def leaders() -> set[str]:
        names = ("one", "dead", "left")
        labels = {n: cluster.objects[pods_path("podscale", n)]["metadata"]["labels"] for n in names}  # type: ignore[index]
        return {name for name in names if labels[name].get(key) == "true"}

    on_change = leader_label(MemoryApi(cluster), namespace="podscale", pod="one", part="hpa")
    one = Replica(cluster, "one", on_change)
    await asyncio.sleep(20)
    assert leaders() == {"one", "dead"}
    cluster.fault = lambda *_: None
    await asyncio.sleep(31)
    assert leaders() == {"one"}
    await one.stop()


async def test_one_pod_bears_a_label_for_each_part_that_it_leads():
    cluster = LittleCluster()
    cluster.put(pods_path("podscale", "one"), pod())
    parts = ("hpa", "recommender", "updater")
    changes = {
        part: leader_label(MemoryApi(cluster), namespace="podscale", pod="one", part=part)
        for part in parts
    }
    for part in parts:
        await changes[part](True)
    await changes["updater"](False)
    labels = cluster.objects[pods_path("podscale", "one")]["metadata"]["labels"]  # type: ignore[index]
    assert {key for key, value in labels.items() if value == "true"} == {
        "leader.podscale.io/hpa", "leader.podscale.io/recommender",
    }  # fmt: skip


async def test_a_label_that_cannot_be_written_does_not_end_the_term():
    cluster = LittleCluster()
    cluster.fault = lambda _method, path, _query: (
        Refusal(403, "Forbidden") if path.startswith(PODS.path("podscale")) else None
    )
    on_change = leader_label(MemoryApi(cluster), namespace="podscale", pod="one", part="hpa")
    one = Replica(cluster, "one", on_change)
    await asyncio.sleep(30)
    assert one.elector.may_write()
    await one.stop()


@pytest.mark.parametrize("is_grouped", [False, True])
async def test_a_write_stopped_by_the_guard_ends_the_term_and_not_the_process(is_grouped: bool):
    cluster = LittleCluster()
    terms: list[Term] = []

    async def work(term: Term) -> None:
        terms.append(term)
        if len(terms) > 1:
            await asyncio.Event().wait()
        error = NotLeading("the Lease has run out")
        raise (
            ExceptionGroup("tasks", [error, ExceptionGroup("more", [error])])
            if is_grouped
            else error
        )

    elector = Elector(MemoryApi(cluster), namespace="podscale", name="hpa", identity="one")
    running = asyncio.create_task(elector.run(work))
    await asyncio.sleep(10)
    assert len(terms) == 2
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})


async def test_another_error_of_the_work_ends_it_even_beside_the_guard():
    async def work(_term: Term) -> None:
        raise ExceptionGroup("tasks", [NotLeading("no"), ValueError("a bug")])

    elector = Elector(MemoryApi(LittleCluster()), namespace="podscale", name="hpa", identity="one")
    with pytest.raises(ExceptionGroup):
        await elector.run(work)
