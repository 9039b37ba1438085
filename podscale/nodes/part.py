"""The nodes part of a process: watches, Lease, rounds."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from podscale.kube.client.resource import NODES, VPAS
from podscale.kube.client.wire import format_micro_time
from podscale.kube.events.recorder import Recorder
from podscale.kube.informer.list_watch import WatchSource
from podscale.kube.informer.reflector import Reflector
from podscale.kube.informer.store import Store
from podscale.kube.leadership.leading import Leadership, for_ever
from podscale.kube.leadership.lease import Term
from podscale.kube.leadership.own_pod import identity, leader_label_of, own_namespace
from podscale.kube.objects.cluster import Node
from podscale.nodes import flags as flags_
from podscale.nodes.cluster.live_requests import LiveRequests
from podscale.nodes.cluster.workloads import WorkloadVpa
from podscale.nodes.extender import Extender
from podscale.nodes.headroom.keeper import HeadroomKeeper
from podscale.nodes.leader_loop import LeaderLoop
from podscale.nodes.load_watcher import LoadWatcher
from podscale.nodes.room.room_maker import RoomMaker
from podscale.nodes.rounds import NodeRounds
from podscale.nodes.selfmetrics import NodesMetrics
from podscale.nodes.settings import NodesChoice
from podscale.nodes.watchdog import LAST_ROUND
from podscale.process.leading_part import LeadingPart
from podscale.process.part import Part, PartKind, Shared
from podscale.process.rights import Right
from podscale.serving.apis.api import Route
from podscale.serving.flags import Flags
from podscale.serving.monitoring.health import Health, HealthVerdict

COMPONENT = "podscale-nodes"  # in events
NEEDED: Sequence[Right] = (
    Right("list", "", "nodes", "nothing is decided"),
    Right("watch", "", "nodes", "nodes are listed every half minute instead"),
    Right("list", "", "pods", "nothing is decided"),
)


class NodesPart(LeadingPart):
    """One nodes part."""

    def __init__(self, shared: Shared, choice: NodesChoice, *, is_feed: bool) -> None:
        self._api = shared.api
        self._nodes: Store[Node] = Store()
        self._pods = shared.pods
        label = leader_label_of(shared.api, "nodes")
        leading = Leadership(shared.api, choice.lease, label, self._annotations)
        fenced = leading.api
        recorder = Recorder(fenced, COMPONENT, instance=identity(), clock=shared.wall)
        super().__init__("nodes", leading, recorder)
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
            wall=shared.wall,
        )
        self._vpas: Store[WorkloadVpa] = Store()
        self._loops: list[LeaderLoop] = []
        if choice.room is not None:
            maker = RoomMaker(fenced, shared.pods, self._vpas, choice.room, metrics,
                              recorder, wall=shared.wall)  # fmt: skip
            self._loops.append(
                LeaderLoop("nodes-room", maker.once, choice.interval_s, self.is_leader)
            )
        if choice.headroom is not None:
            keeper = HeadroomKeeper(fenced, self._vpas, choice.headroom, metrics, wall=shared.wall)
            self._loops.append(
                LeaderLoop("nodes-headroom", keeper.once, choice.interval_s, self.is_leader)
            )
        self.routes = LoadWatcher(self.rounds, shared.wall).routes()
        if choice.mode == "extender":
            live = LiveRequests(shared.pods, choice.namespace)
            stale_s = 2 * choice.ballast.window_s
            extender = Extender(self.rounds, live, stale_s=stale_s, wall=shared.wall)
            self.routes = (*self.routes, *extender.routes())

    def watches(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the watches and the rounds: they look whoever leads."""
        watches = [Reflector(self._api, WatchSource(NODES, Node), self._nodes).run()]
        if self._loops:
            watches.append(Reflector(self._api, WatchSource(VPAS, WorkloadVpa), self._vpas).run())
        return *watches, self.rounds.run(), *(loop.run() for loop in self._loops)

    async def lead(self, term: Term) -> None:
        """Lead, and do nothing else: the rounds ask whether they may write."""
        await for_ever(term)

    def register(self, health: Health) -> None:
        """Make readiness wait for the first lists, and tell of rounds that hang."""
        health.add_liveness("nodes-rounds", self.rounds.heartbeat)
        for loop in self._loops:
            health.add_liveness(loop.name, loop.heartbeat)
        health.add_readiness("nodes-synced", self._synced)

    def _annotations(self) -> Mapping[str, str]:
        worked_s = self.rounds.worked_s
        return {} if worked_s is None else {LAST_ROUND: format_micro_time(worked_s)}

    def _synced(self) -> HealthVerdict:
        if self._nodes.is_synced and self._pods.is_synced:
            return HealthVerdict()
        return HealthVerdict(False, "nodes and pods are not listed yet")


def _is_feed(flags: Flags) -> bool:
    return flags.text("metrics-source") == "feed"


def _routes(part: Part) -> Sequence[Route]:
    return part.routes if isinstance(part, NodesPart) else ()


@asynccontextmanager
async def _open(flags: Flags, shared: Shared) -> AsyncIterator[NodesPart]:
    namespace = await asyncio.to_thread(own_namespace, "podscale")
    choice = flags_.choice(flags, own_namespace=namespace)
    yield NodesPart(shared, choice, is_feed=_is_feed(flags))


KIND = PartKind(
    name="nodes",
    table=flags_.TABLE,
    problems=flags_.problems,
    targets=flags_.targets,
    open=_open,
    reads_prometheus=_is_feed,
    routes=_routes,
    rights=NEEDED,
)
