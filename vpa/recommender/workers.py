"""Work on many objects, some at a time, each failing alone."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import structlog

from podscale.kube.client.errors import NotLeading

_log = structlog.get_logger()

T = TypeVar("T")


async def each(
    items: Iterable[T],
    work: Callable[[T], Awaitable[None]],
    *,
    workers: int,
    failed: Callable[[], None],
) -> None:
    """Work on all items, ``workers`` at a time; raises ``NotLeading``, which ends them all.

    Whatever else one item raises is logged and ``failed`` called, and the others go on.
    """
    waiting = iter(list(items))

    async def worker() -> None:
        for item in waiting:
            try:
                await work(item)
            except NotLeading:
                raise
            except Exception:  # noqa: BLE001 - a bad VPA affects itself only
                _log.exception("one failed, the others go on", item=str(item))
                failed()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(worker())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
