"""Since when Prometheus does not answer, and why; and when it did not: the one place that knows.

Every request tells how it ended; whoever explains a missing number takes the text from here, so
that all say the same. Pure: times are handed in.
"""

from collections import deque
from collections.abc import Sequence

from msgspec import Struct, structs

from podscale.core.metrics import Failure, SampleGap, Unavailable
from podscale.core.times.rfc3339 import rfc3339
from podscale.feed.errors import Kind, QueryError
from podscale.feed.http import refusals
from podscale.feed.plan import QueryWindow

# A query that fails between others that are answered is that query's trouble.
SILENT_S = 15.0
# A hole of this share of a window lowers a rate by as much, which an HPA's tolerance forgives.
_FORGIVEN = 0.1
# Of a long window so little is not felt: a silence of seconds would hold every shrink for a day.
_UNFELT = 0.02
# A window holds four scrapes or more, and the first one after an outage may come that much late.
_FIRST_SCRAPE = 0.25
_SHORTEST_S = 1.0  # what is shorter is a lost connection, and would only displace what is longer
_MOST_REMEMBERED = 16
# In these Prometheus was reached, and answered about the query.
_ANSWERS: frozenset[Kind] = frozenset(
    {"bad-data", "execution", "timeout", "oversize", "partial", "no-place"}
)


class Outage(Struct, frozen=True):
    """Prometheus does not answer."""

    since_s: float  # unix seconds: when the first request of it was sent
    failure: Failure  # of the last request, with that time in its text


class OutageWatch:
    """What the requests of one client tell."""

    def __init__(self) -> None:
        self._answered_s = float("-inf")
        self._since_s: float | None = None
        self._failure: Failure | None = None
        # When each query was sent that has not ended yet; series take longer, and hold no place.
        self.in_flight: list[float] = []
        self.silences: deque[tuple[float, float]] = deque(maxlen=_MOST_REMEMBERED)  # ended ones

    def answered(self, now_s: float) -> None:
        """Note an answer, be it a refusal of the query."""
        if self._since_s is not None and now_s - self._since_s >= _SHORTEST_S:
            self.silences.append((self._since_s, now_s))
        self._answered_s, self._since_s, self._failure = now_s, None, None

    def failed(self, error: QueryError, sent_s: float, now_s: float) -> QueryError:
        """Note a failure of a request sent at ``sent_s``; return it as it is to be told."""
        if error.kind in _ANSWERS:
            self.answered(now_s)
            return error
        if sent_s < self._answered_s <= now_s:
            return error  # something was answered meanwhile; not in a time that was set back
        self._since_s = sent_s if self._since_s is None else self._since_s
        self._failure = error.failure
        return _told(error, self.current(now_s))

    def got_no_place(self, error: QueryError, waited_s: float, now_s: float) -> QueryError:
        """Return the failure of a query that was not sent for so long, as it is to be told.

        Where nothing was answered meanwhile, a silence holds the places, however short it is yet.
        """
        found = self.current(now_s)
        if found is None and not now_s - waited_s <= self._answered_s <= now_s:
            found = self._silence(now_s)
        return _told(error, found)

    def current(self, now_s: float) -> Outage | None:
        if self._since_s is None or now_s - self._since_s < SILENT_S:
            return None
        return self._silence(now_s)

    def _silence(self, now_s: float) -> Outage | None:
        """Return the silence as an outage; ``None`` if nothing waits for an answer."""
        since_s = self._since_s
        if since_s is None:  # the first request of it has not ended yet
            unanswered = [each for each in self.in_flight if not each < self._answered_s <= now_s]
            since_s = min(unanswered, default=None)
        if since_s is None:
            return None
        failure = self._failure or refusals.failure("deadline")
        failure = structs.replace(failure, message=f"{failure.message} (since {rfc3339(since_s)})")
        if isinstance(failure, Unavailable):
            # One word for one outage, the doctor's, however its last request ended.
            reason = failure.reason if now_s - since_s < SILENT_S else "PrometheusUnreachable"
            failure = structs.replace(failure, reason=reason, since_s=since_s)
        return Outage(since_s, failure)

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
            counting = [one for one in self.silences if one[1] - one[0] >= least_s]
            for place, (since_s, ended_s) in enumerate(counting, 1):
                until_s = max(ended_s, empty_s) if place == len(counting) else ended_s
                whole_s = until_s + each.offset_s + each.range_s * (1 + _FIRST_SCRAPE)
                is_in_reach = since_s + each.offset_s <= now_s < whole_s
                if is_in_reach and (found is None or whole_s > found.whole_s):
                    found = SampleGap(since_s, ended_s, each.range_s, whole_s)
        return found


def _told(error: QueryError, outage: Outage | None) -> QueryError:
    return error if outage is None else QueryError(error.kind, outage.failure, error.detail)
