"""Processes that want to lead, in virtual time, by one Lease of a little API server."""

import asyncio
from collections.abc import Awaitable, Callable

from podscale.kube.client.resource import LEASES
from podscale.kube.leadership.lease import Elector, Term
from tests.unit.kube.little import LittleCluster, MemoryApi

PATH = LEASES.path("podscale", "hpa")


class Frozen:
    """A clock of its own process: what the loop shows plus a jump."""

    def __init__(self) -> None:
        self.jump_s = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.jump_s


class Replica:
    """One process that wants to lead."""

    def __init__(
        self,
        cluster: LittleCluster,
        identity: str,
        on_change: Callable[[bool], Awaitable[None]] | None = None,
    ) -> None:
        self.api = MemoryApi(cluster)
        self.clock = Frozen()
        self.set_s = 0.0  # of the clock on the wall alone
        self.elector = Elector(
            self.api,
            namespace="podscale",
            name="hpa",
            identity=identity,
            clock=self.clock,
            wall=lambda: 1_700_000_000.0 + self.clock() + self.set_s,
            on_change=on_change,
        )
        self.terms: list[Term] = []
        self.ended = 0
        self.task = asyncio.create_task(self.elector.run(self.work))

    async def work(self, term: Term) -> None:
        self.terms.append(term)
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


def spec(cluster: LittleCluster) -> dict[str, object]:
    found = cluster.objects[PATH]["spec"]
    assert isinstance(found, dict)
    return found
