"""The gate: is any forecast worth having for this workload?

Each candidate is replayed in closed loop over the workload's own last days, learning each day
from the days before it alone, and beside it the loop without a forecast, at a row of targets. A
candidate is taken only if it leaves much less unserved than that loop does with as many pods.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hpa.decide.expectation import MOST
from hpa.forecast.demand import DAY, DemandHistory, features, lags, peaks, seasons
from hpa.forecast.lanes import LoopRules, run
from hpa.forecast.models import LEARNT_EVERY, NONE, Weights, candidates
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
# Parts of the target at which the loop alone is replayed.
_TARGETS = np.array([1.0, 0.92, 0.84, 0.76, 0.68, 0.6, 0.5, 0.4, 0.3])


class GateSubject(Struct, frozen=True, eq=False):
    """One HPA for the gate; those of one call share their rules."""

    demand: DemandHistory  # whole days, the newest last
    least: float = 1.0
    most: float = 1e6


class PastForecasts(Struct, frozen=True, eq=False):
    """What each candidate would have said, minute by minute, never knowing what came."""

    names: tuple[str, ...]
    pods: Floats  # a row a minute, a column a candidate; NaN: nothing


class DaySums(Struct, frozen=True, eq=False):
    """Pod-minutes a day: a row a day; a column a candidate, then one for each of the targets."""

    names: tuple[str, ...]
    sizes: Floats
    lacking: Floats
    needed: Floats  # a number a day

    def until(self, count: int) -> "DaySums":
        """Return the last of the first ``count`` days, as many as a gate looks at."""
        days = slice(max(0, count - MOST_DAYS), count)
        return DaySums(self.names, self.sizes[days], self.lacking[days], self.needed[days])

    def followed_by(self, newer: "DaySums") -> "DaySums":
        """Return these days and newer ones, of the same candidates."""
        return DaySums(
            self.names,
            np.vstack((self.sizes, newer.sizes)),
            np.vstack((self.lacking, newer.lacking)),
            np.concatenate((self.needed, newer.needed)),
        )


class GateRow(Struct, frozen=True):
    """One candidate in the gate's table."""

    name: str
    pod_hours: float
    unserved: float
    reactive: float  # unserved by the metrics alone with as many pod-hours
    more: float  # share of pod-hours beyond those of the metrics alone at the same target
    is_taken: bool = False

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
        return next((row for row in self.rows if row.is_taken), None)


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

    def forecasts(self, first_day: int, days: int) -> PastForecasts:
        """Return the forecasts of the days from ``first_day`` until ``days``, each learnt before
        it."""
        found: dict[str, Floats] = {}
        end = min(len(self.pods), days * DAY)
        for start in range(first_day * DAY, end, DAY):
            day = slice(start, min(start + DAY, end))
            rows = self.rows(day)
            for each in self.learnt(start):
                made = found.setdefault(each.name, np.full(end, np.nan))
                most = MOST * np.nanmax(self.pods[:start])
                made[day] = np.minimum(each.forecast(rows), most)
        names = tuple(found)
        return PastForecasts(names, np.column_stack([found[name] for name in names]))

    def learnt(self, until: int, only: str | None = None) -> list[Weights]:
        """Return the candidates as of minute ``until``: of peaks that had been seen by then."""
        first = max(min(DAY, until - DAY), until - MOST_DAYS * DAY)
        seen = slice(first, until - self.ahead, LEARNT_EVERY)
        return candidates(self.rows(seen), self.peak[seen], only)


def day_sums(
    rules: LoopRules, subjects: Sequence[GateSubject], forecasts: Sequence[PastForecasts],
    days: int, slots: int = DAY,
) -> list[DaySums]:  # fmt: skip
    """Return the sums of the last ``days`` days of each, all of them replayed side by side; a day
    has ``slots`` minutes."""
    steps = days * slots
    demand, ahead, need, least, most = [], [], [], [], []
    for subject, each in zip(subjects, forecasts, strict=True):
        pods = np.concatenate((subject.demand.pods[:1], subject.demand.pods))[-steps - 1 :]
        width = len(each.names)
        none = np.full((steps, len(_TARGETS)), np.nan)
        demand.append(pods[:-1, None] / np.concatenate((np.ones(width), _TARGETS)))
        ahead.append(np.column_stack((each.pods[-steps:], none)))
        need.append(subject.demand.needed[-steps:])
        least.append(np.full(width + len(_TARGETS), subject.least))
        most.append(np.full(width + len(_TARGETS), subject.most))
    runs = run(rules, np.hstack(demand), np.hstack(ahead), np.concatenate(least),
               np.concatenate(most))  # fmt: skip
    found, start = [], 0
    for each, wanted in zip(forecasts, need, strict=True):
        end = start + len(each.names) + len(_TARGETS)
        lanes, start = slice(start, end), end
        known = ~np.isnan(wanted)
        lacking = np.maximum(wanted[:, None] - runs.ready[:, lanes], 0.0)
        sizes, lack, asked = (
            np.where(known[:, None], part, 0.0).reshape(days, slots, -1).sum(axis=1)
            for part in (runs.sizes[:, lanes], lacking, wanted[:, None])
        )
        found.append(DaySums(each.names, sizes, lack, asked[:, 0]))
    return found


def verdict(sums: DaySums) -> GateVerdict:
    """Return which candidate is taken, over all days of ``sums``."""
    days, count = len(sums.needed), len(sums.names)
    unserved, alone = _shares(sums, np.arange(days))
    sizes = sums.sizes.sum(axis=0)
    half, every = days // 2, np.arange(days)
    parts = [(every[-1:], LAST), (every[:half], _HALF), (every[half:], _HALF)]
    parts += [(every[every != day], _WITHOUT_ONE) for day in every if days > 1]
    worst = np.zeros(count)
    for part, limit in parts:
        worst = np.maximum(worst, _ratio(*_shares(sums, part)) / limit)
    ratios = _ratio(unserved, alone)
    fits = (worst <= 1.0) & (ratios <= _AT_MOST) & (days >= FEWEST_DAYS - 1)
    more = sizes[:count] / sizes[count] - 1.0
    fits &= more <= _MOST_MORE
    best = int(np.argmin(np.where(fits, ratios, np.inf))) if fits.any() else -1
    plain = float(sizes[count])
    rows = [GateRow(NONE, plain / 60.0, float(sums.lacking[:, count].sum() / sums.needed.sum()),
                    float(sums.lacking[:, count].sum() / sums.needed.sum()), 0.0)]  # fmt: skip
    rows += [
        GateRow(name, float(sizes[place]) / 60.0, float(unserved[place]), float(alone[place]),
                float(more[place]), place == best)
        for place, name in enumerate(sums.names)
    ]  # fmt: skip
    return GateVerdict(NONE if best < 0 else sums.names[best], days, tuple(rows))


def ratio_to_alone(sums: DaySums) -> Floats:
    """Return what each candidate leaves unserved over all days, in times of what the loop alone
    does with as many pods."""
    return _ratio(*_shares(sums, np.arange(len(sums.needed))))


def _shares(sums: DaySums, days: NDArray[np.intp]) -> tuple[Floats, Floats]:
    # What each candidate leaves unserved, and what the loop alone with as many pods.
    count = len(sums.names)
    asked = max(float(sums.needed[days].sum()), 1.0)
    unserved, sizes = sums.lacking[days].sum(axis=0) / asked, sums.sizes[days].sum(axis=0)
    alone = np.interp(sizes[:count], sizes[count:], np.log(unserved[count:] + _SMALL))
    return unserved[:count], np.exp(alone) - _SMALL


def _ratio(one: Floats, other: Floats) -> NDArray[np.float64]:
    return (one + _SMALL) / (other + _SMALL)
