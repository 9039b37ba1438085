"""What a turn says about itself: metrics, the pass's tally, and a line for what failed."""

from collections.abc import Sequence

import structlog
from prometheus_client import Counter

from vpa.model.samples.membership import VpaKey
from vpa.updater.cluster.pod_disruptor import DisruptionOutcome
from vpa.updater.decide.decision import UpdateDecision
from vpa.updater.selfmetrics import Sized, UpdateTally

_log = structlog.get_logger()


class ReconcileReport:
    """Of one VPA's turn."""

    def __init__(self, tally: UpdateTally, key: VpaKey, size: Sized) -> None:
        self._tally, self._key, self._size = tally, key, size
        self._labels = (*size, key.name, key.namespace)
        self._done: set[str] = set()

    def waiting(self, decisions: Sequence[UpdateDecision]) -> None:
        """Count the pods whose update is due."""
        for name, action in (("evictable", "evict"), ("in_place_updatable", "resize")):
            number = sum(decision.action == action for decision in decisions)
            self._tally.add(f"{name}_pods_total", self._size, number)
            self._tally.add(f"vpas_with_{name}_pods_total", self._size, int(number > 0))

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
            self._tally.add(f"vpas_with_{name}_pods_total", self._size, int(name in self._done))
