"""One place knows since when and why Prometheus does not answer, and all say it from there."""

from typing import get_args

import pytest
from aiohttp import web

from podscale.feed.errors import Kind
from podscale.feed.http import refusals
from podscale.feed.outage import SILENT_S, OutageWatch
from podscale.feed.stats import FeedStats
from podscale.page.state.feed_health import FeedHealth, FeedSource
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


def test_an_answer_ends_it_and_one_that_came_meanwhile_prevents_it():
    watch = OutageWatch()
    watch.failed(refusals.error("unreachable"), 1000.0, 1000.0)
    assert watch.text(1000.0 + SILENT_S).endswith(SINCE)
    watch.answered(1016.0)
    assert watch.text(1100.0) == ""
    watch.failed(refusals.error("deadline"), 1015.0, 1035.0)
    assert watch.text(1100.0) == ""


def test_the_reason_is_the_newest_and_the_time_the_first():
    watch = OutageWatch()
    watch.failed(refusals.error("unreachable"), 1000.0, 1000.0)
    watch.failed(refusals.error("gateway"), 1010.0, 1010.0)
    outage = watch.current(1030.0)
    assert outage is not None
    assert (outage.since_s, outage.failure.reason) == (1000.0, "PrometheusError")
    # Who had no place behind the others has none for that reason.
    told = watch.told(refusals.error("no-place"), 1030.0)
    assert (told.kind, told.failure) == ("no-place", outage.failure)
    assert watch.told(refusals.error("no-place"), 1014.0).failure.reason == "PrometheusBusy"


async def test_the_feed_says_it_to_everybody_and_the_page_its_age(fake, opened):
    feed = await opened(prometheus={"deadline_s": 1.0})
    demand = want(pods_plan(), "n1", "p0")
    fake.react = lambda _: web.Response(status=503, text="starting")
    clock = opened.clock
    began = clock.now_s
    (failed,) = await feed.read([demand], 0.0)
    assert "since" not in failed.message
    clock.now_s += 100.0
    (failed,) = await feed.read([demand], 0.0)
    outage = feed.outage()
    assert outage is not None
    assert outage.since_s == began
    assert failed.message == outage.failure.message
    health = FeedHealth(FeedSource(FeedStats(), lambda: (), outage=feed.outage))
    shown = health.answer(clock.now_s)
    assert (shown.outage, shown.age_s) == (failed.message, 100.0)
    fake.react = None
    await feed.read([demand], 0.0)
    assert feed.outage() is None
    assert health.answer(clock.now_s).outage == ""
