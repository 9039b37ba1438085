"""Pods in columns: 100,000 of them in some 50 MB, selected without looking at each.

Rows live in one structured array; what many pods share (labels and owner: the cohort;
spec: the template; container states; nodes) is interned. ``PodSet`` is a selection as
columns, ``PodView`` one pod as an object, made on demand.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from sys import getsizeof
from typing import Generic, TypeVar

import msgspec
import numpy as np
from msgspec import Struct, structs
from numpy.typing import DTypeLike, NDArray

from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.core.selectors.selector import Selector
from podscale.kube.client.errors import Forbidden
from podscale.kube.columns.cohorts import Cohort, Version
from podscale.kube.columns.pod_set import NO_ANNOTATIONS, PodSet, PodView, states, template
from podscale.kube.columns.store import ColumnarStore, Rows
from podscale.kube.informer.list_watch import Happening, WatchBroken
from podscale.kube.objects import pod as objects

V = TypeVar("V")


class InternedKeys(Generic[V]):
    """Numbers for keys; a number is free again when as many rows left it as took it."""

    def __init__(self) -> None:
        self._number: dict[Hashable, int] = {}
        self._keys: list[Hashable] = []
        self._values: list[V | None] = []
        self._users: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._number)

    def take(self, key: Hashable, value: V) -> int:
        """Return the number of ``key``, counting one more user; ``value`` is kept if it is new."""
        number = self._number.get(key)
        if number is not None:
            self._users[number] += 1
            return number
        if self._free:
            number = self._free.pop()
            self._keys[number], self._values[number], self._users[number] = key, value, 1
        else:
            number = len(self._keys)
            self._keys.append(key)
            self._values.append(value)
            self._users.append(1)
        self._number[key] = number
        return number

    def leave(self, number: int) -> None:
        """Count one user less."""
        self._users[number] -= 1
        if not self._users[number]:
            del self._number[self._keys[number]]
            self._keys[number] = self._values[number] = None
            self._free.append(number)

    def __getitem__(self, number: int) -> V:
        value = self._values[number]
        if value is None:
            raise KeyError(number)
        return value

    def values(self) -> list[V | None]:
        """Return the values by their numbers; None: not in use."""
        return self._values.copy()

    def replace(self, number: int, value: V) -> None:
        """Keep ``value`` for ``number`` from now on (a cheaper or derived form of the same)."""
        self._values[number] = value


__all__ = ["PlacedPods", "PodSet", "PodStore", "PodView"]


class PlacedPods(Struct, frozen=True, eq=False):
    """Pods in columns of one length; those that are gone look as if they had succeeded."""

    node: NDArray[np.int32]  # a place in ``nodes``, or not bound
    template: NDArray[np.int32]
    phase: NDArray[np.uint8]
    started: NDArray[np.float64]  # NaN: the kubelet has not taken it yet
    nodes: Sequence[str | None]  # "" and None: no node
    templates: Mapping[int, objects.WirePodTemplate]


_FIELDS: list[tuple[str, DTypeLike]] = [
    ("ready_since", np.float64),
    ("started", np.float64),
    ("created", np.float64),
    ("deleted", np.float64),
    ("template", np.int32),
    ("state", np.int32),
    ("node", np.int32),
    ("phase", np.uint8),
    ("ready", np.uint8),
]
# What the VPA's updater reads, whoever wrote it, and the bytes of memory that are kept of a pod.
_ANNOTATIONS = ("vpaObservedContainers", "vpa.podscale.io/infeasible", "vpaCpuStartupBoost/")
_MOST_ANNOTATIONS = 32 * 1024
_MOST_SPEC = 64 * 1024  # of what is read of a spec: hundreds of containers
_RESIZE = ("PodResizePending", "PodResizeInProgress")
_PHASES = {phase.text: phase for phase in PodPhase}
_READY = {"True": PodReadiness.TRUE, "False": PodReadiness.FALSE}


class PodStore(ColumnarStore[objects.Pod, PodView]):
    """All pods of the scopes. A ``Sink[Pod]``."""

    _type = objects.Pod

    def __init__(
        self, scopes: Sequence[str] = ("",), *, keep_annotations: Sequence[str] = _ANNOTATIONS
    ) -> None:
        """``keep_annotations``: prefixes of the annotations worth their memory."""
        super().__init__(Rows(_FIELDS), scopes)
        self._kept = tuple(keep_annotations)
        self._templates: InternedKeys[objects.PodSpec | objects.WirePodTemplate] = InternedKeys()
        self._states: InternedKeys[objects.PodStatus | tuple[objects.ContainerState, ...]] = (
            InternedKeys()
        )
        self._nodes: InternedKeys[str] = InternedKeys()
        self._uids = bytearray()  # 16 bytes a row; UIDs that are no UUIDs lie in _odd_uids
        self._odd_uids: dict[int, str] = {}
        self._annotations: dict[int, dict[str, str]] = {}
        self._resizes: dict[int, tuple[objects.PodCondition, ...]] = {}
        self._key = msgspec.msgpack.Encoder(enc_hook=float)  # Time is the only one of its kind
        self._refusal: Forbidden | None = None

    def apply(self, happening: Happening[objects.Pod], *, scope: str, now: float) -> None:
        """Take in what a reflector saw."""
        super().apply(happening, scope=scope, now=now)
        if isinstance(happening, WatchBroken) and isinstance(happening.error, Forbidden):
            self._refusal = happening.error

    @property
    def refusal(self) -> Forbidden | None:
        """Why no pods are known: they may not be listed. None once they have been."""
        return None if self.is_synced else self._refusal

    @property
    def is_refused(self) -> bool:
        """Whether the last word on listing pods, of which none are known yet, was a refusal."""
        return self.refusal is not None and isinstance(self.freshness().error, Forbidden)

    def select(self, namespace: str, selector: Selector) -> PodSet:
        return self._set(self._rows.cohorts.find(namespace, selector))

    def unchanged(
        self, namespace: str, selector: Callable[[], Selector], before: Version | None
    ) -> Version:
        """Return ``before`` as long as ``select`` would return the same pods in the same state
        as then, else a new version to ask with the next time. ``selector`` is called where it
        is needed."""
        return self._rows.cohorts.version(namespace, selector, before)

    def names_at(self, version: Version) -> list[str]:
        """Return ``names`` of the pods that ``version`` is of, as long as it stands."""
        names = self._rows.names
        return sorted([names[row] for cohort in version.cohorts for row in cohort.rows])

    def owned_by(self, uid: str) -> PodSet:
        """Return the pods whose controller has this UID."""
        return self._set(self._rows.cohorts.owned_by(uid))

    def select_all(self, namespace: str | None = None) -> PodSet:
        return self._set(self._rows.cohorts.in_namespace(namespace))

    def _set(self, cohorts: list[Cohort]) -> PodSet:
        rows = self._rows
        where = rows.rows_of(cohorts)
        table = rows.table[where]  # a copy of whole rows: one gather for all columns
        return PodSet(
            [rows.names[row] for row in where.tolist()],
            table,
            spans=[(cohort.namespace, len(cohort.rows), cohort.key[2]) for cohort in cohorts],
            templates={number: self.template(number) for number in set(table["template"].tolist())},
            owners={cohort.owner.uid: cohort.owner for cohort in cohorts if cohort.owner},
            get=self.get,
        )

    def placed(self) -> PlacedPods:
        """Return all pods as columns, with their nodes: for sums over nodes."""
        rows = self._rows
        table = rows.table[: len(rows.names)]
        # Column by column: a copy of whole rows would leave each with gaps, twice as slow to read.
        node, templates = table["node"].copy(), table["template"].copy()
        known = templates[templates >= 0]
        numbers = np.flatnonzero(np.bincount(known)).tolist() if len(known) else ()
        return PlacedPods(
            node,
            templates,
            table["phase"].copy(),
            table["started"].copy(),
            self._nodes.values(),
            dict(zip(numbers, map(self.template, numbers), strict=True)),
        )

    def rows(self, namespace: str, selector: Selector) -> NDArray[np.int32]:
        """Return where in the columns of ``placed`` the pods that match are."""
        return self._rows.rows_of(self._rows.cohorts.find(namespace, selector))

    def at(self, rows: Iterable[int]) -> list[PodView]:
        """Return the pods in these rows, places in the columns of ``placed``, as they are now."""
        cohorts = ((row, self._rows.cohort(row)) for row in rows if self._rows.names[row])
        return [self._view(cohort.namespace, row) for row, cohort in cohorts]

    def resizing(self) -> list[PodView]:
        """Return the pods that have a condition about a resize."""
        return self.at(self._resizes)

    def template(self, number: int) -> objects.WirePodTemplate:
        """Return a template by its number; derived from the wire form at the first call."""
        kept = self._templates[number]
        if isinstance(kept, objects.WirePodTemplate):
            return kept
        made = template(kept)
        self._templates.replace(number, made)
        return made

    def _state(self, number: int) -> tuple[objects.ContainerState, ...]:
        kept = self._states[number]
        if not isinstance(kept, objects.PodStatus):
            return kept
        made = states(kept)
        self._states.replace(number, made)
        return made

    def _fill(self, row: int, obj: objects.Pod, *, is_new: bool) -> None:
        meta, spec, status = obj.metadata, obj.spec, obj.status
        column = self._rows.column
        if not is_new:
            self._leave_interned(row)
        # What pods of one workload share: equal for equal pods.
        shared = structs.replace(spec, node_name="")
        if len(key := self._key.encode(shared)) > _MOST_SPEC:
            shared = objects.PodSpec(priority=spec.priority)
            key = self._key.encode(shared)
        state = objects.PodStatus(
            container_statuses=status.container_statuses,
            init_container_statuses=status.init_container_statuses,
        )
        column["template"][row] = self._templates.take(key, shared)
        column["state"][row] = self._states.take(self._key.encode(state), state)
        column["node"][row] = self._nodes.take(spec.node_name, spec.node_name)
        column["phase"][row] = _PHASES.get(status.phase, 0)
        column["started"][row] = _or_nan(status.start_time)
        column["created"][row] = _or_nan(meta.creation_timestamp)
        column["deleted"][row] = _or_nan(meta.deletion_timestamp)
        self._write_conditions(row, status.conditions)
        self._write_uid(row, meta.uid)
        self._write_annotations(row, meta.annotations)

    def _write_conditions(self, row: int, conditions: Sequence[objects.PodCondition]) -> None:
        ready, since, resize = _read_conditions(conditions)
        self._rows.column["ready"][row] = ready
        self._rows.column["ready_since"][row] = since
        if resize:
            self._resizes[row] = resize
        elif self._resizes:
            self._resizes.pop(row, None)

    def _write_uid(self, row: int, uid: str) -> None:
        start = 16 * row
        if start + 16 > len(self._uids):
            self._uids.extend(bytes(16 * len(self._rows.table) - len(self._uids)))
        packed = _packed(uid)
        self._uids[start : start + 16] = packed or bytes(16)
        if packed is None:
            self._odd_uids[row] = uid
        elif self._odd_uids:
            self._odd_uids.pop(row, None)

    def _write_annotations(self, row: int, annotations: Mapping[str, str] | None) -> None:
        kept: dict[str, str] = {}
        left = _MOST_ANNOTATIONS
        for key, value in (annotations or NO_ANNOTATIONS).items():
            size = getsizeof(key) + getsizeof(value)
            if size <= left and key.startswith(self._kept):
                left -= size
                kept[key] = value
        if kept:
            self._annotations[row] = kept
        elif self._annotations:
            self._annotations.pop(row, None)

    def _release(self, row: int) -> None:
        self._leave_interned(row)
        # What is left of a removed pod names nobody's node and template any more.
        self._rows.column["template"][row] = -1
        self._rows.column["phase"][row] = PodPhase.SUCCEEDED
        self._odd_uids.pop(row, None)
        self._annotations.pop(row, None)
        self._resizes.pop(row, None)

    def _leave_interned(self, row: int) -> None:
        column = self._rows.column
        self._templates.leave(int(column["template"][row]))
        self._states.leave(int(column["state"][row]))
        self._nodes.leave(int(column["node"][row]))

    def _uid(self, namespace: str, name: str) -> str:
        return self._uid_at(self._rows.in_namespace(namespace)[name])

    def _uid_at(self, row: int) -> str:
        odd = self._odd_uids.get(row)
        if odd is not None:
            return odd
        text = self._uids[16 * row : 16 * row + 16].hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _view(self, namespace: str, row: int) -> PodView:
        rows = self._rows
        record = rows.table[row]
        cohort = rows.cohort(row)
        version = int(record["version"])
        return PodView(
            namespace=namespace,
            name=rows.names[row],
            uid=self._uid_at(row),
            resource_version=str(version) if version >= 0 else "",
            labels=cohort.labels,
            annotations=self._annotations.get(row, NO_ANNOTATIONS),
            owner=cohort.owner,
            node=self._nodes[int(record["node"])],
            phase=PodPhase(int(record["phase"])),
            ready=PodReadiness(int(record["ready"])),
            ready_since=float(record["ready_since"]),
            started=float(record["started"]),
            created=float(record["created"]),
            deleted=float(record["deleted"]),
            template=self.template(int(record["template"])),
            states=self._state(int(record["state"])),
            resize=self._resizes.get(row, ()),
        )


def view_of(pod: objects.Pod) -> PodView:
    """Return one pod that somebody sent, with all its annotations."""
    meta, status = pod.metadata, pod.status
    ready, since, resizes = _read_conditions(status.conditions)
    return PodView(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=meta.labels or {},
        annotations=NO_ANNOTATIONS if meta.annotations is None else meta.annotations,
        owner=meta.controller,
        node=pod.spec.node_name,
        phase=_PHASES.get(status.phase, PodPhase.UNKNOWN),
        ready=ready,
        ready_since=since,
        started=_or_nan(status.start_time),
        created=_or_nan(meta.creation_timestamp),
        deleted=_or_nan(meta.deletion_timestamp),
        template=template(pod.spec),
        states=states(status),
        resize=resizes,
    )


def _read_conditions(
    conditions: Sequence[objects.PodCondition],
) -> tuple[PodReadiness, float, tuple[objects.PodCondition, ...]]:
    # Whether the pod is Ready, since when, and what is said of a resize.
    ready, since = PodReadiness.ABSENT, math.nan
    resizes: tuple[objects.PodCondition, ...] = ()
    for condition in conditions:
        if condition.type == "Ready":
            ready = _READY.get(condition.status, PodReadiness.UNKNOWN)
            since = _or_nan(condition.last_transition_time)
        elif condition.type in _RESIZE:
            resizes = (*resizes, condition)
    return ready, since, resizes


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _packed(uid: str) -> bytes | None:
    """A UUID in 16 bytes, or None for what would not come back as it is written."""
    if len(uid) != 36 or (uid != uid.lower()):
        return None
    try:
        packed = bytes.fromhex(uid.replace("-", ""))
    except ValueError:
        return None
    return packed if len(packed) == 16 and uid[8] == uid[13] == uid[18] == uid[23] == "-" else None
