"""What the pods of each node request at this moment: for answers between two rounds."""

import numpy as np

from podscale.core.pod_state import PodPhase
from podscale.kube.columns.pods import PodStore, PodView
from podscale.kube.informer.fed_store import Change
from podscale.nodes.cluster.node_table import NodeArrays
from podscale.nodes.cluster.pod_sums import counted_requests, gives_way
from podscale.nodes.decide.ballast import Floats


class LiveRequests:
    """Sums over all pods but ballast and headroom, kept by the store's changes."""

    def __init__(self, pods: PodStore, namespace: str) -> None:
        """``namespace`` is that of ballast."""
        self._namespace = namespace
        self._columns: dict[str, int] = {}  # of ``_sums``, by node; the first is of all others
        self._sums: Floats = np.zeros((2, 64))
        self._of: NodeArrays | None = None  # the nodes that ``_order`` is of
        self._order = np.zeros(0, np.int64)
        for view in pods.at(range(len(pods.placed().node))):
            self._add(view, 1.0)
        pods.subscribe(self._changed)

    def over(self, nodes: NodeArrays) -> Floats:
        """Return the sums, of shape (2, n), in the order of ``nodes``."""
        if nodes is not self._of:
            columns = [self._columns.get(name, 0) for name in nodes.names]
            self._of, self._order = nodes, np.array(columns, np.int64)
        return np.take(self._sums, self._order, axis=1)

    def _changed(self, change: Change[PodView]) -> None:
        if change.old is not None:
            self._add(change.old, -1.0)
        if change.new is not None:
            self._add(change.new, 1.0)

    def _add(self, view: PodView, sign: float) -> None:
        has_ended = view.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)
        if not view.node or has_ended or gives_way(view, self._namespace):
            return
        column = self._column(view.node)  # which may make ``_sums`` anew
        self._sums[:, column] += sign * np.array(counted_requests(view))

    def _column(self, name: str) -> int:
        column = self._columns.get(name)
        if column is None:
            if len(self._columns) + 1 == self._sums.shape[1]:
                self._forget_empty()
            column = self._columns[name] = len(self._columns) + 1
            self._of = None
        return column

    def _forget_empty(self) -> None:
        # Nodes go, and whoever creates a pod may bind it to any name.
        held = [name for name, column in self._columns.items() if self._sums[:, column].any()]
        sums = np.zeros((2, max(64, 2 * len(held))))
        sums[:, 1 : len(held) + 1] = self._sums[:, [self._columns[name] for name in held]]
        self._columns, self._sums = {name: place for place, name in enumerate(held, 1)}, sums
