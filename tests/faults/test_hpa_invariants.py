"""The whole controller in bad weather: DESIGN.md's invariants 1, 2, 3 and 5, run after run.

Each run is a history that hypothesis draws the seed of, in virtual time: a provider that
fails in every way, an API server that refuses, loses answers and falls silent, watches that
break, clocks that jump, leaders that are killed, frozen and cut off in the middle of a write.
A history is played again by its name: ``PODSCALE_HISTORY=20261121/500/42 pytest …``.
"""

import os
import random
from collections import Counter

import hypothesis
import looptime
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.faults.hpa_run import Result, Run

IS_SHORT = os.environ.get("PODSCALE_SHORT") == "1"
RUNS = int(os.environ.get("PODSCALE_RUNS", "1000" if IS_SHORT else "10000"))
SEED = int(os.environ.get("PODSCALE_SEED", "20261121"))
HISTORY = os.environ.get("PODSCALE_HISTORY", "")
LEAST_JUDGED = 0.5  # of the rescales; the others follow a history that was really lost
PART = 500  # runs a test, so that the long form can be spread over processes
FIRST = [pytest.param(number, id=f"from-{number}") for number in range(0, RUNS, PART)]


def played(history: str) -> Result:
    """Play one history in a loop of its own, whose clock runs as fast as it can."""
    random.seed(history)  # the product's own jitter
    loop = looptime.new_event_loop(noop_cycles=0)
    try:
        return loop.run_until_complete(_played(history))
    finally:
        loop.close()


async def _played(history: str) -> Result:
    return await Run(history).play()


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", FIRST)
def test_no_failure_makes_the_controller_shrink_overstep_or_write_twice(first: int) -> None:
    counts: Counter[str] = Counter()
    broken: list[str] = []
    count = min(PART, RUNS - first)

    @hypothesis.seed(SEED + first)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],  # a smaller seed is not a simpler history
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**64 - 1))
    def holds(number: int) -> None:
        history = HISTORY or f"{SEED}/{first}/{number}"
        result = played(history)
        counts["runs"] += 1
        for name in ("rescales", "lowered", "statuses", "refused", "terms", "judged", "exempted"):
            counts[name] += getattr(result, name)
        broken.extend(f"history {history}: {each}" for each in result.found)

    holds()
    print(f"\nof {RUNS} runs from seed {SEED}: {dict(counts)}, {len(broken)} violations")
    share = counts["judged"] / max(counts["judged"] + counts["exempted"], 1)
    print(f"  policies were judged of {share:.0%} of the rescales that have one")
    for each in broken[:20]:
        print(f"  {each}")
    assert not broken
    assert counts["runs"] == count
    # Weather in which nothing is ever scaled would prove nothing.
    assert counts["rescales"] > count
    assert counts["lowered"] > count / 2
    assert counts["refused"] > count
    assert share > LEAST_JUDGED
