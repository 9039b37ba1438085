"""A batch of passes: whoever is in it is decided on, remembered, told of and given back."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from hpa.cluster.foreign_controllers import QUIET_S
from hpa.cluster.record import Key
from hpa.cluster.writer import REPORTS_S
from hpa.decide.decision import Trace
from hpa.decide.reconcile import replay
from hpa.explain.explanation import explain
from hpa.loop.slot import PAGE
from podscale.core.metrics import Answer, ExternalMetric, Question, Unavailable
from podscale.kube.client.wire import ManagedField
from podscale.kube.leadership.lease import Term
from tests.unit.hpa.webs import SETTINGS, load, web
from tests.unit.hpa.world import NS, Cluster, deployment_object, hpa_object, pod_object

pytestmark = pytest.mark.looptime


class Follower:
    """Whoever follows is told the steps of every decision."""

    def __init__(self) -> None:
        self.told: list[Trace] = []

    def decided(self, key: Key, trace: Trace, reason: str) -> None:
        self.told.append(trace)

    def forgotten(self, key: Key | None) -> None: ...


@asynccontextmanager
async def leading(cluster: Cluster) -> AsyncIterator[None]:
    task = asyncio.ensure_future(cluster.controller.run(Term(None)))
    yield
    task.cancel()
    await asyncio.wait({task})


def webs(
    cluster: Cluster, count: int, annotations: Callable[[int], dict[str, str]] = lambda _: {}
) -> list[str]:
    names = [f"web{number:03}" for number in range(count)]
    for number, name in enumerate(names):
        cluster.world.workloads[NS, name] = deployment_object(name, 2)
        cluster.world.hpas[NS, name] = written = hpa_object(name)
        written["metadata"]["annotations"] = annotations(number)
    cluster.sync()
    cluster.put_pods(*(pod_object(name, n) for name in names for n in range(2)))
    return names


async def passes(cluster: Cluster, count: int) -> list[Trace]:
    """Return the trace after each of so many passes over `web`, one a period."""
    found = []
    for _ in range(count):
        await asyncio.sleep(15.0)
        trace = cluster.controller.traces.last((NS, "web"))
        assert trace is not None
        found.append(trace)
    return found


def decided(cluster: Cluster) -> int:
    return sum(cluster.metrics.pass_seconds.totals.values())


async def test_values_that_move_are_written_when_they_are_due() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    async with leading(cluster):
        await asyncio.sleep(40.0)
        cluster.world.writes.clear()
        load(cluster, 1050)
        await asyncio.sleep(REPORTS_S + 15.0)
        assert len(cluster.statuses()) == 1, "once in five minutes"
        load(cluster, 899)
        cluster.world.writes.clear()
        await asyncio.sleep(16.0)
        assert len(cluster.statuses()) == 1, "by more than a tenth"


async def test_whoever_follows_decisions_is_told_of_every_one() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    async with leading(cluster):
        await asyncio.sleep(61.0)
        cluster.controller.traces.follower = follower = Follower()
        await asyncio.sleep(60.0)
        assert len(follower.told) == 4
        assert all(trace.steps for trace in follower.told)


@pytest.mark.parametrize("comes", ["nobody", "other rescale"])
async def test_every_pass_is_in_the_history_once(comes: str) -> None:
    mode = "shadow" if comes == "other rescale" else "replace"
    cluster = Cluster(settings=msgspec.structs.replace(SETTINGS, mode=mode))
    web(cluster, 2, behavior={"scaleDown": {"stabilizationWindowSeconds": 180}})
    async with leading(cluster):
        found = await passes(cluster, 12)
        if comes == "other rescale":
            entry = cluster.controller.catalog.get((NS, "web"))
            assert entry is not None
            assert entry.hpa is not None
            status = msgspec.structs.replace(
                entry.hpa.status,
                last_scale_s=cluster.wall(),
                current_replicas=1,
                desired_replicas=2,
            )
            told = msgspec.structs.replace(entry.hpa, status=status)
            cluster.controller.state.memory.adopt(entry, told)
        found += await passes(cluster, 28)
    times = [trace.now for trace in found]
    assert times == sorted(set(times))
    assert len(found[-1].past.scale_ups) == (comes == "other rescale")
    for number, trace in enumerate(found):
        made = replay(trace).trace
        assert (made.steps, made.decided) == (trace.steps, trace.decided)
        kept = sorted(each.at for each in trace.past.recommendations or ())
        within = [at for at in times[:number] if at >= trace.now - 180.0]
        assert kept[len(kept) - len(within) :] == within
        assert len(kept) <= 180 / 15 + 2, "older ones make room"


def external(name: str) -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": "1"}
    return {"type": "External", "external": {"metric": {"name": name}, "target": target}}


@pytest.mark.parametrize("large", [1, 3])
@pytest.mark.parametrize("is_hanging", [False, True])
async def test_many_metrics_of_one_are_never_asked_for_with_those_of_others(
    large: int, is_hanging: bool
) -> None:
    cluster = Cluster(settings=SETTINGS)
    names = webs(cluster, 5)
    wide = external("m")
    for number in range(large):
        key = f"large{number}"
        metrics = [external(f"m{each}") for each in range(101 if number else 301)]
        cluster.put(hpa_object(key, *metrics), deployment_object(key, 2))
    cluster.put(hpa_object("most", *[wide] * 100), deployment_object("most", 2))
    answer = cluster.provider.answer
    under_way, most = 0, 0

    async def slow_for_the_large(questions: Sequence[Question]) -> Sequence[Answer]:
        nonlocal under_way, most
        if not all(isinstance(each, ExternalMetric) and each.metric != "m" for each in questions):
            return await answer(questions)
        under_way += 1
        most = max(most, under_way)
        try:
            await asyncio.sleep(100.0 if is_hanging else 1.0)
        finally:
            under_way -= 1
        return await answer(questions)

    cluster.provider.answer = slow_for_the_large  # type: ignore[method-assign]
    async with leading(cluster):
        await asyncio.sleep(3.0)
        traces = cluster.controller.traces
        for name in (*names, "most"):
            assert traces.last((NS, name)) is not None, "at once, the first time too"
        assert traces.last((NS, "large0")) is None
        assert not cluster.controller._changes.reconciler._metrics.is_slow  # type: ignore[union-attr]
        await asyncio.sleep(100.0 * large)
        last = traces.last((NS, "large0"))
    assert most == 1, "one part of one of them at a time"
    assert max(map(len, cluster.provider.asked)) == 105
    assert last is not None
    assert len(last.observation.answers) == 301
    assert all(isinstance(each, Unavailable) for each in last.observation.answers) == is_hanging
    told = [each for each in explain(last).sentences if "301 metrics are read apart" in each]
    assert len(told) == 1


async def test_a_bug_met_by_one_stops_neither_it_nor_the_others_of_its_page() -> None:
    cluster = Cluster(settings=SETTINGS)
    names = webs(cluster, 3)
    memory = cluster.controller.state.memory
    put = memory.put

    def fails_once(entry: Any, *args: Any, **more: Any) -> None:
        if entry.key[1] == names[1]:
            memory.put = put  # type: ignore[method-assign]
            raise RuntimeError("a bug")
        put(entry, *args, **more)

    async with leading(cluster):
        await asyncio.sleep(61.0)
        before = decided(cluster)
        memory.put = fails_once  # type: ignore[method-assign]
        with capture_logs() as logs:
            await asyncio.sleep(15.0)
        assert [each["event"] for each in logs] == ["pass failed"]
        assert decided(cluster) == before + 2
        await asyncio.sleep(15.0)
        assert decided(cluster) == before + 5


@pytest.mark.parametrize("during", ["answers", "pages"])
async def test_who_has_not_been_decided_on_is_given_back_by_passes_cut_short(during: str) -> None:
    cluster = Cluster(settings=SETTINGS)
    webs(cluster, PAGE + 6)
    async with leading(cluster):
        await asyncio.sleep(61.0)
        running = cluster.controller._changes.reconciler
        assert running is not None
        asked, answer = asyncio.Event(), cluster.provider.answer
        delay_s = 5.0 if during == "answers" else 0.0

        async def late(questions: Sequence[Question]) -> Sequence[Answer]:
            asked.set()
            if delay_s:
                await asyncio.sleep(delay_s)
            return await answer(questions)

        cluster.provider.answer = late  # type: ignore[method-assign]
        task = asyncio.ensure_future(running.run(list(cluster.controller.catalog)))
        before = decided(cluster)
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert decided(cluster) - before == (PAGE if during == "pages" else 0)
        assert all(not each.passes.is_under_way for each in cluster.controller.catalog)


async def test_whoever_else_scales_ends_what_is_decided_as_ours_and_the_other_way_round() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    async with leading(cluster):
        found = await passes(cluster, 4)
        other = ManagedField("kube-controller-manager", "", cluster.wall())
        record, foreign = (
            cluster.controller.catalog.get((NS, "web")),
            cluster.controller.state.foreign,
        )
        assert record is not None
        foreign.note_rescale(record.foreign, other, (1, 2), cluster.clock.now())
        watched = int(QUIET_S / 15.0)
        found += await passes(cluster, watched)
        found += await passes(cluster, 4)
    modes = [trace.settings.mode for trace in found]
    assert modes == ["replace"] * 4 + ["shadow"] * watched + ["replace"] * 4


def _schedules_of_its_own(number: int) -> dict[str, str]:
    entries = [
        {"start": f"{minute} 8 1 * *", "end": f"{number} 8 2 * *", "minReplicas": 2}
        for minute in range(20)
    ]
    return {"podscale.io/schedule": json.dumps(entries)}


async def test_schedules_that_are_new_wait_for_their_turn_and_delay_nobody_else() -> None:
    cluster = Cluster(settings=SETTINGS)
    webs(cluster, 30, _schedules_of_its_own)
    web(cluster, 2)
    async with leading(cluster):
        found = []
        for _ in range(4):
            await asyncio.sleep(15.0)
            found.append(decided(cluster))
    # Ten of them, of 20 entries each, and the one without a schedule; then ten more.
    assert found[0] == 11
    assert [after - before for before, after in itertools.pairwise(found)] == [21, 31, 31]
