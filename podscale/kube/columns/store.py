"""A store whose objects are rows: fed like ``Store``, read through cohorts.

What a subclass keeps beyond names, labels and owners it writes in ``_write`` and gives
back in ``_release``.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

from podscale.core.selectors.selector import Selector
from podscale.kube.client.wire import HasMetadata
from podscale.kube.columns.rows import Rows
from podscale.kube.informer.freshness import TrackedStore
from podscale.kube.informer.list_watch import (
    Changes,
    Happening,
    ListedState,
    ListPage,
    WatchAlive,
    WatchPage,
)
from podscale.kube.informer.listeners import Change, Listeners
from podscale.kube.informer.resource_version import is_older, number

T = TypeVar("T", bound=HasMetadata)
V = TypeVar("V")


class ColumnarStore(TrackedStore, Generic[T, V]):
    """Objects of type ``T`` in rows; subscribers see them as ``V``."""

    _type: ClassVar[type[HasMetadata]]  # T, at run time

    def __init__(self, rows: Rows, scopes: Sequence[str]) -> None:
        super().__init__(scopes)
        self._rows = rows
        self._scopes = tuple(scopes)
        self._listeners: Listeners[V] = Listeners()

    def __len__(self) -> int:
        return len(self._rows)

    def names(self, namespace: str, selector: Selector) -> list[str]:
        """Return the names of the objects that match, in the order of an API server's LIST.

        ``namespace`` "" is: no namespace (nodes), or all of them.
        """
        rows = self._rows
        cohorts = rows.cohorts.find(namespace or None, selector)
        if namespace or len({cohort.namespace for cohort in cohorts}) < 2:
            return sorted(rows.names[row] for cohort in cohorts for row in cohort.rows)
        everywhere = [
            (cohort.namespace, rows.names[row]) for cohort in cohorts for row in cohort.rows
        ]
        return [name for _, name in sorted(everywhere)]

    def count(self, namespace: str) -> int:
        """Return how many objects ``namespace`` has."""
        return len(self._rows.in_namespace(namespace))

    def changed(self, namespace: str) -> int:
        """Return a number that is another one after every change in ``namespace``; 0: empty."""
        return self._rows.changed(namespace)

    def exists(self, namespace: str, name: str) -> bool:
        """Return whether there is such an object."""
        return self._rows.find(namespace, name) is not None

    def labels(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """Return its labels; None: no such object."""
        row = self._rows.find(namespace, name)
        return None if row is None else self._rows.cohort(row).labels

    def accept(self, answer: T) -> None:
        """Take in the server's answer to our own write, unless something newer is known."""
        meta = answer.metadata
        scope = meta.namespace if meta.namespace in self._scopes else ""
        if not self.exists(meta.namespace, meta.name) and self._rows.heads.is_past(
            scope, number(meta.resource_version)
        ):
            return
        self._put(answer)

    def forget(self, namespace: str, name: str, uid: str = "") -> None:
        """Take out what we deleted ourselves (only this incarnation, if ``uid`` is given)."""
        row = self._rows.find(namespace, name)
        if row is not None and (not uid or not self._uid(row) or self._uid(row) == uid):
            self._remove(namespace, name)

    def subscribe(self, callback: Callable[[Change[V]], None]) -> Callable[[], None]:
        """Call back for every change; as ``Store.subscribe``."""
        return self._listeners.subscribe(callback)

    def changes(self) -> AsyncIterator[list[Change[V]]]:
        """Yield what changed since the last round; as ``Store.changes``."""
        return self._listeners.changes()

    def apply(self, happening: Happening[T], *, scope: str, now: float) -> None:
        """Take in what a reflector saw."""
        heads = self._rows.heads
        match happening:
            case Changes(events=events, resource_version=resource_version):
                for kind, obj in events:
                    if kind == "DELETED":
                        self._deleted(obj)
                    else:
                        self._put(obj)
                heads.note_seen(scope, resource_version)
            case WatchAlive(resource_version=resource_version):
                heads.note_seen(scope, resource_version)
            case ListedState():
                self._rows.unmark(scope)
            case WatchPage(items=items, resource_version=resource_version):
                is_forced = heads.note_page(scope, resource_version)
                for obj in items:
                    self._put(obj, is_forced=is_forced)
            case ListPage(resource_version=resource_version):
                for namespace, name in list(self._rows.unseen(scope, resource_version)):
                    self._remove(namespace, name)
                heads.note_seen(scope, resource_version, is_list=True)
        self._tracker.note(happening, scope=scope, now=now)

    def _put(self, obj: T, *, is_forced: bool = False) -> None:
        rows, meta = self._rows, obj.metadata
        row = rows.find(meta.namespace, meta.name)
        if row is None:
            row = rows.add(meta)
            self._write(row, obj, is_new=True)
            if self._listeners:
                self._tell(meta.namespace, meta.name, None, self._view(meta.namespace, row))
            return
        if not is_forced and rows.is_outdated(row, meta.resource_version):
            rows.column["mark"][row] = True  # a list showed it, if only in an older state
            return
        if not self._listeners:
            rows.update(row, meta)
            self._write(row, obj, is_new=False)
            return
        old = self._view(meta.namespace, row)
        is_same = self._uid(row) == meta.uid
        rows.update(row, meta)
        self._write(row, obj, is_new=False)
        new = self._view(meta.namespace, row)
        if is_same:
            self._tell(meta.namespace, meta.name, old, new)
        else:
            self._tell(meta.namespace, meta.name, old, None)
            self._tell(meta.namespace, meta.name, None, new)

    def _deleted(self, obj: T) -> None:
        meta = obj.metadata
        row = self._rows.find(meta.namespace, meta.name)
        if row is None:
            return
        # Already replaced by a newer object of the same name, through accept().
        if is_older(number(meta.resource_version), int(self._rows.column["version"][row])):
            return
        # An object that cannot be read comes as mere metadata.
        if self._listeners and isinstance(obj, self._type):
            self._put(obj)  # its last state, which no earlier event may have shown
        self._remove(meta.namespace, meta.name)

    def _remove(self, namespace: str, name: str) -> None:
        row = self._rows.find(namespace, name)
        if row is None:
            return
        old = self._view(namespace, row) if self._listeners else None
        self._release(row)
        self._rows.remove(namespace, name)
        if old is not None:
            self._tell(namespace, name, old, None)

    def _tell(self, namespace: str, name: str, old: V | None, new: V | None) -> None:
        self._listeners.replaced(namespace, name, old, new)

    def _write(self, row: int, obj: T, *, is_new: bool) -> None:
        """Fill the subclass's own columns of ``row``."""

    def _release(self, row: int) -> None:
        """Give back what the subclass holds for ``row``."""

    def _view(self, namespace: str, row: int) -> V:
        """Return the row as subscribers see it."""
        raise NotImplementedError

    def _uid(self, row: int) -> str:
        """Return the UID of the row's object; "": not kept."""
        return ""
