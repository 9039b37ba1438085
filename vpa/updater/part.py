"""The updater as a part of a process: watches, Lease, loop."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from podscale.kube.client.api import Api
from podscale.kube.events.recorder import FLUSH_S, Recorder
from podscale.kube.informer.list_watch import DEFAULT_RHYTHM, WatchTiming
from podscale.kube.leadership.leading import Leadership, LeaseChoice
from podscale.kube.leadership.lease import Term
from podscale.kube.leadership.own_pod import identity, leader_label_of, own_namespace
from podscale.process.part import PartKind, Shared, Work
from podscale.serving.apis.api import ApiGroup
from podscale.serving.flags import Flags
from podscale.serving.monitoring.health import Health
from vpa import flags as common_flags
from vpa.stores import VpaStores
from vpa.updater import flags as flags_
from vpa.updater.cluster.pod_disruptor import PodDisruptor
from vpa.updater.flags import Options
from vpa.updater.loop.loop import Updater
from vpa.updater.selfmetrics import UpdaterMetrics
from vpa.watches import stores_of

COMPONENT = "vpa-updater"  # upstream's, in events


class UpdaterPart:
    """One updater. ``run`` it, ``stop`` it before the connection closes."""

    def __init__(
        self,
        api: Api,
        stores: VpaStores,
        options: Options,
        registry: CollectorRegistry,
        *,
        lease: LeaseChoice | None,
        on_change: Callable[[bool], Awaitable[None]] | None = None,
        feeds_stores: bool = True,
        rhythm: WatchTiming = DEFAULT_RHYTHM,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``lease`` None: alone. ``feeds_stores``: nobody else runs ``stores``."""
        self.stores = stores
        self._feeds_stores = feeds_stores
        self._rhythm = rhythm
        self._leading = Leadership(api, lease, on_change)
        acting = self._leading.api
        self._recorder = Recorder(acting, COMPONENT, instance=identity(), clock=wall)
        actor = PodDisruptor(acting, stores, self._recorder)
        self.updater = Updater(acting, stores, actor, options, UpdaterMetrics(registry), wall=wall)

    @property
    def groups(self) -> Sequence[ApiGroup]:
        """None: the recommender's tells of the updater beside it."""
        return ()

    def works(self) -> Sequence[Work]:
        """Return the watches and the loop."""
        return (("updater", self.run),)

    async def run(self) -> None:
        """Watch, lead and update until cancelled or stopped."""
        beside = [self._recorder.run()]
        if self._feeds_stores:
            beside.append(self.stores.run(self._rhythm))
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

    def register(self, health: Health) -> None:
        """Tell of a loop that hangs."""
        health.add_liveness("updater-loop", self.updater.heartbeat)


@asynccontextmanager
async def _open(flags: Flags, shared: Shared) -> AsyncIterator[UpdaterPart]:
    namespace = await asyncio.to_thread(own_namespace, "kube-system")
    stores, feeds_stores = stores_of(flags, shared)
    yield UpdaterPart(
        shared.api,
        stores,
        flags_.options(flags, namespace),
        shared.metrics.registry,
        lease=common_flags.lease_of(flags),
        on_change=leader_label_of(shared.api, "updater"),
        feeds_stores=feeds_stores,
        wall=shared.wall,
    )


KIND = PartKind(
    name="updater",
    table=flags_.TABLE,
    problems=flags_.problems,
    targets=common_flags.targets,
    open=_open,
    namespaces=common_flags.namespaces,
    needs_annotations=True,
)
