"""The rounds over all nodes: read usage, decide, write what is due.

Every replica decides, so that each can answer schedulers; only the leader writes: the requests of
ballast in mode ``ballast``, taints in mode ``taint``.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from podscale.core import metrics as questions
from podscale.kube.client.api import Api
from podscale.kube.client.errors import NotLeading
from podscale.kube.columns.pod_set import amounts
from podscale.kube.columns.pods import PodStore
from podscale.kube.events import Recorder
from podscale.kube.informer.store import Store
from podscale.kube.objects.cluster import Node, ObjectReference
from podscale.nodes.cluster.node_table import NodeArrays, NodeTable
from podscale.nodes.cluster.patches import each_of, hand_over, is_tainted, renew, write_taint
from podscale.nodes.cluster.pod_sums import PodSums, PodTotals, unused
from podscale.nodes.conditions import DecidedNodes, conditions
from podscale.nodes.decide import ballast
from podscale.nodes.decide.ballast import CPU, LEAST, MEMORY, Bools, Floats, Reason
from podscale.nodes.decide.usage_windows import UsageWindows
from podscale.nodes.flags import NodesChoice
from podscale.nodes.selfmetrics import NodesMetrics

_log = structlog.get_logger(__name__)

Write = Coroutine[Any, Any, str]  # to what became of it
# Conditions that are events of the DaemonSet as well: it is there.
_EVENTS = {each.token for each in (Reason.NO_BALLAST, Reason.STALE_USAGE, Reason.LOWER_PRIORITY)}
# Of capacity: what is more is no measurement of a node. CPU exceeds it a little, when a rate is
# taken over samples that came late.
_MOST_USAGE = 2.0
_NEVER = -np.inf, LEAST[:, 0]  # written, and what is held


@dataclass(eq=False)
class NodeRounds:
    """Run ``once`` again and again, on every replica; ``decided`` is the newest round."""

    api: Api  # fenced by the Lease
    provider: questions.MetricsProvider
    nodes: Store[Node]
    pods: PodStore
    choice: NodesChoice
    metrics: NodesMetrics
    recorder: Recorder
    is_leader: Callable[[], bool]
    outage: Callable[[], str] = str  # since when and why Prometheus does not answer
    wall: Callable[[], float] = time.time
    decided: DecidedNodes | None = None
    # Unix time of the last round, while leading, after which nothing was left held that
    # should have been let go; None: there was none. The watchdog acts when it is long ago.
    worked_s: float | None = None
    _is_refused: bool = False  # the last writes, and something to be let go was among them
    _usage_problem: str = ""  # of the last round
    _told: Mapping[str, str] = field(default_factory=dict)  # the conditions of the last round
    _events: Set[str] = frozenset()  # those that held when we led last
    _began_s: float | None = None  # unix time of the first round

    def __post_init__(self) -> None:
        self._table = NodeTable(self.nodes, self.choice.ballast, self.choice.selector)
        self._totals = PodTotals(self.pods, self.choice.namespace)
        self.windows = UsageWindows(self.choice.interval_s)
        self._memory = _Memory()

    def end_term(self) -> None:
        """Say nothing of rounds any more: whoever leads next does, and we may lead after them."""
        self.worked_s, self._is_refused = None, False

    async def once(self) -> None:
        """Run one round; raises what it fails by, apart from ``NotLeading``."""
        try:
            await self._round()
        except NotLeading:
            _log.info("round ended: another replica leads")
        except Exception:
            self.metrics.rounds.labels("failed").inc()
            raise

    async def _round(self) -> None:
        await self._measure()
        # A watch that is behind may lack pods: what they request would be given away twice.
        if not (self.nodes.is_current() and self.pods.is_current()):
            _log.warning("nothing decided: the watches are not current")
            self.metrics.rounds.labels("behind").inc()
            return
        now = self.wall()
        decided = await self._decide(now)
        self.decided = decided
        self.metrics.rounds.labels("decided").inc()
        if self.choice.mode == "taint":
            await self._taint(decided)
            return
        self._tell(decided, decided.plan.reason)
        if self.choice.mode == "ballast":
            if self.is_leader():
                await self._write(decided)
            return
        for place in np.flatnonzero(decided.plan.is_due).tolist():
            held = decided.plan.requests[:, place]
            self._memory.note_write(decided.nodes.names[place], now, held)
        self._memory.forget(decided.nodes)

    async def _measure(self) -> None:
        nodes = self._table.arrays()
        names = nodes.names
        self.windows.keep(names)
        if not names:
            return
        answer = await self._answer(questions.NodeUsage(names))
        if not isinstance(answer, questions.NodeUsageColumns):
            self.metrics.failures.labels(getattr(answer, "reason", "WrongAnswer")).inc()
            self._usage_problem = getattr(answer, "message", "")
            return
        self._usage_problem = ""
        usage = np.stack([answer.cpu_cores * 1000, answer.memory_bytes])
        usage = np.where(usage > _MOST_USAGE * nodes.capacity, np.nan, usage)
        time_s = np.where(np.isnan(answer.time_s), answer.asked_s, answer.time_s)
        self.windows.add(usage, time_s)

    async def _answer(self, question: questions.Question) -> questions.Answer:
        try:
            async with asyncio.timeout(self.choice.timeout_s):
                return (await self.provider.answer([question]))[0]
        except TimeoutError:
            text = f"no answer within {self.choice.timeout_s:g} s"
            return questions.Unavailable("Timeout", text)

    async def _decide(self, now: float) -> DecidedNodes:
        settings = self.choice.ballast
        nodes = self._table.arrays()
        self.windows.keep(nodes.names)
        sums = self._totals.sums(nodes, now - settings.window_s)
        columns = ballast.NodeColumns(
            nodes.capacity,
            nodes.allocatable,
            self.windows.mean(settings.window_s),
            await self._unused(sums, nodes),
            sums.requested,
            self.windows.measured_s(),
        )
        held = sums.held if self.choice.mode == "ballast" else self._memory.held(nodes)
        # A second ballast pod needs room to start, also where users' pods came after it was made.
        most = np.maximum(nodes.allocatable - sums.requested - LEAST, LEAST)
        is_cramped = np.isnan(sums.started_s) & (held > most).any(axis=0)
        written_s = self._memory.written_s(nodes)
        made = ballast.plan(
            columns, nodes,
            ballast.HeldBallast(held, written_s, sums.has_older | is_cramped, sums.has_lesser),
            nodes.thresholds, now, settings,
        )  # fmt: skip
        return DecidedNodes(nodes, columns, sums, made, written_s, now)

    async def _unused(self, sums: PodSums, nodes: NodeArrays) -> Floats:
        young = self.pods.at(sums.young_rows)
        if not young:
            return np.zeros((2, len(nodes.names)))
        namespaces = tuple(sorted({view.namespace for view in young}))
        answer = await self._answer(questions.ContainerUsage(namespaces))
        # What is not measured counts as requested: the cautious way for a young pod.
        usage = answer if isinstance(answer, questions.ContainerColumns) else None
        return unused(young, usage, nodes)

    async def _write(self, decided: DecidedNodes) -> None:
        requests, sums, names = decided.plan.requests, decided.sums, decided.nodes.names

        def resized(place: int) -> Write | None:
            pods = self._totals.ballast(sums, place, names[place])
            # Together they hold what is wanted, with the one that is being made.
            others = max(len(pods) - 1, int(np.isnan(sums.started_s[place])))
            wanted = np.maximum(requests[:, place] - LEAST[:, 0] * others, LEAST[:, 0])
            return hand_over(self.api, self.pods, pods, wanted.tolist()) if pods else None

        is_less = np.asarray((requests < sums.held).any(axis=0))
        is_recent = decided.at_s - decided.written_s < self.choice.ballast.write_interval_s
        await self._write_each(decided, decided.plan.is_due, is_less, resized)
        late = ballast.renewals(
            decided.columns, decided.plan, sums.started_s, sums.rival_s, is_recent=is_recent
        )

        async def renewed(place: int) -> None:
            pods = self._totals.ballast(sums, place, names[place])
            if not pods:
                return
            self._memory.note_write(names[place], decided.at_s)
            if self._takes_a_pod(decided, place):
                result = await renew(self.api, self.pods, pods[0])
                self.metrics.renewals.labels(result).inc()

        await each_of(late.tolist(), renewed)

    def _takes_a_pod(self, decided: DecidedNodes, place: int) -> bool:
        # One that waits keeps those of other nodes waiting, beyond the DaemonSet's maxSurge.
        node = self.nodes.get("", decided.nodes.names[place])
        most = amounts(node.status.allocatable if node is not None else None).get("pods", np.inf)
        return bool(1000 * (np.count_nonzero(decided.sums.places == place) + 1) <= most)

    async def _write_each(
        self,
        decided: DecidedNodes,
        is_due: Bools,
        is_first: Bools,
        write: Callable[[int], Write | None],
    ) -> None:
        places = np.flatnonzero(is_due)
        due = places[np.argsort(~is_first[places], kind="stable")].tolist()

        async def written(place: int) -> tuple[str, bool] | None:
            if self.wall() - decided.at_s > self.choice.interval_s:
                return None  # a slow API server: what is left is decided anew
            writing = write(place)
            if writing is None:
                return None
            # Noted whatever comes of it: one that is refused is not tried every round.
            self._memory.note_write(decided.nodes.names[place], decided.at_s)
            result = await writing
            self.metrics.writes.labels(result).inc()
            return result, bool(is_first[place])

        results = await each_of(due, written)
        # One pod that cannot be written is no reason to let all others go.
        if ("done", True) in results or ("done", False) in results:
            self._is_refused = False
        elif ("failed", True) in results:
            self._is_refused = True
        if not self._is_refused and self.is_leader():
            self.worked_s = decided.at_s
        self._memory.forget(decided.nodes)

    async def _taint(self, decided: DecidedNodes) -> None:
        nodes = [self.nodes.get("", name) for name in decided.nodes.names]
        has = np.array([node is not None and is_tainted(node) for node in nodes], np.bool_)
        self.metrics.tainted.set(has.sum())
        plan = ballast.taint_plan(
            decided.columns, decided.nodes, has,
            decided.written_s, decided.nodes.thresholds, decided.at_s,
            self.choice.ballast,
        )  # fmt: skip
        self._tell(decided, plan.reason, has)

        def tainted(place: int) -> Write | None:
            node, is_wanted = nodes[place], bool(plan.is_wanted[place])
            return None if node is None else write_taint(self.api, node, is_wanted=is_wanted)

        if self.is_leader():
            await self._write_each(decided, plan.is_due, ~plan.is_wanted, tainted)

    def _tell(
        self, decided: DecidedNodes, reasons: NDArray[np.uint8], is_tainted: Bools | bool = False
    ) -> None:
        counts = np.bincount(reasons, minlength=len(Reason))
        for reason in Reason:
            self.metrics.reasons.labels(reason.token).set(int(counts[reason]))
        held = np.nansum(decided.sums.held, axis=1)
        self.metrics.held.labels("cpu").set(held[CPU] / 1000)
        self.metrics.held.labels("memory").set(held[MEMORY])
        if self._began_s is None:
            self._began_s = decided.at_s
        outage, was = self.outage() or self._usage_problem, self._told
        self._told = conditions(decided, reasons, self.windows.newest_s, is_tainted, self._began_s,
                                outage, self.choice)  # fmt: skip
        for token in was.keys() - self._told.keys():
            _log.info("it is over", reason=token)
        for token, message in self._told.items():
            if token not in was:
                _log.warning(message, reason=token)
        if self.choice.mode != "ballast" or not self.is_leader():
            return
        about = ObjectReference("DaemonSet", self.choice.namespace, "podscale-ballast",
                                api_version="apps/v1")  # fmt: skip
        had, self._events = self._events, _EVENTS & self._told.keys()
        for token in self._events - had:
            self.recorder.event(about, "Warning", token, self._told[token])


class _Memory:
    """What earlier rounds did: when nodes were written, and in modes that write nothing, what
    they would hold."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[float, Floats]] = {}  # by node

    def written_s(self, nodes: NodeArrays) -> Floats:
        return np.array([self._of.get(name, _NEVER)[0] for name in nodes.names])

    def held(self, nodes: NodeArrays) -> Floats:
        rows = [self._of.get(name, _NEVER)[1] for name in nodes.names]
        return np.array(rows).reshape(-1, 2).T

    def note_write(self, name: str, now: float, held: Floats = LEAST[:, 0]) -> None:
        self._of[name] = now, held

    def forget(self, nodes: NodeArrays) -> None:
        for name in self._of.keys() - nodes.places.keys():
            del self._of[name]
