"""Several parts in one process, on one connection, one feed, one set of watches, one server.

The admission webhook alone has a connection, watches and a port of its own: pods wait for it.
``serve`` is adapter and admission, ``control`` is HPA, recommender and updater, ``run`` all
of them. Each part that acts has a Lease of its own. The demo runs them at a clock of its own.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import structlog
from msgspec import Struct

from adapter import flags as adapter_flags
from adapter import registration, rights
from adapter.announcing import announcing
from adapter.clusters import reached
from adapter.errors import ConfigInvalid
from adapter.parts import Adapter
from adapter.parts import Ground as AdapterGround
from adapter.registration import Behind
from adapter.selfmetrics import AdapterMetrics, ObservedClient
from hpa import flags as hpa_flags
from hpa.part import Part as HpaPart
from podscale.cli import page
from podscale.cli import recommender as recommender_command
from podscale.cli.together_flags import Flagged, reader_of, targets
from podscale.core.metrics import MetricsProvider
from podscale.feed.feed import Feed
from podscale.kube.api import Api, user_agent
from podscale.kube.discovery import Discovery
from podscale.kube.events import FLUSH_S, Recorder
from podscale.kube.leading import for_ever
from podscale.kube.lease import Elector
from podscale.kube.metrics_api import ApiProvider
from podscale.kube.objects.pod import Pod
from podscale.kube.own_pod import identity, leader_label_of, own_namespace
from podscale.kube.pods import PodStore
from podscale.kube.reflector import Reflector
from podscale.kube.resource import PODS
from podscale.kube.watching import Source
from podscale.serving.api import ApiGroup
from podscale.serving.flags import FlagError
from podscale.serving.health import Health
from podscale.serving.keeper import CertificateKeeper
from podscale.serving.logs import Verbosity
from podscale.serving.running import Clusters, Running, running
from podscale.serving.selfmetrics import SelfMetrics
from podscale.serving.service import service_of
from vpa import flags as vpa_flags
from vpa import process as vpa_process
from vpa.admission import main as admission
from vpa.decisions_api import SizingApi
from vpa.recommender import flags as recommender_flags
from vpa.recommender import main as recommender_main
from vpa.recommender.part import RecommenderPart
from vpa.stores import Stores
from vpa.updater import flags as updater_flags
from vpa.updater.main import UpdaterPart

log = structlog.get_logger(__name__)

_APIS = {"hpa": "v1alpha1.hpa.podscale.io", "recommender": "v1alpha1.vpa.podscale.io"}


Work = Callable[[], Coroutine[Any, Any, object]]


class Together(Struct, frozen=True):
    """The running parts; None does not run here, and an empty URL is no page."""

    api: Api
    pods: PodStore
    server: Running
    provider: MetricsProvider
    adapter: Adapter | None = None
    feed: Feed | None = None
    hpa: HpaPart | None = None
    recommender: RecommenderPart | None = None
    updater: UpdaterPart | None = None
    page_url: str = ""

    async def stop(self) -> None:
        """Give the Leases back, then finish what is in flight."""
        for part in (self.hpa, self.recommender, self.updater):
            if part is not None:
                await part.stop()
        await self.server.drain()


@asynccontextmanager
async def together(
    flags: Flagged,
    verbosity: Verbosity,
    *,
    port: int | None = None,
    shows: page.Choice | None = None,
    wall: Callable[[], float] = time.time,
) -> AsyncIterator[Together]:
    """Run the parts that have flags while the block runs.

    Raises ``FlagError``, ``KubeError``, ``TlsError``, ``TrustError`` or
    ``OSError`` when it cannot start. ``port`` 0 means any free one, for the webhook too;
    ``shows`` None: there is no page. ``wall`` is the time decisions are made at, which may
    run faster than the machine's; deadlines of the network stay real.
    """
    first = next(iter(flags.values()))
    metrics, health = SelfMetrics(), Health()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        where = await asyncio.to_thread(targets, flags)
        clusters = await enter(reached(where, user_agent=user_agent("-".join(flags))))
        api = clusters.objects
        discovery, pods = Discovery(api), PodStore()
        await discovery.refresh()
        works: list[tuple[str, Work]] = [
            ("discovery", discovery.run),
            ("pods", Reflector(api, Source(PODS, Pod), pods).run),
        ]
        adapter, feed, recorder = None, None, None
        provider: MetricsProvider = ApiProvider(api, discovery)
        if reader := reader_of(flags):
            own = AdapterMetrics(metrics.registry)
            client = await enter(ObservedClient(adapter_flags.prometheus_options(reader), own))
            feed = await enter(Feed(client, adapter_flags.feed_options(reader), wall))
            own.watch_feed(feed.stats)
            ground = AdapterGround(api, discovery, pods, client, feed, own)
            recorder = Recorder(api, "podscale-adapter", clock=wall)
            adapter = Adapter(reader, ground, told=announcing(recorder), clock=wall)
            try:
                await adapter.prepare()
            except ConfigInvalid as invalid:
                # What only the cluster could tell, as that it has no such resource.
                raise FlagError(str(invalid)) from invalid
            adapter.register(health)
            provider = adapter.provider
            works += [("rules", adapter.run), ("events", recorder.run)]
            if "adapter" in flags:
                works += [
                    ("rights", partial(rights.warn_of_missing, asked, needed))
                    for asked, needed in clusters.needs(rights.NEEDED)
                ]
        groups: list[ApiGroup] = [*adapter.groups] if adapter and "adapter" in flags else []
        parts = await _parts(flags, api, discovery, pods, adapter, metrics, wall)
        if parts.hpa is not None:
            metrics.registry.register(parts.hpa.metrics)
            parts.hpa.register(health)
            groups.append(parts.hpa.group)
            works.append(("hpa", parts.hpa.run))
        if parts.recommender is not None:
            parts.recommender.register(health)
            groups.append(_sizing(parts.recommender, parts.updater, wall))
            works.append(("recommender", parts.recommender.run))
        if parts.updater is not None:
            works.append(("updater", parts.updater.run))
        if parts.stores is not None:
            works.append(("vpa watches", parts.stores.run))
        keeper, elector = await _certificates(flags, api)
        if elector is not None:
            works.append(("certificates", partial(elector.run, for_ever)))
        group = await enter(asyncio.TaskGroup())
        tasks = [group.create_task(work(), name=name) for name, work in works]
        try:
            if "admission" in flags:
                await enter(admission.serving(flags["admission"], verbosity, port=port))
            desk, url = None, ""
            if shows is not None and parts.hpa is not None:
                seen = page.Running(
                    parts.hpa, provider, adapter, feed, parts.recommender, parts.updater
                )
                made = await asyncio.to_thread(page.page_over, seen, shows, wall)
                desk, url = made.desk, await enter(page.on_loopback(made, shows))
                log.info("page", url=url)
            async with running(
                first,
                clusters=Clusters(clusters.authentication, clusters.authorization),
                groups=groups,
                routes=desk.routes() if desk is not None else (),
                health=health,
                metrics=metrics,
                verbosity=verbosity,
                keeper=keeper,
                port=port,
            ) as server:
                yield Together(
                    api,
                    pods,
                    server,
                    provider,
                    adapter,
                    feed,
                    parts.hpa,
                    parts.recommender,
                    parts.updater,
                    url,
                )
        finally:
            for part in (parts.hpa, parts.recommender, parts.updater):
                if part is not None:
                    await part.stop()
            if recorder is not None:
                await recorder.flush(FLUSH_S)
            for task in tasks:
                task.cancel()


class _Parts(Struct, frozen=True):
    hpa: HpaPart | None = None
    stores: Stores | None = None
    recommender: RecommenderPart | None = None
    updater: UpdaterPart | None = None


async def _parts(
    flags: Flagged,
    api: Api,
    discovery: Discovery,
    pods: PodStore,
    adapter: Adapter | None,
    metrics: SelfMetrics,
    wall: Callable[[], float],
) -> _Parts:
    from_api = ApiProvider(api, discovery)

    def source(is_feed: bool) -> MetricsProvider:
        return adapter.provider if is_feed and adapter is not None else from_api

    hpa, stores, recommender, updater = None, None, None, None
    if own := flags.get("hpa"):
        namespace = await asyncio.to_thread(own_namespace, "podscale")
        hpa = HpaPart(
            api,
            hpa_flags.choice(own, own_namespace=namespace),
            discovery,
            source(own.text("metrics-source") == "feed"),
            pods,
            identity=identity(),
            feeds_pods=False,
            wall=wall,
        )
    if sizing := (flags.get("recommender") or flags.get("updater")):
        stores = Stores(
            api,
            discovery,
            namespaces=vpa_flags.namespaces(sizing),
            ignored=sizing.listing("ignored-vpa-object-namespaces"),
            pods=pods,
            feeds_pods=False,
            needs_nodes=True,
            needs_budgets="updater" in flags,
        )
    if (own := flags.get("recommender")) and stores is not None:
        usage = source(recommender_flags.uses_feed(own))
        recommender = RecommenderPart(
            api,
            stores,
            usage,
            recommender_flags.options(own),
            metrics.registry,
            lease=vpa_process.lease_of(own),
            on_change=leader_label_of(api, "recommender"),
            find_past=recommender_main.find_past(
                own, usage, stores, recommender_command.past_of(own)
            ),
            feeds_stores=False,
            wall=wall,
        )
    if (own := flags.get("updater")) and stores is not None:
        namespace = await asyncio.to_thread(own_namespace, "kube-system")
        updater = UpdaterPart(
            api,
            stores,
            updater_flags.options(own, namespace),
            metrics.registry,
            lease=vpa_process.lease_of(own),
            on_change=leader_label_of(api, "updater"),
            feeds_stores=False,
            wall=wall,
        )
    return _Parts(hpa, stores, recommender, updater)


def _sizing(
    recommender: RecommenderPart, updater: UpdaterPart | None, wall: Callable[[], float]
) -> SizingApi:
    return SizingApi(
        recommender.recommender,
        recommender.is_leader,
        updater=updater.updater if updater is not None else None,
        wall=wall,
    )


async def _certificates(
    flags: Flagged, api: Api
) -> tuple[CertificateKeeper | None, Elector | None]:
    """Return what keeps the CA of every API served here, under one Lease."""
    behind = []
    for part, own in flags.items():
        text = own.text("service") if part != "admission" and "service" in own.values else ""
        if service := service_of(text):
            names = registration.NAMES if part == "adapter" else [_APIS[part]]
            behind.append((own, Behind(service, names, own.switch("adopt"))))
    if not behind:
        return None, None
    own, first = behind[0]
    return await registration.certificate(
        api,
        [each for _, each in behind],
        # Not the Service's name: a part may lead by a Lease of that name.
        lease=f"{first.service.name}-certificates",
        ca_lifetime_s=own.seconds("serving-ca-lifetime"),
    )
