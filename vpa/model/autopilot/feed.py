"""Leads the samples of the model's containers to Autopilot's slots."""

import numpy as np

from vpa.model.autopilot.recommender import Autopilot
from vpa.model.cluster import ClusterModel
from vpa.model.histograms.matrix import Columns, Floats
from vpa.model.samples.membership import VpaKey


class AutopilotFeed:
    """An ``Observer`` of a cluster, for those of its VPAs that chose this recommender."""

    def __init__(self, cluster: ClusterModel, autopilot: Autopilot) -> None:
        self._cluster, self._autopilot = cluster, autopilot
        self._version = -1
        self._slot_of: Columns = np.empty(0, dtype=np.intp)
        self._known: set[VpaKey] = set()
        cluster.intake.observer = self

    def observe(
        self, resource: str, rows: Columns, columns: Columns, values: Floats, now: float
    ) -> None:
        """Hand over samples; aggregates of no VPA are left out."""
        self._follow()
        self._autopilot.take(resource, rows, self._slot_of[columns], values, now)

    def _follow(self) -> None:
        cluster = self._cluster
        if (
            self._version == cluster.version
            and self._slot_of.size == cluster.aggregates.created.size
        ):
            return
        slots = np.full(cluster.aggregates.created.size, -1, dtype=np.intp)
        mine = {key for key, entry in cluster.vpas.items() if entry.settings.is_autopilot}
        for key in mine:
            entry = cluster.vpas[key]
            for container in entry.containers():
                slot = self._autopilot.slot(key, container)
                for column in entry.columns.get(container, {}).values():
                    slots[column] = slot
        for gone in self._known - mine:
            self._autopilot.remove(gone)
        self._known = mine
        self._slot_of, self._version = slots, cluster.version
