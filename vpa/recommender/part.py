"""The recommender as a part of a process: watches, Lease, loop, explanations."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

from prometheus_client import CollectorRegistry

from podscale.core.metrics import MetricsProvider
from podscale.kube.client.api import Api
from podscale.kube.client.resource import EVENTS
from podscale.kube.informer.list_watch import DEFAULT_RHYTHM, WatchSource, WatchTiming
from podscale.kube.informer.reflector import Reflector
from podscale.kube.informer.store import Store
from podscale.kube.leadership.leading import Leadership, LeaseChoice, leader_label_of
from podscale.kube.leadership.lease import Term
from podscale.process.leading_part import LeadingPart
from podscale.process.part import PartKind, Shared
from podscale.serving.apis.api import ApiGroup
from podscale.serving.flags import Flags
from podscale.serving.monitoring.health import Health, HealthVerdict
from vpa import flags as common_flags
from vpa.decisions import decisions as sizing
from vpa.decisions.api import SizingApi
from vpa.recommender import flags as flags_
from vpa.recommender.coordination import WatchedHpas
from vpa.recommender.flags import Options
from vpa.recommender.history.initial_state import FindPast
from vpa.recommender.history.usage_history import UsageHistory
from vpa.recommender.loop import Recommender
from vpa.recommender.pod_feed import StoredEvent
from vpa.recommender.selfmetrics import RecommenderMetrics
from vpa.stores import VpaStores, stores_of
from vpa.updater.loop.loop import Updater
from vpa.updater.part import UpdaterPart

# Says where the history of usage is, from the source of live usage and the namespaces.
PastOf = Callable[[MetricsProvider, Sequence[str]], UsageHistory]


class RecommenderPart(LeadingPart):
    def __init__(
        self,
        api: Api,
        stores: VpaStores,
        provider: MetricsProvider,
        options: Options,
        registry: CollectorRegistry,
        *,
        lease: LeaseChoice | None,
        on_change: Callable[[bool], Awaitable[None]] | None = None,
        find_past: FindPast | None = None,
        outage: Callable[[], str] = str,
        feeds_stores: bool = True,
        rhythm: WatchTiming = DEFAULT_RHYTHM,
        wall: Callable[[], float] = time.time,
        updater: Callable[[], Updater | None] = lambda: None,
        hpas: WatchedHpas | None = None,
    ) -> None:
        """``lease`` None: alone. ``feeds_stores``: nobody else runs ``stores``. ``updater``
        returns the one of this process, whose decisions are explained beside ours. ``hpas`` None:
        none is looked at, and no VPA gets an anchor."""
        self.stores, self._feeds_stores = stores, feeds_stores
        self._api, self._hpas, self._updater = api, hpas, updater
        self._wall, self._rhythm = wall, rhythm
        self._evictions: Store[StoredEvent] = Store(stores.scopes, keep=StoredEvent.kept)
        leading = Leadership(api, lease, on_change)
        super().__init__("recommender", leading)
        self.recommender = Recommender(
            leading.api,
            stores,
            self._evictions,
            provider,
            options,
            RecommenderMetrics(registry),
            find_past=find_past,
            outage=outage,
            hpas=hpas,
            wall=wall,
        )

    @property
    def groups(self) -> Sequence[ApiGroup]:
        return (self.decisions,)

    @cached_property
    def decisions(self) -> SizingApi:
        """The decisions, explained: one that follows recommender and updater, whoever looks."""
        return SizingApi(self.recommender, self.is_leader, updater=self._updater(), wall=self._wall)

    def watches(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the watches, those that the updater has as well only where it has not."""
        source = WatchSource(
            EVENTS, StoredEvent, field_selector="reason=Evicted", rhythm=self._rhythm
        )
        found: list[Coroutine[Any, Any, None]] = [
            Reflector(self._api, source, self._evictions).run()
        ]
        if self._hpas is not None:
            found += self._hpas.watches(self._api, self._rhythm)
        if self._feeds_stores:
            found.append(self.stores.run(self._rhythm))
        return found

    async def lead(self, term: Term) -> None:
        await self.recommender.run(term)

    def register(self, health: Health) -> None:
        """Make readiness wait for the first lists, and tell of a loop that hangs."""
        health.add_liveness(self.recommender.loop.name, self.recommender.loop.heartbeat)
        text = "VPAs and pods are not listed yet"
        health.add_readiness(
            "vpas-synced",
            lambda: HealthVerdict() if self.stores.is_synced else HealthVerdict(False, text),
        )


def kind(past_of: Callable[[Flags], PastOf | None] = lambda _flags: None) -> PartKind:
    """Return the part; ``past_of`` says where history is, None: where upstream's flags say."""

    @asynccontextmanager
    async def open_part(flags: Flags, shared: Shared) -> AsyncIterator[RecommenderPart]:
        provider = shared.source(is_feed=flags_.uses_feed(flags))
        stores, feeds_stores = stores_of(flags, shared)

        def updater() -> Updater | None:
            part = shared.parts.get("updater")
            return part.updater if isinstance(part, UpdaterPart) else None

        yield RecommenderPart(
            shared.api,
            stores,
            provider,
            flags_.options(flags),
            shared.metrics.registry,
            lease=common_flags.lease_of(flags),
            on_change=leader_label_of(shared.api, "recommender"),
            find_past=find_past(flags, provider, stores, past_of(flags)),
            outage=shared.outage,
            feeds_stores=feeds_stores,
            wall=shared.wall,
            updater=updater,
            # An upstream recommender has no right to see them.
            hpas=None if shared.is_launcher else WatchedHpas(stores.scopes),
        )

    return PartKind(
        name="recommender",
        table=flags_.TABLE,
        problems=flags_.problems,
        targets=common_flags.targets,
        open=open_part,
        namespaces=common_flags.namespaces,
        reads_prometheus=flags_.uses_feed,
        api_services=(f"{sizing.KIND.version}.{sizing.KIND.group}",),
    )


def find_past(
    flags: Flags, provider: MetricsProvider, stores: VpaStores, past_of: PastOf | None
) -> FindPast | None:
    """Return what reads history at the start; None: checkpoints are the start."""
    if flags.text("storage") != "prometheus":
        return None
    if past_of is None:
        return lambda: flags_.history_of(flags)
    return lambda: past_of(provider, _namespaces(stores))


def _namespaces(stores: VpaStores) -> list[str]:
    # Of all pods, not only where a VPA is: one that comes later finds its history.
    return sorted({view.namespace for view in stores.pods.select_all().views()})
