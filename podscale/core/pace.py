"""Giving the event loop away in long work, so that short work next to it hardly notices.

Letting run whoever is ready is enough on an idle machine. On a busy one a process that never
sleeps is treated by the kernel as what it is, and its next request waits for other processes'
turns; one that sleeps as often as it works is woken at once.
"""

import asyncio
import time
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

WORK_S = 0.001  # of work between two rests; uvloop cannot sleep for less either
_UNNOTICED = 16  # rests of work that is not long yet: a usual answer is not held up


class LoopPace:
    """Of one piece of long work: ``rest`` stands between any two of its steps."""

    def __init__(self) -> None:
        self._rests = 0
        self._began_s = time.perf_counter()

    async def rest(self) -> bool:
        """After a millisecond of work let others run: for a moment, then for as long as that.

        Returns whether they have run, so that what was looked up before may have changed.
        """
        if time.perf_counter() - self._began_s < WORK_S:
            return False
        self._rests += 1
        await asyncio.sleep(0 if self._rests <= _UNNOTICED else WORK_S)
        self._began_s = time.perf_counter()
        return True

    async def through(self, steps: Generator[None, None, T]) -> T:
        """Return what ``steps`` return, resting where they yield."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            await self.rest()
