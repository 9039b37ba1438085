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
from hpa.decide.behavior import MOST
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
    """One HPA for the gate, to be replayed over the last days of its demand."""

    rules: LoopRules
    hpa: HPA
    demand: DemandHistory  # whole days, the newest last
    forecasts: Floats  # a row a minute, a column a candidate, the first is none; NaN: nothing said
    day: int = DAY  # minutes


class DaySums(Struct, frozen=True, eq=False):
    """Pod-minutes a day: a row a day; a column a candidate, then one for each lower target."""

    sizes: Floats
    lacking: Floats
    needed: Floats  # a number a day

    def until(self, count: int) -> "DaySums":
        """Return the last of the first ``count`` days, as many as a gate looks at."""
        days = slice(max(0, count - MOST_DAYS), count)
        return DaySums(self.sizes[days], self.lacking[days], self.needed[days])

    def followed_by(self, newer: "DaySums") -> "DaySums":
        """Return these days and newer ones, as many as a gate looks at."""
        pairs = zip(structs.astuple(self), structs.astuple(newer), strict=True)
        return DaySums(*(np.concatenate(pair)[-MOST_DAYS:] for pair in pairs))


class GateRow(Struct, frozen=True):
    """One candidate in the gate's table."""

    name: str
    pod_hours: float
    unserved: float
    reactive: float  # unserved by the metrics alone with as many pod-hours
    more: float  # share of pod-hours beyond those of the metrics alone at the same target
    saved: float  # the share of what the metrics alone leave unserved


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
    """What is learnt from, worked out once: the last axis is minutes."""

    pods: Floats
    lags: Floats  # before each minute, and after the last
    peak: Floats  # of each minute and those ahead
    curves: Floats  # of the seasons, beyond the end as well
    ahead: int

    @classmethod
    def of(cls, pods: Floats, ahead: int, days: int = 0) -> "KnownPast":
        """Return what is known of ``pods``, and the seasons of ``days`` after them."""
        peak = peaks(pods, ahead)
        return cls(pods, lags(pods), peak, seasons(pods, peak, days), ahead)

    def rows(self, minutes: slice) -> Floats:
        """Return the features of ``minutes``, of what is known when each begins."""
        return features(self.lags[:, minutes], self.curves[:, minutes])

    def forecasts(self, first_day: int, days: int) -> Floats:
        """Return what each candidate would have said, minute by minute, of the days from
        ``first_day`` until ``days``: a row a minute, each day learnt before it."""
        first, end = first_day * DAY, min(len(self.pods), days * DAY)
        found = np.full((end - first, len(CANDIDATES)), np.nan)
        for start in range(first, end, DAY):
            day, said = slice(start, min(start + DAY, end)), found[start - first :][:DAY]
            rows, most = self.rows(day), MOST * np.nanmax(self.pods[:start])
            for name, weights in learnt(*self.seen(start)).items():
                said[:, CANDIDATES.index(name)] = np.minimum(forecast(weights, rows), most)
        return found

    def seen(self, until: int) -> tuple[Floats, Floats]:
        """Return the rows that are learnt from at minute ``until``, and their peaks: none that had
        not been seen by then."""
        first = max(min(DAY, until - DAY), until - MOST_DAYS * DAY)
        minutes = slice(first, until - self.ahead, LEARNT_EVERY)
        return self.rows(minutes), self.peak[minutes]


def day_sums(subjects: Sequence[GateSubject]) -> list[DaySums]:
    """Return the sums of the days of each that it has forecasts for. Those that move by the same
    rules over as many days are replayed side by side."""
    together: dict[tuple[LoopRules, tuple[int, ...]], list[int]] = {}
    for place, each in enumerate(subjects):
        together.setdefault((each.rules, each.forecasts.shape), []).append(place)
    found: dict[int, DaySums] = {}
    for (rules, (steps, tried)), places in together.items():
        some = [subjects[place] for place in places]
        parts = np.concatenate((np.ones(tried), _TARGETS))
        before = (np.concatenate((each.demand.pods[:1], each.demand.pods)) for each in some)
        demand = np.hstack([pods[-steps - 1 : -1, None] / parts for pods in before])
        ahead = np.full((steps, len(some), len(parts)), np.nan)
        for number, each in enumerate(some):
            ahead[:, number, :tried] = each.forecasts
        least = np.repeat([float(each.hpa.min_replicas) for each in some], len(parts))
        most = np.repeat([float(each.hpa.max_replicas) for each in some], len(parts))
        sizes, ready = run(rules, demand, ahead.reshape(steps, -1), least, most)
        for number, (place, each) in enumerate(zip(places, some, strict=True)):
            lanes = slice(number * len(parts), (number + 1) * len(parts))
            needed = each.demand.needed[-steps:, None]
            asked = np.nan_to_num(needed)
            minutes = (
                sizes[:, lanes] * ~np.isnan(needed), np.maximum(asked - ready[:, lanes], 0.0), asked
            )  # fmt: skip
            size, lacking, total = (
                part.reshape(-1, each.day, part.shape[1]).sum(axis=1) for part in minutes
            )
            found[place] = DaySums(size, lacking, total[:, 0])
    return [found[place] for place in range(len(subjects))]


def verdict(sums: DaySums) -> GateVerdict:
    """Return which candidate is taken, over all days of ``sums``."""
    days = len(sums.needed)
    every = np.arange(days)
    halves, without_one = (every < days // 2, every >= days // 2), every[:, None] != every
    parts = np.vstack((every >= 0, every == days - 1, *halves, without_one))
    limits = np.array([_AT_MOST, LAST, _HALF, _HALF] + [_WITHOUT_ONE] * days)
    unserved, alone, ratios = shares(sums, parts)
    sizes = sums.sizes.sum(axis=0)
    more = sizes[: len(CANDIDATES)] / sizes[0] - 1.0
    fits = (ratios <= limits[:, None]).all(axis=0) & (more <= _MOST_MORE)
    # Where none fits it is the first, which is none.
    best = int(np.argmin(np.where(fits & (days >= FEWEST_DAYS - 1), ratios[0], 1.0)))
    rows = (
        GateRow(name, float(sizes[place]) / 60.0, float(unserved[0, place]),
                float(alone[0, place]), float(more[place]), float(1.0 - ratios[0, place]))
        for place, name in enumerate(CANDIDATES)
    )  # fmt: skip
    return GateVerdict(CANDIDATES[best], days, tuple(rows))


def shares(sums: DaySums, parts: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Return what each candidate leaves unserved over each of ``parts`` (a row of days), what the
    loop alone does with as many pods, and the one in times of the other."""
    sizes, lacking, needed = (parts @ each for each in structs.astuple(sums))
    unserved = lacking / np.maximum(needed, 1.0)[:, None]
    tried = sizes.shape[1] - len(_TARGETS)
    targets = [0, *range(tried, sizes.shape[1])]
    logs = np.log(unserved[:, targets] + _SMALL)
    alone = np.exp([np.interp(size[:tried], size[targets], log)
                    for size, log in zip(sizes, logs, strict=True)])  # fmt: skip
    unserved = unserved[:, :tried]
    return unserved, alone - _SMALL, (unserved + _SMALL) / alone
