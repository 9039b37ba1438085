"""The HPA as a process: from the command line's flags to a loop that leads, and an API.

``podscale.cli.hpa`` calls ``run`` and says where metrics come from: products do not know
each other. ``podscale.cli.together`` uses ``hpa.part`` beside other parts.
"""

import asyncio
import gc
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import structlog
from msgspec import Struct
from prometheus_client import CollectorRegistry

from hpa import flags as flags_
from hpa.decisions import GROUP, VERSION
from hpa.part import Part, identity, own_namespace
from podscale.core.metrics import MetricsProvider
from podscale.kube.api import Api, user_agent
from podscale.kube.connect import connect
from podscale.kube.discovery import Discovery
from podscale.kube.errors import KubeError
from podscale.kube.pods import PodStore
from podscale.serving import logs
from podscale.serving.certificates import service_names
from podscale.serving.flag_table import problems as server_problems
from podscale.serving.flags import FlagError, Flags
from podscale.serving.health import Health
from podscale.serving.keeper import CertificateKeeper, publisher
from podscale.serving.logs import Verbosity
from podscale.serving.running import Clusters, Running, running
from podscale.serving.selfmetrics import SelfMetrics
from podscale.serving.tls import TlsError
from podscale.serving.trust import TrustError

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


async def run(flags: Flags, open_provider: OpenProvider) -> int:
    """Reconcile until SIGTERM or SIGINT; return the exit code.

    2 is a command line (or a rules file) that must be changed first, 1 everything else.
    """
    verbosity = Verbosity(flags.number("v"))
    logs.configure("json" if flags.text("log-format") == "json" else "console", verbosity)
    for warning in flags.warnings:
        log.warning(warning)
    # A round makes some hundred thousand short-lived containers: collecting after every 700
    # of them would cost more than all of them together.
    gc.set_threshold(100_000, 50, 50)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with serving(flags, verbosity, open_provider) as served:
            log.info("serving", port=served.server.port)
            await stop.wait()
            # The Lease first: another replica can act while we still answer.
            await served.part.stop()
            await served.server.drain()
    except* FlagError as refused:
        text = f"podscale hpa: {_first(refused)} (--help lists all flags)"
        print(text, file=sys.stderr)  # noqa: T201 - a wrong call is no event to be logged
        return_code = 2
    except* (KubeError, TlsError, TrustError, OSError, ValueError) as failed:
        log.error("cannot start", error=str(_first(failed)))
        return_code = 1
    else:
        return_code = 0
    return return_code


def _first(errors: BaseExceptionGroup[Exception]) -> Exception:
    first: Exception | BaseExceptionGroup[Exception] = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


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
    namespace = await asyncio.to_thread(own_namespace)
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
                        yield Served(part, server)
                finally:
                    discovering.cancel()
                    await part.stop()
                    working.cancel()


def _keeper(flags: Flags, api: Api, part: Part) -> CertificateKeeper | None:
    text = flags.text("service")
    if not text:
        return None
    namespace, slash, name = text.partition("/")
    if not namespace or not slash or not name or "/" in name:
        raise FlagError(f"--service is NAMESPACE/NAME, and {text!r} is not")
    return CertificateKeeper(
        api,
        namespace=namespace,
        secret=f"{name}-ca",
        names=service_names(name, namespace),
        publish=publisher(api, [f"{VERSION}.{GROUP}"]),
        may_write=part.elector.may_write,
    )
