"""The HPA put together: stores, Lease, controller, explanations, on one connection.

Other parts of the process may share the connection, the discovery and the pods.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from hpa.controller import Controller
from hpa.decisions_api import DecisionsApi
from hpa.explain import first_reason
from hpa.flags import Choice
from hpa.selfmetrics import HpaMetrics
from hpa.shards import Shards
from hpa.stores import Stores
from hpa.traces import Traces
from podscale.core.metrics import MetricsProvider
from podscale.kube.api import Api
from podscale.kube.credentials import SERVICE_ACCOUNT
from podscale.kube.discovery import Discovery
from podscale.kube.events import Recorder
from podscale.kube.fenced import Fenced, leader_label
from podscale.kube.lease import Elector
from podscale.kube.pods import PodStore
from podscale.kube.watching import DEFAULT_RHYTHM, Rhythm
from podscale.serving.health import Health, Verdict

_log = structlog.get_logger()

COMPONENT = "horizontal-pod-autoscaler"  # upstream's, in events
_STOP_S = 5.0


class Part:
    """One HPA part. ``run`` it, ``stop`` it before the connection closes."""

    def __init__(
        self,
        api: Api,
        chosen: Choice,
        discovery: Discovery,
        provider: MetricsProvider,
        pods: PodStore,
        *,
        identity: str,
        feeds_pods: bool = True,
        rhythm: Rhythm = DEFAULT_RHYTHM,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``feeds_pods``: the pod store is ours to feed, nobody else does it. ``wall`` is the
        time decisions are made at (the demo's may run faster).
        """
        self._api = api
        self._chosen = chosen
        self._rhythm = rhythm
        self.stores = Stores(chosen.namespaces, pods, feeds_pods=feeds_pods)
        self.metrics = HpaMetrics()
        self.elector = Elector(
            api,
            namespace=chosen.lease_namespace,
            name=chosen.lease,
            identity=identity,
            times=chosen.times,
            on_change=_label(api),
        )
        self._is_leader_elected = chosen.is_leader_elected
        fenced: Api = Fenced(api, self.elector) if chosen.is_leader_elected else api
        self._recorder = Recorder(fenced, COMPONENT, instance=identity, clock=wall)
        self.controller = Controller(
            fenced,
            self.stores,
            discovery,
            provider,
            chosen.settings,
            chosen.options,
            mapper=lambda: discovery.mapper,
            recorder=self._recorder,
            metrics=self.metrics,
            traces=Traces(first_reason),
            shards=Shards(fenced, chosen.lease_namespace, _part_of(chosen)),
            wall=wall,
            steady=time.monotonic if wall is time.time else None,
        )
        self.group = DecisionsApi(self.controller, self.is_leader, wall=wall)
        self._leading: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Watch, lead and reconcile until cancelled or stopped."""
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(
                self.stores.run(
                    self._api,
                    self._chosen.options.resource,
                    selector=self._chosen.selector,
                    rhythm=self._rhythm,
                ),
                name="watches",
            )
            saying = group.create_task(self._recorder.run(), name="events")
            self._leading = group.create_task(self._lead(), name="lead")
            await asyncio.wait({self._leading})
            watching.cancel()
            saying.cancel()

    async def stop(self) -> None:
        """Give the Lease back; what is being written is finished or left undone, never half."""
        leading = self._leading
        if leading is None or leading.done():
            return
        leading.cancel()
        await asyncio.wait({leading}, timeout=_STOP_S)

    def is_leader(self) -> bool:
        """Whether this process decides now."""
        return self.elector.may_write() if self._is_leader_elected else True

    def register(self, health: Health) -> None:
        """Make readiness wait for the first lists."""
        health.add_readiness("autoscalers-synced", self._synced)

    async def _lead(self) -> None:
        if self._is_leader_elected:
            await self.elector.run(self.controller.run)
        else:
            await self.controller.run_alone()

    def _synced(self) -> Verdict:
        if self.stores.is_synced:
            return Verdict()
        return Verdict(False, "autoscalers and pods are not listed yet")


def own_namespace() -> str:
    """Return the namespace of our pod; outside of one ``podscale``."""
    given = os.environ.get("POD_NAMESPACE", "")
    if given:
        return given
    file: Path = SERVICE_ACCOUNT / "namespace"
    return file.read_text().strip() if file.is_file() else "podscale"


def identity() -> str:
    """Return who holds the Lease: the pod, or this process."""
    return os.environ.get("POD_NAME") or f"{os.uname().nodename}-{os.getpid()}"


def _label(api: Api) -> Callable[[bool], Awaitable[None]] | None:
    pod, namespace = os.environ.get("POD_NAME", ""), os.environ.get("POD_NAMESPACE", "")
    if not pod or not namespace:
        return None
    return leader_label(api, namespace=namespace, pod=pod, part="hpa")


def _part_of(chosen: Choice) -> str:
    # Two instances with Leases of their own must not share their histories.
    return chosen.lease.removeprefix("podscale-") or "hpa"
