"""The doctor in bad weather: it names what is broken, in bounded time."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.exporter import Exporter, counter, pod
from tests.integration.prometheus import PrometheusServer
from tests.kit.apiserver.faults import Fault
from tests.kit.apiserver.server import FaultySandbox

RULES = """
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: "^(.*)_total$", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[20s])) by (<<.GroupBy>>)'
"""
METRIC = ("--metric", "http_requests_per_second", "--selector", "app=web")


async def doctor(*arguments: str | Path) -> tuple[int, dict[str, Any], str, float]:
    """Run it; return the exit code, what it found, stderr and the seconds it took."""
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "podscale", "doctor", *map(str, arguments), "-o", "json",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    told = json.loads(out) if out else {}
    return process.returncode or 0, told, err.decode(), time.monotonic() - started


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    directory = tmp_path_factory.mktemp("doctor")
    with Exporter(directory) as exporter:
        exporter.set(pod("shop", "web-1", counter("http_requests_total", 5.0)))
        with PrometheusServer(directory, scrape_configs=[exporter.scrape_config()]) as running:
            running.wait_for("rate(http_requests_total[20s])", 1)
            yield running


@pytest.fixture
async def server() -> AsyncIterator[FaultySandbox]:
    async with FaultySandbox() as running:
        running.objects.put({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "shop"}})
        running.objects.put({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c"}]},
        })  # fmt: skip
        yield running


@pytest.fixture
def base(prometheus: PrometheusServer, server: FaultySandbox, tmp_path: Path) -> list[str]:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    return [
        "--config", str(rules), "--prometheus-url", prometheus.url,
        "--kubeconfig", str(kubeconfig), "-n", "shop",
    ]  # fmt: skip


async def test_a_hanging_prometheus_is_named_within_its_deadline(base, prometheus):
    prometheus.pause()
    try:
        code, told, _, took_s = await doctor(*base, *METRIC, "--timeout", "2")
    finally:
        prometheus.resume()
    assert code == 1
    assert told["findings"][0]["stage"] == "PrometheusUnreachable"
    assert "in time" in told["findings"][0]["seen"]
    assert told["requests"]["prometheus"] == 1
    assert took_s < 20


async def test_a_prometheus_that_is_not_there_is_named(base):
    at = base.index("--prometheus-url") + 1
    base[at] = "http://127.0.0.1:9"
    code, told, _, _ = await doctor(*base, *METRIC)
    assert code == 1
    assert told["findings"][0]["stage"] == "PrometheusUnreachable"


async def test_partial_discovery_is_told_and_the_metric_is_judged_all_the_same(base, server):
    server.objects.put({
        "kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1",
        "metadata": {"name": "v1beta1.broken.example.org"},
        "spec": {
            "group": "broken.example.org", "version": "v1beta1",
            "service": {"namespace": "shop", "name": "nobody"},
            "groupPriorityMinimum": 100, "versionPriority": 100,
        },
    })  # fmt: skip
    code, told, _, _ = await doctor(*base, *METRIC)
    assert (told["findings"][0]["stage"], code) == ("Healthy", 0), told
    assert any("broken.example.org/v1beta1" in note for note in told["notes"]), told["notes"]


async def test_an_apiservice_that_points_elsewhere_is_named(base, server):
    server.objects.put({
        "kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1",
        "metadata": {"name": "v1beta1.custom.metrics.k8s.io"},
        "spec": {
            "group": "custom.metrics.k8s.io", "version": "v1beta1",
            "service": {"namespace": "datadog", "name": "cluster-agent"},
        },
    })  # fmt: skip
    code, told, _, _ = await doctor(*base, *METRIC, "--service", "monitoring/adapter")
    assert (told["findings"][0]["stage"], code) == ("APIServiceElsewhere", 1)
    assert "datadog/cluster-agent" in told["findings"][0]["seen"]


async def test_a_reader_without_rights_is_named(base, server):
    server.enforce_rbac = True
    code, told, _, _ = await doctor(*base, *METRIC)
    assert (told["findings"][0]["stage"], code) == ("Forbidden", 1)


async def test_a_doctor_without_rights_says_which(base, server, tmp_path):
    server.enforce_rbac = True
    token = server.tokens.issue("guest")
    guest = server.kubeconfig(tmp_path / "guest", token)
    base[base.index("--kubeconfig") + 1] = str(guest)
    code, told, err, _ = await doctor(*base, *METRIC)
    assert (code, told) == (1, {})
    assert "guest" in err
    assert "pods" in err


async def test_an_api_server_that_fails_once_is_no_finding(base, server):
    server.faults.add(Fault(kind="status", code=429, seconds=1.0, count=1, verbs=("list",)))
    code, told, err, _ = await doctor(*base, *METRIC)
    assert told, err
    assert (told["findings"][0]["stage"], code) == ("Healthy", 0)
