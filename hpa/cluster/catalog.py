"""The autoscalers we know, each read once per change, found by key, namespace and target.

Fed by the store's callbacks; what a pass needs again and again (the defaulted spec, the
parsed selector, the questions for the metrics) is kept here with the object.
"""

from collections.abc import Iterator
from typing import Protocol

import structlog
from msgspec import structs

from hpa.cluster.objects import Autoscaler, TargetKey, target_of, to_decide
from hpa.cluster.questions import Asked
from hpa.decide.pods import Pods
from hpa.decide.reading import read_status
from hpa.decide.spec import HPA, MetricSpec
from hpa.decide.wire import WireStatus
from podscale.core.quantity import QuantityError
from podscale.core.selector import Selector
from podscale.kube.change import Change
from podscale.kube.cohorts import Version
from podscale.kube.store import Store

_log = structlog.get_logger()

_KEPT_METRICS = 10_000

Key = tuple[str, str]  # namespace, name


class AutoscalerEntry:
    """One autoscaler and what was derived from it."""

    __slots__ = (
        "asks_plainly", "describes_objects", "hpa", "is_busy", "is_gone", "key", "look",
        "look_for", "looked_at", "pods", "pods_found", "pods_found_by", "pods_version", "problem",
        "questions", "questions_for", "rivals", "rivals_version", "scale", "seen_pods",
        "selector", "selector_text", "target", "uid", "written",
    )  # fmt: skip

    def __init__(self, written: Autoscaler) -> None:
        self.key: Key = (written.metadata.namespace, written.metadata.name)
        self.uid = written.metadata.uid
        self.written = written
        self.hpa: HPA | None = None  # None: it cannot be read, see ``problem``
        self.problem = ""
        self.target: TargetKey = ("", "", "", "")
        self.is_busy = False  # a pass over it has not ended; taken and given back by ``Passes``
        self.is_gone = False  # deleted; one of the same name is another entry
        self.looked_at = 0.0  # wall time of the last decision
        self.selector_text = ""
        self.selector: Selector | None = None
        self.pods = Pods()
        self.pods_version: object = None
        self.pods_found: Version | None = None
        self.pods_found_by: Selector | None = None
        self.rivals: tuple[str, ...] = ()
        self.rivals_version: object = None
        self.seen_pods: object = None  # what all of its namespace was like, when last looked at
        self.scale: object = None  # of ``Targets``
        self.questions: tuple[Asked, ...] = ()
        self.questions_for: object = None  # what the questions were derived from
        self.asks_plainly = False  # every one of ``questions`` is one
        self.describes_objects = False  # a metric is of an object, whose kind is mapped
        self.look: object = None  # of ``Observer``: the last one, ...
        self.look_for: object = None  # ... and what everything was like then
        self.read(written, None)

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
            self.hpa, self.problem = to_decide(written), ""
        except QuantityError as error:
            # Only a CRD lets such an object through; it harms nobody but itself.
            self.hpa, self.problem = None, str(error)
            _log.warning("autoscaler not readable", key="/".join(self.key), error=self.problem)
        self.target = target_of(self.key[0], written.spec.scale_target_ref)
        self.questions_for = None
        metrics = () if self.hpa is None else self.hpa.metrics
        self.describes_objects = any(metric.type == "Object" for metric in metrics)
        return True


class CatalogListener(Protocol):
    """Who is told of changes, from the task that feeds the store."""

    def changed(self, entry: AutoscalerEntry, is_new: bool) -> None:
        """The object is new, or something other than its status changed."""
        ...

    def updated(self, entry: AutoscalerEntry, old: Autoscaler) -> None:
        """The object has a new state, whatever changed in it."""
        ...

    def gone(self, entry: AutoscalerEntry) -> None:
        """The object was deleted."""
        ...


class Catalog:
    """All autoscalers of one resource."""

    def __init__(
        self,
        store: Store[Autoscaler],
        listener: CatalogListener,
    ) -> None:
        self._entries: dict[str, dict[str, AutoscalerEntry]] = {}
        self._by_target: dict[TargetKey, tuple[str, ...]] = {}  # nearly always one name
        self.targets_changed = 0  # how often ``same_target`` may have come to answer differently
        self._count = 0
        self._metrics: dict[tuple[MetricSpec, ...], tuple[MetricSpec, ...]] = {}
        self._listener = listener
        self._store = store
        store.subscribe(self._note)
        for written in store.values():
            self._add(written)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: object) -> bool:
        return isinstance(key, tuple) and len(key) == 2 and self.get(key) is not None

    def __iter__(self) -> Iterator[AutoscalerEntry]:
        for entries in list(self._entries.values()):
            yield from list(entries.values())

    def get(self, key: Key) -> AutoscalerEntry | None:
        """Return one entry."""
        entries = self._entries.get(key[0])
        return entries.get(key[1]) if entries else None

    def sizes(self) -> dict[str, int]:
        """Return the number of autoscalers by namespace."""
        return {namespace: len(entries) for namespace, entries in self._entries.items()}

    def in_namespace(self, namespace: str) -> list[AutoscalerEntry]:
        """Return the entries of one namespace."""
        return list(self._entries.get(namespace, {}).values())

    def targeting(self, target: TargetKey) -> list[AutoscalerEntry]:
        """Return the entries that scale ``target``."""
        found = (self.get((target[0], name)) for name in self._by_target.get(target, ()))
        return [entry for entry in found if entry is not None]

    def same_target(self, entry: AutoscalerEntry) -> tuple[str, ...]:
        """Return the names of the others that scale the same object, sorted."""
        names = self._by_target.get(entry.target, ())
        if len(names) < 2:
            return ()
        return tuple(sorted(name for name in names if name != entry.key[1]))

    def _note(self, change: Change[Autoscaler]) -> None:
        if change.new is None:
            self._remove((change.namespace, change.name))
            return
        entry = self.get((change.namespace, change.name))
        if entry is None:
            self._add(change.new)
            return
        before, target = entry.written, entry.target
        is_changed = entry.read(change.new, before)
        self._thin(entry)
        if entry.target != target:
            self._unindex(target, entry.key[1])
            self._index(entry)
        if is_changed:
            self._share_metrics(entry)
            self._listener.changed(entry, False)
        self._listener.updated(entry, before)

    def _add(self, written: Autoscaler) -> None:
        entry = AutoscalerEntry(written)
        self._thin(entry)
        self._share_metrics(entry)
        self._entries.setdefault(entry.key[0], {})[entry.key[1]] = entry
        self._index(entry)
        self._count += 1
        self._listener.changed(entry, True)

    def _thin(self, entry: AutoscalerEntry) -> None:
        """Keep of a status that was read only what is looked at again: it is a KB of objects."""
        last = entry.written.status.last_scale_time
        if entry.hpa is not None:
            entry.written = structs.replace(entry.written, status=WireStatus(last_scale_time=last))
            self._store.thin(entry.written)

    def _share_metrics(self, entry: AutoscalerEntry) -> None:
        """Keep equal metrics once: many autoscalers are made from one template."""
        if entry.hpa is None:
            return
        if len(self._metrics) >= _KEPT_METRICS:
            self._metrics.clear()
        metrics = self._metrics.setdefault(entry.hpa.metrics, entry.hpa.metrics)
        entry.hpa = structs.replace(entry.hpa, metrics=metrics)

    def _remove(self, key: Key) -> None:
        entry = self.get(key)
        if entry is None:
            return
        del self._entries[key[0]][key[1]]
        if not self._entries[key[0]]:
            del self._entries[key[0]]
        self._unindex(entry.target, key[1])
        self._count -= 1
        entry.is_gone = True
        entry.look = None  # they hold each other, out of the collector's sight
        self._listener.gone(entry)

    def _index(self, entry: AutoscalerEntry) -> None:
        self.targets_changed += 1
        names, name = self._by_target.get(entry.target, ()), entry.key[1]
        if name not in names:
            self._by_target[entry.target] = (*names, name)

    def _unindex(self, target: TargetKey, name: str) -> None:
        self.targets_changed += 1
        names = tuple(each for each in self._by_target.get(target, ()) if each != name)
        if names:
            self._by_target[target] = names
        else:
            self._by_target.pop(target, None)
