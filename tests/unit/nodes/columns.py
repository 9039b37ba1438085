"""Nodes as ballast decides on them, for tests."""

import math
from collections.abc import Sequence

import numpy as np

from podscale.nodes.decide.ballast import Bools, Floats, HeldBallast, NodeColumns, NodeStates

GI = 2.0**30


def nodes(
    usage: Sequence[float],
    *,
    requested: float = 4000.0,
    allocatable: float = 9800.0,
    capacity: float = 10_000.0,
    young: float = 0.0,
) -> NodeColumns:
    """Return nodes of ``usage`` in thousandths of a core, measured at 1000; memory is idle."""

    def rows(cpu: Sequence[float], memory: float) -> Floats:
        return np.array([cpu, [memory] * len(usage)], np.float64)

    count = len(usage)
    return NodeColumns(
        capacity=rows([capacity] * count, 32 * GI),
        allocatable=rows([allocatable] * count, 31 * GI),
        usage=rows(usage, GI),
        young=rows([young] * count, 0.0),
        requested=rows([requested] * count, 4 * GI),
        measured_s=np.full(count, 1000.0),
    )


def states(count: int, **said: bool) -> NodeStates:
    """Return the states of ``count`` nodes."""

    def flag(name: str) -> Bools:
        return np.full(count, said.get(name, False))

    return NodeStates(
        flag("is_excluded"),
        flag("is_pressed"),
        flag("is_cordoned"),
        flag("is_draining"),
    )


def held(*cpu: float, written_s: float = -math.inf) -> HeldBallast:
    """Return ballast that requests ``cpu`` and the least memory."""
    return HeldBallast(
        np.array([cpu, [2.0**20] * len(cpu)], np.float64), np.full(len(cpu), written_s)
    )
