"""The recommender put together: watches, Lease, loop, on one connection."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct
from prometheus_client import CollectorRegistry

from podscale.core.metrics import MetricsProvider
from podscale.kube.api import Api
from podscale.kube.fenced import Fenced
from podscale.kube.lease import Elector, LeaseTimes, Term
from podscale.kube.reflector import Reflector
from podscale.kube.resource import EVENTS
from podscale.kube.store import Store
from podscale.kube.watching import DEFAULT_RHYTHM, Rhythm, Source
from podscale.serving.health import Health, Verdict
from vpa.recommender.flags import Options
from vpa.recommender.loop import Recommender
from vpa.recommender.selfmetrics import RecommenderMetrics
from vpa.stored import StoredEvent
from vpa.stores import Stores

_STOP_S = 5.0


class LeaseChoice(Struct, frozen=True):
    """Which Lease a part leads by."""

    namespace: str
    name: str
    identity: str
    times: LeaseTimes = LeaseTimes()


class RecommenderPart:
    """One recommender. ``run`` it, ``stop`` it before the connection closes."""

    def __init__(
        self,
        api: Api,
        stores: Stores,
        provider: MetricsProvider,
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
        self._api = api
        self._stores = stores
        self._feeds_stores = feeds_stores
        self._rhythm = rhythm
        self._evictions: Store[StoredEvent] = Store(stores.scopes)
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
        self.recommender = Recommender(
            acting,
            stores,
            self._evictions,
            provider,
            options,
            RecommenderMetrics(registry),
            wall=wall,
        )
        self._leading: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Watch, lead and recommend until cancelled or stopped."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._watch_evictions(), name="evictions")]
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
        """Whether this process recommends now."""
        return self.elector is None or self.elector.may_write()

    def is_healthy(self) -> bool:
        """Whether passes go on."""
        return self.recommender.is_healthy()

    def register(self, health: Health) -> None:
        """Make readiness wait for the first lists."""
        text = "VPAs and pods are not listed yet"
        health.add_readiness(
            "vpas-synced",
            lambda: Verdict() if self._stores.is_synced else Verdict(False, text),
        )

    async def _lead(self) -> None:
        if self.elector is None:
            await self.recommender.run(Term(0, "", None))
        else:
            await self.elector.run(self.recommender.run)

    async def _watch_evictions(self) -> None:
        sources = [
            Source(
                EVENTS,
                StoredEvent,
                namespace=scope,
                field_selector="reason=Evicted",
                rhythm=self._rhythm,
            )
            for scope in self._stores.scopes
        ]
        await Reflector(self._api, sources, self._evictions).run()
