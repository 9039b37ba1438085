"""The feed against a fake Prometheus: requests that take a query of their own."""

import asyncio

from tests.unit.feed.opened import queries, served
from tests.unit.feed.prometheus import pods_plan, want


async def test_plans_with_other_metric_selectors_do_not_mix(fake, opened):
    feed = await opened()
    one, other = pods_plan(matchers=('tier="a"',)), pods_plan(matchers=('tier="b"',))
    await feed.read([want(one, "n1", "p0"), want(other, "n1", "p0")])
    assert queries(feed) == {"batch": 2}
    assert {asked.query for asked in fake.queries} >= {
        'sum by (namespace,pod) (m{tier="a",namespace="n1",pod="p0"})',
        'sum by (namespace,pod) (m{tier="b",namespace="n1",pod="p0"})',
    }


async def test_coalescing_off_sends_every_request_as_upstream_renders_it(fake, opened):
    feed, plan = await opened(is_coalescing=False), pods_plan()
    demands = [want(plan, "n1", "p0", "p1"), want(plan, "n1", "p0", "p1")]
    await feed.read(demands)
    assert [(asked.verb, asked.query) for asked in fake.asked] == [
        ("GET", 'sum by (pod) (m{namespace="n1",pod=~"p0|p1"})')
    ] * 2


async def test_hostile_values_take_their_own_query(fake, opened):
    feed, plan = await opened(), pods_plan()
    await feed.read([want(plan, "n1", "a+b"), want(plan, "n1", 'q"x'), want(plan, "n1", "*")])
    assert queries(feed) == {"single": 3}


async def test_equal_texts_share_a_query_and_for_a_second_its_answer(fake, opened, clock):
    feed = await opened()
    plan = pods_plan(template="topk(1, m{<M>})")
    await asyncio.gather(*(feed.read([want(plan, "n1", "p0")]) for _ in range(5)))
    clock.now_s += 0.9
    await feed.read([want(plan, "n1", "p0")])
    assert queries(feed) == {"single": 1}
    clock.now_s += 0.2
    await feed.read([want(plan, "n1", "p0")])
    assert queries(feed) == {"single": 2}


async def test_a_constant_text_is_one_query_for_all_namespaces(fake, opened, clock):
    feed, plan = await opened(), pods_plan(template="max(m)", api="external")
    await feed.read([want(plan, f"n{n}") for n in range(8)])
    clock.now_s += 4.5
    await feed.read([want(plan, "n1")])
    assert queries(feed) == {"single": 1}


async def test_get_is_kept_where_it_was_asked_for(fake, opened):
    feed, plan = await opened({"verb": "GET"}), pods_plan()
    names = [f"pod-with-a-long-name-{i:04}" for i in range(300)]
    await feed.read([want(plan, "n1", *names)])
    batches = [asked for asked in fake.queries if "by (namespace,pod)" in asked.query]
    assert {asked.verb for asked in fake.asked} == {"GET"}
    assert all(len(asked.query) <= 2048 for asked in batches)
    assert sum(len(asked.values("pod")) for asked in batches) == 300


async def test_one_of_many_that_takes_its_own_query_does_not_wait_for_the_others(fake, opened):
    feed, plan = await opened(), pods_plan()
    outcomes = await feed.read(
        [want(plan, f"n{n}", "p0", known=3) for n in range(7)]
        + [want(pods_plan(rule="other", template="topk(1, m{<M>})"), "n1", "p1")]
    )
    assert [served(outcome)["p0"] for outcome in outcomes[:7]] == [10.0 * n for n in range(7)]
    assert served(outcomes[7]) == {"p1": 11.0}
    assert feed.stats.singles == 1
