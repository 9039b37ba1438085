"""One part's leadership: the Lease where there is one, the writes it fences, the work it runs."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from msgspec import Struct

from podscale.kube.client.api import Api
from podscale.kube.leadership.fenced_api import FencedApi
from podscale.kube.leadership.lease import Elector, LeaseTimes, Term

_STOP_S = 5.0

LeadershipListener = Callable[[bool], Awaitable[None]]


async def for_ever(_term: Term) -> None:
    """Lead, and do nothing else: others ask ``may_write``."""
    await asyncio.Event().wait()


class LeaseChoice(Struct, frozen=True):
    """Which Lease a part leads by."""

    namespace: str
    name: str
    identity: str
    times: LeaseTimes = LeaseTimes()


class Leadership:
    """Whether one part may act. ``run`` its work, ``stop`` before the connection closes."""

    def __init__(
        self,
        api: Api,
        lease: LeaseChoice | None,
        on_change: LeadershipListener | None = None,
        annotations: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """``lease`` None: alone; ``annotations`` are written on it with each renewal."""
        self.api = api  # writes pass only while we lead
        self.elector: Elector | None = None
        if lease is not None:
            self.elector = Elector(
                api,
                namespace=lease.namespace,
                name=lease.name,
                identity=lease.identity,
                times=lease.times,
                on_change=on_change,
                annotations=annotations,
            )
            self.api = FencedApi(api, self.elector)
        self._working: asyncio.Task[None] | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this process may act now."""
        return self.elector is None or self.elector.may_write()

    async def run(
        self, work: Callable[[Term], Awaitable[None]], beside: Sequence[Coroutine[Any, Any, None]]
    ) -> None:
        """Work for each term until cancelled or stopped; ``beside`` runs whoever leads."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in beside]
            self._working = group.create_task(self._lead(work), name="lead")
            await asyncio.wait({self._working})
            for task in tasks:
                task.cancel()

    async def stop(self) -> None:
        """Give the Lease back."""
        working = self._working
        if working is not None and not working.done():
            working.cancel()
            await asyncio.wait({working}, timeout=_STOP_S)

    async def _lead(self, work: Callable[[Term], Awaitable[None]]) -> None:
        if self.elector is None:
            await work(Term(0, "", None))
        else:
            await self.elector.run(work)
