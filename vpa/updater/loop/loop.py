"""The updater's loop: every VPA gets its turn, and one that fails only loses its own.

A loop that runs out of time is continued by the next one where it stopped. One that finds no sign
of life of the admission webhook disturbs nothing.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from math import log2

import msgspec
import structlog
from msgspec import Struct

from podscale.core.disruptions import DisruptionPace, PaceError, pace_of
from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError, NotLeading, ObjectNotFound
from podscale.kube.client.resource import LEASES
from podscale.kube.client.wire import decode
from podscale.kube.leadership.lease import Term
from podscale.kube.objects.cluster import Lease
from podscale.kube.objects.vpa import update_mode
from podscale.process.leading_part import PeriodicLoop
from vpa.admission.matching import Candidate
from vpa.admission.patches.boost import is_boosted
from vpa.model.samples.membership import VpaKey
from vpa.stores import VpaStores
from vpa.updater.cluster.pod_disruptor import PodDisruptor
from vpa.updater.cluster.pod_observer import PodObserver, acts
from vpa.updater.decide.decision import AdmissionLease, LoopView
from vpa.updater.decide.disruption_budget import TokenBucket, budget_for
from vpa.updater.flags import Options
from vpa.updater.loop.memory import DailyBudgets, PodDecisions, ResizedReturns
from vpa.updater.loop.vpa_reconcile import DisruptionTools, NotCurrent, OutOfTime, VpaReconcile
from vpa.updater.selfmetrics import ReconcileReport, Tally, UpdaterMetrics

_log = structlog.get_logger()

_HEALTHY_LOOPS = 5
_RENEWED_S = 12.0  # within it a webhook that lives has renewed its Lease (every 10 s)

_TRIES, _PAUSE_S = 3, 0.1  # upstream's, with pauses three times as long each time
_TIMEOUT_S = 5.0
_SLACK_S = 2.0  # between a renewal and its sight, beyond our pause between two looks


class WatchedLease(Struct):
    """The admission webhook's Lease, read again and again from the API server itself.

    Its age is counted from when we saw it renewed, where the clocks do not agree: a clock that
    is set back must not keep a dead webhook alive, nor one that is ahead a live one dead. The
    first look at a renewal may not tell its age from a difference of clocks:
    ``has_to_look_again``. Once a second look has told, the difference is known, and the next
    first look tells.
    """

    api: Api
    namespace: str
    name: str
    clock: Callable[[], float] = time.monotonic
    sign: float | None = None  # as it was written
    at: float = 0.0  # when we first saw it
    unseen_since: float = float("-inf")  # when we last saw another one
    looked_at: float = float("-inf")
    most_s: float = float("inf")  # the age that it may have
    behind_s: float = float("-inf")  # by which its clock is behind ours, or more

    def has_to_look_again(self, timeout_s: float) -> bool:
        """Return whether the last look was the first one at a renewal that may be as old as
        ``timeout_s``, and may as well be new by a clock that differs from ours."""
        is_new = self.sign is not None and self.at == self.looked_at
        return is_new and self.most_s >= timeout_s

    async def read(self, now: float, *, at_most: bool = False) -> AdmissionLease:
        """Return the Lease, its times by our clock (``now``, unix seconds); one that cannot be
        read shows no life. ``at_most``: as old as it may be."""
        for attempt in range(_TRIES):
            try:
                path = LEASES.path(self.namespace, self.name)
                answer = await self.api.request("GET", path, timeout_s=_TIMEOUT_S)
                found = decode(answer.body, Lease)
            except ObjectNotFound:
                break
            except (KubeError, msgspec.DecodeError) as error:
                _log.warning("sign of life not read", error=str(error))
                await asyncio.sleep(_PAUSE_S * 3**attempt)
                continue
            signs = (found.metadata.creation_timestamp, found.spec.renew_time)
            given = [sign for sign in signs if sign is not None]
            if not given:
                break
            age_s = self._age_s(max(given), now)
            return AdmissionLease(self.name, None, now - (self.most_s if at_most else age_s))
        return AdmissionLease(self.name, None, None)

    def _age_s(self, sign: float, now: float) -> float:
        clock = self.clock()
        is_new = sign != self.sign
        if is_new:
            self.sign, self.at, self.unseen_since = sign, clock, self.looked_at
        self.looked_at = clock
        age_s, seen_s = now - sign, clock - self.at
        # What our looks explain is no difference of clocks.
        unseen_s = clock - self.unseen_since
        is_explained = seen_s - _SLACK_S <= age_s <= unseen_s + _SLACK_S
        if is_new:
            if age_s < self.behind_s - _SLACK_S:
                self.behind_s = float("-inf")  # a clock was set, or another webhook renews
            self.behind_s = max(self.behind_s, age_s - unseen_s)
        self.most_s = min(unseen_s, max(seen_s, age_s - self.behind_s))
        if not is_explained:
            return seen_s
        self.most_s = min(self.most_s, age_s)
        return self.most_s


class _Pass:
    # One round over all VPAs, over as many loops as it takes.

    def __init__(self) -> None:
        self.seen: set[str] = set()  # UIDs of pods
        self.tally = Tally()
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
                _log.exception("VPA passed over", **key._asdict())
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
            self._pass.tally["controlled_pods_total", size] += len(pods)
        if not pods:
            return
        pace = DisruptionPace()
        try:
            pace = pace_of(vpa.metadata.annotations)
        except PaceError as error:
            # An unreadable window must not mean any time.
            _log.warning("VPA left alone", **key._asdict(), error=str(error))
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
            report=ReconcileReport(self._pass.tally, key, size),
            updates=updates,
        )
        await turn.run(pods, unscheduled)
