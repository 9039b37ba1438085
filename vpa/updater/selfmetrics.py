"""What the updater says about itself, under upstream's names."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from vpa.step_seconds import StepSeconds

PREFIX = "vpa_updater_"
_SIZED = ("vpa_size_log2", "update_mode")
_GAUGES = (
    "controlled_pods_total",
    "evictable_pods_total",
    "in_place_updatable_pods_total",
    "vpas_with_evictable_pods_total",
    "vpas_with_evicted_pods_total",
    "vpas_with_in_place_updatable_pods_total",
    "vpas_with_in_place_updated_pods_total",
)
Sized = tuple[str, str]


class UpdateTally:
    """What one pass over all VPAs counted."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[Sized, int]] = {}

    def add(self, name: str, size: Sized, number: int) -> None:
        counts = self.counts.setdefault(name, {})
        counts[size] = counts.get(size, 0) + number


class UpdaterMetrics:
    """The metrics of one updater, in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = {
            name: Gauge(PREFIX + name, "As of the last loop.", _SIZED, registry=registry)
            for name in _GAUGES
        }
        named = (*_SIZED, "vpa_name", "vpa_namespace")
        self.evicted = Counter(PREFIX + "evicted_pods", "Evictions.", named, registry=registry)
        self.updated = Counter(
            PREFIX + "in_place_updated_pods", "Resizes.", named, registry=registry
        )
        self.failed_evictions = Counter(
            PREFIX + "failed_eviction_attempts", "Evictions that failed.", (*named, "reason"),
            registry=registry,
        )  # fmt: skip
        self.failed_updates = Counter(
            PREFIX + "failed_in_place_update_attempts", "Resizes that failed.",
            (*named, "reason"), registry=registry,
        )  # fmt: skip
        self.skipped = Counter(
            PREFIX + "in_place_infeasible_skip_pods", "Pods not tried again.", named,
            registry=registry,
        )  # fmt: skip
        self.admission_invalid = Counter(
            PREFIX + "admission_controller_status_invalid",
            "Loops without updates, since admission's Lease was not read (error) or old (invalid).",
            ("reason",), registry=registry,
        )  # fmt: skip
        self.broken = Counter(
            PREFIX + "vpas_passed_over", "Turns of VPAs that ended in an error of their own.",
            registry=registry,
        )  # fmt: skip
        self.step = StepSeconds(PREFIX, "Time spent in the steps of a loop.", registry)

    def count(self, found: UpdateTally) -> None:
        """Set the gauges of a complete pass."""
        for name, gauge in self._gauges.items():
            gauge.clear()
            for labels, number in found.counts.get(name, {}).items():
                gauge.labels(*labels).set(number)
