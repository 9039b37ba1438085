"""The client-side limit under overload, in virtual time."""

import asyncio

import pytest

from podscale.kube.client.connection import Limiter

pytestmark = pytest.mark.looptime


async def test_who_gives_up_leaves_the_turn_to_others():
    limiter = Limiter(qps=10, burst=1)
    loop = asyncio.get_running_loop()
    await limiter.wait()

    async def hurried() -> None:
        async with asyncio.timeout(0.35):
            await limiter.wait()

    ends = await asyncio.gather(*(hurried() for _ in range(500)), return_exceptions=True)
    assert sum(end is None for end in ends) == 3
    began = loop.time()
    await limiter.wait()
    assert loop.time() - began <= 0.11


async def test_the_rate_holds_whoever_gives_up():
    limiter = Limiter(qps=10, burst=5)
    loop = asyncio.get_running_loop()
    began = loop.time()
    passed: list[float] = []

    async def one(patience_s: float) -> None:
        try:
            async with asyncio.timeout(patience_s):
                await limiter.wait()
                passed.append(loop.time() - began)
        except TimeoutError:
            pass

    await asyncio.gather(*(one(0.05 + (number * 7 % 40) / 10) for number in range(200)))
    assert len(passed) >= 35
    for start, at in enumerate(passed):
        # Any window of T seconds has at most burst + T * qps requests.
        for end in range(start, len(passed)):
            assert end - start + 1 <= 5 + (passed[end] - at) * 10 + 1e-6
