"""What is told of the nodes when it begins, since it opens many of them, or makes all the work
vain, and somebody can mend it. Pure: no I/O, no clock."""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.core.selectors.selector import EVERYTHING
from podscale.nodes.cluster.node_table import BALLAST_LABEL, NodeArrays
from podscale.nodes.cluster.pod_sums import BALLAST_LABELS
from podscale.nodes.decide.ballast import Bools, Floats, Reason
from podscale.nodes.settings import NodesChoice

_NAMED = 3  # nodes in one sentence


class ObservedNodes(Struct, frozen=True, eq=False):
    """One round, as far as conditions are found in it."""

    nodes: NodeArrays
    reasons: NDArray[np.uint8]  # (n,) ``Reason``
    measured_s: Floats  # (2, n) when CPU and memory were measured last; -inf: never
    is_tainted: Bools | bool  # (n,) by mode taint
    at_s: float
    began_s: float  # when this process's first round was
    outage: str  # why nothing at all answers about usage; "": it does


def conditions(seen: ObservedNodes, choice: NodesChoice) -> Mapping[str, str]:
    """Return a sentence for each condition that holds, by its token."""
    nodes, count = seen.nodes, len(seen.nodes.names)
    if not count:
        return {}
    found = {}
    running_s, two_windows_s = seen.at_s - seen.began_s, 2 * choice.ballast.window_s
    # A node that has just come is measured, and has its ballast, in a moment.
    is_old = nodes.created_s < seen.at_s - two_windows_s
    bare = seen.reasons == Reason.NO_BALLAST
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
    stale = (seen.reasons == Reason.STALE_USAGE) & is_old
    if stale.any() and running_s > two_windows_s:
        found[Reason.STALE_USAGE.token] = (
            f"no usage of {_listed(nodes, stale)} was measured for two windows: pods are admitted "
            f"there by requests alone: {seen.outage or _lacking(seen, stale, two_windows_s)}"
        )
    lower = seen.reasons == Reason.LOWER_PRIORITY
    if lower.any():
        found[Reason.LOWER_PRIORITY.token] = (
            f"a pod of lower priority than ballast runs: all of {lower.sum()} nodes are open, "
            "since ballast could cause its preemption"
        )
    if nodes.is_excluded.all():
        by = f"the label {BALLAST_LABEL}=off"
        if choice.selector != EVERYTHING:
            by = f"--node-selector={choice.selector} or {by}"
        found["AllExcluded"] = f"nothing is decided: all of {count} nodes are excluded by {by}"
    if np.all(seen.is_tainted):
        found["AllTainted"] = (
            f"all of {count} nodes have the taint: no new pod lands unless it tolerates that"
        )
    return found


def _lacking(seen: ObservedNodes, stale: Bools, age_s: float) -> str:
    # What these nodes have in common, and where to look.
    names, is_missing = seen.nodes.names, seen.at_s - seen.measured_s > age_s
    lacks = [word for word, row in zip(("CPU", "memory"), is_missing, strict=True)
             if (row & stale).any()]  # fmt: skip
    is_any = (~is_missing).all(axis=0).any()
    return (
        f"what answered has no {' or '.join(lacks)} of theirs that is a number from 0 to twice "
        f"their capacity; {'other nodes are' if is_any else 'no node is'} measured. Is it there, "
        "by the name that the node has? `kubectl get --raw "
        f"/apis/metrics.k8s.io/v1beta1/nodes/{names[int(stale.argmax())]}`; with "
        "--metrics-source=feed it is what nodeQuery of the resourceRules finds (`podscale "
        "doctor -f RULES --prometheus-url URL` checks that query)"
    )


def _listed(nodes: NodeArrays, is_one: Bools) -> str:
    # "5 nodes (a, b, c and 2 more)"
    places = np.flatnonzero(is_one).tolist()
    named = ", ".join(nodes.names[place] for place in places[:_NAMED])
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return f"{len(places)} node{'s' if len(places) > 1 else ''} ({named}{more})"
