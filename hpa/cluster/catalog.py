"""The autoscalers we know, each read once per change, found by key, namespace and target.

Fed by the store's callbacks; what a pass needs again and again (the defaulted spec, the
parsed selector, the questions for the metrics) is kept here with the object.
"""

from collections.abc import Iterator
from typing import Protocol

import structlog
from msgspec import structs

from hpa.cluster.objects import Autoscaler, TargetKey, target_of
from hpa.cluster.record import AutoscalerRecord, Key
from hpa.decide.api.spec import MetricSpec
from hpa.decide.api.wire import WireStatus
from podscale.kube.informer.listeners import Change
from podscale.kube.informer.store import Store
from podscale.kube.informer.store_index import StoreIndex

_log = structlog.get_logger()

_KEPT_METRICS = 10_000


class CatalogListener(Protocol):
    """Who is told of changes, from the task that feeds the store."""

    def changed(self, record: AutoscalerRecord, is_new: bool) -> None:
        """The object is new, or something other than its status changed."""

    def updated(self, record: AutoscalerRecord, old: Autoscaler) -> None:
        """The object has a new state, whatever changed in it."""

    def gone(self, record: AutoscalerRecord, *, is_last: bool) -> None:
        """The object was deleted, the last of its namespace or not."""


class Catalog:
    """All autoscalers of one resource."""

    def __init__(
        self,
        store: Store[Autoscaler],
        listener: CatalogListener,
    ) -> None:
        self._records: dict[str, dict[str, AutoscalerRecord]] = {}
        self._metrics: dict[tuple[MetricSpec, ...], tuple[MetricSpec, ...]] = {}
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
            self._share_metrics(record)
            self._listener.changed(record, False)
        self._listener.updated(record, before)

    def _add(self, written: Autoscaler) -> None:
        record = AutoscalerRecord.of(written)
        _tell_problem(record)
        self._thin(record)
        self._share_metrics(record)
        self._records.setdefault(record.key[0], {})[record.key[1]] = record
        self._listener.changed(record, True)

    def _thin(self, record: AutoscalerRecord) -> None:
        """Keep of a status that was read only what is looked at again: it is a KB of objects."""
        last = record.written.status.last_scale_time
        if record.hpa is not None:
            record.written = structs.replace(
                record.written, status=WireStatus(last_scale_time=last)
            )
            self._store.thin(record.written)

    def _share_metrics(self, record: AutoscalerRecord) -> None:
        """Keep equal metrics once: many autoscalers are made from one template."""
        if record.hpa is None:
            return
        if len(self._metrics) >= _KEPT_METRICS:
            self._metrics.clear()
        metrics = self._metrics.setdefault(record.hpa.metrics, record.hpa.metrics)
        record.hpa = structs.replace(record.hpa, metrics=metrics)

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
