"""When a status was written last, and so whether a new one is to be written now.

Times are those of each object's own (``statuses.own_moment``), by the caller's wall clock.
"""

from hpa.cluster import statuses
from hpa.cluster.catalog import Key
from hpa.decide import Conclusion
from hpa.loop.observe import Look
from hpa.selfmetrics import HpaMetrics


class Moments:
    """The moments of one term's status writes."""

    def __init__(self, metrics: HpaMetrics, deadband: float) -> None:
        """``deadband`` is a share of each metric's target; writes saved are counted."""
        self._metrics = metrics
        self._deadband = deadband
        self._at: dict[Key, float] = {}

    def is_due(self, look: Look, conclusion: Conclusion, now: float) -> bool:
        """Return whether the status that was concluded is to be written at ``now``."""
        if not conclusion.is_status_changed:
            return False
        key = look.entry.key
        at = self._at.get(key)
        if at is None:  # of a status that another process wrote
            at = self._at[key] = _moment(key, now)
        if statuses.is_due(look.hpa, conclusion.status, deadband=self._deadband, age_s=now - at):
            return True
        self._metrics.saved += 1
        return False

    def written(self, key: Key, now: float) -> None:
        """Note that the status went in."""
        self._at[key] = _moment(key, now)

    def shift(self, by_s: float) -> None:
        """Follow a clock that was set."""
        for key in self._at:
            self._at[key] += by_s

    def forget(self, key: Key) -> None:
        """Drop a deleted object."""
        self._at.pop(key, None)


def _moment(key: Key, now: float) -> float:
    return statuses.own_moment("/".join(key), now)
