"""Watches: one stream of JSON lines per request, fed from a table's log."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec
from aiohttp import web

from podscale.core.ascii_text import whole_number
from podscale.core.selectors import selector as labels
from podscale.core.selectors.fields import FieldRequirement
from podscale.core.selectors.selector import SelectorError
from podscale.sandbox.auth import OpenGate, Request
from podscale.sandbox.errors import bad_request, expired
from podscale.sandbox.http import bodies
from podscale.sandbox.http.bodies import metadata_line, wants_metadata
from podscale.sandbox.objects import objects
from podscale.sandbox.objects.objects import is_selected
from podscale.sandbox.objects.resources import SandboxResource
from podscale.sandbox.objects.storage import Storage, Stored, StoredChange

_TRUE = ("1", "true")
_encode = msgspec.json.Encoder().encode
Render = Callable[[str, Stored], bytes]  # writes an event's object in another form


class OpenWatches:
    """Answers watch requests; all that are open end at once where they are cut."""

    def __init__(self, storage: Storage, gate: OpenGate, bookmark_interval_s: float) -> None:
        self._storage = storage
        self._gate = gate
        self._bookmark_interval_s = bookmark_interval_s
        self._stop = asyncio.Event()

    def cut(self) -> None:
        """End every open watch now; new ones are served."""
        self._stop.set()
        self._stop = asyncio.Event()

    async def answer(self, resource: SandboxResource, asked: Request) -> web.StreamResponse:
        """Stream events until the time-out, a cut, or the client's end."""
        stream = _Stream(self._storage, resource, asked)
        response = web.StreamResponse()
        response.content_type = "application/json"
        try:
            await response.prepare(asked.http)
        except ConnectionError:  # the client has gone while it asked
            return response
        with contextlib.suppress(ConnectionError):  # the client has gone
            async with contextlib.aclosing(self._chunks(stream, asked)) as chunks:
                async for chunk in chunks:
                    await response.write(chunk)
            await response.write_eof()
        return response

    async def _chunks(self, stream: "_Stream", asked: Request) -> AsyncGenerator[bytes, None]:
        """Yield chunks of whole lines until the time-out, a cut, or history is lost (410)."""
        stop = self._stop
        loop = asyncio.get_running_loop()
        deadline = loop.time() + stream.timeout_s
        next_bookmark = loop.time() + self._bookmark_interval_s
        if (first := stream.initial()) and not self._gate.is_mute(asked):
            yield first
        while not stop.is_set() and not stream.is_broken:
            changed = stream.table.changed()
            if not self._gate.is_mute(asked) and (chunk := stream.news()):
                yield chunk
                continue
            now = loop.time()
            if now >= deadline:
                break
            if stream.has_bookmarks and now >= next_bookmark:
                next_bookmark = now + self._bookmark_interval_s
                if not self._gate.is_mute(asked):
                    yield stream.bookmark()
            until = min(deadline, next_bookmark) if stream.has_bookmarks else deadline
            await _either(changed, stop, max(until - now, 0.001))
        is_over = not stop.is_set() and not stream.is_broken
        if stream.has_bookmarks and is_over and not self._gate.is_mute(asked):
            yield stream.bookmark()


def selectors(
    resource: SandboxResource, asked: Request
) -> tuple[labels.Selector, Sequence[FieldRequirement]]:
    """Return the label and the field selector of a request; raises ``StatusError`` 400."""
    try:
        chosen = labels.parse(asked.query.get("labelSelector", ""))
    except SelectorError as error:
        raise bad_request(str(error)) from None
    return chosen, objects.field_requirements(asked.query.get("fieldSelector", ""), resource)


async def _either(changed: asyncio.Event, stop: asyncio.Event, seconds: float) -> None:
    waits = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(stop.wait())]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


class _Stream:
    """One watch: what it selects, its place in a table's log, and its events as lines."""

    def __init__(self, storage: Storage, resource: SandboxResource, asked: Request) -> None:
        """Raises ``StatusError`` 400 for a query that cannot be read."""
        query, target = asked.query, asked.target
        revision = whole_number(query.get("resourceVersion") or "0")
        if revision is None:
            raise bad_request(f"invalid resource version {query['resourceVersion']!r}")
        self._labels, self._fields = selectors(resource, asked)
        self._namespace = target.namespace if resource.namespaced else ""
        self._takes_all = self._labels.is_everything and not self._fields and not self._namespace
        self._revision = revision  # 0: from now on, after what there is
        self.timeout_s = float(
            whole_number(query.get("timeoutSeconds", "")) or random.uniform(1800, 3600)
        )
        self.has_bookmarks = query.get("allowWatchBookmarks") in _TRUE
        # What there is, then a marked bookmark.
        self._sends_initial = query.get("sendInitialEvents") in _TRUE
        self._storage = storage
        self._kind, self._api_version = resource.kind, resource.api_version(target.version)
        accept = asked.http.headers.get("Accept", "")
        self._render: Render | None = metadata_line if wants_metadata(accept) else None
        if bodies.wants_table(accept):
            self._render = bodies.table_renderer(resource, target.version, query, storage.wall)
        self.table = storage.table(resource.group, resource.plural)
        self.is_broken = False
        self._from_scratch = self._sends_initial or revision == 0
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
        lines = [
            self._line("ADDED", StoredChange("ADDED", self.table.objects[key], None))
            for key in self.table.keys(self._namespace)
            if self._is_selected(self.table.objects[key])
        ]
        if self._sends_initial:
            lines.append(self.bookmark(is_end_of_initial=True))
        return b"".join(lines)

    def news(self) -> bytes:
        """Return the events since the last look; a 410 event when some are forgotten."""
        changes = self.table.since(self._position) if self._position >= 0 else None
        if changes is None:
            self.is_broken = True
            message = f"too old resource version: {self._revision} ({self.table.compacted})"
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
        content = {"kind": self._kind, "apiVersion": self._api_version, "metadata": metadata}
        return _encode({"type": "BOOKMARK", "object": content}) + b"\n"

    def _type_for_us(self, change: StoredChange) -> str | None:
        if self._takes_all:
            return change.type
        is_in = change.type != "DELETED" and self._is_selected(change.now)
        was_in = change.was is not None and self._is_selected(change.was)
        if is_in:
            return "MODIFIED" if was_in else "ADDED"
        return "DELETED" if was_in else None

    def _is_selected(self, stored: Stored) -> bool:
        if self._namespace and stored.key[0] != self._namespace:
            return False
        return is_selected(stored, self._labels, self._fields)

    def _line(self, kind: str, change: StoredChange) -> bytes:
        if self._render is not None:
            return self._render(kind, change.now)
        return change.line(kind, self._api_version, self._kind)
