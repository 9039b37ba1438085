"""Values that many rows share, kept once and counted. Pure."""

from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class InternedKeys(Generic[V]):
    """Numbers for keys; a number is free again when as many rows left it as took it."""

    def __init__(self) -> None:
        self._number: dict[Hashable, int] = {}
        self._keys: list[Hashable] = []
        self._values: list[V | None] = []
        self._users: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._number)

    def take(self, key: Hashable, value: V) -> int:
        """Return the number of ``key``, counting one more user; ``value`` is kept if it is new."""
        number = self._number.get(key)
        if number is not None:
            self._users[number] += 1
            return number
        if self._free:
            number = self._free.pop()
            self._keys[number], self._values[number], self._users[number] = key, value, 1
        else:
            number = len(self._keys)
            self._keys.append(key)
            self._values.append(value)
            self._users.append(1)
        self._number[key] = number
        return number

    def leave(self, number: int) -> None:
        """Count one user less."""
        self._users[number] -= 1
        if not self._users[number]:
            del self._number[self._keys[number]]
            self._keys[number] = self._values[number] = None
            self._free.append(number)

    def __getitem__(self, number: int) -> V:
        value = self._values[number]
        if value is None:
            raise KeyError(number)
        return value

    def values(self) -> list[V | None]:
        """Return the values by their numbers; None: not in use."""
        return self._values.copy()

    def replace(self, number: int, value: V) -> None:
        """Keep ``value`` for ``number`` from now on (a cheaper or derived form of the same)."""
        self._values[number] = value
