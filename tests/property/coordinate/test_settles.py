"""A constant load is met by at most two vertical moves, wherever it begins.

The HPA is its own ratio and tolerance, the VPA its own buckets, margin and confidence over
samples that lose half their weight in a day; time goes in steps of half a day.
"""

import math
import os
import random

import numpy as np
import pytest
from msgspec import Struct

from hpa.decide.metrics.replicas import Tolerance, resource_ratio
from podscale.coordinate.anchor import Anchor
from podscale.coordinate.sizes import (
    HorizontalState,
    SeenLoad,
    SizeChange,
    VerticalEstimates,
    choose,
)
from vpa.model.estimation import estimator
from vpa.model.histograms import buckets

STARTS = 200 if os.environ.get("PODSCALE_SHORT") else 10_000
DAYS = 20
STEP_S, DAY_S, NOW = 43_200.0, 86_400.0, 1.7e9
MOST_REPLICAS, MOST_MILLI = 500, 64_000
TOLERANCE = Tolerance(0.1, 0.1)
SETTINGS = estimator.EstimatorSettings()


class Start(Struct, frozen=True):
    replicas: int
    request: int
    utilization: int
    load: int
    comfort: tuple[int, int]


def drawn(seed: int) -> Start:
    draw = random.Random(seed)
    low = draw.randint(1, 20)
    return Start(
        draw.randint(1, MOST_REPLICAS),
        round(math.exp(draw.uniform(math.log(50), math.log(8000)))),
        draw.randint(30, 95),
        round(math.exp(draw.uniform(math.log(10), math.log(400_000)))),
        (low, low + draw.randint(1, 480)),
    )


def replicas(present: int, load: int, anchor: int, utilization: int) -> int:
    """Return the size at which the HPA comes to rest."""
    for _ in range(20):
        found = resource_ratio({"all": load}, {"all": present * anchor}, utilization)
        assert found is not None
        if TOLERANCE.holds(found.ratio):
            return present
        wanted = min(max(math.ceil(found.ratio * present), 1), MOST_REPLICAS)
        if wanted == present:
            return present
        present = wanted
    return present


def estimates(history: list[tuple[float, float, float]], now: float) -> VerticalEstimates:
    """Return the VPA's amounts from times, milli-cores a pod and numbers of samples."""
    weights: dict[float, float] = {}
    for at, used, count in history:
        weights[used] = weights.get(used, 0.0) + count * 2.0 ** ((at - now) / DAY_S)
    weighed = sorted(weights.items())
    ends = buckets.CPU.ends[buckets.CPU.find(np.array([used / 1000.0 for used, _ in weighed]))]
    total = sum(weights.values())

    def amount(bound: estimator.Bound, known: float) -> int:
        left = SETTINGS.percentiles.of(bound) * total
        place = 0
        while (left := left - weighed[place][1]) > 1e-9 * total:
            place += 1
        return estimator.derive("cpu", bound, float(ends[place]), known, 25, SETTINGS).amount

    known = (now - history[0][0]) / DAY_S
    return VerticalEstimates(
        amount("lowerBound", known),
        amount("target", known),
        amount("upperBound", math.inf),
        25,
        MOST_MILLI,
        DAY_S,
    )


def moves(start: Start) -> list[tuple[float, SizeChange]]:
    """Return the vertical moves of ``DAYS`` days, by when they were made."""
    anchor, pods = Anchor(start.request, start.request, "u"), start.replicas
    history: list[tuple[float, float, float]] = []
    found: list[tuple[float, SizeChange]] = []
    for step in range(int(DAYS * DAY_S / STEP_S)):
        now = NOW + step * STEP_S
        pods = replicas(pods, start.load, anchor.milli, start.utilization)
        history.append((now, start.load / pods, float(pods)))
        seen_s = step * STEP_S
        loads = [SeenLoad(float(start.load), float(pods), 1.0)]
        axis = HorizontalState(
            start.utilization, 1, MOST_REPLICAS, start.comfort, pods, STEP_S, 300.0, loads, seen_s
        )
        change = choose(anchor, estimates(history, now + STEP_S), axis, now)
        if isinstance(change, SizeChange):
            found.append((seen_s, change))
            anchor = change.anchor
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_constant_load_is_met_by_at_most_two_vertical_moves():
    moved = 0
    for seed in range(STARTS):
        start = drawn(seed)
        made = moves(start)
        moved += bool(made)
        assert len(made) <= 2, (seed, start, made)
        assert all(change.after < change.before for _, change in made), (seed, start, made)
        anchors = [(change.anchor.milli, change.anchor.size) for _, change in made]
        assert len({(start.request, start.request), *anchors}) == len(made) + 1, (seed, made)
        assert not made or made[-1][0] <= 15 * DAY_S, (seed, start, made)
    assert moved > STARTS / 2, "most starts are not where they should be"
