"""Values by what they share: mostly one for each key, sometimes thousands. Pure."""

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)


class ValueIndex(Generic[K, V]):
    """Values by key, in the order in which they came. One alone has no dict around it."""

    def __init__(self) -> None:
        self._found: dict[K, V | dict[V, None]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: K) -> Collection[V]:
        found = self._found.get(key)
        if found is None:
            return ()
        return found if isinstance(found, dict) else (found,)

    def add(self, key: K, value: V) -> None:
        """Put a value under a key, once."""
        found = self._found.get(key)
        if found is None or found == value:
            self._found[key] = value
        elif isinstance(found, dict):
            found[value] = None
        else:
            self._found[key] = {found: None, value: None}

    def discard(self, key: K, value: V) -> None:
        """Take a value out, if it is there."""
        found = self._found.get(key)
        if isinstance(found, dict):
            found.pop(value, None)
            if found:
                return
        elif found != value:
            return
        self._found.pop(key, None)
