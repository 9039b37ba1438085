"""The loop: which autoscalers are due, term after term of leadership.

Namespaces take turns in slots of the period; new and changed objects come at once. One
slot that is late delays no other: each runs as a task of its own.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterable

import structlog
from msgspec import Struct, structs

from hpa.cluster.catalog import AutoscalerEntry, Catalog, Key
from hpa.cluster.claims import InTreeClaims
from hpa.cluster.foreign import ForeignControllers
from hpa.cluster.objects import Autoscaler, TargetWorkload, scale_writer, status_writer
from hpa.cluster.overlapping_hpas import OverlappingHpas
from hpa.cluster.stores import HpaStores
from hpa.cluster.targets import ScaleTargets, TargetKinds
from hpa.cluster.writer import AutoscalerWriter
from hpa.decide import Settings
from hpa.decide.conditions import DecisionEvent, warning
from hpa.decide.settings import acts_at_once
from hpa.history.configmaps import HistoryConfigMaps
from hpa.history.decision_log import DecisionLog
from hpa.history.keeping import HistoryKeeper
from hpa.history.memory import HistoryMemory
from hpa.loop.clock import Jumps
from hpa.loop.observe import AutoscalerObserver
from hpa.loop.passes import Passes, PassLimits
from hpa.loop.schedule import Schedule
from hpa.selfmetrics import HpaMetrics
from podscale.core.metrics import MetricsProvider
from podscale.kube.api import Api
from podscale.kube.change import Change
from podscale.kube.events import Recorder
from podscale.kube.lease import Term
from podscale.kube.objects.cluster import ObjectReference
from podscale.kube.objects.scale import Workload
from podscale.kube.resource import HPAS, Resource
from podscale.kube.restmapper import Mapper
from podscale.serving.liveness import Heartbeat, Rounds

_log = structlog.get_logger()

_AT_ONCE = 500  # as many are decided on right at the start, more wait for their slots
_SETTLED_AFTER = 3  # periods
_MISSED, _LEAST_ALLOWED_S = 5, 15.0  # periods without a tick: the loop is stuck
# Periods that a pass may take when everything hangs: metrics, a turn to write, five attempts.
_HUNG, _LEAST_HUNG_S = 20, 120.0
_GATHER_S = 0.02  # changes that come together are decided together


class Options(Struct, frozen=True):
    """How the controller works; what it decides by is ``Settings``."""

    resource: Resource = HPAS
    limits: PassLimits = PassLimits()


class Controller:
    """Reconciles one resource. A ``Listener`` of its own catalog."""

    def __init__(
        self,
        api: Api,
        stores: HpaStores,
        kinds: TargetKinds,
        provider: MetricsProvider,
        settings: Settings,
        options: Options,
        *,
        mapper: Callable[[], Mapper],
        recorder: Recorder,
        metrics: HpaMetrics,
        traces: DecisionLog,
        shards: HistoryConfigMaps | None,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] | None = None,
    ) -> None:
        """``api`` is fenced by the Lease; ``shards`` None stores no history (shadow).

        ``steady`` is the clock of the watches, which nobody sets, to notice when ``wall`` was;
        None: it never is, since ``wall`` is no clock of this world (the demo's runs faster).
        """
        self._stores = stores
        self._settings = settings
        self._options = options
        self._provider = provider
        self._mapper = mapper
        self._recorder = recorder
        self._metrics = metrics
        self._wall = wall
        self._steady = steady or wall
        self._watch_clock = steady or time.monotonic
        self._jumps = Jumps(wall, self._steady)
        self.traces = traces
        self.schedule = Schedule(settings.sync_period_s)
        self.foreign = ForeignControllers(wall(), settings.sync_period_s)
        shards = None if settings.mode == "shadow" else shards
        self.memory = HistoryMemory(shards)
        self._keeping = HistoryKeeper(self.memory, shards, metrics, wall)
        self.targets = ScaleTargets(
            api,
            kinds,
            deployments=stores.deployments,
            stateful_sets=stores.stateful_sets,
            replica_sets=stores.replica_sets,
            replication_controllers=stores.replication_controllers,
        )
        self._actor = AutoscalerWriter(
            api, options.resource, stores.autoscalers, self.targets, note=metrics.wrote
        )
        self.heartbeat = Heartbeat(max(_MISSED * settings.sync_period_s, _LEAST_ALLOWED_S))
        self.rounds = Rounds(max(_HUNG * settings.sync_period_s, _LEAST_HUNG_S))
        self._urgent: dict[Key, None] = {}  # a set in order
        self._is_urgent = asyncio.Event()
        self._passes: Passes | None = None
        self._rivals = OverlappingHpas()
        self.catalog = Catalog(stores.autoscalers, self)
        self._observer = AutoscalerObserver(
            self.catalog,
            self._rivals,
            InTreeClaims(stores.claims),
            self.targets,
            stores.pods,
            settings,
        )
        stores.deployments.subscribe(self._scaled("Deployment"))
        stores.stateful_sets.subscribe(self._scaled("StatefulSet"))
        metrics.replicas = self._sizes
        metrics.events_dropped = lambda: recorder.dropped

    async def run(self, term: Term) -> None:
        """Reconcile until cancelled; for ``Elector.run``. Starts from what is stored, and without
        it where that cannot be read for a minute."""
        # A renewal may be older than the last history of a term: ours we know better.
        set_s, behind_s = self._follow_clock(), term.previous_behind_s
        self.memory.begin(self._wall(), set_s if behind_s is None else behind_s)
        self.traces.clear()  # of a term before: another one led since, and all may have changed
        try:
            await self._stores.wait_synced()
            await self._keeping.read_in_time(term)
            await self._reconcile(term)
        finally:
            self._passes = None
            self.heartbeat.rest()
            # Who leads next says how these stand; ours would be added to what it says.
            self._metrics.is_leader = self._metrics.foreign = 0
            await self._keeping.end()

    async def _reconcile(self, term: Term) -> None:
        for entry in self.catalog:
            entry.is_busy, entry.looked_at = False, 0.0
            self._tell_problems(entry)
        _settle()
        _log.info("reconciling", autoscalers=len(self.catalog), mode=self._settings.mode)
        self._metrics.is_leader = 1
        async with asyncio.TaskGroup() as group:
            self._passes = self._passes_of(group)
            group.create_task(self._keeping.keep(term), name="store histories")
            is_small = len(self.catalog) <= _AT_ONCE
            if is_small:
                self._urgent |= dict.fromkeys(entry.key for entry in self.catalog)
                self._is_urgent.set()
            group.create_task(self._hurry(group), name="decide urgently")
            # Slot 0 has just had its turn where everything was decided at once.
            await self._tick(group, first=1 if is_small else 0)

    def changed(self, entry: AutoscalerEntry, is_new: bool) -> None:
        """Decide on new objects and new specs at once, from the release on that does."""
        namespace = entry.key[0]
        if is_new:
            self.schedule.add(namespace)
            self._rivals.add(*entry.key)
            self._metrics.autoscalers += 1
            self._note_writer(entry, is_first=True)
        if entry.hpa is not None:
            self.schedule.own_period(entry.key, entry.hpa.options.sync_period_s, self._steady())
        if self._passes is None:
            return
        self._tell_problems(entry)
        if not acts_at_once(self._settings, 0, 1):
            return
        self._urgent[entry.key] = None
        self._is_urgent.set()

    def updated(self, entry: AutoscalerEntry, old: Autoscaler) -> None:
        """Notice who wrote the status, and adopt a rescale that was not ours."""
        self._note_writer(entry, is_first=False)
        status = entry.written.status
        if (
            entry.hpa is not None
            and status.last_scale_time != old.status.last_scale_time
            and self.is_bystander(entry.key)
        ):
            self.memory.adopt(entry, entry.hpa)

    def gone(self, entry: AutoscalerEntry) -> None:
        """Forget a deleted object, its history included."""
        key = entry.key
        self._metrics.autoscalers -= 1
        self._urgent.pop(key, None)
        self.schedule.own_period(key, None, 0.0)
        if not self.catalog.in_namespace(key[0]):
            self.schedule.drop(key[0])
        self.memory.forget(key)
        self.traces.forget(key)
        self._rivals.drop(*key)
        if self._passes is not None:
            self._passes.forget(key)
        self.foreign.forget(key)

    def foreign_controller(self, key: Key) -> str | None:
        """Return who else scales this object: the ForeignController condition."""
        if self._settings.mode == "shadow":
            return None
        return self.foreign.acting(key, self._wall())

    def is_bystander(self, key: Key) -> bool:
        """Whether another controller acts on this object, by our mode or by its deeds."""
        return self._settings.mode == "shadow" or self.foreign_controller(key) is not None

    def _passes_of(self, group: asyncio.TaskGroup) -> Passes:
        return Passes(
            group=group,
            stores=self._stores,
            targets=self.targets,
            observer=self._observer,
            actor=self._actor,
            provider=self._provider,
            memory=self.memory,
            traces=self.traces,
            metrics=self._metrics,
            foreign=self.foreign,
            settings=self._settings,
            limits=self._options.limits,
            mapper=self._mapper,
            say=self._say,
            released=self._note_released,
            jumped=self._follow_clock,
            wall=self._wall,
            steady=self._watch_clock,
        )

    async def _tick(self, group: asyncio.TaskGroup, *, first: int) -> None:
        loop = asyncio.get_running_loop()
        schedule = self.schedule
        schedule.spread(self.catalog.sizes())
        tick, at = first, loop.time() + first * schedule.tick_s
        has_left = True
        while True:
            now = loop.time()
            if at > now:
                await asyncio.sleep(at - now)
            self.heartbeat.beat()
            if self._passes is not None:
                self._passes.follow_clock()
            self.targets.note_silence(loop.time(), is_other_heard=self._stores.is_current())
            self._metrics.tick_lag.add((), max(loop.time() - at, 0.0))
            if has_left:
                # What one slot left, in two milliseconds. By itself the collector would not come,
                # since each pass frees as many objects as it makes, and then meet a whole round.
                gc.collect(0)
            if tick % schedule.slots == 0:
                schedule.spread(self.catalog.sizes())
                if tick >= schedule.slots * _SETTLED_AFTER and self._stores.is_current():
                    self.memory.prune(self.catalog)
                if tick == schedule.slots * _SETTLED_AFTER:
                    _settle()  # caches of every part are full now, too
            entries = [
                entry
                for namespace in schedule.namespaces(tick)
                for entry in self.catalog.in_namespace(namespace)
                if not schedule.has_own_period(entry.key)
            ]
            entries += self._entries(schedule.due(self._steady()))
            has_left = bool(entries)
            if entries:
                group.create_task(self._run(entries), name=f"slot {tick % schedule.slots}")
            self._metrics.foreign = self._count_foreign()
            tick += 1
            # A loop that was held up (a frozen process) goes on from now, without a burst.
            at = max(at + schedule.tick_s, loop.time() - schedule.tick_s)

    async def _hurry(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._is_urgent.wait()
            await asyncio.sleep(_GATHER_S)
            self._is_urgent.clear()
            entries = self._entries(self._urgent)
            busy = dict.fromkeys(entry.key for entry in entries if entry.is_busy)
            # A spec that changed during a pass gets another one, once that has ended.
            self._urgent = busy
            free = [entry for entry in entries if entry.key not in busy]
            if free:
                group.create_task(self._run(free), name="urgent")

    async def _run(self, entries: list[AutoscalerEntry]) -> None:
        if self._passes is None:
            return
        try:
            with self.rounds.under_way():
                await self._passes.run(entries)
        except Exception:  # noqa: BLE001 - the next slot is another try
            _log.exception("slot failed", autoscalers=len(entries))

    def _follow_clock(self) -> float:
        """Move what is remembered with a clock that was set; returns by how much it was."""
        by_s = self._jumps.since_last()
        if by_s:
            _log.warning("the clock was set", by_s=round(by_s, 1))
            self.memory.shift(by_s)
            self.foreign.shift(by_s)
            for entry in self.catalog:
                entry.looked_at += by_s if entry.looked_at else 0.0
        return by_s

    def _note_released(self, key: Key) -> None:
        if key in self._urgent:
            self._is_urgent.set()

    def _entries(self, keys: Iterable[Key]) -> list[AutoscalerEntry]:
        found = (self.catalog.get(key) for key in keys)
        return [entry for entry in found if entry is not None]

    def _note_writer(self, entry: AutoscalerEntry, *, is_first: bool) -> None:
        writer = status_writer(entry.written)
        self.foreign.note(entry.key, writer, self._wall(), is_first=is_first)

    def _scaled(self, kind: str) -> Callable[[Change[Workload]], None]:
        """Return who listens to the workloads of one kind for rescales that are not ours."""

        def note(change: Change[Workload]) -> None:
            old, new = change.old, change.new
            if not isinstance(old, TargetWorkload) or not isinstance(new, TargetWorkload):
                return
            sizes = (old.spec.replicas, new.spec.replicas)
            writer = scale_writer(new)
            if sizes[0] == sizes[1] or sizes[0] is None or sizes[1] is None:
                return
            if writer == scale_writer(old):
                return  # by other means: applied, edited
            for entry in self.catalog.targeting((change.namespace, "apps", kind, change.name)):
                self.foreign.note_rescale(entry.key, writer, (sizes[0], sizes[1]), self._wall())

        return note

    def _count_foreign(self) -> int:
        if not self.foreign.is_anyone_active(self._wall()):
            return 0
        return sum(self.foreign_controller(entry.key) is not None for entry in self.catalog)

    def _say(self, entry: AutoscalerEntry, event: DecisionEvent) -> None:
        meta, resource = entry.written.metadata, self._options.resource
        about = ObjectReference(
            kind=resource.kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            api_version=resource.api_version,
            resource_version=meta.resource_version,
        )
        self._recorder.event(about, event.type, event.reason, event.message)

    def _tell_problems(self, entry: AutoscalerEntry) -> None:
        """Record an event for each annotation of ours that says nothing; shadow records none."""
        if entry.hpa is not None and self._settings.mode != "shadow":
            for problem in entry.hpa.options.problems:
                self._say(entry, warning("InvalidAnnotation", problem))

    def _sizes(self) -> Iterable[tuple[str, str, int]]:
        if self._passes is None:
            return
        for entry in self.catalog:
            decided = self.traces.decided(entry.key)
            if decided is not None:
                yield (*entry.key, decided)


def _settle() -> None:
    """Take what is there out of the collector's sight: it stays, and there is much of it."""
    gc.collect()
    gc.freeze()


def for_mode(settings: Settings, mode: str) -> Settings:
    """Return the settings of ``replace``, ``own`` (which decides alike) or ``shadow``."""
    return structs.replace(settings, mode="shadow" if mode == "shadow" else "replace")
