"""A forecast with its gate through a whole history, as it would have been switched on and off.

Each day begins with the gate over the days before it; what it takes forecasts that day.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from hpa.decide.api.spec import HPA
from hpa.decide.observation import ExpectedDemand
from hpa.decide.settings import Settings
from hpa.forecast.demand import DAY, SLOT_S, demand_of
from hpa.forecast.gate import (
    FEWEST_DAYS,
    GateSubject,
    GateVerdict,
    KnownPast,
    day_sums,
    slots_ahead,
    verdict,
)
from hpa.forecast.lanes import LoopRules
from hpa.forecast.models import CANDIDATES
from hpa.simulate.load import Floats, LoadHistory
from hpa.simulate.workload import Plant


class ForecastTrial(Struct, frozen=True, eq=False):
    """What was taken each day, and what it said."""

    start_s: float
    taken: Sequence[GateVerdict | None]  # by day
    pods: Floats  # by minute; NaN: nothing
    highest: Floats  # before that minute's day
    delay_s: float
    last: GateVerdict | None  # over the last days: what the gate would say now

    def expected(self, now: float) -> ExpectedDemand | None:
        slot = math.floor((now - self.start_s) / SLOT_S)
        if not 0 <= slot < len(self.pods) or math.isnan(self.pods[slot]):
            return None
        name = taken.candidate if (taken := self.taken[slot // DAY]) else ""
        highest = float(self.highest[slot // DAY])
        return ExpectedDemand(float(self.pods[slot]), now, highest, name, self.delay_s)


def trial(
    hpa: HPA, load: LoadHistory, plant: Plant, settings: Settings, capacities: Mapping[str, float]
) -> ForecastTrial:
    """Return what forecasts would have done for ``hpa`` over ``load``."""
    delay_s = delay_of(plant)
    demand = demand_of(hpa, load, plant, capacities)
    count = len(demand.pods)
    days, whole = -(-count // DAY), count // DAY
    pods, highest = np.full(count, np.nan), np.full(days, np.nan)
    taken: list[GateVerdict | None] = [None] * days
    last = None
    if whole >= FEWEST_DAYS and not np.isnan(demand.pods).all():
        forecasts = KnownPast.of(demand.pods, slots_ahead(delay_s)).forecasts(1, days)
        rules, judged = LoopRules.of(hpa, settings, delay_s), forecasts[: (whole - 1) * DAY]
        (sums,) = day_sums([GateSubject(rules, hpa, demand.until(whole * DAY), judged)])
        for day in range(FEWEST_DAYS, days):
            taken[day] = found = verdict(sums.until(day - 1))
            start = day * DAY
            highest[day] = np.nanmax(demand.pods[:start])
            said = forecasts[start - DAY : start, CANDIDATES.index(found.candidate)]
            pods[start : start + DAY] = said
        last = verdict(sums.until(whole - 1))
    return ForecastTrial(demand.start_s, taken, pods, highest, delay_s, last)


def delay_of(plant: Plant) -> float:
    """Return how long a decision takes to serve: of pods in the middle, from metrics of then."""
    times = sorted(plant.ready_after_s)
    return times[len(times) // 2] + plant.metric_age_s
