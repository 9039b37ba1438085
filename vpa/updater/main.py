"""The updater put together and as a process: watches, Lease, loop."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from podscale.kube.api import Api
from podscale.kube.events import Recorder
from podscale.kube.fenced import Fenced
from podscale.kube.lease import Elector, Term
from podscale.kube.watching import DEFAULT_RHYTHM, Rhythm
from podscale.serving.flag_table import problems as server_problems
from podscale.serving.flags import Flags
from podscale.serving.logs import Verbosity
from vpa import process
from vpa.recommender.main import lease_of, stores_of
from vpa.recommender.part import LeaseChoice
from vpa.stores import Stores
from vpa.updater import flags as flags_
from vpa.updater.act import Actor
from vpa.updater.flags import Options
from vpa.updater.loop import Updater
from vpa.updater.selfmetrics import UpdaterMetrics

COMPONENT = "vpa-updater"  # upstream's, in events
_STOP_S = 5.0


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
        self.elector: Elector | None = None
        acting = api
        if lease is not None:
            self.elector = Elector(
                api,
                namespace=lease.namespace,
                name=lease.name,
                identity=lease.identity,
                times=lease.times,
                on_change=on_change,
            )
            acting = Fenced(api, self.elector)
        self._recorder = Recorder(acting, COMPONENT, instance=process.identity(), clock=wall)
        actor = Actor(acting, self._recorder, options.rate)
        self.updater = Updater(acting, stores, actor, options, UpdaterMetrics(registry), wall=wall)
        self._leading: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Watch, lead and update until cancelled or stopped."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._recorder.run(), name="events")]
            if self._feeds_stores:
                tasks.append(group.create_task(self._stores.run(self._rhythm), name="watches"))
            self._leading = group.create_task(self._lead(), name="lead")
            await asyncio.wait({self._leading})
            for task in tasks:
                task.cancel()

    async def stop(self) -> None:
        """Give the Lease back."""
        leading = self._leading
        if leading is not None and not leading.done():
            leading.cancel()
            await asyncio.wait({leading}, timeout=_STOP_S)

    def is_leader(self) -> bool:
        """Whether this process updates now."""
        return self.elector is None or self.elector.may_write()

    def is_healthy(self) -> bool:
        """Whether loops go on."""
        return self.updater.is_healthy()

    async def _lead(self) -> None:
        if self.elector is None:
            await self.updater.run(Term(0, "", None))
        else:
            await self.elector.run(self.updater.run)


async def run(flags: Flags) -> int:
    """Update until SIGTERM or SIGINT; return the exit code."""
    return await process.run(flags, [*server_problems(flags), *flags_.problems(flags)], serving)


@asynccontextmanager
async def serving(flags: Flags, verbosity: Verbosity) -> AsyncIterator[UpdaterPart]:
    """Run the updater while the block runs."""
    async with process.grounded(flags, "updater", verbosity) as ground:
        namespace = await asyncio.to_thread(process.own_namespace, "kube-system")
        part = UpdaterPart(
            ground.api,
            stores_of(ground, needs_nodes=True),
            flags_.options(flags, namespace),
            ground.registry,
            lease=lease_of(flags),
            on_change=process.leader_label_of(ground.api, "updater"),
        )
        async with process.working(ground, part, may_write=part.is_leader):
            yield part
