"""A batch of the gate's child: what one autoscaler's past lacks is told of that one."""

import msgspec
import numpy as np
import pytest
from msgspec import structs

from hpa.decide.api.spec import HpaStatus
from hpa.decide.settings import Settings
from hpa.forecast.daily import DAY_S, GateAnswer, GateQuestion
from hpa.forecast.demand import DAY
from hpa.simulate.workload import key_of
from podscale.feed.range_reader import HistoryColumns, HistorySlice
from podscale.kube.client.wire import Time
from podscale.kube.objects.autoscaler import AutoscalerCondition
from podscale.replay.gate_process import _answered, _Asked, _Batch, _batches, _encode
from podscale.replay.history import LoadQuery
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


def test_an_autoscaler_that_had_a_pass_comes_to_the_child_as_it_is() -> None:
    condition = AutoscalerCondition("AbleToScale", "True", last_transition_time=Time(TODAY_S))
    passed = structs.replace(web(), status=HpaStatus(conditions=(condition,)))
    sent = _Batch([_Asked(GateQuestion(passed, {}), [])], Settings(), TODAY_S)
    (asked,) = _batches.decode(_encode(sent)).asked
    assert asked.question.hpa == passed
    assert type(asked.question.hpa.status.conditions[0].last_transition_time) is Time
