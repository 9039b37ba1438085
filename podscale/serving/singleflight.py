"""One piece of work for all who want it at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """Work under way, by key.

    The first to come does the work in its own task; the others wait for its outcome,
    exceptions included. When the first is cancelled, one of the others takes over.
    """

    def __init__(self) -> None:
        self._flying: dict[K, asyncio.Future[V]] = {}

    async def run(self, key: K, work: Callable[[], Awaitable[V]]) -> V:
        """Return what ``work`` returns, or what a ``work`` already under way does."""
        while (flying := self._flying.get(key)) is not None:
            await asyncio.wait([flying])
            if not flying.cancelled():
                return flying.result()
        mine: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        self._flying[key] = mine
        try:
            value = await work()
        except asyncio.CancelledError:
            mine.cancel()
            raise
        except BaseException as error:
            mine.set_exception(error)
            mine.exception()  # retrieved: nobody else need be waiting
            raise
        else:
            mine.set_result(value)
            return value
        finally:
            del self._flying[key]
