"""Work on many VPAs: one that fails affects itself only."""

import asyncio

import pytest

from podscale.kube.client.errors import NotLeading
from vpa.recommender.workers import each


async def test_one_failure_is_told_and_all_others_are_worked_on():
    done, told = [], []

    async def work(item: int) -> None:
        await asyncio.sleep(0)
        if item == 3:
            raise KeyError(item)
        done.append(item)

    await each(range(10), work, workers=2, failed=lambda: told.append(1))
    assert sorted(done) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert told == [1]


async def test_who_no_longer_leads_stops_at_once():
    done = []

    async def work(item: int) -> None:
        if item == 2:
            raise NotLeading("the Lease is another's")
        done.append(item)
        await asyncio.sleep(0)

    with pytest.raises(NotLeading):
        await each(range(100), work, workers=1, failed=lambda *_: None)
    assert done == [0, 1]
