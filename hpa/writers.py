"""Turns to write: so many at once, and of them only a share for any one namespace.

A namespace whose webhook hangs would otherwise hold every turn for as long as requests may
take, and nothing would be scaled anywhere.
"""

from asyncio import Semaphore
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_SHARE = 4  # a namespace gets one turn in so many


class Writers:
    """The turns of one term."""

    def __init__(self, count: int) -> None:
        """``count`` is how many may write at once."""
        self._all = Semaphore(count)
        self._share = max(count // _SHARE, 1)
        self._by_namespace: dict[str, tuple[Semaphore, list[None]]] = {}

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[None]:
        """Hold a turn; that of the namespace is waited for first, so that no other is held."""
        own, users = self._by_namespace.setdefault(namespace, (Semaphore(self._share), []))
        users.append(None)
        try:
            async with own, self._all:
                yield
        finally:
            users.pop()
            if not users:
                del self._by_namespace[namespace]
