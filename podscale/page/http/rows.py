"""One workload as one row of the list, and its lines as lists of numbers."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from podscale.page.state.board import ShownWorkload
from podscale.page.state.point_ring import PointRing
from podscale.page.values.json_values import STATES, Row, Spark, State
from podscale.page.values.scaling import ScalingFacts

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
    namespace, kind, name = workload.id
    found, vpa = workload.scaling, workload.vpa
    at = max((found.at if found is not None else 0.0), _last(workload.cpu))
    reading = found.reading if found is not None else None
    return Row(
        "/".join(workload.id),
        namespace,
        name,
        kind,
        workload.hpa,
        sorted(workload.scalings.keys() - {workload.hpa}),
        vpa.name if vpa is not None else "",
        state_of(workload),
        reason_of(workload),
        at,
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


def _last(ring: PointRing | None) -> float:
    return float(ring.times()[-1]) if ring is not None and len(ring) else 0.0
