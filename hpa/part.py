"""The HPA as a part of a process: stores, Lease, controller, explanations.

``podscale.process.compose`` puts it beside the other parts, or runs it alone.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from hpa import flags as flags_
from hpa.cluster.stores import HpaStores
from hpa.decisions.api import DecisionsApi
from hpa.decisions.decisions import KIND as DECISIONS
from hpa.explain import first_reason
from hpa.flags import HpaChoice
from hpa.history.clock import SteadyClock
from hpa.history.configmaps import HistoryConfigMaps
from hpa.history.decision_log import DecisionLog
from hpa.loop.controller import Controller
from hpa.loop.state import ControllerPorts
from hpa.selfmetrics import HpaMetrics
from podscale.core.metrics import MetricsProvider
from podscale.kube.client.api import Api
from podscale.kube.discovery.refreshed import ApiDiscovery
from podscale.kube.events.recorder import FLUSH_S, Recorder
from podscale.kube.informer.list_watch import DEFAULT_RHYTHM, WatchTiming
from podscale.kube.leadership.leading import Leadership, LeaseChoice
from podscale.kube.leadership.lease import Term
from podscale.kube.leadership.own_pod import leader_label_of, own_namespace
from podscale.process.clusters import Targets
from podscale.process.part import PartKind, Shared, Work
from podscale.serving.apis.api import ApiGroup
from podscale.serving.flags import Flags
from podscale.serving.monitoring.health import Health, HealthVerdict

COMPONENT = "horizontal-pod-autoscaler"  # upstream's, in events


class HpaPart:
    """One HPA part. ``run`` it, ``stop`` it before the connection closes."""

    def __init__(
        self,
        api: Api,
        chosen: HpaChoice,
        discovery: ApiDiscovery,
        provider: MetricsProvider,
        stores: HpaStores,
        *,
        rhythm: WatchTiming = DEFAULT_RHYTHM,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``wall`` is the time decisions are made at (the demo's may run faster)."""
        self._api = api
        self._chosen = chosen
        self._rhythm = rhythm
        self.stores = stores
        self.metrics = HpaMetrics()
        lease = chosen.lease
        self._leading = Leadership(
            api, lease if chosen.is_leader_elected else None, leader_label_of(api, "hpa")
        )
        fenced = self._leading.api
        self._recorder = Recorder(fenced, COMPONENT, instance=lease.identity, clock=wall)
        self.controller = Controller(
            ControllerPorts(
                api=fenced,
                stores=self.stores,
                kinds=discovery,
                provider=provider,
                mapper=lambda: discovery.mapper,
                recorder=self._recorder,
                metrics=self.metrics,
                traces=DecisionLog(first_reason),
                shards=HistoryConfigMaps(fenced, lease.namespace, _history_of(lease)),
            ),
            chosen.settings,
            chosen.options,
            SteadyClock(wall, time.monotonic if wall is time.time else None),
        )
        self.group = DecisionsApi(self.controller, self.is_leader, wall=wall)

    @property
    def groups(self) -> Sequence[ApiGroup]:
        """The decisions, explained."""
        return (self.group,)

    def works(self) -> Sequence[Work]:
        """Return the watches and the loop."""
        return (("hpa", self.run),)

    async def run(self) -> None:
        """Watch, lead and reconcile until cancelled or stopped."""
        watching = self.stores.run(
            self._api,
            self._chosen.options.resource,
            selector=self._chosen.selector,
            rhythm=self._rhythm,
        )
        await self._leading.run(self._work, [watching, self._recorder.run()])

    async def stop(self) -> None:
        """Give the Lease back; what is being written is finished or left undone, never half."""
        await self._leading.stop()

    def is_leader(self) -> bool:
        """Whether this process decides now."""
        return self._leading.is_leader

    def register(self, health: Health) -> None:
        """Make readiness wait for the first lists, tell of histories that are not read, and of a
        loop that hangs."""
        health.add_readiness("autoscalers-synced", self._synced)
        health.add_readiness("histories-read", self._read)
        health.add_liveness("hpa-loop", self.controller.heartbeat)
        health.add_liveness("hpa-passes", self.controller.rounds)

    async def _work(self, term: Term) -> None:
        try:
            await self.controller.run(term)
        finally:
            await self._recorder.flush(FLUSH_S)  # still ours to tell

    def _synced(self) -> HealthVerdict:
        if self.stores.is_synced:
            return HealthVerdict()
        return HealthVerdict(False, "autoscalers and pods are not listed yet")

    def _read(self) -> HealthVerdict:
        unread_s = self.metrics.read.unread_s()
        if not unread_s:
            return HealthVerdict()
        # Ready all the same: who is not would take explanations, and the metrics of a process
        # with several parts, out of reach as well.
        return HealthVerdict(note=f"stored histories could not be read for {unread_s:.0f} s")


def _history_of(lease: LeaseChoice) -> str:
    # Two instances with Leases of their own must not share their histories.
    return lease.name.removeprefix("podscale-") or "hpa"


@asynccontextmanager
async def _open(flags: Flags, shared: Shared) -> AsyncIterator[HpaPart]:
    chosen = flags_.choice(flags, own_namespace=await asyncio.to_thread(own_namespace, "podscale"))
    part = HpaPart(
        shared.api,
        chosen,
        shared.discovery,
        shared.source(is_feed=chosen.is_feed),
        HpaStores(chosen.namespaces, shared.pods),
        wall=shared.wall,
    )
    shared.metrics.registry.register(part.metrics)
    yield part


KIND = PartKind(
    name="hpa",
    table=flags_.TABLE,
    problems=flags_.problems,
    targets=lambda flags: Targets.one(flags_.target(flags)),
    open=_open,
    namespaces=lambda flags: flags.listing("namespaces"),
    reads_prometheus=lambda flags: flags.text("metrics-source") == "feed",
    api_services=(f"{DECISIONS.version}.{DECISIONS.group}",),
)
