"""Parts put together in one process: one connection, one feed, one set of watches, one server.

Every command goes this way, with one part or with all of them. ``/metrics`` and ``/health-check``
are served over plain HTTP as well, where upstream's manifests look for them. Once all parts are
ready, Python's collector no longer looks at what has been loaded.
"""

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial

import structlog
from aiohttp import web
from msgspec import Struct, structs
from prometheus_client import CollectorRegistry, generate_latest

from podscale.kube.client.api import user_agent
from podscale.kube.client.connect import ApiServerTarget
from podscale.kube.client.resource import PODS
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.informer.list_watch import WatchSource
from podscale.kube.informer.reflector import Reflector
from podscale.kube.leadership.leading import own_pod
from podscale.kube.objects.pod import Pod
from podscale.process import apiservices, clusters
from podscale.process.clusters import Targets
from podscale.process.part import (
    ApartKind,
    FeedReader,
    Flagged,
    Kinds,
    Part,
    PartKind,
    Shared,
    Stopping,
    Work,
)
from podscale.serving.apis.api import ApiGroup, Route
from podscale.serving.flags import Flags
from podscale.serving.monitoring.health import Health
from podscale.serving.monitoring.logs import Verbosity
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from podscale.serving.running import Clusters, RunningServer, running

log = structlog.get_logger(__name__)

_DISCOVERY_PERIOD_S = 60.0

OpenReader = Callable[[Flags, Shared], AbstractAsyncContextManager[FeedReader]]
# Opens what is served beside the parts' APIs, and returns its routes.
Beside = Callable[[Shared], AbstractAsyncContextManager[Sequence[Route]]]


class Composed(Struct, frozen=True, eq=False):
    """A running process. ``shared`` and ``server`` are None where nothing asks for them."""

    parts: dict[str, Part]
    apart: Sequence[Stopping] = ()
    shared: Shared | None = None
    server: RunningServer | None = None
    health: Health | None = None
    monitors: Sequence[int] = ()  # ports of /metrics over plain HTTP, in the order of the parts

    async def stop(self) -> None:
        """Give the Leases back, then finish what is in flight."""
        for part in self.parts.values():
            await part.stop()
        async with asyncio.TaskGroup() as group:
            for each in self.apart:
                group.create_task(each.stop())
            if self.server is not None:
                group.create_task(self.server.drain())


@asynccontextmanager
async def composed(
    flags: Flagged,
    kinds: Kinds,
    verbosity: Verbosity,
    *,
    open_reader: OpenReader | None = None,
    beside: Beside | None = None,
    is_launcher: bool = False,
    port: int | None = None,
    wall: Callable[[], float] = time.time,
) -> AsyncIterator[Composed]:
    """Run the parts that have flags while the block runs.

    Raises ``FlagError``, ``KubeError``, ``TlsError``, ``TrustError`` or ``OSError`` when it cannot
    start. ``port`` 0 means any free one, for every server. ``wall`` may run faster than the
    machine's clock; deadlines of the network stay real.
    """
    inside = {name: own for name, own in flags.items() if isinstance(kinds[name], PartKind)}
    async with AsyncExitStack() as stack:
        if not inside:
            apart = await _open_apart(flags, kinds, verbosity, port, stack)
            yield Composed({}, apart)
            return
        chosen = {name: kind for name in inside if isinstance(kind := kinds[name], PartKind)}
        enter = stack.enter_async_context
        where = await asyncio.to_thread(_targets, flags, chosen)
        reached = await enter(clusters.reached(where, user_agent=user_agent("-".join(flags))))
        shared, health = _shared(flags, chosen, reached, is_launcher, wall), Health()
        await clusters.discover(shared.discovery)
        works: list[Work] = [("discovery", shared.discovery.run), ("pods", _pods(shared).run)]
        reader = next((n for n, kind in chosen.items() if kind.reads_prometheus(inside[n])), None)
        if reader is not None and open_reader is not None:
            shared.readers.append(await enter(open_reader(inside[reader], shared)))
        for name, kind in chosen.items():
            shared.parts[name] = await enter(kind.open(inside[name], shared))
            works += [
                ("rights", partial(clusters.warn_of_missing, api, needed))
                for api, needed in reached.needs(kind.rights)
            ]
        if (pod := own_pod()) is not None and not is_launcher:  # whose account is upstream's
            follow = partial(clusters.follow_policy, reached.objects, pod.namespace, health)
            works.append(("accounts-policy", follow))
        running_parts = list(dict.fromkeys([*shared.readers, *shared.parts.values()]))
        groups: list[ApiGroup] = []
        for part in running_parts:
            part.register(health)
            works += part.works()
        for part in shared.parts.values():
            groups += part.groups
        keeper, publishing = await apiservices.certificates(inside, chosen, shared, health)
        works += publishing
        group = await enter(asyncio.TaskGroup())
        tasks = [group.create_task(work(), name=name) for name, work in works]
        try:
            apart = await _open_apart(flags, kinds, verbosity, port, stack)
            monitors = [
                await enter(monitored(address, shared.metrics.registry, health))
                for address in _addresses(inside)
            ]
            routes = [
                route for name, part in shared.parts.items() for route in chosen[name].routes(part)
            ]
            if beside is not None:
                routes += await enter(beside(shared))
            server: RunningServer | None = None
            served = _server_flags(inside)
            is_served = groups or routes
            if served and is_served and (port is not None or served.number("secure-port")):
                server = await enter(
                    running(
                        served,
                        clusters=Clusters(reached.authentication, reached.authorization),
                        groups=groups,
                        routes=routes,
                        health=health,
                        metrics=shared.metrics,
                        verbosity=verbosity,
                        keeper=keeper,
                        port=port,
                    )
                )
                log.info("serving", port=server.port)
            yield Composed(shared.parts, apart, shared, server, health, monitors)
        finally:
            for part in running_parts:
                await part.stop()
            for task in tasks:
                task.cancel()


def _shared(
    flags: Flagged,
    kinds: dict[str, PartKind],
    reached: clusters.ClusterConnections,
    is_launcher: bool,
    wall: Callable[[], float],
) -> Shared:
    periods = [own.seconds("discovery-interval") for own in flags.values()
               if "discovery-interval" in own.values]  # fmt: skip
    period_s = next(filter(None, periods), _DISCOVERY_PERIOD_S)
    asked = [tuple(kind.namespaces(flags[name])) for name, kind in kinds.items()]
    # All namespaces as soon as one part looks at all.
    only = dict.fromkeys(each for namespaces in asked for each in namespaces)
    scopes = tuple(only) if all(asked) else ("",)
    if any(kind.needs_annotations for kind in kinds.values()):
        pods = PodStore(scopes)
    else:
        pods = PodStore(scopes, keep_annotations=())
    return Shared(
        names=frozenset(flags),
        api=reached.objects,
        discovery=ApiDiscovery(reached.objects, period_s=period_s),
        pods=pods,
        scopes=scopes,
        metrics=SelfMetrics(),
        wall=wall,
        is_launcher=is_launcher,
        parts={},
        readers=[],
    )


def _pods(shared: Shared) -> Reflector[Pod]:
    return Reflector(shared.api, WatchSource(PODS, Pod), shared.pods)


def _targets(flags: Flagged, kinds: dict[str, PartKind]) -> Targets:
    """Return how to reach the cluster, and those that judge requests where they are others."""
    found = [kind.targets(flags[name]) for name, kind in kinds.items()]
    paths = (own.text(name) for name in ("kubeconfig", "lister-kubeconfig")
             for own in flags.values() if name in own.values)  # fmt: skip
    path = next(filter(None, paths), "")
    if len(flags) == 1 and (found[0].objects.is_named or not path):
        return found[0]
    # The first that is named, also to the webhook; a limit counts only where somebody wrote it.
    chosen = next((each for each in found if each.objects.is_named), found[0])
    if not chosen.objects.is_named:
        chosen = structs.replace(chosen, objects=ApiServerTarget(kubeconfig=path))
    limits = [kind.targets(flags[name]).objects for name, kind in kinds.items()
              if "kube-api-qps" in flags[name].given]  # fmt: skip
    limit = max(limits, key=lambda each: each.qps, default=ApiServerTarget())
    objects = structs.replace(chosen.objects, qps=limit.qps, burst=limit.burst)
    judges = (
        next((t for t in each if t.is_named), objects)
        for each in ([t.authentication for t in found], [t.authorization for t in found])
    )
    return Targets(objects, *judges)


def _addresses(flags: Flagged) -> list[str]:
    """Return where upstream's manifests look for a part's metrics, each once."""
    given = (own.text("address") for own in flags.values() if "address" in own.values)
    return list(dict.fromkeys(filter(None, given)))


def _server_flags(flags: Flagged) -> Flags | None:
    return next((own for own in flags.values() if "secure-port" in own.values), None)


async def _open_apart(
    flags: Flagged, kinds: Kinds, verbosity: Verbosity, port: int | None, stack: AsyncExitStack
) -> list[Stopping]:
    return [
        await stack.enter_async_context(kind.open(own, verbosity, port))
        for name, own in flags.items()
        if isinstance(kind := kinds[name], ApartKind)
    ]


_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


@asynccontextmanager
async def monitored(
    address: str, registry: CollectorRegistry, health: Health
) -> AsyncIterator[int]:
    """Serve while the block runs; yields the port, 0 where ``address`` is empty.

    ``address`` is Go's: ``:8942`` or ``host:port``. Raises ``OSError`` when it is taken and
    ``ValueError`` for what is no address.
    """
    if not address:
        yield 0
        return
    host, port = _split(address)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/metrics":
            body = generate_latest(registry)
            return web.Response(body=body, headers={"Content-Type": _EXPOSITION})
        if request.path == "/health-check":
            alive = health.report("livez")
            text = "OK" if alive.status == 200 else alive.text
            return web.Response(status=alive.status, text=text)
        return web.Response(status=404, text="404 page not found")

    runner = web.ServerRunner(web.Server(answer), access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host or None, port).start()
        except OSError as error:
            # asyncio's text repeats the address as a tuple, or its errno.
            raise OSError(
                f"cannot listen on {address}: {os.strerror(error.errno or 0).lower()} "
                "(--address chooses another)"
            ) from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        raise ValueError(f"--address={address}: expected HOST:PORT or :PORT")
    return host.strip("[]"), int(port)


_LOOK_S = 0.5


def relax() -> None:
    """Collect less often: a round makes some hundred thousand containers that die at once, and
    looking for cycles after every 700 of them would cost more than all of them together."""
    gc.set_threshold(100_000, 50, 50)


@asynccontextmanager
async def settling(serving: AbstractAsyncContextManager[Composed]) -> AsyncIterator[Composed]:
    """Take what has been loaded out of the collector's sight, once all parts are ready: it stays,
    and is walked for tens of milliseconds otherwise, again and again."""
    async with serving as composed, asyncio.TaskGroup() as group:
        task = group.create_task(_settle(composed), name="settle")
        try:
            yield composed
        finally:
            task.cancel()


async def _settle(composed: Composed) -> None:
    health = composed.health
    while health is not None and health.report("readyz").status != 200:  # noqa: ASYNC110 - facts
        await asyncio.sleep(_LOOK_S)
    gc.collect()
    gc.freeze()
