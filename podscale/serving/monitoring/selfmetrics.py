"""What the server says about itself on ``/metrics``, under upstream's names.

Names and buckets follow k8s.io/apiserver and component-base (adapter.md 6.3). What
counts every request lives in ``tally``, the rest are prometheus_client's own.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from podscale.core.unfailing import UnfailingStream
from podscale.serving.monitoring.counters import AttemptCounter, RequestCounter

_DELEGATED_BUCKETS = (0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0)
_CERTIFICATE_BUCKETS = (
    0.0, 1800.0, 3600.0, 7200.0, 21600.0, 43200.0, 86400.0, 172800.0, 345600.0, 604800.0,
    2592000.0, 7776000.0, 15552000.0, 31104000.0,
)  # fmt: skip


class ServerFigures(Protocol):
    """What the listener counts for itself."""

    reading: int
    mutating: int
    failed_handshakes: int

    @property
    def connections(self) -> Collection[object]:
        """Open connections."""


class SelfMetrics:
    """The server's own metrics in ``registry``, which parts share for theirs."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.requests = RequestCounter()
        self.authentication = AttemptCounter(
            "authentication_attempts",
            "Authenticated requests by result.",
            ("success", "failure"),
        )
        self.authorization = AttemptCounter(
            "authorization_attempts_total",
            "Authorized requests by result.",
            ("allowed", "denied", "no-opinion", "error"),
        )
        for collector in (self.requests, self.authentication, self.authorization, _Log()):
            self.registry.register(collector)
        self.client_certificate_expiration = Histogram(
            "apiserver_client_certificate_expiration_seconds",
            "Remaining lifetime of the client certificates that authenticated.",
            buckets=_CERTIFICATE_BUCKETS,
            registry=self.registry,
        )
        self.delegated_authn = _Delegated(self.registry, "authn", "TokenReviews")
        self.delegated_authz = _Delegated(self.registry, "authz", "SubjectAccessReviews")

    def watch(self, server: ServerFigures, not_after: Callable[[], float]) -> None:
        """Expose what the server knows anyway; read at every scrape."""
        self.registry.register(_Live(server, not_after))


class _Log(Collector):
    def collect(self) -> Iterable[Metric]:
        """Yield the metric."""
        yield CounterMetricFamily(
            "podscale_log_lines_lost",
            "Lines of the log that could not be written: a full disk, a closed pipe.",
            UnfailingStream.lost,
        )


class _Live(Collector):
    def __init__(self, server: ServerFigures, not_after: Callable[[], float]) -> None:
        self._server = server
        self._not_after = not_after

    def collect(self) -> Iterable[Metric]:
        server = self._server
        inflight = GaugeMetricFamily(
            "apiserver_current_inflight_requests",
            "Requests being answered.",
            labels=["request_kind"],
        )
        inflight.add_metric(["readOnly"], server.reading)
        inflight.add_metric(["mutating"], server.mutating)
        yield inflight
        yield CounterMetricFamily(
            "apiserver_tls_handshake_errors",
            "Handshakes that failed; client certificates of unknown CAs among them.",
            server.failed_handshakes,
        )
        yield GaugeMetricFamily(
            "podscale_serving_connections", "Open client connections.", len(server.connections)
        )
        yield GaugeMetricFamily(
            "podscale_serving_certificate_not_after_seconds",
            "Unix time at which our serving certificate expires.",
            self._not_after(),
        )


class _Delegated:
    """One kind of review: how many, with which HTTP status, how long."""

    def __init__(self, registry: CollectorRegistry, kind: str, what: str) -> None:
        self._total = Counter(
            f"apiserver_delegated_{kind}_request",
            f"{what} by the API server's status; <error> when there was none.",
            ("code",),
            registry=registry,
        )
        self._seconds = Histogram(
            f"apiserver_delegated_{kind}_request_duration_seconds",
            f"Duration of {what}.",
            ("code",),
            buckets=_DELEGATED_BUCKETS,
            registry=registry,
        )

    def observe(self, code: str, seconds: float) -> None:
        """Count one review."""
        self._total.labels(code).inc()
        self._seconds.labels(code).observe(seconds)
