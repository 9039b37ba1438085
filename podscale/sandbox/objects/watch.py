"""Watches: one stream of JSON lines per request, fed from a table's log."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec
from msgspec import Struct

from podscale.core.ascii_text import whole_number
from podscale.core.selectors.fields import FieldRequirement
from podscale.core.selectors.selector import Selector
from podscale.sandbox.errors import expired
from podscale.sandbox.objects.objects import is_selected
from podscale.sandbox.objects.resources import SandboxResource
from podscale.sandbox.objects.storage import ObjectTable, Storage, Stored, StoredChange

_encode = msgspec.json.Encoder().encode
Render = Callable[[str, Stored], bytes]


class WatchStream(Struct, frozen=True):
    """What one watch wants to see."""

    resource: SandboxResource
    version: str
    namespace: str
    label_selector: Selector
    field_selector: Sequence[FieldRequirement]
    revision: str  # "": from now on, after what there is; "0": the same
    timeout_s: float
    bookmarks: bool
    sends_initial: bool  # sendInitialEvents: what there is, then a marked bookmark


def timeout_of(text: str) -> float:
    """Return the seconds after which the server ends a watch: as asked, else 30 to 60 minutes."""
    seconds = whole_number(text) or 0
    return float(seconds) if seconds else random.uniform(1800, 3600)


async def lines(
    watch: WatchStream,
    storage: Storage,
    stop: asyncio.Event,
    *,
    bookmark_interval_s: float,
    is_mute: Callable[[], bool],
    render: Render | None = None,
) -> AsyncGenerator[bytes, None]:
    """Yield chunks of whole lines until the time-out, ``stop``, or history is lost (410).

    ``render`` writes an event's object in another form (Table).
    """
    stream = _Stream(watch, storage, render)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + watch.timeout_s
    next_bookmark = loop.time() + bookmark_interval_s
    if (first := stream.initial()) and not is_mute():
        yield first
    while not stop.is_set() and not stream.is_broken:
        changed = stream.table.changed()
        if not is_mute() and (chunk := stream.news()):
            yield chunk
            continue
        now = loop.time()
        if now >= deadline:
            break
        if watch.bookmarks and now >= next_bookmark:
            next_bookmark = now + bookmark_interval_s
            if not is_mute():
                yield stream.bookmark()
        until = min(deadline, next_bookmark) if watch.bookmarks else deadline
        await _either(changed, stop, max(until - now, 0.001))
    if watch.bookmarks and not stop.is_set() and not stream.is_broken and not is_mute():
        yield stream.bookmark()


async def _either(changed: asyncio.Event, stop: asyncio.Event, seconds: float) -> None:
    waits = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(stop.wait())]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


class _Stream:
    def __init__(self, watch: WatchStream, storage: Storage, render: Render | None) -> None:
        self._watch = watch
        self._storage = storage
        self._render = render
        self.table: ObjectTable = storage.table(watch.resource.group, watch.resource.plural)
        self.is_broken = False
        self._takes_all = (
            watch.label_selector.is_everything and not watch.field_selector and not watch.namespace
        )
        self._api_version = watch.resource.api_version(watch.version)
        revision = whole_number(watch.revision) or 0
        self._from_scratch = watch.sends_initial or revision == 0
        if self._from_scratch:
            self._position = self.table.end()
        elif revision < self.table.compacted:
            self._position = -1  # history is lost: the first look says so
        else:
            self._position = self.table.position(revision)

    def initial(self) -> bytes:
        """Return what a watch that starts from nothing sees first."""
        if not self._from_scratch:
            return b""
        found = [
            self._line("ADDED", StoredChange("ADDED", self.table.objects[key], None))
            for key in self.table.keys(self._watch.namespace)
            if self._is_seen(self.table.objects[key])
        ]
        if self._watch.sends_initial:
            found.append(self.bookmark(is_end_of_initial=True))
        return b"".join(found)

    def news(self) -> bytes:
        """Return the events since the last look; a 410 event when some are forgotten."""
        changes = self.table.since(self._position) if self._position >= 0 else None
        if changes is None:
            self.is_broken = True
            message = f"too old resource version: {self._watch.revision} ({self.table.compacted})"
            return _encode({"type": "ERROR", "object": expired(message).status}) + b"\n"
        self._position += len(changes)
        return b"".join(
            self._line(kind, change)
            for change in changes
            if (kind := self._type_for_us(change)) is not None
        )

    def bookmark(self, *, is_end_of_initial: bool = False) -> bytes:
        """Return a BOOKMARK at the current revision."""
        metadata: dict[str, object] = {"resourceVersion": str(self._storage.revision)}
        if is_end_of_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        content = {
            "kind": self._watch.resource.kind,
            "apiVersion": self._api_version,
            "metadata": metadata,
        }
        return _encode({"type": "BOOKMARK", "object": content}) + b"\n"

    def _type_for_us(self, change: StoredChange) -> str | None:
        if self._takes_all:
            return change.type
        is_seen = change.type != "DELETED" and self._is_seen(change.now)
        was_seen = change.was is not None and self._is_seen(change.was)
        if is_seen:
            return "MODIFIED" if was_seen else "ADDED"
        return "DELETED" if was_seen else None

    def _is_seen(self, stored: Stored) -> bool:
        watch = self._watch
        if watch.namespace and stored.key[0] != watch.namespace:
            return False
        return is_selected(stored, watch.label_selector, watch.field_selector)

    def _line(self, kind: str, change: StoredChange) -> bytes:
        if self._render is not None:
            return self._render(kind, change.now)
        return change.line(kind, self._api_version, self._watch.resource.kind)
