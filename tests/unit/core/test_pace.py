"""Long work rests as long as it works; short work does not rest at all."""

import asyncio
import time

from podscale.core.pace import WORK_S, LoopPace


def work(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


async def slept(turns, each_s):
    """Return how often the loop slept while ``turns`` of work went by."""
    loop, pace, naps = asyncio.get_running_loop(), LoopPace(), 0
    call_later = loop.call_later

    def counted(delay, *arguments, **named):
        nonlocal naps
        naps += 1
        return call_later(delay, *arguments, **named)

    loop.call_later = counted
    try:
        for _ in range(turns):
            work(each_s)
            await pace.rest()
    finally:
        del loop.call_later
    return naps


async def test_long_work_rests_after_every_millisecond_of_it():
    assert 20 <= await slept(40, WORK_S * 1.1) <= 40


async def test_what_is_soon_done_is_not_held_up():
    assert await slept(8, WORK_S * 1.1) == 0


async def test_others_run_after_every_millisecond_of_work():
    pace, seen = LoopPace(), 0

    async def other():
        nonlocal seen
        while True:
            seen += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for _ in range(20):
        work(WORK_S * 1.1)
        await pace.rest()
    task.cancel()
    assert seen >= 19


async def test_a_step_that_took_next_to_nothing_costs_no_turn():
    pace, seen = LoopPace(), []
    asyncio.get_running_loop().call_soon(seen.append, "other")
    await pace.rest()
    assert seen == []


async def test_steps_rest_where_they_yield_and_return_what_they_end_with():
    seen = []

    def steps():
        for number in range(3):
            seen.append(number)
            work(WORK_S * 1.1)
            yield
        return "done"

    async def other():
        while True:
            seen.append("other")
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert await LoopPace().through(steps()) == "done"
    task.cancel()
    assert seen == [0, "other", 1, "other", 2, "other"]
