"""Demands of many days, made up."""

import numpy as np

from hpa.decide.settings import Settings
from hpa.forecast.demand import DAY, DemandHistory
from hpa.forecast.gate import (
    GateSubject,
    GateVerdict,
    KnownPast,
    LoopRules,
    day_sums,
    slots_ahead,
    verdict,
)
from hpa.simulate.workload import Floats
from tests.unit.hpa.simulate.loads import web

START_S = 1_700_000_040.0  # a whole minute

DELAY_S = 600.0
AHEAD = slots_ahead(DELAY_S)


def jumps(days: int, seed: int = 1) -> Floats:
    """Return a demand that doubles within minutes each morning, and a little noise."""
    minutes = np.arange(days * DAY)
    is_day = (minutes % DAY > DAY // 3) & (minutes % DAY < 3 * DAY // 4)
    return np.where(is_day, 40.0, 10.0) * np.random.default_rng(seed).uniform(
        0.97, 1.03, days * DAY
    )


def walk(days: int, seed: int = 1) -> Floats:
    """Return a demand of which nothing tells what comes."""
    steps = np.random.default_rng(seed).normal(0.0, 0.01, days * DAY)
    return 20.0 * np.exp(np.cumsum(steps - 0.0005 * np.cumsum(steps)))


def history(pods: Floats) -> DemandHistory:
    """Return a demand of pods that serve a quarter more than their target."""
    return DemandHistory(START_S, pods, np.ceil(pods * 0.8 - 1e-9))


def judged(pods: Floats, days: int) -> GateVerdict:
    """Return what the gate makes of a demand."""
    hpa = web(maxReplicas=1000)
    whole = len(pods) // DAY
    forecasts = KnownPast.of(pods, AHEAD).forecasts(whole - days, whole)
    rules = LoopRules.of(hpa, Settings(), DELAY_S)
    return verdict(day_sums([GateSubject(rules, hpa, history(pods), forecasts)])[0])
