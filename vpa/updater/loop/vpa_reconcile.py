"""One VPA's turn in the updater's loop: which of its pods are disturbed now, most urgent first.

Every decision is ``decide_update``'s. Immediately before each act the pod, the watches and
the budgets are looked at again.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import structlog
from msgspec import Struct, field

from podscale.core.disruptions import DisruptionPace
from podscale.core.pace import LoopPace
from podscale.kube.client.eviction import DisruptionOutcome
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.vpa import Vpa, VpaRecommendation, update_mode
from vpa.admission.patches.boost import expired
from vpa.model.samples.membership import VpaKey
from vpa.stores import VpaStores
from vpa.updater.cluster.pod_disruptor import PodDisruptor
from vpa.updater.cluster.pod_observer import BudgetedPods, PodObserver, alike_to
from vpa.updater.decide import disruption_budget as budgets
from vpa.updater.decide import resize
from vpa.updater.decide.decision import (
    AppliedDecision,
    LoopView,
    Pdb,
    UpdateDecision,
    decide_update,
)
from vpa.updater.flags import Options
from vpa.updater.loop.memory import DailyBudgets, PodDecisions, ResizedReturns
from vpa.updater.selfmetrics import ReconcileReport, UpdaterMetrics

_log = structlog.get_logger()


class OutOfTime(Exception):
    """The loop's time is over; the next one goes on here."""


class NotCurrent(Exception):
    """The watches have fallen silent: nothing is disturbed by what they showed last."""


class _Changed(Exception):
    # The VPA is not the one that this turn began with.
    pass


class DisruptionTools(Struct, frozen=True):
    """What all turns act with."""

    stores: VpaStores
    observer: PodObserver
    actor: PodDisruptor
    spending: DailyBudgets
    decisions: PodDecisions
    returns: ResizedReturns
    options: Options
    metrics: UpdaterMetrics
    evictions: budgets.TokenBucket
    resizes: budgets.TokenBucket


class VpaReconcile(Struct):
    """The pods of one VPA in one loop."""

    tools: DisruptionTools
    key: VpaKey
    vpa: Vpa
    rivals: Sequence[Vpa]
    budget: budgets.DisruptionBudget
    pace: DisruptionPace
    loop: LoopView
    deadline: float  # a time of the event loop
    wall: Callable[[], float]  # the time of day
    report: ReconcileReport
    updates: bool  # False: only boosts end
    spent: int = 0  # disruptions of the day, where a budget limits them
    holding: set[BudgetedPods] = field(default_factory=set)  # whose budget the API server refused
    # All pods of a group when the turn began.
    known: dict[budgets.Owner, list[PodView]] = field(default_factory=dict)

    async def run(self, pods: Sequence[PodView], unscheduled: Sequence[PodView] = ()) -> None:
        """Update what is due of the live ``pods``; raises ``OutOfTime`` and ``NotCurrent``."""
        # The watch's own events count the losses, so that every act may ask for them.
        leave = self.tools.observer.follow(self.budget.changed)
        try:
            await self._run(pods, unscheduled)
        except _Changed:
            _log.info("turn ended: the VPA was changed or deleted", namespace=self.key.namespace,
                      vpa=self.key.name)  # fmt: skip
        finally:
            leave()
        self.report.end()

    async def _run(self, pods: Sequence[PodView], unscheduled: Sequence[PodView]) -> None:
        settings, pace = self.tools.options.settings, LoopPace()
        free = [pod for pod in pods if not self._counts_as_begun(pod)]
        self._look_back([*pods, *unscheduled])
        for pod in pods:
            is_live = self.tools.observer.again(pod) is not None
            self.budget.watch(pod, is_live=is_live)
            await pace.rest()
        if settings.cpu_startup_boost:
            # Whatever the VPA says by now and whether or not admission lives: the annotation
            # promises that the boost ends.
            for pod in free:
                await self._unboost(pod)
                await pace.rest()
        if not self.updates:
            return
        if (per_day := self.pace.per_day) is not None:
            spent = await self.tools.spending.today(self.key, self.loop.now)
            self.spent = per_day if spent is None else spent
        waiting = []
        for pod in free:
            over = expired(pod, self.vpa, self.loop.now)
            await pace.rest()
            if resize.awaits_unboost(pod, self.vpa, over, settings):
                continue
            decision = self._decide(pod, asks_budgets=False)
            if decision.due is not None and decision.due.is_due:
                waiting.append((decision.due.priority.order, pod, decision))
        waiting.sort(key=lambda entry: entry[0], reverse=True)
        self.report.waiting([decision for _, _, decision in waiting])
        for _, pod, decision in waiting:
            await pace.rest()
            if decision.action != "evict" or not self._is_refused(pod):
                await self._act(pod)

    async def _act(self, pod: PodView) -> None:
        decision = self._decide(pod, asks_budgets=True)
        if decision.action != "none":
            resizing = decision.action == "resize"
            await self._wait(self.tools.resizes if resizing else self.tools.evictions)
            present = self.tools.observer.again(pod)
            if present is None:
                return
            await self._recount(present)
            pod, decision = present, self._decide(present, asks_budgets=True)
        is_infeasible = decision.reasons[0] == "ResizeInfeasible" and decision.action == "none"
        if is_infeasible and update_mode(self.vpa) == "InPlace":
            self.tools.actor.tell_skipped(pod)
            self.report.count(self.tools.metrics.skipped)
        if decision.action == "resize":
            await self._resize(pod, decision)
        elif decision.action == "evict":
            await self._evict(pod, decision)

    async def _wait(self, tokens: budgets.TokenBucket) -> None:
        loop = asyncio.get_running_loop()
        wait_s = tokens.wait_s(loop.time())
        if loop.time() + wait_s > self.deadline:
            raise OutOfTime
        if wait_s:
            await asyncio.sleep(wait_s)
        tokens.take(loop.time())
        if not self.tools.stores.is_current():
            raise NotCurrent
        self._check_vpa()

    def _check_vpa(self) -> None:
        # A loop may last as long as its interval, and an owner's no must count at once.
        if not budgets.is_unchanged(self.tools.stores.vpa(self.key), self.vpa):
            raise _Changed

    def _decide(
        self, pod: PodView, *, asks_budgets: bool, pdb: Pdb | None = None
    ) -> UpdateDecision:
        tools = self.tools
        view = tools.observer.look(
            pod, self.vpa, self.rivals, disrupted_today=self.spent, asks_budgets=asks_budgets
        )
        group = self.budget.group(pod)
        if isinstance(group, budgets.PodGroup):
            unsized_s = tools.returns.held_s(self.key, group.owner)
            ended = self.budget.ended.get(group.owner)
            view = msgspec.structs.replace(view, held_by=ended, unsized_s=unsized_s)
        if pdb is not None:
            view = msgspec.structs.replace(view, pdb=pdb)
        settings = tools.options.settings
        loop = msgspec.structs.replace(self.loop, present=self.wall())
        decision = decide_update(view, self.budget, loop, settings, self.pace)
        tools.decisions.note(pod, self.key, decision, self.loop.now)
        return decision

    async def _resize(self, pod: PodView, decision: UpdateDecision) -> None:
        tools, vpa = self.tools, self.vpa
        if not await self._spend(pod):
            return
        acted = await tools.actor.resize(
            pod, vpa, tools.stores.ranges(self.key.namespace), self.loop.now
        )
        recommendation = vpa.status.recommendation or VpaRecommendation()
        if decision.record_infeasible:
            await self._remember(pod, recommendation)
        self._counts(pod, acted, in_place=True)
        if acted.outcome not in ("done", "unknown"):
            self._refund()
        if acted.outcome == "done":
            self.report.count(tools.metrics.updated)
            tools.decisions.did(pod, self.key, AppliedDecision(self.wall(), True, decision))
        if acted.outcome in ("done", "gone", "nothing"):
            return
        self.report.failed(acted, tools.metrics.failed_updates, "InPlaceUpdateError")
        if acted.outcome not in ("refused", "node-capacity"):
            return  # an error is no answer to the question whether the pod can be resized
        next_ = resize.after_refused_resize(
            update_mode(vpa),
            may_evict=self._can_evict(pod),
            node_capacity=acted.outcome == "node-capacity",
        )
        if next_.record_infeasible:
            await self._remember(pod, recommendation)
        if next_.action == "evict":
            await self._wait(tools.evictions)
            await self._recount(pod)
            present = tools.observer.again(pod)
            if present is not None and self._can_evict(present):
                await self._evict(present, decision)

    def _can_evict(self, pod: PodView) -> bool:
        group = self.budget.group(pod)
        if not isinstance(group, budgets.PodGroup) or group.only_unboosts:
            return False
        if self.tools.returns.held_s(self.key, group.owner) is not None:
            return False
        since_s = self.tools.observer.resize_since_s(pod)
        return resize.can_evict(pod, self.budget, since_s)

    async def _evict(self, pod: PodView, decision: UpdateDecision) -> None:
        tools = self.tools
        group = self.budget.group(pod)
        if self._is_refused(pod) or not await self._spend(pod):
            return
        acted = await tools.actor.evict(pod, self.vpa)
        self._counts(pod, acted, in_place=False)
        if acted.outcome not in ("done", "unknown"):
            self._refund()
        elif isinstance(group, budgets.PodGroup):
            known = {other.uid for other in self.known[group.owner]}
            tools.returns.evicted(self.key, group.owner, known)
        if acted.outcome == "done":
            self.report.count(tools.metrics.evicted)
            tools.decisions.did(pod, self.key, AppliedDecision(self.wall(), False, decision))
            return
        if acted.outcome == "pdb":
            self.holding.add(alike_to(pod, tools.stores.budgets))
            self._decide(pod, asks_budgets=False, pdb=Pdb(acted.message, True))
        if acted.outcome != "gone":
            self.report.failed(acted, tools.metrics.failed_evictions, "EvictionError")

    def _is_refused(self, pod: PodView) -> bool:
        # The API server has refused one that hears the same as this one.
        if not self.holding:
            return False
        alike = alike_to(pod, self.tools.stores.budgets)
        if alike in self.holding:
            self._decide(pod, asks_budgets=False, pdb=Pdb(alike.controller, True))
            return True
        return False

    async def _unboost(self, pod: PodView) -> None:
        tools, settings = self.tools, self.tools.options.settings
        over = expired(pod, self.vpa, self.loop.now)
        group = self.budget.group(pod)
        if not over or (group is not None and group.owner in self.budget.ended):
            return
        ranges = tools.stores.ranges(self.key.namespace)
        if resize.left_its_mark(pod, self.vpa, ranges, self.loop.now):
            # Whatever the kubelet says about the resize: an annotation is no disruption.
            await self._wait(tools.resizes)
            acted = await tools.actor.resize(pod, self.vpa, ranges, self.loop.now, only_unmark=True)
            if acted.outcome == "failed":
                self.report.failed(acted, tools.metrics.failed_updates, "UnboostError")
            return
        if not resize.can_unboost(pod, self.budget, over, settings):
            return
        await self._wait(tools.resizes)
        await self._recount(pod)
        if not resize.can_unboost(pod, self.budget, over, settings):
            return
        # Taking a boost back is what was promised at admission: no disruption of the day's.
        acted = await tools.actor.resize(pod, self.vpa, ranges, self.loop.now, only_unboost=True)
        self._counts(pod, acted, in_place=True)
        if acted.outcome == "done":
            self.report.count(tools.metrics.updated)
        if acted.outcome not in ("done", "gone", "nothing"):
            self.report.failed(acted, tools.metrics.failed_updates, "UnboostError")

    async def _spend(self, pod: PodView) -> bool:
        if self.pace.per_day is None:
            return True
        if not await self.tools.spending.spend(self.key, self.loop.now):
            return False
        self.spent += 1
        try:
            self._check_vpa()  # the answer shows the VPA as it is by now
        except _Changed:
            self._refund()
            raise
        # Writing takes its time: the group that was decided about may be a smaller one now.
        if await self._recount(pod) or self.tools.observer.again(pod) is None:
            self._refund()
            return False
        return True

    async def _recount(self, pod: PodView) -> bool:
        # Returns whether what became of the pod's group since the turn began leaves it less.
        group = self.budget.group(pod)
        if not isinstance(group, budgets.PodGroup):
            return False
        sizes = await self.tools.observer.sizes([pod])
        return self.budget.recount(group, sizes.get(group.owner, budgets.OwnerSize()))

    def _refund(self) -> None:
        if self.pace.per_day is not None:
            self.tools.spending.refund(self.key, self.loop.now)
            self.spent -= 1

    async def _remember(self, pod: PodView, recommendation: VpaRecommendation) -> None:
        self.tools.observer.refused(pod, recommendation)
        await self.tools.actor.remember_infeasible(pod, recommendation)

    def _counts_as_begun(self, pod: PodView) -> bool:
        # An act of an earlier loop that no watch has shown yet.
        in_place = self.tools.observer.unsettled(pod)
        group = self.budget.group(pod)
        if in_place is not None and isinstance(group, budgets.PodGroup):
            self.budget.began(group, pod, in_place=in_place)
        return in_place is not None

    def _counts(self, pod: PodView, acted: DisruptionOutcome, *, in_place: bool) -> None:
        """Count an act against the budget of the pod's group, if anything may be down."""
        group = self.budget.group(pod)
        if acted.outcome in ("unknown", "busy") and isinstance(group, budgets.PodGroup):
            # More of the same would be asked of an API server that is not well.
            is_open = acted.outcome == "unknown"
            self.budget.ended[group.owner] = "OutcomeUnknown" if is_open else "ApiServerBusy"
        if acted.outcome in ("done", "unknown"):
            self.report.did(in_place=in_place)
        elif acted.outcome != "gone":
            return
        # A pod that somebody else took away is as much down as one that we did.
        in_place = in_place and acted.outcome != "gone"
        if isinstance(group, budgets.PodGroup):
            self.budget.began(group, pod, in_place=in_place)
        if not (in_place and acted.outcome == "done"):  # the pod store has that one's answer
            self.tools.observer.acted(pod, in_place=in_place)

    def _look_back(self, pods: Sequence[PodView]) -> None:
        """Sort the pods by group, and see how those came back that were evicted earlier."""
        for pod in pods:
            group = self.budget.group(pod)
            if isinstance(group, budgets.PodGroup):
                self.known.setdefault(group.owner, []).append(pod)
        for owner, known in self.known.items():
            if self.tools.returns.look(self.key, owner, known):
                _log.warning(
                    "evicted pods came back unsized: does the webhook get the pods of this "
                    "namespace, and does its caBundle fit?",
                    namespace=self.key.namespace, vpa=self.key.name, owner=owner.name,
                    again_s=self.tools.returns.held_s(self.key, owner),
                )  # fmt: skip
