"""When a source of metrics answered nothing, and the windows that reach back into that time: a rate
over them reads low. Pure: times are handed in, unix seconds.
"""

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from podscale.core.metrics import SampleGap

# A question that fails between others that are answered is that question's trouble.
SILENT_S = 15.0
# A hole of this share of a window lowers a rate by as much, which an HPA's tolerance forgives.
_FORGIVEN = 0.1
# Of a long window so little is not felt: a silence of seconds would hold every shrink for a day.
_UNFELT = 0.02
# A window holds four scrapes or more, and the first one after an outage may come that much late.
_FIRST_SCRAPE = 0.25
_MOST_REMEMBERED = 16


class QueryWindow(Struct, frozen=True):
    """What one selector reads: ``range_s`` seconds that end ``offset_s`` before the evaluation."""

    offset_s: float
    range_s: float


class Silences:
    """The times in which one source answered nothing."""

    def __init__(self, shortest_s: float) -> None:
        """What is shorter than ``shortest_s`` is not remembered: it would displace the longer."""
        self._shortest_s = shortest_s
        self.answered_s = float("-inf")  # the last time
        self.since_s: float | None = None  # when the first request of the one that lasts was sent
        self.ended: deque[tuple[float, float]] = deque(maxlen=_MOST_REMEMBERED)

    def answered(self, now_s: float) -> None:
        """Note an answer."""
        if self.since_s is not None and now_s - self.since_s >= self._shortest_s:
            self.ended.append((self.since_s, now_s))
        self.answered_s, self.since_s = now_s, None

    def failed(self, sent_s: float, now_s: float) -> bool:
        """Note that a request sent at ``sent_s`` got no answer; False: another did meanwhile, and
        the time was not set back."""
        if sent_s < self.answered_s <= now_s:
            return False
        self.since_s = sent_s if self.since_s is None else self.since_s
        return True

    def gap(
        self, windows: Sequence[QueryWindow], now_s: float, empty_s: float = 0.0
    ) -> SampleGap | None:
        """Return the silence into which one of a query's windows reaches longest, if one does.

        ``empty_s`` is when the query gave nothing the last time, before it gave something after a
        silence: so long the newest that counts goes on for it. Whether Prometheus went on scraping
        meanwhile cannot be seen from here. Short silences count only where they are more of the
        window than a tolerance forgives.
        """
        found = None
        for each in windows:
            least_s = max(min(SILENT_S, _FORGIVEN * each.range_s), _UNFELT * each.range_s)
            counting = [one for one in self.ended if one[1] - one[0] >= least_s]
            for place, (since_s, ended_s) in enumerate(counting, 1):
                until_s = max(ended_s, empty_s) if place == len(counting) else ended_s
                whole_s = until_s + each.offset_s + each.range_s * (1 + _FIRST_SCRAPE)
                is_in_reach = since_s + each.offset_s <= now_s < whole_s
                if is_in_reach and (found is None or whole_s > found.whole_s):
                    found = SampleGap(since_s, ended_s, each.range_s, whole_s)
        return found
