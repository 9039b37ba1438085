"""Which events are written, counted, combined or dropped. Pure; follows client-go's
``tools/record/events_cache.go`` with its defaults. What differs: a repeated event is counted at
once and its count written later, more series are remembered, and news of a reason goes beside
the budget (docs/decisions/027).
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from podscale.kube.objects.cluster import ObjectReference

V = TypeVar("V")

CACHE_SIZE = 64 * 1024
SIMILAR_LIMIT = 10  # more different messages than this of one reason are combined ...
SIMILAR_S = 600.0  # ... when no longer apart than this
SOON_S = 60.0  # from a series' first write to its second: that it goes on is news ...
REPEAT_S = 300.0  # ... and how often is not: client-go's pace, too, once its burst is spent
BURST = 25  # writes about one object before the limit ...
REFILL_S = 300.0  # ... and the time in which one more is allowed
COMBINED = "(combined from similar events): "


class Occurrence(Struct, frozen=True, gc=False):
    """Something that happened to an object."""

    about: ObjectReference
    level: str  # Normal | Warning
    reason: str
    message: str
    time_s: float


class EventSeries(Struct, frozen=True, gc=False):
    """What is known of equal events: the object that counts them."""

    count: int
    first_s: float
    last_s: float
    message: str
    name: str = ""  # of the Event object; "" until it is created
    writes: int = 0
    due: float = float("-inf")  # monotonic: not written again before


class _Similar:
    """Messages of one reason about one object."""

    def __init__(self) -> None:
        self.messages: OrderedDict[str, None] = OrderedDict()
        self.last_s = 0.0
        self.news_at = float("-inf")  # monotonic: when one was written for the first time


class _Recent(Generic[V]):
    """A map of bounded size; the least recently used falls out."""

    def __init__(self) -> None:
        self._items: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        value = self._items.get(key)
        if value is not None:
            self._items.move_to_end(key)
        return value

    def put(self, key: Hashable, value: V) -> None:
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > CACHE_SIZE:
            self._items.popitem(last=False)


class Correlator:
    """Memory of what was said lately, by one component."""

    def __init__(self) -> None:
        self._similar: _Recent[_Similar] = _Recent()
        self._series: _Recent[EventSeries] = _Recent()
        self._tokens: _Recent[tuple[float, float]] = _Recent()  # (tokens, when counted)

    def observe(self, seen: Occurrence) -> tuple[Hashable, float]:
        """Count an occurrence; return the key of its series and when that may be written."""
        aggregate = _aggregate(seen)
        message = seen.message
        key: Hashable = (aggregate, message)
        is_combined = self._is_flood(aggregate, seen)
        if is_combined:
            message = COMBINED + message
            key = aggregate
        known = self._series.get(key)
        if known is None:
            series = EventSeries(1, seen.time_s, seen.time_s, message)
        else:
            series = replace(known, count=known.count + 1, last_s=seen.time_s, message=message)
        self._series.put(key, series)
        # What is combined says something else each time.
        return key, float("-inf") if is_combined else series.due

    def write(self, key: Hashable, seen: Occurrence, now: float) -> EventSeries | None:
        """Return the series as it is to be written at ``now``; None: too many, not now."""
        series = self._series.get(key)
        if series is None:
            return None
        similar = None if series.name else self._similar.get(_aggregate(seen))
        is_news = similar is not None and now - similar.news_at >= REFILL_S
        if not (self._is_allowed(seen.about, now) or is_news):
            tried_at = now if similar is None else similar.news_at
            self._series.put(key, replace(series, due=tried_at + REFILL_S))
            return None
        if similar is not None:
            similar.news_at = now
        return series

    def written(self, key: Hashable, name: str, now: float) -> None:
        """The Event object of a series exists under this name, as ``write`` returned it."""
        known = self._series.get(key)
        if known is not None:
            writes = known.writes + 1
            due = now + (SOON_S if writes == 1 else REPEAT_S)
            self._series.put(key, replace(known, name=name, writes=writes, due=due))

    def failed(self, seen: Occurrence, series: EventSeries, now: float) -> None:
        """The API server did not take what ``write`` returned: as news it may be tried again a
        minute later, not at each pass, which would ask a sick server without a limit.
        """
        similar = None if series.name else self._similar.get(_aggregate(seen))
        if similar is not None:
            similar.news_at = now + SOON_S - REFILL_S

    def _is_flood(self, aggregate: Hashable, seen: Occurrence) -> bool:
        similar = self._similar.get(aggregate)
        if similar is None:
            similar = _Similar()
            self._similar.put(aggregate, similar)
        if seen.time_s - similar.last_s > SIMILAR_S:
            similar.messages.clear()
        similar.last_s = seen.time_s
        similar.messages[seen.message] = None
        if len(similar.messages) < SIMILAR_LIMIT:
            return False
        similar.messages.popitem(last=False)
        return True

    def _is_allowed(self, reference: ObjectReference, now: float) -> bool:
        about = _object(reference)
        tokens, counted_at = self._tokens.get(about) or (float(BURST), now)
        tokens = min(tokens + max(now - counted_at, 0.0) / REFILL_S, float(BURST))
        is_allowed = tokens >= 1
        self._tokens.put(about, (tokens - 1 if is_allowed else tokens, now))
        return is_allowed


def _aggregate(seen: Occurrence) -> Hashable:
    return _object(seen.about), seen.level, seen.reason


def _object(about: ObjectReference) -> Hashable:
    """The object in any of its states: the resourceVersion does not tell events apart."""
    return about.kind, about.namespace, about.name, about.uid, about.api_version, about.field_path
