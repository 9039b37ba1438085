"""A batch of the gate's child: what one autoscaler's past lacks is told of that one."""

import asyncio

import msgspec
import numpy as np
import pytest
from msgspec import structs

from hpa.decide.api.spec import HPA, HpaStatus
from hpa.decide.settings import Settings
from hpa.forecast.daily import DAY_S, GateAnswer, GateQuestion
from hpa.forecast.demand import DAY
from hpa.simulate.workload import key_of
from podscale.feed.options import PrometheusOptions
from podscale.feed.range_reader import HistoryColumns, HistorySlice
from podscale.kube.client.wire import Time
from podscale.kube.objects.autoscaler import AutoscalerCondition
from podscale.replay.gate_process import (
    GateProcess,
    _answered,
    _Asked,
    _Batch,
    _batches,
    _encode,
)
from podscale.replay.history import LoadQuery
from podscale.replay.inputs import ReplayError
from tests.unit.hpa.forecast.demands import jumps
from tests.unit.hpa.simulate.loads import web

TODAY_S = 20_000 * DAY_S


class Past:
    """A range reader: a query is how many minutes before today its series ends."""

    async def read(self, query, start_s, end_s, _step_s, **_):
        ended = int(query) if query.lstrip("-").isdigit() else None
        values = np.empty(0) if ended is None else 1000.0 * jumps(6)
        times = TODAY_S - 60.0 * ((ended or 0) + np.arange(len(values), 0, -1))
        labels = [msgspec.Raw(msgspec.msgpack.encode({}))] if len(values) else []
        series = HistoryColumns(labels, [len(values)] * len(labels), times, values)
        yield HistorySlice(start_s, end_s, series, 1.0)


@pytest.mark.parametrize("minutes", [5, 2 * DAY])
async def test_metrics_that_ended_before_today_leave_the_others_their_answers(minutes):
    hpa = web(maxReplicas=1000)
    asked = [
        _Asked(GateQuestion(hpa, {}), [LoadQuery(key_of(hpa.metrics[0]), str(ended))])
        for ended in (minutes, -5)
    ]
    gone, there = await _answered(_Batch(asked, Settings(), TODAY_S + 300.0), Past())
    assert isinstance(gone, str)
    assert "no sample of the metrics since" in gone
    assert isinstance(there, GateAnswer)
    assert there.plan is not None


@pytest.mark.looptime
async def test_an_autoscaler_that_takes_minutes_to_read_leaves_the_others_their_answers():
    class Slow(Past):
        async def read(self, query, *given, **more):
            if query == "slow":
                await asyncio.sleep(200.0)
            async for part in super().read(query, *given, **more):
                yield part

    hpa, now = web(maxReplicas=1000), asyncio.get_running_loop().time
    asked = [
        _Asked(GateQuestion(hpa, {}), [LoadQuery(key_of(hpa.metrics[0]), query)])
        for query in ("slow", "-5", "slow")
    ]
    began = now()
    one, there, other = await _answered(_Batch(asked, Settings(), TODAY_S + 300.0), Slow())
    assert isinstance(there, GateAnswer)
    assert one == other == "its history was not read within 50 s"
    assert now() - began <= 101.0


async def test_namespaces_take_turns_however_many_autoscalers_one_has():
    def refused(hpa: HPA) -> list[LoadQuery]:
        raise ReplayError("no")

    names = ["alice"] * 200 + ["bob", "carol", "bob"]
    questions = [GateQuestion(structs.replace(web(), namespace=name), {}) for name in names]
    asked = GateProcess(PrometheusOptions(), refused).answers(questions, Settings(), TODAY_S)
    order = [question.hpa.namespace async for question, _ in asked]
    assert sorted(order) == sorted(names)
    assert order[:5] == ["alice", "bob", "carol", "alice", "bob"]


def test_an_autoscaler_that_had_a_pass_comes_to_the_child_as_it_is() -> None:
    condition = AutoscalerCondition("AbleToScale", "True", last_transition_time=Time(TODAY_S))
    passed = structs.replace(web(), status=HpaStatus(conditions=(condition,)))
    sent = _Batch([_Asked(GateQuestion(passed, {}), [])], Settings(), TODAY_S)
    (asked,) = _batches.decode(_encode(sent)).asked
    assert asked.question.hpa == passed
    assert type(asked.question.hpa.status.conditions[0].last_transition_time) is Time
