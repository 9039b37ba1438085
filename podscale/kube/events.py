"""Events about objects: written, counted, combined or dropped as by client-go's recorder.

``Correlator`` follows ``tools/record/events_cache.go`` with its defaults. What differs: a repeated
event is counted at once and its count written later, more series are remembered, and news of a
reason goes beside the budget (docs/decisions/027). ``Recorder.event`` never waits and never fails:
it counts, and leaves the writing to one sender.
"""

import asyncio
import contextlib
import heapq
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Literal, TypeVar

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from podscale.core.times.rfc3339 import rfc3339
from podscale.kube.client import errors
from podscale.kube.client.api import MERGE_PATCH, Api
from podscale.kube.client.resource import EVENTS
from podscale.kube.client.wire import PartialObjectMetadata, builtins, decode, encode
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


_log = structlog.get_logger()
FLUSH_S = 0.5  # at the end, while the Lease is still held: the next leader waits for it
_TIMEOUT_S = 5.0
_ATTEMPTS = 3
_PAUSE_S = 1.0
_PAUSE_MAX_S = 30.0  # whatever a Retry-After asks for: those behind this one wait as long
_NEW = float("-inf")  # when a series may be written that never was, or says something new
# Writes that come together cost the API server and etcd less than half of what they cost one
# by one: so many at once, and counts, which nobody waits for, four times a minute.
_TOGETHER = 8
_COUNTS_EVERY_S = 15.0


class Recorder:
    """Writes ``v1`` Events for one component."""

    def __init__(
        self,
        api: Api,
        component: str,
        *,
        instance: str = "",
        most: int = CACHE_SIZE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``most`` series may wait to be written; ``clock`` is what events are dated by."""
        self._api = api
        self._component = component
        self._instance = instance
        self._clock = clock
        self._most = most
        self._correlator = Correlator()
        self._waiting: dict[Hashable, Occurrence] = {}  # by series: the newest
        self._due: list[tuple[float, int, Hashable]] = []  # a heap of those that wait
        self._changed = asyncio.Event()
        self._drained = asyncio.Event()
        self._is_hurried = False
        self._is_writing = False
        self._dropped = 0
        self._serial = 0

    def event(
        self, about: ObjectReference, level: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Count one event; dropped when too much waits to be written."""
        # The API server refuses messages of more than 1,024 characters.
        seen = Occurrence(about, level, reason, message[:1024], self._clock())
        key, at = self._correlator.observe(seen)
        if key not in self._waiting:
            # Counts leave half of the room to what is new.
            if len(self._waiting) >= (self._most if at == _NEW else self._most // 2):
                self._dropped += 1
                return
            self._serial += 1
            if at != _NEW:
                at = math.ceil(at / _COUNTS_EVERY_S) * _COUNTS_EVERY_S
            heapq.heappush(self._due, (at, self._serial, key))
            self._changed.set()
        self._waiting[key] = seen

    async def run(self) -> None:
        """Write for ever; on cancellation what waits is lost."""
        now = asyncio.get_running_loop().time
        while True:
            if not self._due:
                self._drained.set()
            elif due := self._take(now()):
                # All of them end before others begin: no series is written twice at once.
                self._is_writing = True
                try:
                    async with asyncio.TaskGroup() as group:
                        for key in due:
                            group.create_task(self._write(key, self._waiting.pop(key)))
                finally:
                    self._is_writing = False
                continue
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._due[0][0] if self._due else None):
                    await self._changed.wait()

    async def flush(self, timeout_s: float) -> None:
        """Wait until what waits is written, counts too; at most ``timeout_s``."""
        if not self._waiting and not self._is_writing:
            return
        self._drained.clear()
        self._is_hurried = True
        self._changed.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._drained.wait()
        except TimeoutError:
            _log.warning("events left unsent", count=len(self._waiting))
        finally:
            self._is_hurried = False

    @property
    def dropped(self) -> int:
        """Writes lost; what was counted is written with the next one.

        Too much waits, the server or the Lease refuses, or an object has had too many.
        """
        return self._dropped

    def _take(self, now: float) -> list[Hashable]:
        """Return the series to be written at ``now``, no more than go together."""
        due: list[Hashable] = []
        while self._due and len(due) < _TOGETHER:
            if not self._is_hurried and self._due[0][0] > now:
                break
            due.append(heapq.heappop(self._due)[2])
        return due

    async def _write(self, key: Hashable, seen: Occurrence) -> None:
        now = asyncio.get_running_loop().time
        series = self._correlator.write(key, seen, now())
        if series is None:
            self._dropped += 1
            await asyncio.sleep(0)  # thousands may be refused in a row
            return
        try:
            name = await self._send(seen, series)
        except errors.NotLeading:
            # What waits is older than what the leader says now.
            self._dropped += 1 + len(self._waiting)
            self._waiting.clear()
            self._due.clear()
        except errors.KubeError as error:
            self._dropped += 1
            self._correlator.failed(seen, series, now())
            _log.warning(
                "event not written", reason=seen.reason, about=seen.about.name, error=str(error)
            )
        else:
            self._correlator.written(key, name, now())

    async def _send(self, seen: Occurrence, series: EventSeries) -> str:
        """Return the name of the Event, whose writing is tried again while that may help."""
        for attempt in range(_ATTEMPTS - 1):
            try:
                return await self._put(seen, series)
            except (errors.ServerFailed, errors.TooManyRequests, errors.ApiUnreachable) as error:
                asked_s = error.retry_after_s if isinstance(error, errors.ApiError) else None
                await asyncio.sleep(min(asked_s or _PAUSE_S * 2**attempt, _PAUSE_MAX_S))
        return await self._put(seen, series)

    async def _put(self, seen: Occurrence, series: EventSeries) -> str:
        if series.name:
            with contextlib.suppress(errors.ObjectNotFound):  # events live an hour
                await self._count(seen, series)
                return series.name
        return await self._create(seen, series)

    async def _create(self, seen: Occurrence, series: EventSeries) -> str:
        namespace = seen.about.namespace or "default"
        # client-go's form; the serial keeps two events of one clock tick apart.
        self._serial += 1
        name = f"{seen.about.name}.{int(seen.time_s * 1e9) + self._serial:x}"
        about = {key: value for key, value in builtins(seen.about).items() if value}
        source = {"component": self._component}
        if self._instance:
            source["host"] = self._instance
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": about,
            "reason": seen.reason,
            "message": series.message,
            "source": source,
            "firstTimestamp": rfc3339(series.first_s),
            "lastTimestamp": rfc3339(series.last_s),
            "count": series.count,
            "type": seen.level,
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }
        answer = await self._api.request(
            "POST", EVENTS.path(namespace), body=encode(body), timeout_s=_TIMEOUT_S
        )
        try:
            return decode(answer.body, PartialObjectMetadata).metadata.name or name
        except msgspec.DecodeError:
            return name

    async def _count(self, seen: Occurrence, series: EventSeries) -> None:
        patch = {
            "count": series.count,
            "lastTimestamp": rfc3339(series.last_s),
            "message": series.message,
        }
        await self._api.request(
            "PATCH",
            EVENTS.path(seen.about.namespace or "default", series.name),
            body=encode(patch),
            content_type=MERGE_PATCH,
            timeout_s=_TIMEOUT_S,
        )
