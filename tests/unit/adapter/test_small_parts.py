"""Reuse of answers, own metrics, flags, values, bodies, registration."""

import json

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from adapter import flags as adapter_flags
from adapter.apis import bodies
from adapter.apis.metric_apis import ExternalApi
from adapter.apis.response_cache import ResponseCache
from adapter.discovery.registry import RelistFailure, RuleState
from adapter.queries import readings
from adapter.rules.config import parse as parse_config
from adapter.rules.config_gen import default_config, default_yaml
from adapter.selfmetrics import AdapterMetrics
from adapter.stages import Stage
from podscale.core.boundedcache import grow_older
from podscale.core.metrics import ExternalSample, ExternalSamples, Sample
from podscale.feed.stats import FeedStats
from podscale.kube.client.resource import DEPLOYMENTS, NODES, PODS
from podscale.serving import flags as serving_flags
from podscale.serving.apis.api import ApiRequest, ApiResponse, Media
from podscale.serving.auth.user import ANONYMOUS_USER
from podscale.serving.flags import FlagError
from podscale.serving.request_info import RequestInfo
from tests.unit.adapter.world import rules


def parse(*words):
    return serving_flags.parse(words, adapter_flags.TABLE)


def test_an_answer_is_reused_while_snapshot_and_objects_are_the_same():
    now, is_same = [100.0], [True]
    reuse = ResponseCache(5.0, lambda: now[0])
    response = ApiResponse(b"{}")
    reuse.keep(("a",), response, 98.0, lambda: is_same[0])
    assert reuse.find(("a",)) is response
    assert reuse.find(("b",)) is None
    now[0] = 102.9
    assert reuse.find(("a",)) is response
    now[0] = 103.0
    assert reuse.find(("a",)) is None
    reuse.keep(("a",), response, 103.0, lambda: is_same[0])
    is_same[0] = False
    assert reuse.find(("a",)) is None


def test_a_clock_set_back_ends_the_reuse_of_what_is_now_from_the_future():
    now = [1000.0]
    reuse = ResponseCache(5.0, lambda: now[0])
    reuse.keep(("a",), ApiResponse(b"{}"), 1000.0)
    now[0] = 400.0
    assert reuse.find(("a",)) is None
    reuse.keep(("b",), ApiResponse(b"{}"), 1000.0)  # asked before it was set
    assert reuse.find(("b",)) is None
    now[0] = 1001.0
    assert reuse.find(("a",)) is None
    assert reuse.find(("b",)) is None


def asked(path="/apis/x", **query):
    named = {name: [text] for name, text in query.items()}
    info = RequestInfo(True, path, "get")
    return ApiRequest("GET", path, info, named, {}, b"", ANONYMOUS_USER, Media(), 0.0)


def test_only_what_changes_the_answer_tells_requests_apart():
    plain = ResponseCache.key(asked(labelSelector="a=b"))
    assert (
        ResponseCache.key(asked(labelSelector="a=b", timeout="5s", pretty="true", x="1")) == plain
    )
    others = [
        asked(), asked("/apis/y", labelSelector="a=b"), asked(labelSelector="a=c"),
        asked(metricLabelSelector="a=b"), asked(labelSelector="a=b", fieldSelector="f=1"),
    ]  # fmt: skip
    assert len({plain, *map(ResponseCache.key, others)}) == 1 + len(others)


def test_what_is_held_is_bounded_in_bytes_and_the_oldest_goes_first():
    reuse = ResponseCache(5.0, lambda: 100.0, most_bytes=100_000)
    for n in range(1000):
        reuse.keep(("p", "s" * 5000, str(n)), ApiResponse(b"x" * 5000), 100.0)
        assert reuse._entries.held_bytes <= 100_000
    assert reuse.find(("p", "s" * 5000, "999")) is not None
    assert reuse.find(("p", "s" * 5000, "0")) is None
    reuse.keep(("large",), ApiResponse(b"x" * 200_000), 100.0)
    assert reuse.find(("large",)) is None
    assert reuse.find(("p", "s" * 5000, "999")) is not None


def test_what_is_out_of_date_is_let_go_of_without_being_asked_for():
    now = [100.0]
    reuse = ResponseCache(5.0, lambda: now[0])
    reuse.keep(("old",), ApiResponse(b"x" * 5000), 100.0)
    now[0] = 105.0
    reuse.keep(("new",), ApiResponse(b"x"), 105.0)
    for later_s in (1000.0, 1005.0):  # of another clock
        grow_older(later_s)
    assert reuse._entries.held_bytes < 5000


def test_without_a_life_nothing_is_kept():
    reuse = ResponseCache(0.0, lambda: 100.0)
    reuse.keep(("a",), ApiResponse(b"{}"), 100.0)
    assert reuse.find(("a",)) is None


@pytest.mark.parametrize(("value", "milli"), [
    (1.005, 1004), (-1.5, -1500), (0.0009, 0), (float("nan"), None), (float("inf"), None),
    (-9.3e15, None), (9.2e15, 9200000000000000000),
])  # fmt: skip
def test_values_are_truncated_or_none(value, milli):
    assert readings.milli(value) == milli


def test_usage_is_never_negative():
    assert readings.usage_milli(-0.001) is None
    assert readings.usage_milli(-0.0001) == 0


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
@pytest.mark.parametrize(("resource", "namespace", "api_version"), [
    (PODS, "shop", "/v1"), (DEPLOYMENTS, "shop", "apps/v1"), (NODES, "", "/v1"),
])  # fmt: skip
def test_bodies_are_the_json_they_look_like(version, resource, namespace, api_version):
    odd = 'a "b" \\ ü'
    body = bodies.metric_values(
        version, resource, namespace, odd, None, [("x", 1500, 1.7e9, None), ("y", -1, 1.7e9, 60.0)]
    )
    first, second = json.loads(body)["items"]
    name = first["metricName"] if version == "v1beta1" else first["metric"]["name"]
    assert name == odd
    assert first["describedObject"]["apiVersion"] == api_version
    assert ("namespace" in first["describedObject"]) is bool(namespace)
    assert (first["value"], first["timestamp"]) == ("1500m", "2023-11-14T22:13:20Z")
    assert "windowSeconds" not in first
    assert second["windowSeconds"] == 60


def test_external_bodies_keep_every_label():
    labels = {"__name__": "q", "odd": '"'}
    items = [(labels, 1, 1.7e9, None), (None, 2, 1.7e9, 60.0)]
    body = bodies.external_list([bodies.external_items("q", items)])
    first, second = json.loads(body)["items"]
    assert first["metricLabels"] == labels
    assert (second["metricLabels"], second["window"]) == (None, 60)


def test_own_metrics_follow_the_rules_that_are_there():
    registry = CollectorRegistry()
    metrics = AdapterMetrics(registry)
    for rule in rules("rules: [{seriesQuery: a}, {seriesQuery: b}]").custom:
        failure = RelistFailure(Stage.PROMETHEUS_UNREACHABLE, "down")
        metrics.relisted(RuleState(rule, failure=failure), 0.5)
    metrics.keep_only(["rules[0]"])
    value = registry.get_sample_value
    name = "podscale_adapter_rule_relist_duration_seconds"
    assert value(name, {"rule": "rules[0]"}) == 0.5
    assert value(name, {"rule": "rules[1]"}) is None
    labels = {"rule": "rules[0]", "stage": "PrometheusUnreachable"}
    assert value("podscale_adapter_rule_relist_failures_total", labels) == 1


def test_a_rule_that_fails_before_its_first_list_is_told_as_never_listed():
    registry = CollectorRegistry()
    metrics = AdapterMetrics(registry)
    [rule] = rules("rules: [{seriesQuery: a}]").custom
    failure = RelistFailure(Stage.PROMETHEUS_UNREACHABLE, "down")
    name, labels = "podscale_adapter_rule_last_relist_timestamp_seconds", {"rule": "rules[0]"}
    metrics.relisted(RuleState(rule, failure=failure), 0.5)
    assert registry.get_sample_value(name, labels) == 0.0
    # The list of before goes on serving, wherever the rule stood then.
    metrics.relisted(RuleState(rule, listed_s=1_700_000_000.0, failure=failure), 0.5)
    assert registry.get_sample_value(name, labels) == 1_700_000_000.0


def test_the_feeds_counters_are_exported():
    registry, stats, other = CollectorRegistry(), FeedStats(), FeedStats()
    AdapterMetrics(registry).watch_feeds(lambda: {"": stats, "infra": other})
    stats.hits, other.hits = 7, 3
    stats.queries["batch"] += 2
    stats.served(1.2)
    text = generate_latest(registry).decode()
    assert "podscale_feed_hits_total 7.0" in text
    assert 'podscale_feed_hits_total{source="infra"} 3.0' in text
    assert 'podscale_feed_queries_total{purpose="batch"} 2.0' in text
    assert "podscale_feed_served_age_seconds_count 1.0" in text


def test_default_rules_read_back_as_they_are():
    for rate, prefix in (("5m", ""), ("90s", "kube_")):
        assert parse_config(default_yaml(rate, prefix)).config == default_config(rate, prefix)


UPSTREAM = [
    "--secure-port=6443", "--cert-dir=/tmp/cert", "--config=/etc/adapter/config.yaml",
    "--prometheus-url=https://prometheus.monitoring.svc:9090/", "--metrics-relist-interval=1m",
    "--v=4", "--logtostderr=true", "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "--metrics-max-age=10m", "--prometheus-header=X-Scope-OrgID=1",
    "--authentication-kubeconfig=/k", "--authorization-kubeconfig=/k", "--lister-kubeconfig=/k",
    "--audit-log-path=-", "--profiling=false", "--client-qps=50", "--client-burst=100",
    "--discovery-interval=10m", "--disable-http2",
]  # fmt: skip


def test_the_flags_of_upstreams_manifests_are_taken_and_idle_ones_warned_of():
    flags = parse(*UPSTREAM)
    assert adapter_flags.problems(flags) == []
    assert {w.split()[0] for w in flags.warnings} == {
        "--logtostderr", "--audit-log-path", "--profiling", "--client-qps", "--client-burst",
        "--disable-http2",
    }  # fmt: skip
    options = adapter_flags.relist_options(flags, has_rules=True)
    assert (options.interval_s, options.reach_s) == (60.0, 600.0)


def test_a_maximum_age_below_the_interval_is_refused_only_with_rules():
    flags = parse("--metrics-max-age=30s", "--metrics-relist-interval=1m")
    with pytest.raises(FlagError):
        adapter_flags.relist_options(flags, has_rules=True)
    assert adapter_flags.relist_options(flags, has_rules=False).max_age_s == 30.0


@pytest.mark.parametrize("words", [
    ("--prometheus-verb=PATCH",), ("--coalescing=maybe",), ("--metrics-relist-interval=0s",),
    ("--prometheus-auth-incluster", "--prometheus-auth-config=/x"),
    ("--prometheus-auth-config=/x",),
])  # fmt: skip
def test_what_cannot_work_is_refused(words):
    assert adapter_flags.problems(parse("--config=x", *words))


def test_a_proxy_that_cannot_be_used_is_a_wrong_setting(monkeypatch, tmp_path):
    words = ("--config=x", "--prometheus-url=https://prom.example")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "socks5://me:secret@proxy.corp:1080")
    [found] = adapter_flags.problems(parse(*words))
    assert found.startswith("HTTPS_PROXY=socks5://proxy.corp:1080: only http and https")
    assert adapter_flags.problems(parse(*words, f"--prometheus-ca-file={tmp_path}/ca")) == []
    monkeypatch.setenv("NO_PROXY", "prom.example")
    assert adapter_flags.problems(parse(*words)) == []


def test_the_rules_file_must_be_named():
    assert adapter_flags.problems(parse())


def test_a_ca_file_settles_the_connection():
    flags = parse("--prometheus-ca-file=/ca", "--prometheus-auth-config=/absent")
    assert str(adapter_flags.prometheus_options(flags).ca_file) == "/ca"


class OneSeries:
    """Sources with one series of every external metric."""

    async def read(self, questions):
        series = [ExternalSample({}, Sample(1, 997.0, None))]
        return [ExternalSamples(series, 1000.0) for _ in questions]


async def test_a_kept_external_answer_does_not_pass_over_a_wrong_option():
    freshness = AdapterMetrics(CollectorRegistry()).freshness
    api = ExternalApi(
        OneSeries(), lambda: None, ResponseCache(5.0, lambda: 1001.0), freshness, lambda: 1001.0
    )
    info = RequestInfo(True, "", "list", namespace="shop", parts=("depth",))

    def request(**query):
        named = {name: [text] for name, text in query.items()}
        return ApiRequest("GET", "/apis/x", info, named, {}, b"", ANONYMOUS_USER, Media(), 0.0)

    first = await api.handle(request(labelSelector="a=b"))
    assert api.handle(request(labelSelector="a=b")) is first
    refused = await api.handle(request(labelSelector="a=b", limit="abc"))
    assert refused.code == 400
    contradiction = request(labelSelector="a=b", resourceVersionMatch="Exact")
    assert (await api.handle(contradiction)).code == 422


async def test_the_age_of_an_answer_is_by_the_clock_its_samples_are_by():
    registry = CollectorRegistry()
    freshness = AdapterMetrics(registry).freshness
    api = ExternalApi(OneSeries(), lambda: None, ResponseCache(0.0), freshness, lambda: 1000.0)
    info = RequestInfo(True, "", "list", namespace="shop", parts=("depth",))
    request = ApiRequest("GET", "/apis/x", info, {}, {}, b"", ANONYMOUS_USER, Media(), 0.0)
    await api.handle(request)
    text = generate_latest(registry).decode()
    assert 'freshness_seconds_sum{group="external.metrics.k8s.io"} 3.0' in text
