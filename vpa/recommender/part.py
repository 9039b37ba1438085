"""The recommender put together: watches, Lease, loop, on one connection."""

import time
from collections.abc import Awaitable, Callable

from prometheus_client import CollectorRegistry

from podscale.core.metrics import MetricsProvider
from podscale.kube.api import Api
from podscale.kube.leading import Leading, LeaseChoice
from podscale.kube.lease import Elector
from podscale.kube.reflector import Reflector
from podscale.kube.resource import EVENTS
from podscale.kube.store import Store
from podscale.kube.watching import DEFAULT_RHYTHM, Rhythm, Source
from podscale.serving.health import Health, Verdict
from vpa.recommender.flags import Options
from vpa.recommender.loop import Recommender
from vpa.recommender.selfmetrics import RecommenderMetrics
from vpa.recommender.starting import FindPast
from vpa.stored import StoredEvent
from vpa.stores import Stores


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
        find_past: FindPast | None = None,
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
        self._leading = Leading(api, lease, on_change)
        self.recommender = Recommender(
            self._leading.api,
            stores,
            self._evictions,
            provider,
            options,
            RecommenderMetrics(registry),
            find_past=find_past,
            wall=wall,
        )

    async def run(self) -> None:
        """Watch, lead and recommend until cancelled or stopped."""
        beside = [self._watch_evictions()]
        if self._feeds_stores:
            beside.append(self._stores.run(self._rhythm))
        await self._leading.run(self.recommender.run, beside)

    async def stop(self) -> None:
        """Give the Lease back."""
        await self._leading.stop()

    @property
    def elector(self) -> Elector | None:
        """The Lease; None: alone."""
        return self._leading.elector

    def is_leader(self) -> bool:
        """Whether this process recommends now."""
        return self._leading.is_leader

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
