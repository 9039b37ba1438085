"""The updater put together and as a process: watches, Lease, loop."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from podscale.kube.api import Api
from podscale.kube.events import FLUSH_S, Recorder
from podscale.kube.leading import Leading, LeaseChoice
from podscale.kube.lease import Term
from podscale.kube.own_pod import identity, leader_label_of, own_namespace
from podscale.kube.watching import DEFAULT_RHYTHM, Rhythm
from podscale.serving.flag_table import problems as server_problems
from podscale.serving.flags import Flags
from podscale.serving.logs import Verbosity
from podscale.serving.process import run as run_process
from vpa import process
from vpa.stores import Stores
from vpa.updater import flags as flags_
from vpa.updater.act import Actor
from vpa.updater.flags import Options
from vpa.updater.loop import Updater
from vpa.updater.selfmetrics import UpdaterMetrics

COMPONENT = "vpa-updater"  # upstream's, in events


class UpdaterPart:
    """One updater. ``run`` it, ``stop`` it before the connection closes."""

    def __init__(
        self,
        api: Api,
        stores: Stores,
        options: Options,
        registry: CollectorRegistry,
        *,
        lease: LeaseChoice | None,
        on_change: Callable[[bool], Awaitable[None]] | None = None,
        feeds_stores: bool = True,
        rhythm: Rhythm = DEFAULT_RHYTHM,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``lease`` None: alone. ``feeds_stores``: nobody else runs ``stores``."""
        self._stores = stores
        self._feeds_stores = feeds_stores
        self._rhythm = rhythm
        self._leading = Leading(api, lease, on_change)
        acting = self._leading.api
        self._recorder = Recorder(acting, COMPONENT, instance=identity(), clock=wall)
        actor = Actor(acting, stores, self._recorder)
        self.updater = Updater(acting, stores, actor, options, UpdaterMetrics(registry), wall=wall)

    async def run(self) -> None:
        """Watch, lead and update until cancelled or stopped."""
        beside = [self._recorder.run()]
        if self._feeds_stores:
            beside.append(self._stores.run(self._rhythm))
        await self._leading.run(self._work, beside)

    async def stop(self) -> None:
        """Give the Lease back."""
        await self._leading.stop()

    async def _work(self, term: Term) -> None:
        try:
            await self.updater.run(term)
        finally:
            await self._recorder.flush(FLUSH_S)  # still ours to tell

    def is_leader(self) -> bool:
        """Whether this process updates now."""
        return self._leading.is_leader

    def is_healthy(self) -> bool:
        """Whether loops go on."""
        return self.updater.is_healthy()


async def run(flags: Flags) -> int:
    """Update until SIGTERM or SIGINT; return the exit code."""
    return await run_process(flags, [*server_problems(flags), *flags_.problems(flags)], serving)


@asynccontextmanager
async def serving(flags: Flags, verbosity: Verbosity) -> AsyncIterator[UpdaterPart]:
    """Run the updater while the block runs."""
    async with process.grounded(flags, "updater", verbosity) as ground:
        namespace = await asyncio.to_thread(own_namespace, "kube-system")
        part = UpdaterPart(
            ground.api,
            process.stores_of(ground, for_updates=True),
            flags_.options(flags, namespace),
            ground.registry,
            lease=process.lease_of(flags),
            on_change=leader_label_of(ground.api, "updater"),
        )
        async with process.working(ground, part, may_write=part.is_leader):
            yield part
