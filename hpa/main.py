"""The HPA as a process: from the command line's flags to a loop that leads, and an API.

``podscale.cli.hpa`` calls ``run`` and says where metrics come from: products do not know
each other. ``podscale.cli.together`` uses ``hpa.part`` beside other parts.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import structlog
from msgspec import Struct
from prometheus_client import CollectorRegistry

from hpa import flags as flags_
from hpa.decisions import GROUP, VERSION
from hpa.part import Part
from podscale.core.metrics import MetricsProvider
from podscale.kube.api import Api, user_agent
from podscale.kube.connect import connect
from podscale.kube.discovery import Discovery
from podscale.kube.own_pod import identity, own_namespace
from podscale.kube.pods import PodStore
from podscale.serving.bundles import publisher
from podscale.serving.flag_table import problems as server_problems
from podscale.serving.flags import FlagError, Flags
from podscale.serving.health import Health
from podscale.serving.keeper import CertificateKeeper
from podscale.serving.logs import Verbosity
from podscale.serving.process import run as run_process
from podscale.serving.running import Clusters, Running, running
from podscale.serving.selfmetrics import SelfMetrics
from podscale.serving.service import keeper_behind, service_of

log = structlog.get_logger(__name__)


class Ground(Struct, frozen=True):
    """What a provider of metrics may stand on: the pods and discovery are kept current."""

    flags: Flags
    api: Api
    discovery: Discovery
    pods: PodStore
    registry: CollectorRegistry
    health: Health


OpenProvider = Callable[[Ground], AbstractAsyncContextManager[MetricsProvider]]


class Served(Struct, frozen=True):
    """A running HPA part and its server."""

    part: Part
    server: Running

    async def stop(self) -> None:
        """Give the Lease back, then finish what is in flight."""
        await self.part.stop()
        await self.server.drain()


async def run(flags: Flags, open_provider: OpenProvider) -> int:
    """Reconcile until SIGTERM or SIGINT; return the exit code.

    2 is a command line (or a rules file) that must be changed first, 1 everything else.
    """
    # A round makes some hundred thousand short-lived containers: collecting after every 700
    # of them would cost more than all of them together.
    gc.set_threshold(100_000, 50, 50)
    return await run_process(
        flags,
        [*server_problems(flags), *flags_.problems(flags)],
        lambda parsed, verbosity: serving(parsed, verbosity, open_provider),
    )


@asynccontextmanager
async def serving(
    flags: Flags,
    verbosity: Verbosity,
    open_provider: OpenProvider,
    *,
    port: int | None = None,
) -> AsyncIterator[Served]:
    """Run the HPA and the server of its explanations while the block runs."""
    wrong = [*server_problems(flags), *flags_.problems(flags)]
    if wrong:
        raise FlagError("; ".join(wrong))
    namespace = await asyncio.to_thread(own_namespace, "podscale")
    chosen = flags_.choice(flags, own_namespace=namespace)
    server_metrics = SelfMetrics()
    health = Health()
    async with connect(flags_.target(flags), user_agent=user_agent("hpa")) as api:
        discovery = Discovery(api)
        pods = PodStore(chosen.namespaces or ("",), keep_annotations=())
        ground = Ground(flags, api, discovery, pods, server_metrics.registry, health)
        async with asyncio.TaskGroup() as group:
            discovering = group.create_task(discovery.run(), name="discovery")
            async with open_provider(ground) as provider:
                part = Part(api, chosen, discovery, provider, pods, identity=identity())
                server_metrics.registry.register(part.metrics)
                part.register(health)
                working = group.create_task(part.run(), name="hpa")
                try:
                    async with running(
                        flags,
                        clusters=Clusters(api, api),
                        groups=(part.group,),
                        health=health,
                        metrics=server_metrics,
                        verbosity=verbosity,
                        keeper=_keeper(flags, api, part),
                        port=port,
                    ) as server:
                        log.info("serving", port=server.port)
                        yield Served(part, server)
                finally:
                    discovering.cancel()
                    await part.stop()
                    working.cancel()


def _keeper(flags: Flags, api: Api, part: Part) -> CertificateKeeper | None:
    service = service_of(flags.text("service"))
    if service is None:
        return None
    publish = publisher(api, {f"{VERSION}.{GROUP}": service})
    return keeper_behind(api, service, publish=publish, may_write=part.is_leader)
