"""An HPA with ``podscale.io/forecast``: history from Prometheus, gate in a child, a size ahead."""

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec import structs

from adapter.discovery.mapping import PresumingMapper
from adapter.discovery.relist import Relister, RelistOptions
from adapter.rules.ruleset import read_rules
from adapter.sources.source_router import OneSource
from hpa.decide.api.spec import HPA
from hpa.decide.settings import Settings
from hpa.forecast.daily import GateQuestion
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import PrometheusOptions
from podscale.replay.gate_process import GateProcess
from podscale.replay.history import LoadQuery, load_queries
from podscale.sandbox.load import ExposedSample
from podscale.sandbox.promql.series import SeriesHead
from podscale.sandbox.promql.server import PrometheusStandIn
from tests.integration.test_hpa import NS, running, sandbox, until  # noqa: F401 - a fixture
from tests.integration.test_replay import RULES
from tests.kit.apiserver.server import FaultySandbox
from tests.unit.hpa.forecast.demands import jumps
from tests.unit.hpa.simulate.loads import pods_metric, web
from tests.unit.hpa.world import hpa_object

DAYS, MIDNIGHT_S = 4, 1_700_006_400.0
JUMP_S = MIDNIGHT_S + (DAYS + 1 / 3) * 86400.0  # today's, as on each day before
BEFORE_S = 100.0  # it: pods are taken to serve after a minute
AVERAGE = {"type": "AverageValue", "averageValue": "1"}
LOAD = {"type": "Pods", "pods": {"metric": {"name": "http_requests"}, "target": AVERAGE}}


@pytest.fixture
async def stand_in() -> AsyncIterator[PrometheusStandIn]:
    """Yield four days and a morning of a load that jumps from 10 to 40 each day."""
    pods, now = jumps(DAYS + 1), MIDNIGHT_S

    def page(at: float) -> list[ExposedSample]:
        value = float(pods[int((at - MIDNIGHT_S) // 60)])
        labels = {"namespace": NS, "pod": "web-6d5f-abcde"}
        return [ExposedSample("http_requests", labels, value)]

    async with PrometheusStandIn(
        lambda: now, page=page, every_s=3600.0, head=SeriesHead(10 * 86400_000)
    ) as server:
        while now <= JUMP_S - BEFORE_S:
            server.scrape()
            now += 60.0
        now = JUMP_S - BEFORE_S
        yield server


async def queries_by(options: PrometheusOptions):  # type: ignore[no-untyped-def]
    """Return what says how to ask for the load of an HPA, by the adapter's rules."""
    _, rules = read_rules(RULES, "rules.yaml", PresumingMapper())
    async with PrometheusClient(options) as client:
        end_s = await client.clock_s()
        lister = Relister(
            OneSource(client), rules, RelistOptions(interval_s=3600.0), clock=lambda: end_s
        )
        await lister.relist()

    def queries(hpa: HPA) -> Sequence[LoadQuery]:
        return load_queries(hpa, rules, lister.custom, lister.external, lambda _: "services")

    return queries


async def test_pods_are_there_before_the_load_and_the_next_leader_knows_why(
    sandbox: FaultySandbox,  # noqa: F811 - the fixture
    stand_in: PrometheusStandIn,
) -> None:
    options = PrometheusOptions(url=stand_in.url)
    began = time.time()

    def wall() -> float:
        return JUMP_S - BEFORE_S + time.time() - began

    gate = GateProcess(options, await queries_by(options))
    async with running(sandbox, gate=gate, wall=wall) as hpa:
        await until("leading", hpa.part.is_leader)
        hpa.metrics.usage = lambda _question, _pod: 10_000 // hpa.size()
        hpa.web(10)
        target = hpa_object("web", LOAD, most=100)
        target["metadata"]["annotations"] = {"podscale.io/forecast": "auto"}
        hpa.put("HorizontalPodAutoscaler", target)
        await until("a size ahead of the load", lambda: hpa.size() >= 36, 300.0)
        assert hpa.size() <= 52  # 1.25 times what has been
        record = hpa.part.controller.catalog.get((NS, "web"))
        assert record is not None
        assert record.history.past is not None
        assert max(each.replicas for each in record.history.past.recommendations or ()) == 10
        assert hpa.part.controller.traces.reason((NS, "web"))
    assert gate.cpu_s > 0
    again = GateProcess(options, await queries_by(options))
    async with running(sandbox, gate=again, wall=wall) as hpa:
        await until("leading", hpa.part.is_leader, 30.0)
        forecast = None

        def resumed() -> bool:
            nonlocal forecast
            record = hpa.part.controller.catalog.get((NS, "web"))
            forecast = None if record is None else record.history.forecast
            return forecast is not None and forecast.live is not None

        await until("its forecast goes on", resumed, 300.0)
        assert forecast is not None
        assert forecast.sums is None, "the gate has judged anew"


async def test_a_gate_that_cannot_read_says_why(stand_in: PrometheusStandIn) -> None:
    options = PrometheusOptions(url=stand_in.url)
    queries = await queries_by(options)
    found = []
    gate = GateProcess(options, queries)
    elsewhere = structs.replace(web(), namespace="elsewhere")
    unknown = web(metrics=[pods_metric(name="nobody_has_it")])
    async for _, answer in gate.answers(
        [GateQuestion(unknown, {}), GateQuestion(elsewhere, {})], Settings(), JUMP_S
    ):
        found.append(answer)
    assert all(isinstance(each, str) for each in found)
    assert "nobody_has_it" in str(found[0])
    assert "no sample" in str(found[1])


async def test_a_child_that_dies_over_one_autoscaler_leaves_the_others_their_answers(
    stand_in: PrometheusStandIn,
) -> None:
    options = PrometheusOptions(url=stand_in.url)
    questions = [GateQuestion(web(metrics=[pods_metric()]), {}) for _ in range(3)]
    poison: Any = {"app": {"cpu": "what no child can read"}}
    questions[1] = structs.replace(questions[1], requests=poison)
    gate, found = GateProcess(options, await queries_by(options)), {}
    async for question, answer in gate.answers(questions, Settings(), JUMP_S):
        found[id(question)] = str(answer)
    answers = [found[id(each)] for each in questions]
    assert "its process failed" in answers[1]
    assert answers[0] == answers[2]
    assert "its process failed" not in answers[0]
