"""What the three programs of the VPA share: a connection, a server, signals, an exit code."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

import structlog
from msgspec import Struct
from prometheus_client import CollectorRegistry

from podscale.core.metrics import MetricsProvider
from podscale.kube.api import Api, user_agent
from podscale.kube.connect import connect
from podscale.kube.credentials import SERVICE_ACCOUNT
from podscale.kube.discovery import Discovery
from podscale.kube.errors import KubeError
from podscale.kube.fenced import leader_label
from podscale.kube.pods import PodStore
from podscale.serving import logs
from podscale.serving.api import ApiGroup
from podscale.serving.certificates import service_names
from podscale.serving.flags import FlagError, Flags
from podscale.serving.health import Health
from podscale.serving.keeper import CertificateKeeper, publisher
from podscale.serving.logs import Verbosity
from podscale.serving.running import Clusters, running
from podscale.serving.selfmetrics import SelfMetrics
from podscale.serving.tls import TlsError
from podscale.serving.trust import TrustError
from vpa import flags as flags_
from vpa.leading import LeaseChoice
from vpa.monitoring import monitored
from vpa.stores import Stores

log = structlog.get_logger(__name__)

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


class Stopping(Protocol):
    """What a program does between SIGTERM and its end."""

    async def stop(self) -> None: ...


Serve = Callable[[Flags, Verbosity], AbstractAsyncContextManager[Stopping]]


async def run(flags: Flags, problems: Sequence[str], serve: Serve) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    2 is a command line that must be changed first, 1 everything else.
    """
    verbosity = Verbosity(flags.number("v"))
    logs.configure("json" if flags.text("log-format") == "json" else "console", verbosity)
    for warning in flags.warnings:
        log.warning(warning)
    if problems:
        print("\n".join(problems), file=sys.stderr)  # noqa: T201 - no event to be logged
        return 2
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    code = 0
    try:
        async with serve(flags, verbosity) as served:
            log.info("running")
            await stop.wait()
            # The Lease first: another replica can act while we still answer.
            await served.stop()
    except* FlagError as refused:
        print(_first(refused), file=sys.stderr)  # noqa: T201 - no event to be logged
        code = 2
    except* (KubeError, TlsError, TrustError, OSError, ValueError) as failed:
        log.error("cannot start", error=str(_first(failed)))
        code = 1
    return code


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


def own_namespace(default: str) -> str:
    """Return the namespace of our pod. Blocking."""
    given = os.environ.get("POD_NAMESPACE", "") or os.environ.get("NAMESPACE", "")
    if given:
        return given
    file: Path = SERVICE_ACCOUNT / "namespace"
    return file.read_text().strip() if file.is_file() else default


def identity() -> str:
    """Return who holds a Lease: the pod, or this process."""
    return os.environ.get("POD_NAME") or f"{os.uname().nodename}-{os.getpid()}"


def leader_label_of(api: Api, part: str) -> Callable[[bool], Awaitable[None]] | None:
    """Return what labels our pod as the leader of ``part``; None outside of a pod."""
    pod, namespace = os.environ.get("POD_NAME", ""), os.environ.get("POD_NAMESPACE", "")
    if not pod or not namespace:
        return None
    return leader_label(api, namespace=namespace, pod=pod, part=part)


def _keeper(flags: Flags, api: Api, may_write: Callable[[], bool]) -> CertificateKeeper | None:
    text = flags.text("service") if "service" in flags.values else ""
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
        may_write=may_write,
    )


def _first(errors: BaseExceptionGroup[Exception]) -> Exception:
    first: Exception | BaseExceptionGroup[Exception] = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
