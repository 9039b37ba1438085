"""One place knows since when and why Prometheus does not answer, and all say it from there."""

import asyncio
from typing import get_args

import pytest
from aiohttp import web

from adapter.stages import Stage
from podscale.core.boundedcache import grow_older
from podscale.core.metrics import SampleGap, Unavailable
from podscale.core.silences import QueryWindow
from podscale.feed.errors import Kind, QueryError
from podscale.feed.http import refusals
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import PrometheusOptions
from podscale.feed.outage import SILENT_S, OutageWatch
from podscale.feed.stats import FeedStats
from podscale.page.health import FeedHealth, FeedSource
from tests.unit.feed.prometheus import pods_plan, want

ANSWERED = {"bad-data", "execution", "timeout", "oversize", "partial", "no-place"}
SINCE = "(since 1970-01-01T00:16:40Z)"


@pytest.mark.parametrize("kind", get_args(Kind))
def test_what_is_no_answer_of_prometheus_for_a_while_is_an_outage(kind):
    watch = OutageWatch()
    watch.answered(999.0)
    first = watch.failed(refusals.error(kind), 1000.0, 1001.0)
    assert "since" not in first.failure.message  # one query may fail between others
    later = watch.failed(refusals.error(kind), 1020.0, 1021.0)
    assert (watch.current(1021.0) is None) is (kind in ANSWERED)
    assert later.failure.message.endswith(SINCE) is (kind not in ANSWERED)
    assert later.kind == kind
    if kind not in ANSWERED and isinstance(later.failure, Unavailable):
        assert later.failure.reason == Stage.PROMETHEUS_UNREACHABLE  # the doctor's word


def test_an_answer_ends_it_and_one_that_came_meanwhile_prevents_it():
    watch = OutageWatch()
    watch.failed(refusals.error("unreachable"), 1000.0, 1000.0)
    assert watch.current(1000.0 + SILENT_S).failure.message.endswith(SINCE)
    watch.answered(1016.0)
    assert watch.current(1100.0) is None
    watch.failed(refusals.error("deadline"), 1015.0, 1035.0)
    assert watch.current(1100.0) is None


def test_a_clock_that_was_set_back_hides_none():
    watch = OutageWatch()
    watch.answered(5000.0)
    watch.failed(refusals.error("unreachable"), 1000.0, 1000.0)
    watch.failed(refusals.error("unreachable"), 1020.0, 1020.0)
    assert watch.current(1020.0).failure.message.endswith(SINCE)


def test_the_reason_is_the_newest_and_the_time_the_first():
    watch = OutageWatch()
    watch.failed(refusals.error("unreachable"), 1000.0, 1000.0)
    watch.failed(refusals.error("gateway"), 1010.0, 1010.0)
    outage = watch.current(1030.0)
    assert outage is not None
    assert (outage.since_s, outage.failure.reason) == (1000.0, "PrometheusUnreachable")
    # Who had no place behind the others has none for that reason.
    told = watch.got_no_place(refusals.error("no-place"), 10.0, 1030.0)
    assert (told.kind, told.failure) == ("no-place", outage.failure)


@pytest.mark.parametrize("is_first_ended", [False, True])
def test_who_got_no_place_is_told_a_silence_from_its_first_moment(is_first_ended):
    watch = OutageWatch()
    watch.answered(990.0)
    watch.in_flight = [980.0, 1000.0, 1003.0]
    if is_first_ended:
        watch.in_flight.remove(1000.0)
        watch.failed(refusals.error("deadline"), 1000.0, 1010.0)
    told = watch.got_no_place(refusals.error("no-place"), 10.0, 1010.0)
    assert told.kind == "no-place"
    assert told.failure.reason == "PrometheusTimeout"  # so short a silence is no outage yet
    assert told.failure.message.endswith(SINCE)


@pytest.mark.parametrize("ended_s", [(), (1000.0,)])
def test_who_got_no_place_while_others_were_answered_is_told_so(ended_s):
    watch = OutageWatch()
    watch.in_flight = [1000.0]
    watch.answered(1004.0)
    for each in ended_s:
        watch.failed(refusals.error("deadline"), each, 1010.0)
    told = watch.got_no_place(refusals.error("no-place"), 10.0, 1010.0)
    assert told.failure.reason == "PrometheusBusy"


async def test_series_that_take_long_begin_no_silence_of_queries(fake, clock):
    release = asyncio.Event()

    async def hang(_asked):
        await release.wait()

    fake.react = hang
    options = PrometheusOptions(fake.url, deadline_s=0.5)
    async with PrometheusClient(options, clock) as client:
        listed = asyncio.create_task(client.series("m", 0.0))
        await fake.arrived.wait()
        clock.now_s += 5.0
        asked = asyncio.create_task(client.query("m", 0.0))
        while len(fake.asked) < 2:  # noqa: ASYNC110 - a list has no event
            await asyncio.sleep(0.01)
        clock.now_s += 10.0
        told = client.no_place(10.0)
        with pytest.raises(QueryError):
            await asked
        clock.now_s += SILENT_S
        assert told.failure.message == client.outage_text()
        release.set()
        await listed


async def test_the_feed_says_it_to_everybody_and_the_page_its_age(fake, opened):
    feed = await opened(prometheus={"deadline_s": 1.0}, max_age_s=0.0)
    demand = want(pods_plan(), "n1", "p0")
    fake.react = lambda _: web.Response(status=503, text="starting")
    clock = opened.clock
    began = clock.now_s
    (failed,) = await feed.read([demand])
    assert "since" not in failed.message
    clock.now_s += 100.0
    (failed,) = await feed.read([demand])
    outage = feed.outage()
    assert outage is not None
    assert outage.since_s == began
    assert failed.message == outage.failure.message
    health = FeedHealth(FeedSource(FeedStats(), lambda: (), outage=feed.outage))
    shown = health.answer(clock.now_s)
    assert (shown.outage, shown.age_s) == (failed.message, 100.0)
    fake.react = None
    await feed.read([demand])
    assert feed.outage() is None
    assert health.answer(clock.now_s).outage == ""


def silent(watch, since_s, until_s):
    watch.failed(refusals.error("unreachable"), since_s, since_s)
    watch.answered(until_s)


def gap(watch, now_s, *windows):
    return watch.silences.gap([QueryWindow(*each) for each in windows], now_s)


def test_a_window_reaches_into_an_outage_until_it_has_passed_and_a_quarter_more():
    watch = OutageWatch()
    silent(watch, 1000.0, 1180.0)
    known = SampleGap(1000.0, 1180.0, 120.0, 1180.0 + 150.0)
    assert gap(watch, 1180.0, (0, 120), (0, 60)) == known
    assert gap(watch, 1329.9, (0, 120), (0, 60)) == known
    assert gap(watch, 1330.0, (0, 120), (0, 60)) is None
    assert gap(watch, 1200.0) is None  # a gauge is right at once


def test_an_offset_brings_an_outage_later():
    watch = OutageWatch()
    silent(watch, 1000.0, 1180.0)
    hour_ago = (3600, 120)
    assert gap(watch, 4599.0, hour_ago) is None
    assert gap(watch, 4600.0, hour_ago) == SampleGap(1000.0, 1180.0, 120.0, 4930.0)
    assert gap(watch, 4930.0, hour_ago) is None


@pytest.mark.parametrize(("range_s", "least_s"), [
    (10, 1), (60, 6), (120, 12), (600, SILENT_S), (3600, 72), (30 * 86400, 51840),
])  # fmt: skip
def test_a_silence_that_a_tolerance_forgives_is_none(range_s, least_s):
    for silence_s, is_known in ((least_s - 0.1, False), (least_s, True)):
        watch = OutageWatch()
        silent(watch, 1000.0, 1000.0 + silence_s)
        assert (gap(watch, 1000.0 + silence_s, (0, range_s)) is not None) is is_known


def test_a_short_silence_displaces_no_long_one():
    watch = OutageWatch()
    silent(watch, 1000.0, 1100.0)
    for second in range(20):  # connections are lost now and then
        silent(watch, 1100.0 + second, 1100.9 + second)
    silent(watch, 1119.0, 1121.0)
    found = gap(watch, 1121.0, (0, 120), (0, 10))
    assert found == SampleGap(1000.0, 1100.0, 120.0, 1250.0)
    silent(watch, 1130.0, 1150.0)
    found = gap(watch, 1160.0, (0, 120))
    assert found == SampleGap(1130.0, 1150.0, 120.0, 1300.0)


def test_an_outage_that_is_not_over_is_no_gap_nor_is_a_refused_query():
    watch = OutageWatch()
    watch.failed(refusals.error("bad-data"), 1001.0, 1001.0)
    watch.answered(1100.0)
    watch.failed(refusals.error("unreachable"), 1100.0, 1100.0)
    assert gap(watch, 1200.0, (0, 600)) is None


async def test_the_feed_knows_a_gap_once_prometheus_answers_again(fake, opened):
    feed = await opened(max_age_s=0.0)
    demand = want(pods_plan(), "n1", "p0")
    began_s = opened.clock.now_s

    async def known():
        (outcome,) = await feed.read([demand])
        return feed.gap(demand, outcome, lambda: [QueryWindow(0, 120)])

    # Nor is any when a process starts: nobody walks the query.
    assert feed.gap(demand, *await feed.read([demand]), lambda: pytest.fail("asked")) is None
    fake.react = lambda _: web.Response(status=503, text="starting")
    await known()
    opened.clock.now_s += 100.0
    assert await known() is None
    fake.react = None
    ended_s = began_s + 100.0
    assert await known() == SampleGap(began_s, ended_s, 120.0, ended_s + 150.0)


async def test_an_outage_goes_on_for_a_query_that_gives_nothing(fake, opened):
    feed = await opened(max_age_s=0.0)
    empty, other = want(pods_plan(), "nobody", "p0"), want(pods_plan(), "n1", "p0")

    async def whole_s(demand):
        (outcome,) = await feed.read([demand])
        found = feed.gap(demand, outcome, lambda: [QueryWindow(0, 120)])
        return None if found is None else found.whole_s

    fake.react = lambda _: web.Response(status=503, text="starting")
    await whole_s(empty)
    opened.clock.now_s += 100.0
    fake.react = None
    ended_s = opened.clock.now_s
    for _ in range(3):
        await whole_s(empty)
        opened.clock.now_s += 100.0
    assert await whole_s(other) is None
    fake.react = lambda _: web.Response(status=503, text="busy")  # two seconds do not count
    await whole_s(other)
    opened.clock.now_s += 2.0
    fake.react = None
    assert await whole_s(other) is None
    fake.rows["nobody", "p0"] = 1.0
    assert await whole_s(empty) == pytest.approx(ended_s + 200.0 + 150.0, abs=1.0)


async def test_who_gives_nothing_when_it_is_over_holds_nobody(fake, opened):
    feed = await opened(is_coalescing=False, max_age_s=0.0)  # each asks for its own objects
    empty, other = want(pods_plan(), "n1", "nobody"), want(pods_plan(), "n1", "p0")

    async def gap_of(demand):
        (outcome,) = await feed.read([demand])
        return feed.gap(demand, outcome, lambda: [QueryWindow(0, 120)])

    fake.react = lambda _: web.Response(status=503, text="starting")
    await gap_of(other)
    opened.clock.now_s += 100.0
    fake.react = None
    known = []
    for _ in range(40):
        grow_older(opened.clock.now_s)
        known.append(await gap_of(other))
        await gap_of(empty)
        opened.clock.now_s += 15.0
    assert [each is not None for each in known] == [True] * 10 + [False] * 30
    assert len(set(known)) == 2  # nor does what is told change from pass to pass


async def test_a_query_that_is_empty_now_and_then_is_held_for_one_range(fake, opened):
    feed = await opened(is_coalescing=False, max_age_s=0.0)
    demand = want(pods_plan(), "idle", "p0")
    fake.react = lambda _: web.Response(status=503, text="starting")
    await feed.read([demand])
    opened.clock.now_s += 100.0
    fake.react = None
    known = []
    for turn in range(40):
        fake.rows.pop(("idle", "p0"), None)
        if turn % 2:
            fake.rows["idle", "p0"] = 1.0
        (outcome,) = await feed.read([demand])
        known.append(feed.gap(demand, outcome, lambda: [QueryWindow(0, 120)]))
        opened.clock.now_s += 15.0
    assert known[9] is not None
    assert known[11:] == [None] * 29
