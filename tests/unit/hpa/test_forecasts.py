"""Forecasts in the loop: who is judged when, what acts, and what the next leader knows."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import numpy as np
import pytest

from hpa.decide.settings import Settings
from hpa.explain.explanation import explain
from hpa.forecast.daily import GateAnswer, GateQuestion, day_of
from hpa.forecast.demand import DAY, FEATURES, lags
from hpa.forecast.gate import NONE
from hpa.forecast.plan import ForecastPlan, ForecastVerdict
from podscale.core.metrics import NoData
from podscale.kube.leadership.lease import Term
from tests.unit.hpa.webs import SETTINGS, load, web
from tests.unit.hpa.world import NS, Cluster, pod_object

pytestmark = pytest.mark.looptime
KEY = (NS, "web")
BEGIN_S = 1_795_000_000.0
Answer = Callable[[GateQuestion, float], GateAnswer | str]


class ScriptedGate:
    """A gate that answers as it is told."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[GateQuestion] = []
        self.cpu_s = 0.0

    async def answers(
        self, questions: Sequence[GateQuestion], settings: Settings, now: float
    ) -> AsyncGenerator[tuple[GateQuestion, GateAnswer | str], None]:
        self.cpu_s += 1.0
        for each in questions:
            self.asked.append(each)
            yield each, self.answer(each, now)


def eight(question: GateQuestion, now: float) -> GateAnswer:
    """Expect eight pods, whatever there is: what was there yesterday."""
    verdict = question.verdict
    if verdict is None or verdict.at < day_of(now):
        verdict = ForecastVerdict("day", day_of(now), 0.31, 0.04, 8)
    weights = np.array([float(each == "day") for each in FEATURES])
    curves = np.ones((7, 2 * DAY), np.float16)
    before = tuple(lags(np.full(1, 4.0))[:, 0].tolist())
    return GateAnswer(
        verdict, ForecastPlan(verdict, weights, day_of(now), curves, before, now, 8.0, 600.0, 0.8)
    )


def started(
    answer: Answer = eight, *, first: Cluster | None = None, auto: bool = True, size: int = 4,
    speed: float = 1.0,
) -> tuple[Cluster, ScriptedGate]:  # fmt: skip
    gate = ScriptedGate(answer)
    if first is None:
        loop = asyncio.get_running_loop()
        cluster = Cluster(settings=SETTINGS, gate=gate, is_steady=speed == 1.0,
                          wall=lambda: BEGIN_S + speed * loop.time())  # fmt: skip
        web(cluster, size, most=20)
        if auto:
            annotate(cluster, "auto")
    else:
        cluster = Cluster(settings=SETTINGS, gate=gate, world=first.world, wall=first.wall)
        cluster.sync()
        cluster.put_pods(*(pod_object("web", n) for n in range(size)))
    load(cluster, 1000)  # what there is fits
    return cluster, gate


def annotate(cluster: Cluster, text: str | None) -> None:
    meta: dict[str, Any] = cluster.world.hpas[KEY]["metadata"]
    meta["annotations"] = {} if text is None else {"podscale.io/forecast": text}
    meta["resourceVersion"] = cluster.world.next_version()
    meta["generation"] += 1
    cluster.sync()


async def test_what_the_gate_takes_raises_the_size_and_says_so() -> None:
    cluster, gate = started()
    spec = cluster.world.workloads[KEY]["spec"]
    cluster.provider.usage = lambda _question, _pod: 4000 // spec["replicas"]
    await cluster.run_for(70.0)
    assert cluster.scales() == [("web", 8)]
    assert len(gate.asked) == 1
    traces = cluster.controller.traces
    at = next(at for at, reason in traces.changes(KEY) if reason == "ForecastAboveMetrics")
    trace = traces.at(KEY, at)
    assert trace is not None
    text = " ".join(explain(trace).sentences)
    assert "Yesterday at this hour 8; forecast 8 within 10 min asks for 8" in text
    assert "it has saved 31% of unserved demand in the last 8 days at 4% more pod-hours" in text
    # The windows remember what the metrics ask for, and that alone.
    record = cluster.controller.catalog.get(KEY)
    assert record is not None
    assert record.history.past is not None
    assert max(each.replicas for each in record.history.past.recommendations or ()) == 4
    families = {each.name: each for each in cluster.metrics.collect()}
    assert [(each.labels, each.value) for each in families["podscale_hpa_forecasts"].samples] == [
        ({"candidate": "day"}, 1)
    ]
    assert cluster.metrics.decisions["ForecastAboveMetrics",] >= 1


@pytest.mark.parametrize("auto", [True, False], ids=["none", "not-asked-for"])
async def test_without_a_forecast_that_pays_or_the_annotation_nothing_is_raised(auto: bool) -> None:
    cluster, gate = started(
        lambda _, now: GateAnswer(ForecastVerdict(NONE, day_of(now))), auto=auto
    )
    await cluster.run_for(200.0)
    assert cluster.scales() == []
    assert len(gate.asked) == auto


@pytest.mark.parametrize("is_paused", [True, False], ids=["paused", "a-metric-fails"])
async def test_a_failing_metric_and_a_pause_keep_forecasts_away(is_paused: bool) -> None:
    cluster, gate = started()
    if is_paused:
        cluster.world.hpas[KEY]["metadata"]["annotations"]["podscale.io/paused"] = "true"
        cluster.sync()
    else:
        cluster.provider.answer_with = lambda _: NoData("NoSample", "there is none")
    await cluster.run_for(100.0)
    assert gate.asked
    assert cluster.scales() == []


async def test_the_annotation_taken_away_ends_it_at_once() -> None:
    cluster, gate = started()
    asyncio.get_running_loop().call_later(12.0, annotate, cluster, None)
    await cluster.run_for(100.0)
    assert gate.asked
    assert cluster.scales() == []
    assert '"forecast"' not in cluster.world.histories()


async def test_the_next_leader_goes_on_with_the_verdict_and_does_not_judge_anew() -> None:
    first, gate = started()
    await first.run_for(70.0)
    assert gate.asked[0].verdict is None
    assert '"candidate":"day"' in first.world.histories()
    second, again = started(first=first, size=8)
    load(second, 500)
    await second.run_for(70.0, Term(first.wall()))
    (asked,) = again.asked
    assert asked.verdict == ForecastVerdict("day", day_of(first.wall()), 0.31, 0.04, 8)
    record = second.controller.catalog.get(KEY)
    assert record is not None
    assert record.history.forecast is not None
    assert record.history.forecast.live is not None


async def test_a_day_later_the_gate_is_asked_again_and_regret_in_between() -> None:
    def answer(question: GateQuestion, now: float) -> GateAnswer | str:
        return "" if question.lived is not None else eight(question, now)

    cluster, gate = started(answer, speed=100.0)
    await cluster.run_for(1000.0)
    kinds = ["regret" if each.lived is not None else "gate" for each in gate.asked]
    assert kinds.count("gate") == 2  # at the start, and after midnight
    assert kinds.count("regret") == 2


async def test_a_forecast_that_is_regretted_ends_and_stays_away_until_the_next_day() -> None:
    def answer(question: GateQuestion, now: float) -> GateAnswer:
        if question.lived is None:
            return eight(question, now)
        return GateAnswer(ForecastVerdict(NONE, day_of(now)))

    cluster, gate = started(answer, speed=100.0)
    await cluster.run_for(460.0)  # 46,000 seconds, and midnight comes 400 later
    record = cluster.controller.catalog.get(KEY)
    assert record is not None
    assert [each.lived is not None for each in gate.asked] == [False, True]
    assert '"candidate":"none"' in cluster.world.histories()


async def test_a_gate_that_fails_is_asked_again_an_hour_later() -> None:
    def broken(question: GateQuestion, now: float) -> GateAnswer | str:
        raise OSError("no more processes")

    for answer in (broken, lambda _question, _now: "Prometheus has no sample"):
        cluster, gate = started(answer, speed=60.0)
        await cluster.run_for(100.0)  # every ten minutes it is looked, for a hundred
        assert len(gate.asked) == 2
        assert cluster.scales() == []


async def test_another_target_throws_away_what_was_found_for_the_old_one() -> None:
    cluster, gate = started()
    await cluster.run_for(40.0)
    cluster.world.hpas[KEY]["spec"]["maxReplicas"] = 30
    annotate(cluster, "auto")
    await cluster.run_for(70.0)
    assert [each.hpa.max_replicas for each in gate.asked][-1] == 30
