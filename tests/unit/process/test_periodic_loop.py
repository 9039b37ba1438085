"""What comes round every few seconds."""

import asyncio

import pytest

from podscale.kube.client.errors import NotLeading
from podscale.process.leading_part import PeriodicLoop

pytestmark = pytest.mark.looptime


class Rounds:
    """Rounds that take ``took_s``, and end as ``ends`` says."""

    def __init__(self, took_s: list[float], ends: dict[int, Exception] | None = None) -> None:
        self.took_s, self.ends = took_s, ends or {}
        self.started_s: list[float] = []
        self.loop = PeriodicLoop("rounds", self.once, 10.0, longest_s=50.0)

    async def once(self) -> None:
        number = len(self.started_s)
        self.started_s.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.took_s[number] if number < len(self.took_s) else 0.0)
        if number in self.ends:
            raise self.ends[number]


async def run(rounds: Rounds, duration_s: float, *, delay_s: float = 0.0) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(duration_s):
            await rounds.loop.run(delay_s=delay_s)


async def test_a_round_that_takes_too_long_is_followed_by_no_burst() -> None:
    rounds = Rounds([4.0, 25.0])
    await run(rounds, 60.0, delay_s=5.0)
    assert rounds.started_s == [5.0, 15.0, 40.0, 50.0]


async def test_a_round_that_fails_is_tried_again() -> None:
    rounds = Rounds([], {0: ValueError("a bug")})
    await run(rounds, 15.0)
    assert (rounds.started_s, rounds.loop.succeeded) == ([0.0, 10.0], 1)
    assert not rounds.loop.heartbeat.is_expected


async def test_a_round_that_leads_no_more_ends_the_loop() -> None:
    rounds = Rounds([], {1: NotLeading("another replica leads")})
    with pytest.raises(NotLeading):
        await rounds.loop.run()
    assert rounds.started_s == [0.0, 10.0]
    assert not rounds.loop.heartbeat.is_expected
