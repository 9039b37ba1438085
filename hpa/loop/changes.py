"""From what the watches tell to the records: who is new, changed, gone, and who else scales."""

from functools import partial

from hpa.cluster.catalog import Catalog
from hpa.cluster.foreign_controllers import ForeignControllers
from hpa.cluster.objects import Autoscaler, TargetWorkload, scale_writer, status_writer
from hpa.cluster.overlapping_hpas import OverlappingHpas
from hpa.cluster.record import AutoscalerRecord
from hpa.decide import Settings
from hpa.decide.conditions import warning
from hpa.decide.settings import acts_at_once
from hpa.history.clock import SteadyClock
from hpa.history.memory import HistoryMemory
from hpa.loop.reconciler import Reconciler, record_event
from hpa.loop.schedule import Schedule
from hpa.loop.state import ControllerPorts
from podscale.kube.client.resource import Resource
from podscale.kube.informer.listeners import Change
from podscale.kube.objects.scale import Workload


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
            self.foreign.note(record.foreign, status_writer(record.written), now, is_first=True)
        if record.hpa is not None:
            self.schedule.own_period(record, record.hpa.options.sync_period_s, now)
        if self.reconciler is not None:
            self.tell_problems(record)
            if acts_at_once(self._settings, 0, 1):
                self.reconciler.hurry(record)

    def updated(self, record: AutoscalerRecord, old: Autoscaler) -> None:
        """Notice who wrote the status, and adopt a rescale that was not ours."""
        written = record.written
        self.foreign.note(record.foreign, status_writer(written), self._clock.now(), is_first=False)
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
        """Record an event for each annotation of ours that says nothing; shadow records none."""
        if record.hpa is not None and self._settings.mode != "shadow":
            for problem in record.hpa.options.problems:
                event = warning("InvalidAnnotation", problem)
                record_event(self._ports.recorder, self._resource, record, event)

    def _scaled(self, catalog: Catalog, kind: str, change: Change[Workload]) -> None:
        old, new = change.old, change.new
        if not isinstance(old, TargetWorkload) or not isinstance(new, TargetWorkload):
            return
        before, after, writer = old.spec.replicas, new.spec.replicas, scale_writer(new)
        if before is None or after is None or before == after or writer == scale_writer(old):
            return  # no rescale, or by other means: applied, edited
        now = self._clock.now()
        for record in catalog.targeting((change.namespace, "apps", kind, change.name)):
            self.foreign.note_rescale(record.foreign, writer, (before, after), now)
