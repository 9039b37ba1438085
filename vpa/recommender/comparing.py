"""Compares each sample with what was published for its container when it arrived."""

import numpy as np

from podscale.core.metrics import ContainerColumns
from vpa.model.cluster import Cluster
from vpa.model.groups import Named
from vpa.model.histograms import Columns, Floats
from vpa.model.objects import update_mode
from vpa.model.quantities import EMPTY, RESOURCES
from vpa.model.reading import Estimates, Reader
from vpa.recommender.quality import Codes, Kind, Quality, kinds_of
from vpa.stores import Stores


class Comparing:
    """For one term of leadership; ``follow`` after statuses were written."""

    def __init__(self, quality: Quality, cluster: Cluster, reader: Reader, stores: Stores) -> None:
        self._quality = quality
        self._cluster = cluster
        self._reader = reader
        self._stores = stores
        self._keys: list[Named] = []
        self._published = np.zeros((0, len(RESOURCES)))
        self._places: Columns = np.empty(0, dtype=np.intp)
        self._codes: Codes = np.empty(0, dtype=np.intp)
        self._kinds: list[Kind] = []

    def follow(self, estimates: Estimates) -> None:
        """Take over what is published now."""
        keys = list(estimates.keys)
        published = np.zeros((len(keys), len(RESOURCES)))
        modes: dict[int, str] = {}
        matched = self._cluster.matched()
        sizes: dict[int, int] = {}
        for key, first in estimates.first.items():
            vpa = self._stores.vpa(key)
            found = vpa.status.recommendation if vpa is not None else None
            for row in range(first, first + estimates.count[key]):
                modes[row] = update_mode(vpa) if vpa is not None else ""
                sizes[row] = matched.get(key, 0)
                entry = found.of(keys[row][1]) if found is not None else None
                target = (entry.target if entry is not None else None) or EMPTY
                published[row] = [
                    target[name].nano / 1e9 if name in target else 0.0 for name in RESOURCES
                ]
        self._codes, self._kinds = kinds_of(modes, sizes, len(keys))
        if keys == self._keys:
            for number, resource in enumerate(RESOURCES):
                before, after = self._published[:, number], published[:, number]
                moved = before != after
                self._quality.changed(
                    resource, before[moved], after[moved], self._codes[moved], self._kinds
                )
        self._keys, self._published = keys, published
        self._places = self._reader.places(self._cluster.aggregates.created.size)

    def compare(self, usage: ContainerColumns) -> None:
        """Compare a batch of samples."""
        rows = self._cluster.rows_of_usage(usage)
        known = np.flatnonzero(rows >= 0)
        columns = self._cluster.rows.column[rows[known]]
        inside = columns < self._places.size
        known, columns = known[inside], columns[inside]
        place = self._places[columns]
        known, place = known[place >= 0], place[place >= 0]
        for number, (resource, values) in enumerate(
            zip(RESOURCES, (usage.cpu_cores, usage.memory_bytes), strict=True)
        ):
            self._observe(resource, values[known], place, number)

    def _observe(self, resource: str, values: Floats, place: Columns, number: int) -> None:
        given = np.isfinite(values) & (values >= 0.0)
        rows = place[given]
        self._quality.observe(
            resource, values[given], self._published[rows, number], self._codes[rows], self._kinds
        )
