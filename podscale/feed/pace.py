"""Pauses in long work, so that short work next to it hardly notices.

Giving way to whoever is ready is enough on an idle machine. On a busy one a process that never
sleeps is treated by the kernel as what it is, and its next request waits for other processes'
turns; one that sleeps as often as it works is woken at once.
"""

import asyncio
import time
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

WORK_S = 0.001  # of work at a time once it is long work; uvloop cannot sleep for less either
_UNNOTICED = 16  # turns of work that is not long yet: a usual answer is not held up


class LoopPace:
    """Of one piece of long work."""

    def __init__(self) -> None:
        self._turns = 0
        self._began_s = time.perf_counter()

    async def rest(self) -> None:
        """Let others run: for a moment, or as long as was worked."""
        self._turns += 1
        is_due = time.perf_counter() - self._began_s >= WORK_S
        if self._turns <= _UNNOTICED or not is_due:
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(WORK_S)
        if is_due:
            self._began_s = time.perf_counter()

    async def through(self, steps: Generator[None, None, T]) -> T:
        """Return what ``steps`` return, resting where they yield."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            await self.rest()
