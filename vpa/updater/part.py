"""The updater as a part of a process: watches, Lease, loop."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry

from podscale.kube.client.api import Api
from podscale.kube.events import Recorder
from podscale.kube.informer.list_watch import DEFAULT_RHYTHM, WatchTiming
from podscale.kube.leadership import leading as leadership
from podscale.kube.leadership.lease import Term
from podscale.process.leading_part import LeadingPart
from podscale.process.part import PartKind, Shared
from podscale.serving.flags import Flags
from podscale.serving.monitoring.health import Health
from vpa import flags as common_flags
from vpa.stores import VpaStores, stores_of
from vpa.updater import flags as flags_
from vpa.updater.cluster.pod_disruptor import PodDisruptor
from vpa.updater.flags import Options
from vpa.updater.loop.loop import Updater
from vpa.updater.selfmetrics import UpdaterMetrics

COMPONENT = "vpa-updater"  # upstream's, in events


class UpdaterPart(LeadingPart):
    """One updater; the recommender's decisions tell of it."""

    def __init__(
        self,
        api: Api,
        stores: VpaStores,
        options: Options,
        registry: CollectorRegistry,
        *,
        lease: leadership.LeaseChoice | None,
        on_change: Callable[[bool], Awaitable[None]] | None = None,
        feeds_stores: bool = True,
        rhythm: WatchTiming = DEFAULT_RHYTHM,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``lease`` None: alone. ``feeds_stores``: nobody else runs ``stores``."""
        self.stores = stores
        self._feeds_stores = feeds_stores
        self._rhythm = rhythm
        leading = leadership.Leadership(api, lease, on_change)
        acting = leading.api
        recorder = Recorder(acting, COMPONENT, instance=leadership.identity(), clock=wall)
        super().__init__("updater", leading, recorder)
        actor = PodDisruptor(acting, stores, recorder)
        self.updater = Updater(acting, stores, actor, options, UpdaterMetrics(registry), wall=wall)

    def watches(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the watches, unless the recommender beside it has them."""
        return (self.stores.run(self._rhythm),) if self._feeds_stores else ()

    async def lead(self, term: Term) -> None:
        await self.updater.run(term)

    def register(self, health: Health) -> None:
        """Tell of a loop that hangs."""
        health.add_liveness(self.updater.loop.name, self.updater.loop.heartbeat)


@asynccontextmanager
async def _open(flags: Flags, shared: Shared) -> AsyncIterator[UpdaterPart]:
    namespace = await asyncio.to_thread(leadership.own_namespace, "kube-system")
    stores, feeds_stores = stores_of(flags, shared)
    yield UpdaterPart(
        shared.api,
        stores,
        flags_.options(flags, namespace),
        shared.metrics.registry,
        lease=common_flags.lease_of(flags),
        on_change=leadership.leader_label_of(shared.api, "updater"),
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
