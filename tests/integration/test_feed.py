"""The feed on a real Prometheus: targets that go, a server that goes, and what batching saves."""

import asyncio
import math
import time

import pytest

from podscale.core.metrics import Unavailable
from podscale.feed.feed import Feed
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import FeedOptions, PrometheusOptions
from podscale.feed.plan import Reading
from tests.integration.exporter import counter, pod
from tests.integration.prometheus import PrometheusServer
from tests.unit.feed.prometheus import pods_plan, want

RATE = "sum by (pod) (rate(http_requests_total{<M>}[10s]))"
LAST = "sum by (pod) (http_requests_total{<M>})"
PODS = [f"web-{place}" for place in range(10)]


def served(outcome):
    assert isinstance(outcome, Reading), outcome
    return {name: float(outcome.values[row]) for name, row in outcome.objects.items()}


@pytest.mark.parametrize("is_coalescing", [True, False])
async def test_pods_whose_exporter_died_are_stale_and_nothing_falls_towards_zero(
    prometheus, exporter, is_coalescing
):
    await asyncio.to_thread(
        exporter.set, *(pod("shop", name, counter("http_requests_total", rate=10)) for name in PODS)
    )
    await asyncio.to_thread(
        prometheus.wait_for, "count_over_time(http_requests_total[10s]) > 8", count=10
    )
    demand = want(pods_plan(template=RATE), "shop", *PODS)
    options = FeedOptions(max_age_s=0.0, is_coalescing=is_coalescing)
    async with (
        PrometheusClient(PrometheusOptions(url=prometheus.url)) as client,
        Feed(client, options) as feed,
    ):
        (before,) = await feed.read([demand])
        assert set(served(before)) == set(PODS)
        assert time.time() - min(before.time_s.tolist()) < 5
        killed = [f"shop.{name}" for name in PODS[:3]]
        await asyncio.to_thread(exporter.weather, "down", *killed)
        died_s = time.monotonic()
        while True:
            (now,) = await feed.read([demand])
            # 10 s windows: a value of the dead sinks by a tenth with every scrape missed.
            assert all(value > 7.5 for value in served(now).values()), served(now)
            assert set(PODS[3:]) <= set(served(now))
            if set(served(now)) == set(PODS[3:]):
                break
            assert time.monotonic() - died_s < 4, "two scrapes and the whole second of the grid"
            await asyncio.sleep(0.2)
        assert set(now.stale) == set(PODS[:3])
        assert feed.stats.stale >= 3


@pytest.mark.parametrize("skew_s", [-400.0, 400.0])
@pytest.mark.parametrize("is_coalescing", [True, False])
async def test_a_clock_that_is_wrong_shows_no_value_rather_than_an_old_one(
    prometheus, exporter, is_coalescing, skew_s
):
    await asyncio.to_thread(exporter.set, pod("skew", "web-0", counter("http_requests_total", 10)))
    await asyncio.to_thread(
        prometheus.wait_for, 'count_over_time(http_requests_total{namespace="skew"}[20s]) > 3'
    )
    demands = [want(pods_plan(template=template), "skew", "web-0") for template in (RATE, LAST)]
    async with (
        PrometheusClient(PrometheusOptions(url=prometheus.url)) as client,
        Feed(
            client,
            FeedOptions(max_age_s=0.0, is_coalescing=is_coalescing),
            lambda: time.time() + skew_s,
        ) as feed,
    ):
        assert [served(outcome) for outcome in await feed.read(demands)] == [{}, {}]


async def test_a_clock_that_is_a_minute_fast_tells_the_age_of_what_it_serves(prometheus, exporter):
    await asyncio.to_thread(exporter.set, pod("fast", "web-0", counter("http_requests_total", 10)))
    await asyncio.to_thread(
        prometheus.wait_for, 'count_over_time(http_requests_total{namespace="fast"}[20s]) > 3'
    )
    demand = want(pods_plan(template=LAST), "fast", "web-0")
    async with PrometheusClient(PrometheusOptions(url=prometheus.url)) as client:
        for limit_s, stale in ((300.0, False), (30.0, True)):
            options = FeedOptions(max_age_s=0.0, max_sample_age_s=limit_s)
            async with Feed(client, options, lambda: time.time() + 60.0) as feed:
                (outcome,) = await feed.read([demand])
            assert ("web-0" in served(outcome), "web-0" in outcome.stale) == (not stale, stale)
            if not stale:
                assert 55 < outcome.asked_s - float(outcome.time_s[0]) < 65


async def test_a_prometheus_that_goes_is_an_error_and_its_return_needs_no_restart(
    prometheus, exporter
):
    await asyncio.to_thread(exporter.set, pod("shop", "web-0", counter("http_requests_total", 10)))
    await asyncio.to_thread(prometheus.wait_for, "count_over_time(http_requests_total[20s]) > 3")
    demand = want(pods_plan(template=RATE), "shop", "web-0")
    async with (
        PrometheusClient(PrometheusOptions(url=prometheus.url, deadline_s=1.0)) as client,
        Feed(client, FeedOptions(max_age_s=0.0)) as feed,
    ):
        assert served((await feed.read([demand]))[0])
        await asyncio.to_thread(prometheus.pause)
        (hanging,) = await feed.read([demand])
        await asyncio.to_thread(prometheus.resume)
        assert isinstance(hanging, Unavailable)
        assert hanging.is_timeout
        assert served((await feed.read([demand]))[0])
        await asyncio.to_thread(prometheus.kill)
        (down,) = await feed.read([demand])
        assert isinstance(down, Unavailable)
        assert not down.is_timeout
        await asyncio.to_thread(prometheus.start)
        assert isinstance((await feed.read([demand]))[0], Reading)


NAMESPACES, APPS, REPLICAS = 100, 10, 10
END_S = 1_700_000_000
REFRESHES = 8


@pytest.fixture(scope="module")
def seeded(tmp_path_factory):
    """1,000 workloads of ten pods each, in 100 namespaces."""
    lines = [
        f'http_requests_total{{namespace="ns-{n:03}",pod="app-{a}-5d8f7c9b6d-{r:05}",'
        f'instance="10.{n}.{a}.{r}:8080",job="pods"}} {(time_s - END_S + 600) * (a + 1)} {time_s}'
        for n in range(NAMESPACES)
        for a in range(APPS)
        for r in range(REPLICAS)
        for time_s in range(END_S - 330, END_S + 60, 30)
    ]
    text = "\n".join([*lines, "# EOF\n"])
    with PrometheusServer(tmp_path_factory.mktemp("prometheus"), openmetrics=text) as server:
        yield server


def demands():
    plan = pods_plan(template="sum by (pod) (rate(http_requests_total{<M>}[2m]))")
    return [
        want(
            plan,
            f"ns-{n:03}",
            *(f"app-{a}-5d8f7c9b6d-{r:05}" for r in range(REPLICAS)),
            known=APPS * REPLICAS,
        )
        for n in range(NAMESPACES)
        for a in range(APPS)
    ]


async def spent(server, work):
    """Return the CPU seconds of Prometheus for ``work``."""
    before = server.cpu_seconds()
    await work
    return server.cpu_seconds() - before


@pytest.mark.needs("prometheus", "promtool")
async def test_a_thousand_requests_take_twenty_queries_and_half_the_cpu(seeded, capsys):
    wanted = demands()
    options = PrometheusOptions(url=seeded.url)
    moment = [float(END_S)]
    lanes = asyncio.Semaphore(20)

    async def single(client, demand):
        async with lanes:
            text = demand.plan.text(demand.namespace, demand.names)
            return await client.query(text, END_S, compress=True)

    async def one_by_one(client):
        await asyncio.gather(*(single(client, demand) for demand in wanted))

    async def refreshes(feed):
        for _ in range(REFRESHES):
            moment[0] += 6
            outcomes = await feed.read(wanted)
            assert all(len(served(outcome)) >= REPLICAS for outcome in outcomes)

    async with (
        PrometheusClient(options) as client,
        Feed(client, FeedOptions(), clock=lambda: moment[0]) as feed,
    ):
        await one_by_one(client)  # warm
        await feed.read(wanted)
        queries = sum(feed.stats.queries.values())
        singles_s = await spent(seeded, one_by_one(client))
        refresh_s = await spent(seeded, refreshes(feed)) / REFRESHES
        asked = (sum(feed.stats.queries.values()) - queries) / REFRESHES
    with capsys.disabled():
        print(
            f"\n{len(wanted)} requests: {asked:.1f} queries a refresh (goal 20), Prometheus CPU "
            f"{refresh_s:.3f} s against {singles_s:.3f} s one by one "
            f"({refresh_s / singles_s:.2f} times, goal 0.5)"
        )
    assert math.isfinite(asked)
    assert asked <= 20
    assert refresh_s <= 0.5 * singles_s
