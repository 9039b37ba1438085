"""Whoever rests between two passes has its history and trace all the same, and its next pass."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from hpa.decide import Trace, replay
from hpa.foreign import QUIET_S
from hpa.looking import PAGE
from hpa.objects import ManagedField
from hpa.rest import Rested
from podscale.core.metrics import (
    Answer,
    ExternalMetric,
    ExternalSample,
    ExternalSamples,
    Question,
    Sample,
)
from tests.unit.hpa.test_repeats import QUEUE, Follower, leading
from tests.unit.hpa.webs import SETTINGS, load, web
from tests.unit.hpa.world import NS, Cluster, deployment_object, hpa_object, pod_object

pytestmark = pytest.mark.looptime


def webs(cluster: Cluster, count: int) -> list[str]:
    names = [f"web{number:03}" for number in range(count)]
    for name in names:
        cluster.world.workloads[NS, name] = deployment_object(name, 2)
        cluster.world.hpas[NS, name] = hpa_object(name)
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


@pytest.mark.parametrize("comes", ["nobody", "follower", "other rescale"])
async def test_every_pass_is_in_the_history_once_whenever_somebody_looks(comes: str) -> None:
    mode = "shadow" if comes == "other rescale" else "replace"
    cluster = Cluster(settings=msgspec.structs.replace(SETTINGS, mode=mode))
    web(cluster, 2, behavior={"scaleDown": {"stabilizationWindowSeconds": 180}})
    async with leading(cluster):
        found = await passes(cluster, 12)
        if comes == "follower":
            cluster.controller.traces.follower = Follower()
            found += await passes(cluster, 2)
            cluster.controller.traces.follower = None
        elif comes == "other rescale":
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
            cluster.controller.memory.adopt(entry, told)
        found += await passes(cluster, 28)
        assert cluster.metrics.repeated > 30
        last = cluster.controller.traces._kept[NS, "web"].last
        assert isinstance(last, Rested)
        assert len(last.rest.added) <= 8, "then they are made part of the past"
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


async def test_a_pass_is_told_of_as_it_was_while_others_follow_it() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    async with leading(cluster):
        await passes(cluster, 4)
        kept = cluster.controller.traces._kept[NS, "web"]
        rested, first = kept.last, kept.last.trace()
        found = await passes(cluster, 12)
        assert kept.last is not rested
        assert rested.trace() == first
        traces = cluster.controller.traces
        assert traces.at((NS, "web"), found[-1].now) == found[-1]
        before = traces.at((NS, "web"), found[-1].now - 1.0)
        assert before is not None
        assert before.now < found[-1].now
        assert before.steps == first.steps


async def test_a_change_is_packed_once_its_autoscaler_rests() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    traces = cluster.controller.traces
    async with leading(cluster):
        for milli in (905, 895, 905, 895):  # to either side of the tolerance, and little
            load(cluster, milli)
            await passes(cluster, 1)
        before = cluster.metrics.repeated
        assert traces._unpacked == {(NS, "web")}
        await passes(cluster, 1)
        assert cluster.metrics.repeated == before + 1
        assert traces._unpacked == set()


def _fails(*_args: Any, **_more: Any) -> Any:
    raise RuntimeError("a bug")


@pytest.mark.parametrize("where", ["totals_of", "are_within"])
async def test_a_page_that_cannot_be_repeated_is_decided_in_full(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(settings=SETTINGS)
    webs(cluster, 3)
    async with leading(cluster):
        await asyncio.sleep(61.0)
        before, decided = cluster.metrics.repeated, sum(cluster.metrics.passes.values())
        with monkeypatch.context() as patched, capture_logs() as logs:
            patched.setattr(f"hpa.repeats.{where}", _fails)
            await asyncio.sleep(15.0)
        assert [each["event"] for each in logs] == ["repeating failed"]
        await asyncio.sleep(15.0)
        assert cluster.metrics.repeated == before + 3
        assert sum(cluster.metrics.passes.values()) == decided + 6
        assert not any(entry.is_busy for entry in cluster.controller.catalog)


async def test_what_was_repeated_before_its_page_failed_is_not_decided_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    async with leading(cluster):
        await passes(cluster, 4)
        with monkeypatch.context() as patched, capture_logs() as logs:
            patched.setattr(cluster.metrics, "passed", _fails)
            await passes(cluster, 1)
        assert [each["event"] for each in logs] == ["repeating failed"]
        (last,) = await passes(cluster, 1)
        kept = [each.at for each in last.past.recommendations or ()]
        assert kept.count(last.now - 15.0) == 1


async def test_a_bug_met_by_one_stops_neither_it_nor_the_others_of_its_page() -> None:
    cluster = Cluster(settings=SETTINGS)
    names = webs(cluster, 3)
    memory = cluster.controller.memory
    rest = memory.rest

    def fails_once(entry: Any, *args: Any, **more: Any) -> Any:
        if entry.key[1] == names[1]:
            memory.rest = rest  # type: ignore[method-assign]
            raise RuntimeError("a bug")
        return rest(entry, *args, **more)

    async with leading(cluster):
        await asyncio.sleep(61.0)
        before, decided = cluster.metrics.repeated, sum(cluster.metrics.passes.values())
        memory.rest = fails_once  # type: ignore[method-assign]
        with capture_logs() as logs:
            await asyncio.sleep(15.0)
        assert [each["event"] for each in logs] == ["pass failed"]
        assert cluster.metrics.repeated == before + 2
        await asyncio.sleep(15.0)
        assert cluster.metrics.repeated == before + 4, "it is decided in full once"
        assert sum(cluster.metrics.passes.values()) == decided + 5


async def test_a_number_that_is_none_is_not_compared_and_hinders_no_other() -> None:
    cluster = Cluster(settings=SETTINGS)
    cluster.put(hpa_object("queue", QUEUE), deployment_object("queue", 2))
    webs(cluster, 2)
    value: Any = 2000
    cluster.provider.answer_with = lambda question: (
        ExternalSamples([ExternalSample({}, Sample(value, cluster.wall()))], cluster.wall())
        if isinstance(question, ExternalMetric)
        else None
    )
    async with leading(cluster):
        await asyncio.sleep(61.0)
        decided, before = sum(cluster.metrics.passes.values()), cluster.metrics.repeated
        value = math.nan
        await asyncio.sleep(30.0)
        assert sum(cluster.metrics.passes.values()) >= decided + 4
        assert cluster.metrics.repeated >= before + 2
        assert not any(entry.is_busy for entry in cluster.controller.catalog)
        assert cluster.scales() == []


@pytest.mark.parametrize("during", ["answers", "pages"])
async def test_who_has_not_been_decided_on_is_given_back_by_passes_cut_short(during: str) -> None:
    cluster = Cluster(settings=SETTINGS)
    webs(cluster, PAGE + 6)
    async with leading(cluster):
        await asyncio.sleep(61.0)
        running = cluster.controller._passes
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
        before = cluster.metrics.repeated
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cluster.metrics.repeated - before == (PAGE if during == "pages" else 0)
        assert not any(entry.is_busy for entry in cluster.controller.catalog)


async def test_whoever_else_scales_ends_what_is_repeated_as_ours_and_the_other_way_round() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    async with leading(cluster):
        found = await passes(cluster, 4)
        other = ManagedField("kube-controller-manager", "", cluster.wall())
        cluster.controller.foreign.note_rescale((NS, "web"), other, (1, 2), cluster.wall())
        watched = int(QUIET_S / 15.0)
        before = cluster.metrics.repeated
        found += await passes(cluster, watched)
        assert cluster.metrics.repeated == before + watched - 1
        found += await passes(cluster, 4)
    modes = [trace.settings.mode for trace in found]
    assert modes == ["replace"] * 4 + ["shadow"] * watched + ["replace"] * 4
