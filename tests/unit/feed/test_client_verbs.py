"""The client's requests as sent: GET or POST, and what a gateway thinks of it."""

import asyncio

import pytest
from aiohttp import web

from podscale.feed.errors import QueryError
from tests.unit.feed.prometheus import FakePrometheus, connected, serving


@pytest.fixture
async def fake():
    async with serving(FakePrometheus({("n1", "p0"): 1.0})) as server:
        yield server


async def test_a_query_is_sent_as_upstream_does_but_with_a_deadline(fake):
    async with connected(fake, "/prefix/?tenant=a") as client:
        await client.query("a + b", 1700000000.25)
    (asked,) = fake.asked
    assert (asked.verb, asked.path) == ("GET", "/prefix/api/v1/query")
    assert asked.form == [("query", "a + b"), ("time", "1700000000.25"), ("timeout", "1")]


async def test_post_carries_the_parameters_of_the_url(fake):
    async with connected(fake, "?tenant=a", verb="POST") as client:
        await client.query("a", 1.0)
        await client.series("{job='x'}", 5.0)
    query, series = fake.asked
    assert (query.verb, query.form[0]) == ("POST", ("tenant", "a"))
    assert (series.verb, series.path) == ("POST", "/api/v1/series")
    assert series.form == [("tenant", "a"), ("match[]", "{job='x'}"), ("start", "5")]


async def test_long_queries_go_by_post_unless_get_was_asked_for(fake):
    long = "a" * 3000
    async with connected(fake) as client:
        await client.query(long, 1.0)
    async with connected(fake, verb="GET") as client:
        await client.query(long, 1.0, verb="POST")
    assert [asked.verb for asked in fake.asked] == ["POST", "GET"]


@pytest.mark.parametrize("status", [403, 405, 501])
async def test_where_post_is_refused_by_a_gateway_queries_go_by_get(fake, status):
    fake.react = lambda asked: web.Response(status=status) if asked.verb == "POST" else None
    async with connected(fake) as client:
        for _ in range(2):
            assert list((await client.query("a", 1.0, verb="POST")).values) == [1.0]
        assert client.is_get
    assert [asked.verb for asked in fake.asked] == ["POST", "GET", "GET"]


async def test_post_is_tried_again_after_a_minute(fake, monkeypatch):
    fake.react = lambda asked: web.Response(status=403) if asked.verb == "POST" else None
    async with connected(fake) as client:
        await client.query("a", 1.0, verb="POST")
        fake.react, fake.asked = None, []
        loop = asyncio.get_running_loop()
        now = loop.time()
        for later_s in (50.0, 70.0):
            monkeypatch.setattr(loop, "time", lambda later_s=later_s: now + later_s)
            assert client.is_get == (later_s < 60.0)
        monkeypatch.undo()


@pytest.mark.parametrize("status", [302, 307])
async def test_a_redirected_post_is_asked_by_get_which_keeps_its_query(fake, status):
    def react(asked):
        if asked.path.startswith("/old"):
            to = asked.request.path_qs.replace("/old", "/new", 1)
            return web.Response(status=status, headers={"Location": to})
        return None

    fake.react = react
    async with connected(fake, "/old") as client:
        assert list((await client.query("a", 1.0, verb="POST")).values) == [1.0]
    assert [(asked.verb, asked.path.split("/")[1]) for asked in fake.asked] == [
        ("POST", "old"), ("GET", "old"), ("GET", "new"),
    ]  # fmt: skip


async def test_a_gateway_that_refuses_both_is_told_as_it_answered_the_post(fake):
    answers = [web.Response(status=403), web.Response(status=404)]
    fake.react = lambda _: answers.pop(0)
    async with connected(fake) as client:
        with pytest.raises(QueryError) as caught:
            await client.query("a", 1.0, verb="POST")
        assert not client.is_get
    assert caught.value.kind == "forbidden"


async def test_a_url_that_is_too_long_is_split_by_the_limits_of_get_from_then_on(fake):
    fake.react = lambda asked: web.Response(status=405 if asked.verb == "POST" else 414)
    async with connected(fake) as client:
        with pytest.raises(QueryError) as caught:
            await client.query("a" * 5000, 1.0)
        assert client.is_get
    assert caught.value.kind == "oversize"


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_the_verb_that_was_asked_for_stays(fake, verb):
    fake.react = lambda _: web.Response(status=405)
    async with connected(fake, verb=verb) as client:
        with pytest.raises(QueryError):
            await client.query("a", 1.0)
    assert [asked.verb for asked in fake.asked] == [verb]
