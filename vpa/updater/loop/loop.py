"""The updater's loop: every VPA gets its turn, and one that fails only loses its own.

A loop that runs out of time is continued by the next one where it stopped.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from math import log2

import structlog

from podscale.core.disruptions import DisruptionPace, PaceError, pace_of
from podscale.kube.client.api import Api
from podscale.kube.client.errors import NotLeading
from podscale.kube.leadership.lease import Term
from podscale.kube.objects.vpa import update_mode
from podscale.process.leading_part import PeriodicLoop
from vpa.admission.matching import Candidate
from vpa.admission.patches.boost import is_boosted
from vpa.model.samples.membership import VpaKey
from vpa.stores import VpaStores
from vpa.updater.cluster.pod_disruptor import PodDisruptor
from vpa.updater.cluster.pod_observer import PodObserver, acts
from vpa.updater.cluster.watched_lease import WatchedLease
from vpa.updater.decide.decision import LoopView
from vpa.updater.decide.disruption_budget import TokenBucket, budget_for
from vpa.updater.flags import Options
from vpa.updater.loop.daily_budgets import DailyBudgets
from vpa.updater.loop.pod_decisions import PodDecisions
from vpa.updater.loop.resized_returns import ResizedReturns
from vpa.updater.loop.vpa_reconcile import DisruptionTools, NotCurrent, OutOfTime, VpaReconcile
from vpa.updater.selfmetrics import UpdaterMetrics, UpdateTally

_log = structlog.get_logger()

_HEALTHY_LOOPS = 5
_RENEWED_S = 12.0  # within it a webhook that lives has renewed its Lease (every 10 s)


class _Pass:
    # One round over all VPAs, over as many loops as it takes.

    def __init__(self) -> None:
        self.seen: set[str] = set()  # UIDs of pods
        self.tally = UpdateTally()
        self.next: VpaKey | None = None  # where it goes on


class Updater:
    """One updater. ``run`` it for each term of leadership."""

    def __init__(
        self,
        api: Api,
        stores: VpaStores,
        actor: PodDisruptor,
        options: Options,
        metrics: UpdaterMetrics,
        *,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``api`` is fenced by the Lease, where there is one; ``clock`` is monotonic."""
        self._stores = stores
        self._options = options
        self._metrics = metrics
        self.wall = wall
        longest_s = _HEALTHY_LOOPS * max(options.interval_s, 1.0)
        self.loop = PeriodicLoop("updater-loop", self.once, options.interval_s, longest_s=longest_s)
        self._pass = _Pass()
        self._webhook_lease: WatchedLease | None = None
        if options.lease:
            self._webhook_lease = WatchedLease(
                api, options.lease_namespace, options.lease, clock=clock
            )
        self.decisions = PodDecisions()
        self._tools = DisruptionTools(
            stores,
            PodObserver(stores, max(options.interval_s, 1.0), clock=clock),
            actor,
            DailyBudgets(api, stores),
            self.decisions,
            ResizedReturns(clock),
            options,
            metrics,
            TokenBucket(options.rate),
            TokenBucket(options.rate),
        )

    async def run(self, term: Term) -> None:
        """Update until cancelled; for ``Elector.run``."""
        await self._stores.wait_synced()
        self._tools.spending.begin()
        try:
            await self.loop.run(delay_s=self._options.interval_s)
        finally:
            # Another replica decides: a recommender that goes on here would tell ours as its own.
            self.decisions.clear()

    async def once(self) -> None:
        """Run one loop of at most one interval: requests under way are waited for."""
        metrics, options = self._metrics, self._options
        deadline = asyncio.get_running_loop().time() + max(options.interval_s, 1.0)
        with metrics.step("total"):
            if not self._stores.is_current():
                _log.warning("nothing updated: the watches are not current")
                return
            with metrics.step("AdmissionInit"):
                now = self.wall()
                lease = None
                if self._webhook_lease is not None:
                    lease = await self._webhook_lease.read(now)
                    if self._webhook_lease.has_to_look_again(options.lease_timeout_s):
                        await asyncio.sleep(min(_RENEWED_S, options.interval_s / 2))
                        now = self.wall()
                        lease = await self._webhook_lease.read(now, at_most=True)
            view = LoopView(now, lease, options.lease_timeout_s)
            if lease is not None and not lease.is_alive(view.now, options.lease_timeout_s):
                reason = "invalid" if lease.was_read else "error"
                metrics.admission_invalid.labels(reason).inc()
            with metrics.step("ListVPAs"):
                unboosts = options.settings.cpu_startup_boost
                index = await self._tools.observer.index(unboosts=unboosts)
            with metrics.step("EvictPods"):
                if not await self._go_round(index, view, deadline):
                    return
            self._tools.observer.forget(self._pass.seen)
            self._tools.returns.forget()
            self._tools.spending.forget(view.now)
            self.decisions.forget(self._stores)
            metrics.count(self._pass.tally)
            self._pass = _Pass()

    async def _go_round(
        self, index: Mapping[VpaKey, Sequence[Candidate]], view: LoopView, deadline: float
    ) -> bool:
        """Give VPAs their turns in the order of their names; returns whether all had theirs."""
        first = self._pass.next
        now = asyncio.get_running_loop().time
        keys = sorted(key for key in index if first is None or key >= first)
        for number, key in enumerate(keys):
            try:
                if number and now() > deadline:
                    raise OutOfTime
                await self._turn(key, index[key], view, deadline)
            except NotLeading:
                self._pass.next = key
                raise
            except NotCurrent:
                self._pass.next = key
                _log.warning("loop ended: the watches are not current", left=len(keys) - number)
                return False
            except OutOfTime:
                left = keys[max(number, 1) :]  # who takes a whole loop to itself has had a turn
                self._pass.next = next(iter(left), None)
                _log.warning("loop took longer than its interval", left=len(left))
                return not left
            except Exception:  # noqa: BLE001 - a bad VPA affects itself only
                self._metrics.broken.inc()
                _log.exception("VPA passed over", namespace=key.namespace, name=key.name)
        return True

    async def _turn(
        self, key: VpaKey, rivals: Sequence[Candidate], view: LoopView, deadline: float
    ) -> None:
        vpa = rivals[0].vpa
        pods, unscheduled = await self._tools.observer.pods_of(rivals)
        updates = acts(vpa)
        if not updates and not any(is_boosted(pod) for pod in pods):
            return
        self._pass.seen.update(pod.uid for pod in pods)
        size = (str(int(log2(len(pods))) if pods else 0), update_mode(vpa))
        if updates:
            self._pass.tally.add("controlled_pods_total", size, len(pods))
        if not pods:
            return
        pace = DisruptionPace()
        try:
            pace = pace_of(vpa.metadata.annotations)
        except PaceError as error:
            # An unreadable window must not mean any time.
            _log.warning("VPA left alone", namespace=key.namespace, name=key.name,
                         error=str(error))  # fmt: skip
            updates = False
            if not self._options.settings.cpu_startup_boost:
                return
        sizes = await self._tools.observer.sizes(pods)
        turn = VpaReconcile(
            self._tools,
            key,
            vpa,
            [other.vpa for other in rivals[1:]],
            budget_for(pods, vpa, sizes, self._options.settings),
            pace,
            view,
            deadline=deadline,
            wall=self.wall,
            size=size,
            tally=self._pass.tally,
            updates=updates,
        )
        await turn.run(pods, unscheduled)
