"""What the three programs of the VPA share: a connection, watches, a Lease, a server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol

from msgspec import Struct
from prometheus_client import CollectorRegistry

from podscale.core.metrics import MetricsProvider
from podscale.kube.api import Api, user_agent
from podscale.kube.connect import connect
from podscale.kube.discovery import Discovery
from podscale.kube.leading import LeaseChoice
from podscale.kube.own_pod import identity
from podscale.kube.pods import PodStore
from podscale.serving.api import ApiGroup
from podscale.serving.bundles import publisher
from podscale.serving.flags import Flags
from podscale.serving.health import Health
from podscale.serving.keeper import CertificateKeeper
from podscale.serving.logs import Verbosity
from podscale.serving.running import Clusters, running
from podscale.serving.selfmetrics import SelfMetrics
from podscale.serving.service import keeper_behind, service_of
from vpa import flags as flags_
from vpa.monitoring import monitored
from vpa.stores import Stores

GROUP, VERSION = "vpa.podscale.io", "v1alpha1"


class Ground(Struct, frozen=True):
    """What a part and its provider of metrics stand on."""

    flags: Flags
    api: Api
    discovery: Discovery
    pods: PodStore
    metrics: SelfMetrics
    health: Health
    verbosity: Verbosity

    @property
    def registry(self) -> CollectorRegistry:
        """Where parts put their metrics."""
        return self.metrics.registry


OpenProvider = Callable[[Ground], AbstractAsyncContextManager[MetricsProvider]]


class Part(Protocol):
    """A running part."""

    async def run(self) -> None:
        """Work until cancelled or stopped."""
        ...

    async def stop(self) -> None:
        """Give the Lease back."""
        ...

    def is_healthy(self) -> bool:
        """What ``/health-check`` says."""
        ...


@asynccontextmanager
async def grounded(flags: Flags, name: str, verbosity: Verbosity) -> AsyncIterator[Ground]:
    """Connect and keep discovery current while the block runs."""
    scopes = tuple(flags_.namespaces(flags)) or ("",)
    async with connect(flags_.target(flags), user_agent=user_agent(name)) as api:
        discovery = Discovery(api)
        metrics = SelfMetrics()
        ground = Ground(flags, api, discovery, PodStore(scopes), metrics, Health(), verbosity)
        async with asyncio.TaskGroup() as group:
            discovering = group.create_task(discovery.run(), name="discovery")
            try:
                yield ground
            finally:
                discovering.cancel()


@asynccontextmanager
async def working(
    ground: Ground,
    part: Part,
    *,
    groups: Sequence[ApiGroup] = (),
    may_write: Callable[[], bool] = lambda: True,
) -> AsyncIterator[int]:
    """Run a part with its monitoring and, where a port is set, its API; yields the first's port."""
    flags = ground.flags
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        port = await stack.enter_async_context(
            monitored(flags.text("address"), ground.registry, part.is_healthy)
        )
        if groups and flags.number("secure-port"):
            await stack.enter_async_context(
                running(
                    flags,
                    clusters=Clusters(ground.api, ground.api),
                    groups=groups,
                    health=ground.health,
                    metrics=ground.metrics,
                    verbosity=ground.verbosity,
                    keeper=_keeper(flags, ground.api, may_write),
                )
            )
        working = group.create_task(part.run(), name="part")
        try:
            yield port
        finally:
            await part.stop()
            working.cancel()


def stores_of(
    ground: Ground, *, for_updates: bool = False, needs_nodes: bool = False, needs_pods: bool = True
) -> Stores:
    """Return the watches that the flags ask for; ``for_updates``: also what resizes and
    evictions look at.
    """
    return Stores(
        ground.api,
        ground.discovery,
        namespaces=flags_.namespaces(ground.flags),
        ignored=ground.flags.listing("ignored-vpa-object-namespaces"),
        pods=ground.pods,
        needs_pods=needs_pods,
        needs_nodes=needs_nodes or for_updates,
        needs_budgets=for_updates,
    )


def lease_of(flags: Flags) -> LeaseChoice | None:
    """Return the Lease to lead by; None without leader election."""
    if not flags.switch("leader-elect"):
        return None
    return LeaseChoice(
        flags.text("leader-elect-resource-namespace"),
        flags.text("leader-elect-resource-name"),
        identity(),
        flags_.lease_times(flags),
    )


def _keeper(flags: Flags, api: Api, may_write: Callable[[], bool]) -> CertificateKeeper | None:
    service = service_of(flags.text("service") if "service" in flags.values else "")
    if service is None:
        return None
    publish = publisher(api, {f"{VERSION}.{GROUP}": service})
    return keeper_behind(api, service, publish=publish, may_write=may_write)
