"""Events about objects, aggregated and limited as client-go's recorder does.

``event`` never waits and never fails: a bounded queue in front of one sender.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Literal

import msgspec
import structlog

from podscale.kube.api import MERGE_PATCH, Api
from podscale.kube.correlation import Correlator, Occurrence, Series
from podscale.kube.errors import ApiError, KubeError, ObjectNotFound, ServerFailed, TooManyRequests
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
        queue: int = 1000,
        timeout_s: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._component = component
        self._instance = instance
        self._timeout_s = timeout_s
        self._clock = clock
        self._queue: asyncio.Queue[Occurrence] = asyncio.Queue(queue)
        self._correlator = Correlator()
        self._dropped = 0
        self._serial = 0

    def event(
        self, about: ObjectReference, level: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Queue one event; dropped (and counted) when the queue is full."""
        # The API server refuses messages of more than 1,024 characters.
        seen = Occurrence(about, level, reason, message[:1024], self._clock())
        try:
            self._queue.put_nowait(seen)
        except asyncio.QueueFull:
            self._dropped += 1

    async def run(self) -> None:
        """Send for ever; on cancellation what is queued is lost."""
        while True:
            seen = await self._queue.get()
            try:
                observed = self._correlator.observe(seen)
                if observed is None:
                    self._dropped += 1
                else:
                    await self._send(seen, *observed)
            finally:
                self._queue.task_done()

    async def flush(self, timeout_s: float) -> None:
        """Wait until what is queued is sent, at most ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._queue.join()
        except TimeoutError:
            _log.warning("events left unsent", count=self._queue.qsize())

    @property
    def dropped(self) -> int:
        """Events lost: queue full, refused by the server, or over the limit per object."""
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
