"""All recommendations of one pass, in columns, and which of them are worth writing.

Percentiles, confidence and amounts of every VPA and container are computed side by side;
only VPAs that are due get a recommendation with its derivation, which costs Python time.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vpa.model.amounts import RESOURCES
from vpa.model.autopilot import Autopilot
from vpa.model.cluster import ClusterModel
from vpa.model.estimation import estimator
from vpa.model.estimation.estimator import BOUNDS
from vpa.model.estimation.recommendation import (
    NodeShape,
    RecommendationTrace,
    RecommendedUsage,
    RecommenderSettings,
    minimum,
    recommend,
)
from vpa.model.groups import ContainerGroups, Named, paced
from vpa.model.histograms.matrix import Columns, Floats
from vpa.model.samples.aggregates import Aggregates, ResourceColumns, usage_of
from vpa.model.samples.membership import VpaKey

Amounts = NDArray[np.int64]


class Estimates(Struct, frozen=True):
    """One pass, in the order of the groups' keys."""

    groups: ContainerGroups
    read: Mapping[str, ResourceColumns]  # by resource, a column for each container
    # (containers, resources, bounds), before rounding and caps; -1 where nothing was measured.
    amounts: Amounts

    def usages(self, key: VpaKey) -> list[RecommendedUsage]:
        """Return what is known of the containers of one VPA."""
        rows = self.groups.rows.get(key, slice(0, 0))
        named = enumerate(self.groups.keys[rows], rows.start)
        return [
            RecommendedUsage(container, usage_of(self.read, row)) for row, (_, container) in named
        ]


class HistoryBegins(Struct, frozen=True):
    """When what is known begins: an array of shape (containers, resources), inf for nothing."""

    rows: dict[Named, int]
    first_s: Floats

    def of(self, key: VpaKey, container: str, resource: str) -> float | None:
        """Return the time of the first sample; None where there is none."""
        row = self.rows.get((key, container))
        first_s = np.inf if row is None else float(self.first_s[row, RESOURCES.index(resource)])
        return first_s if np.isfinite(first_s) else None


class DeadBand(Struct, frozen=True):
    """How far bounds must move to be written at once; targets always are. 0: upstream's way."""

    fraction: float = 0.02
    age_s: float = 600.0


class RecommendationReader:
    """Reads a cluster pass after pass and remembers what was published."""

    def __init__(self, cluster: ClusterModel, autopilot: Autopilot | None = None) -> None:
        self._cluster = cluster
        self._autopilot = autopilot
        self._groups = ContainerGroups(cluster.aggregates, {})  # as of the last read
        self._written = np.empty((0, len(RESOURCES), len(BOUNDS)), dtype=np.int64)
        self._written_at = np.empty(0)
        self._vpas: Columns = np.empty(0, dtype=np.intp)  # the number of each row's VPA
        self._forced: set[VpaKey] = set()

    def read(self) -> Estimates:
        """Return the estimates of all VPAs now."""
        groups = self._follow()
        size = len(groups.keys)
        read = {
            resource: ResourceColumns(
                np.zeros((len(BOUNDS), size)), np.zeros(size), np.zeros(size, dtype=np.bool_)
            )
            for resource in RESOURCES
        }
        amounts = np.full((size, len(RESOURCES), len(BOUNDS)), -1, dtype=np.int64)
        for aggregates, rows, columns in groups.parts():
            for settings, chosen in self._by_settings(rows):
                self._estimate(aggregates, rows[chosen], columns[chosen], settings, read, amounts)
        return Estimates(groups, read, amounts)

    def begins(self) -> HistoryBegins:
        """Return when what is known of each container begins."""
        groups, aggregates = self._follow(), self._cluster.aggregates
        firsts = [groups.reduced(np.minimum, aggregates.begins(resource)) for resource in RESOURCES]
        rows = {named: row for row, named in enumerate(groups.keys)}
        return HistoryBegins(rows, np.stack(firsts, axis=1))

    def places(self, size: int) -> Columns:
        """Return which row of the estimates each aggregate feeds, -1 for none."""
        return self._groups.places(size)

    def due(
        self, estimates: Estimates, now: float, band: DeadBand, interval_s: float = 60.0
    ) -> list[VpaKey]:
        """Return the VPAs whose status is to be written: those that cannot wait, in the order
        of the estimates, then by age.

        A target moved, a bound moved by the fraction, or the VPA was never written or forced;
        or anything moved and the last write is old. ``interval_s`` is the time to the next
        pass: some of those that grow old together are written before.
        """
        before, after, keys = self._written, estimates.amounts, self._groups.keys
        moved = before != after
        target = BOUNDS.index("target")
        at_once = moved[:, :, target].any(axis=1)
        far = np.abs(after - before) >= band.fraction * np.maximum(before, 1)
        # What appears or disappears is a move of any size.
        far |= (before < 0) != (after < 0)
        at_once |= (moved & far).any(axis=(1, 2))
        found = dict.fromkeys(keys[row][0] for row in np.flatnonzero(at_once))
        found.update(dict.fromkeys(key for key in self._forced if key in self._cluster.vpas))
        waiting = moved.any(axis=(1, 2))
        waiting &= ~np.isin(self._vpas, self._vpas[at_once])
        rows = np.flatnonzero(waiting)
        rows = rows[np.unique(self._vpas[rows], return_index=True)[1]]  # one of each VPA
        ages = now - self._written_at[rows]
        old = rows[paced(ages, len(estimates.groups.rows), band.age_s, interval_s)]
        found.update(dict.fromkeys(keys[row][0] for row in old))
        return list(found)

    def force(self, key: VpaKey) -> None:
        """Let a VPA be due at the next pass: its spec or annotations changed."""
        self._forced.add(key)

    def published(self, estimates: Estimates, key: VpaKey, now: float) -> None:
        """Note that the status of a VPA was written with these estimates."""
        self._forced.discard(key)
        rows = estimates.groups.rows.get(key, slice(0, 0))
        if estimates.groups is self._groups:
            self._written[rows] = estimates.amounts[rows]
            self._written_at[rows] = now

    def recommendation(
        self, estimates: Estimates, key: VpaKey, shapes: Sequence[NodeShape] = ()
    ) -> RecommendationTrace:
        """Return what to publish for one VPA, and how it came about."""
        entry = self._cluster.vpas[key]
        return recommend(
            estimates.usages(key),
            entry.settings.recommender,
            policy=entry.vpa.spec.resource_policy,
            annotations=entry.vpa.metadata.annotations,
            shapes=shapes,
        )

    def _follow(self) -> ContainerGroups:
        groups = self._cluster.groups()
        if groups is self._groups:
            return groups
        size = len(groups.keys)
        written = np.full((size, len(RESOURCES), len(BOUNDS)), -2, dtype=np.int64)
        written_at = np.zeros(size)
        for old, new in groups.moved_from(self._groups.keys):
            written[new] = self._written[old]
            written_at[new] = self._written_at[old]
        self._groups, self._written, self._written_at = groups, written, written_at
        counts = [rows.stop - rows.start for rows in groups.rows.values()]
        self._vpas = np.repeat(np.arange(len(counts)), counts)
        return groups

    def _by_settings(self, rows: Columns) -> list[tuple[RecommenderSettings, Columns]]:
        found: dict[int, tuple[RecommenderSettings, list[int]]] = {}
        for place, row in enumerate(rows):
            settings = self._cluster.vpas[self._groups.keys[row][0]].settings.recommender
            found.setdefault(id(settings), (settings, []))[1].append(place)
        return [(s, np.array(places, dtype=np.intp)) for s, places in found.values()]

    def _estimate(
        self,
        aggregates: Aggregates,
        rows: Columns,
        columns: Columns,
        settings: RecommenderSettings,
        read: Mapping[str, ResourceColumns],
        amounts: Amounts,
    ) -> None:
        alike = [self._groups.rows[self._groups.keys[row][0]] for row in rows]
        shares = np.array([each.stop - each.start for each in alike])
        for column, resource in enumerate(RESOURCES):
            known = self._autopilots(resource, rows)
            if known is None:
                known = aggregates.read(resource, columns, settings)
            read[resource].percentiles[:, rows] = known.percentiles
            read[resource].confidence[rows] = known.confidence
            read[resource].measured[rows] = known.measured
            least = np.array([minimum(resource, settings, n) for n in range(1, shares.max() + 1)])
            parameters = settings.of(resource)
            for place, bound in enumerate(BOUNDS):
                found = estimator.estimate(
                    resource,
                    bound,
                    known.percentiles[place],
                    known.confidence,
                    least[shares - 1],
                    parameters,
                )
                amounts[rows, column, place] = np.where(known.measured, found, -1)

    def _autopilots(self, resource: str, rows: Columns) -> ResourceColumns | None:
        # None where the VPAs of these rows did not choose autopilot; they all have the same
        # settings, and autopilot's are its own.
        chosen = self._cluster.vpas[self._groups.keys[rows[0]][0]].settings.is_autopilot
        if not chosen or self._autopilot is None:
            return None
        return self._autopilot.read(resource, [self._groups.keys[row] for row in rows])

    def is_young(self, key: VpaKey) -> bool:
        """Return whether autopilot knows too little of a VPA to lower what was published."""
        settings = self._cluster.vpas[key].settings
        return settings.is_autopilot and (self._autopilot is None or self._autopilot.is_young(key))
