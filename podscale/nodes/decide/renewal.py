"""Which nodes' ballast is made anew, so that a pod of a higher class takes its place and not that
of a user's pod of ballast's own class.

Between pods of one priority kube-scheduler lets stay who started first, and of two nodes takes the
one whose victim started last. Pure: no I/O, no clock.
"""

import numpy as np
from numpy.typing import NDArray

from podscale.nodes.decide.ballast import (
    CPU,
    LEAST,
    MEMORY,
    BallastPlan,
    Bools,
    Floats,
    NodeColumns,
    Reason,
)

_SETTLED = (Reason.LOADED, Reason.WITHIN_STEP)


def due(
    nodes: NodeColumns,
    plan: BallastPlan,
    started_s: Floats,
    rival_s: float,
    *,
    is_recent: Bools | bool = False,
) -> NDArray[np.intp]:
    """Return the places whose ballast is made anew: all roomiest ones that are late, and the one
    that is late longest.

    ``started_s``: when the ballast of each node started; NaN: it has not, or is being made anew.
    ``rival_s``: when the newest user's pod of its priority did. ``is_recent``: the node was
    written less than a write interval ago, or that was tried; its turn comes later. Where a pod
    fits but for ballast, it fits on one of the roomiest nodes, and there the victim that started
    last is ballast.
    """
    is_held = (plan.requests > LEAST).any(axis=0)
    room = nodes.allocatable - nodes.requested
    # A second ballast pod would wait for ever; nor does any other pod that requests both fit.
    can_surge = (room >= 2 * LEAST).all(axis=0)
    is_settled = np.isin(plan.reason, _SETTLED) & ~np.asarray(is_recent)
    is_late = is_held & can_surge & is_settled & (started_s <= rival_s)
    late = np.flatnonzero(is_late)
    if not len(late):
        return late
    longest = late[np.argmin(started_s[late])]
    roomiest = _roomiest(room, np.flatnonzero(is_held))
    return np.union1d(roomiest[is_late[roomiest]], longest)


def _roomiest(room: Floats, places: NDArray[np.intp]) -> NDArray[np.intp]:
    # Those of ``places`` of which no other has more room of both resources.
    by_cpu = places[np.lexsort((-room[MEMORY, places], -room[CPU, places]))]
    memory = room[MEMORY, by_cpu]
    most_before = np.maximum.accumulate(np.concatenate(([-np.inf], memory[:-1])))
    found: NDArray[np.intp] = by_cpu[memory > most_before]
    return found
