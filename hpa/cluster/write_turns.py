"""Turns to write: so many at once, and of them only a share for any one namespace.

A namespace whose webhook hangs would otherwise hold every turn for as long as requests may
take, and nothing would be scaled anywhere. Who has wanted to write for longest comes first,
across decisions: what waited too long is decided anew, and does not start to wait anew.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count as counted

from msgspec import Struct

_SHARE = 4  # a namespace gets one turn in so many

# Since when, a number of its own, what ends its waiting, its namespace.
_Waiter = tuple[float, int, "asyncio.Future[None]", "_Space"]


class _Space(Struct, eq=False):
    """One namespace."""

    free: int
    waiting: list[_Waiter]  # a heap


class WriteTurns:
    """The turns of one term."""

    def __init__(self, count: int) -> None:
        """``count`` is how many may write at once."""
        self._free = count
        self._share = max(count // _SHARE, 1)
        self._spaces: dict[str, _Space] = {}
        self._next: list[_Waiter] = []  # a heap of those whose namespace has a turn for them
        self._numbers = counted()

    @asynccontextmanager
    async def turn(self, namespace: str, since: float) -> AsyncIterator[None]:
        """Hold a turn; ``since`` is when the write was wanted first."""
        space = self._spaces.setdefault(namespace, _Space(self._share, []))
        granted = asyncio.get_running_loop().create_future()
        heappush(space.waiting, (since, next(self._numbers), granted, space))
        self._give(space)
        try:
            try:
                await granted
            except asyncio.CancelledError:
                if not granted.cancelled():  # it was given in the same moment
                    self._free += 1
                    space.free += 1
                raise
            try:
                yield
            finally:
                self._free += 1
                space.free += 1
        finally:
            self._give(space)
            if space.free == self._share and not space.waiting:
                self._spaces.pop(namespace, None)

    def _give(self, space: _Space) -> None:
        """Hand out what is free, ``space`` having come to have a turn or a waiter more."""
        self._let_through(space)
        while self._free and self._next:
            _, _, granted, other = heappop(self._next)
            if granted.done():  # cancelled since
                other.free += 1
                self._let_through(other)
            else:
                self._free -= 1
                granted.set_result(None)

    def _let_through(self, space: _Space) -> None:
        while space.free and space.waiting:
            waiter = heappop(space.waiting)
            if not waiter[2].done():
                space.free -= 1
                heappush(self._next, waiter)
