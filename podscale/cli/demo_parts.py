"""All parts of podscale in the demo's own process, on one connection, one feed, one server.

The seam for whoever shows the demo (the terminal, the page): ``Parts`` holds the running
objects. Decisions are made at ``wall``'s time, which may run faster than the machine's;
periods are flags divided by the same speed; deadlines of the network stay real.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from msgspec import Struct

from adapter import flags as adapter_flags
from adapter.parts import Adapter
from adapter.parts import Ground as AdapterGround
from adapter.selfmetrics import AdapterMetrics, ObservedClient
from hpa import flags as hpa_flags
from hpa.part import Part as HpaPart
from podscale.feed.feed import Feed
from podscale.kube.api import Api, user_agent
from podscale.kube.connect import Target, connect
from podscale.kube.discovery import Discovery
from podscale.kube.objects.pod import Pod
from podscale.kube.pods import PodStore
from podscale.kube.reflector import Reflector
from podscale.kube.resource import PODS
from podscale.kube.watching import Source
from podscale.serving import flags as serving_flags
from podscale.serving.certificates import service_names
from podscale.serving.flag_table import API_SERVER
from podscale.serving.flags import Flag, Flags
from podscale.serving.health import Health
from podscale.serving.keeper import CertificateKeeper, publisher
from podscale.serving.logs import Verbosity
from podscale.serving.running import Clusters, Running, running
from podscale.serving.selfmetrics import SelfMetrics
from vpa.admission import main as admission
from vpa.admission.flags import TABLE as ADMISSION
from vpa.decisions_api import SizingApi
from vpa.recommender import flags as recommender_flags
from vpa.recommender.part import RecommenderPart
from vpa.stores import Stores
from vpa.updater import flags as updater_flags
from vpa.updater.main import UpdaterPart

NAMESPACE, SERVICE = "podscale", "podscale"
HOST = "127.0.0.1"
APIS: tuple[tuple[str, str], ...] = (
    ("custom.metrics.k8s.io", "v1beta1"),
    ("custom.metrics.k8s.io", "v1beta2"),
    ("external.metrics.k8s.io", "v1beta1"),
    ("metrics.k8s.io", "v1beta1"),
    ("hpa.podscale.io", "v1alpha1"),
    ("vpa.podscale.io", "v1alpha1"),
)


class Choice(Struct, frozen=True):
    """What the parts are started with."""

    kubeconfig: Path
    prometheus_url: str
    rules: Path
    directory: Path  # for certificates
    settings: Mapping[str, Sequence[str]] = {}  # part -> further flags


class Parts(Struct, frozen=True):
    """The running parts.

    ``hpa.controller`` holds traces and the catalog, ``recommender.recommender`` and
    ``updater.updater`` what was decided about requests, ``feed.stats`` the feed's health,
    ``adapter.relister.states`` that of each rule.
    """

    api: Api
    adapter: Adapter
    feed: Feed
    hpa: HpaPart
    recommender: RecommenderPart
    updater: UpdaterPart
    server: Running
    wall: Callable[[], float]


@asynccontextmanager
async def parts(
    choice: Choice, wall: Callable[[], float], announce: Callable[[int], None]
) -> AsyncIterator[Parts]:
    """Run every part while the block runs.

    ``announce`` takes the port of the server, and makes the APIServices that point to it.
    """
    flags = _flags(choice, "adapter", (*adapter_flags.OWN, *adapter_flags.FEED, *API_SERVER))
    metrics, health = SelfMetrics(), Health()
    adapter_metrics = AdapterMetrics(metrics.registry)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        target = Target(kubeconfig=str(choice.kubeconfig))
        api = await enter(connect(target, user_agent=user_agent("demo")))
        discovery, pods = Discovery(api), PodStore()
        await discovery.refresh()
        client = await enter(
            ObservedClient(adapter_flags.prometheus_options(flags), adapter_metrics)
        )
        feed = await enter(Feed(client, adapter_flags.feed_options(flags), wall))
        adapter_metrics.watch_feed(feed.stats)
        ground = AdapterGround(api, discovery, pods, client, feed, adapter_metrics)
        adapter = Adapter(flags, ground, clock=wall)
        await adapter.prepare()
        adapter.register(health)
        hpa = _hpa(choice, api, discovery, adapter, pods, wall)
        stores = Stores(
            api, discovery, pods=pods, feeds_pods=False, needs_nodes=True, needs_budgets=True
        )
        recommender, updater = _vpa(choice, api, stores, adapter, metrics, wall)
        metrics.registry.register(hpa.metrics)
        group = await enter(asyncio.TaskGroup())
        tasks = [
            group.create_task(work, name=name)
            for name, work in (
                ("discovery", discovery.run()),
                ("pods", Reflector(api, Source(PODS, Pod), pods).run()),
                ("adapter", adapter.run()),
                ("hpa", hpa.run()),
                ("vpa watches", stores.run()),
                ("recommender", recommender.run()),
                ("updater", updater.run()),
            )
        ]
        try:
            server = await enter(
                running(
                    flags,
                    clusters=Clusters(api, api),
                    groups=(
                        *adapter.groups,
                        hpa.group,
                        SizingApi(
                            recommender.recommender,
                            recommender.is_leader,
                            updater=updater.updater,
                            wall=wall,
                        ),
                    ),
                    health=health,
                    metrics=metrics,
                    verbosity=Verbosity(0),
                    keeper=_keeper(api),
                    port=0,
                )
            )
            # Before anything else runs: the keeper writes its CA into what is there.
            announce(server.port)
            await enter(
                admission.serving(_flags(choice, "admission", ADMISSION), Verbosity(0), port=0)
            )
            yield Parts(api, adapter, feed, hpa, recommender, updater, server, wall)
        finally:
            for part in (hpa, recommender, updater):
                await part.stop()
            for task in tasks:
                task.cancel()


def _flags(choice: Choice, part: str, table: Sequence[Flag]) -> Flags:
    files, host = str(choice.kubeconfig), f"--bind-address={HOST}"
    words = {
        "adapter": [
            f"--config={choice.rules}",
            f"--prometheus-url={choice.prometheus_url}",
            f"--cert-dir={choice.directory}",
            f"--authentication-kubeconfig={files}",
            f"--authorization-kubeconfig={files}",
            host,
        ],
        "hpa": [f"--leader-elect-resource-namespace={NAMESPACE}", "--leader-elect=false"],
        "admission": [
            f"--kubeconfig={files}",
            f"--cert-dir={choice.directory}",
            f"--tls-cert-file={choice.directory / 'none'}",
            "--register-by-url=true",
            f"--webhook-address={HOST}",
            "--port=0",
            "--address=",
            host,
        ],
    }.get(part, [])
    return serving_flags.parse([*words, *choice.settings.get(part, ())], table)


def _hpa(
    choice: Choice,
    api: Api,
    discovery: Discovery,
    adapter: Adapter,
    pods: PodStore,
    wall: Callable[[], float],
) -> HpaPart:
    flags = _flags(choice, "hpa", hpa_flags.TABLE)
    chosen = hpa_flags.choice(flags, own_namespace=NAMESPACE)
    return HpaPart(
        api,
        chosen,
        discovery,
        adapter.provider,
        pods,
        identity="demo",
        feeds_pods=False,
        wall=wall,
    )


def _vpa(
    choice: Choice,
    api: Api,
    stores: Stores,
    adapter: Adapter,
    metrics: SelfMetrics,
    wall: Callable[[], float],
) -> tuple[RecommenderPart, UpdaterPart]:
    flags = _flags(choice, "recommender", recommender_flags.TABLE)
    recommender = RecommenderPart(
        api,
        stores,
        adapter.provider,
        recommender_flags.options(flags),
        metrics.registry,
        lease=None,
        feeds_stores=False,
        wall=wall,
    )
    flags = _flags(choice, "updater", updater_flags.TABLE)
    # Admission lives in this process: its sign of life, of the machine's time, says nothing.
    options = updater_flags.options(flags, NAMESPACE)
    updater = UpdaterPart(
        api, stores, options, metrics.registry, lease=None, feeds_stores=False, wall=wall
    )
    return recommender, updater


def _keeper(api: Api) -> CertificateKeeper:
    return CertificateKeeper(
        api,
        namespace=NAMESPACE,
        secret=f"{SERVICE}-ca",
        names=service_names(SERVICE, NAMESPACE),
        publish=publisher(api, [f"{version}.{group}" for group, version in APIS]),
        may_write=lambda: True,
    )
