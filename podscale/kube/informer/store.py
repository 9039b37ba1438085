"""The objects of one resource in memory, as the API server last showed them.

A store is fed by a ``Reflector`` and by the answers to our own writes (``accept``); it
is read without waiting. Objects are ordered by resourceVersion: an older state never
replaces a newer one, so our own write is visible at once and stays so.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from podscale.core.selectors.selector import Selector
from podscale.kube.client.wire import HasMetadata
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
from podscale.kube.informer.resource_version import NewestVersions, is_older, number

__all__ = ["Change", "Sink", "Store"]

T = TypeVar("T", bound=HasMetadata)


class Sink(Protocol[T]):
    """What a reflector feeds."""

    def apply(self, happening: Happening[T], *, scope: str, now: float) -> None:
        """Take in what happened in ``scope`` (a namespace; "" is all) at ``now`` (monotonic)."""
        ...


class Store(TrackedStore, Generic[T]):
    """Objects by namespace and name."""

    def __init__(
        self, scopes: Sequence[str] = ("",), *, keep: Callable[[T], T] | None = None
    ) -> None:
        """``keep`` returns what is kept of a new state, and told to who subscribes."""
        super().__init__(scopes)
        self._keep = keep
        self._objects: dict[str, dict[str, T]] = {}
        self._count = 0
        self._scopes = tuple(scopes)
        self._heads = NewestVersions()
        self._listeners: Listeners[T] = Listeners()
        self._listed: dict[str, set[tuple[str, str]]] = {}  # per scope: seen by the list under way

    def __len__(self) -> int:
        return self._count

    def get(self, namespace: str, name: str) -> T | None:
        """Return the object (``namespace`` is "" for a resource without namespaces)."""
        objects = self._objects.get(namespace)
        return objects.get(name) if objects else None

    def values(self, namespace: str | None = None) -> Iterator[T]:
        """Yield the objects of ``namespace``, or of all (None), in no particular order."""
        if namespace is not None:
            yield from list(self._objects.get(namespace, {}).values())
            return
        for objects in list(self._objects.values()):
            yield from list(objects.values())

    def select(self, namespace: str, selector: Selector) -> list[T]:
        """Return the objects of ``namespace`` that ``selector`` matches, by name."""
        objects = self._objects.get(namespace, {})
        found = [
            (name, obj)
            for name, obj in objects.items()
            if selector.matches(obj.metadata.labels or {})
        ]
        return [obj for _, obj in sorted(found, key=lambda pair: pair[0])]

    def accept(self, answer: T) -> None:
        """Take in the server's answer to our own write, unless something newer is known."""
        meta = answer.metadata
        version = number(meta.resource_version)
        if self.get(meta.namespace, meta.name) is None and self._heads.is_past(
            self._scope_of(meta.namespace), version
        ):
            return  # deleted by somebody, and the watch told us before the answer came
        self._put(answer)

    def thin(self, obj: T) -> None:
        """Keep ``obj``, which tells less of the same state, in place of what is kept of it.

        For who has taken out of a state what it needs. Nobody is told.
        """
        meta = obj.metadata
        known = self.get(meta.namespace, meta.name)
        if known is not None and known.metadata == meta:
            self._objects[meta.namespace][meta.name] = obj

    def forget(self, namespace: str, name: str, uid: str = "") -> None:
        """Take out what we deleted ourselves (only this incarnation, if ``uid`` is given)."""
        known = self.get(namespace, name)
        if known is not None and (not uid or known.metadata.uid == uid):
            self._remove(namespace, name)

    def subscribe(self, callback: Callable[[Change[T]], None]) -> Callable[[], None]:
        """Call back for every change, in order, from the feeding task; returns the way out.

        Callbacks must be quick and must not raise.
        """
        return self._listeners.subscribe(callback)

    def changes(self) -> AsyncIterator[list[Change[T]]]:
        """Yield changes since the last round, one per object (old of the first, new of the
        last): bounded by the number of objects however slow the reader is."""
        return self._listeners.changes()

    def apply(self, happening: Happening[T], *, scope: str, now: float) -> None:
        """Take in what a reflector saw."""
        match happening:
            case Changes(events=events, resource_version=resource_version):
                for kind, obj in events:
                    if kind == "DELETED":
                        self._deleted(obj)
                    else:
                        self._put(obj)
                self._heads.note_seen(scope, resource_version)
            case WatchAlive(resource_version=resource_version):
                self._heads.note_seen(scope, resource_version)
            case ListedState():
                self._listed[scope] = set()
                self._heads.start_list(scope)
            case WatchPage(items=items, resource_version=resource_version):
                is_forced = self._heads.note_page(scope, resource_version)
                seen = self._listed[scope]
                for obj in items:
                    seen.add((obj.metadata.namespace, obj.metadata.name))
                    self._put(obj, is_forced=is_forced)
            case ListPage(resource_version=resource_version):
                self._sweep(scope, resource_version)
                self._heads.note_seen(scope, resource_version, is_list=True)
        self._tracker.note(happening, scope=scope, now=now)

    def _put(self, obj: T, *, is_forced: bool = False) -> None:
        meta = obj.metadata
        objects = self._objects.setdefault(meta.namespace, {})
        old = objects.get(meta.name)
        if old is not None and not is_forced:
            known, version = number(old.metadata.resource_version), number(meta.resource_version)
            # An equal version is the same state: our own write coming back, or a list.
            if is_older(version, known) or 0 <= version == known:
                return
        if self._keep is not None:
            obj = self._keep(obj)
        objects[meta.name] = obj
        self._count += old is None
        if self._listeners:
            if old is not None and old.metadata.uid != meta.uid:
                self._listeners.replaced(meta.namespace, meta.name, old, None)
                old = None
            self._listeners.replaced(meta.namespace, meta.name, old, obj)

    def _deleted(self, obj: T) -> None:
        meta = obj.metadata
        known = self.get(meta.namespace, meta.name)
        if known is None:
            return
        # Already replaced by a newer object of the same name, through accept().
        if is_older(number(meta.resource_version), number(known.metadata.resource_version)):
            return
        self._remove(meta.namespace, meta.name)

    def _remove(self, namespace: str, name: str) -> None:
        objects = self._objects[namespace]
        old = objects.pop(name)
        self._count -= 1
        if not objects:
            del self._objects[namespace]
        if self._listeners:
            self._listeners.replaced(namespace, name, old, None)

    def _sweep(self, scope: str, resource_version: str) -> None:
        """Take out what the list did not show, except what is newer than the list."""
        seen = self._listed.pop(scope, set())
        is_forced = self._heads.note_page(scope, resource_version)
        listed = number(resource_version)
        for namespace in [scope] if scope else list(self._objects):
            for name, obj in list(self._objects.get(namespace, {}).items()):
                if (namespace, name) in seen:
                    continue
                if is_forced or not 0 <= listed < number(obj.metadata.resource_version):
                    self._remove(namespace, name)

    def _scope_of(self, namespace: str) -> str:
        return namespace if namespace in self._scopes else ""
