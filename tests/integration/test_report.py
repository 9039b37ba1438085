"""``podscale report`` on a real Prometheus: what is said, what it costs, what is missing."""

import asyncio
import csv
import io
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import yaml

from podscale.cli.report.run import print_report, said_of
from podscale.feed.options import PrometheusOptions
from podscale.feed.range_reader import HistoryReader, HistorySlice
from podscale.nodes.cluster.pod_sums import HEADROOM_NAMESPACE
from podscale.nodes.flags import NodesChoice
from podscale.replay.fleet.assembly import OWN_NAMESPACES, report_of
from podscale.replay.fleet.reading import POINTS, FleetNames, FleetReader, FleetSpan
from podscale.replay.fleet.sizing import RequestChoice
from podscale.sandbox.promql.series import NAME, SeriesHead, label_set
from podscale.sandbox.promql.server import PrometheusStandIn
from tests.integration.fleet_past import GIB, PastPod, flat, openmetrics
from tests.integration.prometheus import PrometheusServer
from tests.integration.test_demo import demo, end, shown_until

HOURS = 96
# The past goes on while the tests run: Prometheus knows an instant value for five minutes only.
AHEAD_S = 900


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    end_s = int(time.time()) + AHEAD_S
    directory = tmp_path_factory.mktemp("prometheus")
    with PrometheusServer(directory, openmetrics=openmetrics(end_s, HOURS)) as server:
        yield server


def call(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "podscale", "report", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def body(server: PrometheusServer, *words: str) -> dict[str, object]:
    done = call("--prometheus-url", server.url, "-A", "--since", "4d", "-o", "json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def rows(prometheus: PrometheusServer) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in body(prometheus)["containers"]}


def test_a_container_has_its_figures(rows: dict[str, dict[str, object]]) -> None:
    web = rows["web"]
    assert (web["kind"], web["pods"], web["hpa"]) == ("Deployment", 2, "acts")
    assert (web["cpuRequest"], web["cpuLimit"]) == (2.0, 4.0)
    assert (web["cpuP95"], web["cpuMax"]) == pytest.approx((0.4, 0.4), rel=0.01)
    assert web["memoryMax"] == pytest.approx(0.3 * GIB, rel=0.01)
    assert web["cpuSaving"] == pytest.approx(2 * (2.0 - web["cpuRecommended"]))
    assert rows["still"]["cpuRequest"] is None
    assert rows["still"]["cpuSaving"] < 0.0
    assert rows["queue"]["oomKills"] == 1
    assert rows["api"]["throttled"] == pytest.approx(0.3, rel=0.01)


def test_a_class_has_the_numbers_behind_it(rows: dict[str, dict[str, object]]) -> None:
    classes = {name: (row["cpuClass"], row["memoryClass"]) for name, row in rows.items()}
    assert classes["web"] == ("daily", "steady")
    assert classes["queue"] == ("steady", "growing")
    assert classes["api"] == ("bursty", "steady")
    assert classes["still"][0] == "idle"
    assert rows["web"]["cpuDaily"] > 0.9
    assert rows["queue"]["memoryGrowth"] > 0.5
    assert rows["api"]["cpuBurst"] > 3.0


def test_risk_is_a_number_with_an_interval(rows: dict[str, dict[str, object]]) -> None:
    for row in rows.values():
        for resource in ("cpu", "memory"):
            low, risk, high = (row[f"{resource}Risk{each}"] for each in ("Low", "", "High"))
            if row["name"] == "new":  # three hours say nothing of a week
                assert (low, risk, high) == (None, None, None)
                continue
            assert 0.0 <= low <= risk <= high <= 1.0
    assert rows["api"]["cpuRisk"] > 0.9
    assert "use an HPA" in rows["api"]["advice"]
    assert rows["queue"]["memoryRisk"] > 10 * rows["queue"]["cpuRisk"]
    assert "leak" in rows["queue"]["advice"]


def test_ballast_is_no_workload_and_that_is_said(prometheus: PrometheusServer) -> None:
    assert {NodesChoice().namespace, HEADROOM_NAMESPACE} == OWN_NAMESPACES
    report = body(prometheus)
    assert not OWN_NAMESPACES.intersection(row["namespace"] for row in report["containers"])
    wanted = "1 containers of podscale's ballast and headroom: left out, the nodes part sizes them"
    assert wanted in report["notes"]
    done = call("--prometheus-url", prometheus.url, "-n", "podscale-ballast", "--since", "4d")
    assert done.returncode == 0, done.stderr
    assert wanted in done.stdout + done.stderr


def test_what_is_gone_is_counted_and_what_is_new_is_there(prometheus: PrometheusServer) -> None:
    found = body(prometheus)
    names = [row["name"] for row in found["containers"]]
    assert "shop" not in names  # its other name is
    assert "store" in names
    assert any("1 containers have had no sample for a day" in note for note in found["notes"])


def test_bounds_of_nodes_and_limit_ranges_hold(rows: dict[str, dict[str, object]]) -> None:
    assert rows["still"]["cpuRecommended"] == 0.1
    assert rows["still"]["cpuBoundedBy"] == "LimitRangeMin"


@pytest.mark.parametrize("estimator", ["autopilot", "percentile"])
def test_other_estimators_recommend(prometheus: PrometheusServer, estimator: str) -> None:
    found = body(prometheus, "--estimator", estimator, "--percentile", "0.99")
    web = next(row for row in found["containers"] if row["name"] == "web")
    most = 0.401 if estimator == "percentile" else 0.55
    assert 0.39 <= web["cpuRecommended"] <= most


def test_csv_and_table_say_the_same(prometheus: PrometheusServer) -> None:
    words = ("--prometheus-url", prometheus.url, "-A", "--since", "4d")
    lines = list(csv.DictReader(io.StringIO(call(*words, "-o", "csv").stdout)))
    table = call(*words, "-o", "wide").stdout
    for line in lines:
        assert f"{line['namespace']}/{line['kind'].lower()}/{line['name']} " in table
    assert "default/deployment/api: use an HPA" in table


def test_prices_make_money_of_it(prometheus: PrometheusServer, tmp_path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\ncoreHour: 0.04\ngibHour: 0.005\n")
    found = body(prometheus, "--price", str(prices))
    web = next(row for row in found["containers"] if row["name"] == "web")
    hour = web["cpuSaving"] * 0.04 + web["memorySaving"] / GIB * 0.005
    assert web["moneyAMonth"] == pytest.approx(730 * hour, abs=0.02)
    assert found["currency"] == "EUR"
    prices.write_text("currency: EUR\ncoreHours: 0.04\n")
    refused = call("--prometheus-url", prometheus.url, "-A", "--price", str(prices))
    assert refused.returncode == 2
    assert f"{prices}:2" in refused.stderr


def test_other_names_are_read_from_a_file(prometheus: PrometheusServer, tmp_path) -> None:
    names = tmp_path / "names.yaml"
    names.write_text("cpu: node_cpu\nmemory: node_memory\n")
    refused = call("--prometheus-url", prometheus.url, "-A", "--names", str(names))
    assert refused.returncode == 2
    assert "no node_cpu or node_memory" in refused.stderr
    names.write_text("rateWindow: 10m\npodOwner: nobody_has_it\n")
    found = body(prometheus, "--names", str(names))
    assert any("nobody_has_it" in note for note in found["notes"])
    # Names of pods say it, too.
    assert {row["kind"] for row in found["containers"]} == {"Deployment", "StatefulSet"}


def churning(end_s: int, minutes: int) -> SeriesHead:
    """A pod that stays, and until six minutes ago one every 30 s that lives for a minute."""
    head = SeriesHead()
    pods = [("web-6d4f9c5b7d-x2x4b", 0, 60 * minutes)]
    for number, born_s in enumerate(range(0, 60 * (minutes - 6), 30)):
        letters = "".join("bcdfghjklm"[int(each)] for each in f"{number:05}")
        pods.append((f"worker-6d4f9c5b7d-{letters}", born_s, born_s + 60))
    for name, born_s, gone_s in pods:
        for at_s in range(born_s, gone_s, 15):
            for metric, value in (
                ("container_cpu_usage_seconds_total", 0.1 * (at_s - born_s)),
                ("container_memory_working_set_bytes", 0.1 * GIB),
            ):
                labels = {NAME: metric, "namespace": "default", "pod": name, "container": "main"}
                at_ms = 1000 * (end_s - 60 * minutes + at_s)
                head.append(label_set(labels), at_ms, value)
    return head


@pytest.mark.parametrize("minutes", [20, 200])
async def test_pods_that_come_and_go_are_counted_by_their_time_not_by_their_names(minutes) -> None:
    end_s = 1_790_000_000
    async with PrometheusStandIn(lambda: float(end_s), head=churning(end_s, minutes)) as stand_in:
        words = ("--prometheus-url", stand_in.url, "-A", "--since", "6h", "-o", "json")
        done = await asyncio.to_thread(call, *words)
        table = await asyncio.to_thread(call, *words[:5])
    assert done.returncode == 0, done.stderr
    found = {row["name"]: row["pods"] for row in json.loads(done.stdout)["containers"]}
    assert found["web"] == 1
    # Two at once for all but six minutes; one that is cut by a step is known for all of it.
    assert 2 * (minutes - 6) / (minutes + 5) <= found["worker"] <= 2.05
    assert re.search("caution: only .* of history", table.stdout)


async def test_pods_whose_samples_have_just_ended_are_as_many_as_they_were() -> None:
    end_s = 1_790_000_000
    async with PrometheusStandIn(lambda: end_s + 240.0, head=churning(end_s, 200)) as stand_in:
        words = ("--prometheus-url", stand_in.url, "-A", "--since", "6h", "-o", "json")
        done = await asyncio.to_thread(call, *words)
    found = {row["name"]: row["pods"] for row in json.loads(done.stdout)["containers"]}
    assert found["web"] == pytest.approx(1.0, abs=0.05)


class Counting:
    """A reader that counts what is asked."""

    def __init__(self, reader: HistoryReader) -> None:
        self._reader, self.queries = reader, 0

    async def read(
        self, query: str, start_s: float, end_s: float, step_s: int, *, points: int
    ) -> AsyncIterator[HistorySlice]:
        async for part in self._reader.read(query, start_s, end_s, step_s, points=points):
            self.queries += 1
            yield part


async def test_queries_are_few_however_many_days(prometheus: PrometheusServer) -> None:
    span = FleetSpan(int(time.time()) // 300 * 300, 32)
    async with HistoryReader(PrometheusOptions(url=prometheus.url)) as reader:
        counting = Counting(reader)
        await FleetReader(counting, FleetNames(), span, lambda *_: None).past()
    assert counting.queries <= 40
    assert POINTS <= 2 * 2_000 * 288


@pytest.mark.needs("prometheus")
async def test_without_kube_state_metrics_usage_is_there_and_the_rest_is_named(
    tmp_path, capsys
) -> None:
    now = int(time.time()) // 300 * 300
    ended = PastPod("queue-1", ("StatefulSet", "queue"), flat(0.2), flat(0.2 * GIB), last_h=29.9)
    seed = openmetrics(now, 30, ended, with_kube_state_metrics=False)
    server = PrometheusServer(tmp_path, openmetrics=seed)
    await asyncio.to_thread(server.__enter__)
    try:
        span = FleetSpan(now, 5)
        async with HistoryReader(PrometheusOptions(url=server.url)) as reader:
            past = await FleetReader(reader, FleetNames(), span, lambda *_: None).past()
    finally:
        await asyncio.to_thread(server.stop)
    report = report_of(past, span, RequestChoice(), None, lambda *_: None)
    named = {str(line.sized.workload) for line in report.lines}
    assert {"default/deployment/web", "default/statefulset/queue"} <= named
    (totals, *_) = said_of(report)
    assert totals == (
        f"{len(report.lines)} containers over 1d6h: "
        "savings unknown: Prometheus has no resource requests"
    )
    print_report(report, "table")
    assert "none" not in capsys.readouterr().out
    # A pod that ended six minutes ago does not run now.
    assert {line.pods for line in report.lines if line.sized.workload.name == "queue"} == {1.0}
    missing = " ".join(report.notes)
    assert missing.count("not known: owners") == 1
    for metric in ("kube_pod_owner", "kube_pod_container_resource_requests",
                   "kube_node_status_allocatable"):  # fmt: skip
        assert metric in missing
    # A saving of nobody knows what is none.
    assert report.totals()["freedCores"] == report.totals()["addedCores"] == 0.0


def test_patches_and_page_are_written(prometheus: PrometheusServer, tmp_path) -> None:
    out, page = tmp_path / "out", tmp_path / "report.html"
    words = ("--prometheus-url", prometheus.url, "-A", "--since", "4d", "--html", str(page))
    done = call(*words, "--patches", str(out), "--max-risk", "5%")
    assert done.returncode == 0, done.stderr
    listed = yaml.safe_load((out / "kustomization.yaml").read_text())["patches"]
    assert [each["path"] for each in listed] == sorted(
        file.name for file in out.iterdir() if file.name != "kustomization.yaml"
    )
    texts = [(out / each["path"]).read_text() for each in listed]
    assert not any("name: new\n" in text for text in texts)  # nothing is known of its risk
    of_web = next(text for text in texts if "name: web\n" in text)
    assert "cpu" not in yaml.safe_load(of_web)["spec"]["template"]["spec"]["containers"][0][
        "resources"]["requests"]  # fmt: skip
    assert re.search(r"use an HPA at [4-8]0 % of the request", page.read_text())
    again = call(*words, "--patches", str(out))
    assert again.returncode == 2
    assert "say an empty folder" in again.stderr


@pytest.mark.timeout(120)
async def test_the_demo_is_reported_from_its_own_prometheus(tmp_path) -> None:
    running = await demo(tmp_path, "--speed", "20")
    try:
        source = re.search(
            r"Prometheus: (http://\S+)", await shown_until(running, "the size changes from 2 to ")
        )
        assert source
        page = tmp_path / "report.html"
        words = ("-A", "--prometheus-url", source[1], "--html", str(page), "-o", "json")
        done = await asyncio.to_thread(call, *words)
    finally:
        await end(running)
    assert done.returncode == 0, done.stderr
    found = {row["name"]: row for row in json.loads(done.stdout)["containers"]}
    assert {"web", "worker"} <= set(found)
    assert found["web"]["cpuRecommended"] > 0.0
    assert "web" in page.read_text()
