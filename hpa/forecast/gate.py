"""The gate: is any forecast worth having for this workload?

Each candidate is replayed in closed loop over the workload's own last days, learning each day
from the days before it alone, and beside it the loop without a forecast, at a row of targets. A
candidate is taken only if it leaves much less unserved than that loop does with as many pods.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from hpa.decide.api.spec import HPA
from hpa.decide.expectation import MOST
from hpa.forecast.demand import DAY, DemandHistory, features, lags, peaks, seasons
from hpa.forecast.lanes import LoopRules, run
from hpa.forecast.models import CANDIDATES, LEARNT_EVERY, forecast, learnt
from hpa.simulate.load import Floats

MOST_DAYS = 14  # that are learnt from, and that are replayed
FEWEST_DAYS = 3  # of history before anything is taken; of the first there is no forecast
_SMALL = 1e-4  # of the demand: less is not told apart
# Of what the loop alone leaves unserved: much less over all days, and less without any one of them
# (one surge that was foreseen by luck is no reason) ...
_AT_MOST, _WITHOUT_ONE = 0.6, 0.8
_HALF = 1.0  # ... no worse in either half of them ...
LAST = 1.05  # ... nor on the last day: regret ends what has begun
_MOST_MORE = 0.3  # pod-hours, whatever they save
# Parts of the target at which the loop alone is replayed as well.
_TARGETS = np.array([0.92, 0.84, 0.76, 0.68, 0.6, 0.5, 0.4, 0.3])


class GateSubject(Struct, frozen=True, eq=False):
    """One HPA for the gate; those of one call share their rules."""

    hpa: HPA
    demand: DemandHistory  # whole days, the newest last
    forecasts: Floats  # a row a minute, a column a candidate, the first is none; NaN: nothing said


class DaySums(Struct, frozen=True, eq=False):
    """Pod-minutes a day: a row a day; a column a candidate, then one for each lower target."""

    sizes: Floats
    lacking: Floats
    needed: Floats  # a number a day

    def until(self, count: int) -> "DaySums":
        """Return the last of the first ``count`` days, as many as a gate looks at."""
        return self.on(np.arange(max(0, count - MOST_DAYS), count))

    def on(self, days: NDArray[np.intp]) -> "DaySums":
        """Return these sums on some of the days."""
        return DaySums(self.sizes[days], self.lacking[days], self.needed[days])

    def followed_by(self, newer: "DaySums") -> "DaySums":
        """Return these days and newer ones."""
        pairs = zip(structs.astuple(self), structs.astuple(newer), strict=True)
        return DaySums(*(np.concatenate(pair) for pair in pairs))


class GateRow(Struct, frozen=True):
    """One candidate in the gate's table."""

    name: str
    pod_hours: float
    unserved: float
    reactive: float  # unserved by the metrics alone with as many pod-hours
    more: float  # share of pod-hours beyond those of the metrics alone at the same target

    @property
    def saved(self) -> float:
        """The share of what the metrics alone leave unserved."""
        return 1.0 - (self.unserved + _SMALL) / (self.reactive + _SMALL)


class GateVerdict(Struct, frozen=True):
    """What the gate found; ``rows`` begin with the metrics alone."""

    candidate: str
    days: int
    rows: tuple[GateRow, ...]

    @property
    def taken(self) -> GateRow | None:
        return next((row for row in self.rows[1:] if row.name == self.candidate), None)


def slots_ahead(delay_s: float) -> int:
    """Return how many minutes forecasts look ahead: until pods serve, and a pass more."""
    return int(np.ceil((delay_s + 75.0) / 60.0))


class KnownPast(Struct, frozen=True, eq=False):
    """What is learnt from, worked out once: a row a minute."""

    pods: Floats
    lags: Floats  # before each minute, and after the last
    peak: Floats  # of each minute and those ahead
    curves: Floats  # of the seasons, beyond the end as well
    ahead: int

    @classmethod
    def of(cls, pods: Floats, ahead: int, days: int = 0) -> "KnownPast":
        """Return what is known of ``pods``, and the seasons of ``days`` after them."""
        lagged, peak = lags(pods), peaks(pods, ahead)
        return cls(pods, np.vstack((lagged[:1], lagged)), peak, seasons(pods, peak, days), ahead)

    def rows(self, minutes: slice) -> Floats:
        """Return the features of ``minutes``, of what is known when each begins."""
        return features(self.lags[minutes], self.curves[minutes])

    def forecasts(self, first_day: int, days: int) -> Floats:
        """Return what each candidate would have said, minute by minute, of the days from
        ``first_day`` until ``days``: a row a minute, each day learnt before it."""
        end = min(len(self.pods), days * DAY)
        found = np.full((end, len(CANDIDATES)), np.nan)
        for start in range(first_day * DAY, end, DAY):
            day = slice(start, min(start + DAY, end))
            rows, most = self.rows(day), MOST * np.nanmax(self.pods[:start])
            for name, weights in learnt(*self.seen(start)).items():
                found[day, CANDIDATES.index(name)] = np.minimum(forecast(weights, rows), most)
        return found

    def seen(self, until: int) -> tuple[Floats, Floats]:
        """Return the rows that are learnt from at minute ``until``, and their peaks: none that had
        not been seen by then."""
        first = max(min(DAY, until - DAY), until - MOST_DAYS * DAY)
        minutes = slice(first, until - self.ahead, LEARNT_EVERY)
        return self.rows(minutes), self.peak[minutes]


def day_sums(
    rules: LoopRules, subjects: Sequence[GateSubject], days: int, slots: int = DAY
) -> list[DaySums]:
    """Return the sums of the last ``days`` days of each, all of them replayed side by side; a day
    has ``slots`` minutes."""
    steps = days * slots
    demand, ahead, least, most = [], [], [], []
    for each in subjects:
        pods = np.concatenate((each.demand.pods[:1], each.demand.pods))[-steps - 1 : -1]
        parts = np.concatenate((np.ones(each.forecasts.shape[1]), _TARGETS))
        demand.append(pods[:, None] / parts)
        ahead += [each.forecasts[-steps:], np.full((steps, len(_TARGETS)), np.nan)]
        least.append(np.full(len(parts), float(each.hpa.min_replicas)))
        most.append(np.full(len(parts), float(each.hpa.max_replicas)))
    runs = run(rules, np.hstack(demand), np.hstack(ahead), np.concatenate(least),
               np.concatenate(most))  # fmt: skip
    found, start = [], 0
    for each, bounds in zip(subjects, least, strict=True):
        lanes = slice(start, start := start + len(bounds))
        needed = each.demand.needed[-steps:, None]
        lacking = np.maximum(needed - runs.ready[:, lanes], 0.0)
        sizes, lack, asked = (
            np.where(np.isnan(needed), 0.0, part).reshape(days, slots, -1).sum(axis=1)
            for part in (runs.sizes[:, lanes], lacking, needed)
        )
        found.append(DaySums(sizes, lack, asked[:, 0]))
    return found


def verdict(sums: DaySums) -> GateVerdict:
    """Return which candidate is taken, over all days of ``sums``."""
    days, every = len(sums.needed), np.arange(len(sums.needed))
    parts = [(every[-1:], LAST), (every[: days // 2], _HALF), (every[days // 2 :], _HALF)]
    parts += [(every[every != day], _WITHOUT_ONE) for day in every if days > 1]
    worst = np.max([ratio_to_alone(sums.on(part)) / limit for part, limit in parts], axis=0)
    unserved, alone = _shares(sums)
    ratios, sizes = ratio_to_alone(sums), sums.sizes.sum(axis=0)
    more = sizes[: len(CANDIDATES)] / sizes[0] - 1.0
    fits = (worst <= 1.0) & (ratios <= _AT_MOST) & (more <= _MOST_MORE) & (days >= FEWEST_DAYS - 1)
    best = int(np.argmin(np.where(fits, ratios, 1.0)))  # where none fits the first, which is none
    rows = (
        GateRow(name, float(sizes[place]) / 60.0, float(unserved[place]), float(alone[place]),
                float(more[place]))
        for place, name in enumerate(CANDIDATES)
    )  # fmt: skip
    return GateVerdict(CANDIDATES[best], days, tuple(rows))


def ratio_to_alone(sums: DaySums) -> Floats:
    """Return what each candidate leaves unserved over all days, in times of what the loop alone
    does with as many pods."""
    unserved, alone = _shares(sums)
    return (unserved + _SMALL) / (alone + _SMALL)


def _shares(sums: DaySums) -> tuple[Floats, Floats]:
    # What each candidate leaves unserved, and what the loop alone with as many pods.
    unserved = sums.lacking.sum(axis=0) / max(float(sums.needed.sum()), 1.0)
    sizes = sums.sizes.sum(axis=0)
    tried = len(sizes) - len(_TARGETS)
    targets = np.r_[0, tried : len(sizes)]
    alone = np.interp(sizes[:tried], sizes[targets], np.log(unserved[targets] + _SMALL))
    return unserved[:tried], np.exp(alone) - _SMALL
