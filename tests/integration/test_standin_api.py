"""The stand-in behind our own client: what feed, doctor and history send, it answers."""

import aiohttp
import pytest

from podscale.feed.errors import QueryError
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import PrometheusOptions
from podscale.feed.range_reader import HistoryReader
from podscale.sandbox.load import ExposedSample
from podscale.sandbox.promql.server import PrometheusStandIn

NOW_S = 1_700_000_000.0


class Pods:
    """A target: the pods that there are, each with a counter of one request a second."""

    def __init__(self) -> None:
        self.names = ["a", "b"]
        self.now = NOW_S

    def clock(self) -> float:
        return self.now

    def page(self, now_s: float) -> list[ExposedSample]:
        return [
            ExposedSample("http_requests_total", {"pod": name}, now_s - NOW_S)
            for name in self.names
        ]


@pytest.fixture
def pods() -> Pods:
    return Pods()


@pytest.fixture
async def stand_in(pods):
    async with PrometheusStandIn(pods.clock, page=pods.page, every_s=3600.0) as server:
        for second in range(1, 61):
            pods.now = NOW_S + second
            server.scrape()
        yield server


def options(server: PrometheusStandIn) -> PrometheusOptions:
    return PrometheusOptions(url=server.url)


@pytest.mark.parametrize("verb", ["GET", "POST"])
@pytest.mark.parametrize("compress", [True, False])
async def test_the_feeds_client_reads_rates(stand_in, verb, compress) -> None:
    async with PrometheusClient(options(stand_in)) as client:
        query = 'sum by (pod) (rate(http_requests_total{pod=~"a|b"}[30s]))'
        answer = await client.query(query, NOW_S + 60, verb=verb, compress=compress)
    assert sorted(metric["pod"] for metric in answer.metrics) == ["a", "b"]
    assert answer.values == pytest.approx([1.0, 1.0])


async def test_the_feeds_client_lists_series(stand_in) -> None:
    async with PrometheusClient(options(stand_in)) as client:
        found = await client.series('{__name__=~"http_.*",pod!=""}', NOW_S)
        sample = await client.sample_series("up", None, 5)
    assert found.names == {
        "http_requests_total": frozenset({frozenset({"__name__", "instance", "job", "pod"})})
    }
    assert found.count == 2
    assert sample == [{"__name__": "up", "instance": "sandbox", "job": "sandbox"}]


async def test_refusals_are_told_as_prometheus_tells_them(stand_in) -> None:
    async with PrometheusClient(options(stand_in)) as client:
        with pytest.raises(QueryError) as bad:
            await client.query("sum(", NOW_S)
        with pytest.raises(QueryError) as unknown:
            await client.query("limitk(1, up)", NOW_S)
    assert bad.value.kind == "bad-data"
    assert "limitk" in unknown.value.detail


async def test_a_pod_that_is_gone_is_gone_at_the_next_scrape(stand_in, pods) -> None:
    pods.names.remove("b")
    pods.now += 1
    stand_in.scrape()
    async with PrometheusClient(options(stand_in)) as client:
        answer = await client.query("http_requests_total", pods.now)
    assert [metric["pod"] for metric in answer.metrics] == ["a"]


async def test_history_reads_ranges(stand_in) -> None:
    async with HistoryReader(options(stand_in)) as reader:
        slices = [
            found async for found in reader.read("http_requests_total", NOW_S + 10, NOW_S + 50, 10)
        ]
    values = {
        series.labels["pod"]: series.values.tolist() for found in slices for series in found.series
    }
    assert values == {"a": [10, 20, 30, 40, 50], "b": [10, 20, 30, 40, 50]}


async def test_labels_values_metadata_and_status(stand_in) -> None:
    async with aiohttp.ClientSession(f"{stand_in.url}/api/v1/") as session:

        async def get(path: str, **fields: str) -> object:
            async with session.get(path, params=fields) as answer:
                return (await answer.json())["data"]

        assert await get("labels") == ["__name__", "instance", "job", "pod"]
        assert await get("label/pod/values") == ["a", "b"]
        assert await get("label/pod/values", **{"match[]": 'up{job="x"}'}) == []
        assert await get("metadata") == {}
        assert "version" in await get("status/buildinfo")
        async with session.get("status/flags") as answer:
            assert answer.status == 404
        async with session.put("query") as answer:
            assert answer.status == 405
