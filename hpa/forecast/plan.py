"""A forecast at work: what a day needs to be forecast, and the lags that live demand moves on."""

import math

import numpy as np
from msgspec import Struct

from hpa.decide.observation import ExpectedDemand
from hpa.forecast.demand import DAY, SLOT_S, DemandHistory, Seasons, features, lags, peaks
from hpa.forecast.gate import GateRow, known_rows, learnt
from hpa.forecast.models import Weights
from hpa.simulate.load import Floats

_EVERY = 5  # minutes between two rows of the seasons that are kept
_AHEAD_DAYS = 2  # that a plan lasts: a gate that fails once changes nothing


class ForecastPlan(Struct, frozen=True, eq=False):
    """One candidate that earned its place, with all that it needs for the days to come."""

    weights: Weights
    start_s: float  # of ``curves``
    curves: Floats  # of the seasons, a row every five minutes
    lags: Floats  # as of ``at_s``
    at_s: float
    highest: float
    within_s: float
    row: GateRow
    days: int

    @classmethod
    def of(
        cls, demand: DemandHistory, name: str, row: GateRow, days: int, delay_s: float, ahead: int
    ) -> "ForecastPlan | None":
        """Return the plan for what comes after ``demand``; None: ``name`` cannot be learnt."""
        pods = demand.pods
        rows = known_rows(pods, ahead)
        peak = peaks(np.where(np.isnan(pods), -np.inf, pods), ahead)
        peak[~np.isfinite(peak)] = np.nan
        found = {each.name: each for each in learnt(rows, peak, len(pods), ahead)}
        if name not in found:
            return None
        first = len(pods) - len(pods) % DAY
        curves = Seasons.of(pods, ahead, _AHEAD_DAYS).curves[first::_EVERY]
        return cls(
            found[name], demand.start_s + first * SLOT_S, curves.astype(np.float32),
            lags(pods)[-1], demand.start_s + (len(pods) - 1) * SLOT_S, float(np.nanmax(pods)),
            delay_s, row, days,
        )  # fmt: skip


class LiveForecast:
    """Follows the demand of one HPA, pass by pass, and says what is to be expected."""

    def __init__(self, plan: ForecastPlan) -> None:
        self.plan = plan
        self._lags = plan.lags
        self._slot = math.floor(plan.at_s / SLOT_S)
        self._pods = math.nan  # of the slot that is not over
        self._asked: float | None = None  # as of that slot

    def expected(self, pods: float, now: float) -> ExpectedDemand | None:
        """Return the expectation at ``now``, where ``pods`` are asked for (NaN: not known)."""
        slot = math.floor(now / SLOT_S)
        if slot != self._slot:
            self._advance(slot)
            self._asked = None
        if math.isnan(pods) or slot != self._slot:
            return None
        self._pods = pods
        plan = self.plan
        row = int((now - plan.start_s) // (_EVERY * SLOT_S))
        if not 0 <= row < len(plan.curves):
            return None  # the plan is too old
        if self._asked is None:
            curves = plan.curves[row : row + 1].astype(np.float64)
            self._asked = float(plan.weights.forecast(features(self._lags[None, :], curves))[0])
        before = float(plan.curves[row, 3])
        return ExpectedDemand(
            self._asked, now, plan.highest, plan.weights.name, plan.within_s,
            None if math.isnan(before) else before, plan.row.saved, plan.row.more, plan.days,
        )  # fmt: skip

    def _advance(self, slot: int) -> None:
        # The demand seen last holds until now: over a long gap the lags come to nothing else.
        if math.isnan(self._pods):
            self._pods = float(self._lags[0])
        steps = min(slot - self._slot, DAY)
        if steps > 0:
            self._lags = lags(np.full(steps, self._pods), self._lags)[-1]
            self._slot = slot
