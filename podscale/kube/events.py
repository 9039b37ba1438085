"""Events about objects, aggregated and limited as client-go's recorder does.

``event`` never waits and never fails: it counts, and leaves the writing to one sender.
"""

import asyncio
import contextlib
import heapq
import time
from collections.abc import Callable, Hashable
from typing import Literal

import msgspec
import structlog

from podscale.kube.api import MERGE_PATCH, Api
from podscale.kube.correlation import CACHE_SIZE, Correlator, Occurrence, Series
from podscale.kube.errors import (
    ApiError,
    KubeError,
    NotLeading,
    ObjectNotFound,
    ServerFailed,
    TooManyRequests,
)
from podscale.kube.objects.cluster import ObjectReference
from podscale.kube.resource import EVENTS
from podscale.kube.wire import PartialObjectMetadata, builtins, decode, encode, format_time

_log = structlog.get_logger()
_ATTEMPTS = 3
_PAUSE_S = 1.0


class Recorder:
    """Writes ``v1`` Events for one component."""

    def __init__(
        self,
        api: Api,
        component: str,
        *,
        instance: str = "",
        most: int = CACHE_SIZE,
        timeout_s: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``most`` series may wait to be written; ``clock`` is what events are dated by."""
        self._api = api
        self._component = component
        self._instance = instance
        self._timeout_s = timeout_s
        self._clock = clock
        self._most = most
        self._correlator = Correlator()
        self._waiting: dict[Hashable, Occurrence] = {}  # by series: the newest
        self._due: list[tuple[float, int, Hashable]] = []  # a heap of those that wait
        self._changed = asyncio.Event()
        self._drained = asyncio.Event()
        self._is_hurried = False
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
            if len(self._waiting) >= self._most:
                self._dropped += 1
                return
            self._serial += 1
            heapq.heappush(self._due, (at, self._serial, key))
            self._changed.set()
        self._waiting[key] = seen

    async def run(self) -> None:
        """Write for ever; on cancellation what waits is lost."""
        now = asyncio.get_running_loop().time
        while True:
            if not self._due:
                self._drained.set()
            elif self._is_hurried or self._due[0][0] <= now():
                _, _, key = heapq.heappop(self._due)
                seen = self._waiting.pop(key)
                series = self._correlator.write(key, seen, now())
                if series is None:
                    self._dropped += 1
                else:
                    await self._send(seen, key, series)
                continue
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._due[0][0] if self._due else None):
                    await self._changed.wait()

    async def flush(self, timeout_s: float) -> None:
        """Wait until what waits is written, counts too; at most ``timeout_s``."""
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
        """Writes lost: too much waits, refused by the server, or over the limit per object."""
        return self._dropped

    async def _send(self, seen: Occurrence, key: Hashable, series: Series) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                if series.name:
                    try:
                        await self._count(seen, series)
                        return
                    except ObjectNotFound:  # events live an hour; a series may outlive its object
                        pass
                self._correlator.created(key, await self._create(seen, series))
                return
            except NotLeading:
                self._dropped += 1  # the leader says what happens now
                return
            except KubeError as error:
                is_final = isinstance(error, ApiError) and not isinstance(
                    error, ServerFailed | TooManyRequests
                )
                if is_final or attempt == _ATTEMPTS - 1:
                    self._dropped += 1
                    _log.warning(
                        "event not written",
                        reason=seen.reason,
                        about=seen.about.name,
                        error=str(error),
                    )
                    return
                asked_s = error.retry_after_s if isinstance(error, ApiError) else None
                await asyncio.sleep(asked_s or _PAUSE_S * 2**attempt)

    async def _create(self, seen: Occurrence, series: Series) -> str:
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
            "firstTimestamp": format_time(series.first_s),
            "lastTimestamp": format_time(series.last_s),
            "count": series.count,
            "type": seen.level,
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }
        answer = await self._api.request(
            "POST", EVENTS.path(namespace), body=encode(body), timeout_s=self._timeout_s
        )
        try:
            return decode(answer.body, PartialObjectMetadata).metadata.name or name
        except msgspec.DecodeError:
            return name

    async def _count(self, seen: Occurrence, series: Series) -> None:
        patch = {
            "count": series.count,
            "lastTimestamp": format_time(series.last_s),
            "message": series.message,
        }
        await self._api.request(
            "PATCH",
            EVENTS.path(seen.about.namespace or "default", series.name),
            body=encode(patch),
            content_type=MERGE_PATCH,
            timeout_s=self._timeout_s,
        )
