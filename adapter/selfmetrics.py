"""What the adapter says about itself on ``/metrics``.

Upstream has one latency histogram; what people looked for and did not find is here by
rule: when it was listed, how long that took, what it exposes and what it lost.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, core
from prometheus_client.registry import Collector

from adapter.discovery.registry import RuleState
from podscale.core.showable import shown_url
from podscale.feed.decoding.wire import InstantAnswer
from podscale.feed.http.client import PrometheusClient
from podscale.feed.http.series import SeriesReader
from podscale.feed.options import PrometheusOptions, Verb
from podscale.feed.stats import AGE_BUCKETS_S, FeedStats
from podscale.serving.monitoring.selfmetrics import cumulative

_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class AdapterMetrics:
    """The adapter's counters, on the server's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.latency = Histogram(
            "prometheus_adapter_prometheus_client_request_duration_seconds",
            "Duration of requests to Prometheus.",
            ("path", "server"),
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self.freshness = Histogram(
            "metrics_apiserver_metric_freshness_seconds",
            "Age of the oldest sample of an answer when it was made.",
            ("group",),
            buckets=AGE_BUCKETS_S,  # custom-metrics-apiserver's: 1 s times 1.364 to the power 0..19
            registry=registry,
        )
        gauge, counter = partial(Gauge, registry=registry), partial(Counter, registry=registry)
        self._listed_s = gauge(
            "podscale_adapter_rule_last_relist_timestamp_seconds",
            "When the series of a rule were last listed successfully; 0: never.",
            ("rule",),
        )
        self._seconds = gauge(
            "podscale_adapter_rule_relist_duration_seconds",
            "How long the last relist of a rule took.",
            ("rule",),
        )
        self._series = gauge(
            "podscale_adapter_rule_series", "Series that a rule's seriesQuery selects.", ("rule",)
        )
        self._metrics = gauge(
            "podscale_adapter_rule_metrics",
            "Metrics (name and kind of object) that a rule exposes.",
            ("rule",),
        )
        self._lost = gauge(
            "podscale_adapter_rule_lost_series_names",
            "Series names of a rule that expose nothing, by the stage that lost them.",
            ("rule", "stage"),
        )
        self._told: dict[str, set[str]] = {}  # the stages of ``_lost``, by rule
        self._failures = counter(
            "podscale_adapter_rule_relist_failures",
            "Relists of a rule that failed; its last good list went on serving.",
            ("rule", "stage"),
        )
        self.passed = counter(
            "podscale_external_backend_requests",
            "Requests for external metrics that another adapter was asked, by its name and result.",
            ("backend", "result"),
        )
        self.passed_names = gauge(
            "podscale_external_backend_metrics",
            "External metrics that another adapter lists.",
            ("backend",),
        )
        self.reloads = counter(
            "podscale_adapter_config_reloads", "Changes of the rules file, by result.", ("result",)
        )
        self.config_ok = gauge(
            "podscale_adapter_config_last_reload_successful",
            "Whether the rules in force are those of the file.",
        )
        self.config_ok.set(1)
        self._registry = registry

    def relisted(self, state: RuleState, seconds: float) -> None:
        rule = state.rule.id
        stages = self._told.setdefault(rule, set())
        self._seconds.labels(rule).set(seconds)
        if state.failure is not None:
            self._failures.labels(rule, state.failure.stage).inc()
            # Without a first list there would be no series, and nothing to alert on.
            self._listed_s.labels(rule).set(state.listed_s or 0.0)
            return
        if state.listing is None or state.listed_s is None:
            return
        self._listed_s.labels(rule).set(state.listed_s)
        self._series.labels(rule).set(state.series)
        self._metrics.labels(rule).set(len(state.listing.exposed))
        for stage, count in state.listing.losses.items():
            stages.add(stage)
            self._lost.labels(rule, stage).set(count)

    def keep_only(self, rules: Iterable[str]) -> None:
        """Drop the series of rules that are no longer in the file."""
        for rule in self._told.keys() - set(rules):
            for family in (self._listed_s, self._seconds, self._series, self._metrics):
                family.remove(rule)
            for stage in self._told.pop(rule):
                self._lost.remove(rule, stage)

    def watch_feeds(self, stats: Callable[[], Mapping[str, FeedStats]]) -> None:
        """Export the feeds' counters, by the name of their source ("": the default's)."""
        self._registry.register(_FeedCollector(stats))


class ObservedClient(PrometheusClient):
    """The client of Prometheus with upstream's latency histogram."""

    def __init__(
        self,
        options: PrometheusOptions,
        metrics: AdapterMetrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(options, clock)
        server = shown_url(options.url)
        self._query_seconds = metrics.latency.labels("/api/v1/query", server)
        self._series_seconds = metrics.latency.labels("/api/v1/series", server)

    async def query(
        self,
        text: str,
        time_s: float,
        *,
        verb: Verb | None = None,
        compress: bool = False,
        is_raw: bool = False,
    ) -> InstantAnswer:
        """Return the answer to an instant query; raises ``QueryError``."""
        started = time.monotonic()
        try:
            return await super().query(text, time_s, verb=verb, compress=compress, is_raw=is_raw)
        finally:
            self._query_seconds.observe(time.monotonic() - started)

    async def _series(self, match: str, start_s: float, reader: SeriesReader) -> bytes:
        started = time.monotonic()
        try:
            return await super()._series(match, start_s, reader)
        finally:
            self._series_seconds.observe(time.monotonic() - started)


class _FeedCollector(Collector):
    def __init__(self, stats: Callable[[], Mapping[str, FeedStats]]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[core.Metric]:
        # The default's series have no label, as before there were others.
        found = [({"source": n} if n else {}, stats) for n, stats in self._stats().items()]
        for name, about, label, attribute in (
            ("queries", "Queries sent.", "purpose", "queries"),
            ("query_failures", "Failed queries.", "kind", "failures"),
            ("demotions", "Plans not widened.", "why", "demotions"),
        ):
            family = core.CounterMetricFamily(f"podscale_feed_{name}", about)
            for source, stats in found:
                for value, count in getattr(stats, attribute).items():
                    family.add_sample(f"{family.name}_total", {label: value, **source}, count)
            yield family
        for name, about in _COUNTERS.items():
            family = core.CounterMetricFamily(f"podscale_feed_{name}", about)
            for source, stats in found:
                family.add_sample(f"{family.name}_total", source, getattr(stats, name))
            yield family
        in_flight = core.GaugeMetricFamily("podscale_feed_queries_in_flight", "Queries running.")
        ages = core.HistogramMetricFamily(
            "podscale_feed_served_age_seconds",
            "Age of the samples that were served, where it is known.",
        )
        for source, stats in found:
            in_flight.add_sample(in_flight.name, source, stats.in_flight)
            _add_ages(ages, source, stats)
        yield in_flight
        yield ages


_COUNTERS = {
    "hits": "Demands answered from a snapshot.",
    "merged": "Demands that waited for somebody else's query.",
    "misses": "Demands that caused a query.",
    "singles": "Demands answered by a query of their own.",
    "refreshes": "Refreshes of groups.",
    "splits": "Batches split after a failure.",
    "exclusions": "Namespaces taken out of batches.",
    "stale": "Objects answered as stale.",
}


def _add_ages(family: core.HistogramMetricFamily, source: dict[str, str], stats: FeedStats) -> None:
    total = 0.0
    for bound, total in cumulative(AGE_BUCKETS_S, stats.age_counts):
        family.add_sample(f"{family.name}_bucket", {**source, "le": bound}, total)
    family.add_sample(f"{family.name}_count", source, total)
    family.add_sample(f"{family.name}_sum", source, stats.age_sum_s)
