"""Everything that happens to a resource, as one endless stream: list, watch, again.

Four nested generators, each with one duty (the shape is kopf's): for ever, list and
watch, watch from connection to connection, one connection. A broken stream never
surfaces as an exception: it becomes ``WatchBroken`` and another attempt.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Generic, Literal, TypeVar, cast

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from podscale.kube.client import errors, wire
from podscale.kube.client.api import JSON, METADATA, METADATA_LIST, WATCH_OPENS_S, Api
from podscale.kube.client.resource import Resource

T = TypeVar("T", bound=wire.HasMetadata)
Kind = Literal["ADDED", "MODIFIED", "DELETED"]

_log = structlog.get_logger()
# A watch that the server answers with errors this often in a row starts from a list
# again: after etcd is restored from a backup our resourceVersion may never come.
_WATCH_FAILURES = 3
_SHORT_S = 1.0  # a connection that ended sooner counts as a failure for the pauses
_SOONEST = 0.8  # of its silence: watches that fell quiet together do not come back together
_POLLS_BEFORE_WATCH = 10  # rights may be granted later


class WatchTiming(Struct, frozen=True):
    page_size: int = 500
    page_bytes: int = 32 * 1024 * 1024  # of one page: longer ones come in an eighth of the size
    list_timeout_s: float = 60.0  # per page
    watch_timeout_s: float = 300.0  # asked of the server; jittered up to twice
    # Quiet for so long, a watch begins anew: bookmarks come only as the API server's cache meets
    # newer versions, which on an idle cluster may take etcd ten minutes.
    silence_s: float = 90.0
    backoff_s: float = 0.5  # first pause after a failure, doubled with jitter ...
    backoff_max_s: float = 30.0  # ... up to this
    poll_s: float = 30.0  # between lists where watching is forbidden or not offered


DEFAULT_RHYTHM = WatchTiming()


class WatchSource(Struct, Generic[T], frozen=True):
    resource: Resource
    type: type[T]
    namespace: str = ""  # "" is all namespaces
    label_selector: str = ""
    field_selector: str = ""
    metadata_only: bool = False
    rhythm: WatchTiming = DEFAULT_RHYTHM

    @property
    def path(self) -> str:
        """The collection's path."""
        return self.resource.path(self.namespace)


class ListBegan(Struct, frozen=True):
    """A list begins. What was believed until now is believed on, and what was doubted is not."""


class ListPage(Struct, Generic[T], frozen=True):
    """A part of a list, as it was at ``resource_version``."""

    items: Sequence[T]
    resource_version: str


class ListEnded(Struct, frozen=True):
    """The list is whole: what was not in its pages is gone."""

    resource_version: str


class Changes(Struct, Generic[T], frozen=True):
    """Events of a watch that arrived together, in order, the last at ``resource_version``."""

    events: Sequence[tuple[Kind, T]]
    resource_version: str


class WatchAlive(Struct, frozen=True):
    """A sign of life: the watch stands, or a bookmark came.

    Without another sign the picture may be believed for ``good_for_s`` more.
    """

    resource_version: str
    good_for_s: float
    is_poll: bool = False


class WatchBroken(Struct, frozen=True):
    """The picture is growing old: what failed, in words."""

    reason: str
    error: errors.KubeError | None = None


Happening = ListBegan | ListPage[T] | ListEnded | Changes[T] | WatchAlive | WatchBroken


async def happenings(api: Api, source: WatchSource[T]) -> AsyncGenerator[Happening[T], None]:
    """Yield what happens to ``source`` for ever; ends only by cancellation."""
    pause = WatchPause(source.rhythm)
    polls_left = 0
    while True:
        try:
            if polls_left:
                async with aclosing(_poll(api, source)) as steps:
                    async for step in steps:
                        yield step
                pause.reset()
                polls_left -= 1
                await asyncio.sleep(source.rhythm.poll_s)
            else:
                async with aclosing(_list_and_watch(api, source, pause)) as steps:
                    async for step in steps:
                        yield step
                await pause.after(None)
        except _CannotWatch as refusal:
            _log.warning("listing instead of watching", resource=source.path, reason=str(refusal))
            polls_left = _POLLS_BEFORE_WATCH
        except errors.KubeError as error:
            yield WatchBroken(str(error), error)
            await pause.after(error)
        except msgspec.DecodeError as error:
            yield WatchBroken(f"GET {source.path}: not the expected JSON: {error}")
            await pause.after(None)


async def _poll(api: Api, source: WatchSource[T]) -> AsyncGenerator[Happening[T], None]:
    yield ListBegan()
    resource_version = ""
    async with aclosing(list_pages(api, source)) as pages:
        async for page in pages:
            resource_version = page.resource_version
            yield page
    yield ListEnded(resource_version)
    good_for_s = 2 * source.rhythm.poll_s + source.rhythm.list_timeout_s
    yield WatchAlive(resource_version, good_for_s, is_poll=True)


async def _list_and_watch(
    api: Api, source: WatchSource[T], pause: "WatchPause"
) -> AsyncGenerator[Happening[T], None]:
    """One list and the watch behind it; returns when it is time to list again."""
    yield ListBegan()
    resource_version = ""
    async with aclosing(list_pages(api, source)) as pages:
        async for page in pages:
            resource_version = page.resource_version
            yield page
            del page  # it would stay for as long as the watch does
    yield ListEnded(resource_version)
    if not resource_version:
        # Computed resources (metrics.k8s.io) have no history to watch from.
        raise _CannotWatch(f"{source.path} has no resourceVersion")
    async with aclosing(_watch(api, source, resource_version, pause)) as steps:
        async for step in steps:
            yield step


async def list_pages(api: Api, source: WatchSource[T]) -> AsyncGenerator[ListPage[T], None]:
    """Yield the list, page by page; raises ``KubeError`` and ``DecodeError``. An expired continue
    token starts it again, then unpaged."""
    limit = source.rhythm.page_size
    for attempt in range(3):
        continue_ = ""
        # The token dies when etcd compacts its revision away (every five minutes), which a
        # slow reader may meet twice; a list in one piece cannot expire.
        if attempt == 2:
            limit = 0
        try:
            while True:
                try:
                    meta, items = await _page(api, source, limit, continue_)
                except errors.AnswerTooLong:  # objects of 1 MB each, which anybody may create
                    if limit == 1:
                        raise
                    limit = max((limit or source.rhythm.page_size) // 8, 1)
                    continue
                yield ListPage(items, meta.resource_version)
                continue_ = meta.continue_
                if not continue_:
                    return
        except errors.Gone:
            if not continue_ or attempt == 2:
                raise


async def _page(
    api: Api, source: WatchSource[T], limit: int, continue_: str
) -> tuple[wire.ListMeta, list[T]]:
    query = _selectors(source)
    if limit:
        query["limit"] = str(limit)
    if continue_:
        query["continue"] = continue_
    answer = await api.request(
        "GET",
        source.path,
        query=query,
        accept=METADATA_LIST if source.metadata_only else JSON,
        timeout_s=source.rhythm.list_timeout_s,
        most_bytes=source.rhythm.page_bytes,
    )
    try:
        page = wire.decode(answer.body, wire.ListOf[source.type])  # type: ignore[name-defined]
    except msgspec.DecodeError:
        raw = wire.decode(answer.body, wire.ListOf[msgspec.Raw])
        return raw.metadata, list(_readable(source, raw.items or []))
    return page.metadata, page.items or []


def _readable(source: WatchSource[T], items: Sequence[msgspec.Raw]) -> Iterator[T]:
    """What can be read of a page in which something cannot: a bad object affects itself only."""
    for item in items:
        try:
            yield wire.decode(item, source.type)
        except msgspec.DecodeError as error:
            _log_unreadable(source, item, error)


async def _watch(
    api: Api, source: WatchSource[T], resource_version: str, pause: "WatchPause"
) -> AsyncGenerator[Happening[T], None]:
    """Connection after connection from ``resource_version`` on, until it is too old."""
    loop = asyncio.get_running_loop()
    failures, heard = 0, loop.time()
    while True:
        opened = loop.time()
        is_quiet = opened - heard >= _SOONEST * source.rhythm.silence_s
        try:
            async with aclosing(_connection(api, source, resource_version, is_quiet)) as steps:
                async for step in steps:
                    resource_version = step.resource_version
                    failures, heard = 0, loop.time()
                    yield step
            if loop.time() - opened >= _SHORT_S:
                pause.reset()
            else:
                await pause.after(None)
        except errors.Gone as error:
            # A resource without a watch cache (Events) has no bookmarks, and etcd forgets a quiet
            # watch's version within ten minutes: it lists again while it is still believed.
            if not is_quiet:
                yield WatchBroken(str(error), error)
            return
        except (errors.Forbidden, errors.MethodNotAllowed) as error:
            raise _CannotWatch(str(error)) from error
        except errors.ObjectNotFound:
            raise  # the resource itself is gone (its CRD was deleted): list until it is back
        except (errors.ApiError, errors.ApiUnreachable) as error:
            yield WatchBroken(str(error), error)
            if loop.time() - opened >= _SHORT_S:
                pause.reset()
            if isinstance(error, errors.ApiError):
                failures += 1
                if failures >= _WATCH_FAILURES:
                    return
            await pause.after(error)


async def _connection(
    api: Api, source: WatchSource[T], resource_version: str, is_quiet: bool
) -> AsyncGenerator[Changes[T] | WatchAlive, None]:
    """One HTTP stream: ends when the server ends it (it was asked to, after a while), and when it
    is quiet. The next one brings at once what this one may have missed, and is believed once
    the server lists an object, too: without etcd it would accept watches as before."""
    rhythm = source.rhythm
    query = _selectors(source)
    query["watch"] = "1"
    query["allowWatchBookmarks"] = "true"
    query["resourceVersion"] = resource_version
    # Spread, so that all watches of all replicas do not come back in the same second.
    query["timeoutSeconds"] = str(int(rhythm.watch_timeout_s * random.uniform(1, 2)) or 1)
    accept = METADATA if source.metadata_only else JSON
    read = wire.decoder(wire.WatchEvent[source.type]).decode  # type: ignore[name-defined]
    silence_s = rhythm.silence_s * random.uniform(_SOONEST, 1)
    stream = api.stream(source.path, query=query, accept=accept, silence_s=silence_s)
    good_for_s = rhythm.silence_s + WATCH_OPENS_S
    async with stream as batches:
        if is_quiet:
            # Any object will do: for one that a selector finds, etcd may have to read them all.
            # A name is what the account may have been granted, and finds at once.
            is_named = source.field_selector.startswith("metadata.name=")
            either = source if is_named else replace(source, label_selector="", field_selector="")
            await _page(api, either, 1, "")
        yield WatchAlive(resource_version, good_for_s)
        async for lines in batches:
            events: list[tuple[Kind, T]] = []
            for line in lines:
                event = _event(source, read, line)
                if event is None:
                    continue
                if isinstance(event, str):
                    resource_version = event
                    continue
                events.append(event)
                resource_version = event[1].metadata.resource_version or resource_version
            if events:
                yield Changes(events, resource_version)
            yield WatchAlive(resource_version, good_for_s)


def _event(
    source: WatchSource[T], read: Callable[[bytes], wire.WatchEvent[T]], line: bytes
) -> tuple[Kind, T] | str | None:
    """Return the event of a line, the resourceVersion of a bookmark, or None to skip it."""
    try:
        # Nearly every line is an object: reading it in one pass saves a third of its CPU.
        event = read(line)
    except msgspec.DecodeError as error:
        return _other_event(source, line, error)
    match event.type:
        case "ADDED" | "MODIFIED" | "DELETED":
            return event.type, event.object
        case _:
            return _other_event(source, line)


def _other_event(
    source: WatchSource[T], line: bytes, failure: msgspec.DecodeError | None = None
) -> tuple[Kind, T] | str | None:
    """A bookmark, an error, or an object that cannot be read because of ``failure``."""
    event = wire.decode(line, wire.WatchEvent[msgspec.Raw])
    if event.type == "ERROR":
        status = wire.decode(event.object, wire.WireStatusDetails)
        raise errors.ApiError.of(status.code or 500, status.reason, status.message)
    if event.type not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
        return None
    partial = wire.decode(event.object, wire.PartialObjectMetadata)
    if event.type == "BOOKMARK":
        return partial.metadata.resource_version
    _log_unreadable(source, event.object, failure)
    # Nothing is known of it any more, as after a list; stores read only metadata here.
    return "DELETED", cast(T, partial)


def _log_unreadable(
    source: WatchSource[T], item: msgspec.Raw, failure: msgspec.DecodeError | None
) -> None:
    try:
        meta = wire.decode(item, wire.PartialObjectMetadata).metadata
        name = f"{meta.namespace}/{meta.name}"
    except msgspec.DecodeError:
        name = "<unknown>"
    _log.warning("object not readable", resource=source.path, name=name, error=str(failure))


def _selectors(source: WatchSource[T]) -> dict[str, str]:
    query: dict[str, str] = {}
    if source.label_selector:
        query["labelSelector"] = source.label_selector
    if source.field_selector:
        query["fieldSelector"] = source.field_selector
    return query


class _CannotWatch(Exception):
    """Listing works, watching is refused; its text says why."""


class WatchPause:
    """Pauses that double with jitter, and start small again after success."""

    def __init__(self, rhythm: WatchTiming) -> None:
        self._rhythm = rhythm
        self._next_s = rhythm.backoff_s

    def reset(self) -> None:
        self._next_s = self._rhythm.backoff_s

    async def after(self, error: errors.KubeError | None) -> None:
        most_s = self._rhythm.backoff_max_s
        asked = error.retry_after_s if isinstance(error, errors.ApiError) else None
        # A proxy in between may ask for an hour, through which we would be blind.
        asked_s = min(asked or 0.0, most_s)
        await asyncio.sleep(max(self._next_s * random.uniform(0.5, 1.0), asked_s))
        self._next_s = min(self._next_s * 2, most_s)
