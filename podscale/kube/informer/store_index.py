"""The objects of a store by what they name: those that scale one workload, for example."""

from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

from podscale.core.value_index import ValueIndex
from podscale.kube.client.wire import HasMetadata
from podscale.kube.informer.listeners import Change
from podscale.kube.informer.store import Store

T = TypeVar("T", bound=HasMetadata)
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
