"""Whether others on the event loop get their turn while something long is done."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """How often another task had its turn."""

    taken = 0

    async def take(self) -> None:
        while True:
            self.taken += 1
            await asyncio.sleep(0)


@asynccontextmanager
async def others() -> AsyncIterator[Turns]:
    """Run another task for as long as the block."""
    turns = Turns()
    task = asyncio.create_task(turns.take())
    try:
        yield turns
    finally:
        task.cancel()
