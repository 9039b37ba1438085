"""What the page remembers: one entry per scaled or sized object, newest facts and points.

Fed by the HPA's traces (it is their follower) and by the sampler. Read by the API. Bounded:
``MOST_POINTS`` points a line, ``MOST_MARKS`` marks, and nothing of what has been deleted.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from hpa.cluster.record import Key
from hpa.decide.decision import Trace
from podscale.explain.explanation import Explanation
from podscale.page.shown import Recommended, ScalingFacts, scaling_facts, scaling_mark
from podscale.page.values import Recent, ShownDecision

MOST_POINTS = 240
_FIRST_POINTS = 30  # most workloads of a short run never need more


class PointRing:
    """Points of one workload over time: columns of float32 beside a time, 4 bytes a value.

    A full ring thins the older half of itself: what is recent keeps every point, what is older
    becomes coarser, and the first point stays. Missing values are NaN, never zero.
    Times are kept relative to the first point, so float32 resolves 8 ms after a day.
    """

    __slots__ = ("_base", "_count", "_table")

    def __init__(self, columns: int) -> None:
        self._base = 0.0
        self._count = 0
        self._table = np.empty((_FIRST_POINTS, columns + 1), np.float32)

    def __len__(self) -> int:
        return self._count

    def add(self, at: float, *values: float | None) -> None:
        """Append one point; None is not known. A point of the same or an older time replaces
        the last one: time never runs backwards on a line.
        """
        if not self._count:
            self._base = at
        offset = at - self._base
        row = self._count
        if row and offset <= self._table[row - 1, 0]:
            row -= 1
            offset = float(self._table[row, 0])
        if row == len(self._table):
            row = self._make_room()
        self._table[row, 0] = offset
        for column, value in enumerate(values, start=1):
            self._table[row, column] = np.nan if value is None else value
        self._count = row + 1

    def times(self, *, since: float = 0.0) -> NDArray[np.float64]:
        """Return the unix times of the points from ``since`` on."""
        return self._from(since)[:, 0].astype(np.float64) + self._base

    def columns(self, *, since: float = 0.0) -> list[NDArray[np.float64]]:
        """Return the columns without the time, of the points from ``since`` on."""
        return list(self._from(since)[:, 1:].T.astype(np.float64))

    def _from(self, since: float) -> NDArray[np.float32]:
        table = self._table[: self._count]
        if since <= self._base:
            return table
        return table[np.searchsorted(table[:, 0], since - self._base) :]

    def _make_room(self) -> int:
        table, count = self._table, self._count
        if count < MOST_POINTS:
            grown = np.empty((min(2 * count, MOST_POINTS), table.shape[1]), np.float32)
            grown[:count] = table
            self._table = grown
            return count
        half = count // 2
        kept = (half + 1) // 2
        table[:kept] = table[:half:2].copy()
        table[kept : kept + count - half] = table[half:].copy()
        return kept + count - half


MOST_MARKS = 24  # of sizing, a workload
MOST_RECENT = 12
MOST_HPAS = 8  # of one object: more are a mistake, and every look at it costs for each

Id = tuple[str, str, str]  # namespace, kind and name of what is scaled


class ShownWorkload:
    """One scaled or sized object."""

    __slots__ = ("cpu", "hpa", "id", "kills", "looked_at", "marks", "memory", "scaling",
                 "scaling_ring", "scalings", "sizing_note", "vpa")  # fmt: skip

    def __init__(self, id_: Id) -> None:
        self.id = id_
        self.hpa: str = ""  # whose load and decisions are drawn: of several the first by name
        self.scaling: ScalingFacts | None = None  # of that one
        self.scalings: dict[str, ScalingFacts] = {}  # of MOST_HPAS autoscalers of the object
        self.scaling_ring: PointRing | None = None  # load, target, replicas
        self.vpa: Recommended | None = None
        self.cpu: PointRing | None = None  # usage, request, limit, recommended
        self.memory: PointRing | None = None
        self.marks: deque[tuple[ShownDecision, Explanation]] = deque(maxlen=MOST_MARKS)  # of pods
        self.kills: dict[tuple[str, str], float] = {}  # when a pod's container was OOM-killed last
        self.sizing_note = ""
        self.looked_at = 0.0  # wall time of the last question about it

    @property
    def selector(self) -> str:
        """The pods, as a label selector; empty: not known."""
        if self.scaling is not None and self.scaling.selector:
            return self.scaling.selector
        return self.vpa.selector if self.vpa is not None else ""


class WorkloadBoard:
    """All workloads. A ``hpa.history.decision_log.Follower``."""

    def __init__(self) -> None:
        self._workloads: dict[Id, ShownWorkload] = {}
        self._of_hpa: dict[Key, Id] = {}
        self._of_vpa: dict[Key, Id] = {}
        self._recent: deque[Recent] = deque(maxlen=MOST_RECENT)
        self.version = 0  # changes with every new or gone workload

    def __len__(self) -> int:
        return len(self._workloads)

    def __iter__(self) -> Iterator[ShownWorkload]:
        yield from list(self._workloads.values())

    def get(self, id_: Id) -> ShownWorkload | None:
        return self._workloads.get(id_)

    def decided(self, key: Key, trace: Trace, reason: str) -> None:
        """Take in one decision of the HPA."""
        found = scaling_facts(trace, reason)
        id_ = (key[0], found.kind, found.target)
        before = self._of_hpa.get(key)
        if before is not None and before != id_:
            self._leave_hpa(key)
        workload = self._workload(id_)
        if key[1] not in workload.scalings and len(workload.scalings) >= MOST_HPAS:
            return
        self._of_hpa[key] = id_
        workload.scalings[key[1]] = found
        _draw_first(workload)
        if found.is_rescale:
            self._note(workload, scaling_mark(key[1], found))
        if workload.hpa != key[1]:
            return
        if workload.scaling_ring is None:
            workload.scaling_ring = PointRing(3)
        measured = found.reading
        workload.scaling_ring.add(found.at, measured.load, measured.target, found.replicas)

    def recent(self) -> Sequence[Recent]:
        """Return what changed lately, the newest first."""
        return [
            each for each in reversed(self._recent) if tuple(each.id.split("/")) in self._workloads
        ]

    def noted(self, workload: ShownWorkload, change: ShownDecision, explained: Explanation) -> None:
        """Take in something that happened to the size of pods."""
        workload.marks.append((change, explained))
        self._note(workload, change)

    def _note(self, workload: ShownWorkload, change: ShownDecision) -> None:
        id_ = "/".join(workload.id)
        self._recent.append(Recent(id_, change.at, change.title, change.reason, change.direction))

    def forgotten(self, key: Key | None) -> None:
        """Forget a deleted HPA, or all of them."""
        for each in list(self._of_hpa) if key is None else (key,):
            self._leave_hpa(each)

    def recommended(self, key: Key, found: Recommended) -> ShownWorkload:
        """Take in what a VPA recommends now; returns its workload."""
        id_ = (key[0], found.kind, found.target)
        before = self._of_vpa.get(key)
        if before is not None and before != id_:
            self._leave_vpa(key)
        self._of_vpa[key] = id_
        workload = self._workload(id_)
        workload.vpa = found
        return workload

    def keep_vpas(self, keys: set[Key]) -> None:
        """Forget every VPA but these."""
        for key in [key for key in self._of_vpa if key not in keys]:
            self._leave_vpa(key)

    def used(
        self,
        workload: ShownWorkload,
        at: float,
        cpu: Sequence[float | None],
        memory: Sequence[float | None],
    ) -> None:
        """Take in one sample of what the pods use and may use: ``shown.usage`` of each."""
        if workload.cpu is None or workload.memory is None:
            workload.cpu, workload.memory = PointRing(4), PointRing(4)
        workload.cpu.add(at, *cpu)
        workload.memory.add(at, *memory)

    def _workload(self, id_: Id) -> ShownWorkload:
        workload = self._workloads.get(id_)
        if workload is None:
            workload = self._workloads[id_] = ShownWorkload(id_)
            self.version += 1
        return workload

    def _leave_hpa(self, key: Key) -> None:
        id_ = self._of_hpa.pop(key, None)
        workload = self._workloads.get(id_) if id_ is not None else None
        if workload is None:
            return
        workload.scalings.pop(key[1], None)
        _draw_first(workload)
        if not workload.scalings:
            self._drop_empty(workload)

    def _leave_vpa(self, key: Key) -> None:
        id_ = self._of_vpa.pop(key, None)
        workload = self._workloads.get(id_) if id_ is not None else None
        if workload is None or workload.vpa is None or workload.vpa.name != key[1]:
            return
        workload.vpa = None
        workload.marks.clear()
        self._drop_empty(workload)

    def _drop_empty(self, workload: ShownWorkload) -> None:
        if workload.scaling is None and workload.vpa is None:
            del self._workloads[workload.id]
            self.version += 1


def _draw_first(workload: ShownWorkload) -> None:
    # One line cannot show two loads: several autoscalers of one object are named beside it.
    first = min(workload.scalings, default="")
    if first != workload.hpa:
        workload.hpa, workload.scaling_ring = first, None
    workload.scaling = workload.scalings.get(first)
