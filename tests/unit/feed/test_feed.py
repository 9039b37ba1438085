"""The feed against a fake Prometheus: what is merged, kept, split, demoted, given up."""

import asyncio
import math

import pytest
from aiohttp import web
from blockbuster import blockbuster_ctx

from podscale.core.metrics import Refused, Unavailable
from podscale.feed.client import PrometheusClient
from podscale.feed.feed import Feed
from podscale.feed.options import FeedOptions, PrometheusOptions
from podscale.feed.plan import KeyLabels, Plan
from podscale.feed.reading import Reading
from tests.unit.feed.prometheus import (
    FakePrometheus,
    pods_plan,
    refused,
    serving,
    vector,
    want,
)

NOW_S = 1_700_000_000.25


class Clock:
    """Unix seconds that only the test moves."""

    def __init__(self):
        self.now_s = NOW_S

    def __call__(self):
        return self.now_s


@pytest.fixture
async def fake():
    rows = {(f"n{n}", f"p{p}"): 10.0 * n + p for n in range(8) for p in range(3)}
    async with serving(FakePrometheus(rows)) as server:
        yield server


@pytest.fixture(autouse=True)
def _nothing_blocks():
    with blockbuster_ctx(scanned_modules=["podscale"]):
        yield


@pytest.fixture
def clock():
    return Clock()


class Opened:
    """A feed on the fake, with options of the test's choice."""

    def __init__(self, fake, clock):
        self.fake, self.clock = fake, clock
        self._stack = []

    async def __call__(self, prometheus=None, **options):
        settings = {"with_sample_timestamps": False} | options
        prometheus = {"deadline_s": 2.0} | (prometheus or {})
        client = PrometheusClient(PrometheusOptions(url=self.fake.url, **prometheus))
        await client.__aenter__()
        feed = Feed(client, FeedOptions(**settings), self.clock)
        await feed.__aenter__()
        self._stack = [feed, client, *self._stack]
        return feed

    async def close(self):
        for opened in self._stack:
            await opened.__aexit__(None, None, None)


@pytest.fixture
async def opened(fake, clock):
    maker = Opened(fake, clock)
    yield maker
    await maker.close()


def served(outcome):
    assert isinstance(outcome, Reading), outcome
    return {name: float(outcome.values[row]) for name, row in outcome.objects.items()}


def quiet(feed):
    """The feed's queries without the first batch's self-check."""
    return {kind: count for kind, count in feed.stats.queries.items() if kind != "check"}


async def test_demands_of_many_namespaces_share_one_query(fake, opened):
    feed, plan = await opened(), pods_plan()
    demands = [want(plan, f"n{n}", "p0", "p1", known=3) for n in range(8)]
    outcomes = await feed.read(demands)
    assert [served(outcome)["p1"] for outcome in outcomes] == [10.0 * n + 1 for n in range(8)]
    assert quiet(feed) == {"batch": 1}
    (query,) = [asked for asked in fake.queries if len(asked.values("namespace")) == 8]
    assert query.verb == "POST"
    assert query.headers["Accept-Encoding"] == "identity"
    assert query.values("pod") == []  # wide: three known, two wanted


async def test_concurrent_readers_share_one_query(fake, opened):
    feed, plan = await opened(), pods_plan()
    reads = [feed.read([want(plan, f"n{n}", "p0", known=3)]) for n in range(8)]
    await asyncio.gather(*reads)
    assert quiet(feed) == {"batch": 1}
    assert (feed.stats.misses, feed.stats.merged) == (1, 7)


async def test_all_batches_are_for_one_whole_second(fake, opened):
    feed, plan = await opened(), pods_plan()
    outcomes = await feed.read([want(plan, "n1", "p0"), want(plan, "n2", "p0", known=1)])
    assert {outcome.asked_s for outcome in outcomes} == {math.floor(NOW_S)}
    assert {asked.time_s for asked in fake.asked} == {math.floor(NOW_S)}
    assert quiet(feed) == {"batch": 2}  # one named, one wide


async def test_a_snapshot_serves_until_max_age_and_no_longer(fake, opened, clock):
    feed, plan = await opened(), pods_plan()
    first = await feed.read([want(plan, "n1", "p0")])
    clock.now_s = NOW_S + 4.7
    again = await feed.read([want(plan, "n1", "p0")])
    assert again[0] is first[0]  # the same object: consumers keep what they made of it
    clock.now_s = NOW_S + 5.0  # 5.25 s after the second asked for
    assert (await feed.read([want(plan, "n1", "p0")]))[0].serial != first[0].serial
    assert quiet(feed) == {"batch": 2}
    assert feed.stats.hits == 1


async def test_max_age_zero_merges_and_keeps_nothing(fake, opened):
    feed, plan = await opened(max_age_s=0.0), pods_plan()
    demands = [want(plan, "n1", "p0"), want(plan, "n2", "p0")]
    await feed.read(demands)
    await feed.read(demands)
    assert quiet(feed) == {"batch": 2}


async def test_a_refresh_reads_again_what_was_wanted_lately(fake, opened, clock):
    feed, plan = await opened(), pods_plan()
    await feed.read([want(plan, "n1", "p0"), want(plan, "n2", "p0")])
    clock.now_s += 15
    await feed.read([want(plan, "n1", "p0")])
    assert (await feed.read([want(plan, "n2", "p0")]))[0].asked_s == math.floor(NOW_S + 15)
    assert quiet(feed) == {"batch": 2}
    clock.now_s += 46
    await feed.read([want(plan, "n1", "p0")])
    assert fake.queries[-1].values("namespace") == ["n1"]  # n2 was forgotten


async def test_queried_and_empty_answers_but_not_queried_never_does(fake, opened):
    feed, plan = await opened(), pods_plan()
    (empty,) = await feed.read([want(plan, "n1", "p9")])
    assert served(empty) == {}
    await feed.read([want(plan, "n1", "p9")])
    assert quiet(feed) == {"batch": 1}
    (found,) = await feed.read([want(plan, "n1", "p0")])  # same namespace, not asked for before
    assert served(found)["p0"] == 10.0
    assert quiet(feed) == {"batch": 2}


async def test_plans_with_other_metric_selectors_do_not_mix(fake, opened):
    feed = await opened()
    one, other = pods_plan(matchers=('tier="a"',)), pods_plan(matchers=('tier="b"',))
    await feed.read([want(one, "n1", "p0"), want(other, "n1", "p0")])
    assert quiet(feed) == {"batch": 2}
    assert {asked.query for asked in fake.queries} >= {
        'sum by (namespace,pod) (m{tier="a",namespace="n1",pod="p0"})',
        'sum by (namespace,pod) (m{tier="b",namespace="n1",pod="p0"})',
    }


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
    assert quiet(feed) == {"batch": 7, "single": 1}  # 8, 4+4, 2+2, 1+1


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
    assert quiet(feed) == {"batch": 3}


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
    assert quiet(feed) == {"batch": 1, "single": 4}
    feed.relisted()
    clock.now_s += 10
    await feed.read(demands)
    assert quiet(feed) == {"batch": 2, "single": 4}


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
    assert quiet(feed) == {"batch": 1, "single": 1}
    for _ in range(2):
        clock.now_s += 10
        await feed.read(demands)
    assert feed.stats.demotions == {"duplicates": 1}


@pytest.mark.parametrize(
    "body",
    [
        {"isPartial": True},
        {"warnings": ["No StoreAPIs matched for this query"]},
        {"data": {"resultType": "scalar", "result": [1, "2"]}},
        {
            "data": {
                "resultType": "vector",
                "result": [{"metric": {"namespace": "n1", "pod": "p0"}, "histogram": [1, {}]}],
            }
        },
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
    assert quiet(feed) == {"batch": 1, "single": 2}


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


async def test_two_differing_self_checks_demote(fake, opened, clock):
    feed, plan = await opened(), pods_plan()

    def lie(asked):
        if len(asked.values("namespace")) < 2:
            return None
        rows = [({"namespace": n, "pod": "p0"}, 1.0) for n in asked.values("namespace")]
        return web.json_response(vector(rows, asked.time_s))

    fake.react = lie
    demands = [want(plan, "n1", "p0"), want(plan, "n2", "p0")]
    for expected in (1, 2):
        await feed.read(demands)
        for _ in range(100):
            if feed.stats.check_differences == expected:
                break
            await asyncio.sleep(0.01)
        clock.now_s += 10
    assert feed.stats.demotions == {"self-check": 1}
    assert [served(o)["p0"] for o in await feed.read(demands)] == [10.0, 20.0]


async def test_a_cancelled_waiter_leaves_the_query_to_the_others(fake, opened):
    feed, plan = await opened(), pods_plan()
    release = asyncio.Event()
    fake.react = lambda _: held(release)
    first = asyncio.create_task(feed.read([want(plan, "n1", "p0")]))
    second = asyncio.create_task(feed.read([want(plan, "n1", "p0")]))
    await fake.arrived.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    release.set()
    assert served((await second)[0])["p0"] == 10.0
    assert quiet(feed) == {"batch": 1}


async def held(event):
    await event.wait()


async def test_who_comes_while_a_query_runs_joins_it(fake, opened):
    feed, plan = await opened(), pods_plan()
    release = asyncio.Event()
    fake.react = lambda _: held(release)
    first = asyncio.create_task(feed.read([want(plan, "n1", "p0")]))
    await fake.arrived.wait()
    second = asyncio.create_task(feed.read([want(plan, "n1", "p0")]))
    await asyncio.sleep(0.02)
    release.set()
    await asyncio.gather(first, second)
    assert quiet(feed) == {"batch": 1}


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
    assert quiet(feed) == {"single": 3}


async def test_equal_texts_share_a_query_and_for_a_second_its_answer(fake, opened, clock):
    feed = await opened()
    plan = pods_plan(template="topk(1, m{<M>})")
    await asyncio.gather(*(feed.read([want(plan, "n1", "p0")]) for _ in range(5)))
    clock.now_s += 0.9
    await feed.read([want(plan, "n1", "p0")])
    assert quiet(feed) == {"single": 1}
    clock.now_s += 0.2
    await feed.read([want(plan, "n1", "p0")])
    assert quiet(feed) == {"single": 2}


async def test_a_constant_text_is_one_query_for_all_namespaces(fake, opened, clock):
    feed, plan = await opened(), pods_plan(template="max(m)", api="external")
    await feed.read([want(plan, f"n{n}") for n in range(8)])
    clock.now_s += 4.5
    await feed.read([want(plan, "n1")])
    assert quiet(feed) == {"single": 1}


async def test_get_is_kept_where_it_was_asked_for(fake, opened):
    feed, plan = await opened({"verb": "GET"}), pods_plan()
    names = [f"pod-with-a-long-name-{i:04}" for i in range(300)]
    await feed.read([want(plan, "n1", *names)])
    batches = [asked for asked in fake.queries if "by (namespace,pod)" in asked.query]
    assert {asked.verb for asked in fake.asked} == {"GET"}
    assert all(len(asked.query) <= 2048 for asked in batches)
    assert sum(len(asked.values("pod")) for asked in batches) == 300


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
    plan = Plan("custom", "r", "m", KeyLabels("namespace", "pod"), render)
    (outcome,) = await feed.read([want(plan, "n1", "p0")])
    assert isinstance(outcome, Refused)
    assert fake.asked == []


class TestSampleAge:
    """Coalescing.md, section 4: a value without a recent sample behind it is stale."""

    async def test_the_samples_own_time_is_reported(self, fake, opened):
        fake.times = {("n1", "p0"): NOW_S - 20.5, ("n1", "p1"): NOW_S - 3}
        feed, plan = await opened(with_sample_timestamps=True), pods_plan()
        (outcome,) = await feed.read([want(plan, "n1", "p0", "p1")])
        assert outcome.is_age_known
        assert outcome.time_s[outcome.row("p0")] == NOW_S - 20.5
        assert quiet(feed) == {"batch": 1, "stamp": 1}

    async def test_a_value_whose_target_has_gone_is_stale(self, fake, opened):
        fake.times = {("n1", "p0"): NOW_S - 1}
        feed, plan = await opened(with_sample_timestamps=True), pods_plan()
        (outcome,) = await feed.read([want(plan, "n1", "p0", "p1")])
        assert served(outcome) == {"p0": 10.0}
        assert outcome.stale == {"p1": math.inf}

    async def test_a_sample_older_than_the_limit_is_stale(self, fake, opened):
        fake.times = {("n1", "p0"): NOW_S - 61, ("n1", "p1"): NOW_S - 58}
        feed = await opened(with_sample_timestamps=True, max_sample_age_s=60.0)
        (outcome,) = await feed.read([want(pods_plan(), "n1", "p0", "p1")])
        assert served(outcome) == {"p1": 11.0}
        assert outcome.stale == {"p0": pytest.approx(60.75)}

    async def test_a_request_by_itself_is_dated_as_well(self, fake, opened):
        fake.times = {("n1", "p0"): NOW_S - 1}
        feed = await opened(with_sample_timestamps=True, is_coalescing=False)
        (outcome,) = await feed.read([want(pods_plan(), "n1", "p0", "p1")])
        assert served(outcome) == {"p0": 10.0}
        assert outcome.stale == {"p1": math.inf}

    async def test_where_two_selectors_meet_the_age_is_unknown(self, fake, opened):
        plan = pods_plan(template="sum by (pod) (m{<M>}) / sum by (pod) (m{<M>})")
        feed = await opened(with_sample_timestamps=True)
        (outcome,) = await feed.read([want(plan, "n1", "p0")])
        assert not outcome.is_age_known
        assert quiet(feed) == {"batch": 1}

    async def test_an_external_answer_of_gone_targets_is_stale_and_gets_no_default(
        self, fake, opened
    ):
        fake.times = {("n2", "p0"): NOW_S - 1}
        plan = pods_plan(template="sum(m{<M>}) or vector(0)", api="external")
        feed = await opened(with_sample_timestamps=True)
        gone, fresh, none = await feed.read([want(plan, n) for n in ("n1", "n2", "nowhere")])
        assert gone.stale == {"": math.inf}
        assert gone.values.tolist() == []
        assert fresh.values.tolist() == [20.0 + 21.0 + 22.0]
        assert none.values.tolist() == [0.0]  # the default that the rule's author wrote
        assert none.labels == ({},)


class TestOtherObjects:
    """Plans whose key is not (namespace, pod)."""

    @staticmethod
    def plan(labels, api="custom", **more):
        group = ",".join(label for label in (labels.object, labels.container) if label)

        def render(matchers, _):
            return f"sum by ({group}) (m{{{matchers}}})"

        return Plan(api, "r", "m", labels, render, **more)

    async def test_cluster_scoped_objects_are_one_batch_without_namespace(self, fake, opened):
        feed, plan = await opened(), self.plan(KeyLabels("", "pod"), "node")
        one, two = await feed.read([want(plan, "", "p0", known=3), want(plan, "", "p2", known=3)])
        assert served(one) == served(two) == {"p0": 280.0, "p1": 288.0, "p2": 296.0}
        assert fake.queries[0].query == "sum by (pod) (m)"

    async def test_namespace_objects_are_always_read_by_name(self, fake, opened):
        plan = self.plan(KeyLabels("", "namespace"), is_namespace_object=True)
        feed = await opened()
        demands = [want(plan, "", f"n{n}", known=8) for n in range(8)]
        outcomes = await feed.read(demands)
        assert served(outcomes[0])["n3"] == 93.0
        assert fake.queries[0].values("namespace") == [f"n{n}" for n in range(8)]
        assert quiet(feed) == {"batch": 1}

    async def test_of_cluster_scoped_names_the_failing_one_is_isolated(self, fake, opened):
        plan = self.plan(KeyLabels("", "namespace"), is_namespace_object=True)
        feed = await opened()
        fake.react = lambda asked: (
            refused(422, "execution") if "n5" in asked.values("namespace") else None
        )
        outcomes = await feed.read([want(plan, "", f"n{n}") for n in range(8)])
        # The pseudo namespace is read whole or not at all: all take their own query.
        assert [isinstance(outcome, Refused) for outcome in outcomes] == [n == 5 for n in range(8)]

    async def test_names_over_several_queries_are_one_answer(self, fake, opened):
        names = [f"a-rather-long-name-of-a-pod-{place:05}" for place in range(1500)]
        fake.rows |= {("n1", name): 1.0 for name in names}
        feed, plan = await opened(), pods_plan()
        (outcome,) = await feed.read([want(plan, "n1", *names)])
        assert len(served(outcome)) == 1500
        assert quiet(feed)["batch"] == 4


async def test_a_demand_that_comes_again_is_remembered_from_its_last_time(fake, opened, clock):
    feed, plan = await opened(), pods_plan()
    again = want(plan, "n1", "p0", "p1")
    for _ in range(5):
        await feed.read([again])
        clock.now_s += 15
    await feed.read([want(plan, "n1", "p2")])
    named = fake.queries[-1].values("pod")
    assert sorted(named) == ["p0", "p1", "p2"]  # both were wanted 15 s ago
    clock.now_s += 40
    await feed.read([want(plan, "n1", "p2")])
    assert fake.queries[-1].values("pod") == ["p2"]  # 55 s ago
    clock.now_s += 15
    await feed.read([again])
    assert sorted(fake.queries[-1].values("pod")) == ["p0", "p1", "p2"]


async def test_one_of_many_that_takes_its_own_query_does_not_wait_for_the_others(fake, opened):
    feed, plan = await opened(), pods_plan()
    outcomes = await feed.read(
        [want(plan, f"n{n}", "p0", known=3) for n in range(7)]
        + [want(pods_plan(rule="other", template="topk(1, m{<M>})"), "n1", "p1")]
    )
    assert [served(outcome)["p0"] for outcome in outcomes[:7]] == [10.0 * n for n in range(7)]
    assert served(outcomes[7]) == {"p1": 11.0}
    assert feed.stats.singles == 1


async def test_a_reader_of_many_that_gives_up_stops_nobody_else(fake, opened):
    feed, plan = await opened(), pods_plan()
    wanted = [want(plan, f"n{n}", "p0", known=3) for n in range(8)]
    leaving, staying = (asyncio.create_task(feed.read(wanted)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert [served(outcome)["p0"] for outcome in await staying] == [10.0 * n for n in range(8)]


async def test_names_that_were_asked_for_are_kept_once(fake, opened, clock):
    feed, plan = await opened(), pods_plan()
    names = ["".join(("p", str(n))) for n in range(2)]
    for _ in range(2):  # the second answer is laid out as the first one was
        (found,) = await feed.read([want(plan, "n1", *names, known=3)])
        clock.now_s += 15
    kept = {name: name for name in found.objects}
    assert all(kept[name] is name for name in names)
    assert served(found) == {"p0": 10.0, "p1": 11.0, "p2": 12.0}  # and those that were not


async def test_metrics_of_the_same_pods_share_one_index_and_others_do_not(fake, opened, clock):
    feed = await opened()
    one, other = pods_plan(rule="r1"), pods_plan(rule="r2")
    narrow = pods_plan(rule="r3", matchers=('pod!="p0"',))
    for _ in range(2):
        found = await feed.read([want(each, "n1", "p0", known=3) for each in (one, other)])
        clock.now_s += 15
    assert found[0].objects is found[1].objects
    assert [served(each) for each in found] == [{"p0": 10.0, "p1": 11.0, "p2": 12.0}] * 2
    for _ in range(2):
        (few,) = await feed.read([want(narrow, "n2", "p1", known=3)])
        (all_,) = await feed.read([want(one, "n2", "p1", known=3)])
        clock.now_s += 15
    assert served(all_) == {"p0": 20.0, "p1": 21.0, "p2": 22.0}
    assert served(few)["p1"] == 21.0
