"""The whole controller in bad weather: DESIGN.md's invariants 1, 2, 3 and 5, run after run.

Each run is a world of its own seed, in virtual time: a provider that fails in every way, an
API server that refuses, loses answers and falls silent, watches that break, clocks that
jump, leaders that are killed, frozen and cut off in the middle of a write.
"""

import gc
import logging
import os
from collections import Counter

import pytest
import structlog

from tests.faults.hpa_run import Run

IS_SHORT = os.environ.get("PODSCALE_SHORT") == "1"
RUNS = int(os.environ.get("PODSCALE_RUNS", "300" if IS_SHORT else "10000"))
SEED = int(os.environ.get("PODSCALE_SEED", "20261121"))
PART = 500  # runs a test, so that the long form can be spread over processes
FIRST = [pytest.param(number, id=f"seed-{SEED + number}") for number in range(0, RUNS, PART)]


@pytest.mark.looptime(noop_cycles=0)
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", FIRST)
async def test_no_failure_makes_the_controller_shrink_overstep_or_write_twice(
    monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    # A term begins with a full collection and a freeze, once in a process's life: thousands
    # of terms in one process would keep every world that ever was.
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "collect", lambda: 0)
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    counts: Counter[str] = Counter()
    broken: list[str] = []
    seeds = range(SEED + first, SEED + min(first + PART, RUNS))
    for seed in seeds:
        result = await Run(seed).play()
        for name in ("rescales", "lowered", "statuses", "refused", "terms"):
            counts[name] += getattr(result, name)
        broken += [f"seed {seed}: {each}" for each in result.found]
    print(
        f"\n{len(seeds)} of {RUNS} runs, from seed {seeds[0]}: {len(broken)} violations; "
        f"{dict(counts)}"
    )
    for each in broken[:20]:
        print(f"  {each}")
    assert not broken
    # Weather in which nothing is ever scaled would prove nothing.
    assert counts["rescales"] > len(seeds)
    assert counts["lowered"] > len(seeds) / 2
    assert counts["refused"] > len(seeds)
