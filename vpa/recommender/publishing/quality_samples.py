"""Compares each sample with what was published for its container when it arrived."""

from collections.abc import Mapping, Sequence

import numpy as np

from podscale.core.metrics import ContainerColumns
from vpa.model.api.objects import Vpa, update_mode
from vpa.model.api.quantities import EMPTY, RESOURCES
from vpa.model.cluster import ClusterModel
from vpa.model.groups import Named
from vpa.model.histograms.matrix import Columns, Floats
from vpa.model.recommendations import Estimates, RecommendationReader
from vpa.model.samples.membership import VpaKey
from vpa.recommender.publishing.quality import Codes, Kind, Quality
from vpa.stores import VpaStores


class QualitySamples:
    """For one term of leadership; ``follow`` after statuses were written."""

    def __init__(
        self,
        quality: Quality,
        cluster: ClusterModel,
        reader: RecommendationReader,
        stores: VpaStores,
    ) -> None:
        self._quality = quality
        self._cluster = cluster
        self._reader = reader
        self._stores = stores
        self._keys: Sequence[Named] = []
        self._seen: dict[VpaKey, tuple[Vpa | None, int]] = {}
        self._published = np.zeros((0, len(RESOURCES)))
        self._places: Columns = np.empty(0, dtype=np.intp)
        self._codes: Codes = np.empty(0, dtype=np.intp)
        self._numbers: dict[Kind, int] = {}

    def follow(self, estimates: Estimates, matched: Mapping[VpaKey, int]) -> None:
        """Take over what is published now; ``matched`` are the pods of each VPA."""
        keys = estimates.keys
        if keys is not self._keys:
            # Rows have other numbers: whatever is published has to be read again.
            is_same = keys == self._keys
            before = self._published if is_same else np.zeros((len(keys), len(RESOURCES)))
            self._seen = {}
            self._codes = np.zeros(len(keys), dtype=np.intp)
        else:
            is_same, before = True, self._published
        self._published = before.copy()
        for key, first in estimates.first.items():
            found = self._stores.vpa(key), matched.get(key, 0)
            seen = self._seen.get(key)
            if seen is None or seen[0] is not found[0] or seen[1] != found[1]:
                self._seen[key] = found
                self._read(keys, slice(first, first + estimates.count[key]), *found)
        kinds = list(self._numbers)
        if is_same:
            for number, resource in enumerate(RESOURCES):
                old, new = before[:, number], self._published[:, number]
                moved = old != new
                self._quality.changed(resource, old[moved], new[moved], self._codes[moved], kinds)
        self._keys = keys
        self._places = self._reader.places(self._cluster.aggregates.created.size)

    def _read(self, keys: Sequence[Named], rows: slice, vpa: Vpa | None, pods: int) -> None:
        kind = Kind(update_mode(vpa) if vpa is not None else "", max(pods, 1).bit_length() - 1)
        self._codes[rows] = self._numbers.setdefault(kind, len(self._numbers))
        found = vpa.status.recommendation if vpa is not None else None
        for row in range(rows.start, rows.stop):
            entry = found.of(keys[row][1]) if found is not None else None
            target = (entry.target if entry is not None else None) or EMPTY
            self._published[row] = [
                target[name].nano / 1e9 if name in target else 0.0 for name in RESOURCES
            ]

    def compare(self, usage: ContainerColumns) -> None:
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
        kinds = list(self._numbers)
        self._quality.observe(
            resource, values[given], self._published[rows, number], self._codes[rows], kinds
        )
