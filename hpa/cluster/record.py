"""One autoscaler: everything that this process knows of it, by what it is about.

Made when a watch tells of the object, gone with it. Its decisions are in the decision log.
"""

import math
from collections.abc import Iterator
from typing import Protocol

import structlog
from msgspec import Struct, field, structs

from hpa.cluster.stores import TargetKey, target_of
from hpa.decide.api.reading import read, read_status
from hpa.decide.api.spec import HPA
from hpa.decide.observation import Observation, Past, Scale, ScaleUnreadable
from hpa.decide.pods import Pods
from hpa.forecast.daily import KeptSums
from hpa.forecast.plan import ForecastVerdict, LiveForecast
from podscale.core.metrics import NotFound, Question, Refused
from podscale.core.quantity import QuantityError
from podscale.core.selectors.selector import Selector
from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import ManagedField
from podscale.kube.columns.cohorts import Version
from podscale.kube.informer.fed_store import Change
from podscale.kube.informer.store import Store, StoreIndex
from podscale.kube.objects import scale as wire
from podscale.kube.objects.autoscaler import Autoscaler, AutoscalerStatus

Key = tuple[str, str]  # namespace, name
HistoryMark = tuple[object, ...]  # what was stored of a history: while equal, nothing is written
MetricQuestion = Question | NotFound | Refused | None


class TargetScale(Struct, frozen=True, gc=False):
    """A scale, and how to write it."""

    scale: Scale | ScaleUnreadable
    resource: Resource | None = None
    resource_version: str = ""
    uid: str = ""
    is_read: bool = False  # by GET, which is newer than what a watch has brought


class WatchedScale(Struct, frozen=True, eq=False, gc=False):
    """What was read of ``workload``: valid while the store holds that very object, since each
    change puts another in its place."""

    workload: wire.Workload | wire.ReplicationController
    target: TargetScale


class AutoscalerView(Struct, frozen=True, gc=False):
    """One autoscaler as a pass observed it, before its metrics are known."""

    record: "AutoscalerRecord"
    target: TargetScale
    version: str  # resourceVersion of the autoscaler: what its status is written against
    observation: Observation  # without answers, and without what is forecast
    questions: tuple[MetricQuestion, ...] = ()  # empty: metrics are not read in this pass
    knows_owners: bool = True  # False: pods may be left out because their owner is not known

    @property
    def hpa(self) -> HPA:
        return self.observation.hpa

    @property
    def size(self) -> int | None:
        """The size of the target; None: it is not looked at."""
        scale = self.target.scale
        if not isinstance(scale, Scale) or self.hpa.options.is_paused:
            return None
        return scale.spec_replicas


class ObservedState(Struct, eq=False, gc=False):
    """What was found of the target and its pods, kept until something it depends on changes."""

    scale: WatchedScale | None = None
    selector_text: str = ""
    selector: Selector | None = None
    pods: Pods = Pods()
    # ``pods_found``, and a number of the last change of owners; -1: owners do not count
    pods_version: tuple[Version, int] | None = None
    pods_found: Version | None = None
    pods_found_by: Selector | None = None
    overlapping: tuple[str, ...] = ()  # other HPAs that select one of the pods
    overlapping_version: tuple[tuple[Version, int], int] | None = None


class ForeignRescale(Struct, frozen=True, gc=False):
    """Who wrote the size of its target lately."""

    manager: str
    at: float
    is_autoscaler: bool


class ForeignWrites(Struct, eq=False, gc=False):
    """What other controllers did to it. Times are monotonic."""

    namespace: str
    first_seen: float | None = None
    # Whoever wrote the object, or its target, cannot be read: it counts as another controller.
    is_unreadable: bool = False
    is_target_unreadable: bool = False
    writer: ManagedField | None = None  # the last foreign writer of its status
    live_at: float | None = None  # when a foreign write was seen as it happened
    rescale: ForeignRescale | None = None


class ForecastState(Struct, eq=False, gc=False):
    """Its forecast, in one term of leadership. Times are monotonic."""

    verdict: ForecastVerdict | None = None  # of the last gate, the daily replay of its past
    live: LiveForecast | None = None  # that acts now
    sums: KeptSums | None = None  # of the days that the gate has looked at
    about: HPA | None = None  # as it was at the last gate
    again_at: float = -math.inf  # after a gate that failed: when the next is due
    regret_at: float = -math.inf  # when what the forecast did is judged next


class SentScale(Struct, frozen=True, gc=False):
    """A size that was sent, and nobody said whether it went in."""

    before: int
    after: int
    at: float  # monotonic


class HistoryState(Struct, eq=False, gc=False):
    """What is remembered of it in one term of leadership."""

    term: int = 0  # read again when another has begun
    set_s: float = 0.0  # the wall clock's adjustment at which the times in ``past`` were right
    past: Past | None = None  # unix seconds, as decisions show them
    size: int | None = None  # of the target, when last known
    mark: HistoryMark | None = None  # of what was stored last
    sent: tuple[SentScale, ...] = ()  # sizes of which nobody said whether they went in
    doubted: int | None = None  # a size that came by a watch that may be behind
    found: tuple[int, float] | None = None  # a size and when, found before the history was read
    forecast: ForecastState | None = None  # None: none is wanted


class PassState(Struct, eq=False, gc=False):
    """What outlives a pass, in one term of leadership. Times are monotonic."""

    is_under_way: bool = False  # an autoscaler is never in two passes
    decided_at: float | None = None  # last
    unwritten_since: float | None = None  # since when a write is due that could not be made
    reported_at: float | None = None  # the own moment before the last status write


class OwnPeriod(Struct, eq=False, gc=False):
    period_s: float
    next_at: float


class AutoscalerRecord(Struct, eq=False):
    key: Key
    written: Autoscaler
    foreign: ForeignWrites
    is_gone: bool = False  # the object was deleted; one of the same name is another record
    hpa: HPA | None = None  # None: it cannot be read, see ``problem``
    problem: str = ""
    target: TargetKey = ("", "", "", "")
    passes: PassState = field(default_factory=PassState)
    observed: ObservedState = field(default_factory=ObservedState)
    history: HistoryState = field(default_factory=HistoryState)
    period: OwnPeriod | None = None  # None: it runs with its namespace

    @classmethod
    def of(cls, written: Autoscaler) -> "AutoscalerRecord":
        """Return the record of an object that a watch told of."""
        namespace = written.metadata.namespace
        record = cls((namespace, written.metadata.name), written, ForeignWrites(namespace))
        record.read(written, None)
        return record

    @property
    def uid(self) -> str:
        return self.written.metadata.uid

    def read(self, written: Autoscaler, old: Autoscaler | None) -> bool:
        """Take in a new state; returns whether anything but the status changed."""
        self.written = written
        if (
            old is not None
            and self.hpa is not None
            and old.spec == written.spec
            and old.metadata.annotations == written.metadata.annotations
            and old.metadata.generation == written.metadata.generation
        ):
            self.hpa = structs.replace(self.hpa, status=read_status(written.status))
            return False
        try:
            self.hpa, self.problem = read(written), ""
        except QuantityError as error:
            # Only a CRD lets such an object through; it harms nobody but itself.
            self.hpa, self.problem = None, str(error)
        self.target = target_of(self.key[0], written.spec.scale_target_ref)
        return True


_log = structlog.get_logger()


class CatalogListener(Protocol):
    """Who is told of changes, from the task that feeds the store."""

    def changed(self, record: AutoscalerRecord, is_new: bool) -> None:
        """The object is new, or something other than its status changed."""

    def updated(self, record: AutoscalerRecord, old: Autoscaler) -> None:
        """The object has a new state, whatever changed in it."""

    def gone(self, record: AutoscalerRecord, *, is_last: bool) -> None:
        """The object was deleted, the last of its namespace or not."""


class Catalog:
    def __init__(
        self,
        store: Store[Autoscaler],
        listener: CatalogListener,
    ) -> None:
        self._records: dict[str, dict[str, AutoscalerRecord]] = {}
        self._listener = listener
        self._store = store
        self.by_target = StoreIndex(store, _target_and_name)
        store.subscribe(self._note)
        for written in store.values():
            self._add(written)

    def __len__(self) -> int:
        return len(self._store)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, tuple) and len(key) == 2 and self.get(key) is not None

    def __iter__(self) -> Iterator[AutoscalerRecord]:
        for records in list(self._records.values()):
            yield from list(records.values())

    def get(self, key: Key) -> AutoscalerRecord | None:
        records = self._records.get(key[0])
        return records.get(key[1]) if records else None

    def sizes(self) -> dict[str, int]:
        """Return the number of autoscalers by namespace."""
        return {namespace: len(records) for namespace, records in self._records.items()}

    def in_namespace(self, namespace: str) -> list[AutoscalerRecord]:
        return list(self._records.get(namespace, {}).values())

    def targeting(self, target: TargetKey) -> list[AutoscalerRecord]:
        """Return the records that scale ``target``."""
        found = (self.get((target[0], name)) for name in self.by_target.get(target))
        return [record for record in found if record is not None]

    def same_target(self, record: AutoscalerRecord) -> tuple[str, ...]:
        """Return the names of the others that scale the same object, sorted."""
        names = self.by_target.get(record.target)
        if len(names) < 2:
            return ()
        return tuple(sorted(name for name in names if name != record.key[1]))

    def _note(self, change: Change[Autoscaler]) -> None:
        if change.new is None:
            self._remove((change.namespace, change.name))
            return
        record = self.get((change.namespace, change.name))
        if record is None:
            self._add(change.new)
            return
        before = record.written
        is_changed = record.read(change.new, before)
        self._thin(record)
        if is_changed:
            _tell_problem(record)
            self._listener.changed(record, False)
        self._listener.updated(record, before)

    def _add(self, written: Autoscaler) -> None:
        record = AutoscalerRecord.of(written)
        _tell_problem(record)
        self._thin(record)
        self._records.setdefault(record.key[0], {})[record.key[1]] = record
        self._listener.changed(record, True)

    def _thin(self, record: AutoscalerRecord) -> None:
        """Keep of a status that was read only what is looked at again: it is a KB of objects."""
        last = record.written.status.last_scale_time
        if record.hpa is not None:
            status = AutoscalerStatus(last_scale_time=last)
            record.written = structs.replace(record.written, status=status)
            self._store.thin(record.written)

    def _remove(self, key: Key) -> None:
        record = self.get(key)
        if record is None:
            return
        del self._records[key[0]][key[1]]
        is_last = not self._records[key[0]]
        if is_last:
            del self._records[key[0]]
        self._listener.gone(record, is_last=is_last)


def _target_and_name(written: Autoscaler) -> tuple[TargetKey, str]:
    meta = written.metadata
    return target_of(meta.namespace, written.spec.scale_target_ref), meta.name


def _tell_problem(record: AutoscalerRecord) -> None:
    if record.problem:
        _log.warning("autoscaler not readable", key="/".join(record.key), error=record.problem)
