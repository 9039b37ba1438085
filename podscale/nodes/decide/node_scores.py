"""What a pod meets on each node by measured load: ballast's decision, for who asks about a pod.

Pure. Amounts are arrays of shape (2, n): thousandths of a core, bytes.
"""

import numpy as np
from numpy.typing import NDArray

from podscale.nodes.decide.ballast import LEAST, BallastPlan, Bools, Floats, NodeColumns

BEST = 10  # of an extender's scores


def refuses(
    nodes: NodeColumns, plan: BallastPlan, requested: Floats, pod: tuple[float, float]
) -> Bools:
    """Return which nodes the fit check would refuse to ``pod`` with the ballast of ``plan``.

    ``requested``: by all pods but ballast and headroom, now. A resource that the pod does not
    request, and one of which ballast would hold its least, refuses nothing.
    """
    full = np.zeros(requested.shape[1], np.bool_)
    for row, wanted in enumerate(pod):
        if wanted > 0:
            held = plan.requests[row]
            room = nodes.allocatable[row] - held - requested[row]
            full |= (wanted > room) & (held > LEAST[row])  # NaN: cannot be read, left alone
    return full


def scores(
    nodes: NodeColumns, thresholds: Floats, requested: Floats, pod: tuple[float, float]
) -> NDArray[np.int64]:
    """Return 0 to ``BEST``: the further below its thresholds a node stays with the pod, the
    better. What was never measured counts as full.

    ``requested`` as for ``refuses``: what came since ``nodes`` were read counts as young, and a
    young pod that has gone does not any more.
    """
    young = np.maximum(nodes.young + requested - nodes.requested, 0.0)
    load = nodes.usage + young + np.array(pod)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (load / (thresholds * nodes.capacity)).max(axis=0)
    left = 1.0 - np.clip(np.nan_to_num(share, nan=1.0), 0.0, 1.0)
    return np.asarray(np.rint(BEST * left), np.int64)
