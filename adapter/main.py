"""The adapter as a process: from the command line's flags to a served port.

``podscale.cli.adapter`` calls ``run``; ``podscale.cli.serve`` and ``run`` build the same
from ``adapter.parts`` beside their other parts.
"""

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog
from msgspec import Struct

from adapter import flags as flags_
from adapter import precheck, registration, rights
from adapter.announcing import announcing
from adapter.clusters import reached
from adapter.errors import ConfigInvalid
from adapter.parts import Adapter, Ground
from adapter.registration import Behind
from adapter.selfmetrics import AdapterMetrics, ObservedClient
from podscale.core.metrics import MetricsProvider
from podscale.feed.feed import Feed
from podscale.kube.api import Api, user_agent
from podscale.kube.connect import is_in_pod
from podscale.kube.discovery import Discovery
from podscale.kube.errors import KubeError, NotConfigured
from podscale.kube.events import FLUSH_S, Recorder
from podscale.kube.leading import for_ever
from podscale.kube.lease import Elector
from podscale.kube.objects.pod import Pod
from podscale.kube.pods import PodStore
from podscale.kube.reflector import Reflector
from podscale.kube.resource import PODS
from podscale.kube.watching import Source
from podscale.serving import flag_table
from podscale.serving.flags import FlagError, Flags
from podscale.serving.health import Health
from podscale.serving.keeper import CertificateKeeper
from podscale.serving.logs import Verbosity
from podscale.serving.process import run as run_process
from podscale.serving.running import Clusters, Running, running
from podscale.serving.selfmetrics import SelfMetrics
from podscale.serving.service import service_of

log = structlog.get_logger(__name__)

_DISCOVERY_PATIENCE_S = 60.0
_SETTLE_LOOK_S = 0.5


class Served(Struct, frozen=True):
    """A running adapter and its server."""

    adapter: Adapter
    server: Running

    async def stop(self) -> None:
        """Finish what is in flight."""
        await self.server.drain()


async def run(flags: Flags, *, is_launcher: bool = False) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    2 is a rules file or a command line that must be changed first, 1 everything else.
    """
    wrong = [*flags_.problems(flags), *flag_table.problems(flags)]
    if not wrong:
        found = await asyncio.to_thread(precheck.problem, Path(flags.text("config")))
        wrong = [found] if found else []
    # Answers make many containers that die at once: collecting after every 700 of them
    # would cost more than it finds.
    gc.set_threshold(50_000, 50, 50)
    return await run_process(
        flags,
        wrong,
        lambda parsed, verbosity: _settling(parsed, verbosity, is_launcher),
        refusals=(ConfigInvalid, FlagError),
    )


@asynccontextmanager
async def _settling(flags: Flags, verbosity: Verbosity, is_launcher: bool) -> AsyncIterator[Served]:
    async with (
        serving(flags, verbosity, is_launcher=is_launcher) as served,
        asyncio.TaskGroup() as group,
    ):
        log.info("serving", port=served.server.port)
        settling = group.create_task(_settle(served.adapter))
        try:
            yield served
        finally:
            settling.cancel()


async def _settle(adapter: Adapter) -> None:
    """Take what has been loaded out of the collector's sight: it stays, and is walked for
    tens of milliseconds otherwise, again and again.
    """
    while not adapter.is_loaded:  # noqa: ASYNC110 - several facts, none of them an event
        await asyncio.sleep(_SETTLE_LOOK_S)
    gc.collect()
    gc.freeze()
    # Answers are trees and free themselves; looking for cycles among them costs more than they.
    gc.set_threshold(20_000, 20, 50)


@asynccontextmanager
async def serving(
    flags: Flags,
    verbosity: Verbosity,
    *,
    is_launcher: bool = False,
    port: int | None = None,
    others: Sequence[MetricsProvider] | None = None,
) -> AsyncIterator[Served]:
    """Run the adapter and its server while the block runs; ``port`` 0 means any free one.

    Raises ``ConfigInvalid`` or ``FlagError`` for what its user must change, ``KubeError``,
    ``TlsError``, ``TrustError`` or ``OSError`` when it cannot start.
    """
    server_metrics = SelfMetrics()
    metrics = AdapterMetrics(server_metrics.registry)
    health = Health()
    where = flags_.targets(flags, is_in_pod=await asyncio.to_thread(is_in_pod))
    async with reached(where, user_agent=user_agent("adapter")) as clusters:
        api = clusters.objects
        period_s = flags.seconds("discovery-interval") or 60.0
        discovery = Discovery(api, period_s=period_s)
        await _discover(discovery)
        pods = PodStore(keep_annotations=())
        prometheus = flags_.prometheus_options(flags)
        async with (
            ObservedClient(prometheus, metrics) as client,
            Feed(client, flags_.feed_options(flags)) as feed,
            AsyncExitStack() as stack,
        ):
            metrics.watch_feed(feed.stats)
            recorder = Recorder(api, "podscale-adapter")
            ground = Ground(api, discovery, pods, client, feed, metrics)
            # A launcher has upstream's rights, and those do not include events.
            told = None if is_launcher else announcing(recorder)
            adapter = Adapter(flags, ground, others=others, told=told)
            await adapter.prepare()
            adapter.register(health)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            source = Source(PODS, Pod)
            tasks = [
                group.create_task(discovery.run(), name="discovery"),
                group.create_task(Reflector(api, source, pods).run(), name="pods"),
                group.create_task(adapter.run(), name="adapter"),
                *(
                    group.create_task(rights.warn_of_missing(asked, needed), name="rights")
                    for asked, needed in clusters.needs(rights.NEEDED)
                ),
                group.create_task(recorder.run(), name="events"),
            ]
            keeper, elector = await _certificates(flags, api, is_launcher=is_launcher)
            if elector is not None:
                tasks.append(group.create_task(elector.run(for_ever), name="lease"))
            try:
                async with running(
                    flags,
                    clusters=Clusters(clusters.authentication, clusters.authorization),
                    groups=adapter.groups,
                    health=health,
                    metrics=server_metrics,
                    verbosity=verbosity,
                    keeper=keeper,
                    port=port,
                ) as server:
                    yield Served(adapter, server)
            finally:
                await recorder.flush(FLUSH_S)
                for task in tasks:
                    task.cancel()


async def _discover(discovery: Discovery) -> None:
    # The rules name resources, so nothing can start before the cluster has told its own;
    # an API server that is restarting is waited for, one that is gone ends the process.
    deadline = asyncio.get_running_loop().time() + _DISCOVERY_PATIENCE_S
    pause_s = 0.5
    while True:
        try:
            await discovery.refresh()
            return
        except NotConfigured:
            raise
        except KubeError as error:
            if asyncio.get_running_loop().time() + pause_s > deadline:
                raise
            log.warning("the cluster's resources cannot be read yet", error=str(error))
            await asyncio.sleep(pause_s * (0.5 + random.random()))
            pause_s = min(pause_s * 2, 10.0)


async def _certificates(
    flags: Flags, api: Api, *, is_launcher: bool
) -> tuple[CertificateKeeper | None, Elector | None]:
    service = service_of(flags.text("service"))
    if is_launcher or service is None:
        return None, None
    return await registration.certificate(
        api,
        [Behind(service, adopt=flags.switch("adopt"))],
        lease=service.name,
        ca_lifetime_s=flags.seconds("serving-ca-lifetime"),
    )
