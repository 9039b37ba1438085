"""Two faults at once over the seven promises, pair after pair, in virtual time.

A pair is played again by its number: ``PODSCALE_PAIR=42 pytest tests/faults/test_pairs.py``.
"""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import looptime
import pytest

from tests.faults.hpa_pairs import Pair, PairRun, drawn
from tests.faults.hpa_run import Result

IS_SHORT = os.environ.get("PODSCALE_SHORT") == "1"
PAIRS = 56 if IS_SHORT else 300  # each of the 28 kinds twice, or ten times
SEED = int(os.environ.get("PODSCALE_SEED", "20261128"))
ONE = os.environ.get("PODSCALE_PAIR", "")
PART = 28  # pairs a test, so that they can be spread over processes

T = TypeVar("T")

pytestmark = [pytest.mark.usefixtures("quiet"), pytest.mark.timeout(300)]


async def at_once(work: Callable[..., T], *given: object) -> T:
    """Do what a thread would."""
    return work(*given)


def played(pair: Pair, directory: Path) -> Result:
    """Play one pair in a loop of its own, whose time is all the time there is."""
    random.seed(pair.history)  # the product's own jitter
    loop = looptime.new_event_loop(noop_cycles=0)

    async def play() -> Result:
        return await PairRun(pair, directory).play()

    try:
        with pytest.MonkeyPatch.context() as patch:
            # How long a watch has been silent is a matter of the monotonic clock.
            patch.setattr(time, "monotonic", loop.time)
            # A thread takes real time, of which a loop of virtual time lets pass what it likes.
            patch.setattr(asyncio, "to_thread", at_once)
            result = loop.run_until_complete(play())
            loop.run_until_complete(loop.shutdown_asyncgens())
            return result
    finally:
        loop.close()


@pytest.mark.parametrize("first", range(0, PAIRS, PART))
def test_two_faults_at_once_break_none_of_the_seven_promises(first: int, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    broken: list[str] = []
    numbers = [int(ONE)] if ONE else range(first, min(first + PART, PAIRS))
    for number in numbers:
        pair = drawn(SEED, number)
        result = played(pair, tmp_path)
        for name in ("rescales", "lowered", "statuses", "refused", "terms", "judged", "exempted"):
            counts[name] += getattr(result, name)
        broken += [f"pair {number}, {' and '.join(pair.faults)}: {each}" for each in result.found]
    print(f"\n{len(numbers)} pairs of seed {SEED}: {dict(counts)}, {len(broken)} violations")
    for each in broken[:20]:
        print(f"  {each}")
    assert not broken
    # Weather in which nothing is ever scaled would prove nothing.
    assert counts["rescales"] > 2 * len(numbers)
    assert counts["lowered"] > len(numbers)
    assert counts["judged"] > counts["exempted"]
