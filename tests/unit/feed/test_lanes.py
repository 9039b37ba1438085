"""Places for queries: no rule and no tenant takes them all."""

import asyncio

import pytest

from podscale.feed.queries.queue import FairSemaphore


class Holder:
    """Comes in, and stays until it is told to go."""

    def __init__(self, lane, owner, rule=None, patience_s=5.0):
        self.is_in = False
        self._go = asyncio.Event()
        self.task = asyncio.create_task(self._hold(lane, owner, rule or owner, patience_s))

    async def _hold(self, lane, owner, rule, patience_s):
        async with lane.place(owner, rule, patience_s):
            self.is_in = True
            await self._go.wait()

    async def go(self):
        self._go.set()
        await self.task


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_owner_holds_no_more_than_its_share_and_another_comes_in_at_once():
    lane = FairSemaphore(4, 2)
    greedy = [Holder(lane, "a") for _ in range(10)]
    await settled()
    assert [each.is_in for each in greedy].count(True) == 2
    other = Holder(lane, "b")
    await settled()
    assert other.is_in
    for each in (*greedy, other):
        await each.go()


async def test_rules_that_were_late_share_half_of_the_places():
    lane = FairSemaphore(4, 4)
    for rule in ("slow", "slower"):
        lane.note(rule, is_slow=True)
    late = [Holder(lane, rule) for _ in range(5) for rule in ("slow", "slower")]
    await settled()
    assert [each.is_in for each in late].count(True) == 2
    fast = [Holder(lane, "fast") for _ in range(2)]
    await settled()
    assert all(each.is_in for each in fast)
    lane.note("slow", is_slow=False)
    await fast[0].go()
    await settled()
    assert [each.is_in for each in late].count(True) == 3
    for each in (*late, fast[1]):
        await each.go()


async def test_a_tenants_fast_rule_does_not_wait_behind_its_slow_one():
    lane = FairSemaphore(4, 4)
    lane.note("slow", is_slow=True)
    others = [Holder(lane, "other", "slow"), Holder(lane, "third", "slow")]
    await settled()
    waits, passes = Holder(lane, "mine", "slow"), Holder(lane, "mine", "fast")
    await settled()
    assert (waits.is_in, passes.is_in) == (False, True)
    for each in (*others, waits, passes):
        await each.go()


async def test_those_who_wait_come_in_turn():
    lane = FairSemaphore(1, 1)
    first = Holder(lane, "a")
    await settled()
    queue = [Holder(lane, owner) for owner in ("a", "a", "a", "b", "c")]
    await settled()
    order = []
    await first.go()
    for _ in queue:
        await settled()
        (inside,) = [each for each in queue if each.is_in and not each.task.done()]
        order.append("aaabc"[queue.index(inside)])
        await inside.go()
    assert order == ["a", "b", "c", "a", "a"]


async def test_who_gives_up_or_is_cancelled_holds_nothing_and_waits_no_more():
    lane = FairSemaphore(1, 1)
    holder = Holder(lane, "a")
    await settled()
    impatient, cancelled = Holder(lane, "b", patience_s=0.01), Holder(lane, "c")
    with pytest.raises(TimeoutError):
        await impatient.task
    cancelled.task.cancel()
    await settled()
    await holder.go()
    assert not lane._waiting
    last = [Holder(lane, "d")]
    await settled()
    assert last[0].is_in
    await last[0].go()


async def test_a_place_that_is_given_back_passes_over_who_was_just_cancelled():
    lane = FairSemaphore(1, 1)
    async with lane.place("a", "a", 5.0):
        cancelled, after = Holder(lane, "b"), Holder(lane, "b")
        await settled()
        cancelled.task.cancel()  # and it has not run since
    await settled()
    assert (cancelled.is_in, after.is_in) == (False, True)
    await after.go()


async def test_cancelled_in_the_moment_of_coming_in_gives_the_place_back():
    lane = FairSemaphore(1, 1)
    holder, next_one, after = Holder(lane, "a"), Holder(lane, "b"), Holder(lane, "c")
    await settled()
    holder._go.set()
    for _ in range(10):
        if ("b", "b") not in lane._waiting:
            break
        await asyncio.sleep(0)
    next_one.task.cancel()  # let in, but it has not run since
    await settled()
    assert after.is_in
    await after.go()
    await holder.task
