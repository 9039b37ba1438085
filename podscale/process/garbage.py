"""Python's garbage collector in a process that holds much and makes much that dies at once."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from podscale.process.compose import Composed

_LOOK_S = 0.5


def relax() -> None:
    """Collect less often: a round makes some hundred thousand containers that die at once, and
    looking for cycles after every 700 of them would cost more than all of them together."""
    gc.set_threshold(100_000, 50, 50)


@asynccontextmanager
async def settling(serving: AbstractAsyncContextManager[Composed]) -> AsyncIterator[Composed]:
    """Take what has been loaded out of the collector's sight, once all parts are ready: it stays,
    and is walked for tens of milliseconds otherwise, again and again."""
    async with serving as composed, asyncio.TaskGroup() as group:
        task = group.create_task(_settle(composed), name="settle")
        try:
            yield composed
        finally:
            task.cancel()


async def _settle(composed: Composed) -> None:
    health = composed.health
    while health is not None and health.report("readyz").status != 200:  # noqa: ASYNC110 - facts
        await asyncio.sleep(_LOOK_S)
    gc.collect()
    gc.freeze()
