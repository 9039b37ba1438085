"""A walk over many pods, in pages between which the event loop runs."""

import asyncio

_PAGE = 16  # a decision takes 0.1 to 0.3 ms, and the loop is kept for 5 ms at most


class LoopTurns:
    """Counts the steps of one walk."""

    def __init__(self) -> None:
        self._steps = 0

    async def step(self) -> None:
        """Count one step; the last one of a page lets the event loop run."""
        self._steps += 1
        if self._steps % _PAGE == 0:
            await asyncio.sleep(0)
