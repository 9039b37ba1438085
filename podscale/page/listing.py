"""One workload as one row of the list, and its lines as lists of numbers."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.page.board import PointRing, ShownWorkload, WorkloadBoard
from podscale.page.shown import ScalingFacts
from podscale.page.values import STATES, Row, ShownListing, ShownWaiting, Spark, State

_SPARK_POINTS = 48
_DIGITS = 4
_EMPTY = Spark((), (), ())


def state_of(workload: ShownWorkload) -> State:
    """Return the state that needs somebody most, of its scaling and its sizing."""
    found, vpa = workload.scaling, workload.vpa
    if len(workload.scalings) > 1:
        found = _worst(workload)
    # Asked of ten thousand for every look at a list.
    if vpa is None:
        return "steady" if found is None else found.state
    if found is None:
        return vpa.state
    return min(found.state, vpa.state, key=STATES.index)


def reason_of(workload: ShownWorkload) -> str:
    """Return the reason behind ``state_of``."""
    state = state_of(workload)
    for each in (_worst(workload), workload.vpa):
        if each is not None and each.state == state:
            return each.reason
    return ""


def _worst(workload: ShownWorkload) -> ScalingFacts | None:
    every = workload.scalings.values()
    return min(every, key=lambda each: STATES.index(each.state), default=None)


def row(workload: ShownWorkload) -> Row:
    found, vpa = workload.scaling, workload.vpa
    reading = found.reading if found is not None else None
    return Row(
        "/".join(workload.id),
        workload.hpa,
        sorted(workload.scalings.keys() - {workload.hpa}),
        vpa.name if vpa is not None else "",
        state_of(workload),
        reason_of(workload),
        found.replicas if found is not None else None,
        found.wants if found is not None else None,
        found.least if found is not None else None,
        found.most if found is not None else None,
        reading.metric if reading is not None else "",
        reading.unit if reading is not None else "",
        reading.load if reading is not None else None,
        reading.target if reading is not None else None,
        spark(workload),
    )


def spark(workload: ShownWorkload) -> Spark:
    """Return a few points of what the workload follows: its load, else its usage."""
    ring = workload.scaling_ring
    if ring is not None and len(ring):
        load, target, replicas = ring.columns()
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(target > 0, load / target, np.nan)
        pick = _thin(len(share))
        return Spark(numbers(ring.times()[pick]), numbers(share[pick]), numbers(replicas[pick]))
    if workload.cpu is None or workload.memory is None:
        return _EMPTY
    shares = []
    for each in (workload.cpu, workload.memory):
        used, request, _, _ = each.columns()
        with np.errstate(divide="ignore", invalid="ignore"):
            shares.append(np.where(request > 0, used / request, np.nan))
    pick = _thin(len(workload.cpu))
    return Spark(
        numbers(workload.cpu.times()[pick]), (), (), numbers(np.fmax(*shares)[pick])
    )  # fmt: skip


def points(ring: PointRing, since: float) -> list[Sequence[float]]:
    """Return the times of the points from ``since`` on, then each column."""
    return [numbers(each) for each in (ring.times(since=since), *ring.columns(since=since))]


def numbers(values: NDArray[np.float64]) -> Sequence[float]:
    """Return floats short enough for JSON; NaN becomes null there."""
    found: list[float] = np.round(values, _DIGITS).tolist()
    return found


def _thin(count: int) -> NDArray[np.intp]:
    if count <= _SPARK_POINTS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, _SPARK_POINTS).astype(np.intp))


MOST_ROWS = 100
_EXAMPLES = 3
_MOST_WAITING = 12


class Query(Struct, frozen=True):
    """What is asked for."""

    text: str = ""  # words that namespace, name, kind or reason contain, in any order
    state: str = ""  # one of STATES; empty: all
    offset: int = 0
    limit: int = 25


class WorkloadList:
    """Answers queries; keeps the order of names between changes."""

    def __init__(self, board: WorkloadBoard) -> None:
        self._board = board
        self._version = -1
        self._ordered: list[ShownWorkload] = []

    def answer(self, query: Query, *, now: float, is_leader: bool) -> ShownListing:
        """Return one page. Linear in the number of workloads."""
        ordered = self._in_order()
        states = [state_of(workload) for workload in ordered]
        counts: dict[State, int] = dict.fromkeys(STATES, 0)
        for state in states:
            counts[state] += 1
        words = query.text.lower().split()
        found = [
            workload
            for workload, state in zip(ordered, states, strict=True)
            if (not query.state or state == query.state)
            and (not words or _matches(workload, words))
        ]
        limit = max(1, min(query.limit, MOST_ROWS))
        last = max((len(found) - 1) // limit * limit, 0)
        offset = min(max(query.offset, 0), last)
        return ShownListing(
            now,
            len(ordered),
            len(found),
            offset,
            [row(workload) for workload in found[offset : offset + limit]],
            counts,
            waiting(
                (workload, state)
                for workload, state in zip(ordered, states, strict=True)
                if state in ("failing", "waiting")
            ),
            self._board.recent(),
            is_leader,
        )

    def _in_order(self) -> list[ShownWorkload]:
        if self._version != self._board.version:
            self._version = self._board.version
            self._ordered = sorted(
                self._board, key=lambda each: (each.id[0], each.id[2], each.id[1])
            )
        return self._ordered


def waiting(held: Iterable[tuple[ShownWorkload, State]]) -> list[ShownWaiting]:
    """Return what holds workloads back, by reason, failures and frequent ones first."""
    groups: dict[tuple[State, str], list[str]] = defaultdict(list)
    for workload, state in held:
        groups[state, reason_of(workload)].append("/".join(workload.id))
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1]))
    return [
        ShownWaiting(reason, state, len(ids), ids[:_EXAMPLES])
        for (state, reason), ids in ordered[:_MOST_WAITING]
    ]


def _matches(workload: ShownWorkload, words: list[str]) -> bool:
    vpa = workload.vpa.name if workload.vpa is not None else ""
    hpas = " ".join(workload.scalings)
    text = f"{'/'.join(workload.id)} {hpas} {vpa} {reason_of(workload)}".lower()
    return all(word in text for word in words)
