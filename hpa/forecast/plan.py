"""A forecast at work: what a day needs to be forecast, and the lags that live demand moves on."""

import math

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hpa.decide.behavior import MOST
from hpa.decide.observation import ExpectedDemand
from hpa.forecast.demand import DAY, SLOT_S, features, next_lags
from hpa.forecast.gate import NONE, SEASONAL, KnownPast, forecast, learnt
from hpa.simulate.workload import Floats

PLANNED_DAYS = 2  # that a plan lasts: a gate that fails once changes nothing
_LEAST = 1e-9  # pods


class ForecastVerdict(Struct, frozen=True, omit_defaults=True):
    """What the gate said of one HPA, as it is stored; ``saved`` and ``more`` are shares of 1."""

    candidate: str  # NONE: there is no forecast
    at: float  # unix seconds: the end of the last day that it looked at
    saved: float = 0.0
    more: float = 0.0
    days: int = 0

    @property
    def is_taken(self) -> bool:
        return self.candidate != NONE


class ForecastPlan(Struct, frozen=True, eq=False):
    """One candidate that earned its place, with all that it needs for the days to come."""

    verdict: ForecastVerdict
    weights: Floats  # of the features
    start_s: float  # of ``curves``
    curves: NDArray[np.float16]  # the seasons, a column a minute, in parts of ``highest``
    lags: tuple[float, ...]  # as of ``at_s``
    at_s: float
    highest: float
    within_s: float
    share: float  # of pods at the target: as many serve the same at their capacity

    @classmethod
    def of(
        cls, known: KnownPast, start_s: float, verdict: ForecastVerdict, share: float,
        within_s: float,
    ) -> "ForecastPlan | None":  # fmt: skip
        """Return the plan for what comes after ``known``, which begins at ``start_s`` and knows
        the seasons of ``PLANNED_DAYS``; None: the candidate cannot be learnt."""
        count = len(known.pods)
        weights = SEASONAL.get(verdict.candidate)
        if weights is None:
            weights = learnt(*known.seen(count)).get(verdict.candidate)
        if weights is None:
            return None
        first = count - count % DAY
        highest = max(float(np.nanmax(known.pods)), _LEAST)
        return cls(
            verdict, weights, start_s + first * SLOT_S,
            (known.curves[:, first:] / highest).astype(np.float16),
            tuple(known.lags[:, -1].tolist()),
            start_s + count * SLOT_S, highest, within_s, share,
        )  # fmt: skip


class LivedDay(Struct, frozen=True, eq=False):
    """The last minutes under a forecast, a value a minute; NaN: not known, or nothing was said."""

    pods: Floats  # demand
    said: Floats
    share: float
    within_s: float


class LiveForecast:
    """Follows the demand of one HPA, pass by pass, and says what is to be expected."""

    def __init__(self, plan: ForecastPlan) -> None:
        self.plan = plan
        self._lags = list(plan.lags)
        self._slot = math.floor(plan.at_s / SLOT_S)  # the minute under way
        self._pods = math.nan  # that were asked for in it
        self._said: float | None = None  # for it
        self._seen_s = plan.at_s  # when demand was seen last
        self._began = self._slot
        # Of the last day: what was asked for, and what was said.
        self._lived: NDArray[np.float32] = np.full((DAY, 2), np.nan, np.float32)

    def expected(self, now: float) -> ExpectedDemand | None:
        """Return the expectation at ``now``; None: the plan is too old, or the clock was set."""
        plan, slot = self.plan, math.floor(now / SLOT_S)
        minute = slot - round(plan.start_s / SLOT_S)
        if slot < self._slot or not 0 <= minute < plan.curves.shape[1]:
            return None
        self._advance(slot)
        curves = plan.curves[:, minute].astype(np.float64) * plan.highest
        if self._said is None:
            row = features(np.array(self._lags)[:, None], curves[:, None])
            self._said = min(float(forecast(plan.weights, row)[0]), MOST * plan.highest)
        before, verdict = float(curves[3]), plan.verdict
        return ExpectedDemand(
            self._said, self._seen_s, plan.highest, verdict.candidate, plan.within_s,
            None if math.isnan(before) else before, verdict.saved, verdict.more, verdict.days,
        )  # fmt: skip

    def note(self, pods: float, now: float) -> None:
        """Take in the demand of a pass; NaN: it is not known."""
        if not math.isnan(pods) and math.floor(now / SLOT_S) == self._slot:
            self._pods, self._seen_s = pods, now

    def lived(self) -> LivedDay:
        """Return the last day, as far as it was lived under this plan."""
        count = min(self._slot - self._began, DAY)
        rows = self._lived[np.arange(self._slot - count, self._slot) % DAY].astype(np.float64)
        return LivedDay(rows[:, 0], rows[:, 1], self.plan.share, self.plan.within_s)

    def _advance(self, slot: int) -> None:
        while self._slot < slot:
            said = math.nan if self._said is None else self._said
            self._lived[self._slot % DAY] = self._pods, said
            last = self._lags[0] if math.isnan(self._pods) else self._pods
            self._lags = next_lags(self._lags, last)
            self._slot, self._pods, self._said = self._slot + 1, math.nan, None
