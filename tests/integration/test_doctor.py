"""``podscale doctor`` as people run it: a real Prometheus, the sandbox as cluster."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.exporter import Exporter, counter, gauge, pod
from tests.integration.prometheus import PrometheusServer
from tests.kit.apiserver.server import FaultySandbox

RULES = """
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: "^(.*)_total$", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[20s])) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'queue_depth'
  resources: {namespaced: false}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
"""


async def doctor(*arguments: str | Path) -> tuple[int, str, str]:
    """Run it; return the exit code, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "podscale", "doctor", *map(str, arguments),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def stage(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
    code, out, err = await doctor(*arguments, "-o", "json")
    assert out, err
    (finding,) = json.loads(out)["findings"]
    return code, finding


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    directory = tmp_path_factory.mktemp("doctor")
    with Exporter(directory) as exporter:
        exporter.set(
            pod("shop", "web-1", counter("http_requests_total", 5.0, code="200")),
            pod("shop", "web-2", counter("http_requests_total", 7.0, code="200")),
            pod("shop", "worker", gauge("queue_depth", 4, queue="mails")),
        )
        with PrometheusServer(directory, scrape_configs=[exporter.scrape_config()]) as running:
            running.wait_for("rate(http_requests_total[20s])", 2)
            running.wait_for("queue_depth", 1)
            yield running


def web(name: str) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    }


@pytest.fixture
async def server() -> AsyncIterator[FaultySandbox]:
    async with FaultySandbox() as running:
        running.objects.put({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "shop"}})
        for name in ("web-1", "web-2"):
            running.objects.put(web(name))
        yield running


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


@pytest.fixture
def base(
    rules: Path, prometheus: PrometheusServer, server: FaultySandbox, tmp_path: Path
) -> list[str]:
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    return [
        "--config", str(rules), "--prometheus-url", prometheus.url,
        "--kubeconfig", str(kubeconfig), "-n", "shop",
    ]  # fmt: skip


WEB = ("--metric", "http_requests_per_second", "--selector", "app=web")


async def test_a_served_metric_is_healthy(base):
    code, finding = await stage(*base, *WEB)
    assert (finding["stage"], code) == ("Healthy", 0), finding
    assert 'http_requests_total{namespace="shop"' in finding["promql"]


async def test_an_external_metric_is_healthy(base):
    code, finding = await stage(*base, "--api", "external", "--metric", "queue_depth")
    assert (finding["stage"], code) == ("Healthy", 0), finding


@pytest.mark.parametrize(("old", "new", "expected", "words"), [
    ("http_requests_total{", "http_request_total{", "NoSeries", "matches no series"),
    ("http_requests_total{", "http_requests_total{{", "SeriesQueryInvalid", "refuses"),
    ('^(.*)_total$", as', '^(.*)_sum$", as', "FilteredOut", "_sum"),
    ("${1}_per_second", "${1}_rate", "NameMismatch", "http_requests_rate"),
    ("pod: {resource: pod}", "pods: {resource: pod}", "NoResourceLabel", "pods"),
    ("namespace: {resource: namespace}, ", "", "NotNamespaced", "namespace"),
    ("[20s]", "[1s]", "EmptyResult", "[1s]"),
    ("by (<<.GroupBy>>)", "by (code)", "GroupByLost", "label pod"),
    ("sum(rate", "summ(rate", "QueryInvalid", "summ"),
    ("{<<.LabelMatchers>>}[20s]", '{pod=~"wor.*|none"}[20s]', "EmptyResult", "no sample"),
    ("sum(rate", "0 / 0 * sum(rate", "NotANumber", "NaN"),
    ("rules:", "rulez:", "ConfigInvalid", "rulez"),
])  # fmt: skip
async def test_the_stage_that_fails_is_named(base, rules, old, new, expected, words):
    assert RULES.count(old) >= 1
    rules.write_text(RULES.replace(old, new, 1))
    code, finding = await stage(*base, *WEB, "--scrape-interval", "1s")
    assert (finding["stage"], code) == (expected, 1), finding
    assert words in finding["seen"] + finding["change"]
    assert finding["place"].startswith(f"{rules}:")


async def test_objects_that_other_labels_name_are_seen(base, server):
    code, finding = await stage(*base, "--metric", "http_requests_per_second", "--name", "web-9")
    assert (finding["stage"], code) == ("EmptyResult", 1), finding
    assert "web-1" in finding["seen"]
    assert "web-9" in finding["seen"]


async def test_an_apiservice_elsewhere_is_named(base, server):
    server.objects.put({
        "kind": "APIService",
        "apiVersion": "apiregistration.k8s.io/v1",
        "metadata": {"name": "v1beta1.custom.metrics.k8s.io"},
        "spec": {
            "group": "custom.metrics.k8s.io", "version": "v1beta1",
            "service": {"namespace": "keda", "name": "keda-metrics"},
        },
    })  # fmt: skip
    code, finding = await stage(*base, *WEB, "--service", "monitoring/adapter")
    assert (finding["stage"], code) == ("APIServiceElsewhere", 1), finding
    assert "keda/keda-metrics" in finding["seen"]


async def test_a_missing_right_of_the_reader_is_named(base, server):
    server.enforce_rbac = True
    code, finding = await stage(*base, *WEB)
    assert (finding["stage"], code) == ("Forbidden", 1), finding
    assert "pods/http_requests_per_second" in finding["seen"]


async def test_each_metric_of_an_hpa_is_followed(base, server):
    labels = {"app": "web"}
    server.objects.put({
        "kind": "Deployment", "apiVersion": "apps/v1",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels},
                 "template": {"metadata": {"labels": labels}, "spec": {"containers": []}}},
    })  # fmt: skip
    target = {"type": "AverageValue", "averageValue": "5"}
    server.objects.put({
        "kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 5,
            "metrics": [
                {"type": "Pods", "pods": {
                    "metric": {"name": "http_requests_per_second"}, "target": target}},
                {"type": "External", "external": {
                    "metric": {"name": "queue_length"}, "target": target}},
            ],
        },
    })  # fmt: skip
    code, out, _ = await doctor(*base, "hpa/web", "-o", "json")
    told = json.loads(out)
    assert [f["stage"] for f in told["findings"]] == ["Healthy", "NameMismatch"]
    assert code == 1
    assert "queue_depth" in told["findings"][1]["seen"]
    assert any("web-1" in each["reason"] for each in told["lints"])  # pods of nobody


async def test_a_whole_file_is_checked_with_one_request_a_rule(base):
    code, out, err = await doctor(*base, "--scrape-interval", "6s")
    assert code == 1
    assert "rules[0]: 1 series name, 1 metric: http_requests_per_second" in out
    assert "externalRules[0]: 1 series name, 1 metric: queue_depth" in out
    assert "RateWindow" in out
    assert "requests: 3 to Prometheus" in err
    code, out, _ = await doctor(
        *base, "--scrape-interval", "6s",
        *(f"--disable-lint={each}" for each in ("RateWindow", "SeveralSeries")),
    )  # fmt: skip
    assert code == 0, out


async def test_a_rule_of_another_source_is_not_asked_of_this_prometheus(base, rules):
    rules.write_text(
        f"{RULES}- seriesQuery: elsewhere_total\n  source: infra\n"
        "  resources: {namespaced: false}\n  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'\n"
    )
    code, out, err = await doctor(
        *base, "--scrape-interval", "6s",
        *(f"--disable-lint={each}" for each in ("RateWindow", "SeveralSeries")),
    )  # fmt: skip
    assert (code, "elsewhere_total" in out) == (0, False), out
    assert "of other sources, and linted only: externalRules[1] (infra)" in out + err
    assert "requests: 3 to Prometheus" in err


async def test_rules_are_found_in_a_config_map_file_and_in_the_cluster(
    base, rules, server, tmp_path
):
    manifest = {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "adapter-config", "namespace": "shop"},
        "data": {"config.yaml": RULES},
    }
    rules.write_text(json.dumps(manifest))
    assert (await stage(*base, *WEB))[1]["stage"] == "Healthy"
    server.objects.put(manifest)
    arguments = ["--config-map", "shop/adapter-config", *base[2:]]
    assert (await stage(*arguments, *WEB))[1]["stage"] == "Healthy"


@pytest.mark.parametrize("mask", [[], ["--mask"]])
async def test_a_recording_leads_to_the_same_finding(base, rules, tmp_path, mask):
    rules.write_text(RULES.replace("by (<<.GroupBy>>)", "by (code)"))
    kept = tmp_path / "evidence.json"
    _, live = await stage(*base, *WEB, "--record", kept, *mask)
    code, replayed = await stage("--series", kept)
    assert (code, replayed["stage"]) == (1, live["stage"])
    assert replayed["rule"] == live["rule"] == "rules[0]"
    for secret in ("web-1", "web-2", "127.0.0.1", '"shop"'):
        assert (secret in kept.read_text()) is (not mask)


@pytest.mark.parametrize("arguments", [
    [],
    ["--config", "a", "--config-map", "b/c"],
    ["--config", "no-such-file", "--no-cluster"],
    ["--config", "a", "--metric", "x"],
    ["--config", "a", "vpa/web"],
    ["--config", "a", "--disable-lint", "Nonsense"],
])  # fmt: skip
async def test_a_wrong_call_exits_with_2(arguments):
    code, _, err = await doctor(*arguments)
    assert code == 2, err
    assert "podscale doctor:" in err


async def test_a_file_alone_is_linted_offline(rules):
    code, out, err = await doctor("--config", rules, "--no-cluster", "--kubeconfig", "none")
    assert code == 0, out + err
    assert "no problems found" in out


def asks(name: str, *metrics: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "maxReplicas": 5, "metrics": list(metrics),
        },
    }  # fmt: skip


def of_pods(name: str) -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": "5"}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}


def external(name: str) -> dict[str, Any]:
    target = {"type": "Value", "value": "5"}
    return {"type": "External", "external": {"metric": {"name": name}, "target": target}}


def of_object(kind: str, api_version: str, name: str) -> dict[str, Any]:
    about = {"kind": kind, "apiVersion": api_version, "name": "x"}
    target = {"type": "Value", "value": "5"}
    return {"type": "Object", "object": {"metric": {"name": name}, "target": target,
                                         "describedObject": about}}  # fmt: skip


QUIET = ("--scrape-interval", "1s", "--disable-lint=SeveralSeries", "-A", "-o", "json")


async def test_every_hpa_of_the_cluster_has_a_rule_for_its_metrics(base, server):
    server.objects.put(
        asks("well", of_pods("http_requests_per_second"), external("queue_depth"),
             of_object("Namespace", "v1", "http_requests_per_second"))
    )  # fmt: skip
    code, out, err = await doctor(*base[:-2], *QUIET)
    assert (code, json.loads(out)["findings"]) == (0, []), err
    server.objects.put(
        asks("odd", of_pods("http_request_per_second"), external("queue_length"),
             of_object("Deployment", "apps/v1", "http_requests_per_second"),
             of_object("Nothing", "example.org/v1", "http_requests_per_second"))
    )  # fmt: skip
    code, out, _ = await doctor(*base[:-2], *QUIET)
    found = json.loads(out)["findings"]
    assert code == 1
    assert [f["stage"] for f in found] == [
        "NameMismatch", "NameMismatch", "NoResourceLabel", "ObjectMismatch"
    ]  # fmt: skip
    assert all("hpa/odd in shop" in each["seen"] for each in found)
    assert "no problems found" not in (await doctor(*base[:-2], *QUIET[:-2]))[1]


USAGE = """
resourceRules:
  cpu:
    containerQuery: sum(rate(http_requests_total{<<.LabelMatchers>>}[20s])) by (<<.GroupBy>>)
    nodeQuery: sum(rate(node_requests{<<.LabelMatchers>>}[20s])) by (<<.GroupBy>>)
    resources: &resources {template: <<.Resource>>, overrides: {container: {resource: node}}}
    containerLabel: container
  memory:
    containerQuery: sum(queue_depth{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    nodeQuery: sum(queue_depth{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    resources: *resources
    containerLabel: container
  window: 20s
"""


@pytest.mark.parametrize(("old", "new", "said"), [
    ("", "", "NoSeries: nodeQuery: no series match node_requests"),
    ("node_requests", "http_requests_total", ""),
    ("node_requests{", 'http_requests_total{job="gone",', "NoSeries"),
    ("node_requests{<<.LabelMatchers>>}[20s])", "http_requests_total[20s]) > 1e9", "EmptyResult"),
    ("containerLabel: container", "containerLabel: box", "has no label box"),
])  # fmt: skip
async def test_resource_rules_whose_series_are_not_there_are_a_problem(base, rules, old, new, said):
    rules.write_text(USAGE.replace(old, new) if old else USAGE)
    code, out, _ = await doctor(*base, "--scrape-interval", "1s", "-o", "json")
    told = {rule["rule"]: rule["problem"] for rule in json.loads(out)["rules"]}
    assert list(told) == ["resourceRules.cpu", "resourceRules.memory"]
    assert said in told["resourceRules.cpu"]
    if not said:
        assert set(told.values()) == {""}
        assert code == 0, out
    else:
        assert code == 1


async def test_resource_rules_that_are_missing_are_not_said_to_be_well(base, rules):
    rules.write_text(
        USAGE.partition("  memory:")[0].replace("node_requests", "http_requests_total")
    )
    code, out, _ = await doctor(*base, "--scrape-interval", "1s", "-o", "json")
    report = json.loads(out)
    assert code == 1
    assert [rule["rule"] for rule in report["rules"]] == ["resourceRules.cpu"]
    assert "resourceRules.memory is missing" in json.dumps(report["lints"])


def node(name: str) -> dict[str, Any]:
    born = "2026-01-01T00:00:00Z"
    return {"kind": "Node", "apiVersion": "v1",
            "metadata": {"name": name, "creationTimestamp": born}}  # fmt: skip


NODE_RULES = (
    USAGE.replace("node_requests", "http_requests_total")
    .replace("nodeQuery: sum(queue_depth", "nodeQuery: sum(http_requests_total")
    .replace("{container: {resource: node}}", "{pod: {resource: node}}")
)


@pytest.mark.parametrize(("nodes", "said"), [
    (("web-1", "web-2"), ""),
    (("node-a", "node-b"),
     "of 2 nodes of the cluster it finds 0: the cluster has node-a, and what it finds has the pod"),
    (("web-1", "web-2", "node-a"), ""),  # which is told of when it is asked about
    (("web-1", "web-2", "node-a", "node-b", "node-c"),
     "of 5 nodes of the cluster it finds 2: there is no value of node-a"),
])  # fmt: skip
async def test_node_values_under_other_names_than_the_clusters_are_a_problem(
    base, server, rules, nodes, said
):
    rules.write_text(NODE_RULES)
    for name in nodes:
        server.objects.put(node(name))
    for more in ((), ("--metric", "cpu", "--resource", "nodes")):
        code, out, _ = await doctor(*base, "--scrape-interval", "1s", "-o", "json", *more)
        report = json.loads(out)
        (found,) = (rule for rule in report["rules"] if rule["rule"] == "resourceRules.cpu")
        if not said:
            assert (code, found["problem"]) == (0, ""), out
            continue
        assert code == 1
        assert f"ObjectMismatch: nodeQuery: {said}" in found["problem"]
        assert "It asks sum(rate(http_requests_total" in found["problem"]
        assert found["place"].startswith(f"{rules}:4:")


async def test_usage_of_nodes_is_asked_of_metrics_k8s_io_where_the_file_has_no_resource_rules(
    base, server, tmp_path
):
    server.objects.put(node("node-a"))
    about = ("--metric", "cpu", "--resource", "nodes")
    code, finding = await stage(*base, *about)
    assert (code, finding["asked"]["api"]) == (1, "resource")
    assert "metrics.k8s.io" in finding["seen"]
    code, finding = await stage(*base[:4], "--no-cluster", "--name", "node-a", *about)
    assert (code, finding["stage"]) == (1, "NoSeries")
    assert "no resourceRules" in finding["seen"]
