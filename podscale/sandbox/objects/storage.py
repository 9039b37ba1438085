"""What etcd and the watch cache are to kube-apiserver: objects, revisions, history.

Objects are dicts that nobody changes after they are stored, beside the bytes that
answers are joined from. One revision counter serves all resources. A resource keeps its
newest changes as a log that any number of watches read at their own pace.
"""

import asyncio
import time
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

Key = tuple[str, str]  # namespace ("" for cluster-wide), name
Object = dict[str, Any]
_encode = msgspec.json.Encoder().encode


class Stored:
    """One object at one revision."""

    __slots__ = ("key", "labels", "object", "revision", "tail")

    def __init__(self, key: Key, content: Object, revision: int) -> None:
        self.key = key
        self.object = content
        self.revision = revision
        self.labels: Mapping[str, str] = content["metadata"].get("labels") or {}
        # Without kind and apiVersion: lists of built-in types leave them out, and a CRD's
        # versions differ in nothing else.
        self.tail = _encode(
            {name: part for name, part in content.items() if name not in ("kind", "apiVersion")}
        )

    def encoded(self, api_version: str, kind: str) -> bytes:
        """Return the object's JSON with kind and apiVersion."""
        head = f'{{"kind":"{kind}","apiVersion":"{api_version}",'.encode()
        return head + self.tail[1:] if self.tail != b"{}" else head[:-1] + b"}"


class StoredChange:
    """One entry of the log: what became of an object, and what it was before."""

    __slots__ = ("_lines", "now", "revision", "type", "was")

    def __init__(self, type: str, now: Stored, was: Stored | None) -> None:  # noqa: A002
        self.type = type  # ADDED, MODIFIED, DELETED
        self.now = now
        self.was = was
        self.revision = now.revision
        self._lines: dict[tuple[str, str], bytes] = {}

    def line(self, type: str, api_version: str, kind: str) -> bytes:  # noqa: A002
        """Return the watch event as a line, encoded once for all watches."""
        key = (type, api_version)
        line = self._lines.get(key)
        if line is None:
            body = self.now.encoded(api_version, kind)
            line = b'{"type":"' + type.encode() + b'","object":' + body + b"}\n"
            self._lines[key] = line
        return line


class ObjectTable:
    """The objects of one resource in the order of their keys, and their newest changes."""

    def __init__(self, history: int) -> None:
        self.objects: dict[Key, Stored] = {}
        self.log: deque[StoredChange] = deque()
        self.compacted = 0  # changes up to this revision are gone
        self._keys: list[Key] = []
        self._history = history
        self._changed = asyncio.Event()
        self._begun = 0  # how many changes left the log, so that positions stay valid

    def keys(self, namespace: str = "", after: Key | None = None) -> Iterator[Key]:
        """Yield keys in order, of one namespace or all, after a given one."""
        for at in self._range(namespace, after):
            yield self._keys[at]

    def count(self, namespace: str = "", after: Key | None = None) -> int:
        """Return how many keys ``keys`` would yield."""
        return len(self._range(namespace, after))

    def _range(self, namespace: str, after: Key | None) -> range:
        start, end = 0, len(self._keys)
        if namespace:
            start = bisect_left(self._keys, (namespace, ""))
            end = bisect_left(self._keys, (namespace + "\0", ""))
        if after is not None:
            start = max(start, bisect_right(self._keys, after))
        return range(start, end)

    def record(self, change: StoredChange) -> None:
        """Take over one change: the object, the order, the log, and whoever waits for it."""
        key = change.now.key
        if change.type == "DELETED":
            del self.objects[key]
            del self._keys[bisect_left(self._keys, key)]
        else:
            if key not in self.objects:
                insort(self._keys, key)
            self.objects[key] = change.now
        self.log.append(change)
        self.forget(max(0, len(self.log) - self._history))

    def forget(self, count: int) -> None:
        """Forget the oldest changes, as etcd's compaction does: older watches get 410."""
        for _ in range(count):
            self.compacted = self.log.popleft().revision
        self._begun += count
        self._changed.set()
        self._changed = asyncio.Event()

    def changed(self) -> asyncio.Event:
        """Return the event that is set at the next change."""
        return self._changed

    def position(self, revision: int) -> int:
        """Return the place in the log after ``revision``; a place is valid for ever."""
        at = len(self.log)
        for change in reversed(self.log):
            if change.revision <= revision:
                break
            at -= 1
        return self._begun + at

    def since(self, position: int) -> list[StoredChange] | None:
        """Return the changes from a place on; None when some of them are forgotten."""
        if position < self._begun:
            return None
        skipped = position - self._begun
        count = len(self.log) - skipped
        # From the right: a watch that keeps up reads the newest few of a long log.
        return [self.log[len(self.log) - count + n] for n in range(count)]

    def end(self) -> int:
        """Return the place after the newest change."""
        return self._begun + len(self.log)


class Storage:
    """All tables, and the one revision counter."""

    def __init__(self, history: int = 20_000, wall: Callable[[], float] = time.time) -> None:
        """``wall`` is the time (unix seconds) that objects are written at."""
        self.wall = wall
        self.revision = 1
        self._history = history
        self._tables: dict[tuple[str, str], ObjectTable] = {}
        self._dependents: dict[str, set[tuple[tuple[str, str], Key]]] = {}

    def table(self, group: str, plural: str) -> ObjectTable:
        table = self._tables.get((group, plural))
        if table is None:
            table = self._tables[group, plural] = ObjectTable(self._history)
        return table

    def tables(self) -> Iterator[tuple[tuple[str, str], ObjectTable]]:
        yield from list(self._tables.items())

    def write(self, group: str, plural: str, key: Key, content: Object) -> Stored:
        """Store ``content`` as a new revision and return it; the dict becomes ours."""
        self.revision += 1
        table = self.table(group, plural)
        was = table.objects.get(key)
        content["metadata"]["resourceVersion"] = str(self.revision)
        now = Stored(key, content, self.revision)
        self._index((group, plural), was, now)
        table.record(StoredChange("ADDED" if was is None else "MODIFIED", now, was))
        return now

    def delete(self, group: str, plural: str, key: Key) -> Stored:
        """Remove an object; its last content, with the revision of the removal, is logged."""
        self.revision += 1
        table = self.table(group, plural)
        was = table.objects[key]
        metadata = {**was.object["metadata"], "resourceVersion": str(self.revision)}
        now = Stored(key, {**was.object, "metadata": metadata}, self.revision)
        self._index((group, plural), was, None)
        table.record(StoredChange("DELETED", now, was))
        return now

    def dependents(self, uid: str) -> list[tuple[tuple[str, str], Key]]:
        """Return table and key of every object that names ``uid`` as an owner."""
        return sorted(self._dependents.get(uid, ()))

    def _index(self, name: tuple[str, str], was: Stored | None, now: Stored | None) -> None:
        before = was.object["metadata"].get("ownerReferences") if was else None
        after = now.object["metadata"].get("ownerReferences") if now else None
        if before == after:
            return
        for owner in before or ():
            self._dependents.get(owner.get("uid", ""), set()).discard((name, was.key))  # type: ignore[union-attr]
        for owner in after or ():
            self._dependents.setdefault(owner.get("uid", ""), set()).add((name, now.key))  # type: ignore[union-attr]


async def changes(
    storage: Storage, names: Sequence[tuple[str, str]]
) -> AsyncIterator[list[StoredChange]]:
    """Yield everything there is as ADDED, then batches of changes, over several tables.

    A batch that history no longer has is replaced by everything there is.
    """
    tables = [storage.table(*name) for name in names]
    positions = [table.end() for table in tables]
    present = [
        [StoredChange("ADDED", held, None) for held in table.objects.values()] for table in tables
    ]
    yield [change for found in present for change in found]
    while True:
        waits = [table.changed() for table in tables]
        batch: list[StoredChange] = []
        for place, table in enumerate(tables):
            news = table.since(positions[place])
            positions[place] = table.end()
            if news is None:
                news = [StoredChange("ADDED", held, None) for held in table.objects.values()]
            batch += news
        if batch:
            yield batch
            await asyncio.sleep(0)
            continue
        tasks = [asyncio.ensure_future(wait.wait()) for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
