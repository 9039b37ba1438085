"""Since when Prometheus does not answer, and why: the one place that knows.

Every request tells how it ended; whoever explains a missing number takes the text from here, so
that all say the same. Pure: times are handed in.
"""

from msgspec import Struct, structs

from podscale.core.metrics import Failure, Unavailable
from podscale.core.times.rfc3339 import rfc3339
from podscale.feed.errors import Kind, QueryError

# A query that fails between others that are answered is that query's trouble.
SILENT_S = 15.0
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

    def answered(self, now_s: float) -> None:
        """Note an answer, be it a refusal of the query."""
        self._answered_s, self._since_s, self._failure = now_s, None, None

    def failed(self, error: QueryError, sent_s: float, now_s: float) -> QueryError:
        """Note a failure of a request sent at ``sent_s``; return it as it is to be told."""
        if error.kind in _ANSWERS:
            self.answered(now_s)
            return error
        if self._answered_s > sent_s:
            return error  # something was answered meanwhile
        self._since_s = sent_s if self._since_s is None else self._since_s
        self._failure = error.failure
        return self.told(error, now_s)

    def told(self, error: QueryError, now_s: float) -> QueryError:
        """Return ``error`` as the outage's, if there is one."""
        found = self.current(now_s)
        return error if found is None else QueryError(error.kind, found.failure, error.detail)

    def current(self, now_s: float) -> Outage | None:
        if self._since_s is None or self._failure is None or now_s - self._since_s < SILENT_S:
            return None
        text = f"{self._failure.message} (since {rfc3339(self._since_s)})"
        failure = structs.replace(self._failure, message=text)
        if isinstance(failure, Unavailable):
            failure = structs.replace(failure, since_s=self._since_s)
        return Outage(self._since_s, failure)

    def text(self, now_s: float) -> str:
        """Return the outage in words, ``""`` where there is none."""
        found = self.current(now_s)
        return "" if found is None else found.failure.message
