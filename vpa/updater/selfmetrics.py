"""What the updater says about itself, under upstream's names."""

import collections
from collections.abc import Sequence

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from podscale.kube.client.eviction import DisruptionOutcome
from vpa.model.samples.membership import VpaKey
from vpa.step_seconds import step_seconds
from vpa.updater.decide.decision import UpdateDecision

_log = structlog.get_logger()

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
Tally = collections.Counter[tuple[str, Sized]]  # what one pass over all VPAs counted, by gauge


class UpdaterMetrics:
    """The metrics of one updater, in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = {
            name: Gauge(PREFIX + name, "As of the last loop.", _SIZED, registry=registry)
            for name in _GAUGES
        }
        named = (*_SIZED, "vpa_name", "vpa_namespace")

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, text, labels, registry=registry)

        self.evicted = counter("evicted_pods", "Evictions.", *named)
        self.updated = counter("in_place_updated_pods", "Resizes.", *named)
        self.failed_evictions = counter(
            "failed_eviction_attempts", "Evictions that failed.", *named, "reason"
        )
        self.failed_updates = counter(
            "failed_in_place_update_attempts", "Resizes that failed.", *named, "reason"
        )
        self.skipped = counter("in_place_infeasible_skip_pods", "Pods not tried again.", *named)
        self.admission_invalid = counter(
            "admission_controller_status_invalid",
            "Loops without updates, since admission's Lease was not read (error) or old (invalid).",
            "reason",
        )
        self.broken = counter(
            "vpas_passed_over", "Turns of VPAs that ended in an error of their own."
        )
        self.step = step_seconds(PREFIX, "Time spent in the steps of a loop.", registry)

    def count(self, found: Tally) -> None:
        """Set the gauges of a complete pass."""
        for gauge in self._gauges.values():
            gauge.clear()
        for (name, labels), number in found.items():
            self._gauges[name].labels(*labels).set(number)


class ReconcileReport:
    """Of one VPA's turn."""

    def __init__(self, tally: Tally, key: VpaKey, size: Sized) -> None:
        self._tally, self._key, self._size = tally, key, size
        self._labels = (*size, key.name, key.namespace)
        self._done: set[str] = set()

    def waiting(self, decisions: Sequence[UpdateDecision]) -> None:
        """Count the pods whose update is due."""
        for name, action in (("evictable", "evict"), ("in_place_updatable", "resize")):
            number = sum(decision.action == action for decision in decisions)
            self._tally[f"{name}_pods_total", self._size] += number
            self._tally[f"vpas_with_{name}_pods_total", self._size] += number > 0

    def did(self, *, in_place: bool) -> None:
        """Remember that a pod was, or may have been, resized or evicted."""
        self._done.add("in_place_updated" if in_place else "evicted")

    def count(self, counter: Counter) -> None:
        """Count a pod that was resized, evicted or skipped."""
        counter.labels(*self._labels).inc()

    def failed(self, acted: DisruptionOutcome, counter: Counter, reason: str) -> None:
        """Count and log an act that failed."""
        if acted.outcome == "node-capacity":
            reason = "InPlaceUpdateInfeasible"
        counter.labels(*self._labels, reason).inc()
        _log.warning("not updated", namespace=self._key.namespace, vpa=self._key.name,
                     reason=reason, message=acted.message)  # fmt: skip

    def end(self) -> None:
        """Count the VPA by what was done to its pods."""
        for name in ("evicted", "in_place_updated"):
            self._tally[f"vpas_with_{name}_pods_total", self._size] += name in self._done
