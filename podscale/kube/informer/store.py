"""Objects as a watch brings them, and by what they name: those that scale one workload, say."""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Generic, TypeVar

from podscale.core.selectors.selector import Selector
from podscale.core.value_index import ValueIndex
from podscale.kube.client.wire import HasMetadata
from podscale.kube.informer.fed_store import Change, FedStore
from podscale.kube.informer.freshness import number

__all__ = ["Change", "Store"]

T = TypeVar("T", bound=HasMetadata)


class Store(FedStore[T, T]):
    """Objects by namespace and name."""

    def __init__(
        self, scopes: Sequence[str] = ("",), *, keep: Callable[[T], T] | None = None
    ) -> None:
        """``keep`` returns what is kept of a new state, and told to who subscribes."""
        super().__init__(scopes)
        self._keep = keep
        self._objects: dict[str, dict[str, T]] = {}
        self._count = 0
        self._listed: dict[str, set[tuple[str, str]]] = {}  # per scope: seen by the list under way

    def __len__(self) -> int:
        return self._count

    def get(self, namespace: str, name: str) -> T | None:
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
        objects = self._objects.get(namespace, {})
        found = [
            (name, obj)
            for name, obj in objects.items()
            if selector.matches(obj.metadata.labels or {})
        ]
        return [obj for _, obj in sorted(found, key=lambda pair: pair[0])]

    def thin(self, obj: T) -> None:
        """Keep ``obj``, which tells less of the same state, in place of what is kept of it.

        For who has taken out of a state what it needs. Nobody is told.
        """
        meta = obj.metadata
        known = self.get(meta.namespace, meta.name)
        if known is not None and known.metadata == meta:
            self._objects[meta.namespace][meta.name] = obj

    def _version(self, namespace: str, name: str) -> int | None:
        known = self.get(namespace, name)
        return None if known is None else number(known.metadata.resource_version)

    def _uid(self, namespace: str, name: str) -> str:
        return self._objects[namespace][name].metadata.uid

    def _write(self, obj: T) -> None:
        meta = obj.metadata
        objects = self._objects.setdefault(meta.namespace, {})
        self._count += meta.name not in objects
        objects[meta.name] = obj if self._keep is None else self._keep(obj)

    def _erase(self, namespace: str, name: str) -> None:
        objects = self._objects[namespace]
        del objects[name]
        self._count -= 1
        if not objects:
            del self._objects[namespace]

    def _start_list(self, scope: str) -> None:
        self._listed[scope] = set()

    def _note_listed(self, scope: str, obj: T) -> None:
        self._listed[scope].add((obj.metadata.namespace, obj.metadata.name))

    def _unlisted(self, scope: str) -> Iterator[tuple[str, str, int]]:
        seen = self._listed.pop(scope, set())
        for namespace in [scope] if scope else list(self._objects):
            for name, obj in self._objects.get(namespace, {}).items():
                if (namespace, name) not in seen:
                    yield namespace, name, number(obj.metadata.resource_version)


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)


class StoreIndex(Generic[T, K, V]):
    """One entry for each object, a key and a value; follows the store."""

    def __init__(self, store: Store[T], entry: Callable[[T], tuple[K, V] | None]) -> None:
        """``entry`` returns None for an object that names nothing."""
        self._entry = entry
        self._found: ValueIndex[K, V] = ValueIndex()
        for obj in store.values():
            self._note(Change(obj.metadata.namespace, obj.metadata.name, None, obj))
        store.subscribe(self._note)

    def get(self, key: K) -> Collection[V]:
        """Return the values under a key, in the order in which they came."""
        return self._found.get(key)

    def _note(self, change: Change[T]) -> None:
        before = None if change.old is None else self._entry(change.old)
        after = None if change.new is None else self._entry(change.new)
        if before == after:
            return  # mostly its status
        if before is not None:
            self._found.discard(*before)
        if after is not None:
            self._found.add(*after)
