"""What the feed counts about itself: plain numbers for an exporter to read."""

from bisect import bisect_left
from collections import Counter

# metrics_apiserver_metric_freshness_seconds of custom-metrics-apiserver has these buckets.
AGE_BUCKETS_S = tuple(1.364**power for power in range(20))


class FeedStats:
    """Counters since start. Only the feed writes."""

    def __init__(self) -> None:
        self.queries: Counter[str] = Counter()  # batch, stamp, single
        self.failures: Counter[str] = Counter()  # by kind of QueryError
        self.hits = 0  # answered from a snapshot
        self.merged = 0  # waited for a query that somebody else had caused
        self.misses = 0  # caused a query
        self.singles = 0  # answered by the per-request path
        self.refreshes = 0
        self.splits = 0
        self.demotions: Counter[str] = Counter()  # bad-data
        self.exclusions = 0
        self.stale = 0  # objects answered as stale, of those that were asked for
        self.age_counts = [0] * (len(AGE_BUCKETS_S) + 1)  # of what is served; last: above all
        self.age_sum_s = 0.0
        self.in_flight = 0

    def served(self, age_s: float) -> None:
        """Count one reading handed out at this age."""
        self.age_counts[bisect_left(AGE_BUCKETS_S, age_s)] += 1
        self.age_sum_s += age_s
