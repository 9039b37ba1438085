"""Places for queries that run at once, shared among those who want them.

A rule that hangs, or a tenant with many slow selectors, would hold every place for as long as
a query may take, again and again, and nobody else would be answered. So all rules whose last
query did not end in time hold no more than half of the places together, and those who wait come
in turn, owner by owner.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct


class _Waiter(Struct, eq=False):
    owner: str
    rule: str
    let_in: asyncio.Future[None]
    is_slow: bool = False  # its rule was when it was let in

    @property
    def queue(self) -> tuple[str, str]:
        return self.owner, self.rule


class FairSemaphore:
    """So many places, ``most`` of them for one owner."""

    def __init__(self, places: int, most: int) -> None:
        self._free = places
        self._most = most
        self._most_slow = max(places // 2, 1)
        self._held: Counter[str] = Counter()  # by owner
        self._held_by_slow = 0
        self._slow: set[str] = set()
        # By owner and rule, in the order of their turns; none is empty.
        self._waiting: dict[tuple[str, str], deque[_Waiter]] = {}

    @asynccontextmanager
    async def place(self, owner: str, rule: str, patience_s: float) -> AsyncIterator[None]:
        """Hold a place for a query of ``rule``; raises TimeoutError if none is free in time."""
        waiter = _Waiter(owner, rule, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(waiter.queue, deque()).append(waiter)
        self._let_in()
        try:
            async with asyncio.timeout(patience_s):
                await waiter.let_in
        except BaseException:
            if waiter.let_in.cancelled():
                self._take_out(waiter)
                self._let_in()
            else:  # it was let in at the same moment
                self._leave(waiter)
            raise
        try:
            yield
        finally:
            self._leave(waiter)

    def note(self, rule: str, *, is_slow: bool) -> None:
        """Say how a query of ``rule`` ended: in time, or not."""
        if is_slow:
            self._slow.add(rule)
        elif rule in self._slow:
            self._slow.discard(rule)
            self._let_in()

    def _let_in(self) -> None:
        while self._free:
            waiter = next((each[0] for each in self._waiting.values() if self._may(each[0])), None)
            if waiter is None:
                return
            rest = self._take_out(waiter)
            if rest:
                self._waiting[waiter.queue] = self._waiting.pop(waiter.queue)  # behind the others
            self._free -= 1
            self._held[waiter.owner] += 1
            waiter.is_slow = waiter.rule in self._slow
            self._held_by_slow += waiter.is_slow
            waiter.let_in.set_result(None)

    def _may(self, waiter: _Waiter) -> bool:
        if waiter.let_in.cancelled() or self._held[waiter.owner] >= self._most:
            return False
        return waiter.rule not in self._slow or self._held_by_slow < self._most_slow

    def _take_out(self, waiter: _Waiter) -> bool:
        """Return whether others wait behind it."""
        queue = self._waiting[waiter.queue]
        queue.remove(waiter)
        if not queue:
            del self._waiting[waiter.queue]
        return bool(queue)

    def _leave(self, waiter: _Waiter) -> None:
        self._free += 1
        self._held_by_slow -= waiter.is_slow
        self._held[waiter.owner] -= 1
        if not self._held[waiter.owner]:
            del self._held[waiter.owner]
        self._let_in()
