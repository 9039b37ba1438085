"""Caches whose keys come from outside: bounded in bytes and in age.

What is put or looked up is in the younger of two generations. When that one holds half of the
bytes, or half of the age has passed, it becomes the older, and what was in the older is
forgotten. A look-up costs little more than one in a dict.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar
from weakref import WeakSet

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# What an entry takes besides its key and value: its places in the dict, and their heads.
_ENTRY_BYTES = 200
# One that is longer than so much of the whole is nothing that comes again every 15 s, and must
# not crowd out a thousand that do.
_LARGEST = 1 / 256

_caches: WeakSet["BoundedCache[Hashable, object]"] = WeakSet()


class BoundedCache(Generic[K, V]):
    """Values by key, ``None`` for what is not known (any more)."""

    def __init__(self, most_bytes: int, *, age_s: float = 60.0, largest: float = _LARGEST) -> None:
        """``age_s`` is how long an entry is kept that nobody looks up; see ``grow_older``.
        ``largest`` is the share of all bytes that one may take."""
        self._most_bytes = most_bytes
        self._largest_bytes = most_bytes * largest
        self._age_s = age_s
        self._since_s = 0.0
        self._young: dict[K, tuple[V, int]] = {}  # with its size
        self._old: dict[K, tuple[V, int]] = {}
        self._young_bytes = self._old_bytes = 0
        _caches.add(self)  # type: ignore[arg-type]

    @property
    def held_bytes(self) -> int:
        """What the entries take, by the sizes that were told."""
        return self._young_bytes + self._old_bytes

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def get(self, key: K) -> V | None:
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is None:
                return None
            self._add(key, *found)
        return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep ``value``, unless it is too large; ``size`` is the bytes of both."""
        size += _ENTRY_BYTES
        if size <= self._largest_bytes:
            self._add(key, value, size)

    def clear(self) -> None:
        """Forget everything."""
        self._turn()
        self._turn()

    def grow_older(self, now_s: float) -> None:
        """Forget what is too old; ``now_s`` is of any clock that is always the same."""
        if not 0.0 <= now_s - self._since_s < self._age_s / 2:
            self._since_s = now_s
            self._turn()

    def _add(self, key: K, value: V, size: int) -> None:
        if self._young_bytes + size > self._most_bytes // 2:
            self._turn()
        before = self._young.get(key)
        self._young[key] = value, size
        self._young_bytes += size - (0 if before is None else before[1])

    def _turn(self) -> None:
        self._old, self._old_bytes = self._young, self._young_bytes
        self._young, self._young_bytes = {}, 0


def grow_older(now_s: float) -> None:
    """Make every cache of the process forget what is too old."""
    for cache in list(_caches):
        cache.grow_older(now_s)
