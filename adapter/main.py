"""The adapter as a process: from the command line's flags to a served port.

``podscale.cli.adapter`` calls ``run``; ``podscale.cli.serve`` and ``run`` build the same
from ``adapter.parts`` beside their other parts.
"""

import asyncio
import gc
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog
from msgspec import Struct

from adapter import flags as flags_
from adapter import precheck, registration
from adapter.errors import ConfigInvalid
from adapter.parts import Adapter, Ground
from adapter.registration import ServiceName
from adapter.selfmetrics import AdapterMetrics, ObservedClient
from podscale.core.metrics import MetricsProvider
from podscale.feed.feed import Feed
from podscale.kube.api import Api, user_agent
from podscale.kube.connect import connect
from podscale.kube.discovery import Discovery
from podscale.kube.errors import KubeError, NotConfigured
from podscale.kube.events import Recorder
from podscale.kube.lease import Elector
from podscale.kube.objects.cluster import ObjectReference
from podscale.kube.objects.pod import Pod
from podscale.kube.pods import PodStore
from podscale.kube.reflector import Reflector
from podscale.kube.resource import PODS
from podscale.kube.watching import Source
from podscale.serving import flag_table, logs
from podscale.serving.authority import times_for
from podscale.serving.certificates import service_names
from podscale.serving.flags import FlagError, Flags
from podscale.serving.health import Health
from podscale.serving.keeper import CertificateKeeper, publisher
from podscale.serving.logs import Verbosity
from podscale.serving.running import Clusters, Running, running
from podscale.serving.selfmetrics import SelfMetrics
from podscale.serving.tls import TlsError
from podscale.serving.trust import TrustError

log = structlog.get_logger(__name__)

_DISCOVERY_PATIENCE_S = 60.0
_SETTLE_LOOK_S = 0.5


class Served(Struct, frozen=True):
    """A running adapter and its server."""

    adapter: Adapter
    server: Running


async def run(flags: Flags, *, is_launcher: bool = False) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    2 is a rules file or a command line that must be changed first, 1 everything else.
    """
    wrong = [*flags_.problems(flags), *flag_table.problems(flags)]
    if wrong:
        print("\n".join(wrong), file=sys.stderr)  # noqa: T201
        return 2
    if wrong_rules := await asyncio.to_thread(precheck.problem, Path(flags.text("config"))):
        print(wrong_rules, file=sys.stderr)  # noqa: T201 - lines that an editor can jump to
        return 2
    verbosity = Verbosity(flags.number("v"))
    logs.configure("json" if flags.text("log-format") == "json" else "console", verbosity)
    for warning in flags.warnings:
        log.warning(warning)
    return_code = 0
    # Answers make many containers that die at once: collecting after every 700 of them
    # would cost more than it finds.
    gc.set_threshold(50_000, 50, 50)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    this = asyncio.current_task()
    is_serving = False

    def end() -> None:
        stop.set()
        # While starting, nobody waits for the event: the cluster may be out of reach.
        if not is_serving and this is not None:
            this.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    try:
        async with serving(flags, verbosity, is_launcher=is_launcher) as served:
            is_serving = True
            log.info("serving", port=served.server.port)
            async with asyncio.TaskGroup() as group:
                settling = group.create_task(_settle(served.adapter))
                await stop.wait()
                settling.cancel()
            await served.server.drain()
    except* asyncio.CancelledError:
        if not stop.is_set():
            raise
        log.info("ended before it served")
    except* (ConfigInvalid, FlagError) as refused:
        print(_first(refused), file=sys.stderr)  # noqa: T201 - lines that an editor can jump to
        return_code = 2
    except* (KubeError, TlsError, TrustError, OSError, ValueError) as failed:
        log.error("cannot start", error=str(_first(failed)))
        return_code = 1
    return return_code


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


def _first(errors: BaseExceptionGroup[Exception]) -> Exception:
    # Task groups wrap what their body raises; people want the sentence inside.
    first: Exception | BaseExceptionGroup[Exception] = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


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
    async with connect(flags_.target(flags), user_agent=user_agent("adapter")) as api:
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
            adapter = Adapter(flags, ground, others=others, told=_told(recorder, is_launcher))
            await adapter.prepare()
            adapter.register(health)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            source = Source(PODS, Pod)
            tasks = [
                group.create_task(discovery.run(), name="discovery"),
                group.create_task(Reflector(api, source, pods).run(), name="pods"),
                group.create_task(adapter.run(), name="adapter"),
                group.create_task(recorder.run(), name="events"),
            ]
            keeper, elector = await _certificates(flags, api, is_launcher=is_launcher)
            if elector is not None:
                tasks.append(group.create_task(elector.run(_for_ever), name="lease"))
            try:
                async with running(
                    flags,
                    clusters=Clusters(api, api),
                    groups=adapter.groups,
                    health=health,
                    metrics=server_metrics,
                    verbosity=verbosity,
                    keeper=keeper,
                    port=port,
                ) as server:
                    yield Served(adapter, server)
            finally:
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
    text = flags.text("service")
    if is_launcher or not text:
        return None, None
    try:
        service = registration.parse(text)
    except ValueError as error:
        raise FlagError(str(error)) from None
    found = await registration.ours(api, service, adopt=flags.switch("adopt"))
    elector = _elector(api, service)
    keeper = CertificateKeeper(
        api,
        namespace=service.namespace,
        secret=f"{service.name}-ca",
        names=service_names(service.name, service.namespace),
        publish=publisher(api, found),
        may_write=elector.may_write,
        times=times_for(flags.seconds("serving-ca-lifetime")),
    )
    return keeper, elector


def _elector(api: Api, service: ServiceName) -> Elector:
    identity = os.environ.get("POD_NAME") or f"{os.uname().nodename}-{os.getpid()}"
    return Elector(api, namespace=service.namespace, name=service.name, identity=identity)


async def _for_ever(_term: object) -> None:
    await asyncio.Event().wait()


def _told(recorder: Recorder, is_launcher: bool) -> Callable[[str, str], None]:
    """Return what makes events about our own pod; without its name there are none.

    A launcher has upstream's rights, and those do not include events.
    """
    name, namespace = os.environ.get("POD_NAME", ""), os.environ.get("POD_NAMESPACE", "")
    if is_launcher or not name or not namespace:
        return lambda _reason, _message: None
    about = ObjectReference(kind="Pod", namespace=namespace, name=name, api_version="v1")

    def tell(reason: str, message: str) -> None:
        level = "Warning" if "Not" in reason else "Normal"
        recorder.event(about, "Warning" if level == "Warning" else "Normal", reason, message)

    return tell
