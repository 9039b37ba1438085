"""Which nodes are tainted by measured load: the coarse way, where pods cannot be resized.

Pure: no I/O, no clock.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.nodes.decide.ballast import (
    LEAST,
    BallastSettings,
    Bools,
    Floats,
    HeldBallast,
    NodeColumns,
    NodeStates,
    Reason,
    standing,
)


class TaintPlan(Struct, frozen=True, eq=False):
    """Which of n nodes are to have the taint: arrays of length n."""

    is_wanted: Bools
    is_due: Bools  # whether it is to be written now
    reason: NDArray[np.uint8]  # ``Reason``


def plan(
    nodes: NodeColumns,
    states: NodeStates,
    is_tainted: Bools,
    written_s: Floats,
    thresholds: Floats,
    now: float,
    settings: BallastSettings,
) -> TaintPlan:
    """Return which nodes get the taint and which lose it.

    A node gets it where CPU or memory is used up to the threshold, and keeps it until both are
    below ``1 - taint_hysteresis`` of theirs. What lets ballast go takes it away at once.
    """
    none = HeldBallast(np.broadcast_to(LEAST, nodes.usage.shape), written_s)
    reason = standing(nodes, states, none, now, settings, has_lower_priority=False)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = ((nodes.usage + nodes.young) / (thresholds * nodes.capacity)).max(axis=0)
        edge = np.where(is_tainted, 1.0 - settings.taint_hysteresis, 1.0)
        is_loaded = (reason == Reason.LOADED) & (share >= edge)
    is_deciding = reason == Reason.LOADED
    reason = np.where(is_deciding & ~is_loaded, Reason.LOW_USAGE, reason)
    is_changed = is_loaded != is_tainted
    too_soon = is_changed & is_deciding & (now - written_s < settings.write_interval_s)
    reason = np.where(too_soon, Reason.TOO_SOON, reason)
    return TaintPlan(is_loaded, is_changed & ~too_soon, reason.astype(np.uint8))
