"""Pods on their way from the store into the model, and the OOM kills that their updates show.

Collects between two passes; what has gone is taken out of the model only after the metrics
of the pass, so that a late sample or kill still counts. Kills follow ``input/oom/observer.go``
of upstream's recommender.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from podscale.core import quantity
from podscale.core.pod_state import PodPhase
from podscale.core.quantity import QuantityError
from podscale.kube.client.wire import ObjectMeta, encode
from podscale.kube.columns.pods import PodStore, PodView
from podscale.kube.informer.fed_store import Change
from podscale.kube.informer.store import Store
from podscale.kube.objects.cluster import ObjectReference
from podscale.kube.objects.pod import ContainerState, TemplateContainer, Terminated
from vpa.model.amounts import of
from vpa.model.cluster import ClusterModel
from vpa.model.groups import Oom

_KILLED = "OOMKilled"
_SOURCES: Mapping[type, str] = {
    ContainerState: "Pod.Status.ContainerStatuses",
    TemplateContainer: "Pod.Spec.Containers",
}
# Kills between two passes: of a pod, and of a namespace's pods with a VPA, or of those without.
_MOST_OF_POD = 100  # an event may name any containers
_MOST_OOMS = 1000
_MOST_BYTES = 16 * 1024  # of an event: the kubelet names the containers of one pod
_NOTES = ("offending_containers", "offending_containers_usage", "starved_resource")


class StoredEvent(Struct, frozen=True, rename="camel"):
    """An event of an eviction."""

    metadata: ObjectMeta
    reason: str = ""
    involved_object: ObjectReference = ObjectReference()

    def kept(self) -> "StoredEvent":
        """Return what is read of it; of one that is larger than the kubelet's only which state
        it is."""
        meta, notes = self.metadata, self.metadata.annotations or {}
        read = {key: notes[key] for key in _NOTES if key in notes}
        kept = replace(meta, labels=None, annotations=read, owner_references=())
        event = replace(self, metadata=kept)
        if len(encode(event)) <= _MOST_BYTES:
            return event
        return StoredEvent(ObjectMeta(meta.name, meta.namespace, meta.uid, meta.resource_version))


class PodFeed:
    """Follows the stores from ``start`` to ``stop``, for one model."""

    def __init__(self, pods: PodStore, events: Store[StoredEvent], cluster: ClusterModel) -> None:
        self._pods = pods
        self._events = events
        self._cluster = cluster
        self._changed: dict[tuple[str, str], PodView | None] = {}
        self._gone: list[tuple[str, str]] = []  # that are still in the model
        self._ooms: list[Oom] = []
        self._counts: Counter[tuple[str, str | bool]] = Counter()  # of ``_ooms``, as bounded
        self._leave: list[Callable[[], None]] = []

    def start(self) -> None:
        """Begin with everything that the stores hold."""
        self._changed = {(v.namespace, v.name): v for v in self._pods.select_all().views()}
        for event in self._events.values():
            self._take_event(event)
        self._leave = [
            self._pods.subscribe(self._pod_changed),
            self._events.subscribe(self._event_changed),
        ]

    def stop(self) -> None:
        """Follow no more."""
        for leave in self._leave:
            leave()
        self._leave.clear()
        self._changed.clear()

    def load(self, now: float, wanted: Callable[[PodView], bool]) -> None:
        """Put new and changed pods into the model; those that have gone wait for ``remove``."""
        for (namespace, name), view in self._changed.items():
            if view is None:
                self._gone.append((namespace, name))
            elif view.phase != PodPhase.PENDING and wanted(view):
                put(self._cluster, view, now)
        self._changed.clear()

    def remove(self) -> None:
        """Take out pods that have gone and did not come back meanwhile."""
        for namespace, name in self._gone:
            if not self._pods.exists(namespace, name):
                self._cluster.remove_pod(namespace, name)
        self._gone.clear()

    def take_ooms(self) -> list[Oom]:
        """Return the kills since the last call."""
        taken, self._ooms, self._counts = self._ooms, [], Counter()
        return taken

    def shown_ooms(self) -> list[Oom]:
        """Return the kills that pods show as their containers' last run."""
        shown = (view for view in self._changed.values() if view is not None)
        return [oom for view in shown for oom in from_last_state(view)]

    def _pod_changed(self, change: Change[PodView]) -> None:
        self._changed[change.namespace, change.name] = change.new
        old, new = change.old, change.new
        if new is not None:
            ooms = from_last_state(new) if old is None else from_pod_update(old, new)
            self._take(ooms, new.labels)

    def _event_changed(self, change: Change[StoredEvent]) -> None:
        if change.new is not None and change.old is None:
            self._take_event(change.new)

    def _take_event(self, event: StoredEvent) -> None:
        pod = event.involved_object
        self._take(ooms_of(event), self._pods.labels(pod.namespace, pod.name))

    def _take(self, ooms: Iterable[Oom], labels: Mapping[str, str] | None) -> None:
        """Take kills of one pod; ``labels`` None: there is no such pod.

        What is written in one namespace leaves all others their room, and pods without a VPA
        leave that of those which have one.
        """
        has_vpa: bool | None = None
        for oom in ooms:
            pod = (oom.namespace, oom.pod)
            if self._counts[pod] >= _MOST_OF_POD:
                return
            if has_vpa is None:
                has_vpa = labels is not None and self._cluster.matches(oom.namespace, labels)
            room = (oom.namespace, has_vpa)
            if self._counts[room] < _MOST_OOMS:
                self._counts.update((pod, room))
                self._ooms.append(oom)


def put(cluster: ClusterModel, view: PodView, now: float) -> None:
    """Put one pod into the model: its containers, init containers left out."""
    names = [container.name for container in view.template.containers]
    is_active = view.phase not in (PodPhase.SUCCEEDED, PodPhase.FAILED)
    cluster.put_pod(view.namespace, view.name, view.labels, names, now, is_active=is_active)


def ooms_of(event: StoredEvent) -> list[Oom]:
    """Return the kills that an event tells of, an eviction for memory, by its first containers;
    none if its lists do not fit together.
    """
    pod, created = event.involved_object, event.metadata.creation_timestamp
    notes = event.metadata.annotations or {}
    containers, usages, starved = (
        notes[key].split(",", _MOST_OF_POD)[:_MOST_OF_POD] if key in notes else [] for key in _NOTES
    )
    is_kill = event.reason == "Evicted" and pod.kind == "Pod"
    if created is None or not is_kill or not len(containers) == len(usages) == len(starved):
        return []
    ooms = []
    for container, usage, resource in zip(containers, usages, starved, strict=True):
        if resource != "memory":
            continue
        try:
            used = quantity.parse(usage).value
        except QuantityError:
            continue
        ooms.append(Oom(pod.namespace, pod.name, container, used, created))
    return ooms


def from_pod_update(before: PodView, after: PodView) -> list[Oom]:
    """Return the kills that happened between two versions of a pod, by container.

    Either the container is now terminated by one, or it has been restarted meanwhile and
    its last run ended so. Waiting to running (the end of a back-off) is not a new kill.
    """
    earlier = {state.name: state for state in before.states if not state.is_init}
    ooms = []
    for state in after.states:
        if state.is_init or state.name not in earlier:
            continue
        run, is_current = _kill(earlier[state.name], state)
        # The run that was killed had the resources of the version that shows it running.
        ooms += _oom(after if is_current else before, state.name, run)
    return ooms


def from_last_state(pod: PodView) -> list[Oom]:
    """Return kills that a pod still shows as its containers' last run.

    For a pod first seen after the kill: after a restart, or when its update was missed.
    """
    return [
        oom
        for state in pod.states
        if not state.is_init
        for oom in _oom(pod, state.name, state.terminated or state.last_terminated)
    ]


def _kill(before: ContainerState, after: ContainerState) -> tuple[Terminated | None, bool]:
    # The run that ended, and whether it is the container's state now.
    restarted = after.restart_count > before.restart_count
    now = after.terminated
    if now is not None and now.reason == _KILLED:
        # Too fast a failure shows terminated twice in a row; the count tells them apart.
        return (now if before.terminated is None or restarted else None), True
    was_replaced = restarted and before.phase == after.phase == "running"
    return (after.last_terminated if was_replaced else None), False


def _oom(killed: PodView, container: str, run: Terminated | None) -> list[Oom]:
    if run is None or run.reason != _KILLED or run.finished_at is None:
        return []
    requests, _ = killed.requests_and_limits(container)
    source = _SOURCES.get(type(killed.present.get(container)), "")
    memory = of(requests, "memory").value
    return [Oom(killed.namespace, killed.name, container, memory, run.finished_at, source)]
