"""What every store is, however it keeps its objects: fed by a reflector, read without waiting.

Objects are ordered by resourceVersion: an older state never replaces a newer one, so our own
write (``accept``) is visible at once and stays so. ``Store`` keeps objects as they came,
``podscale.kube.columns`` in columns.
"""

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from podscale.kube.client.errors import Forbidden, ObjectNotFound
from podscale.kube.client.wire import HasMetadata
from podscale.kube.informer import list_watch
from podscale.kube.informer.freshness import (
    Freshness,
    FreshnessTracker,
    NewestVersions,
    is_older,
    number,
)

V = TypeVar("V")


class Change(Struct, Generic[V], frozen=True):
    """One object before and after. ``old`` None: added; ``new`` None: deleted."""

    namespace: str
    name: str
    old: V | None
    new: V | None


T = TypeVar("T", bound=HasMetadata)

_LOOK_S = 0.05
# Of labels, annotations or owners: 1 MB of short ones would take a dozen.
_MOST_ENTRIES = 1000


class Sink(Protocol[T]):
    """What a reflector feeds."""

    @property
    def scopes(self) -> Sequence[str]:
        """The namespaces to watch; "" is all."""

    def apply(self, happening: list_watch.Happening[T], *, scope: str, now: float) -> None:
        """Take in what happened in ``scope`` (a namespace; "" is all) at ``now`` (monotonic)."""


class FedStore(ABC, Generic[T, V]):
    """Objects that come as ``T`` and that subscribers see as ``V``. A ``Sink[T]``."""

    def __init__(self, scopes: Sequence[str]) -> None:
        self.scopes = tuple(scopes)  # namespaces; "" is all
        self._tracker = FreshnessTracker(scopes)
        self._heads = NewestVersions()
        self._callbacks: list[Callable[[Change[V]], None]] = []

    def freshness(self, now: float | None = None) -> Freshness:
        """Return how far the store may be believed at ``now`` (time.monotonic)."""
        return self._tracker.facts(time.monotonic() if now is None else now)

    @property
    def is_synced(self) -> bool:
        """Whether the first list has been read whole; ``/readyz`` reports it."""
        return self._tracker.is_synced

    def is_current(
        self,
        now: float | None = None,
        *,
        since: float = math.inf,
        namespace: str | None = None,
    ) -> bool:
        """Whether a watch stands in every scope, or in that of ``namespace``, and has ``since``
        (time.monotonic, too); False: nothing may shrink because of it."""
        now = time.monotonic() if now is None else now
        return self._tracker.is_current(now, since, namespace)

    async def wait_synced(self) -> None:
        """Wait for the first list."""
        await self._tracker.wait_synced()

    async def wait_listed(self, patience_s: float = math.inf) -> bool:
        """Wait for the first list where there may be one; False: it has not come in time."""
        now = asyncio.get_running_loop().time
        until = now() + patience_s
        absent = (Forbidden, ObjectNotFound)
        while not self.is_synced and not isinstance(self.freshness().error, absent):
            if now() >= until:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    def accept(self, answer: T) -> None:
        """Take in the server's answer to our own write, unless something newer is known."""
        meta = answer.metadata
        scope = meta.namespace if meta.namespace in self.scopes else ""
        if self._version(meta.namespace, meta.name) is None and self._heads.is_past(
            scope, number(meta.resource_version)
        ):
            return  # deleted by somebody, and the watch told us before the answer came
        self._put(answer)

    def subscribe(self, callback: Callable[[Change[V]], None]) -> Callable[[], None]:
        """Call back for every change, in order, from the feeding task; returns the way out.

        Callbacks must be quick and must not raise.
        """
        self._callbacks.append(callback)

        def leave() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return leave

    def _tell(self, namespace: str, name: str, old: V | None, new: V | None) -> None:
        change = Change(namespace, name, old, new)
        for callback in list(self._callbacks):
            callback(change)

    def apply(self, happening: list_watch.Happening[T], *, scope: str, now: float) -> None:
        """Take in what a reflector saw."""
        match happening:
            case list_watch.Changes(events=events, resource_version=resource_version):
                for kind, obj in events:
                    if kind == "DELETED":
                        self._deleted(obj)
                    else:
                        self._put(obj)
                self._heads.note_seen(scope, resource_version)
            case list_watch.WatchAlive(resource_version=resource_version):
                self._heads.note_seen(scope, resource_version)
            case list_watch.ListBegan():
                self._heads.start_list(scope)
                self._start_list(scope)
            case list_watch.ListPage(items=items, resource_version=resource_version):
                is_forced = self._heads.note_page(scope, resource_version)
                for obj in items:
                    self._note_listed(scope, obj)
                    self._put(obj, is_forced=is_forced)
            case list_watch.ListEnded(resource_version=resource_version):
                self._sweep(scope, resource_version)
                self._heads.note_seen(scope, resource_version, is_list=True)
        self._tracker.note(happening, scope=scope, now=now)

    def _deleted(self, obj: T) -> None:
        meta = obj.metadata
        known = self._version(meta.namespace, meta.name)
        # Older: already replaced by a newer object of the same name, through accept().
        if known is None or is_older(number(meta.resource_version), known):
            return
        self._note_last_state(obj)
        self._remove(meta.namespace, meta.name)

    def _sweep(self, scope: str, resource_version: str) -> None:
        """Take out what the list did not show, except what is newer than the list."""
        is_forced = self._heads.note_page(scope, resource_version)
        listed = number(resource_version)
        for namespace, name, version in list(self._unlisted(scope)):
            if is_forced or not 0 <= listed < version:
                self._remove(namespace, name)

    def _put(self, obj: T, *, is_forced: bool = False) -> None:
        meta = obj.metadata
        lists = (meta.labels, meta.annotations, meta.owner_references)
        if max([len(each) for each in lists if each], default=0) > _MOST_ENTRIES:
            meta = replace(meta, labels=None, annotations=None, owner_references=())
            obj = replace(obj, metadata=meta)  # type: ignore[type-var]
        key = meta.namespace, meta.name
        known = self._version(*key)
        if known is not None and not is_forced:
            version = number(meta.resource_version)
            # An equal version is the same state: our own write coming back, or a list.
            if is_older(version, known) or 0 <= version == known:
                return
        if not self._callbacks:
            self._write(obj)
            return
        old = self.get(*key)
        is_another = old is not None and self._uid(*key) != meta.uid
        self._write(obj)
        if is_another:
            self._tell(*key, old, None)
            old = None
        self._tell(*key, old, self.get(*key))

    def _remove(self, namespace: str, name: str) -> None:
        old = self.get(namespace, name) if self._callbacks else None
        self._erase(namespace, name)
        if old is not None:
            self._tell(namespace, name, old, None)

    @abstractmethod
    def get(self, namespace: str, name: str) -> V | None:
        """Return one object (``namespace`` is "" for a resource without namespaces)."""

    @abstractmethod
    def _version(self, namespace: str, name: str) -> int | None:
        """Return the resourceVersion of what is kept, -1: not a number; None: nothing is."""

    @abstractmethod
    def _uid(self, namespace: str, name: str) -> str:
        """Return the UID of an object that is kept; "": its UID is not."""

    @abstractmethod
    def _write(self, obj: T) -> None:
        """Keep an object, in place of what is kept of it."""

    @abstractmethod
    def _erase(self, namespace: str, name: str) -> None:
        """Keep an object no longer."""

    @abstractmethod
    def _start_list(self, scope: str) -> None:
        """A list of ``scope`` begins: it has shown nothing yet."""

    @abstractmethod
    def _note_listed(self, scope: str, obj: T) -> None:
        """The list of ``scope`` shows ``obj``, which is put next."""

    @abstractmethod
    def _unlisted(self, scope: str) -> Iterable[tuple[str, str, int]]:
        """Return namespace, name and version of what the list of ``scope`` did not show."""

    def _note_last_state(self, obj: T) -> None:
        """``obj`` is what is about to be removed, as it was last."""
