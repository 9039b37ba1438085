"""What is told of the nodes when it begins, since it opens many of them, or makes all the work
vain, and somebody can mend it. Pure: no I/O, no clock."""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.core.selectors.selector import EVERYTHING
from podscale.nodes.cluster.node_table import BALLAST_LABEL, NodeArrays
from podscale.nodes.cluster.pod_sums import BALLAST_LABELS, PodSums
from podscale.nodes.decide import ballast
from podscale.nodes.decide.ballast import Bools, Floats, Reason
from podscale.nodes.flags import NodesChoice

_NAMED = 3  # nodes in one sentence


class DecidedNodes(Struct, frozen=True, eq=False):
    """One round's view of all nodes, and what came of it."""

    nodes: NodeArrays
    columns: ballast.NodeColumns
    sums: PodSums
    plan: ballast.BallastPlan
    written_s: Floats  # (n,) when each node was last written before it
    at_s: float  # unix time of the decision


def conditions(
    decided: DecidedNodes,
    reasons: NDArray[np.uint8],
    measured_s: Floats,
    is_tainted: Bools | bool,
    began_s: float,
    outage: str,
    choice: NodesChoice,
) -> Mapping[str, str]:
    """Return a sentence for each condition that holds, by its token.

    ``reasons`` (n,) are ``Reason``; ``measured_s`` (2, n) when CPU and memory were measured last,
    -inf: never; ``began_s`` when this process's first round was; ``outage`` why nothing at all
    answers about usage, "" where it does.
    """
    nodes, count = decided.nodes, len(decided.nodes.names)
    if not count:
        return {}
    found = {}
    running_s, two_windows_s = decided.at_s - began_s, 2 * choice.ballast.window_s
    # A node that has just come is measured, and has its ballast, in a moment.
    is_old = nodes.created_s < decided.at_s - two_windows_s
    bare = reasons == Reason.NO_BALLAST
    if bare.all():
        # The DaemonSet's first pods may come a moment after we do.
        if running_s >= choice.ballast.write_interval_s:
            found["NoBallastAtAll"] = (
                f"no node has a ballast pod: there is none labelled {BALLAST_LABELS} in namespace "
                f"{choice.namespace}. --ballast-namespace says where they are, "
                "deploy/kustomize/overlays/nodes makes them"
            )
    elif (bare & is_old).any():
        found[Reason.NO_BALLAST.token] = (
            f"no ballast pod is on {_listed(nodes, bare & is_old)}: pods are admitted there by "
            "requests alone; the events of the DaemonSet say what refuses it, if anything does"
        )
    stale = (reasons == Reason.STALE_USAGE) & is_old
    is_missing = decided.at_s - measured_s > two_windows_s
    if stale.any() and running_s > two_windows_s:
        found[Reason.STALE_USAGE.token] = (
            f"no usage of {_listed(nodes, stale)} was measured for two windows: pods are admitted "
            f"there by requests alone: {outage or _lacking(nodes, stale, is_missing)}"
        )
    lower = reasons == Reason.LOWER_PRIORITY
    if lower.any():
        found[Reason.LOWER_PRIORITY.token] = (
            f"pods of lower priority than ballast run on {_listed(nodes, lower)}: all others are "
            "admitted there by requests alone, since ballast could cause the preemption of those"
        )
    if nodes.is_excluded.all():
        by = f"the label {BALLAST_LABEL}=off"
        if choice.selector != EVERYTHING:
            by = f"--node-selector={choice.selector} or {by}"
        found["AllExcluded"] = f"nothing is decided: all of {count} nodes are excluded by {by}"
    if np.all(is_tainted):
        found["AllTainted"] = (
            f"all of {count} nodes have the taint: no new pod lands unless it tolerates that"
        )
    return found


def _lacking(nodes: NodeArrays, stale: Bools, is_missing: Bools) -> str:
    # What these nodes have in common, and where to look.
    lacks = [word for word, row in zip(("CPU", "memory"), is_missing, strict=True)
             if (row & stale).any()]  # fmt: skip
    is_any = (~is_missing).all(axis=0).any()
    return (
        f"what answered has no {' or '.join(lacks)} of theirs that is a number from 0 to twice "
        f"their capacity; {'other nodes are' if is_any else 'no node is'} measured. Is it there, "
        "by the name that the node has? `kubectl get --raw "
        f"/apis/metrics.k8s.io/v1beta1/nodes/{nodes.names[int(stale.argmax())]}`; with "
        "--metrics-source=feed it is what nodeQuery of the resourceRules finds (`podscale "
        "doctor -f RULES --prometheus-url URL` checks that query)"
    )


def _listed(nodes: NodeArrays, is_one: Bools) -> str:
    # "5 nodes (a, b, c and 2 more)"
    places = np.flatnonzero(is_one).tolist()
    named = ", ".join(nodes.names[place] for place in places[:_NAMED])
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return f"{len(places)} node{'s' if len(places) > 1 else ''} ({named}{more})"
