"""What the server says about itself on ``/metrics``, under upstream's names.

Names and buckets follow k8s.io/apiserver and component-base. What counts every
request is a plain addition, and a metric family when somebody scrapes: prometheus_client's counter
and histogram cost 2.5 µs a request, a tenth of our whole chain. All additions happen on the loop's
thread, so they need no lock.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from sys import getsizeof
from typing import Protocol

import prometheus_client
from prometheus_client import core
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from podscale.core.boundedcache import BoundedCache
from podscale.core.unfailing import UnfailingStream
from podscale.serving.request_info import RequestInfo

_BUCKETS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
)  # fmt: skip
# Resource names come from URLs, and an external metric's name is a resource: past this
# many the rest is counted together, so that nobody grows our memory by asking.
_MOST_RESOURCES = 100
_LONGEST_NAME = 256  # of a group, version or resource that is shown
_PART_BYTES = 64
_OTHER = "other"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_LABELS = (
    "verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component",
)  # fmt: skip

# apiserver_response_sizes: powers of ten from a kilobyte to a gigabyte.
_SIZES = tuple(10**power for power in range(3, 10))
_READS = ("GET", "LIST")
# apiserver_request_sli_duration_seconds has the same buckets but for the finest. Upstream
# leaves webhooks and queues out of it, and there are none here.
_SLI_FROM = _BUCKETS.index(0.05)

_WITHOUT_DRY_RUN = (_LABELS[0], *_LABELS[2:])
_Series = tuple[str, ...]


class _Count:
    """Requests of one label set: how many per status, how long, how large the answers."""

    __slots__ = ("buckets", "bytes", "codes", "seconds", "sizes")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.buckets = [0] * (len(_BUCKETS) + 1)
        self.seconds = 0.0
        self.sizes = [0] * (len(_SIZES) + 1)
        self.bytes = 0


class RequestCounter(Collector):
    """``apiserver_request_total``, ``apiserver_request_duration_seconds`` and what follows of them:
    ``apiserver_request_sli_duration_seconds`` and ``apiserver_response_sizes``.
    """

    def __init__(self) -> None:
        self._by_info: BoundedCache[tuple[str, RequestInfo], _Count] = BoundedCache(4 * 1024 * 1024)
        self._by_labels: dict[_Series, _Count] = {}
        self._resources: set[tuple[str, str, str]] = set()

    def observe(
        self, method: str, info: RequestInfo, code: int, seconds: float, size: int = 0
    ) -> None:
        """Count one answered request; ``size`` is that of the body as sent."""
        count = self._by_info.get((method, info)) or self._find(method, info, code)
        count.codes[code] = count.codes.get(code, 0) + 1
        count.buckets[bisect_left(_BUCKETS, seconds)] += 1
        count.seconds += seconds
        count.sizes[bisect_left(_SIZES, size)] += 1
        count.bytes += size

    def _find(self, method: str, info: RequestInfo, code: int) -> _Count:
        labels = self._labels(method, info, code)
        count = self._by_labels.setdefault(labels, _Count())
        if labels[4] != _OTHER:
            size = getsizeof(method) + 3 * getsizeof(info.path) + _PART_BYTES * len(info.parts)
            self._by_info.put((method, info), count, size)
        return count

    def _labels(self, method: str, info: RequestInfo, code: int) -> _Series:
        verb = method if method in _METHODS else _OTHER
        verb = "LIST" if info.verb == "list" else verb
        if not info.is_resource:
            return (verb, "", "", "", "", "", "", "apiserver")
        known = (info.group, info.version, info.resource)
        if known not in self._resources:
            is_long = max(map(len, known)) > _LONGEST_NAME
            if len(self._resources) >= _MOST_RESOURCES or is_long or code >= 400:
                return (verb, "", "", "", _OTHER, "", "", "apiserver")
            self._resources.add(known)
        scope = "namespace" if info.namespace else "cluster"
        if info.name and info.name != "*":
            scope = "resource"
        return (verb, "", info.group, info.version, info.resource, "", scope, "apiserver")

    def collect(self) -> Iterable[core.Metric]:
        total = core.CounterMetricFamily(
            "apiserver_request",
            "Requests by verb, group, version, resource and HTTP status.",
            labels=[*_LABELS, "code"],
        )
        duration = core.HistogramMetricFamily(
            "apiserver_request_duration_seconds",
            "From the complete header to the reply.",
            labels=_LABELS,
        )
        sli = core.HistogramMetricFamily(
            "apiserver_request_sli_duration_seconds",
            "As apiserver_request_duration_seconds: no webhook and no queue is waited for.",
            labels=_WITHOUT_DRY_RUN,
        )
        sizes = core.HistogramMetricFamily(
            "apiserver_response_sizes",
            "Bytes of answers to reads, as sent.",
            labels=_WITHOUT_DRY_RUN,
        )
        for labels, count in list(self._by_labels.items()):
            for code, times in sorted(count.codes.items()):
                total.add_metric([*labels, str(code)], times)
            seconds = cumulative(_BUCKETS, count.buckets)
            duration.add_metric(labels, seconds, count.seconds)
            plain = (labels[0], *labels[2:])
            sli.add_metric(plain, seconds[_SLI_FROM:], count.seconds)
            if labels[0] in _READS:
                sizes.add_metric(plain, cumulative(_SIZES, count.sizes), count.bytes)
        yield total
        yield duration
        yield sli
        yield sizes


class AttemptCounter(Collector):
    """A counter with one label, ``result``; add to ``counts`` directly.

    ``name`` is the whole name, as upstream spells it: not every counter there ends in _total.
    """

    def __init__(self, name: str, text: str, results: Iterable[str]) -> None:
        self._name = name
        self._text = text
        self.counts: dict[str, int] = dict.fromkeys(results, 0)

    def collect(self) -> Iterable[core.Metric]:
        # prometheus_client adds _total to what it calls a counter.
        is_plain = not self._name.endswith("_total")
        kind = "unknown" if is_plain else "counter"
        family = core.Metric(self._name.removesuffix("_total"), self._text, kind)
        for result, times in dict(self.counts).items():  # a scrape runs in another thread
            family.add_sample(self._name, {"result": result}, times)
        yield family


def cumulative(bounds: Iterable[float], buckets: Iterable[int]) -> list[tuple[str, float]]:
    """Return a histogram's buckets as they are exposed; ``buckets`` has one more, for the rest."""
    found = []
    running = 0
    for bound, times in zip((*bounds, math.inf), buckets, strict=True):
        running += times
        text = floatToGoString(bound)  # type: ignore[no-untyped-call]
        found.append((text, float(running)))
    return found


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
        self.registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        prometheus_client.PlatformCollector(registry=self.registry)
        self.requests = RequestCounter()
        self.authentication = AttemptCounter(
            "authentication_attempts", "Authenticated requests by result.", ("success", "failure")
        )
        self.authorization = AttemptCounter(
            "authorization_attempts_total",
            "Authorized requests by result.",
            ("allowed", "denied", "no-opinion", "error"),
        )
        for collector in (self.requests, self.authentication, self.authorization, _Log()):
            self.registry.register(collector)
        self.client_certificate_expiration = prometheus_client.Histogram(
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
    def collect(self) -> Iterable[core.Metric]:
        yield core.CounterMetricFamily(
            "podscale_log_lines_lost",
            "Lines of the log that could not be written: a full disk, a closed pipe.",
            UnfailingStream.lost,
        )


class _Live(Collector):
    def __init__(self, server: ServerFigures, not_after: Callable[[], float]) -> None:
        self._server = server
        self._not_after = not_after

    def collect(self) -> Iterable[core.Metric]:
        server = self._server
        inflight = core.GaugeMetricFamily(
            "apiserver_current_inflight_requests",
            "Requests being answered.",
            labels=["request_kind"],
        )
        inflight.add_metric(["readOnly"], server.reading)
        inflight.add_metric(["mutating"], server.mutating)
        yield inflight
        yield core.CounterMetricFamily(
            "apiserver_tls_handshake_errors",
            "Handshakes that failed; client certificates of unknown CAs among them.",
            server.failed_handshakes,
        )
        yield core.GaugeMetricFamily(
            "podscale_serving_connections", "Open client connections.", len(server.connections)
        )
        yield core.GaugeMetricFamily(
            "podscale_serving_certificate_not_after_seconds",
            "Unix time at which our serving certificate expires.",
            self._not_after(),
        )


class _Delegated:
    """One kind of review: how many, with which HTTP status, how long."""

    def __init__(self, registry: prometheus_client.CollectorRegistry, kind: str, what: str) -> None:
        self._total = prometheus_client.Counter(
            f"apiserver_delegated_{kind}_request",
            f"{what} by the API server's status; <error> when there was none.",
            ("code",),
            registry=registry,
        )
        self._seconds = prometheus_client.Histogram(
            f"apiserver_delegated_{kind}_request_duration_seconds",
            f"Duration of {what}.",
            ("code",),
            buckets=_DELEGATED_BUCKETS,
            registry=registry,
        )

    def observe(self, code: str, seconds: float) -> None:
        self._total.labels(code).inc()
        self._seconds.labels(code).observe(seconds)
