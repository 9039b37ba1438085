"""What the server says about itself on ``/metrics``, under upstream's names.

Names and buckets follow k8s.io/apiserver and component-base (adapter.md 6.3). Children
are looked up once per label set and kept: ``labels()`` costs more than the increment.
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

from podscale.serving.request_info import RequestInfo

_REQUEST_BUCKETS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
)  # fmt: skip
_DELEGATED_BUCKETS = (0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0)
_CERTIFICATE_BUCKETS = (
    0.0, 1800.0, 3600.0, 7200.0, 21600.0, 43200.0, 86400.0, 172800.0, 345600.0, 604800.0,
    2592000.0, 7776000.0, 15552000.0, 31104000.0,
)  # fmt: skip
# Resource names come from URLs, and an external metric's name is a resource: past this
# many the rest is counted together, so that nobody grows our memory by asking.
_MOST_RESOURCES = 100

_Child = tuple[Counter, Histogram]


class Server(Protocol):
    """What the listener counts for itself."""

    reading: int
    mutating: int
    failed_handshakes: int

    @property
    def connections(self) -> Collection[object]:
        """Open connections."""
        ...


class SelfMetrics:
    """The server's own metrics in ``registry``, which parts share for theirs."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._requests = Counter(
            "apiserver_request_total",
            "Requests by verb, group, version, resource and HTTP status.",
            ("verb", "dry_run", "group", "version", "resource", "subresource", "scope",
             "component", "code"),
            registry=self.registry,
        )  # fmt: skip
        self._durations = Histogram(
            "apiserver_request_duration_seconds",
            "From the complete header to the last byte handed to the socket.",
            ("verb", "dry_run", "group", "version", "resource", "subresource", "scope",
             "component"),
            buckets=_REQUEST_BUCKETS,
            registry=self.registry,
        )  # fmt: skip
        self.client_certificate_expiration = Histogram(
            "apiserver_client_certificate_expiration_seconds",
            "Remaining lifetime of the client certificates that authenticated.",
            buckets=_CERTIFICATE_BUCKETS,
            registry=self.registry,
        )
        self.authentication_attempts = Counter(
            "authentication_attempts",
            "Authenticated requests by result.",
            ("result",),
            registry=self.registry,
        )
        self.authorization_attempts = Counter(
            "authorization_attempts",
            "Authorized requests by result.",
            ("result",),
            registry=self.registry,
        )
        self.delegated_authn = _Delegated(self.registry, "authn", "TokenReviews")
        self.delegated_authz = _Delegated(self.registry, "authz", "SubjectAccessReviews")
        self._children: dict[tuple[str, str, str, str, str, str, int], _Child] = {}
        self._resources: set[tuple[str, str]] = set()

    def watch(self, server: Server, not_after: Callable[[], float]) -> None:
        """Expose what the server knows anyway; read at every scrape."""
        self.registry.register(_Live(server, not_after))

    def observe(self, method: str, info: RequestInfo, code: int, seconds: float) -> None:
        """Count one answered request."""
        scope = _scope(info)
        key = (method, info.verb, info.group, info.version, info.resource, scope, code)
        child = self._children.get(key)
        if child is None:
            child = self._child(method, info, scope, code)
            if len(self._children) < 20 * _MOST_RESOURCES:
                self._children[key] = child
        child[0].inc()
        child[1].observe(seconds)

    def _child(self, method: str, info: RequestInfo, scope: str, code: int) -> _Child:
        resource = info.resource
        if info.is_resource and (info.group, resource) not in self._resources:
            if len(self._resources) < _MOST_RESOURCES and code < 400:
                self._resources.add((info.group, resource))
            else:
                resource = "other"
        verb = _VERBS.get(method, "other")
        verb = "LIST" if info.verb == "list" else verb
        group = (info.group, info.version) if resource != "other" else ("", "")
        labels = (verb, "", *group, resource, "", scope, "apiserver")
        return self._requests.labels(*labels, str(code)), self._durations.labels(*labels)


def _scope(info: RequestInfo) -> str:
    if not info.is_resource:
        return ""
    if info.name and info.name != "*":
        return "resource"
    return "namespace" if info.namespace else "cluster"


class _Live(Collector):
    def __init__(self, server: Server, not_after: Callable[[], float]) -> None:
        self._server = server
        self._not_after = not_after

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
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


_VERBS = {m: m for m in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")}


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
