"""A fake Prometheus, and feeds on it."""

import pytest
from blockbuster import blockbuster_ctx

from tests.unit.feed.opened import Clock, Opened
from tests.unit.feed.prometheus import FakePrometheus, serving


@pytest.fixture
async def fake():
    rows = {(f"n{n}", f"p{p}"): 10.0 * n + p for n in range(8) for p in range(3)}
    async with serving(FakePrometheus(rows)) as server:
        yield server


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def opened(fake, clock):
    maker = Opened(fake, clock)
    yield maker
    await maker.close()


@pytest.fixture(autouse=True)
def _nothing_blocks():
    with blockbuster_ctx(scanned_modules=["podscale"]):
        yield
