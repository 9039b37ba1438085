"""What the pods of each node request, what they do not use yet, and where ballast is."""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.core.metrics import ContainerColumns
from podscale.core.pod_state import PodPhase
from podscale.core.selectors import selector as selectors
from podscale.kube.columns.pods import PlacedPods, PodStore, PodView
from podscale.kube.informer.fed_store import Change
from podscale.kube.objects.pod import WirePodTemplate
from podscale.nodes.cluster.node_table import NodeArrays
from podscale.nodes.decide.ballast import Bools, Floats
from podscale.nodes.scheduling.requests import summed

BALLAST_LABELS = selectors.parse("app.kubernetes.io/component=ballast")
# By either a DaemonSet's controller knows the pods of its newest revision. Another value is an
# older one to it: so it is told to make a pod anew.
REVISION_LABELS = ("controller-revision-hash", "pod-template-generation")
RENEWED = "renewed"
_RENEWED_LABELS = selectors.parse(f"{REVISION_LABELS[0]}={RENEWED}")
HEADROOM_LABELS = selectors.parse("app.kubernetes.io/component=headroom")
HEADROOM_NAMESPACE = "podscale-headroom"
# Thousandths of the store to the units of decisions: thousandths of a core, bytes.
_UNITS = (("cpu", 1), ("memory", 1000))


class PodSums(Struct, frozen=True, eq=False):
    """Pods summed over nodes, arrays of shape (2, n)."""

    requested: Floats  # by all but ballast and headroom
    held: Floats  # by ballast, the most of one node's pods; NaN: there are none
    ballast_rows: NDArray[np.int32]  # (n,) of the youngest that has started; -1: none
    started_s: Floats  # (n,) when that pod started; NaN: it has not, or is being made anew
    has_older: Bools  # (n,) whether there is an older ballast pod too
    older_rows: Mapping[int, Sequence[int]]  # by place: those pods
    young_rows: Sequence[int]  # of pods younger than the window
    has_lesser: Bools  # (n,) whether a user's pod of less priority than ballast requests something
    rival_s: float  # when the newest pod of ballast's priority started; -inf: there is none
    places: NDArray[np.int32]  # of each pod's node; -1: it has ended, or is on none of these


class PodTotals:
    """Sums over the pods of a store; what a template requests is computed once."""

    def __init__(self, pods: PodStore, namespace: str) -> None:
        """``namespace`` is that of ballast."""
        self._pods = pods
        self._namespace = namespace
        # Of each template by its number: what it requests, and its priority.
        self._templates: Mapping[int, WirePodTemplate] = {}
        self._amounts, self._priorities = np.zeros((2, 0)), np.zeros(0)
        # The nodes, and the store's names for them, that ``_place_of`` is of.
        self._known: tuple[NodeArrays | None, Sequence[str | None]] = (None, ())
        self._place_of = np.zeros(0, np.int32)

    def sums(self, nodes: NodeArrays, young_since: float) -> PodSums:
        """Return the sums over ``nodes``; pods are young that started after ``young_since``."""
        placed, count = self._pods.placed(), len(nodes.names)
        self._read(placed.templates)
        amounts, priorities = self._amounts, self._priorities
        place = self._places(placed, nodes)
        is_ballast = np.zeros(len(place), np.bool_)
        is_ballast[self._pods.rows(self._namespace, BALLAST_LABELS)] = True
        ours = np.flatnonzero(is_ballast & (place >= 0))
        # The youngest last, which so is each node's; what no kubelet has taken is none yet.
        ours = ours[np.argsort(np.nan_to_num(placed.started[ours], nan=-np.inf), kind="stable")]
        # Headroom gives way to whatever ballast lets in: it does not count.
        is_user = ~is_ballast & (place >= 0)
        is_user[self._pods.rows(HEADROOM_NAMESPACE, HEADROOM_LABELS)] = False
        users = np.flatnonzero(is_user)
        held, rows = np.full((2, count), np.nan), np.full(count, -1, np.int32)
        started_s, older = np.full(count, np.nan), dict[int, list[int]]()
        of_ours = amounts[:, placed.template[ours]]
        held[:, place[ours]], rows[place[ours]] = of_ours, ours
        started_s[place[ours]] = placed.started[ours]
        # Being made anew: marked for it, or a second pod is there already.
        is_marked = np.isin(ours, self._pods.rows(self._namespace, _RENEWED_LABELS))
        started_s[np.bincount(place[ours], 1 + is_marked, minlength=count) > 1] = np.nan
        is_older = (rows[place[ours]] != ours) & ~np.isnan(placed.started[ours])
        for row in ours[is_older].tolist():
            at = int(place[row])
            older.setdefault(at, []).append(row)
            # Until it is handed over, the older one's is what is held.
            held[:, at] = np.fmax(held[:, at], amounts[:, placed.template[row]])
        has_older = np.zeros(count, np.bool_)
        has_older[[*older]] = True
        of_users = placed.template[users].astype(np.intp)  # by 32 bits `take` is ten times dearer
        requested: Floats = np.zeros((2, count))
        by_user = amounts.take(of_users, axis=1)
        for row, by_pod in enumerate(by_user):
            requested[row] = np.bincount(place[users], by_pod, minlength=count)
        self._correct(requested, nodes)
        started = placed.started[users]
        young = users[~(started <= young_since)]
        of_user = priorities.take(of_users)
        own = priorities[placed.template[ours]].max(initial=-np.inf)
        # Whose preemption would make room: none that requests nothing.
        has_lesser = np.zeros(count, np.bool_)
        has_lesser[place[users[(of_user < own) & by_user.any(axis=0)]]] = True
        return PodSums(
            requested, held, rows, started_s, has_older, older, young.tolist(), has_lesser,
            rival_s=float(np.fmax.reduce(started, where=of_user == own, initial=-np.inf)),
            places=place,
        )  # fmt: skip

    def ballast(self, sums: PodSums, place: int, node: str) -> list[PodView]:
        """Return the ballast pods of the node at ``place``, as they are now: its youngest, and
        older ones. Empty: one of them has gone."""
        rows = [int(sums.ballast_rows[place]), *sums.older_rows.get(place, ())]
        # The row of a pod that has gone may be another's by now.
        home = self._namespace
        pods = [pod for pod in self._pods.at(rows)
                if pod.node == node and is_ballast(pod.namespace, pod.labels, home)]  # fmt: skip
        return pods if len(pods) == len(rows) else []

    def _places(self, placed: PlacedPods, nodes: NodeArrays) -> NDArray[np.int32]:
        # Of each pod: the place of its node; -1 for what has ended or runs nowhere we know.
        known, names = self._known
        if known is not nodes or names != placed.nodes:
            find = nodes.places.get
            places = [-1 if name is None else find(name, -1) for name in placed.nodes]
            self._place_of = np.array([*places, -1], np.int32)
            self._known = nodes, placed.nodes
        has_ended: Bools = (placed.phase == PodPhase.SUCCEEDED) | (placed.phase == PodPhase.FAILED)
        number = np.minimum(placed.node, len(self._place_of) - 1)
        return np.where(has_ended, np.int32(-1), self._place_of[number])

    def _read(self, templates: Mapping[int, WirePodTemplate]) -> None:
        more = max(templates, default=-1) + 1 - len(self._priorities)
        if more > 0:
            self._amounts = np.pad(self._amounts, ((0, 0), (0, more)))
            self._priorities = np.pad(self._priorities, (0, more))
        known = self._templates
        for number, template in templates.items():
            if known.get(number) is not template:
                self._amounts[:, number] = requests_of(template)
                self._priorities[number] = template.priority
        self._templates = templates

    def _correct(self, requested: Floats, nodes: NodeArrays) -> None:
        # Until a resize is done the scheduler counts the larger of what is wanted and what is.
        for pod in self._pods.resizing():
            place = nodes.places.get(pod.node)
            if place is None or pod.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
                continue
            if gives_way(pod, self._namespace):
                continue
            wanted = requests_of(pod.template)
            for row, counted in enumerate(counted_requests(pod)):
                requested[row, place] += counted - wanted[row]


class LiveRequests:
    """What the pods of each node request at this moment, for answers between two rounds: all but
    ballast and headroom, kept by the store's changes."""

    def __init__(self, pods: PodStore, namespace: str) -> None:
        """``namespace`` is that of ballast."""
        self._namespace = namespace
        # By node, of those with pods that request something. Not floats: beside a pod that
        # requests 2**63 these forget what the others do, for ever.
        self._sums: dict[str, tuple[int, int]] = {}
        self._of: NodeArrays | None = None  # the nodes that ``_array`` is of
        self._array: Floats = np.zeros((2, 0))
        for view in pods.at(range(len(pods.placed().node))):
            self._add(view, 1)
        pods.subscribe(self._changed)

    def over(self, nodes: NodeArrays) -> Floats:
        """Return the sums, of shape (2, n), in the order of ``nodes``; they go on changing."""
        if nodes is not self._of:
            sums = [self._sums.get(name, (0, 0)) for name in nodes.names]
            self._of, self._array = nodes, np.array(sums, float).reshape(-1, 2).T
        return self._array

    def _changed(self, change: Change[PodView]) -> None:
        if change.old is not None:
            self._add(change.old, -1)
        if change.new is not None:
            self._add(change.new, 1)

    def _add(self, view: PodView, sign: int) -> None:
        has_ended = view.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)
        if not view.node or has_ended or gives_way(view, self._namespace):
            return
        (cpu, memory), more = self._sums.pop(view.node, (0, 0)), counted_requests(view)
        sums = cpu + sign * int(more[0]), memory + sign * int(more[1])
        if any(sums):  # whoever creates a pod may bind it to any name
            self._sums[view.node] = sums
        place = None if self._of is None else self._of.places.get(view.node)
        if place is not None:
            self._array[:, place] = sums


def unused(pods: Sequence[PodView], usage: ContainerColumns | None, nodes: NodeArrays) -> Floats:
    """Return (2, n): what ``pods`` request beyond what they use, in sum over nodes; a pod that
    was not measured uses nothing yet."""
    used = {(view.namespace, view.name): [0.0, 0.0] for view in pods}
    if usage is not None:
        # Of whole namespaces: few of a hundred thousand rows are of these pods.
        rows = [row for row, key in enumerate(zip(usage.namespace, usage.pod, strict=True))
                if key in used]  # fmt: skip
        for row in rows:
            sums = used[usage.namespace[row], usage.pod[row]]
            sums[0] += float(np.nan_to_num(usage.cpu_cores[row])) * 1000
            sums[1] += float(np.nan_to_num(usage.memory_bytes[row]))
    found = np.zeros((2, len(nodes.names)))
    for view in pods:
        place = nodes.places.get(view.node)
        if place is not None:
            own = used[view.namespace, view.name]
            for row, wanted in enumerate(requests_of(view.template)):
                found[row, place] += max(0.0, wanted - own[row])
    return found


def is_headroom(namespace: str, labels: Mapping[str, str]) -> bool:
    return namespace == HEADROOM_NAMESPACE and HEADROOM_LABELS.matches(labels)


def is_ballast(namespace: str, labels: Mapping[str, str], ballast_namespace: str) -> bool:
    # By its namespace too: anybody may write the label on a pod of their own, and nobody but us
    # writes there.
    return namespace == ballast_namespace and BALLAST_LABELS.matches(labels)


def gives_way(pod: PodView, ballast_namespace: str) -> bool:
    """Return whether it is ballast or headroom: what it requests counts for no decision."""
    where = pod.namespace, pod.labels
    return is_headroom(*where) or is_ballast(*where, ballast_namespace)


def counted_requests(pod: PodView) -> tuple[float, float]:
    """Return what counts of a pod on a node: until a resize is done the larger of what is wanted
    and what is."""
    wanted = requests_of(pod.template)
    if not pod.resize:
        return wanted
    in_force = {state.name: state.requests_milli for state in pod.states if not state.is_init}
    actual = requests_of(pod.template, in_force)
    if any(condition.reason == "Infeasible" for condition in pod.resize):
        return actual
    return max(wanted[0], actual[0]), max(wanted[1], actual[1])


def requests_of(
    template: WirePodTemplate, in_force: Mapping[str, Mapping[str, int] | None] | None = None
) -> tuple[float, float]:
    """Return thousandths of a core and bytes, rounded up; ``in_force``: by container what it runs
    with, where the status says that."""
    found = summed(
        ((in_force or {}).get(each.name) or each.requests_milli for each in template.containers),
        ((each.requests_milli, each.is_sidecar) for each in template.init_containers),
    )
    if in_force is None:
        found |= template.pod_requests_milli or {}
    cpu, memory = (
        float(-(-(found.get(name, 0) + template.overhead_milli.get(name, 0)) // unit))
        for name, unit in _UNITS
    )
    return cpu, memory
