"""The feed against a fake Prometheus: what is split, demoted, given up, and whom it hurts."""

import asyncio

import pytest
from aiohttp import web

from podscale.core.metrics import Refused, Unavailable
from podscale.feed.plan import KeyLabels, QueryPlan
from tests.unit.feed.opened import queries, served
from tests.unit.feed.prometheus import pods_plan, refused, vector, want


async def test_splitting_isolates_the_one_failing_namespace(fake, opened):
    feed, plan = await opened(), pods_plan()
    fake.react = lambda asked: (
        refused(422, "execution") if "n5" in asked.values("namespace") else None
    )
    demands = [want(plan, f"n{n}", "p0") for n in range(8)]
    outcomes = await feed.read(demands)
    for n, outcome in enumerate(outcomes):
        if n == 5:
            assert isinstance(outcome, Refused)  # of its own query: the wide error is never shown
        else:
            assert served(outcome)["p0"] == 10.0 * n
    assert queries(feed) == {"batch": 7, "single": 1}  # 8, 4+4, 2+2, 1+1


async def test_histograms_of_one_namespace_leave_the_others_together(fake, opened, clock):
    feed, plan = await opened(), pods_plan()

    def react(asked):
        if "n5" not in asked.values("namespace") or asked.is_stamp:
            return None
        body = vector(fake.evaluated(asked), asked.time_s)
        for row in body["data"]["result"]:
            if row["metric"].get("namespace", "n5") == "n5":
                row["histogram"] = [row.pop("value")[0], {"count": "2"}]
        return web.json_response(body)

    fake.react = react
    demands = [want(plan, f"n{n}", "p0") for n in range(8)]
    for expected in (
        {"batch": 7, "single": 1},  # 8, 4+4, 2+2, 1+1
        {"batch": 7, "single": 1},
        {"batch": 7, "single": 1},
        {"batch": 1, "single": 1},  # left out for a while
    ):
        fake.asked.clear()
        before = queries(feed)
        outcomes = await feed.read(demands)
        for n, outcome in enumerate(outcomes):
            if n == 5:
                assert (type(outcome), outcome.reason) == (Refused, "ResultIsHistogram")
            else:
                assert served(outcome)["p0"] == 10.0 * n
        after = queries(feed)
        assert {kind: after[kind] - before.get(kind, 0) for kind in after} == expected
        clock.now_s += 10
    assert feed.stats.exclusions == 1


async def test_a_namespace_that_fails_three_times_is_left_out_for_five_minutes(fake, opened, clock):
    feed, plan = await opened(), pods_plan()
    fake.react = lambda asked: (
        refused(422, "execution") if "n5" in asked.values("namespace") else None
    )
    demands = [want(plan, "n4", "p0"), want(plan, "n5", "p0")]
    for _ in range(3):
        await feed.read(demands)
        clock.now_s += 10
    assert feed.stats.exclusions == 1
    fake.asked.clear()
    await feed.read(demands)
    assert sorted(asked.values("namespace") for asked in fake.queries) == [["n4"], ["n5"]]
    clock.now_s += 301
    fake.react = None
    fake.asked.clear()
    await feed.read(demands)
    assert [asked.values("namespace") for asked in fake.queries] == [["n4", "n5"]]


@pytest.mark.parametrize(
    ("status", "error_type", "answer", "is_timeout"),
    [
        (401, "x", Refused, False),
        (403, "x", Refused, False),
        (429, "x", Unavailable, False),
        (500, "internal", Unavailable, False),
        (502, "x", Unavailable, False),
    ],
)
async def test_transport_failures_reach_all_waiters_once(
    fake, opened, status, error_type, answer, is_timeout
):
    feed, plan = await opened(), pods_plan()
    fake.react = lambda _: refused(status, error_type)
    outcomes = await feed.read([want(plan, f"n{n}", "p0") for n in range(8)])
    assert all(isinstance(outcome, answer) for outcome in outcomes)
    assert len(fake.asked) == 1
    fake.react = None
    (recovered,) = await feed.read([want(plan, "n1", "p0")])
    assert served(recovered)["p0"] == 10.0


async def test_a_query_timeout_of_prometheus_splits_and_ours_does_not(fake, opened):
    feed, plan = await opened(), pods_plan()
    fake.react = lambda asked: (
        refused(503, "timeout") if len(asked.values("namespace")) > 4 else None
    )
    await feed.read([want(plan, f"n{n}", "p0") for n in range(8)])
    assert queries(feed) == {"batch": 3}


async def test_a_hanging_prometheus_is_a_timeout_after_the_deadline(fake, opened):
    feed, plan = await opened({"deadline_s": 0.2}), pods_plan()
    fake.react = lambda _: asyncio.sleep(30)
    outcomes = await feed.read([want(plan, f"n{n}", "p0") for n in range(8)])
    assert all(isinstance(outcome, Unavailable) and outcome.is_timeout for outcome in outcomes)
    assert len(fake.asked) == 1


async def test_bad_data_demotes_until_the_next_relist(fake, opened, clock):
    feed, plan = await opened(), pods_plan()
    fake.react = lambda asked: (
        refused(400, "bad_data") if len(asked.values("namespace")) > 1 else None
    )
    demands = [want(plan, "n1", "p0"), want(plan, "n2", "p0")]
    outcomes = await feed.read(demands)
    assert [served(outcome)["p0"] for outcome in outcomes] == [10.0, 20.0]
    assert feed.stats.demotions == {"bad-data": 1}
    clock.now_s += 10
    fake.react = None
    await feed.read(demands)
    assert queries(feed) == {"batch": 1, "single": 4}
    feed.relisted()
    clock.now_s += 10
    await feed.read(demands)
    assert queries(feed) == {"batch": 2, "single": 4}


async def test_unequal_duplicates_send_only_that_request_by_itself(fake, opened, clock):
    feed, plan = await opened(), pods_plan(template="m{<M>}")
    fake.extra_rows = [({"namespace": "n1", "pod": "p0", "z": "2"}, 99.0)]
    demands = [want(plan, "n1", "p0"), want(plan, "n1", "p1"), want(plan, "n2", "p0")]
    outcomes = await feed.read(demands)
    assert [served(o)[p] for o, p in zip(outcomes, ("p0", "p1", "p0"), strict=True)] == [
        99.0,  # as upstream: the last sample of its own query
        11.0,
        20.0,
    ]
    assert queries(feed) == {"batch": 1, "single": 1}


@pytest.mark.parametrize(
    "body",
    [
        {"isPartial": True},
        {"warnings": ["No StoreAPIs matched for this query"]},
        {"data": {"resultType": "scalar", "result": [1, "2"]}},
    ],
)
async def test_odd_batch_answers_are_not_stored(fake, opened, body):
    feed, plan = await opened(), pods_plan()

    def react(asked):
        if len(asked.values("namespace")) < 2:
            return None
        return web.json_response(vector([({"namespace": "n1", "pod": "p0"}, 0.0)], 1.0) | body)

    fake.react = react
    outcomes = await feed.read([want(plan, "n1", "p0"), want(plan, "n2", "p0")])
    assert [served(outcome)["p0"] for outcome in outcomes] == [10.0, 20.0]
    assert queries(feed) == {"batch": 1, "single": 2}


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        ({"isPartial": True}, Unavailable, "PartialAnswer"),
        ({"warnings": ["remote read failed"]}, Unavailable, "PartialAnswer"),
        (
            {
                "data": {
                    "resultType": "vector",
                    "result": [
                        {"metric": {"pod": "p0"}, "value": [1, "2"]},
                        {"metric": {"pod": "p1"}, "histogram": [1, {}]},
                    ],
                }
            },
            Refused,
            "ResultIsHistogram",
        ),
    ],
)
@pytest.mark.parametrize("coalescing", [True, False])
async def test_a_part_of_an_own_answer_is_neither_served_nor_held(
    fake, opened, body, kind, reason, coalescing
):
    feed, plan = await opened(is_coalescing=coalescing), pods_plan()
    fake.react = lambda _: web.json_response(vector([({"pod": "p0"}, 0.0)], 1.0) | body)
    (outcome,) = await feed.read([want(plan, "n1", "p0")])
    assert (type(outcome), outcome.reason) == (kind, reason)
    fake.react = None
    (outcome,) = await feed.read([want(plan, "n1", "p0")])
    assert served(outcome) == {"p0": 10.0}


async def test_a_warning_about_promql_is_no_missing_part(fake, opened):
    feed, plan = await opened(is_coalescing=False), pods_plan()
    more = {"warnings": ["PromQL warning: x"], "infos": ["PromQL info: y"]}
    fake.react = lambda _: web.json_response(vector([({"pod": "p0"}, 3.0)], 1.0) | more)
    assert [served(o) for o in await feed.read([want(plan, "n1", "p0")])] == [{"p0": 3.0}]


async def test_the_failure_of_one_rule_never_touches_another(fake, opened):
    feed = await opened()
    good, bad = pods_plan("good"), pods_plan("bad", template="sum by (pod) (broken{<M>})")
    fake.react = lambda asked: refused(500, "internal") if "broken" in asked.query else None
    first, second = await feed.read([want(bad, "n1", "p0"), want(good, "n1", "p0")])
    assert isinstance(first, Unavailable)
    assert served(second)["p0"] == 10.0


async def test_a_template_that_cannot_be_executed_refuses_its_own_requests(fake, opened):
    def render(matchers, values):
        raise ValueError("no such field")

    feed = await opened()
    plan = QueryPlan("custom", "r", "m", KeyLabels("namespace", "pod"), render)
    (outcome,) = await feed.read([want(plan, "n1", "p0")])
    assert isinstance(outcome, Refused)
    assert fake.asked == []


async def test_rules_that_hang_do_not_keep_another_one_waiting(fake, opened):
    feed = await opened(prometheus={"deadline_s": 1.0})
    release = asyncio.Event()

    async def react(asked):
        if "slow" in asked.query:
            await release.wait()

    fake.react = react
    slow = [pods_plan(f"slow{n}", f"sum by (pod) (slow{n}{{<M>}})") for n in range(2)]
    demands = [want(plan, f"{'x' * 60}{n}", "p0") for plan in slow for n in range(1200)]
    late = await feed.read(demands)
    # Nothing was answered yet, so that who got no place behind them knows of no other cause.
    assert {each.reason for each in late} == {"PrometheusTimeout"}
    hanging = asyncio.create_task(feed.read(demands))
    while not feed.stats.in_flight:  # noqa: ASYNC110 - a counter has no event
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert feed.stats.in_flight == 2  # of four
    (outcome,) = await feed.read([want(pods_plan(), "n1", "p0")])
    assert served(outcome)["p0"] == 10.0
    release.set()
    await hanging


async def test_a_tenant_with_many_slow_queries_leaves_places_to_another(fake, opened):
    feed = await opened(prometheus={"deadline_s": 1.0}, queries_in_flight=4)
    release = asyncio.Event()

    async def react(asked):
        if 'x="' in asked.query:
            await release.wait()

    fake.react = react
    plans = [
        pods_plan("slow", f'topk(1, sum by (pod) (m{{x="{n}",<M>}}))', (f'x="{n}"',), "external")
        for n in range(30)
    ]
    late = await feed.read([want(plan, "n1") for plan in plans[:4]])
    assert {each.reason for each in late} == {"PrometheusTimeout"}
    greedy = asyncio.create_task(feed.read([want(plan, "n1") for plan in plans]))
    await asyncio.sleep(0.1)
    assert feed.stats.in_flight == 2  # of four
    other = pods_plan(template="topk(1, sum by (pod) (m{<M>}))", api="external")
    (outcome,) = await feed.read([want(other, "n2")])
    assert outcome.values.tolist() == [20.0, 21.0, 22.0]
    release.set()
    await greedy
