"""A namespace has so many queries in a period; beyond them, chance says who may ask."""

import asyncio

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


async def test_the_next_periods_ask_others(fake, opened, clock):
    feed = await opened(namespace_queries=20)
    wanted = [want(plan, "n1", "p0") for plan in selectors(50)]
    assert refused(await feed.read(wanted)) == list(range(20, 50))
    asked = set()
    for _ in range(40):
        clock.now_s += PERIOD_S
        asked |= set(range(50)) - set(refused(await feed.read(wanted)))
    assert asked == set(range(50))
    for _ in range(2):
        clock.now_s += PERIOD_S
        last = refused(await feed.read(wanted[5:25]))
    assert last == [], "nobody waits for those who ask no more"


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
    assert feed.stats.failures == {}, "Prometheus has not failed"


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
    every = [(hpa, metric) for hpa in range(25) for metric in range(51)]
    for second in range(0, 900, 5):  # as long as a snapshot is fresh
        for query in every:
            if lanes.refusal(demand, query, NOW_S + second) is None:
                asked.setdefault(query, []).append(second)
    assert sum(map(len, asked.values())) <= 1000 * (900 // PERIOD_S + 1)
    assert asked.keys() == set(every)


@pytest.mark.parametrize("period_s", [15, 30, 60, 600])
def test_however_seldom_one_asks_among_many_one_is_asked_as_often(period_s):
    lanes, demand = budgets(namespace_queries=50), want(OTHERS_PLAN, "n1", "p0")
    answers = []
    for second in range(0, 40 * period_s, 15):
        if second % period_s == 0:
            answers.append(lanes.refusal(demand, "rare", NOW_S + second) is None)
        for query in range(99):
            lanes.refusal(demand, query, NOW_S + second)
    assert sum(answers) >= len(answers) / 10


def test_of_selectors_that_are_others_each_time_nothing_is_remembered():
    lanes, demand = budgets(namespace_queries=50), want(OTHERS_PLAN, "n1", "p0")
    answers = []
    for period in range(200):
        now_s = NOW_S + period * PERIOD_S
        answers.append(lanes.refusal(demand, "steady", now_s) is None)
        for number in range(200):
            lanes.refusal(demand, (period, number), now_s)
    assert sum(answers) >= 10, "who asks for what nobody wants keeps nobody out"
    lanes.refusal(demand, "last", NOW_S + 201 * PERIOD_S)
    lanes.refusal(want(OTHERS_PLAN, "n2", "p0"), "m", NOW_S + 203 * PERIOD_S)
    assert lanes._budgets.keys() == {"n2"}


def test_the_usage_of_pods_is_always_asked_for():
    usage = structs.replace(OTHERS_PLAN, labels=KeyLabels("namespace", "pod", "container"))
    lanes, demand = budgets(namespace_queries=1), want(usage, "n1", "p0")
    assert {lanes.refusal(demand, resource, NOW_S) for resource in ("cpu", "memory")} == {None}


@pytest.mark.parametrize("by_s", [-3600.0, 3600.0])
def test_a_clock_that_is_set_begins_a_period(by_s):
    lanes, demand = budgets(namespace_queries=1), want(OTHERS_PLAN, "n1", "p0")
    assert lanes.refusal(demand, "m", NOW_S) is None
    assert lanes.refusal(demand, "n", NOW_S) is not None
    assert any(lanes.refusal(demand, each, NOW_S + by_s) is None for each in range(40))


def test_what_belongs_to_no_namespace_has_no_budget():
    lanes, nodes = budgets(namespace_queries=1), want(OTHERS_PLAN, "")
    assert {lanes.refusal(nodes, number, NOW_S) for number in range(5)} == {None}
