"""Relists in bad times: retries with patience, and reloads that take nothing away."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from adapter.discovery import relist
from adapter.discovery.registry import PAGE, RelistFailure, RuleState, unlisted
from adapter.discovery.relist import Relister, RelistOptions
from adapter.rules import config
from adapter.rules.ruleset import RuleSet, compile_rules
from adapter.stages import Stage
from podscale.feed.http import refusals
from podscale.kube.client.resource import Resource
from podscale.kube.discovery import Mapper
from tests.unit.adapter.test_relist import TWO, Prometheus, pods, relister
from tests.unit.adapter.world import own, rules

pytestmark = pytest.mark.looptime(noop_cycles=0)

DOWN = refusals.error("unreachable")
INSERTED = TWO.replace(
    "rules:\n",
    "rules:\n- {seriesQuery: third, resources: {template: <<.Resource>>}, metricsQuery: third}\n",
)
RENAMED = TWO.replace("as: same", "as: renamed")


class Slow(Prometheus):
    """Takes a second to answer; counts how much is asked at once, and of each query."""

    def __init__(self, seconds=1.0, **answers):
        super().__init__(**answers)
        self.seconds = seconds
        self.running, self.most = [], 0
        self.doubled = []

    async def series(self, match, start_s, _source="", _wanted=None):
        self.doubled += [match] if match in self.running else []
        self.running.append(match)
        self.most = max(self.most, len(self.running))
        try:
            await asyncio.sleep(self.seconds)
            return await super().series(match, start_s)
        finally:
            self.running.remove(match)


@asynccontextmanager
async def running(made):
    task = asyncio.create_task(made.run())
    try:
        yield made
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def times_asked(prometheus, match):
    return [asked for asked, _ in prometheus.asked].count(match)


def served(made):
    return {key: source.series for key, source in made.custom.sources.items()}


@pytest.mark.parametrize("error", [DOWN, ValueError("a bug"), refusals.error("deadline")])
async def test_after_a_start_in_an_outage_rules_are_listed_soon(error):
    prometheus = Prometheus(first=error, second=error)
    async with running(relister(prometheus)) as made:
        await asyncio.sleep(300.0)
        assert made.is_tried
        assert unlisted(made.custom, "pods", "same") is not None
        prometheus.answers = {"first": pods("a"), "second": pods("b")}
        await asyncio.sleep(30.0)
        assert made.custom.find("pods", "same").series == "b"
        assert all(state.failure is None for state in made.states.values())
        asked = len(prometheus.asked)
        await asyncio.sleep(120.0)
        assert len(prometheus.asked) == asked  # until the next relist


async def test_retries_begin_soon_and_become_rare():
    prometheus = Prometheus(first=DOWN)
    async with running(relister(prometheus)):
        await asyncio.sleep(4.0)
        assert times_asked(prometheus, "first") in (2, 3)
        before = times_asked(prometheus, "first")
        await asyncio.sleep(300.0)
        assert 9 <= times_asked(prometheus, "first") - before <= 24
    assert times_asked(prometheus, "second") == 1


async def test_replicas_do_not_retry_in_the_same_moment():
    def pauses():
        return [relist._pause_s(4, [state(None)]) for _ in range(20)]

    assert len(set(pauses())) > 1
    assert all(15.0 <= pause <= 30.0 for pause in pauses())


def state(listing):
    failure = RelistFailure(Stage.PROMETHEUS_UNREACHABLE, "down")
    (rule, _) = rules(TWO).custom
    return RuleState(rule, listing, failure=failure)


def test_an_outage_of_days_is_waited_out():
    assert 15.0 <= relist._pause_s(100_000, [state(None)]) <= 30.0


async def test_a_query_that_is_slow_to_fail_is_left_alone_while_an_older_list_serves():
    made = relister(Prometheus(first=pods("a")))
    await made.relist()
    listing = made.states["rules[0]"].listing
    assert 30.0 < relist._pause_s(0, [state(listing)]) <= 60.0
    assert relist._pause_s(0, [state(listing), state(None)]) <= 2.0


async def test_what_prometheus_refuses_is_not_asked_again_before_the_next_relist():
    prometheus = Prometheus(first=refusals.error("bad-data"))
    async with running(relister(prometheus, jitter=0.0)):
        await asyncio.sleep(599.0)
        assert times_asked(prometheus, "first") == 1
        await asyncio.sleep(2.0)
        assert times_asked(prometheus, "first") == 2


async def test_a_prometheus_that_comes_back_is_asked_little_at_once():
    rule = "- {seriesQuery: q%d, resources: {template: <<.Resource>>}, metricsQuery: x}\n"
    text = "rules:\n" + "".join(rule % n for n in range(40))
    prometheus = Slow(**{f"q{n}": DOWN for n in range(40)})
    async with running(relister(prometheus, text)) as made:
        await asyncio.sleep(100.0)
        prometheus.answers = {f"q{n}": pods(f"m{n}") for n in range(40)}
        before = len(prometheus.asked)
        await asyncio.sleep(45.0)
        assert len(made.custom.sources) == 80  # of pods and of namespaces
        assert len(prometheus.asked) - before <= 40 + 4
    assert prometheus.most == 4


async def test_a_relist_and_a_retry_do_not_ask_the_same_at_once():
    prometheus = Slow(seconds=7.0, first=DOWN)
    async with running(relister(prometheus, interval_s=5.0)):
        await asyncio.sleep(300.0)
    assert times_asked(prometheus, "second") > 10
    assert prometheus.doubled == []


async def test_the_feed_is_told_of_lists_and_not_of_failed_retries():
    renewed = []
    prometheus = Prometheus(first=DOWN)
    made = Relister(
        prometheus, rules(TWO), RelistOptions(), renewed=lambda: renewed.append(served(made))
    )
    async with running(made):
        await asyncio.sleep(200.0)
        assert len(renewed) == 1  # the first relist
        prometheus.answers["first"] = pods("a")
        await asyncio.sleep(30.0)
    assert len(renewed) == 2
    assert renewed[-1]["pods", "same"] == "a"


async def test_a_reload_lists_what_is_new_and_keeps_what_is_not():
    prometheus = Slow(first=pods("a"), second=pods("b"), third=pods("c"))
    async with running(relister(prometheus)) as made:
        await asyncio.sleep(2.0)
        prometheus.asked.clear()
        await made.replace(rules(INSERTED))
        assert served(made)["pods", "same"] == "b"
        await asyncio.sleep(2.0)
        assert [match for match, _ in prometheus.asked] == ["third"]
        assert served(made) == {
            ("pods", "same"): "b", ("namespaces", "same"): "b",
            ("pods", "c"): "c", ("namespaces", "c"): "c",
        }  # fmt: skip


async def test_a_rule_that_has_moved_goes_by_its_new_place():
    made = relister(Prometheus(first=pods("a"), second=pods("b")))
    await made.relist()
    await made.replace(rules(INSERTED))
    source = made.custom.find("pods", "same")
    assert source.rule is made.states["rules[2]"].rule
    assert made.states["rules[2]"].listing.rule.id == source.rule.id == "rules[2]"


async def test_a_rule_that_is_read_again_maps_labels_to_what_the_cluster_has_now():
    text = """
rules:
- {seriesQuery: first, resources: {overrides: {x: {resource: thing}}}, metricsQuery: first}
"""
    before, after = (
        compile_rules(config.parse(text, "rules.yaml"), Mapper([thing]))
        for thing in (Resource(group, "v1", "things", "Thing") for group in ("old", "new"))
    )
    prometheus = Prometheus(first={"a": [("__name__", "x")]})
    made = Relister(prometheus, before, RelistOptions())
    await made.relist()
    assert served(made) == {("things.old", "a"): "a"}
    await made.replace(after)
    await made.relist()
    assert served(made) == {("things.new", "a"): "a"}
    listing = made.states["rules[0]"].listing
    await made.relist()
    assert made.states["rules[0]"].listing is listing


@pytest.mark.parametrize("text", [INSERTED, RENAMED, TWO.replace("as: same", "as: renamed", 1)])
async def test_a_reload_in_an_outage_takes_nothing_away(text):
    prometheus = Prometheus(first=pods("a"), second=pods("b"))
    async with running(relister(prometheus)) as made:
        await asyncio.sleep(1.0)
        before = served(made)
        prometheus.answers = dict.fromkeys(("first", "second", "third"), DOWN)
        await made.replace(rules(text))
        await asyncio.sleep(300.0)
        assert served(made) == before
        assert list(made.states) == [rule.id for rule in rules(text).custom]
        assert unlisted(made.custom, "pods", "renamed" if "renamed" in text else "third")


async def test_what_has_gone_serves_until_all_that_came_is_listed():
    prometheus = Prometheus(first=pods("a"), second=pods("b"))
    made = relister(prometheus)
    await made.relist()
    prometheus.answers["second"] = DOWN
    await made.replace(rules(RENAMED))
    await made.relist()
    assert served(made)["pods", "same"] == "b"
    assert served(made)["pods", "renamed"] == "a"
    prometheus.answers["second"] = pods("b")
    await made.relist()
    assert {metric for _, metric in served(made)} == {"renamed"}
    assert served(made)["pods", "renamed"] == "b"


async def test_a_reload_that_is_taken_back_in_an_outage_has_its_lists_again():
    prometheus = Prometheus(first=pods("a"), second=pods("b"))
    made = relister(prometheus)
    await made.relist()
    before = served(made)
    prometheus.answers = dict.fromkeys(("first", "second"), DOWN)
    for text in (RENAMED, RENAMED.replace("renamed", "other"), TWO):
        await made.replace(rules(text))
        await made.relist()
        assert served(made) == before
    assert not made._scopes[""].leaving
    assert all(state.listing is not None for state in made.states.values())


async def test_rules_that_are_taken_out_are_gone():
    made = relister(Prometheus(first=pods("a"), second=pods("b")))
    await made.relist()
    await made.replace(rules("rules: []"))
    assert not made.custom.sources
    assert not made.states


async def test_a_rule_that_was_never_listed_holds_nobody_back_who_leaves():
    prometheus = Prometheus(first=pods("a"), second=DOWN, third=pods("c"))
    made = relister(prometheus, INSERTED)
    await made.relist()
    assert {metric for _, metric in served(made)} == {"same", "c"}
    await made.replace(rules(TWO))
    assert {metric for _, metric in served(made)} == {"same"}


async def test_a_reload_does_not_wait_for_a_prometheus_that_hangs():
    prometheus = Slow(first=pods("a"), second=pods("b"))
    async with running(relister(prometheus)) as made:
        await asyncio.sleep(2.0)
        prometheus.seconds = 1e6
        async with asyncio.timeout(0.5):
            await made.replace(rules(RENAMED))
            await made.replace(rules(TWO))
        assert served(made)["pods", "same"] == "b"


async def test_rules_of_equal_content_in_both_sections_have_lists_of_their_own():
    rule = "{seriesQuery: first, resources: {template: <<.Resource>>}, metricsQuery: x}"
    made = relister(Prometheus(first=pods("a")), f"rules: [{rule}]")
    await made.relist()
    await made.replace(rules(f"rules: [{rule}]\nexternalRules: [{rule}]"))
    assert not made.external.sources
    await made.relist()
    assert list(made.external.sources) == [("", "a")]
    assert made.custom.find("pods", "a").rule.section == "rules"


async def test_an_answer_to_the_rules_of_before_serves_those_of_now():
    prometheus = Slow(first=pods("a"), second=pods("b"))
    async with running(relister(prometheus)) as made:
        await asyncio.sleep(0.5)
        await made.replace(rules(RENAMED))
        await asyncio.sleep(1.0)
        assert served(made)["pods", "renamed"] == "b"
        assert len(prometheus.asked) == 2


async def test_a_reload_that_is_ended_on_its_way_leaves_the_rules_of_before_in_force():
    prometheus = Prometheus(first=pods("a"), second=pods(*(f"m{n}" for n in range(2 * PAGE))))
    made = relister(prometheus, TWO.replace("name: {as: same}", ""))
    await made.relist()
    before = served(made)
    moved = INSERTED.replace("name: {as: same}", "")
    for _ in range(2):
        reload = asyncio.create_task(made.replace(rules(moved)))
        await asyncio.sleep(0)
        reload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reload
        assert served(made) == before
    prometheus.asked.clear()
    await made.relist()
    assert sorted(match for match, _ in prometheus.asked) == ["first", "second"]
    await made.replace(rules(moved))
    assert list(made.states) == ["rules[0]", "rules[1]", "rules[2]"]


class Together(Prometheus):
    """Answers for several namespaces at once, or raises ``fault``."""

    fault = None

    async def series_by(self, match, start_s, source, label, values):
        self.asked.append((match, start_s))
        if self.fault is not None:
            raise self.fault
        return await super().series_by(match, start_s, source, label, values)


@pytest.mark.parametrize(
    ("fault", "requests", "reason"),
    [
        (DOWN, 1, "PrometheusUnreachable"),
        (ValueError("a bug"), 1, Stage.PROMETHEUS_UNREACHABLE),
        (refusals.error("oversize"), 4, None),
        (refusals.error("bad-data"), 4, None),
    ],
)
async def test_what_fails_for_namespaces_together_is_asked_one_by_one_only_where_that_may_help(
    fault, requests, reason
):
    names = ("shop", "bar", "mall")
    prometheus = Together()
    made = Relister(prometheus, RuleSet.empty(), RelistOptions())
    for name in names:
        await made.replace(own(name), name)
    prometheus.fault = fault
    with capture_logs() as logged:
        await made.relist()
    assert len(prometheus.asked) == requests
    loud = [line["event"] for line in logged if line["log_level"] in ("warning", "error")]
    assert loud  # requests that double, or fail, are never silent
    failures = [made.custom.within[name].states[0].failure for name in names]
    assert {each and each.reason for each in failures} == {reason}
