"""A Prometheus that was away comes back with windows that are not full: no size falls by that.

Real scrapes and a real rate; the rule, the feed and the decision are the product's.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpa.decide.decision import Measured
from hpa.decide.observation import Observation, Past
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from podscale.core.metrics import PodMetric, PodSamples, Unavailable
from podscale.feed.feed import Feed
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import FeedOptions, PrometheusOptions
from podscale.feed.source_routing import FeedBySource
from tests.integration.exporter import Exporter, counter, pod
from tests.integration.prometheus import PrometheusServer
from tests.unit.adapter.test_provider import METRIC, provider
from tests.unit.adapter.world import RULES
from tests.unit.hpa.decide.situations import listed, per_pod, seen, web
from tests.unit.hpa.decide.situations import pod as running_pod

WINDOW_S = 10
AWAY_S = 16.0
PODS = [f"web-{row}" for row in range(8)]
WORLD = {"shop": {name: {"app": "web"} for name in PODS}}
RATE_MILLI = 10_000  # of each pod, and what is wanted


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[PrometheusServer]:
    with Exporter(tmp_path) as exporter:
        exporter.set(*(pod("shop", name, counter("http_requests_total", 10)) for name in PODS))
        config = exporter.scrape_config()
        with PrometheusServer(tmp_path, scrape_configs=[config]) as running:
            running.wait_for(f"rate(http_requests_total[{WINDOW_S}s]) > 9.5", len(PODS))
            yield running


class OneFeed:
    """A ``ChoosesSource`` of one."""

    def __init__(self, feed: Feed) -> None:
        self.default = feed

    def feeds(self) -> list[Feed]:
        return [self.default]

    def feed_for(self, _source: str, _namespace: str) -> Feed:
        return self.default


def observed(answer: object) -> Observation:
    pods = listed(*[running_pod()] * len(PODS))
    return seen(web(per_pod(RATE_MILLI, METRIC)), len(PODS), pods, [answer])


def outcome(answer: object, settings: Settings) -> tuple[int | None, int | None]:
    """Return what the metric asks for, and what is decided, with nothing to be stabilized by."""
    trace = decide(observed(answer), Past(recommendations=()), settings, time.time()).trace
    (measured,) = (step for step in trace.steps if isinstance(step, Measured))
    return measured.replicas, trace.decided


@pytest.mark.timeout(180)
@pytest.mark.parametrize("way", ["frozen", "killed"])
async def test_a_rate_right_after_an_outage_removes_no_pod(prometheus, way: str) -> None:
    question = PodMetric("shop", METRIC, "app=web")
    leaves, returns = {
        "frozen": (prometheus.pause, prometheus.resume),
        "killed": (prometheus.kill, prometheus.start),
    }[way]
    async with (
        PrometheusClient(PrometheusOptions(url=prometheus.url, deadline_s=2.0)) as client,
        Feed(client, FeedOptions(max_age_s=0.0)) as feed,
    ):
        text = RULES.replace("[2m]", f"[{WINDOW_S}s]")
        source = await provider(FeedBySource(OneFeed(feed)), pods=WORLD, text=text)

        async def answered() -> object:
            (answer,) = await source.answer([question])
            return answer

        before = await answered()
        assert isinstance(before, PodSamples)
        assert before.gap is None
        assert outcome(before, Settings()) == (len(PODS), len(PODS))

        await asyncio.to_thread(leaves)
        ends = time.monotonic() + AWAY_S
        while time.monotonic() < ends:
            assert isinstance(await answered(), Unavailable)
            await asyncio.sleep(0.2)
        await asyncio.to_thread(returns)

        asked_for: list[int] = []
        as_upstream: list[int | None] = []
        ends = time.monotonic() + 60.0
        while True:
            answer = await answered()
            if isinstance(answer, PodSamples):
                asked, decided = outcome(answer, Settings())
                assert decided is None or decided >= len(PODS), answer
                if asked is not None:
                    asked_for.append(asked)
                as_upstream.append(outcome(answer, Settings(holds_after_outage=False))[1])
                if answer.gap is None:
                    break
                assert answer.gap.until_s - answer.gap.since_s >= AWAY_S - 2.0
            assert time.monotonic() < ends, "the gap never ends"
            await asyncio.sleep(0.1)
        assert min(asked_for) < len(PODS), "there was no hole"
        assert min(each for each in as_upstream if each is not None) < len(PODS)
        assert asked_for[-1] == len(PODS), "held for no longer than the hole is felt"
