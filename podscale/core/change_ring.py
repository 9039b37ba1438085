"""What was decided about one object before, packed: each change against the one after it.

Two neighbours differ by few bytes, so that dozens fit into a few KB; and the oldest can go at any
time, since nothing leans on it. Pure.
"""

import zlib

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

    __slots__ = ("older",)

    least = 0  # changes that are kept however large they are

    def __init__(self) -> None:
        self.older: tuple[PackedChange, ...] = ()  # a deque alone is of 0.7 KB

    def add(self, at: float, reason: str, plain: bytes) -> None:
        """Keep a change; the oldest ones make room for it."""
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
        while len(older) > self.least and (len(older) > MOST or size > MOST_BYTES):
            size -= len(older[0].body)
            older = older[1:]
        self.older = older


def _packed(plain: bytes, against: bytes = b"", *, level: int = 6) -> bytes:
    # Tables as small as will do: they are filled with zeros for each one.
    is_small = max(len(plain), len(against)) <= _SMALL
    bits, tables = (-13, 6) if is_small else (_RAW, 8)
    packer = zlib.compressobj(level, wbits=bits, memLevel=tables, zdict=against)
    return packer.compress(plain) + packer.flush()


def _plain(packed: bytes, against: bytes = b"") -> bytes:
    unpacker = zlib.decompressobj(wbits=_RAW, zdict=against)
    return unpacker.decompress(packed) + unpacker.flush()
