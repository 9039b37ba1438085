"""What a part of a process is: its flags, what it needs, what it runs.

Each product builds its own parts; a command is a list of them (``podscale.cli.parts``), put
together by ``podscale.process.compose``.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from msgspec import Struct

from podscale.core.metrics import MetricsProvider
from podscale.kube.client.api import Api
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.metrics_apis.provider import ApiProvider
from podscale.process.clusters import Right, Targets
from podscale.serving.apis.api import ApiGroup, Route
from podscale.serving.flags import Flag, Flags
from podscale.serving.monitoring.health import Health
from podscale.serving.monitoring.logs import Verbosity
from podscale.serving.monitoring.selfmetrics import SelfMetrics

Work = tuple[str, Callable[[], Coroutine[Any, Any, object]]]


class Part(Protocol):
    @property
    def groups(self) -> Sequence[ApiGroup]:
        """The API groups that it serves; read once all parts of the process are open."""

    def works(self) -> Sequence[Work]:
        """Return what runs until the process ends, by name."""

    def register(self, health: Health) -> None:
        """Add its checks: what readiness waits for, and the loops that liveness watches."""

    def is_leader(self) -> bool:
        """Whether it may act now: under its Lease, or always where it has none."""

    async def stop(self) -> None:
        """Give its Lease back; what is being written is finished or left undone."""


class FeedReader(Part, Protocol):
    """The part that reads Prometheus for the whole process."""

    @property
    def source(self) -> MetricsProvider:
        """What the rules and the providers of other packages know."""

    @property
    def outage(self) -> str:
        """Since when and why Prometheus does not answer; empty where it does."""


class Shared(Struct, frozen=True, eq=False):
    """What the parts of one process share. Discovery and pods are kept current by it."""

    names: frozenset[str]  # of the parts in this process
    api: Api
    discovery: ApiDiscovery
    pods: PodStore
    scopes: Sequence[str]  # the namespaces of ``pods``; "" is all
    metrics: SelfMetrics
    wall: Callable[[], float]  # the time decisions are made at; the demo's may run faster
    is_launcher: bool  # started under an upstream program's name, with its rights
    parts: dict[str, Part]  # those that are open
    readers: list[FeedReader]  # of Prometheus; at most one

    def source(self, *, is_feed: bool) -> MetricsProvider:
        """Return where a part's metrics come from: this process's feed, or the metrics APIs."""
        if is_feed and self.readers:
            return self.readers[0].source
        return ApiProvider(self.api, self.discovery)

    def outage(self) -> str:
        """Return since when and why Prometheus does not answer; empty where it does, or where
        others read it."""
        return self.readers[0].outage if self.readers else ""


class PartKind(Struct, frozen=True):
    """A part that can be put into a process."""

    name: str
    table: Sequence[Flag]
    problems: Callable[[Flags], Sequence[str]]  # what makes its flags invalid
    targets: Callable[[Flags], Targets]  # how to reach the cluster; blocking
    open: Callable[[Flags, Shared], AbstractAsyncContextManager[Part]]
    # The namespaces whose pods it looks at; none named is all.
    namespaces: Callable[[Flags], Sequence[str]] = lambda _flags: ()
    needs_annotations: bool = False  # of pods
    reads_prometheus: Callable[[Flags], bool] = lambda _flags: False
    api_services: Sequence[str] = ()  # that may route to it
    # Those of them that --adopt takes over now; None: all.
    adopts: Callable[[Part], Sequence[str]] | None = None
    routes: Callable[[Part], Sequence[Route]] = lambda _part: ()  # what it serves outside of them
    has_lease: bool = True  # it acts under one
    rights: Sequence[Right] = ()  # whose absence is told at the start


class ApartKind(Struct, frozen=True):
    """A part with a connection, watches and a port of its own: others wait for its answers."""

    name: str
    table: Sequence[Flag]
    problems: Callable[[Flags], Sequence[str]]
    open: Callable[[Flags, Verbosity, int | None], AbstractAsyncContextManager["Stopping"]]


class Stopping(Protocol):
    """What is to be done between SIGTERM and the end."""

    async def stop(self) -> None:
        """Finish what is in flight."""


Kinds = Mapping[str, PartKind | ApartKind]
Flagged = Mapping[str, Flags]  # the parts of a process and their flags, in the kinds' order
