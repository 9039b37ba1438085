"""What the HPA part says about itself, under upstream's names where upstream has one.

Collected from plain tallies at scrape time: ten thousand passes a period are too many
for a label lookup each.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from hpa.decide.decision import Labels
from podscale.serving.monitoring.selfmetrics import cumulative

PREFIX = "horizontal_pod_autoscaler_controller_"
OWN = "podscale_hpa_"
# As upstream: 15 buckets, doubling from a millisecond; the last is about one period.
DURATIONS = tuple(0.001 * 2**power for power in range(15))
AGES = (1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 45.0, 60.0, 90.0, 120.0, 300.0, 600.0)
LAGS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0)

# Fine around the default period: whether every object keeps it is what one asks.
GAPS = (1.0, 2.0, 3.0, 5.0, 10.0, 14.0, 15.0, 15.5, 16.0, 17.0, 18.0, 20.0, 30.0, 60.0, 300.0)

_Labels = tuple[str, ...]


class PassTally:
    """A histogram per label set, without a lock: everything runs in one loop."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts: dict[_Labels, list[int]] = {}
        self.sums: dict[_Labels, float] = {}

    def add(self, labels: _Labels, value: float) -> None:
        counts = self.counts.get(labels)
        if counts is None:
            counts = self.counts[labels] = [0] * (len(self.bounds) + 1)
            self.sums[labels] = 0.0
        counts[bisect_left(self.bounds, value)] += 1
        self.sums[labels] += value

    @property
    def totals(self) -> dict[_Labels, int]:
        """How many were counted of each label set."""
        return {labels: sum(counts) for labels, counts in self.counts.items()}

    def family(self, name: str, text: str, names: tuple[str, ...]) -> HistogramMetricFamily:
        family = HistogramMetricFamily(name, text, labels=names)
        for labels, counts in self.counts.items():
            family.add_metric(labels, cumulative(self.bounds, counts), self.sums[labels])
        return family


class HpaCounts(Struct):
    saved: int = 0
    skipped: int = 0  # passes: the one before was still under way
    autoscalers: int = 0
    foreign: int = 0
    is_leader: int = 0
    gate_s: float = 0.0  # CPU of the processes that judge forecasts


class HpaReadings(Struct):
    """What is read from its owner at scrape time."""

    replicas: Callable[[], Iterable[tuple[str, str, int]]] = lambda: ()  # namespace, name, size
    unsaved_s: Callable[[], float] = lambda: 0.0
    unread_s: Callable[[], float] = lambda: 0.0
    events_dropped: Callable[[], int] = lambda: 0


class HpaMetrics(Collector):
    """The tallies of one HPA part."""

    def __init__(self) -> None:
        self.pass_seconds = PassTally(DURATIONS)
        self.computation_seconds = PassTally(DURATIONS)
        self.tick_lag = PassTally(LAGS)
        self.gap = PassTally(GAPS)
        self.data_age = PassTally(AGES)
        self.decisions: Counter[_Labels] = Counter()  # by first reason
        self.writes: Counter[_Labels] = Counter()  # by kind; ``ok``, ``conflict`` or ``error``
        self.forecasts: Mapping[str, int] = {}  # autoscalers with one, by candidate
        self.counts = HpaCounts()
        self.read = HpaReadings()

    def passed(self, labels: Labels, seconds: float) -> None:
        self.pass_seconds.add((labels.action, labels.error), seconds)
        for each in labels.metrics:
            self.computation_seconds.add((each.action, each.error, each.type), seconds)

    def collect(self) -> Iterator[Metric]:
        of_pass, of_metric = ("action", "error"), ("action", "error", "metric_type")
        skipped = {("autoscaling", "horizontalpodautoscalers"): self.counts.skipped}
        for name, text, labels, counted in (
            (PREFIX + "reconciliations", "Passes by what they did.", of_pass,
             self.pass_seconds.totals),
            (PREFIX + "metric_computation", "Metrics by what they asked for.", of_metric,
             self.computation_seconds.totals),
            (PREFIX + "stale_sync_skips", "Passes put off: an earlier write was under way.",
             ("group", "resource"), skipped),
            (OWN + "decisions", "Decisions by their first reason.", ("reason",), self.decisions),
            (OWN + "writes", "Requests that write.", ("kind", "result"), self.writes),
            (OWN + "writes_saved", "Status writes put off by --status-deadband.", (),
             {(): self.counts.saved}),
            (OWN + "events_dropped", "Writes of Events lost.", (),
             {(): self.read.events_dropped()}),
            (OWN + "forecast_gate_cpu_seconds", "CPU of the processes that judge forecasts.", (),
             {(): self.counts.gate_s}),
        ):  # fmt: skip
            counter = CounterMetricFamily(name, text, labels=labels)
            for values, times in counted.items():
                counter.add_metric(values, times)
            yield counter
        for name, text, labels, tally in (
            (PREFIX + "reconciliation_duration_seconds",
             "From the look at an autoscaler to its last write.", of_pass, self.pass_seconds),
            (PREFIX + "metric_computation_duration_seconds",
             "The pass a metric was computed in: metrics are read in batches.", of_metric,
             self.computation_seconds),
            (OWN + "tick_lag_seconds", "How late a slot of the period began.", (), self.tick_lag),
            (OWN + "gap_seconds", "Time between two decisions on the same autoscaler.", (),
             self.gap),
            (OWN + "data_age_seconds", "Age of the oldest sample decided on.", (), self.data_age),
        ):  # fmt: skip
            yield tally.family(name, text, labels)
        for name, text, value in (
            (PREFIX + "num_horizontal_pod_autoscalers", "Known autoscalers.",
             self.counts.autoscalers),
            (OWN + "foreign_controllers",
             "Autoscalers that another controller scales, or of which it cannot be read who does.",
             self.counts.foreign),
            (OWN + "history_unsaved_seconds",
             "Age of the oldest change of a history that is not stored yet; 0: all are.",
             self.read.unsaved_s()),
            (OWN + "history_unread_seconds",
             "For how long the stored histories could not be read in this term; 0: they were.",
             self.read.unread_s()),
            (OWN + "leader", "1 while this process acts.", self.counts.is_leader),
        ):  # fmt: skip
            yield GaugeMetricFamily(name, text, value=value)
        forecasts = GaugeMetricFamily(
            OWN + "forecasts", "Autoscalers with a forecast in force.", labels=("candidate",)
        )
        for candidate, count in self.forecasts.items():
            forecasts.add_metric((candidate,), count)
        yield forecasts
        sizes = GaugeMetricFamily(
            PREFIX + "desired_replicas", "The size decided last.", labels=("namespace", "hpa_name")
        )
        for namespace, name, size in self.read.replicas():
            sizes.add_metric((namespace, name), size)
        yield sizes
