"""The fullest nodes, as rows of one table."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from podscale.nodes.decide.ballast import CPU, MEMORY, Reason
from podscale.nodes.rounds import DecidedNodes

MOST_NODES = 50


class NodeAmounts(Struct, frozen=True):
    """One resource of a node: cores or bytes; NaN, null on the wire, is not known."""

    usage: float
    requested: float
    ballast: float  # what it is to request
    allocatable: float
    room: float  # by load: what is left of the threshold


class NodeRow(Struct, frozen=True):
    name: str
    reason: str  # for what its ballast is
    measured: float  # unix seconds: when its usage was last read; NaN: never
    cpu: NodeAmounts
    memory: NodeAmounts


class ShownNodes(Struct, frozen=True):
    """The nodes that are used most, of what they may be, and how many there are."""

    total: int
    rows: Sequence[NodeRow]


def shown_nodes(decided: DecidedNodes | None) -> ShownNodes:
    """Return the table of the newest round; None: there was none, or nodes are not looked at."""
    if decided is None:
        return ShownNodes(0, ())
    names, columns, plan = decided.nodes.names, decided.columns, decided.plan
    most = decided.nodes.thresholds * columns.capacity
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (columns.usage / most).max(axis=0)
    fullest = np.argsort(-share)[:MOST_NODES].tolist()  # NaN comes last
    measured = np.where(np.isfinite(decided.states.measured_s), decided.states.measured_s, np.nan)
    room = np.maximum(most - columns.usage, 0)
    amounts = np.stack([columns.usage, columns.requested, plan.requests, columns.allocatable, room])
    return ShownNodes(
        len(names),
        [
            NodeRow(
                names[place],
                Reason(int(plan.reason[place])).token,
                float(measured[place]),
                NodeAmounts(*(amounts[:, CPU, place] / 1000).tolist()),
                NodeAmounts(*amounts[:, MEMORY, place].tolist()),
            )
            for place in fullest
        ],
    )
