"""Since when Prometheus does not answer, and why; and when it did not: the one place that knows.

Every request tells how it ended; whoever explains a missing number takes the text from here, so
that all say the same. Pure: times are handed in.
"""

from msgspec import Struct, structs

from podscale.core.metrics import Failure, Unavailable
from podscale.core.silences import SILENT_S, Silences
from podscale.core.times.rfc3339 import rfc3339
from podscale.feed.errors import Kind, QueryError
from podscale.feed.http import refusals

_SHORTEST_S = 1.0  # what is shorter is a lost connection
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
        self.silences = Silences(_SHORTEST_S)
        self._failure: Failure | None = None
        # When each query was sent that has not ended yet; series take longer, and hold no place.
        self.in_flight: list[float] = []

    def answered(self, now_s: float) -> None:
        """Note an answer, be it a refusal of the query."""
        self.silences.answered(now_s)
        self._failure = None

    def failed(self, error: QueryError, sent_s: float, now_s: float) -> QueryError:
        """Note a failure of a request sent at ``sent_s``; return it as it is to be told."""
        if error.kind in _ANSWERS:
            self.answered(now_s)
            return error
        if not self.silences.failed(sent_s, now_s):
            return error
        self._failure = error.failure
        return _told(error, self.current(now_s))

    def got_no_place(self, error: QueryError, waited_s: float, now_s: float) -> QueryError:
        """Return the failure of a query that was not sent for so long, as it is to be told.

        Where nothing was answered meanwhile, a silence holds the places, however short it is yet.
        """
        found = self.current(now_s)
        if found is None and not now_s - waited_s <= self.silences.answered_s <= now_s:
            found = self._silence(now_s)
        return _told(error, found)

    def current(self, now_s: float) -> Outage | None:
        since_s = self.silences.since_s
        if since_s is None or now_s - since_s < SILENT_S:
            return None
        return self._silence(now_s)

    def _silence(self, now_s: float) -> Outage | None:
        """Return the silence as an outage; ``None`` if nothing waits for an answer."""
        since_s, answered_s = self.silences.since_s, self.silences.answered_s
        if since_s is None:  # the first request of it has not ended yet
            unanswered = [each for each in self.in_flight if not each < answered_s <= now_s]
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


def _told(error: QueryError, outage: Outage | None) -> QueryError:
    return error if outage is None else QueryError(error.kind, outage.failure, error.detail)
