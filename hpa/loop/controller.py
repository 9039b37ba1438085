"""The loop: which autoscalers are due, term after term of leadership.

Namespaces take turns in slots of the period; new and changed objects come at once. One
slot that is late delays no other: each runs as a task of its own.
"""

import asyncio
import gc
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from functools import partial

import structlog
from msgspec import structs

from hpa.cluster.foreign_controllers import ForeignControllers
from hpa.cluster.overlapping_hpas import OverlappingHpas
from hpa.cluster.record import AutoscalerRecord, Catalog, Key, OwnPeriod, PassState
from hpa.cluster.stores import TargetWorkload, is_coordinated
from hpa.cluster.targets import ScaleTargets
from hpa.cluster.writer import AutoscalerWriter
from hpa.decide.conditions import warning
from hpa.decide.settings import Settings, acts_at_once
from hpa.history.clock import SteadyClock
from hpa.history.memory import HistoryKeeper, HistoryMemory
from hpa.loop.forecasts import Forecasts
from hpa.loop.observe import AutoscalerObserver
from hpa.loop.reconciler import Reconciler, record_event
from hpa.loop.state import ControllerPorts, ControllerState, Options
from podscale.kube.client.resource import Resource
from podscale.kube.informer.fed_store import Change
from podscale.kube.leadership.lease import Term
from podscale.kube.objects.autoscaler import Autoscaler
from podscale.kube.objects.scale import Workload
from podscale.serving.monitoring.health import Heartbeat, OverlappingRounds

_log = structlog.get_logger()

_AT_ONCE = 500  # as many are decided on right at the start, more wait for their slots
_SETTLED_AFTER = 3  # periods
_MISSED, _LEAST_ALLOWED_S = 5, 15.0  # periods without a tick: the loop is stuck
# Periods that a pass may take when everything hangs: metrics, a turn to write, five attempts.
_HUNG, _LEAST_HUNG_S = 20, 120.0


class Controller:
    def __init__(
        self, ports: ControllerPorts, settings: Settings, options: Options, clock: SteadyClock
    ) -> None:
        if settings.mode == "shadow":
            ports = structs.replace(ports, config_maps=None)
        memory = HistoryMemory(ports.config_maps, clock)
        self._keeping = HistoryKeeper(memory, ports.config_maps, ports.metrics)
        self._changes = changes = AutoscalerChanges(
            ports, settings, options.resource, memory, clock
        )
        stores = ports.stores
        targets = ScaleTargets(ports.api, ports.kinds, stores)
        catalog = Catalog(stores.autoscalers, changes)
        changes.follow_rescales(catalog)
        self.state = ControllerState(
            ports,
            settings,
            options,
            clock,
            catalog,
            changes.foreign,
            memory,
            targets,
            AutoscalerObserver(catalog, changes.overlapping, stores, settings),
            AutoscalerWriter(
                ports.api, options.resource, stores.autoscalers, targets, ports.metrics.writes
            ),
        )
        self._forecasts = Forecasts(ports.gate, catalog, memory, settings, clock, ports.metrics)
        self.heartbeat = Heartbeat(max(_MISSED * settings.sync_period_s, _LEAST_ALLOWED_S))
        self.rounds = OverlappingRounds(max(_HUNG * settings.sync_period_s, _LEAST_HUNG_S))
        self.catalog, self.traces = catalog, ports.traces
        self._metrics = ports.metrics
        ports.metrics.read.replicas = self._sizes
        ports.metrics.read.events_dropped = lambda: ports.recorder.dropped

    async def run(self, term: Term) -> None:
        """Reconcile until cancelled; for ``Elector.run``. Starts from what is stored, and without
        it where that cannot be read for a minute."""
        self._follow_clock()
        self.state.memory.begin(term.previous_behind_s, term.renewed_at)
        self.traces.clear()  # of a term before: another one led since, and all may have changed
        try:
            stores, settings = self.state.ports.stores, self.state.settings
            await stores.wait_synced()
            if any(each.hpa and is_coordinated(each.hpa, settings) for each in self.catalog):
                await stores.anchors.wait_listed()
            await self._keeping.read_in_time(term)
            await self._reconcile(term)
        finally:
            self._changes.reconciler = None
            for record in self.catalog:
                record.passes = PassState()
            self.heartbeat.rest()
            # Who leads next says how these stand; ours would be added to what it says.
            self._metrics.counts.is_leader = self._metrics.counts.foreign = 0
            await self._keeping.end()

    async def _reconcile(self, term: Term) -> None:
        catalog = self.catalog
        for record in catalog:
            self._changes.tell_problems(record)
        _log.info("reconciling", autoscalers=len(catalog), mode=self.state.settings.mode)
        self._metrics.counts.is_leader = 1
        async with asyncio.TaskGroup() as group:
            self._changes.reconciler = reconciler = Reconciler(group, self.state)
            group.create_task(self._keeping.keep(term), name="store histories")
            group.create_task(self._forecasts.run(), name="judge forecasts")
            is_small = len(catalog) <= _AT_ONCE
            if is_small:
                for record in catalog:
                    reconciler.hurry(record)
            group.create_task(self._hurry(group, reconciler), name="decide urgently")
            # Slot 0 has just had its turn where everything was decided at once.
            await self._tick(group, reconciler, first=1 if is_small else 0)

    def foreign_controller(self, key: Key) -> str | None:
        """Return who else scales this object: the ForeignController condition."""
        record = self.catalog.get(key)
        return None if record is None else self._changes.foreign_controller(record)

    async def _tick(self, group: asyncio.TaskGroup, reconciler: Reconciler, *, first: int) -> None:
        loop = asyncio.get_running_loop()
        schedule, catalog, stores = self._changes.schedule, self.catalog, self.state.ports.stores
        schedule.spread(catalog.sizes())
        tick, at = first, loop.time() + first * schedule.tick_s
        has_left = True
        while True:
            now = loop.time()
            if at > now:
                await asyncio.sleep(at - now)
            self.heartbeat.beat()
            self._follow_clock()
            self.state.targets.note_silence(loop.time(), is_other_heard=stores.is_current())
            self._metrics.tick_lag.add((), max(loop.time() - at, 0.0))
            if has_left:
                # What one slot left, in two milliseconds. By itself the collector would not come,
                # since each pass frees as many objects as it makes, and then meet a whole round.
                gc.collect(0)
            if tick % schedule.slots == 0:
                schedule.spread(catalog.sizes())
                others = self._changes.foreign_controller
                self._metrics.counts.foreign = sum(others(each) is not None for each in catalog)
                if tick >= schedule.slots * _SETTLED_AFTER and stores.is_current():
                    self.state.memory.prune(catalog)
            records = [
                record
                for namespace in schedule.namespaces(tick)
                for record in catalog.in_namespace(namespace)
                if record.period is None
            ]
            records += schedule.due(self.state.clock.now())
            has_left = bool(records)
            if records:
                group.create_task(self._run(reconciler, records))
            tick += 1
            # A loop that was held up (a frozen process) goes on from now, without a burst.
            at = max(at + schedule.tick_s, loop.time() - schedule.tick_s)

    async def _hurry(self, group: asyncio.TaskGroup, reconciler: Reconciler) -> None:
        while True:
            if records := await reconciler.urgent():
                group.create_task(self._run(reconciler, records))

    async def _run(self, reconciler: Reconciler, records: list[AutoscalerRecord]) -> None:
        try:
            with self.rounds.under_way():
                await reconciler.run(records)
        except Exception:  # noqa: BLE001 - the next slot is another try
            _log.exception("slot failed", autoscalers=len(records))

    def _follow_clock(self) -> None:
        """Notice a clock that was set."""
        if by_s := self.state.clock.look():
            _log.warning("the clock was set", by_s=round(by_s, 1))

    def _sizes(self) -> Iterable[tuple[str, str, int]]:
        if self._changes.reconciler is None:
            return
        for record in self.catalog:
            decided = self.traces.decided(record.key)
            if decided is not None:
                yield (*record.key, decided)


class AutoscalerChanges:
    """The ``CatalogListener`` of one controller."""

    def __init__(
        self,
        ports: ControllerPorts,
        settings: Settings,
        resource: Resource,
        memory: HistoryMemory,
        clock: SteadyClock,
    ) -> None:
        self._ports = ports
        self._settings = settings
        self._resource = resource
        self._memory = memory
        self._clock = clock
        self.schedule = Schedule(settings.sync_period_s)
        self.foreign = ForeignControllers(clock.now(), settings.sync_period_s)
        self.overlapping = OverlappingHpas()
        self.reconciler: Reconciler | None = None  # of this term; None: another process acts

    def changed(self, record: AutoscalerRecord, is_new: bool) -> None:
        """Decide on new objects and new specs at once, from the release on that does."""
        now = self._clock.now()
        if is_new:
            self.schedule.add(record.key[0])
            self.overlapping.add(*record.key)
            self._ports.metrics.counts.autoscalers += 1
            self.foreign.note(
                record.foreign, record.written.metadata.last_writer("status"), now, is_first=True
            )
        if record.hpa is not None:
            own_s = record.hpa.options.sync_period_s
            period_s = None if own_s is None else self._settings.period_of(record.hpa)
            self.schedule.own_period(record, period_s, now)
        if self.reconciler is not None:
            self.tell_problems(record)
            if acts_at_once(self._settings, 0, 1):
                self.reconciler.hurry(record)

    def updated(self, record: AutoscalerRecord, old: Autoscaler) -> None:
        """Notice who wrote the status, and adopt a rescale that was not ours."""
        written = record.written
        writer, now = written.metadata.last_writer("status"), self._clock.now()
        self.foreign.note(record.foreign, writer, now, is_first=False)
        if (
            record.hpa is not None
            and written.status.last_scale_time != old.status.last_scale_time
            and self.is_bystander(record)
        ):
            self._memory.adopt(record, record.hpa)

    def gone(self, record: AutoscalerRecord, *, is_last: bool) -> None:
        """Forget a deleted object, its history included."""
        record.is_gone = True
        self._ports.metrics.counts.autoscalers -= 1
        if is_last:
            self.schedule.drop(record.key[0])
        self.schedule.own_period(record, None, self._clock.now())
        self._memory.forget(record.key)
        self._ports.traces.forget(record.key)
        self.overlapping.drop(*record.key)
        self.foreign.forget(record.foreign)

    def follow_rescales(self, catalog: Catalog) -> None:
        """Listen to workloads for rescales that are not ours."""
        stores = self._ports.stores
        stores.deployments.subscribe(partial(self._scaled, catalog, "Deployment"))
        stores.stateful_sets.subscribe(partial(self._scaled, catalog, "StatefulSet"))

    def foreign_controller(self, record: AutoscalerRecord) -> str | None:
        """Return who else scales this object: the ForeignController condition."""
        if self._settings.mode == "shadow":
            return None
        return self.foreign.acting(record.foreign, self._clock.now())

    def is_bystander(self, record: AutoscalerRecord) -> bool:
        """Whether another controller acts on this object, by our mode or by its deeds."""
        return self._settings.mode == "shadow" or self.foreign_controller(record) is not None

    def tell_problems(self, record: AutoscalerRecord) -> None:
        """Record an event for what says nothing in an annotation of ours or in the spec; shadow
        records none."""
        if record.hpa is not None and self._settings.mode != "shadow":
            problems = (("InvalidAnnotation", text) for text in record.hpa.options.problems)
            for problem in (*problems, *record.hpa.remarks):
                event = warning(*problem)
                record_event(self._ports.recorder, self._resource, record, event)

    def _scaled(self, catalog: Catalog, kind: str, change: Change[Workload]) -> None:
        old, new = change.old, change.new
        if not isinstance(old, TargetWorkload) or not isinstance(new, TargetWorkload):
            return
        before, after = old.spec.replicas, new.spec.replicas
        writer, last = new.metadata.last_writer("scale"), old.metadata.last_writer("scale")
        if before is None or after is None or before == after or writer == last:
            return  # no rescale, or by other means: applied, edited
        now = self._clock.now()
        for record in catalog.targeting((change.namespace, "apps", kind, change.name)):
            self.foreign.note_rescale(record.foreign, writer, (before, after), now)


_LONGEST_TICK_S = 1.0
_SHORTEST_TICK_S = 0.2
_SLOTS = 15
_WORTH_A_SLOT = 200  # autoscalers: what they write in a period fills a burst
_FEWEST = 5  # slots also keep the trouble of one namespace from the others


class Schedule:
    """Slots of one period, and the deadlines of objects with a period of their own."""

    def __init__(self, period_s: float) -> None:
        tick_s = min(max(period_s / _SLOTS, _SHORTEST_TICK_S), _LONGEST_TICK_S, period_s)
        self.slots = max(round(period_s / tick_s), 1)
        self.tick_s = period_s / self.slots
        self._order: list[str] = []
        self._slot: dict[str, int] = {}
        self._twice: dict[int, list[str]] = {}  # due in their old slot once more
        self._own: dict[AutoscalerRecord, OwnPeriod] = {}  # of those that have one

    def spread(self, sizes: Mapping[str, int]) -> None:
        """Even the slots out; ``sizes`` are autoscalers by namespace. Once a period."""
        before = self._slot
        self._order = sorted(sizes)
        self._slot, self._twice = {}, {}
        total, seen = max(sum(sizes.values()), 1), 0
        used = min(max(-(-total // _WORTH_A_SLOT), _FEWEST), self.slots)
        for namespace in self._order:
            slot = min(seen * used // total, used - 1) * self.slots // used
            seen += sizes[namespace]
            self._slot[namespace] = slot
            old = before.get(namespace, slot)
            if slot > old + 1:
                # Moved to a later slot: without its old one it would wait for too long.
                self._twice.setdefault(old, []).append(namespace)

    def add(self, namespace: str) -> None:
        """Take a new namespace in, beside its neighbour."""
        if namespace in self._slot:
            return
        place = bisect_left(self._order, namespace)
        self._slot[namespace] = self._slot[self._order[place - 1]] if place else 0
        self._order.insert(place, namespace)

    def drop(self, namespace: str) -> None:
        """Take a namespace out."""
        if self._slot.pop(namespace, None) is not None:
            self._order.remove(namespace)

    def namespaces(self, tick: int) -> list[str]:
        """Return the namespaces that are due at the ``tick``-th tick, by name."""
        slot = tick % self.slots
        # Slots follow the order of the names.
        first = bisect_left(self._order, slot, key=self._slot.__getitem__)
        last = bisect_right(self._order, slot, lo=first, key=self._slot.__getitem__)
        found = self._order[first:last]
        return found + [each for each in self._twice.get(slot, ()) if each in self._slot]

    def own_period(self, record: AutoscalerRecord, period_s: float | None, now: float) -> None:
        """Give an object its own period, or (None) put it back under its namespace."""
        if period_s is None:
            record.period = None
            self._own.pop(record, None)
        elif record.period is None or record.period.period_s != period_s:
            record.period = self._own[record] = OwnPeriod(period_s, now + period_s)

    def due(self, now: float) -> list[AutoscalerRecord]:
        """Return the objects whose own period has passed; each begins anew."""
        found = [record for record, period in self._own.items() if period.next_at <= now]
        for period in map(self._own.__getitem__, found):
            # From the deadline, not from now: no drift; but what was missed is not caught up.
            period.next_at += period.period_s
            if period.next_at <= now:
                period.next_at = now + period.period_s
        return found
