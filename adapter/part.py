"""The adapter as a part of a process: it reads Prometheus for all, and may serve the three APIs.

``podscale.process.compose`` puts it beside the other parts, or runs it alone.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from adapter import flags as flags_
from adapter.adapter import Adapter, AdapterPorts
from adapter.backends.backend_router import BackendRouter
from adapter.errors import ConfigInvalid
from adapter.selfmetrics import AdapterMetrics, ObservedClient
from adapter.sources.source_router import OpenSource, SourceRouter
from podscale.core.metrics import MetricsProvider
from podscale.feed.feed import Feed
from podscale.kube.events import Recorder
from podscale.kube.leadership.leading import identity, own_pod
from podscale.kube.leadership.lease import Elector
from podscale.process.clusters import Right
from podscale.process.part import Part, PartKind, Shared
from podscale.serving.certificates.keeper import service_of
from podscale.serving.flags import FlagError, Flags

_CUSTOM = ("v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io")
_EXTERNAL, _RESOURCE = ("v1beta1.external.metrics.k8s.io",), ("v1beta1.metrics.k8s.io",)
NEEDED: Sequence[Right] = (
    Right(
        "list",
        "",
        "pods",
        "no CPU and memory of pods, other metrics of pods only where a namespace's may be listed",
    ),
    Right("watch", "", "pods", "pods are listed every half minute instead"),
    Right("list", "", "nodes", "no metrics of nodes"),
    Right("list", "", "namespaces", "no metrics of namespaces themselves"),
    Right("create", "authentication.k8s.io", "tokenreviews", "bearer tokens are refused"),
    Right("create", "authorization.k8s.io", "subjectaccessreviews", "every request is refused"),
)


def reader(
    others: Sequence[MetricsProvider] | None = None, *, poll_s: float = 2.0
) -> Callable[[Flags, Shared], AbstractAsyncContextManager[Adapter]]:
    """Return what opens the feed; ``others`` are providers of other packages (None: those
    installed), ``poll_s`` lies between two looks at its files."""

    @asynccontextmanager
    async def open_reader(flags: Flags, shared: Shared) -> AsyncIterator[Adapter]:
        metrics = AdapterMetrics(shared.metrics.registry)
        reached, options = flags_.prometheus_options(flags), flags_.feed_options(flags)
        async with (
            ObservedClient(reached, metrics, shared.wall) as client,
            Feed(client, options, shared.wall) as feed,
            SourceRouter(
                OpenSource(reached, client, feed, asyncio.Event()), options, metrics, shared.wall
            ) as sources,
            BackendRouter(shared.api, metrics) as backends,
        ):
            metrics.watch_feeds(sources.stats)
            ports = AdapterPorts(
                shared.api,
                shared.discovery,
                shared.pods,
                client,
                sources,
                backends,
                metrics,
                Recorder(shared.api, "podscale-adapter", clock=shared.wall),
                # A launcher has upstream's rights, and those do not include events.
                None if shared.is_launcher else own_pod(),
                _elector(flags, shared),
                KIND.name in shared.names,
            )
            adapter = Adapter(flags, ports, others=others, poll_s=poll_s, clock=shared.wall)
            try:
                await adapter.prepare()
            except ConfigInvalid as invalid:
                # What only the cluster could tell, as that it has no such resource.
                raise FlagError(str(invalid)) from invalid
            yield adapter

    return open_reader


def _adopts(part: Part) -> Sequence[str]:
    """Return the APIs for which there is something: others are not taken from who serves them."""
    if not isinstance(part, Adapter):
        return ()
    rules = part.rules
    has_external = rules.external or part.has_backends
    return (
        *(_CUSTOM if rules.custom else ()),
        *(_EXTERNAL if has_external else ()),
        *(_RESOURCE if rules.resource is not None else ()),
    )


def _elector(flags: Flags, shared: Shared) -> Elector | None:
    """Return the Lease under which the status of MetricRules is written, if replicas share one."""
    service = service_of(flags.text("service")) if "service" in flags.values else None
    if service is None:
        return None
    return Elector(
        shared.api, namespace=service.namespace, name=f"{service.name}-rules",
        identity=identity(), chosen_by="--service",
    )  # fmt: skip


@asynccontextmanager
async def _open(_flags: Flags, shared: Shared) -> AsyncIterator[Part]:
    # The process has opened its reader of Prometheus first: here it serves as well.
    yield shared.readers[0]


KIND = PartKind(
    name="adapter",
    table=flags_.TABLE,
    problems=flags_.problems,
    targets=flags_.targets,
    open=_open,
    reads_prometheus=lambda _flags: True,
    api_services=(*_CUSTOM, *_EXTERNAL, *_RESOURCE),
    adopts=_adopts,
    has_lease=False,
    rights=NEEDED,
)
