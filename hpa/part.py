"""The HPA as a part of a process: stores, Lease, controller, explanations.

``podscale.process.compose`` puts it beside the other parts, or runs it alone.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from hpa import flags as flags_
from hpa.cluster.stores import HpaStores
from hpa.decisions import KIND as DECISIONS
from hpa.decisions import DecisionsApi
from hpa.flags import HpaChoice
from hpa.history.clock import SteadyClock
from hpa.history.configmaps import HistoryConfigMaps
from hpa.history.decision_log import DecisionLog
from hpa.loop.controller import Controller
from hpa.loop.forecasts import ForecastGate
from hpa.loop.state import ControllerPorts
from hpa.selfmetrics import HpaMetrics
from podscale.core.metrics import MetricsProvider
from podscale.kube.client.api import Api
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.events import Recorder
from podscale.kube.informer.list_watch import DEFAULT_RHYTHM, WatchTiming
from podscale.kube.leadership.leading import Leadership, LeaseChoice, leader_label_of, own_namespace
from podscale.kube.leadership.lease import Term
from podscale.process.clusters import Targets
from podscale.process.leading_part import LeadingPart
from podscale.process.part import PartKind, Shared
from podscale.serving.apis.api import ApiGroup
from podscale.serving.flags import Flags
from podscale.serving.monitoring.health import Health, HealthVerdict

COMPONENT = "horizontal-pod-autoscaler"  # upstream's, in events

# Says what judges forecasts, from the source of metrics and what kinds there are.
GateOf = Callable[[MetricsProvider, ApiDiscovery], ForecastGate | None]


class HpaPart(LeadingPart):
    def __init__(
        self,
        api: Api,
        chosen: HpaChoice,
        discovery: ApiDiscovery,
        provider: MetricsProvider,
        stores: HpaStores,
        *,
        gate: ForecastGate | None = None,
        rhythm: WatchTiming = DEFAULT_RHYTHM,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``gate`` judges forecasts; None: there are none. ``wall`` is the time decisions are made
        at (the demo's may run faster)."""
        self._api = api
        self._chosen = chosen
        self._rhythm = rhythm
        self.stores = stores
        self.metrics = HpaMetrics()
        lease = chosen.lease
        leading = Leadership(
            api, lease if chosen.is_leader_elected else None, leader_label_of(api, "hpa")
        )
        fenced = leading.api
        recorder = Recorder(fenced, COMPONENT, instance=lease.identity, clock=wall)
        super().__init__("hpa", leading, recorder)
        self.controller = Controller(
            ControllerPorts(
                api=fenced,
                stores=self.stores,
                kinds=discovery,
                provider=provider,
                mapper=lambda: discovery.mapper,
                recorder=recorder,
                metrics=self.metrics,
                traces=DecisionLog(),
                config_maps=HistoryConfigMaps(fenced, lease.namespace, _history_of(lease)),
                gate=gate,
            ),
            chosen.settings,
            chosen.options,
            SteadyClock(wall, time.monotonic if wall is time.time else None),
        )
        self.group = DecisionsApi(self.controller, self.is_leader, wall=wall)

    @property
    def groups(self) -> Sequence[ApiGroup]:
        return (self.group,)

    def watches(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the watches of everything but pods."""
        chosen = self._chosen
        resource, selector = chosen.options.resource, chosen.selector
        return (self.stores.run(self._api, resource, selector=selector, rhythm=self._rhythm),)

    async def lead(self, term: Term) -> None:
        await self.controller.run(term)

    def register(self, health: Health) -> None:
        """Make readiness wait for the first lists, tell of histories that are not read, and of a
        loop that hangs."""
        health.add_readiness("autoscalers-synced", self._synced)
        health.add_readiness("histories-read", self._read)
        health.add_liveness("hpa-loop", self.controller.heartbeat)
        health.add_liveness("hpa-passes", self.controller.rounds)

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


def kind(gate_of: Callable[[Flags], GateOf | None] = lambda _flags: None) -> PartKind:
    """Return the part; ``gate_of`` says what judges forecasts where metrics come from the feed."""

    @asynccontextmanager
    async def open_part(flags: Flags, shared: Shared) -> AsyncIterator[HpaPart]:
        namespace = await asyncio.to_thread(own_namespace, "podscale")
        chosen = flags_.choice(flags, own_namespace=namespace)
        provider = shared.source(is_feed=chosen.is_feed)
        gate = gate_of(flags) if chosen.is_feed else None
        part = HpaPart(
            shared.api,
            chosen,
            shared.discovery,
            provider,
            HpaStores(chosen.namespaces, shared.pods),
            gate=None if gate is None else gate(provider, shared.discovery),
            wall=shared.wall,
        )
        shared.metrics.registry.register(part.metrics)
        yield part

    return PartKind(
        name="hpa",
        table=flags_.TABLE,
        problems=flags_.problems,
        targets=lambda flags: Targets.one(flags_.target(flags)),
        open=open_part,
        namespaces=lambda flags: flags.listing("namespaces"),
        reads_prometheus=lambda flags: flags.text("metrics-source") == "feed",
        api_services=(f"{DECISIONS.version}.{DECISIONS.group}",),
    )
