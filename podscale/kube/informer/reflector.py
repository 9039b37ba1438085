"""Keeps a store equal to the API server: one task per scope, each an endless watch."""

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Generic, TypeVar

import structlog
from msgspec.structs import replace

from podscale.kube.client.api import Api
from podscale.kube.client.errors import Gone
from podscale.kube.client.wire import HasMetadata
from podscale.kube.informer import list_watch
from podscale.kube.informer.fed_store import Sink

T = TypeVar("T", bound=HasMetadata)

_log = structlog.get_logger()


class Reflector(Generic[T]):
    """Feeds ``sink`` from ``source``, in each of the sink's scopes."""

    def __init__(
        self,
        api: Api,
        source: list_watch.WatchSource[T],
        sink: Sink[T],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._sources = [replace(source, namespace=scope) for scope in sink.scopes]
        self._sink = sink
        self._clock = clock

    async def run(self) -> None:
        """Feed for ever; ends only by cancellation."""
        async with asyncio.TaskGroup() as group:
            for source in self._sources:
                group.create_task(self._feed(source), name=f"reflect {source.path}")

    async def _feed(self, source: list_watch.WatchSource[T]) -> None:
        pause = list_watch.WatchPause(source.rhythm)
        while True:
            try:
                await self._follow(source)
            except Exception as error:  # noqa: BLE001 - no object may end the process
                _log.exception("watch failed", resource=source.path)
                broken: list_watch.WatchBroken = list_watch.WatchBroken(f"{source.path}: {error!r}")
                self._sink.apply(broken, scope=source.namespace, now=self._clock())
                await pause.after(None)

    async def _follow(self, source: list_watch.WatchSource[T]) -> None:
        told, stands_since = "", math.inf
        async with aclosing(list_watch.happenings(self._api, source)) as stream:
            async for happening in stream:
                self._apply(happening, source)
                if isinstance(happening, list_watch.ListPage):
                    await asyncio.sleep(0)  # a page is some 10 ms of CPU: let others in
                elif isinstance(happening, list_watch.WatchAlive):
                    stands_since = min(stands_since, self._clock())
                elif isinstance(happening, list_watch.WatchBroken):
                    # The same reason is news after a watch that stood for longer than a pause.
                    stood_s = self._clock() - stands_since
                    is_news = happening.reason != told or stood_s >= source.rhythm.backoff_max_s
                    if is_news and not isinstance(happening.error, Gone):
                        _log.warning("watch broken", resource=source.path, reason=happening.reason)
                    told, stands_since = happening.reason, math.inf

    def _apply(self, happening: list_watch.Happening[T], source: list_watch.WatchSource[T]) -> None:
        try:
            self._sink.apply(happening, scope=source.namespace, now=self._clock())
        except Exception:
            objects = _one_by_one(happening)
            if not objects:
                raise
            # A bad object affects itself only: neither its neighbours nor the watch.
            if len(objects) == 1:
                _log.exception("object not taken in", resource=source.path)
                return
            for each in objects:
                self._apply(each, source)


def _one_by_one(happening: list_watch.Happening[T]) -> list[list_watch.Happening[T]]:
    match happening:
        case list_watch.Changes(events=events, resource_version=resource_version):
            return [list_watch.Changes([event], resource_version) for event in events]
        case list_watch.ListPage(items=items, resource_version=resource_version):
            return [list_watch.ListPage([item], resource_version) for item in items]
        case _:
            return []
