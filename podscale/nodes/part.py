"""The nodes part of a process: watches, Lease, rounds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from podscale.kube.client.resource import NODES, VPAS
from podscale.kube.client.wire import format_micro_time
from podscale.kube.events import Recorder
from podscale.kube.informer.list_watch import WatchSource
from podscale.kube.informer.reflector import Reflector
from podscale.kube.informer.store import Store
from podscale.kube.leadership import leading
from podscale.kube.leadership.lease import Term
from podscale.kube.objects.cluster import Node
from podscale.kube.objects.vpa import StoredVpa
from podscale.nodes import flags as flags_
from podscale.nodes.apis import NodeApis
from podscale.nodes.cluster.pod_sums import LiveRequests
from podscale.nodes.decide.ballast import BallastSettings
from podscale.nodes.headroom.keeper import HeadroomKeeper
from podscale.nodes.room.room_maker import RoomMaker
from podscale.nodes.rounds import NodeRounds
from podscale.nodes.selfmetrics import NodesMetrics
from podscale.nodes.watchdog import LAST_ROUND
from podscale.process.clusters import Right
from podscale.process.leading_part import LeadingPart, PeriodicLoop
from podscale.process.part import Part, PartKind, Shared
from podscale.serving.apis.api import Route
from podscale.serving.flags import Flags
from podscale.serving.monitoring.health import Health, HealthVerdict

COMPONENT = "podscale-nodes"  # in events
_ACTING_S = 300.0  # a round that reads and evicts much
NEEDED: Sequence[Right] = (
    Right("list", "", "nodes", "nothing is decided"),
    Right("watch", "", "nodes", "nodes are listed every half minute instead"),
    Right("list", "", "pods", "nothing is decided"),
)


class NodesPart(LeadingPart):
    def __init__(self, shared: Shared, choice: flags_.NodesChoice, *, is_feed: bool) -> None:
        self._api = shared.api
        self._nodes: Store[Node] = Store()
        self._pods = shared.pods
        label = leading.leader_label_of(shared.api, "nodes")
        leadership = leading.Leadership(shared.api, choice.lease, label, self._annotations)
        fenced, identity = leadership.api, leading.identity()
        recorder = Recorder(fenced, COMPONENT, instance=identity, clock=shared.wall)
        super().__init__("nodes", leadership, recorder)
        metrics = NodesMetrics(shared.metrics.registry)
        self.rounds = NodeRounds(
            fenced,
            shared.source(is_feed=is_feed),
            self._nodes,
            shared.pods,
            choice,
            metrics,
            recorder,
            is_leader=self.is_leader,
            outage=shared.outage,
            wall=shared.wall,
        )
        self._vpas: Store[StoredVpa] = Store()
        every_s, longest_s = choice.interval_s, 4 * max(choice.interval_s, choice.timeout_s)
        self._measuring = PeriodicLoop(
            "nodes-rounds", self.rounds.once, every_s, longest_s=longest_s + every_s
        )
        acting: dict[str, Callable[[], Awaitable[None]]] = {}
        if choice.room is not None:
            acting["nodes-room"] = RoomMaker(fenced, shared.pods, self._vpas, choice.room, metrics,
                                             recorder, wall=shared.wall).once  # fmt: skip
        if choice.headroom is not None:
            acting["nodes-headroom"] = HeadroomKeeper(
                fenced, self._nodes, shared.pods, self._vpas, choice.headroom, metrics,
                lambda: shared.discovery.mapper, wall=shared.wall,
            ).once  # fmt: skip
        self._acting = [
            PeriodicLoop(*each, every_s, longest_s=_ACTING_S + every_s) for each in acting.items()
        ]
        live = LiveRequests(shared.pods, choice.namespace) if choice.mode == "extender" else None
        stale_s = 2 * choice.ballast.window_s
        apis = NodeApis(self.rounds, shared.api, live, stale_s=stale_s, wall=shared.wall)
        self.routes = apis.routes()

    def watches(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the watches and the rounds: they look whoever leads."""
        watches = [Reflector(self._api, WatchSource(NODES, Node), self._nodes).run()]
        if self._acting:
            watches.append(Reflector(self._api, WatchSource(VPAS, StoredVpa), self._vpas).run())
        return *watches, self._measure()

    async def lead(self, term: Term) -> None:
        """Make and keep room, where that is chosen; the rounds ask whether they may write."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(leading.for_ever(term))
                await self._wait_synced()
                for loop in self._acting:
                    group.create_task(loop.run())
        finally:
            self.rounds.end_term()

    def register(self, health: Health) -> None:
        """Make readiness wait for the first lists, and tell of rounds that hang."""
        for loop in (self._measuring, *self._acting):
            health.add_liveness(loop.name, loop.heartbeat)
        health.add_readiness("nodes-synced", self._synced)

    def _annotations(self) -> Mapping[str, str]:
        worked_s = self.rounds.worked_s
        return {} if worked_s is None else {LAST_ROUND: format_micro_time(worked_s)}

    async def _measure(self) -> None:
        await self._wait_synced()
        await self._measuring.run()

    async def _wait_synced(self) -> None:
        await self._nodes.wait_synced()
        await self._pods.wait_synced()

    def _synced(self) -> HealthVerdict:
        is_ok = self._nodes.is_synced and self._pods.is_synced
        return HealthVerdict(is_ok, "" if is_ok else "nodes and pods are not listed yet")


def _is_feed(flags: Flags) -> bool:
    return flags.text("metrics-source") == "feed"


def _routes(part: Part) -> Sequence[Route]:
    return part.routes if isinstance(part, NodesPart) else ()


def kind(ballast: BallastSettings = BallastSettings()) -> PartKind:  # noqa: B008
    """Return the part; ``ballast`` is what no flag says."""

    @asynccontextmanager
    async def opened(flags: Flags, shared: Shared) -> AsyncIterator[NodesPart]:
        namespace = await asyncio.to_thread(leading.own_namespace, "podscale")
        choice = flags_.choice(flags, own_namespace=namespace, ballast=ballast)
        yield NodesPart(shared, choice, is_feed=_is_feed(flags))

    return PartKind(
        name="nodes",
        table=flags_.TABLE,
        problems=flags_.problems,
        targets=flags_.targets,
        open=opened,
        reads_prometheus=_is_feed,
        routes=_routes,
        rights=NEEDED,
    )
