"""Who wants to know that an object changed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from msgspec import Struct

V = TypeVar("V")


class Change(Struct, Generic[V], frozen=True):
    """One object before and after. ``old`` None: added; ``new`` None: deleted."""

    namespace: str
    name: str
    old: V | None
    new: V | None


class Listeners(Generic[V]):
    """Callbacks and readers of one store. False while there are none."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Change[V]], None]] = []

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def subscribe(self, callback: Callable[[Change[V]], None]) -> Callable[[], None]:
        """Add a callback; returns the way out."""
        self._callbacks.append(callback)

        def leave() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return leave

    def replaced(self, namespace: str, name: str, old: V | None, new: V | None) -> None:
        """Tell everybody."""
        change = Change(namespace, name, old, new)
        for callback in list(self._callbacks):
            callback(change)

    def changes(self) -> AsyncIterator[list[Change[V]]]:
        """Yield what changed since the last round, folded per object; counts from this call on."""
        pending: dict[tuple[str, str], Change[V]] = {}
        is_pending = asyncio.Event()

        def note(change: Change[V]) -> None:
            key = (change.namespace, change.name)
            earlier = pending.pop(key, None)  # and to the end: the order of last changes
            if earlier is None:
                pending[key] = change
            elif earlier.old is not None or change.new is not None:
                pending[key] = Change(*key, earlier.old, change.new)
            is_pending.set()

        leave = self.subscribe(note)

        async def rounds() -> AsyncIterator[list[Change[V]]]:
            try:
                while True:
                    await is_pending.wait()
                    is_pending.clear()
                    changes = list(pending.values())
                    pending.clear()
                    if changes:
                        yield changes
            finally:
                leave()

        return rounds()
