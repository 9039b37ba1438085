"""What a VPA's recommender would have recommended over a history, and how that would have fitted.

The estimators are the recommender's own (``vpa.model``): a column of histograms for each container
and half-life, read with the percentiles and margins of each candidate. Once an hour, in a
short history more often, requests are moved as the updater does: to the target, where they lie
outside the bounds. Pure.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from podscale.kube.objects.vpa import ResourcePolicy
from podscale.replay.inputs import ReplayError
from vpa.model.amounts import RESOURCES, Windows, units
from vpa.model.estimation.estimator import BOUNDS, Bound
from vpa.model.estimation.recommendation import (
    RecommendationTrace,
    RecommendedUsage,
    RecommenderSettings,
    recommend,
)
from vpa.model.samples.aggregates import Aggregates
from vpa.model.samples.container_rows import Containers, Intake

Floats = NDArray[np.float64]

MOST_CANDIDATES = 100
_CHECK_S = 3600.0
_FEWEST_CHECKS = 12  # of a short history, which is looked at more often
_DAY_S = 86400.0
TODAY = "today"  # the requests that there are, without a VPA


class PodUsageHistory(Struct, frozen=True, eq=False):
    """What each pod's containers used, cores and bytes, NaN for none: steps by pods."""

    time_s: Floats
    containers: Mapping[str, Mapping[str, Floats]]  # by name and resource; the same pods in both

    @property
    def step_s(self) -> float:
        return float(np.median(np.diff(self.time_s)))

    @property
    def check_steps(self) -> int:
        """Steps between two looks at the requests; the first is when there are any."""
        steps = len(self.time_s) // _FEWEST_CHECKS
        return max(1, min(round(_CHECK_S / self.step_s), steps))


class SizingCandidate(Struct, frozen=True):
    """Settings of the recommender to try."""

    percentile: float = 0.9
    margin: float = 0.15
    half_life_s: float = _DAY_S

    @property
    def name(self) -> str:
        return f"p{self.percentile * 100:g} +{self.margin:.0%} {self.half_life_s / 3600:g}h"

    @property
    def settings(self) -> RecommenderSettings:
        """Return the recommender's flags."""
        base = RecommenderSettings()
        fractions = structs.replace(
            base.cpu.percentiles,
            lower=min(base.cpu.percentiles.lower, self.percentile),
            target=self.percentile,
            upper=max(base.cpu.percentiles.upper, self.percentile),
        )
        chosen = structs.replace(base.cpu, percentiles=fractions, margin=self.margin)
        return structs.replace(base, cpu=chosen, memory=chosen)


class SizingRow(Struct, frozen=True, rename="camel"):
    """One resource of one container under one candidate; cores or bytes, shares of 1."""

    settings: str
    container: str
    resource: str
    request: float  # on average
    slack: float  # requested and not used, of what was requested
    overrun: float  # samples above the request, of all
    oom_kills: int | None  # memory that rises above a limit equal to its request
    changes_a_day: float


def candidates(
    percentiles: Sequence[float], margins: Sequence[float], half_lives_s: Sequence[float]
) -> list[SizingCandidate]:
    """Return every combination; raises ``ReplayError`` for too many, or one of zero."""
    if not (all(percentiles) and all(half_lives_s)):
        raise ReplayError("--percentile 0 or --half-life 0s: must be greater than 0")
    found = list(itertools.product(percentiles, margins, half_lives_s))
    if len(found) > MOST_CANDIDATES:
        raise ReplayError(f"{len(found)} combinations, and {MOST_CANDIDATES} are the most")
    return [SizingCandidate(*each) for each in found]


def history_of(
    time_s: Floats, usage: Mapping[str, Mapping[tuple[str, str], Floats]]
) -> PodUsageHistory:
    """Return a history from columns by resource, container and pod."""
    pods: dict[str, dict[str, int]] = {}
    for container, pod in itertools.chain(*usage.values()):
        own = pods.setdefault(container, {})
        own.setdefault(pod, len(own))
    found = {
        name: {each: np.full((len(time_s), len(own)), np.nan) for each in RESOURCES}
        for name, own in sorted(pods.items())
    }
    for resource, columns in usage.items():
        for (container, pod), values in columns.items():
            found[container][resource][:, pods[container][pod]] = values
    if not found:
        raise ReplayError("there is no sample of any container")
    return PodUsageHistory(time_s, found)


def replayed(
    history: PodUsageHistory,
    tried: Sequence[SizingCandidate],
    requests: Mapping[str, Mapping[str, float]],
    policy: ResourcePolicy | None = None,
) -> list[SizingRow]:
    """Return a row for each candidate, container and resource; those of ``TODAY`` first.

    ``requests`` are today's, by container and resource; what nobody requests is not shown there.
    """
    names, steps = list(history.containers), len(history.time_s)
    every = history.check_steps
    model = _Model(history, sorted({each.half_life_s for each in tried}))
    asked = {each: np.full((steps, len(names), len(RESOURCES)), np.nan) for each in tried}
    changes = {each: np.zeros((len(names), len(RESOURCES)), np.int64) for each in tried}
    for first in range(0, steps, every):
        model.add(first, min(first + every, steps))
        if first + every >= steps:
            break
        for each in tried:
            made = model.recommended(each, policy)
            before = asked[each][first]
            after = _moved(before, made, names)
            changes[each] += ~np.isnan(before) & (after != before)
            asked[each][first + every : first + 2 * every] = after
    now = np.array([[requests.get(name, {}).get(resource, np.nan) for resource in RESOURCES]
                    for name in names])  # fmt: skip
    found = _rows(history, TODAY, np.broadcast_to(now, (steps, *now.shape)), np.zeros_like(now))
    for each in tried:
        found += _rows(history, each.name, asked[each], changes[each])
    return found


class _Model:
    # Histograms: a column for each container and half-life, a row for each of its pods.
    def __init__(self, history: PodUsageHistory, half_lives_s: Sequence[float]) -> None:
        self._history = history
        self._aggregates = Aggregates()
        self._pods = Containers()
        self._intake = Intake(self._aggregates, self._pods)
        self._columns: dict[float, NDArray[np.intp]] = {}
        rows: list[int] = []
        names: list[str] = []
        for half_life_s in half_lives_s:
            start_s = float(history.time_s[0])
            columns = self._aggregates.open(len(history.containers), start_s, Windows())
            self._columns[half_life_s] = columns
            self._aggregates.cpu.half_life[columns] = half_life_s
            self._aggregates.memory.half_life[columns] = half_life_s
            for (name, usage), column in zip(
                history.containers.items(), columns.tolist(), strict=True
            ):
                pods = usage[RESOURCES[0]].shape[1]
                rows += [self._pods.open(column, Windows()) for _ in range(pods)]
                names.append(name)
        self._rows = np.array(rows, np.intp)
        self._grids = {
            resource: np.concatenate([history.containers[each][resource] for each in names], 1)
            for resource in RESOURCES
        }

    def add(self, start: int, end: int) -> None:
        """Take in the samples of some steps."""
        minutes = self._history.step_s / 60.0
        for step in range(start, end):
            times = np.full(len(self._rows), self._history.time_s[step])
            for resource, grid in self._grids.items():
                self._intake.add(resource, self._rows, grid[step], times, minutes)

    def recommended(
        self, candidate: SizingCandidate, policy: ResourcePolicy | None
    ) -> RecommendationTrace:
        """Return what is recommended with all that was taken in."""
        columns, settings = self._columns[candidate.half_life_s], candidate.settings
        known = self._aggregates.usage(columns, settings)
        usages = [RecommendedUsage(name, each)
                  for name, each in zip(self._history.containers, known, strict=True)]  # fmt: skip
        return recommend(usages, settings, policy=policy)


def _moved(before: Floats, made: RecommendationTrace, names: Sequence[str]) -> Floats:
    # Requests after a look of the updater: the target, where they are outside the bounds.
    after = before.copy()
    for row, name in enumerate(names):
        for place, resource in enumerate(RESOURCES):
            lower, target, upper = (_amount(made, name, resource, bound) for bound in BOUNDS)
            if np.isnan(target) or lower <= before[row, place] <= upper:
                continue
            after[row, place] = target
    return after


def _amount(made: RecommendationTrace, name: str, resource: str, bound: Bound) -> float:
    found = made.amounts.get((name, resource, bound))
    if found is None:
        return float("nan")
    return float(units(resource, found.published)) / (1000.0 if resource == "cpu" else 1.0)


def _rows(
    history: PodUsageHistory, called: str, asked: Floats, changes: NDArray[np.number]
) -> list[SizingRow]:
    found = []
    days = len(history.time_s) * history.step_s / _DAY_S
    # All are measured from when the first recommendation is in force.
    begins = history.check_steps
    for row, (name, usage) in enumerate(history.containers.items()):
        for place, resource in enumerate(RESOURCES):
            used, request = usage[resource][begins:], asked[begins:, row, place][:, np.newaxis]
            known = ~np.isnan(used) & ~np.isnan(request)
            if not known.any():
                continue
            over = known & (used > request)
            rises = over[1:] & known[:-1] & ~over[:-1]
            granted = np.where(known, request, 0.0)
            free = np.where(known, np.maximum(request - used, 0.0), 0.0)
            found.append(SizingRow(
                called, name, resource, float(granted.sum() / known.sum()),
                float(free.sum() / granted.sum()) if granted.sum() else 0.0,
                float(over.sum() / known.sum()),
                int(rises.sum()) if resource == "memory" else None,
                float(changes[row, place]) / days,
            ))  # fmt: skip
    return found
