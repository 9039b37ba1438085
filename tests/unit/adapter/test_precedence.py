"""Which of several rules answers, while one of them is not listed."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from adapter.apis.metric_providers import MetricSources
from adapter.discovery.relist import Relister, RelistOptions
from adapter.metric_rules.objects import CLUSTER_METRIC_RULES, METRIC_RULES
from adapter.metric_rules.watched import WatchedMetricRules
from adapter.provider import FeedProvider
from adapter.queries.plans import Plans
from adapter.queries.usage import UsageByRules
from adapter.rules.ruleset import RuleSet
from adapter.sources.sources_file import NamedSources, SourceAccess
from podscale.core.metrics import (
    ExternalMetric,
    ExternalSamples,
    NotFound,
    PodMetric,
    PodSamples,
    Unavailable,
)
from podscale.feed.http import refusals
from podscale.kube.client.api import Response
from podscale.kube.client.errors import ServerFailed
from podscale.kube.client.resource import PODS
from tests.unit.adapter.test_metric_providers import objects_metric
from tests.unit.adapter.test_metric_rules import SPEC, Discovered
from tests.unit.adapter.test_relist import Prometheus, pods
from tests.unit.adapter.world import MAPPER, GivenObjects, RecordingFeed, own, reading, rules

pytestmark = pytest.mark.looptime

FAILS = refusals.error("gateway")
FILE = """
rules:
- seriesQuery: everywhere
  resources: {template: <<.Resource>>}
  name: {as: queue_depth}
  metricsQuery: <<.Series>>
externalRules:
- seriesQuery: everywhere
  resources: {template: <<.Resource>>}
  name: {as: queue_depth}
  metricsQuery: <<.Series>>
"""
OWN = {"seriesQuery": "of_a", "name": {"as": "queue_depth"}}
OF_A = 'of_a{namespace="a"}'


class Process:
    """A process that has just begun, with a rule of the file and MetricRules of namespace a."""

    def __init__(self, prometheus, file=FILE, **more):
        self.relister = Relister(prometheus, rules(file), RelistOptions())
        objects = GivenObjects({name: {"web-0": {}} for name in "ab"})
        plans = Plans()
        feed = RecordingFeed({
            "rules[0]": reading({"web-0": 10.0}),
            "externalRules[0]": reading(series=[({}, 10.0)]),
            "MetricRule a/custom": reading({"web-0": 1000.0}),
            "MetricRule a/external": reading(series=[({}, 1000.0)]),
        })  # fmt: skip
        self.provider = FeedProvider(
            feed, objects, MAPPER, plans, UsageByRules(lambda: None, objects, plans),
            custom=lambda: self.relister.custom, external=lambda: self.relister.external,
            **more,
        )  # fmt: skip

    async def values(self, namespace="a"):
        """Return the value, or the failure, of the custom and of the external metric."""
        found = await self.provider.answer([
            PodMetric(namespace, "queue_depth", ""), ExternalMetric(namespace, "queue_depth"),
        ])  # fmt: skip
        return [
            answer.pods["web-0"].value_milli // 1000 if isinstance(answer, PodSamples)
            else answer.series[0].sample.value_milli // 1000 if isinstance(answer, ExternalSamples)
            else answer
            for answer in found
        ]  # fmt: skip


@pytest.mark.parametrize("kind", ["Custom", "External"])
async def test_after_a_restart_no_other_rule_answers_for_a_namespaces_own_that_is_not_listed(kind):
    own_rule = own("a", kind.lower(), **OWN, type=kind)
    at = ["Custom", "External"].index(kind)
    prometheus = Prometheus(**{"everywhere": pods("everywhere"), OF_A: pods("of_a")})
    before = Process(prometheus)
    await before.relister.replace(own_rule, "a")
    await before.relister.relist()
    assert (await before.values())[at] == 1000
    prometheus.answers[OF_A] = FAILS
    after = Process(prometheus)
    await after.relister.replace(own_rule, "a")
    for reason in ("NotListedYet", "PrometheusError"):
        answer = (await after.values())[at]
        assert (type(answer), answer.reason) == (Unavailable, reason)
        assert f"MetricRule a/{kind.lower()}" in answer.message
        await after.relister.relist()
    assert await after.values("b") == [10, 10]  # nobody else is held back
    prometheus.answers[OF_A] = pods("of_a")
    await after.relister.relist()
    assert (await after.values())[at] == 1000


@pytest.mark.parametrize("kind", ["Custom", "External"])
@pytest.mark.parametrize("is_restart", [False, True])
async def test_no_other_rule_answers_for_a_namespaces_own_whose_list_is_empty(kind, is_restart):
    own_rule = own("a", kind.lower(), **OWN, type=kind)
    at = ["Custom", "External"].index(kind)
    prometheus = Prometheus(**{"everywhere": pods("everywhere"), OF_A: pods("of_a")})
    process = Process(prometheus)
    await process.relister.replace(own_rule, "a")
    await process.relister.relist()
    assert (await process.values())[at] == 1000
    prometheus.answers[OF_A] = {}
    if is_restart:
        process = Process(prometheus)
        await process.relister.replace(own_rule, "a")
    for _ in range(2):
        await process.relister.relist()
        answer = (await process.values())[at]
        assert (type(answer), answer.reason) == (Unavailable, "NoSeries")
        assert answer.message.startswith(
            f"MetricRule a/{kind.lower()} has no series for queue_depth"
        )
        assert (await process.values())[1 - at] == 10  # its name of the other kind is another
    assert await process.values("b") == [10, 10]  # nobody else is held back
    prometheus.answers[OF_A] = pods("of_a")
    await process.relister.relist()
    assert (await process.values())[at] == 1000
    prometheus.answers[OF_A] = {}
    await process.relister.relist()
    await process.relister.replace(RuleSet.empty(), "a")
    assert await process.values() == [10, 10]  # whoever deletes the rule has the other


@pytest.mark.parametrize(
    ("query", "naming", "is_said"),
    [
        ("jobs", {"as": "queue_depth"}, True),
        ("jobs", {}, False),
        ("queue_depth", {}, True),
        ('{__name__=~"^queue_.*"}', {}, False),
        ('{__name__=~"^queue_.*"}', {"matches": "^queue_(.*)$"}, False),  # it gives depth
        ('{__name__=~"^every(.*)"}', {"matches": "^every", "as": "queue_${0}"}, False),
        ('{__name__=~".+",job="worker"}', {}, False),  # while nobody works it keeps no name
        ('{job="worker"}', {}, False),
        ('{job="worker"}', {"as": "queue_depth"}, True),
    ],
)
async def test_a_rule_of_which_nothing_was_listed_keeps_the_names_that_it_says(
    query, naming, is_said
):
    process = Process(Prometheus(everywhere=pods("everywhere")))
    await process.relister.replace(own("a", seriesQuery=query, name=naming), "a")
    await process.relister.relist()
    answer = (await process.values())[0]
    assert (answer.reason == "NoSeries") if is_said else answer == 10


@pytest.mark.parametrize("left", [(), ("other",)])
async def test_a_rule_keeps_every_name_that_it_has_listed(left):
    own_rule = own("a", seriesQuery='{job="worker"}')
    match = own_rule.custom[0].series_query
    prometheus = Prometheus(**{"everywhere": pods("everywhere"), match: pods("other")})
    process = Process(prometheus)
    await process.relister.replace(own_rule, "a")
    await process.relister.relist()
    assert (await process.values())[0] == 10
    prometheus.answers[match] = pods("queue_depth", "other")
    await process.relister.relist()
    assert process.relister.custom.find("pods", "queue_depth", "a").rule.namespace == "a"
    prometheus.answers[match] = pods(*left)
    for _ in range(2):
        await process.relister.relist()
        assert (await process.values())[0].reason == "NoSeries"


async def test_of_a_namespaces_own_rules_one_with_series_answers_for_one_without():
    both = [own("a", name, **{**OWN, "seriesQuery": name}) for name in ("new", "old")]
    prometheus = Prometheus(**{
        "everywhere": pods("everywhere"), 'new{namespace="a"}': pods("new"),
        'old{namespace="a"}': pods("old"),
    })  # fmt: skip
    process = Process(prometheus)
    rules_of_a = structs.replace(both[0], custom=(*both[0].custom, *both[1].custom))
    await process.relister.replace(rules_of_a, "a")
    await process.relister.relist()
    assert process.relister.custom.find("pods", "queue_depth", "a").series == "old"
    prometheus.answers['old{namespace="a"}'] = {}
    await process.relister.relist()
    assert process.relister.custom.find("pods", "queue_depth", "a").series == "new"


TWO = """
rules:
- {seriesQuery: FIRST, resources: {template: <<.Resource>>}, metricsQuery: x, name: NAMED}
- {seriesQuery: SECOND, resources: {template: <<.Resource>>}, metricsQuery: x, name: NAMING}
"""


@pytest.mark.parametrize(
    ("query", "naming", "is_held"),
    [
        ("jobs", "{as: depth_total}", True),  # it says the name
        ("jobs", "{}", False),
        ("depth_total", "{}", True),
        ("\"{__name__=~'depth_.*'}\"", "{}", True),
        ("\"{__name__=~'depth_.*'}\"", "{as: other}", False),
        ("\"{__name__=~'depth_.*'}\"", '{matches: "^(.*)_total$"}', False),  # it gives depth
        ("\"{__name__=~'^container_.*',pod!=''}\"", "{}", False),
        ("\"{__name__=~'^container_.*'}\"", '{matches: "^container_(.*)$"}', False),
        ("\"{pod!='',__name__!~'depth_.*'}\"", "{}", False),
        ("\"{pod!='',__name__!='depth_total'}\"", "{}", False),
        ("\"{pod!=''}\"", "{}", True),
        ("\"{pod!=''}\"", '{matches: "^depth"}', False),
    ],
)
async def test_a_rule_of_everybody_holds_back_only_what_it_could_have_of_the_same_series(
    query, naming, is_held
):
    text = TWO.replace("FIRST", "depth_total").replace("SECOND", query)
    made = rules(text.replace("NAMED", "{}").replace("NAMING", naming))
    second = made.custom[1].series_query
    prometheus = Prometheus(**{second: FAILS, "depth_total": pods("depth_total")})
    if second == "depth_total":
        prometheus.answers["depth_total"] = FAILS
    relister = Relister(prometheus, made, RelistOptions())
    await relister.relist()
    answer = relister.custom.find("pods", "depth_total")
    assert isinstance(answer, Unavailable) is is_held
    assert is_held or answer.rule.id == "rules[0]"


async def test_a_rule_that_comes_first_by_precedence_answers_whatever_is_not_listed_behind_it():
    made = rules(TWO.replace("FIRST", "a").replace("SECOND", "b").replace("NAMED", "{as: depth}")
                 .replace("NAMING", "{as: depth}"))  # fmt: skip
    relister = Relister(Prometheus(a=FAILS, b=pods("b")), made, RelistOptions())
    await relister.relist()
    assert relister.custom.find("pods", "depth").rule.id == "rules[1]"


async def test_what_stood_in_its_place_answers_for_a_rule_that_a_reload_brings():
    text = TWO.replace("FIRST", "a").replace("SECOND", "b").replace("NAMED", "{as: depth}")
    before, after = (rules(text.replace("NAMING", "{as: depth}").replace("x,", f"{x},"))
                     for x in ("x", "y"))  # fmt: skip
    prometheus = Prometheus(a=pods("a"), b=pods("b"))
    relister = Relister(prometheus, before, RelistOptions())
    await relister.relist()
    prometheus.answers["b"] = FAILS
    await relister.replace(after)
    await relister.relist()
    source = relister.custom.find("pods", "depth")
    assert (source.series, source.rule.query.text) == ("b", "x")
    prometheus.answers["b"] = pods("b")
    await relister.relist()
    source = relister.custom.find("pods", "depth")
    assert (source.series, source.rule.query.text) == ("b", "y")


async def test_a_first_list_that_is_not_whole_may_lack_what_another_rule_has():
    made = rules(TWO.replace("FIRST", "a").replace("SECOND", "b").replace("NAMED", "{as: depth}")
                 .replace("NAMING", "{as: depth}"))  # fmt: skip
    prometheus = Prometheus(a=pods("a"), b={})
    relister = Relister(prometheus, made, RelistOptions())
    prometheus.is_partial = True
    await relister.relist()
    assert relister.custom.find("pods", "depth").reason == "PartialAnswer"
    prometheus.is_partial = False
    await relister.relist()
    assert relister.custom.find("pods", "depth").rule.id == "rules[0]"


class Elsewhere:
    """Another package's provider."""

    def __init__(self):
        self.questions = []

    async def answer(self, questions):
        self.questions += questions
        return [PodSamples({}, 0.0) for _ in questions]


async def test_a_rule_that_says_a_metrics_name_is_waited_for_before_others_are_asked():
    process = Process(Prometheus(everywhere=FAILS))
    await process.relister.relist()
    elsewhere = Elsewhere()
    made = MetricSources(process.provider, [elsewhere])
    question = await objects_metric(process.provider, PODS, "b", "queue_depth")
    (answer,) = await made.read([question])
    assert isinstance(answer, Unavailable)
    (answer,) = await made.answer([PodMetric("b", "queue_depth", "")])
    assert isinstance(answer, Unavailable)
    assert elsewhere.questions == []


async def test_no_other_provider_answers_for_a_namespaces_own_rule_whose_list_is_empty():
    process = Process(Prometheus(), "rules: []")
    await process.relister.replace(own("a", **OWN), "a")
    await process.relister.relist()
    elsewhere = Elsewhere()
    made = MetricSources(process.provider, [elsewhere])
    question = await objects_metric(process.provider, PODS, "a", "queue_depth")
    (answer,) = await made.read([question])
    assert isinstance(answer, NotFound)  # as of any rule without series
    assert elsewhere.questions == []
    await made.read([structs.replace(question, namespace="b")])
    assert len(elsewhere.questions) == 1


class Api:
    """Lists one MetricRule of namespace a, once it is up."""

    user_agent = "test"
    is_up = False

    async def request(self, method, path, **_):
        if not self.is_up:
            raise ServerFailed(500, "InternalError", "the list fails")
        items = []
        if "cluster" not in path:
            meta = {"name": "custom", "namespace": "a", "resourceVersion": "1"}
            items = [{"metadata": meta, "spec": {**SPEC, **OWN}}]
        body = {"metadata": {"resourceVersion": "1"}, "items": items}
        return Response(200, {}, json.dumps(body).encode())

    @asynccontextmanager
    async def stream(self, *_, **__):
        await asyncio.Event().wait()
        yield


async def test_nothing_is_answered_before_it_is_known_which_rules_there_are():
    api = Api()
    prometheus = Prometheus(**{"everywhere": pods("everywhere"), OF_A: pods("of_a")})
    sources = NamedSources(access={"default": SourceAccess(("a",))})
    process = Process(prometheus, absence=lambda: watched.absence)
    watched = WatchedMetricRules(
        api, Discovered(PODS, METRIC_RULES, CLUSTER_METRIC_RULES), lambda: sources,
        process.relister.replace,
    )  # fmt: skip
    task = asyncio.create_task(watched.run())
    await process.relister.relist()
    for _ in range(2):
        for answer in await process.values():
            assert (type(answer), answer.reason) == (Unavailable, "NotListedYet")
            assert "are not read yet" in answer.message
        await asyncio.sleep(100.0)
    assert "the list fails" in (await process.values())[0].message
    api.is_up = True
    await asyncio.sleep(60.0)
    assert watched.absence is None
    assert (await process.values())[0].message.startswith("MetricRule a/custom is not listed yet")
    await process.relister.relist()
    assert await process.values() == [1000, 10]
    assert await process.values("b") == [10, 10]
    task.cancel()
