"""The load of an HPA read back from Prometheus is the load that there was."""

import asyncio
import json
import re
import sys

import numpy as np
import pytest

from adapter.discovery.mapping import PresumingMapper
from adapter.discovery.relist import Relister, RelistOptions
from adapter.rules.ruleset import read_rules
from adapter.sources.source_router import OneSource
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import PrometheusOptions
from podscale.feed.range_reader import HistoryReader
from podscale.replay.history import HistoryWindow, PastReader, load_queries
from podscale.replay.inputs import ReplayError
from podscale.sandbox.load import ExposedSample
from podscale.sandbox.promql.server import PrometheusStandIn
from tests.integration.test_demo import demo, end, shown_until
from tests.unit.hpa.decide.handwritten import hpa, resource
from tests.unit.hpa.simulate.loads import pods_metric

NOW_S = 1_700_000_000.0
SECONDS = 600
LATE_READY_S = 360  # after the beginning, two of the pods
NONE_READY_S = 480  # for one scrape
RULES = """\
rules:
- seriesQuery: 'http_requests{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'queue_messages{namespace!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'
"""


class Shop:
    """A web of two pods, then four; somebody else's pods beside it; a queue."""

    def __init__(self) -> None:
        self.now = NOW_S
        self.has_ready_time = True

    def clock(self) -> float:
        return self.now

    def page(self, now_s: float) -> list[ExposedSample]:
        at = now_s - NOW_S
        count = 2 if at < 300 else 4
        rows = [("http_requests", f"web-6d5f-{name}", 100.0) for name in "abcd"[:count]]
        rows += [("http_requests", "website-1", 7.0), ("http_requests", "other-1", 7.0)]
        found = [
            ExposedSample(name, {"namespace": "shop", "pod": pod}, value)
            for name, pod, value in rows
        ]
        found.append(ExposedSample("queue_messages", {"namespace": "shop"}, at))
        labels = {"namespace": "shop", "horizontalpodautoscaler": "web"}
        name = "kube_horizontalpodautoscaler_status_current_replicas"
        found.append(ExposedSample(name, labels, float(count)))
        for place, each in enumerate("abcd"[:count]):
            pod = {"namespace": "shop", "pod": f"web-6d5f-{each}"}
            found.append(ExposedSample("kube_pod_created", pod, NOW_S))
            if self.has_ready_time:
                ready_s = NOW_S + 10.0 * (place + 1)
                found.append(ExposedSample("kube_pod_status_ready_time", pod, ready_s))
            is_ready = (place < 2 or at >= LATE_READY_S) and at != NONE_READY_S
            for condition, value in (("true", float(is_ready)), ("false", float(not is_ready))):
                labels = {"namespace": "shop", "pod": f"web-6d5f-{each}", "condition": condition}
                found.append(ExposedSample("kube_pod_status_ready", labels, value))
        return found


@pytest.fixture
async def server():
    shop = Shop()
    async with PrometheusStandIn(shop.clock, page=shop.page, every_s=3600.0) as running:
        for second in range(0, SECONDS + 1, 15):
            shop.now = NOW_S + second
            running.scrape()
        yield running


async def past(server: PrometheusStandIn, spec: dict[str, object], most: int = 100_000):
    options = PrometheusOptions(url=server.url)
    target = hpa({"minReplicas": 1, "maxReplicas": 4, **spec})
    _, rules = read_rules(RULES, "rules.yaml", PresumingMapper())
    async with PrometheusClient(options) as client:
        end_s = await client.clock_s()
        lister = Relister(
            OneSource(client), rules, RelistOptions(interval_s=3600.0), clock=lambda: end_s
        )
        await lister.relist()
    queries = load_queries(target, rules, lister.custom, lister.external, lambda _: "services")
    window = HistoryWindow(end_s - SECONDS, end_s, 15, most)
    async with HistoryReader(options) as reader:
        return await PastReader(reader, window, lambda *_: None).past(target, queries)


async def test_pods_add_up_and_what_is_at_the_maximum_is_hidden(server):
    found = await past(server, {"metrics": [pods_metric("50")]})
    load = found.load
    is_early = load.time_s < NOW_S + 300
    column = load.columns["http_requests"]
    assert set(column[is_early].tolist()) == {200.0}  # neither website-1 nor other-1 is its pod
    assert set(column[~is_early].tolist()) == {400.0}
    assert load.replicas is not None
    assert set(load.replicas[is_early].tolist()) == {2.0}
    assert load.hidden.tolist() == (~is_early).tolist()
    assert any("at maxReplicas" in each for each in found.notes)
    assert min(found.ready_after_s) >= 10.0
    assert max(found.ready_after_s) <= 40.0


async def test_without_a_time_of_ready_the_first_sample_says_how_long_a_pod_takes():
    shop = Shop()
    shop.has_ready_time = False
    async with PrometheusStandIn(shop.clock, page=shop.page, every_s=3600.0) as running:
        for second in range(0, SECONDS + 1, 15):
            shop.now = NOW_S + second
            running.scrape()
        found = await past(running, {"metrics": [pods_metric("50")]})
    # Two are there from the beginning, the others report five minutes after their creation.
    assert (min(found.ready_after_s), max(found.ready_after_s)) == (0.0, 300.0 - 15.0 / 2)


async def test_an_external_metric_is_whole_and_of_a_value_target_shared_by_ready_pods(server):
    queue = {"metric": {"name": "queue_messages"}}
    average = {**queue, "target": {"type": "AverageValue", "averageValue": "30"}}
    load = (await past(server, {"metrics": [{"type": "External", "external": average}]})).load
    np.testing.assert_allclose(load.columns["queue_messages"], load.time_s - NOW_S)
    value = {**queue, "target": {"type": "Value", "value": "30"}}
    load = (await past(server, {"metrics": [{"type": "External", "external": value}]})).load
    ready = np.where(load.time_s < NOW_S + LATE_READY_S, 2.0, 4.0)
    ready[load.time_s == NOW_S + NONE_READY_S] = np.nan  # what none of them served is not known
    np.testing.assert_allclose(load.columns["queue_messages"], (load.time_s - NOW_S) * ready)


async def test_more_samples_than_allowed_and_metrics_without_a_rule_are_refused(server):
    with pytest.raises(ReplayError, match="--max-samples 10"):
        await past(server, {"metrics": [pods_metric("50")]}, most=10)
    with pytest.raises(ReplayError, match="sold_out"):
        await past(server, {"metrics": [pods_metric("50", "sold_out")]})
    utilization = resource(type="Utilization", averageUtilization=50)
    with pytest.raises(ReplayError, match="resourceRules"):
        await past(server, {"metrics": [utilization]})


@pytest.mark.timeout(120)
async def test_the_shop_of_the_demo_is_replayed_from_its_own_prometheus(tmp_path):
    running = await demo(tmp_path, "--speed", "20")
    try:
        shown = await shown_until(running, "the size changes from 2 to ")
        source = re.search(r"Prometheus: (http://\S+)", shown)
        server = re.search(r"--server (http://\S+)", shown)
        assert source, shown
        assert server, shown
        words = [sys.executable, "-m", "podscale", "replay", "hpa/web", "-n", "shop",
                 "--since", "30m", "--prometheus-url", source[1],
                 "--server", server[1], "-o", "json"]  # fmt: skip
        replay = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await replay.communicate()
        assert replay.returncode == 0, err
        report = json.loads(out)
    finally:
        await end(running)
    assert [each["spec"] for each in report["specs"]] == ["today", "recorded", "oracle"]
    assert all(each["podHours"] > 0 for each in report["specs"])
