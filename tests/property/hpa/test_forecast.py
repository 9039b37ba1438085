"""``max(reactive, forecast)`` under its invariants, over seeded histories."""

import math
import os
from random import Random

import pytest
from msgspec import structs

from hpa.decide.behavior import MOST, OLDEST_S
from hpa.decide.decision import Chosen, Decision, ForecastApplied
from hpa.decide.observation import ExpectedDemand, Observation, Scale
from hpa.decide.reconcile import decide
from tests.property.hpa.test_invariants import (
    PASSES,
    History,
    assert_within,
    failed,
    is_corrected,
)

SEEDS = 1_000 if os.environ.get("PODSCALE_SHORT") else 10_000
CHUNKS = 10


def expected(draw: Random, now: float) -> ExpectedDemand:
    age_s = draw.choice((0.0, 15.0, OLDEST_S, OLDEST_S + 0.1, 4000.0, -1.0))
    pods = draw.choice((0.0, 3.0, draw.uniform(0, 40), 1e6, math.nan, math.inf, -2.0))
    return ExpectedDemand(pods, now - age_s, draw.choice((1.0, 8.0, 1e5)), "day", 600.0)


def acts(decision: Decision) -> bool:
    return any(isinstance(step, ForecastApplied) for step in decision.trace.steps)


def check(draw: Random, history: History, seen: Observation, with_it: Decision) -> bool:
    """Assert all invariants of one pass; returns whether the forecast acted in it."""
    alone = decide(structs.replace(seen, expected=None), with_it.trace.past,
                   with_it.trace.settings, history.now)  # fmt: skip
    told, hpa, current = seen.expected, seen.hpa, history.size
    assert told is not None
    # The history of the windows is that of the metrics alone, whatever is expected.
    recommended = with_it.past.recommendations
    assert recommended == alone.past.recommendations
    if not acts(with_it):
        assert with_it == structs.replace(alone, trace=with_it.trace, draft=with_it.draft)
        assert with_it.replicas == alone.replicas
        return False
    # Never below what the metrics alone decide, never above the bounds.
    final, reactive = with_it.trace.decided, alone.trace.decided
    assert final is not None
    assert reactive is not None
    assert final >= reactive
    assert final <= max(hpa.max_replicas, current)
    # Never more than a quarter above what has been.
    chosen = [step.replicas for step in with_it.trace.steps if isinstance(step, Chosen)]
    most = math.ceil(MOST * told.highest)
    held = max((each.replicas for each in with_it.trace.past.recommendations or ()), default=0)
    assert final <= max(most, reactive, chosen[0], held)
    # Never from old data, nor where a metric fails, nor from zero.
    assert 0.0 <= history.now - told.at <= OLDEST_S
    assert not failed(with_it)
    assert current > 0
    if final != current and hpa.behavior is not None and not is_corrected(with_it):
        assert_within(hpa.behavior, history, final)
    # A paused object is left alone.
    paused = structs.replace(hpa, options=structs.replace(hpa.options, is_paused=True))
    assert decide(structs.replace(seen, hpa=paused), with_it.trace.past, with_it.trace.settings,
                  history.now).replicas is None  # fmt: skip
    return True


class ExpectingHistory(History):
    """A history in which something is expected at each pass."""

    acted = 0

    def step(self) -> Decision:
        self.seen = structs.replace(self.seen, expected=expected(self.draw, self.now))
        decision = super().step()
        seen = decision.trace.observation
        if isinstance(seen.scale, Scale):
            self.acted += check(self.draw, self, seen, decision)
        return decision


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_forecast_keeps_to_its_invariants(chunk: int) -> None:
    acted = 0
    for seed in range(chunk, SEEDS, CHUNKS):
        history = ExpectingHistory(Random(seed))
        for _ in range(PASSES):
            history.advance(history.step())
        acted += history.acted
    assert acted > SEEDS // CHUNKS // 4, "the forecasts of this test hardly ever act"
