"""From the stores to the observation of one decision: everything but the metric answers.

A steady autoscaler costs a comparison of versions: pods and overlapping HPAs are kept in its
record until something they depend on changes.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from types import NoneType
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from hpa.cluster.overlapping_hpas import OverlappingHpas
from hpa.cluster.record import (
    AutoscalerRecord,
    AutoscalerView,
    Catalog,
    MetricQuestion,
    TargetScale,
)
from hpa.cluster.stores import HpaStores, is_coordinated
from hpa.decide.api.spec import HPA, MetricSpec
from hpa.decide.conditions import TO_ZERO, is_true
from hpa.decide.metrics.answers import BAD_SELECTOR
from hpa.decide.observation import Observation, Scale
from hpa.decide.pods import Pods
from hpa.decide.settings import Settings
from podscale.core import metrics as core
from podscale.core.selectors.labels import since_1_36
from podscale.core.selectors.selector import Selector, SelectorError, parse
from podscale.kube.client.errors import NoMatch
from podscale.kube.client.wire import OwnerReference
from podscale.kube.columns.pod_set import PodSet
from podscale.kube.discovery import Mapper
from podscale.kube.informer.fed_store import Change
from podscale.kube.objects.scale import Workload


class AutoscalerObserver:
    def __init__(
        self,
        catalog: Catalog,
        overlapping: OverlappingHpas,
        stores: HpaStores,
        settings: Settings,
    ) -> None:
        self._anchors = stores.anchors
        self._catalog = catalog
        self._overlapping = overlapping
        self._claimed = stores.claimed
        self._pods = stores.pods
        self._replica_sets = stores.replica_sets
        self._settings = settings
        self._columns = SelectedPods(self._topmost)
        # Of namespaces that have a ReplicaSet: how many, and when one changed hands last.
        self._sets: dict[str, int] = {}
        self._adoptions: dict[str, int] = {}
        # One for all: a namespace that went and came back shows no number that it had before.
        self._moments = count(1)
        self._replica_sets.subscribe(self._note_adoption)

    def view(
        self, record: AutoscalerRecord, hpa: HPA, target: TargetScale, mapper: Mapper
    ) -> AutoscalerView:
        """Return what is to be decided on, and what has to be asked for it."""
        scale, version = target.scale, record.written.metadata.resource_version
        known = record.observed
        if hpa.options.is_paused or not isinstance(scale, Scale):
            return AutoscalerView(record, target, version, Observation(hpa, scale))
        selector = _selector(record, scale.selector)
        same = (*self._catalog.same_target(record), *sorted(self._claimed.get(record.target)))
        if selector is None:
            return AutoscalerView(
                record, target, version, Observation(hpa, scale, same_target=same)
            )
        self._overlapping.change(*record.key, selector)
        self._refresh(record, selector, by_owner=hpa.options.pods_by_owner)
        is_asked = not known.overlapping and not same and _reads_metrics(hpa, scale, self._settings)
        held = self._anchors.held(hpa, target.uid) if is_coordinated(hpa, self._settings) else None
        return AutoscalerView(
            record,
            target,
            version,
            Observation(hpa, scale, known.pods, (), known.overlapping, same, held=held),
            questions(hpa, known.selector_text, mapper) if is_asked else (),
            not hpa.options.pods_by_owner or self._knows_owners(record),
        )

    def _refresh(self, record: AutoscalerRecord, selector: Selector, *, by_owner: bool) -> None:
        """Bring pods and overlapping HPAs up to date, where something changed."""
        (namespace, name), known = record.key, record.observed
        before = known.pods_found if known.pods_found_by is selector else None
        known.pods_found = self._pods.unchanged(namespace, lambda: selector, before)
        known.pods_found_by = selector
        adoptions = self._adoptions.get(namespace, 0) if by_owner else -1
        if (known.pods_found, adoptions) != known.pods_version:
            known.pods = self._columns.of(namespace, self._pods.select(namespace, selector))
            known.pods_version = (known.pods_found, adoptions)
        version = (known.pods_version, self._overlapping.version(namespace))
        if version != known.overlapping_version:
            labels = (self._pods.labels(namespace, pod) for pod in known.pods.names)
            distinct = {id(each): each for each in labels if each is not None}
            known.overlapping = self._overlapping.of(namespace, name, distinct.values())
            known.overlapping_version = version

    def _topmost(self, namespace: str, owner: OwnerReference) -> OwnerReference:
        # Two levels are all that the built-in workloads have; what a custom controller
        # owns is told by its own reference.
        if owner.kind != "ReplicaSet":
            return owner
        found = self._replica_sets.get(namespace, owner.name)
        above = found.metadata.controller if found is not None else None
        return above or owner

    def _knows_owners(self, record: AutoscalerRecord) -> bool:
        """Whether every pod's topmost controller could be told: a pod whose ReplicaSet is not
        known counts for nobody, and fewer pods would ask for fewer."""
        sets = self._replica_sets
        if not sets.is_current(namespace=record.key[0]):
            return False
        names = (owner.partition("/") for owner in record.observed.pods.owners)
        return all(
            kind != "ReplicaSet" or sets.get(record.key[0], name) is not None
            for kind, _, name in names
        )

    def _note_adoption(self, change: Change[Workload]) -> None:
        old, new, namespace = change.old, change.new, change.namespace
        if old is not None and new is not None:
            if old.metadata.controller != new.metadata.controller:
                self._adoptions[namespace] = next(self._moments)
            return
        sets = self._sets.get(namespace, 0) + (new is not None) - (old is not None)
        if sets:
            self._sets[namespace], self._adoptions[namespace] = sets, next(self._moments)
        else:
            self._sets.pop(namespace, None)
            self._adoptions.pop(namespace, None)


def _selector(record: AutoscalerRecord, text: str) -> Selector | None:
    known = record.observed
    if known.selector is None or text != known.selector_text:
        known.selector_text, known.selector = text, None
        if text:
            with suppress(SelectorError):
                known.selector = parse(text)
    return known.selector


def _reads_metrics(hpa: HPA, scale: Scale, settings: Settings) -> bool:
    """Whether ``decide`` comes as far as the metrics."""
    current = scale.spec_replicas
    if current == 0:
        return settings.gates.scale_to_zero and is_true(hpa.status.conditions, TO_ZERO)
    return hpa.min_replicas <= current <= hpa.max_replicas


_UNASKED = frozenset(
    {core.NotFound, core.Refused, NoneType}
)  # what stands for what cannot be asked


def questions(hpa: HPA, selector: str, mapper: Mapper) -> tuple[MetricQuestion, ...]:
    """Return one question per metric; a failure where it cannot even be asked, None for a
    type that nobody knows.

    Follows the requests of ``metrics/client.go``, Kubernetes 1.37: a metric selector that is not
    set and an empty one both ask for every series. ``selector`` is the canonical text of the
    scale's selector.
    """
    return tuple(_question(metric, hpa, selector, mapper) for metric in hpa.metrics)


def is_question(asked: MetricQuestion) -> TypeGuard[core.Question]:
    """Return whether it can be asked; what cannot is the answer itself."""
    return type(asked) not in _UNASKED  # isinstance takes three times as long, six times a pass


def _question(metric: MetricSpec, hpa: HPA, selector: str, mapper: Mapper) -> MetricQuestion:
    namespace = hpa.namespace
    match metric.type:
        case "Resource":
            return core.PodResource(namespace, selector, metric.name)
        case "ContainerResource":
            return core.PodResource(namespace, selector, metric.name, metric.container)
    try:
        written = metric.selector
        wanted = "" if written is None else str(written.parsed())
    except SelectorError as error:
        return core.Refused(BAD_SELECTOR, since_1_36(str(error)))
    match metric.type:
        case "Pods":
            return core.PodMetric(namespace, metric.name, selector, wanted)
        case "External":
            return core.ExternalMetric(namespace, metric.name, wanted)
        case "Object":
            return _object(metric, namespace, wanted, mapper)
    return None


def _object(metric: MetricSpec, namespace: str, wanted: str, mapper: Mapper) -> MetricQuestion:
    described = metric.described
    if described is None:
        return None
    if described.kind == "Namespace":
        # Upstream ignores the name: it is the HPA's own namespace that is asked about.
        return core.ObjectMetric(namespace, "namespaces", namespace, metric.name, wanted)
    group, _, version = described.api_version.rpartition("/")
    try:
        resource = mapper.for_kind(described.kind, group, version)[0]
    except NoMatch as error:
        return core.NotFound("NoMatch", str(error))
    return core.ObjectMetric(
        namespace, resource.group_resource, described.name, metric.name, wanted
    )


Topmost = Callable[[str, OwnerReference], OwnerReference]


class SelectedPods:
    """Makes ``Pods`` of pod sets, once per change of these pods."""

    def __init__(self, topmost: Topmost) -> None:
        """``topmost`` follows a pod's controller, in a namespace, to the workload above it."""
        self._topmost = topmost

    def of(self, namespace: str, found: PodSet) -> Pods:
        """Return the pods of one selection, sorted by name."""
        count = len(found)
        if not count:
            return Pods()
        names = found.names
        order = sorted(range(count), key=names.__getitem__)
        numbers = found.template[order].tolist()
        position = {number: place for place, number in enumerate(dict.fromkeys(numbers))}
        owner, owners = self._owners(namespace, found, order)
        known: dict[float, float] = {}  # pods that were born together share their times
        return Pods(
            names=tuple([names[row] for row in order]),
            phase=found.phase[order].tobytes(),
            ready=found.ready[order].tobytes(),
            deleted=(~np.isnan(found.deleted[order])).tobytes(),
            started=_times(found.started[order], known),
            ready_since=_times(found.ready_since[order], known),
            template=tuple([position[number] for number in numbers]),
            templates=tuple([found.templates[number] for number in position]),
            owner=owner,
            owners=owners,
        )

    def _owners(
        self, namespace: str, found: PodSet, order: list[int]
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        places: dict[str, int] = {}
        by_uid: dict[str, int] = {"": places.setdefault("", 0)}
        for uid, reference in found.owners.items():
            top = self._topmost(namespace, reference)
            by_uid[uid] = places.setdefault(f"{top.kind}/{top.name}", len(places))
        uids = found.owner_uids
        return tuple([by_uid[uids[row]] for row in order]), tuple(places)


def _times(column: NDArray[np.float64], known: dict[float, float]) -> tuple[float | None, ...]:
    """Return the column, equal times as one object; None: not set."""
    shared = known.setdefault
    return tuple([None if math.isnan(at) else shared(at, at) for at in column.tolist()])
