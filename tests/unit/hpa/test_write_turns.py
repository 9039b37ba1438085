"""Who writes when: a namespace has a share, and who has waited for longest comes first."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from hpa.cluster.writer import WriteTurns

pytestmark = pytest.mark.looptime


class Queue:
    """Writers that take a second each."""

    def __init__(self, count: int) -> None:
        self.writers = WriteTurns(count)
        self.began: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def come(self, name: str, since: float, namespace: str = "shop") -> None:
        self.tasks[name] = asyncio.create_task(self._write(name, since, namespace))

    async def _write(self, name: str, since: float, namespace: str) -> None:
        async with self.writers.turn(namespace, since):
            self.began.append(name)
            await asyncio.sleep(1.0)


async def test_the_longest_wish_comes_first_whenever_it_came() -> None:
    queue = Queue(1)
    for name, since in (("a", 5.0), ("b", 7.0), ("c", 6.0)):
        queue.come(name, since)
    await asyncio.sleep(0.5)
    queue.come("d", 1.0)
    await asyncio.sleep(5.0)
    assert queue.began == ["a", "d", "c", "b"]


async def test_a_namespace_has_a_quarter_of_the_turns_and_no_longer_wish_helps() -> None:
    queue = Queue(8)
    for number in range(20):
        queue.come(f"a{number}", 0.0, "hanging")
    await asyncio.sleep(0.1)
    queue.come("b", 9.0, "quick")
    await asyncio.sleep(0.1)
    assert queue.began == ["a0", "a1", "b"]
    await asyncio.sleep(10.0)
    assert len(queue.began) == 21
    assert not queue.writers._spaces


@pytest.mark.parametrize("after_s", [0.5, 1.0])
async def test_who_is_cancelled_while_waiting_takes_no_turn_with_it(after_s: float) -> None:
    queue = Queue(2)
    for name in "abcdef":
        queue.come(name, 0.0, name)
    await asyncio.sleep(after_s)
    await asyncio.sleep(0)  # after a second the two were just given theirs
    for name in "cd":
        queue.tasks[name].cancel()
    await asyncio.sleep(5.0)
    assert {*"abef"} <= {*queue.began}
    async with AsyncExitStack() as both:  # and there are still two
        for name in "cd":
            await asyncio.wait_for(both.enter_async_context(queue.writers.turn(name, 0.0)), 0.1)
