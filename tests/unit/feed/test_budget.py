"""A namespace has so many queries in a period; who waited longest comes first in the next."""

import asyncio
import math

import pytest
from msgspec import structs

from podscale.core.metrics import Unavailable
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import FeedOptions, PrometheusOptions
from podscale.feed.plan import KeyLabels, Reading
from podscale.feed.queries.queue import Queries
from podscale.feed.stats import FeedStats
from tests.unit.feed.opened import NOW_S, held, queries
from tests.unit.feed.prometheus import pods_plan, want

PERIOD_S = 15.0
OTHERS_PLAN = pods_plan(template="topk(1, m{<M>})")  # which no batch answers


def selectors(count, **more):
    """Return plans of one rule, each of a metric selector of its own."""
    return [pods_plan(matchers=(f'x="{n}"',), **more) for n in range(count)]


def unscoped(plan):
    """Return the plan of an external metric that looks at no namespace."""
    return structs.replace(plan, api="external", labels=KeyLabels())


def refused(outcomes):
    """Return the places of what was not asked, each for the one reason that there is."""
    places = []
    for place, outcome in enumerate(outcomes):
        if not isinstance(outcome, Reading):
            assert isinstance(outcome, Unavailable)
            assert outcome.reason == "NoBudget"
            assert outcome.message.startswith("not asked: the budget of the namespace is ")
            assert outcome.retry_after_s is None, "whoever is told to wait keeps a worker for it"
            places.append(place)
    return places


@pytest.mark.parametrize("template", ["sum by (pod) (m{<M>})", "topk(1, m{<M>})"])
@pytest.mark.parametrize("is_coalescing", [True, False])
async def test_a_namespace_asks_no_more_than_its_budget_and_others_what_they_want(
    fake, opened, template, is_coalescing
):
    feed = await opened(namespace_queries=20, is_coalescing=is_coalescing)
    rest = selectors(10, rule="rest", template=template)
    greedy = [want(plan, "n1", "p0") for plan in selectors(30, template=template)]
    others = [want(plan, f"n{n}", "p0") for n in range(2, 8) for plan in rest]
    for _ in range(2):  # again in the same period
        outcomes = await feed.read([*greedy, *others])
        assert refused(outcomes)[-10:] == list(range(20, 30))
        assert refused(outcomes[30:]) == []
    asked = [each for each in fake.queries if "n1" in each.values("namespace")]
    assert len(asked) == 20


async def test_25_autoscalers_that_ask_every_second_have_what_one_period_has(fake, opened, clock):
    feed = await opened()
    plans = selectors(25 * 44, template="topk(1, m{<M>})")
    for _ in range(2):
        await feed.read([want(plan, "n1", "p0") for plan in plans])
        clock.now_s += 1.5
    assert len(fake.queries) == 1000


async def test_the_next_period_asks_others_first(fake, opened, clock):
    feed = await opened(namespace_queries=20)
    wanted = [want(plan, "n1", "p0") for plan in selectors(50)]
    assert refused(await feed.read(wanted)) == list(range(20, 50))
    clock.now_s += PERIOD_S
    assert refused(await feed.read(wanted)) == [*range(20), *range(40, 50)]
    clock.now_s += PERIOD_S
    assert refused(await feed.read(wanted)) == list(range(10, 40))
    for _ in range(8):
        clock.now_s += PERIOD_S
        last = refused(await feed.read(wanted[5:25]))
    assert last == [], "nobody waits for long for those who ask no more"


async def test_whoever_is_refused_has_what_another_asks_and_spoils_it_for_nobody(fake, opened):
    feed, shared = await opened(namespace_queries=1), pods_plan(rule="shared")
    alone = unscoped(pods_plan(template="max(m)"))
    spent, *_ = selectors(1)
    await feed.read([want(spent, "n1", "p0")])
    asked = [want(shared, "n1", "p0"), want(shared, "n2", "p0"),
             structs.replace(want(alone, ""), asker="n1"),
             structs.replace(want(alone, ""), asker="n3")]  # fmt: skip
    assert refused(await feed.read(asked)) == [0, 2]
    assert refused(await feed.read([asked[2]])) == [], "from the answer that is there"


async def test_a_refusal_waits_for_no_place_and_takes_none(fake, opened):
    feed = await opened(namespace_queries=4, queries_in_flight=4)
    release = asyncio.Event()
    fake.react = lambda _: held(release)
    plans = selectors(5, template="topk(1, m{<M>})")
    reading = asyncio.create_task(feed.read([want(plan, "n1", "p0") for plan in plans[:4]]))
    await fake.arrived.wait()
    async with asyncio.timeout(1.0):
        assert refused(await feed.read([want(plans[4], "n1", "p0")])) == [0]
    release.set()
    assert refused(await reading) == []
    assert feed.stats.failures == {"no-budget": 1}


async def test_a_query_that_everybody_shares_is_read_once_whatever_the_selector(fake, opened):
    feed = await opened()
    constant = [unscoped(plan) for plan in selectors(40, template="max(m)")]
    outcomes = await feed.read([want(plan, "") for plan in constant])
    assert queries(feed) == {"single": 1}
    assert len({id(outcome) for outcome in outcomes}) == 1


def budgets(**options):
    """Return the queries of one source, of which none is made."""
    client = PrometheusClient(PrometheusOptions(url="http://localhost"))
    return Queries(client, FeedOptions(**options), FeedStats())


def test_25_autoscalers_of_many_selectors_are_asked_in_turn_however_often_they_ask():
    lanes, demand = budgets(), want(OTHERS_PLAN, "n1", "p0")
    asked = {}  # when each was, by query
    every = [(hpa, metric) for hpa in range(25) for metric in range(153)]
    for second in range(0, 150, 5):  # as long as a snapshot is fresh
        for query in every:
            if lanes.refusal(demand, query, NOW_S + second) is None:
                asked.setdefault(query, []).append(second)
    assert sum(map(len, asked.values())) <= 1000 * (150 // PERIOD_S + 1)
    assert asked.keys() == set(every)
    turns = math.ceil(len(every) / 1000)
    for times in asked.values():
        gaps = [after - before for before, after in zip(times, [*times[1:], 150], strict=True)]
        assert max(gaps) <= (turns + 1) * PERIOD_S


@pytest.mark.parametrize("period_s", [15, 30, 45, 60])
def test_who_asks_rarely_among_many_keeps_the_place(period_s):
    lanes, demand = budgets(), want(OTHERS_PLAN, "n1", "p0")
    answers = []
    for second in range(0, 600, 5):
        for query in range(1500):
            lanes.refusal(demand, query, NOW_S + second)
        if second % period_s == 0:
            answers.append(lanes.refusal(demand, "rare", NOW_S + second) is None)
    assert True in answers[:3]
    assert 4 * sum(answers) >= len(answers)


def test_of_selectors_that_are_others_each_time_little_is_remembered():
    lanes, demand = budgets(), want(OTHERS_PLAN, "n1", "p0")
    for period in range(12):
        for number in range(10_000):
            lanes.refusal(demand, (period, number), NOW_S + period * PERIOD_S)
        (budget,) = lanes._budgets.values()
        assert len(budget.waiting) <= 8192
    for period in range(12, 24):
        lanes.refusal(want(OTHERS_PLAN, "n2", "p0"), "m", NOW_S + period * PERIOD_S)
    assert lanes._budgets.keys() == {"n2"}


@pytest.mark.parametrize("by_s", [-3600.0, 3600.0])
def test_a_clock_that_is_set_begins_a_period(by_s):
    lanes, demand = budgets(namespace_queries=1), want(OTHERS_PLAN, "n1", "p0")
    assert lanes.refusal(demand, "m", NOW_S) is None
    assert lanes.refusal(demand, "n", NOW_S) is not None
    assert lanes.refusal(demand, "n", NOW_S + by_s) is None


def test_what_belongs_to_no_namespace_has_no_budget():
    lanes, nodes = budgets(namespace_queries=1), want(OTHERS_PLAN, "")
    assert {lanes.refusal(nodes, number, NOW_S) for number in range(5)} == {None}
