"""The recommender that starts from a real Prometheus's past (``--storage=prometheus``)."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from adapter.queries.usage import past_queries
from adapter.rules.config import parse
from adapter.rules.ruleset import compile_rules
from podscale.core import quantity
from podscale.core.metrics import ContainerColumns
from podscale.core.selectors import selector
from podscale.feed.options import PrometheusOptions
from podscale.kube.objects.vpa import Vpa, decode
from podscale.serving.flags import parse as parse_flags
from tests.integration.crane import Series, openmetrics
from tests.integration.prometheus import PrometheusServer
from tests.integration.vpa_stage import RHYTHM, Stage, deployment, stage, vpa
from tests.kit.traces import crane
from vpa.model.cluster import ClusterModel
from vpa.model.histograms import buckets
from vpa.model.recommendations import RecommendationReader
from vpa.model.samples.membership import VpaKey
from vpa.recommender import flags as flags_
from vpa.recommender import flags as recommender_flags
from vpa.recommender.flags import Options
from vpa.recommender.history.usage_history import HistorySpan, UsageHistory, UsageRangeQuery
from vpa.recommender.part import RecommenderPart

IS_SHORT = bool(os.environ.get("PODSCALE_SHORT"))
DAYS, COUNT = (2.0, 3) if IS_SHORT else (8.0, 10)
END_S = 1_772_409_600
STEP_S = 300
SPAN = HistorySpan(DAYS * 86400.0, STEP_S)
NAMES = """
    resources:
      overrides: {namespace: {resource: namespace}, pod: {resource: pod}, node: {resource: node}}
    containerLabel: container"""
CPU, MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
RULES = f"""\
resourceRules:
  cpu:
    containerQuery: 'sum by (<<.GroupBy>>) (rate({CPU}{{<<.LabelMatchers>>}}[5m]))'
    nodeQuery: 'sum by (<<.GroupBy>>) (rate({CPU}{{<<.LabelMatchers>>,id="/"}}[5m]))'{NAMES}
  memory:
    containerQuery: 'sum by (<<.GroupBy>>) ({MEMORY}{{<<.LabelMatchers>>}})'
    nodeQuery: 'sum by (<<.GroupBy>>) ({MEMORY}{{<<.LabelMatchers>>,id="/"}})'{NAMES}
  window: 5m
"""
pytestmark = pytest.mark.needs("prometheus", "promtool")
Bounds = dict[str, dict[str, quantity.Quantity]]


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as built:
        yield built


@asynccontextmanager
async def started(
    small: Stage, find_past: Callable[[], UsageHistory], span: HistorySpan = SPAN
) -> AsyncIterator[RecommenderPart]:
    part = RecommenderPart(
        small.api, small.stores(), small.usage, Options(interval_s=0.2, history=span),
        CollectorRegistry(), lease=None, find_past=find_past, rhythm=RHYTHM, wall=lambda: END_S,
    )  # fmt: skip
    task = asyncio.create_task(part.run())
    try:
        yield part
    finally:
        await part.stop()
        task.cancel()
        await asyncio.wait({task})


def by_rules(small: Stage, url: str) -> Callable[[], UsageHistory]:
    rules = compile_rules(parse(RULES), small.discovery.mapper).resource

    def past() -> UsageHistory:
        found = past_queries(rules, ["default"])
        cpu, memory = (
            tuple(UsageRangeQuery(q.text, q.pod, q.container, q.namespace, q.only) for q in queries)
            for queries in (found.cpu, found.memory)
        )
        return UsageHistory(PrometheusOptions(url=url), cpu, memory)

    return past


@asynccontextmanager
async def seeded(directory: Path, series: Sequence[Series]) -> AsyncIterator[PrometheusServer]:
    server = PrometheusServer(directory, openmetrics=openmetrics(list(series)))
    await asyncio.to_thread(server.__enter__)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop)


def bounds(status: dict[str, Any]) -> Bounds | None:
    entries = (status.get("recommendation") or {}).get("containerRecommendations") or ()
    if not entries:
        return None
    return {
        bound: {name: quantity.parse(text) for name, text in entries[0][bound].items()}
        for bound in ("target", "lowerBound", "upperBound")
    }


def told(small: Stage, name: str) -> dict[str, Any] | None:
    conditions = (small.vpa(name).get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "HistoryLoaded"), None)


async def deployed(small: Stage, series: Sequence[Series]) -> None:
    for one in series:
        small.objects.create("deployments", "default", deployment(1, one.name))
        small.objects.create("verticalpodautoscalers", "default", vpa("Off", one.name))
    await small.until(lambda: small.ready() == len(series), 30.0)


def fed_live(one: Series, samples: Sequence[tuple[float, float, float]], minutes: float) -> Bounds:
    """Return what the model says that takes each sample when it is made."""
    cluster = ClusterModel()
    key = VpaKey("default", one.name)
    raw = {"metadata": {"name": key.name, "namespace": key.namespace},
           "spec": {"targetRef": {"kind": "Deployment", "name": one.name}}}  # fmt: skip
    cluster.put_vpa(decode(raw, Vpa), selector.parse(f"app={one.name}"), END_S)
    cluster.put_pod("default", one.pod, {"app": one.name}, ["main"], END_S)
    named = (["default"], [one.pod], ["main"])
    for at, cores, memory in samples:
        cluster.take(
            ContainerColumns(*named, np.array([cores]), np.array([memory]), np.array([at]), at),
            minutes,
        )
    reader = RecommendationReader(cluster)
    trace = reader.recommendation(reader.read(), key)
    (entry,) = trace.recommendation.container_recommendations or ()
    return {
        "target": dict(entry.target or {}),
        "lowerBound": dict(entry.lower_bound or {}),
        "upperBound": dict(entry.upper_bound or {}),
    }


def asked_live(
    server: PrometheusServer, past: UsageHistory
) -> dict[str, list[tuple[float, float, float]]]:
    """Ask instant queries at each step, as a recommender that had been there."""
    found: dict[str, dict[float, list[float]]] = {}
    for at in np.arange(END_S - SPAN.length_s, END_S + 1, STEP_S):
        for place, query in enumerate((past.cpu[0].text, past.memory[0].text)):
            for element in server.query(query, float(at)):
                pair = found.setdefault(element["metric"]["pod"], {})
                pair.setdefault(float(at), [np.nan, np.nan])[place] = float(element["value"][1])
    return {pod: [(at, *pair) for at, pair in steps.items()] for pod, steps in found.items()}


def bucket(resource: str, amount: quantity.Quantity) -> int:
    layout = buckets.CPU if resource == "cpu" else buckets.MEMORY
    value = amount.milli / 1000.0 if resource == "cpu" else float(amount.value)
    return int(layout.find(np.array([value]))[0])


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_recommendations_on_start_are_those_of_a_live_feed_at_the_same_step(small, tmp_path):
    series = [Series(name, values, DAYS, END_S)
              for name, values in islice(crane().items(), COUNT)]  # fmt: skip
    await deployed(small, series)
    small.usage.is_down = True
    async with seeded(tmp_path, series) as server:
        find = by_rules(small, server.url)
        live = await asyncio.to_thread(asked_live, server, find())
        async with started(small, find):
            await small.until(
                lambda: all(bounds(small.vpa(one.name).get("status") or {}) for one in series),
                120.0,
            )
    for one in series:
        ours = bounds(small.vpa(one.name)["status"])
        assert ours is not None
        same_step = fed_live(one, live[one.pod], STEP_S / 60)
        every_minute = fed_live(one, list(zip(one.times, one.cores, one.memory, strict=True)), 1.0)
        for bound, amounts in ours.items():
            for resource, amount in amounts.items():
                there = bucket(resource, same_step[bound][resource])
                assert abs(bucket(resource, amount) - there) <= 1, (one.name, bound, resource)
        gaps = {
            resource: amount.nano / every_minute["target"][resource].nano - 1.0
            for resource, amount in ours["target"].items()
        }
        print(f"{one.name}: target {ours['target']['cpu']} {ours['target']['memory']}, against a "
              f"one-minute feed cpu {gaps['cpu']:+.1%} memory {gaps['memory']:+.1%}")  # fmt: skip
        condition = told(small, one.name)
        assert condition is not None
        assert (condition["status"], condition["reason"]) == ("True", "HistoryLoaded")
        assert "main: " in condition["message"]


def made(minutes: int, name: str = "web", end_s: int = END_S) -> Series:
    """A service that always uses the same."""
    one = Series.__new__(Series)
    one.name = name
    one.cores = np.full(minutes, 0.2)
    one.times = end_s - 60.0 * np.arange(minutes - 1, -1, -1)
    one.counter = np.cumsum(one.cores) * 60.0
    one.memory = np.full(minutes, 3e8)
    return one


async def test_upstreams_flags_ask_as_upstream_and_labels_tell_whose_a_pod_was(small, tmp_path):
    one = made(120)
    await deployed(small, [one])
    small.usage.is_down = True
    text = openmetrics([one]).replace(one.pod, "nobody-knows-this-name").replace("# EOF\n", "")
    labels = "".join(
        f'kube_pod_labels{{namespace="default",pod="nobody-knows-this-name",label_app="web"}} 1 '
        f"{at:.0f}\n"
        for at in one.times
    )
    flags = parse_flags([
        "--storage=prometheus", "--history-length=2h", "--prometheus-cadvisor-job-name=",
        "--container-pod-name-label=pod", "--container-name-label=container",
        "--metric-for-pod-labels=kube_pod_labels[8d]", "--pod-label-prefix=label_",
        "--pod-namespace-label=namespace", "--pod-name-label=pod",
    ], flags_.TABLE)  # fmt: skip
    assert flags_.problems(flags) == []
    text += f"# TYPE kube_pod_labels gauge\n{labels}# EOF\n"
    server = PrometheusServer(tmp_path, openmetrics=text)
    await asyncio.to_thread(server.__enter__)
    try:
        found = replace(
            recommender_flags.history_of(flags), prometheus=PrometheusOptions(url=server.url)
        )
        async with started(small, lambda: found, recommender_flags.history_span(flags)):
            await small.until(lambda: bool(bounds(small.vpa().get("status") or {})))
    finally:
        await asyncio.to_thread(server.stop)
    # As live: 200 m lie in a bucket that ends at 215 m, and 15 % come on top.
    ours = bounds(small.vpa()["status"])
    assert ours is not None
    assert ours["target"]["cpu"].milli == 247


async def test_while_history_cannot_be_read_a_condition_says_so_and_nothing_changes(
    small, tmp_path, unused_tcp_port
):
    one = made(120)
    await deployed(small, [one])
    small.usage.cores = 0.01  # what a minute of live samples would recommend from
    small.usage.now = END_S
    places = [f"http://127.0.0.1:{unused_tcp_port}"]
    before = {"containerRecommendations": [
        {"containerName": "main", "target": {"cpu": "1", "memory": "1Gi"}}]}  # fmt: skip
    web = small.vpa()
    small.objects.update("verticalpodautoscalers", "default", "web",
                         {**web, "status": {"recommendation": before}}, "status")  # fmt: skip

    def find() -> UsageHistory:
        return by_rules(small, places[-1])()

    async with started(small, find, HistorySpan(7200.0, STEP_S)) as part:
        await small.until(lambda: told(small, "web") is not None, 90.0)
        condition = told(small, "web")
        assert condition is not None
        assert (condition["status"], condition["reason"]) == ("False", "PrometheusUnreachable")
        assert small.vpa()["status"]["recommendation"] == before
        assert part.recommender.loop.heartbeat().is_ok
        await asyncio.sleep(2.5)  # longer than five of its intervals, and nothing has been read
        assert part.recommender.loop.heartbeat().is_ok
        server = PrometheusServer(tmp_path, openmetrics=openmetrics([one]))
        await asyncio.to_thread(server.__enter__)
        try:
            places.append(server.url)
            await small.until(lambda: told(small, "web")["status"] == "True", 90.0)
            await small.until(lambda: small.vpa()["status"]["recommendation"] != before, 90.0)
        finally:
            await asyncio.to_thread(server.stop)
    ours = bounds(small.vpa()["status"])
    assert ours is not None
    assert ours["target"]["cpu"].milli == 247
    assert not small.objects.list("verticalpodautoscalercheckpoints", "default")


def directory(path: Path) -> Path:
    path.mkdir()
    return path


async def test_an_empty_history_of_pods_that_run_is_asked_for_again_and_changes_nothing(
    small, tmp_path
):
    await deployed(small, [made(120)])
    small.usage.cores, small.usage.now = 0.01, END_S
    before = {"containerRecommendations": [
        {"containerName": "main", "target": {"cpu": "1", "memory": "1Gi"}}]}  # fmt: skip
    web = small.vpa()
    small.objects.update("verticalpodautoscalers", "default", "web",
                         {**web, "status": {"recommendation": before}}, "status")  # fmt: skip
    urls: list[str] = []

    def find() -> UsageHistory:
        return by_rules(small, urls[-1])()

    async with (
        seeded(directory(tmp_path / "other"), [made(120, "other")]) as other,
        seeded(directory(tmp_path / "own"), [made(120)]) as own,
    ):
        urls.append(other.url)
        async with started(small, find, HistorySpan(7200.0, STEP_S)):
            await small.until(lambda: told(small, "web") is not None, 90.0)
            condition = told(small, "web")
            assert condition is not None
            assert (condition["status"], condition["reason"]) == ("False", "HistoryEmpty")
            await asyncio.sleep(1.0)
            assert small.vpa()["status"]["recommendation"] == before
            urls.append(own.url)
            await small.until(lambda: told(small, "web")["status"] == "True", 90.0)
            await small.until(lambda: small.vpa()["status"]["recommendation"] != before, 90.0)
    ours = bounds(small.vpa()["status"])
    assert ours is not None
    assert ours["target"]["cpu"].milli == 247


async def test_a_new_cluster_has_no_history_and_starts_without_it(small, tmp_path):
    await deployed(small, [made(120)])
    small.usage.now = END_S
    async with (
        seeded(tmp_path, [made(120, "other")]) as server,
        started(small, by_rules(small, server.url), HistorySpan(7200.0, STEP_S)),
    ):
        await small.until(lambda: bounds(small.vpa().get("status") or {}) is not None, 90.0)
    assert told(small, "web")["status"] == "True"


async def test_a_rule_that_asks_nonsense_is_a_condition_not_an_end(small, tmp_path):
    one = made(10)
    await deployed(small, [one])

    def find() -> UsageHistory:
        return past_queries(None, ["default"])  # type: ignore[return-value]

    async with started(small, find):
        await small.until(lambda: told(small, "web") is not None)
    assert told(small, "web")["reason"] == "QueryInvalid"
