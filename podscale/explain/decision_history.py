"""What was decided before about each object, packed: each change against the one after it.

Two neighbours differ by few bytes, so that dozens fit into a few KB; and the oldest can go at any
time, since nothing leans on it. Nothing of it outlives the process.
"""

import zlib
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

MOST = 32  # changes
MOST_BYTES = 8 * 1024  # packed, of one object
_SMALL = 7 * 1024  # what it is packed against lies within a window of 8 KB
_RAW = -15  # deflate without zlib's header and sum: ten bytes of two hundred


class PackedChange(Struct, frozen=True, gc=False):
    """One change, and when it came."""

    at: float
    reason: str
    body: bytes  # against the next newer one; the newest alone


class ChangeRing:
    """The changes of one object, oldest first."""

    __slots__ = ("at", "mark", "older", "reason")

    least = 1  # changes that are kept however large they are
    most = MOST
    most_bytes = MOST_BYTES

    def __init__(self) -> None:
        self.at = 0.0  # of the newest decision, whether it changed anything or not
        self.mark: Hashable = None  # of the newest change: what differs with the next one
        self.reason = ""  # its first
        self.older: tuple[PackedChange, ...] = ()  # a deque alone is of 0.7 KB

    @property
    def known_since(self) -> float:
        """Since when there is an answer."""
        return self.older[0].at if self.older else self.at

    def add(self, at: float, mark: Hashable, reason: str, plain: bytes) -> None:
        """Keep a change; the oldest ones make room for it."""
        self.at, self.mark, self.reason = at, mark, reason
        older = self.older
        if older:
            newest = older[-1]
            body = _packed(_plain(newest.body), plain)
            older = (*older[:-1], replace(newest, body=body))
        # Until the next change only: not worth the search for the best.
        self.older = (*older, PackedChange(at, reason, _packed(plain, level=3)))
        self._make_room()

    def before(self, time_s: float) -> bytes | None:
        """Return the newest change that is not after ``time_s``."""
        plain = b""
        for each in reversed(self.older):
            plain = _plain(each.body, plain)
            if each.at <= time_s:
                return plain
        return None

    def _make_room(self) -> None:
        older = self.older
        size = sum(len(each.body) for each in older)
        while len(older) > self.least and (len(older) > self.most or size > self.most_bytes):
            size -= len(older[0].body)
            older = older[1:]
        self.older = older


K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=ChangeRing)


class DecisionHistory(Generic[K, R]):
    """The changes of all objects that are decided on."""

    def __init__(self, ring: Callable[[], R]) -> None:
        self._ring = ring
        self._rings: dict[K, R] = {}

    def __len__(self) -> int:
        return len(self._rings)

    def of(self, key: K) -> R:
        """Return the changes of one object, to add to them."""
        ring = self._rings.get(key)
        if ring is None:
            self._rings[key] = ring = self._ring()
        return ring

    def known_since(self, key: K) -> float | None:
        """Return since when there are answers; None: nothing is known."""
        ring = self._rings.get(key)
        return None if ring is None else ring.known_since

    def before(self, key: K, time_s: float) -> bytes | None:
        """Return the newest change that is not after ``time_s``; None: not known that far back."""
        ring = self._rings.get(key)
        return None if ring is None else ring.before(time_s)

    def changes(self, key: K) -> list[tuple[float, str]]:
        """Return when something changed and the first reason then, oldest first."""
        ring = self._rings.get(key)
        return [] if ring is None else [(each.at, each.reason) for each in ring.older]

    def reason(self, key: K) -> str:
        """Return the first reason of the newest change."""
        ring = self._rings.get(key)
        return "" if ring is None else ring.reason

    def forget(self, key: K) -> None:
        """Drop an object that is gone."""
        self._rings.pop(key, None)

    def clear(self) -> None:
        """Drop everything: what was in force while another replica led is not known."""
        self._rings.clear()


def _packed(plain: bytes, against: bytes = b"", *, level: int = 6) -> bytes:
    # Tables as small as will do: they are filled with zeros for each one.
    is_small = max(len(plain), len(against)) <= _SMALL
    bits, tables = (-13, 6) if is_small else (_RAW, 8)
    packer = zlib.compressobj(level, wbits=bits, memLevel=tables, zdict=against)
    return packer.compress(plain) + packer.flush()


def _plain(packed: bytes, against: bytes = b"") -> bytes:
    unpacker = zlib.decompressobj(wbits=_RAW, zdict=against)
    return unpacker.decompress(packed) + unpacker.flush()
