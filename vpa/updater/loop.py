"""The updater's loop: which pods of which VPA are disturbed now, one gate after the other.

Every decision is ``decide_update``'s; this module gathers what it looks at, acts, and keeps
what it said for explanations.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from math import log2

import msgspec
import structlog
from msgspec import Struct

from podscale.core import quantity
from podscale.kube.api import Api
from podscale.kube.errors import KubeError, NotLeading, ObjectNotFound
from podscale.kube.lease import Term
from podscale.kube.objects.cluster import Lease as LeaseObject
from podscale.kube.objects.scale import ReplicationController, Workload
from podscale.kube.pods import Phase
from podscale.kube.pods import PodView as StoredPod
from podscale.kube.resource import LEASES
from podscale.kube.wire import decode
from vpa.admission.boost import expired, is_boosted
from vpa.admission.matching import Candidate, Controller, TargetIndex, match, target_of
from vpa.model.membership import VpaKey
from vpa.model.objects import (
    ObjectError,
    Pod,
    Recommendation,
    Vpa,
    controller_of,
    has_startup_boost,
    update_mode,
)
from vpa.model.objects import (
    decode as decode_object,
)
from vpa.model.quantities import ResourceList
from vpa.stored import pod_of
from vpa.stores import Stores
from vpa.updater import resize
from vpa.updater.act import INFEASIBLE, Acted, Actor
from vpa.updater.decide import LoopView, Pdb, PodView, UpdateDecision, decide_update
from vpa.updater.disruption import Budget, Group, Owner, OwnerSize, budget_for
from vpa.updater.flags import Options
from vpa.updater.lease import Lease
from vpa.updater.modes import after_refused_resize
from vpa.updater.pace import Pace, PaceError, pace_of
from vpa.updater.selfmetrics import Sized, UpdaterMetrics

_log = structlog.get_logger()

_UPDATING = frozenset({"Recreate", "Auto", "InPlaceOrRecreate", "InPlace"})
_DAY_S = 86400.0
_HEALTHY_LOOPS = 5
_LEASE_TRIES, _LEASE_PAUSE_S = 3, 0.1


class Decided(Struct, frozen=True):
    """What was last said about a pod."""

    at: float
    vpa: VpaKey
    decision: UpdateDecision


class Updater:
    """One updater. ``run`` it for each term of leadership."""

    def __init__(
        self,
        api: Api,
        stores: Stores,
        actor: Actor,
        options: Options,
        metrics: UpdaterMetrics,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``api`` is fenced by the Lease, where there is one."""
        self._api = api
        self._stores = stores
        self._actor = actor
        self._options = options
        self._metrics = metrics
        self._wall = wall
        self._last = time.monotonic()
        self._is_running = False
        self._resizing: dict[str, tuple[str, float]] = {}  # pod UID: state, first seen
        self._refused: dict[str, Recommendation] = {}  # pod UID: what its node cannot give
        self._disrupted: dict[VpaKey, list[float]] = {}
        self._topmost: dict[str, Controller | None] = {}
        self.decided: dict[tuple[str, str], Decided] = {}

    async def run(self, term: Term) -> None:
        """Update until cancelled; for ``Elector.run``."""
        await self._stores.wait_synced()
        self._is_running, self._last = True, time.monotonic()
        loop = asyncio.get_running_loop()
        at = loop.time()
        try:
            while True:
                at = max(at + self._options.interval_s, loop.time())
                await asyncio.sleep(at - loop.time())
                try:
                    async with asyncio.timeout(max(self._options.interval_s, 1.0)):
                        await self.once()
                except NotLeading:
                    raise
                except TimeoutError:
                    _log.warning("loop took longer than its interval")
                except Exception:  # noqa: BLE001 - the next loop is another try
                    _log.exception("loop failed")
                    continue
                self._last = time.monotonic()
        finally:
            self._is_running = False

    def is_healthy(self) -> bool:
        """Whether a loop ended within the last five intervals, or another replica leads."""
        if not self._is_running:
            return True
        return time.monotonic() - self._last < _HEALTHY_LOOPS * max(self._options.interval_s, 1.0)

    async def once(self) -> None:
        """Run one loop."""
        metrics = self._metrics
        with metrics.step("total"):
            if not self._stores.is_current():
                _log.warning("nothing updated: the watches are not current")
                return
            now = self._wall()
            with metrics.step("AdmissionInit"):
                loop = LoopView(now, await self._lease(), self._options.lease_timeout_s)
            with metrics.step("ListVPAs"):
                index = await self._index()
            seen: set[str] = set()
            tally: dict[str, dict[Sized, int]] = {}
            self._topmost.clear()
            with metrics.step("EvictPods"):
                for candidates in index.values():
                    for candidate in candidates:
                        await self._vpa(candidate, candidates, loop, seen, tally)
            self._forget(seen)
            metrics.count(tally)

    async def _lease(self) -> Lease | None:
        name = self._options.lease
        if not name:
            return None
        path = LEASES.path(self._options.lease_namespace, name)
        for attempt in range(_LEASE_TRIES):
            try:
                found = decode((await self._api.request("GET", path, timeout_s=5.0)).body,
                               LeaseObject)  # fmt: skip
                return Lease(name, found.metadata.creation_timestamp, found.spec.renew_time)
            except ObjectNotFound:
                break
            except (KubeError, msgspec.DecodeError) as error:
                _log.warning("sign of life not read", error=str(error))
                await asyncio.sleep(_LEASE_PAUSE_S * 3**attempt)
        return Lease(name, None, None)

    async def _index(self) -> Mapping[Controller, Sequence[Candidate]]:
        index = TargetIndex()
        targets: dict[Controller, None] = {}
        for key, vpa in self._stores.all_vpas():
            target = target_of(vpa)
            # Modes that touch no running pod still win over younger VPAs only if they would act.
            if target is None or not _acts(vpa):
                continue
            resolved = await self._stores.workloads.resolve(key.namespace, vpa.spec.target_ref)
            index.put(Candidate(vpa, resolved.selector))
            targets[target] = None
        return {target: index.of(target) for target in targets}

    async def _vpa(
        self,
        candidate: Candidate,
        rivals: Sequence[Candidate],
        loop: LoopView,
        seen: set[str],
        tally: dict[str, dict[Sized, int]],
    ) -> None:
        vpa, selector = candidate.vpa, candidate.selector
        if selector is None:
            return
        key = VpaKey(vpa.metadata.namespace, vpa.metadata.name)
        others = tuple(other.vpa for other in rivals if other is not candidate)
        pods = []
        for view in self._stores.pods.select(key.namespace, selector).views():
            if not _is_live(view) or await self._top(view) != target_of(vpa):
                continue
            if match(view.labels, rivals).chosen is not candidate:
                continue
            seen.add(view.uid)
            pods.append((view, pod_of(view)))
        size = (str(int(log2(len(pods))) if pods else 0), update_mode(vpa))
        _add(tally, "controlled_pods_total", size, len(pods))
        if not pods:
            return
        try:
            pace = pace_of(vpa.metadata.annotations)
        except PaceError as error:
            # An unreadable window must not mean any time.
            _log.warning("VPA left alone", namespace=key.namespace, name=key.name,
                         error=str(error))  # fmt: skip
            return
        live = [pod for _, pod in pods]
        budget = budget_for(live, vpa, await self._sizes(live), self._options.settings)
        work = _Work(self, key, vpa, others, budget, pace, loop, size, tally)
        await work.run(pods)

    async def _top(self, view: StoredPod) -> Controller | None:
        owner = view.owner
        if owner is None:
            return None
        if owner.uid not in self._topmost:
            top = await self._stores.workloads.topmost(view.namespace, owner)
            self._topmost[owner.uid] = top
        return self._topmost[owner.uid]

    async def _sizes(self, pods: Sequence[Pod]) -> dict[Owner, OwnerSize]:
        sizes: dict[Owner, OwnerSize] = {}
        for pod in pods:
            controller = controller_of(pod)
            if controller is None:
                continue
            owner = Owner(controller.kind, controller.name)
            if owner in sizes:
                continue
            namespace = pod.metadata.namespace
            found = self._stores.workloads.find(namespace, owner.kind, owner.name)
            if isinstance(found, Workload):
                status = found.status
                sizes[owner] = OwnerSize(
                    found.spec.replicas, status.desired_number_scheduled, status.number_ready
                )
            elif isinstance(found, ReplicationController):
                sizes[owner] = OwnerSize(found.spec.replicas)
            elif found is None:
                sizes[owner] = await self._scaled(namespace, controller.api_version, owner)
        return sizes

    async def _scaled(self, namespace: str, api_version: str, owner: Owner) -> OwnerSize:
        asked = await self._stores.workloads.scale(namespace, api_version, owner.kind, owner.name)
        return OwnerSize(asked.scale.spec.replicas if asked.scale is not None else None)

    def view(self, view: StoredPod, pod: Pod, key: VpaKey, vpa: Vpa, others: tuple[Vpa, ...],
             now: float) -> PodView:  # fmt: skip
        """Return all that a decision about one pod looks at."""
        state = resize.state_of(pod)
        known = self._resizing.get(view.uid)
        if state == "ResizeNone":
            self._resizing.pop(view.uid, None)
            known = None
        elif known is None or known[0] != state:
            known = self._resizing[view.uid] = (state, now)
        since = [at for at in self._disrupted.get(key, ()) if now - at < _DAY_S]
        return PodView(
            pod=pod,
            vpa=vpa,
            rivals=others,
            ranges=self._stores.ranges(key.namespace),
            resize_since_s=now - known[1] if known is not None else 0.0,
            was_refused=self._refused.get(view.uid) or _remembered(pod),
            allocatable=self._allocatable(view.node),
            disrupted_today=len(since),
        )

    def _allocatable(self, node: str) -> ResourceList | None:
        found = self._stores.nodes.get("", node)
        if found is None or found.status.allocatable is None:
            return None
        try:
            return ResourceList(
                {name: quantity.from_wire(v) for name, v in found.status.allocatable.items()}
            )
        except quantity.QuantityError:
            return None

    def note(self, view: StoredPod, key: VpaKey, decision: UpdateDecision) -> None:
        """Keep what was decided about a pod."""
        self.decided[view.namespace, view.name] = Decided(self._wall(), key, decision)

    def began(self, key: VpaKey, now: float) -> None:
        """Count a disruption for the day."""
        recent = [at for at in self._disrupted.get(key, ()) if now - at < _DAY_S]
        self._disrupted[key] = [*recent, now]

    async def refused(self, pod: Pod, recommendation: Recommendation) -> None:
        """Remember a size that the pod's node cannot give."""
        self._refused[pod.metadata.uid] = recommendation
        await self._actor.remember_infeasible(pod, recommendation)

    @property
    def actor(self) -> Actor:
        """Who acts."""
        return self._actor

    @property
    def options(self) -> Options:
        """What the flags came to."""
        return self._options

    @property
    def metrics(self) -> UpdaterMetrics:
        """Who counts."""
        return self._metrics

    def _forget(self, seen: set[str]) -> None:
        for known in (self._resizing, self._refused):
            for uid in [uid for uid in known if uid not in seen]:
                del known[uid]
        for place in [place for place in self.decided if not self._stores.pods.exists(*place)]:
            del self.decided[place]


class _Work:
    # The pods of one VPA in one loop.

    def __init__(
        self,
        updater: Updater,
        key: VpaKey,
        vpa: Vpa,
        others: tuple[Vpa, ...],
        budget: Budget,
        pace: Pace,
        loop: LoopView,
        size: Sized,
        tally: dict[str, dict[Sized, int]],
    ) -> None:
        self.updater, self.key, self.vpa, self.others = updater, key, vpa, others
        self.budget, self.pace, self.loop, self.size, self.tally = budget, pace, loop, size, tally
        self.done: set[str] = set()

    async def run(self, pods: Sequence[tuple[StoredPod, Pod]]) -> None:
        settings = self.updater.options.settings
        if settings.cpu_startup_boost and has_startup_boost(self.vpa) and self._admission_lives():
            for _, pod in pods:
                await self._unboost(pod)
        waiting = []
        for view, pod in pods:
            if settings.cpu_startup_boost and is_boosted(pod.metadata.annotations):
                continue
            decision = self._decide(view, pod)
            if decision.due is not None and decision.due.is_due:
                waiting.append((decision.due.priority.order, view, pod, decision))
        waiting.sort(key=lambda entry: entry[0], reverse=True)
        acting = [entry for entry in waiting if entry[3].action != "none"]
        evictable = sum(entry[3].action == "evict" for entry in acting)
        resizable = len(acting) - evictable
        for name, number in (("evictable", evictable), ("in_place_updatable", resizable)):
            _add(self.tally, f"{name}_pods_total", self.size, number)
            _add(self.tally, f"vpas_with_{name}_pods_total", self.size, int(number > 0))
        for _, view, pod, decision in waiting:
            # What this loop has begun meanwhile may have used the budget up.
            now = self._decide(view, pod)
            if "ResizeInfeasible" in decision.reasons and now.action == "none":
                self._skipped(pod, now)
            if now.action == "resize":
                await self._resize(view, pod, now)
            elif now.action == "evict":
                await self._evict(view, pod, now)
        for name in ("evicted", "in_place_updated"):
            _add(self.tally, f"vpas_with_{name}_pods_total", self.size, int(name in self.done))

    def _decide(self, view: StoredPod, pod: Pod) -> UpdateDecision:
        seen = self.updater.view(view, pod, self.key, self.vpa, self.others, self.loop.now)
        settings = self.updater.options.settings
        decision = decide_update(seen, self.budget, self.loop, settings, self.pace)
        self.updater.note(view, self.key, decision)
        return decision

    async def _resize(self, view: StoredPod, pod: Pod, decision: UpdateDecision) -> None:
        updater, vpa = self.updater, self.vpa
        ranges = updater.view(view, pod, self.key, vpa, self.others, self.loop.now).ranges
        acted = await updater.actor.resize(pod, vpa, ranges, self.loop.now)
        recommendation = vpa.status.recommendation or Recommendation()
        if decision.record_infeasible:
            await updater.refused(pod, recommendation)
        if acted.outcome == "done":
            self._began(pod, in_place=True)
            updater.metrics.updated.labels(*self.size, *self._named).inc()
            return
        if acted.outcome in ("gone", "nothing"):
            return
        self._failed(acted, updater.metrics.failed_updates, "InPlaceUpdateError")
        since = updater.view(view, pod, self.key, vpa, self.others, self.loop.now).resize_since_s
        next_ = after_refused_resize(
            update_mode(vpa),
            may_evict=acted.outcome != "failed" and resize.can_evict(pod, self.budget, since),
            node_capacity=acted.outcome == "node-capacity",
        )
        if next_.record_infeasible:
            await updater.refused(pod, recommendation)
        if next_.action == "evict":
            await self._evict(view, pod, decision)

    async def _evict(self, view: StoredPod, pod: Pod, decision: UpdateDecision) -> None:
        acted = await self.updater.actor.evict(pod, self.vpa)
        if acted.outcome == "done":
            self._began(pod, in_place=False)
            self.updater.metrics.evicted.labels(*self.size, *self._named).inc()
            return
        if acted.outcome == "pdb":
            seen = self.updater.view(view, pod, self.key, self.vpa, self.others, self.loop.now)
            refused = msgspec.structs.replace(seen, pdb=Pdb(acted.message, True))
            settings = self.updater.options.settings
            told = decide_update(refused, self.budget, self.loop, settings, self.pace)
            self.updater.note(view, self.key, told)
        if acted.outcome != "gone":
            self._failed(acted, self.updater.metrics.failed_evictions, "EvictionError")

    async def _unboost(self, pod: Pod) -> None:
        updater = self.updater
        over = expired(pod, self.vpa, self.loop.now)
        if not resize.can_unboost(pod, self.budget, over, updater.options.settings):
            return
        ranges = updater._stores.ranges(self.key.namespace)  # noqa: SLF001 - one object in two
        acted = await updater.actor.resize(pod, self.vpa, ranges, self.loop.now)
        if acted.outcome == "done":
            self._began(pod, in_place=True)
        elif acted.outcome not in ("gone", "nothing"):
            self._failed(acted, updater.metrics.failed_updates, "UnboostError")

    def _began(self, pod: Pod, *, in_place: bool) -> None:
        group = self.budget.group(pod)
        if isinstance(group, Group):
            self.budget.began(group, pod, in_place=in_place)
        self.updater.began(self.key, self.loop.now)
        self.done.add("in_place_updated" if in_place else "evicted")

    def _skipped(self, pod: Pod, decision: UpdateDecision) -> None:
        if decision.reasons[:1] == ("ResizeInfeasible",) and update_mode(self.vpa) == "InPlace":
            self.updater.actor.tell_skipped(pod)
            self.updater.metrics.skipped.labels(*self.size).inc()

    def _failed(self, acted: Acted, counter: object, reason: str) -> None:
        if acted.outcome == "node-capacity":
            reason = "InPlaceUpdateInfeasible"
        counter.labels(*self.size, *self._named, reason).inc()  # type: ignore[attr-defined]
        _log.warning("not updated", namespace=self.key.namespace, vpa=self.key.name,
                     reason=reason, message=acted.message)  # fmt: skip

    def _admission_lives(self) -> bool:
        lease = self.loop.lease
        return lease is None or lease.is_alive(self.loop.now, self.loop.lease_timeout_s)

    @property
    def _named(self) -> tuple[str, str]:
        return self.key.name, self.key.namespace


def _acts(vpa: Vpa) -> bool:
    return update_mode(vpa) in _UPDATING or has_startup_boost(vpa)


def _is_live(view: StoredPod) -> bool:
    is_over = view.phase in (Phase.SUCCEEDED, Phase.FAILED)
    return bool(view.node) and not is_over and view.deleted != view.deleted  # NaN: not deleted


def _remembered(pod: Pod) -> Recommendation | None:
    text = (pod.metadata.annotations or {}).get(INFEASIBLE)
    if text is None:
        return None
    try:
        return decode_object(msgspec.json.decode(text), Recommendation)
    except (ObjectError, msgspec.DecodeError):
        return None


def _add(tally: dict[str, dict[Sized, int]], name: str, size: Sized, number: int) -> None:
    counts = tally.setdefault(name, {})
    counts[size] = counts.get(size, 0) + number
