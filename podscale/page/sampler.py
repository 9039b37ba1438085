"""Looks from time to time at what nobody tells us, in parts of the same process as far as they run:
usage, requests, recommendations, counters.

Usage is asked for at most ``MOST_PODS`` pods a round, so that an open page costs the same on
every cluster: workloads somebody looks at come first, then those with a VPA, then the others.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog
from msgspec import Struct, structs

from hpa.history.decision_log import DecisionLog
from podscale.core.metrics import Answer, MetricsProvider, PodResource, PodSamples, Unavailable
from podscale.core.pace import LoopPace
from podscale.core.selectors import selector as selectors
from podscale.core.selectors.selector import SelectorError
from podscale.explain.explanation import Explanation
from podscale.kube.columns.pod_set import PodView
from podscale.kube.columns.pods import PodStore
from podscale.nodes.conditions import DecidedNodes
from podscale.page import shown
from podscale.page.board import ShownWorkload, WorkloadBoard
from podscale.page.health import FeedHealth, FeedSource
from vpa.decisions.decisions import KnownSizing, explain_update, explain_vpa
from vpa.model.samples.membership import VpaKey
from vpa.updater.decide.decision import AppliedDecision


class Vpas(Protocol):
    """What recommender and updater know now of each VPA: a ``vpa.decisions.api.SizingApi``."""

    def keys(self) -> Iterable[VpaKey]:
        """Return the VPAs that are recommended for here."""

    def sized(self, key: VpaKey) -> KnownSizing | None:
        """Return one of them; None: it is gone."""


class PageSources(Struct, frozen=True):
    """Everything the page reads. What does not run here is None."""

    traces: DecisionLog | None = None
    vpas: Vpas | None = None
    pods: PodStore | None = None
    provider: MetricsProvider | None = None
    feed: FeedSource | None = None
    is_leader: Callable[[], bool] = lambda: True
    nodes: Callable[[], DecidedNodes | None] = lambda: None


MOST_PODS = 2000
MOST_VPAS = 500  # a round, in turn: a quarter of a second
_LOOKED_AT_S = 900.0
_TIMEOUT_S = 10.0
_NO_ANSWER = "Usage was not answered in time."

_log = structlog.get_logger()


class _Asked(Struct, frozen=True):
    workload: ShownWorkload
    pods: tuple[PodView, ...]
    selector: str


@dataclass(eq=False)
class Sampler:
    """Feeds a board from ``sources``."""

    board: WorkloadBoard
    feed: FeedHealth
    sources: PageSources
    wall: Callable[[], float]
    period_s: float  # real time between two looks, whatever ``wall`` does
    _turn: int = 0  # whose turn it is among more VPAs than are looked at in a round

    def __post_init__(self) -> None:
        self._acts: dict[VpaKey, dict[str, float]] = {}  # when, by pods that the updater knows

    async def run(self) -> None:
        """Look for ever."""
        while True:
            try:
                await self.once()
            except Exception:  # noqa: BLE001 - what the page cannot see must not end the process
                _log.exception("page: look failed")
            await asyncio.sleep(self.period_s)

    async def once(self) -> None:
        self.feed.look(self.wall())
        if not self.sources.is_leader():
            # Another replica decides: what was decided here would be shown as if it stood.
            self.board.forgotten(None)
        if self.sources.vpas is not None:
            await self._look_at_vpas(self.sources.vpas)
        if self.sources.pods is not None and self.sources.provider is not None:
            await self._sample(self.sources.pods, self.sources.provider)

    async def _look_at_vpas(self, vpas: Vpas) -> None:
        keys = list(vpas.keys())
        pace = LoopPace()
        for key in self._in_turn(keys):
            await pace.rest()
            if (sized := vpas.sized(key)) is not None:
                self._look_at_vpa(key, sized)
        alive = {(key.namespace, key.name) for key in keys}
        self.board.keep_vpas(alive)
        self._acts = {key: self._acts[key] for key in keys if key in self._acts}

    def _in_turn(self, keys: Sequence[VpaKey]) -> Sequence[VpaKey]:
        # Explaining one takes a millisecond, and recommendations change once a minute.
        if len(keys) <= MOST_VPAS:
            return keys
        start = self._turn % len(keys)
        self._turn = start + MOST_VPAS
        return [*keys[start:], *keys[:start]][:MOST_VPAS]

    def _look_at_vpa(self, key: VpaKey, known: KnownSizing) -> None:
        explained, now = explain_vpa(known), self.wall()
        found = shown.recommended(known, explained, now)
        if found is None:
            return
        id_ = (key.namespace, found.kind, found.target)
        before = self.board.get(id_)
        change = shown.changed(before.vpa if before is not None else None, found)
        workload = self.board.recommended((key.namespace, key.name), found)
        if change is not None:
            title, direction = change
            mark = shown.sizing_mark(now, "size", title, explained.first_reason, direction)
            self.board.noted(workload, mark, explained)
        acts = {pod.pod: pod.act for pod in known.pods if pod.act is not None}
        noted = self._acts.get(key, {})
        for name, act in acts.items():
            if noted.get(name) != act.at:
                self._note_act(workload, name, act)
        self._acts[key] = {name: act.at for name, act in acts.items()}

    def _note_act(self, workload: ShownWorkload, pod: str, act: AppliedDecision) -> None:
        due = act.decision.due
        title = f"{pod} {'resized in place' if act.in_place else 'evicted'}"
        is_up = due is not None and due.priority.scale_up  # a boost that ends is not due
        explained = structs.replace(explain_update(act.decision), change="")  # it is done
        mark = shown.sizing_mark(
            act.at, "pod", title, explained.first_reason, "up" if is_up else "down"
        )
        self.board.noted(workload, mark, explained)

    async def _sample(self, pods: PodStore, provider: MetricsProvider) -> None:
        asked: list[_Asked] = []
        left, pace = MOST_PODS, LoopPace()
        for workload in self._by_interest():
            await pace.rest()
            if left <= 0:
                break
            found = self._pods_of(workload, pods)
            if found is not None:
                left -= max(len(found.pods), 1)
                asked.append(found)
        try:
            answers = await _answers(asked, provider)
        except TimeoutError:
            answers = [Unavailable("Timeout", _NO_ANSWER)] * (2 * len(asked))
        now = self.wall()
        for each, cpu, memory in zip(asked, answers[::2], answers[1::2], strict=True):
            self._take(each, cpu, memory, now)

    def _by_interest(self) -> list[ShownWorkload]:
        now = self.wall()

        def interest(workload: ShownWorkload) -> tuple[bool, bool]:
            return (now - workload.looked_at > _LOOKED_AT_S, workload.vpa is None)

        return sorted(self.board, key=interest)

    def _pods_of(self, workload: ShownWorkload, pods: PodStore) -> _Asked | None:
        if not workload.selector:
            workload.sizing_note = "The pods are not known: the target does not tell its selector."
            return None
        try:
            selector = selectors.parse(workload.selector)
        except SelectorError as error:
            workload.sizing_note = f"The pods are not known: {error}"
            return None
        found = pods.select(workload.id[0], selector)
        return _Asked(workload, tuple(found.views()), str(selector))

    def _note_kills(self, asked: _Asked) -> None:
        kills = {
            (pod.name, state.name): float(run.finished_at)  # of a class of its own
            for pod in asked.pods
            for state in pod.states
            for run in (state.last_terminated, state.terminated)
            if run is not None and run.reason == "OOMKilled" and run.finished_at is not None
        }
        for (pod, container), at in kills.items() - asked.workload.kills.items():
            text = f"Container {container} of {pod} needed more memory than its limit."
            mark = shown.sizing_mark(at, "pod", f"{pod} OOM-killed", "OOMKilled", "failed")
            told = Explanation((mark.reason,), {"container": container}, {}, (text,), text, "")
            self.board.noted(asked.workload, mark, told)
        asked.workload.kills = kills

    def _take(self, asked: _Asked, cpu: Answer, memory: Answer, now: float) -> None:
        self._note_kills(asked)
        workload, vpa = asked.workload, asked.workload.vpa
        failure = next((a for a in (cpu, memory) if not isinstance(a, PodSamples)), None)
        outage = self.sources.feed.outage() if self.sources.feed is not None else None
        why = getattr(failure, "message", "") if outage is None else outage.failure.message
        workload.sizing_note = why if asked.pods else ""
        self.board.used(
            workload,
            now,
            shown.usage("cpu", cpu if isinstance(cpu, PodSamples) else None, asked.pods,
                         vpa.cpu_cores if vpa is not None else None),
            shown.usage("memory", memory if isinstance(memory, PodSamples) else None, asked.pods,
                         vpa.memory_bytes if vpa is not None else None),
        )  # fmt: skip


async def _answers(asked: Sequence[_Asked], provider: MetricsProvider) -> Sequence[Answer]:
    questions = [
        PodResource(each.workload.id[0], each.selector, resource)
        for each in asked
        for resource in ("cpu", "memory")
    ]
    async with asyncio.timeout(_TIMEOUT_S):
        return await provider.answer(questions) if questions else ()
