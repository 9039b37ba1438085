"""What was told of each VPA before: the newest and up to 32 changes, packed.

A change is another target, or another action or first reason about a pod. Nothing of it
outlives the process: answers say since when they know.
"""

import zlib
from collections import deque
from collections.abc import Hashable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from vpa.model.samples.membership import VpaKey

_MOST = 32
_MOST_BYTES = 8 * 1024  # of one VPA
_RAW = -15  # deflate without zlib's header and sum


class _Page(Struct, frozen=True):
    at: float
    packed: bytes  # told against the next newer one, the newest alone


class SizingHistory:
    """Packed explanations by VPA, oldest first."""

    def __init__(self) -> None:
        self._pages: dict[VpaKey, deque[_Page]] = {}
        self._marks: dict[VpaKey, Hashable] = {}

    def is_new(self, key: VpaKey, mark: Hashable) -> bool:
        """Return whether what ``mark`` stands for differs from what was kept last."""
        return self._marks.get(key) != mark

    def put(self, key: VpaKey, at: float, mark: Hashable, body: Mapping[str, Any]) -> None:
        """Keep an explanation."""
        self._marks[key] = mark
        pages = self._pages.setdefault(key, deque())
        plain = msgspec.json.encode(body)
        if pages:
            before = pages.pop()
            pages.append(_Page(before.at, _packed(_plain(before.packed), plain)))
        pages.append(_Page(at, _packed(plain)))
        while len(pages) > _MOST or (
            len(pages) > 1 and sum(len(page.packed) for page in pages) > _MOST_BYTES
        ):
            pages.popleft()

    def at(self, key: VpaKey, time_s: float) -> dict[str, Any] | None:
        """Return the explanation in force at a time; None: not known that far back."""
        plain = b""
        for page in reversed(self._pages.get(key, ())):
            plain = _plain(page.packed, plain)
            if page.at <= time_s:
                found: dict[str, Any] = msgspec.json.decode(plain)
                return found
        return None

    def known_since(self, key: VpaKey) -> float | None:
        """Return the time of the oldest explanation."""
        pages = self._pages.get(key)
        return pages[0].at if pages else None

    def forget(self, key: VpaKey) -> None:
        """Drop a VPA that is gone."""
        self._pages.pop(key, None)
        self._marks.pop(key, None)


def _packed(plain: bytes, against: bytes = b"") -> bytes:
    packer = zlib.compressobj(1, wbits=_RAW, zdict=against)
    return packer.compress(plain) + packer.flush()


def _plain(packed: bytes, against: bytes = b"") -> bytes:
    unpacker = zlib.decompressobj(wbits=_RAW, zdict=against)
    return unpacker.decompress(packed) + unpacker.flush()
