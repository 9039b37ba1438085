"""What the recommender says about itself, under upstream's names.

``vpa_quality_*`` compares recommendations with what containers then use. Hundreds of thousands of
samples a pass are counted in arrays, and become metrics when somebody scrapes.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from podscale.core.metrics import ContainerColumns
from podscale.kube.objects.vpa import Vpa, update_mode
from vpa.model.amounts import EMPTY, RESOURCES
from vpa.model.cluster import ClusterModel
from vpa.model.groups import Named
from vpa.model.histograms.matrix import Columns, Floats
from vpa.model.recommendations import Estimates, RecommendationReader
from vpa.model.samples.membership import VpaKey
from vpa.step_seconds import step_seconds
from vpa.stores import VpaStores

PREFIX = "vpa_recommender_"
_LATENCY = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0)
ObjectLabels = tuple[str, str, str, str, str]
Codes = NDArray[np.intp]
_QUALITY = "vpa_quality_"
LABELS = ("update_mode", "resource", "is_oom", "vpa_size_log2")
_HALF = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
_RELATIVE = (*(-edge for edge in reversed(_HALF)), 0.0, *_HALF, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)
_CORES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
_BYTES = tuple(1e6 * 2.0**n for n in range(20))
_UNITS = {"cpu": ("cpu", "cores", _CORES), "memory": ("mem", "bytes", _BYTES)}


class Kind(NamedTuple):
    """What samples are told apart by, besides resource and OOM."""

    update_mode: str
    size_log2: int  # of the VPA's pods


class _Counted:
    # One histogram metric: counts per label set and bucket, and sums.

    def __init__(self, name: str, text: str, edges: Sequence[float], labels: Sequence[str]) -> None:
        self.name, self.text, self.labels = _QUALITY + name, text, tuple(labels)
        self._edges = np.array(edges)
        self._counts: dict[tuple[str, ...], NDArray[np.int64]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def add(self, values: Floats, codes: Codes, named: Sequence[tuple[str, ...]]) -> None:
        """Add values; ``codes`` are numbers of their label sets in ``named``."""
        if not values.size:
            return
        size = self._edges.size + 1
        places = codes * size + np.searchsorted(self._edges, values, side="left")
        counts = np.bincount(places, minlength=len(named) * size).reshape(-1, size)
        sums = np.bincount(codes, weights=values, minlength=len(named))
        for number in np.flatnonzero(counts.any(axis=1)).tolist():
            label = named[number]
            self._counts[label] = self._counts.get(label, 0) + counts[number]
            self._sums[label] = self._sums.get(label, 0.0) + float(sums[number])

    def family(self) -> Metric:
        # The library's own family leaves sum and count away where a bucket is negative, as
        # OpenMetrics has it; upstream's exposition has both.
        found = Metric(self.name, self.text, "histogram")
        edges = [*(repr(float(edge)) for edge in self._edges), "+Inf"]
        for label, counts in self._counts.items():
            labels = dict(zip(self.labels, label, strict=True))
            upto = np.cumsum(counts).tolist()
            for edge, count in zip(edges, upto, strict=True):
                found.add_sample(f"{self.name}_bucket", {**labels, "le": edge}, float(count))
            found.add_sample(f"{self.name}_count", labels, float(upto[-1]))
            found.add_sample(f"{self.name}_sum", labels, self._sums[label])
        return found


class Quality(Collector):
    """The metrics of one recommender, in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._relative = _Counted(
            "usage_recommendation_relative_diffs",
            "Recommendation above usage, as a part of the recommendation.",
            _RELATIVE,
            LABELS,
        )
        self._changes = _Counted(
            "relative_recommendation_changes",
            "Change of a recommendation, as a part of the one before.",
            _RELATIVE,
            ("update_mode", "resource", "vpa_size_log2"),
        )
        few = ("update_mode", "is_oom", "vpa_size_log2")
        self._of: dict[str, tuple[_Counted, _Counted, _Counted]] = {}
        for resource, (short, unit, edges) in _UNITS.items():
            self._of[resource] = (
                _Counted(f"{short}_recommendation_over_usage_diffs_{unit}",
                         "Recommendation minus usage, where it is more.", edges, few),
                _Counted(f"{short}_recommendation_lower_equal_usage_diffs_{unit}",
                         "Usage minus recommendation, where that is at most as much.", edges, few),
                _Counted(f"{short}_recommendations_{unit}", "Recommendations.", edges, few),
            )  # fmt: skip
        self._missing: dict[tuple[str, ...], float] = {}
        registry.register(self)

    def observe(
        self, resource: str, usage: Floats, recommended: Floats, codes: Codes, kinds: Sequence[Kind]
    ) -> None:
        """Compare samples with recommendations (0 or less: none), in cores or bytes."""
        # Upstream's label is_oom: here a kill is no sample that is compared.
        full = [(kind.update_mode, resource, "false", str(kind.size_log2)) for kind in kinds]
        few = [(kind.update_mode, "false", str(kind.size_log2)) for kind in kinds]
        known = recommended > 0.0
        for number, count in enumerate(np.bincount(codes[~known], minlength=len(kinds))):
            if count:
                self._missing[full[number]] = self._missing.get(full[number], 0.0) + float(count)
        usage, recommended, codes = usage[known], recommended[known], codes[known]
        diff = recommended - usage
        self._relative.add(diff / recommended, codes, full)
        over, under, amounts = self._of[resource]
        above = diff > 0.0
        over.add(diff[above], codes[above], few)
        under.add(-diff[~above], codes[~above], few)
        amounts.add(recommended, codes, few)

    def changed(
        self, resource: str, before: Floats, after: Floats, codes: Codes, kinds: Sequence[Kind]
    ) -> None:
        """Note recommendations that were there before and now."""
        both = (before > 0.0) & (after > 0.0)
        labels = [(kind.update_mode, resource, str(kind.size_log2)) for kind in kinds]
        self._changes.add((after[both] - before[both]) / before[both], codes[both], labels)

    def collect(self) -> Iterable[Metric]:
        """Return the families, for the registry."""
        yield self._relative.family()
        yield self._changes.family()
        for counted in self._of.values():
            for each in counted:
                yield each.family()
        # Upstream's counter has no _total, which only a gauge may lack here.
        missing = GaugeMetricFamily(
            _QUALITY + "usage_sample_missing_recommendation_count",
            "Samples of containers without a recommendation.",
            labels=LABELS,
        )
        for label, count in self._missing.items():
            missing.add_metric(label, count)
        yield missing


class RecommenderMetrics:
    """The metrics of one recommender, in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge, counter = partial(Gauge, registry=registry), partial(Counter, registry=registry)
        self._objects = gauge(
            PREFIX + "vpa_objects_count",
            "VPA objects by what is known of them.",
            ("update_mode", "has_recommendation", "api", "matches_pods", "unsupported_config"),
        )
        self.latency = Histogram(
            PREFIX + "recommendation_latency_seconds",
            "From the creation of a VPA to its first recommendation.",
            buckets=_LATENCY,
            registry=registry,
        )
        self.step = step_seconds(PREFIX, "Time spent in the steps of a pass.", registry)
        self.states = gauge(
            PREFIX + "aggregate_container_states_count", "Aggregates that are tracked."
        )
        # Upstream's counter has no _total, which only a gauge may lack here.
        self._responses = gauge(
            PREFIX + "metric_server_responses",
            "Answers of the source of usage.",
            ("is_error", "client_name"),
        )
        self.writes = counter("podscale_vpa_writes", "Requests that write.", ("kind", "result"))
        self.ooms = counter("podscale_vpa_ooms", "Out-of-memory kills that were recorded.")
        # A gauge for the same reason. Upstream reads the requests of all containers in every
        # pass; here they are read of those that were killed, so it counts less.
        self._reads = gauge(
            "vpa_resources_get_resources_count",
            "Containers whose resources were read, by where they stood.",
            ("source",),
        )
        self.coordinated = gauge(
            "podscale_vpa_coordinated", "VPAs whose target an HPA scales by their anchor."
        )
        self.quality = Quality(registry)
        self.history = gauge(
            "podscale_vpa_history_read_ratio",
            "How much of the history has been read from Prometheus.",
        )
        self._failures = counter(
            "podscale_vpa_failures", "VPAs that failed alone, by step.", ("step",)
        )

    def failed(self, step: str) -> None:
        """Count a VPA that failed in a step; the others went on."""
        self._failures.labels(step).inc()

    def answered(self, *, is_error: bool, client: str) -> None:
        """Count one answer of the source of usage."""
        self._responses.labels(str(is_error).lower(), client).inc()

    def read(self, source: str) -> None:
        """Count one container whose requests were read; empty where nothing was."""
        if source:
            self._reads.labels(source).inc()

    def wrote(self, kind: str, result: str) -> None:
        """Count one request that writes."""
        self.writes.labels(kind, result).inc()

    def count(self, objects: Mapping[ObjectLabels, int]) -> None:
        """Set the numbers of VPAs of this pass."""
        self._objects.clear()
        for labels, number in objects.items():
            self._objects.labels(*labels).set(number)


class QualitySamples:
    """Compares each sample with what was published for its container when it arrived.

    For one term of leadership; ``follow`` after statuses were written.
    """

    def __init__(
        self,
        quality: Quality,
        cluster: ClusterModel,
        reader: RecommendationReader,
        stores: VpaStores,
    ) -> None:
        self._quality, self._cluster = quality, cluster
        self._reader, self._stores = reader, stores
        self._keys: Sequence[Named] = []
        self._seen: dict[VpaKey, tuple[Vpa | None, int]] = {}
        self._published = np.zeros((0, len(RESOURCES)))
        self._places: Columns = np.empty(0, dtype=np.intp)
        self._codes: Codes = np.empty(0, dtype=np.intp)
        self._numbers: dict[Kind, int] = {}

    def follow(self, estimates: Estimates, matched: Mapping[VpaKey, int]) -> None:
        """Take over what is published now; ``matched`` are the pods of each VPA."""
        keys = estimates.groups.keys
        if keys is not self._keys:
            # Rows have other numbers: whatever is published has to be read again.
            is_same = keys == self._keys
            before = self._published if is_same else np.zeros((len(keys), len(RESOURCES)))
            self._seen = {}
            self._codes = np.zeros(len(keys), dtype=np.intp)
        else:
            is_same, before = True, self._published
        self._published = before.copy()
        for key, rows in estimates.groups.rows.items():
            found = self._stores.vpa(key), matched.get(key, 0)
            seen = self._seen.get(key)
            if seen is None or seen[0] is not found[0] or seen[1] != found[1]:
                self._seen[key] = found
                self._read(keys, rows, *found)
        kinds = list(self._numbers)
        if is_same:
            for number, resource in enumerate(RESOURCES):
                old, new = before[:, number], self._published[:, number]
                moved = old != new
                self._quality.changed(resource, old[moved], new[moved], self._codes[moved], kinds)
        self._keys = keys
        self._places = self._reader.places(self._cluster.aggregates.created.size)

    def _read(self, keys: Sequence[Named], rows: slice, vpa: Vpa | None, pods: int) -> None:
        kind = Kind(update_mode(vpa) if vpa is not None else "", max(pods, 1).bit_length() - 1)
        self._codes[rows] = self._numbers.setdefault(kind, len(self._numbers))
        found = vpa.status.recommendation if vpa is not None else None
        for row in range(rows.start, rows.stop):
            entry = found.of(keys[row][1]) if found is not None else None
            target = (entry.target if entry is not None else None) or EMPTY
            self._published[row] = [
                target[name].nano / 1e9 if name in target else 0.0 for name in RESOURCES
            ]

    def compare(self, usage: ContainerColumns) -> None:
        rows = self._cluster.rows_of_usage(usage)
        known = np.flatnonzero(rows >= 0)
        columns = self._cluster.rows.column[rows[known]]
        inside = columns < self._places.size
        known, columns = known[inside], columns[inside]
        place = self._places[columns]
        known, place = known[place >= 0], place[place >= 0]
        kinds = list(self._numbers)
        for number, batch in enumerate((usage.cpu_cores, usage.memory_bytes)):
            values = batch[known]
            usable = np.isfinite(values) & (values >= 0.0)
            rows = place[usable]
            published, codes = self._published[rows, number], self._codes[rows]
            self._quality.observe(RESOURCES[number], values[usable], published, codes, kinds)
