"""A batch over several sources: order, and who waits for a source that hangs."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from msgspec import structs

from podscale.core.metrics import Failure, Unavailable
from podscale.core.silences import QueryWindow
from podscale.feed.feed import Feed
from podscale.feed.outage import SILENT_S
from podscale.feed.source_routing import PROBE_S, FeedBySource
from tests.unit.feed.opened import Opened, held, served
from tests.unit.feed.prometheus import FakePrometheus, pods_plan, serving, want


class TwoSources:
    """The default, and ``infra``."""

    def __init__(self, default: Feed, infra: Feed) -> None:
        self.default, self.infra = default, infra

    def feeds(self) -> list[Feed]:
        return [self.default, self.infra]

    def feed_for(self, source: str, _namespace: str) -> Feed | Failure:
        if source == "gone":
            return Unavailable("SourceNotOpen", "there is no such source")
        return self.infra if source else self.default


@pytest.fixture
async def infra() -> AsyncIterator[FakePrometheus]:
    async with serving(FakePrometheus({("n1", "p0"): 77.0})) as server:
        yield server


@pytest.fixture
async def infra_feed(infra, clock):
    opened = Opened(infra, clock)
    yield await opened({"deadline_s": 1.0})
    await opened.close()


def planned(source: str):
    return structs.replace(pods_plan(), source=source, rule=f"rules[{source}]:x")


async def test_every_demand_is_answered_by_its_source_in_order(opened, infra_feed) -> None:
    reader = FeedBySource(TwoSources(await opened(), infra_feed))
    asked = [want(planned(source), "n1", "p0") for source in ("", "infra", "gone", "infra", "")]
    one, two, gone, three, four = await reader.read(asked)
    assert [served(each)["p0"] for each in (one, two, three, four)] == [10.0, 77.0, 77.0, 10.0]
    assert isinstance(gone, Unavailable)


@pytest.mark.parametrize("sources", [("", "infra"), ("infra",)], ids=["several", "only-it"])
async def test_nobody_waits_for_a_source_in_an_outage_and_its_answer_ends_it(
    opened, infra, infra_feed, clock, sources
) -> None:
    reader = FeedBySource(TwoSources(await opened(), infra_feed))
    demands = [want(planned(source), "n1", "p0") for source in sources]
    thaw = asyncio.Event()
    infra.react = lambda _: held(thaw)
    began_s = clock.now_s
    first = await reader.read(demands)  # nobody knows yet: its deadline is waited for
    assert isinstance(first[-1], Unavailable)
    assert first[-1].since_s is None
    clock.now_s += SILENT_S + 1
    asked = len(infra.asked)
    for _ in range(3):
        reading = asyncio.create_task(reader.read(demands))
        done, _ = await asyncio.wait([reading], timeout=2 * PROBE_S)
        assert done, "it waited for the silent one"
        found = reading.result()
        assert all(served(each)["p0"] == 10.0 for each in found[:-1])
        assert isinstance(found[-1], Unavailable)
        assert found[-1].since_s == began_s
        assert "since" in found[-1].message
    assert len(infra.asked) <= asked + 1, "one question at a time looks whether it is back"
    thaw.set()
    for _ in range(100):
        found = await reader.read(demands)
        if not isinstance(found[-1], Unavailable):
            break
        await asyncio.sleep(0.02)
    assert served(found[-1])["p0"] == 77.0


async def test_the_first_who_reads_after_an_outage_is_answered(opened, infra, infra_feed, clock):
    reader = FeedBySource(TwoSources(await opened(), infra_feed))
    demands = [want(planned("infra"), "n1", "p0")]
    infra.react = lambda _: web.Response(status=503)
    await reader.read(demands)
    clock.now_s += SILENT_S + 1
    assert "since" in (await reader.read(demands))[0].message
    infra.react = None
    both = await asyncio.gather(reader.read(demands), reader.read(demands))
    assert [served(each[0])["p0"] for each in both] == [77.0, 77.0]


async def test_a_gap_is_that_of_the_demands_source(opened, infra, infra_feed, clock):
    reader = FeedBySource(TwoSources(await opened(), infra_feed))
    demands = {name: want(planned(name), "n1", "p0") for name in ("", "infra", "gone")}
    infra.react = lambda _: web.Response(status=503)
    await reader.read(list(demands.values()))
    clock.now_s += SILENT_S + 1
    infra.react = None
    outcomes = await reader.read(list(demands.values()))
    known = {
        name: reader.gap(demand, outcome, lambda: [QueryWindow(0, 120)])
        for (name, demand), outcome in zip(demands.items(), outcomes, strict=True)
    }
    assert known[""] is known["gone"] is None
    assert known["infra"] is not None
    assert known["infra"].until_s == clock.now_s
