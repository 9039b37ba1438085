"""Questions and answers: few demands for many questions, every absence with its reason."""

import asyncio
import math
import time

import pytest
from msgspec import structs

from adapter.discovery.listing import MetricSource
from adapter.discovery.objects import WatchedObjects
from adapter.discovery.registry import MetricRegistry
from adapter.discovery.relist import Relister, RelistOptions
from adapter.provider import FeedProvider
from adapter.queries.plans import Plans
from adapter.queries.usage import UsageByRules
from adapter.stages import Stage
from podscale.core.metrics import (
    ContainerColumns,
    ContainerUsage,
    ExternalMetric,
    ExternalSamples,
    NoData,
    NodeUsage,
    NodeUsageColumns,
    NotFound,
    ObjectMetric,
    ObjectSample,
    PodMetric,
    PodResource,
    PodSamples,
    Refused,
    Sample,
    SampleGap,
    Stale,
    Unavailable,
)
from podscale.feed.http import refusals
from tests.unit.adapter.test_relist import Prometheus
from tests.unit.adapter.world import (
    MAPPER,
    RULES,
    GivenObjects,
    RecordingFeed,
    own,
    reading,
    rules,
)

SERIES = {"http_requests_total": [("pod", "namespace", "service", "storageclass")]}
PODS = {"shop": {f"web-{i}": {"app": "web"} for i in range(3)} | {"db-0": {"app": "db"}}}


async def provider(feed, pods=PODS, text=RULES, down=None):
    """Return a provider; ``down`` is what listing any rule raises."""
    made = rules(text)
    lister = Prometheus(**{'http_requests_total{pod!=""}': SERIES})
    lister.answers["queue_depth"] = {"queue_depth": [("queue", "namespace")]}
    if down is not None:
        every = (*made.custom, *made.external)
        lister.answers = {rule.series_query: down for rule in every}
    relister = Relister(lister, made, RelistOptions())
    await relister.relist()
    objects, plans = GivenObjects(pods), Plans()
    usage = UsageByRules(lambda: made.resource, objects, plans)
    return FeedProvider(
        feed, objects, MAPPER, plans, usage,
        custom=lambda: relister.custom, external=lambda: relister.external,
    )  # fmt: skip


METRIC = "http_requests_per_second"


async def test_thousands_of_questions_are_one_demand_per_plan_and_namespace():
    feed = RecordingFeed()
    pods = {f"ns-{n}": {f"p-{i}": {"app": f"a-{i // 10}"} for i in range(100)} for n in range(10)}
    made = await provider(feed, pods)
    questions = [
        PodMetric(f"ns-{n}", METRIC, f"app=a-{app}") for n in range(10) for app in range(10)
    ] * 20
    answers = await made.answer(questions)
    assert len(answers) == len(questions) == 2000
    assert all(isinstance(answer, PodSamples) and len(answer.pods) == 10 for answer in answers)
    (demands,) = feed.asked
    assert len(demands) == 10
    assert {len(demand.names) for demand in demands} == {100}
    assert {demand.known for demand in demands} == {100}


@pytest.mark.parametrize(("section", "resource"), [("Custom", "pods"), ("External", "")])
async def test_queries_that_are_refused_late_leave_turns_to_others_and_cost_once(section, resource):
    terms = "+".join(["a"] * 400)  # for these questions alone: the rule is accepted
    query = f"<<if .LabelValuesByName.k>>{terms}<<else>>sum(s{{<<.LabelMatchers>>}})<<end>>"
    made = own("shop", type=section, metricsQuery=query)
    source = MetricSource((*made.custom, *made.external)[0], "s")
    listed = MetricRegistry(within={"shop": MetricRegistry({(resource, "depth"): source})})
    objects, plans = GivenObjects(PODS), Plans()
    answering = FeedProvider(
        RecordingFeed(), objects, MAPPER, plans, UsageByRules(lambda: None, objects, plans),
        custom=lambda: listed, external=lambda: listed,
    )  # fmt: skip
    selectors = [f"k=v,x=n{n}" for n in range(20)]
    questions = [
        PodMetric("shop", "depth", "app=web", each) if resource
        else ExternalMetric("shop", "depth", each)
        for each in selectors
    ]  # fmt: skip
    turns = 0

    async def others():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(others())
    began = time.thread_time()
    answers = await answering.answer(questions)
    first_s, began = time.thread_time() - began, time.thread_time()
    assert turns >= len(questions) // 2
    counting.cancel()
    assert await answering.answer(questions) == answers
    assert time.thread_time() - began < first_s / 10
    assert all("too deep" in answer.message or "too large" in answer.message for answer in answers)


async def test_answers_come_in_the_order_of_the_questions():
    made = await provider(RecordingFeed())
    found = await made.answer([
        ExternalMetric("shop", "queue_depth"),
        PodMetric("shop", METRIC, "app=web"),
        ObjectMetric("shop", "services", "web", METRIC),
        ExternalMetric("shop", "nothing"),
        ObjectMetric("", "namespaces", "shop", METRIC),
    ])  # fmt: skip
    kinds = [ExternalSamples, PodSamples, ObjectSample, NotFound, ObjectSample]
    assert [type(answer) for answer in found] == kinds
    assert list(found[1].pods) == ["web-0", "web-1", "web-2"]
    assert found[1].pods["web-0"] == Sample(1500, None, 120.0)


async def test_no_questions_ask_nothing():
    feed = RecordingFeed()
    assert await (await provider(feed)).answer([]) == []
    assert feed.asked in ([], [[]])


@pytest.mark.parametrize(("outcome", "kind", "reason"), [
    (reading({}), NoData, Stage.EMPTY_RESULT),
    (reading({"else": 1.0}), NoData, Stage.OBJECT_MISMATCH),
    (reading({"else": 1.0}, nameless=1), NoData, Stage.OBJECT_MISMATCH),
    (reading({}, nameless=2), NoData, Stage.GROUP_BY_LOST),
    (reading({"else": 1.0}, nameless=1, is_by_name=True), NoData, Stage.EMPTY_RESULT),
    (reading({"web": math.nan}), NoData, Stage.NOT_A_NUMBER),
    (reading({"web": math.inf}), NoData, Stage.NOT_A_NUMBER),
    (reading({"web": 1e30}), NoData, Stage.NOT_A_NUMBER),
    (reading({"else": 1.0}, stale={"web": 400.0}), Stale, Stage.STALE),
    (reading({"else": 1.0}, stale={"web": math.inf}), Stale, Stage.STALE),
    (Unavailable("PrometheusUnreachable", "down"), Unavailable, "PrometheusUnreachable"),
    (Refused("QueryInvalid", "no"), Refused, "QueryInvalid"),
])  # fmt: skip
async def test_an_absent_object_has_a_reason(outcome, kind, reason):
    made = await provider(RecordingFeed({"rules[0]": outcome}))
    (answer,) = await made.answer([ObjectMetric("shop", "services", "web", METRIC)])
    assert isinstance(answer, kind)
    assert answer.reason == reason


async def test_pods_without_a_number_are_left_out_and_stale_ones_are_told():
    found = reading({"web-0": 2.0, "web-1": math.nan}, stale={"web-2": 400.0, "x": 1.0})
    made = await provider(RecordingFeed({"rules[0]": found}))
    (answer,) = await made.answer([PodMetric("shop", METRIC, "app=web")])
    assert answer.pods == {"web-0": Sample(2000, None, 120.0)}
    assert answer.stale == {"web-2"}


async def test_a_sample_carries_its_own_time_where_it_is_known():
    found = reading({"web-0": 2.0}, times={"web-0": 990.5})
    made = await provider(RecordingFeed({"rules[0]": found}))
    (answer,) = await made.answer([PodMetric("shop", METRIC, "")])
    assert answer.pods["web-0"].time_s == 990.5


async def test_no_pods_is_no_data():
    feed = RecordingFeed()
    (answer,) = await (await provider(feed)).answer([PodMetric("shop", METRIC, "app=none")])
    assert isinstance(answer, NoData)
    assert feed.asked in ([], [[]])


async def test_what_could_not_be_listed_is_unavailable_and_not_unknown():
    made = await provider(RecordingFeed(), down=refusals.error("gateway"))
    found = await made.answer([
        PodMetric("shop", METRIC, "app=web"),
        ObjectMetric("shop", "services", "web", METRIC),
        ExternalMetric("shop", "queue_depth"),
    ])  # fmt: skip
    assert [(type(each), each.reason) for each in found] == [(Unavailable, "PrometheusError")] * 3
    (other,) = await made.answer([ExternalMetric("shop", "nothing")])
    assert isinstance(other, NotFound)  # no rule that failed could have it


async def test_a_bad_selector_is_refused_and_spoils_no_other_question():
    made = await provider(RecordingFeed())
    bad, good = await made.answer(
        [PodMetric("shop", METRIC, "a in"), PodMetric("shop", METRIC, "app=web")]
    )
    assert isinstance(bad, Refused)
    assert isinstance(good, PodSamples)


async def test_a_comparison_in_the_metric_selector_cannot_be_asked():
    made = await provider(RecordingFeed())
    custom, external = await made.answer([
        ObjectMetric("shop", "pods", "web-0", METRIC, "a>1"),
        ExternalMetric("shop", "queue_depth", "a<1"),
    ])  # fmt: skip
    assert (type(custom), custom.reason) == (NotFound, Stage.QUERY_INVALID)
    assert (type(external), external.reason) == (Refused, Stage.QUERY_INVALID)


async def test_a_cluster_scoped_resource_is_served_at_the_root_and_below_a_namespace():
    made = await provider(RecordingFeed())
    key = "storageclasses.storage.k8s.io"
    root, alias, pods_at_root = await made.answer([
        ObjectMetric("", key, "fast", METRIC),
        ObjectMetric("shop", key, "fast", METRIC),
        ObjectMetric("", "pods", "web-0", METRIC),
    ])  # fmt: skip
    assert isinstance(root, ObjectSample)
    assert isinstance(alias, ObjectSample)
    assert isinstance(pods_at_root, NotFound)


CPU = reading(containers={("web-0", "a"): 0.25, ("web-0", "b"): 0.5, ("web-1", "a"): math.nan,
                          ("web-2", "a"): -1.0, ("other", "a"): 9.0})  # fmt: skip


MEMORY = reading(containers={("web-0", "a"): 64.0, ("web-0", "b"): 64.0})


def usage_feed(cpu=CPU, memory=MEMORY):
    return RecordingFeed({"resourceRules.cpu": cpu, "resourceRules.memory": memory})


async def test_the_sum_of_a_pod_needs_every_container():
    made = await provider(usage_feed())
    (answer,) = await made.answer([PodResource("shop", "app=web", "cpu")])
    assert answer.pods == {"web-0": Sample(750, None, 300.0)}


async def test_a_pod_whose_container_has_no_sample_at_all_does_not_look_smaller():
    # Its memory tells that container "b" of web-0 runs; its CPU has not been seen yet.
    cpu = reading(containers={("web-0", "a"): 0.25, ("web-1", "a"): 0.5})
    memory = reading(containers={("web-0", "a"): 64.0, ("web-0", "b"): 64.0, ("web-1", "a"): 8.0})
    made = await provider(usage_feed(cpu, memory))
    every, one = await made.answer([
        PodResource("shop", "app=web", "cpu"),
        PodResource("shop", "app=web", "cpu", "a"),
    ])  # fmt: skip
    assert every.pods == {"web-1": Sample(500, None, 300.0)}
    assert set(one.pods) == {"web-0", "web-1"}
    turned = await provider(usage_feed(memory, cpu))
    (answer,) = await turned.answer([PodResource("shop", "app=web", "memory")])
    assert set(answer.pods) == {"web-1"}


async def test_usage_whose_other_half_cannot_be_read_is_not_summed():
    made = await provider(usage_feed(memory=Unavailable("PrometheusTimeout", "late")))
    (answer,) = await made.answer([PodResource("shop", "app=web", "cpu")])
    assert isinstance(answer, Unavailable)


class Walked(dict):
    """Containers that count how often all of them are walked."""

    walks = 0

    def items(self):
        self.walks += 1
        return super().items()

    def keys(self):
        self.walks += 1
        return super().keys()


async def test_all_containers_are_walked_once_however_many_questions_come():
    cpu, memory = (
        structs.replace(made, containers=Walked(made.containers))
        for made in (reading(containers={(f"p-{n}", "a"): 1.0 for n in range(50)}) for _ in "ab")
    )
    pods = {"shop": {f"p-{n}": {"app": f"a-{n}"} for n in range(50)}}
    made = await provider(usage_feed(cpu, memory), pods)
    answers = await made.answer([PodResource("shop", f"app=a-{n}", "cpu") for n in range(50)])
    assert [list(answer.pods) for answer in answers] == [[f"p-{n}"] for n in range(50)]
    assert (cpu.containers.walks, memory.containers.walks) == (1, 1)


async def test_one_container_can_be_asked_for():
    made = await provider(usage_feed())
    (answer,) = await made.answer([PodResource("shop", "app=web", "cpu", "b")])
    assert answer.pods == {"web-0": Sample(500, None, 300.0)}


@pytest.mark.parametrize("count", [2, 2000])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
async def test_an_external_metric_with_a_series_that_is_no_number_has_no_sum(bad, count):
    series = [({"queue": str(n)}, 7.0) for n in range(count - 1)] + [({"queue": "bad"}, bad)]
    made = await provider(RecordingFeed({"externalRules[0]": reading(series=series)}))
    (answer,) = await made.answer([ExternalMetric("shop", "queue_depth")])
    assert (type(answer), answer.reason) == (NoData, Stage.NOT_A_NUMBER)
    assert f"1 of {count} series" in answer.message


async def test_columns_keep_what_one_resource_lacks_as_nan():
    memory = reading(containers={("web-0", "a"): 64.0, ("db-0", "d"): 128.0})
    feed = RecordingFeed({"resourceRules.cpu": CPU, "resourceRules.memory": memory})
    made = await provider(feed)
    (answer,) = await made.answer([ContainerUsage()])
    assert isinstance(answer, ContainerColumns)
    rows = list(zip(answer.pod, answer.container, strict=True))
    assert rows == [("db-0", "d"), ("web-0", "a"), ("web-0", "b")]
    assert set(answer.namespace) == {"shop"}
    assert [str(v) for v in answer.cpu_cores] == ["nan", "0.25", "0.5"]
    assert [str(v) for v in answer.memory_bytes] == ["128.0", "64.0", "nan"]


async def test_usage_of_nodes_is_one_row_for_each_name_asked():
    cpu = reading({"a": 1.5, "b": -1.0, "gone": 9.0})
    memory = reading({"a": 64.0, "b": math.inf, "c": 32.0})
    feed = RecordingFeed({"resourceRules.cpu": cpu, "resourceRules.memory": memory})
    made = await provider(feed)
    (answer,) = await made.answer([NodeUsage(("c", "a", "b"))])
    assert isinstance(answer, NodeUsageColumns)
    assert [str(v) for v in answer.cpu_cores] == ["nan", "1.5", "nan"]
    assert [str(v) for v in answer.memory_bytes] == ["32.0", "64.0", "nan"]
    (none,) = await made.answer([NodeUsage(())])
    assert len(none.cpu_cores) == 0


async def test_a_failing_namespace_does_not_take_the_others_with_it():
    class Half(RecordingFeed):
        def _one(self, demand):
            if demand.namespace == "bad":
                return Refused("QueryFailed", "too many samples")
            return reading(containers={("p", "c"): 1.0})

    pods = {"bad": {"p": {}}, "good": {"p": {}}}
    made = await provider(Half(), pods)
    some, none = await made.answer([ContainerUsage(), ContainerUsage(("bad",))])
    assert list(some.namespace) == ["good"]
    assert isinstance(none, Refused)


async def test_without_resource_rules_usage_is_not_found():
    made = await provider(RecordingFeed(), text="rules: []")
    for question in (PodResource("shop", "", "cpu"), ContainerUsage(), NodeUsage(("a",))):
        (answer,) = await made.answer([question])
        assert isinstance(answer, NotFound)


def test_objects_has_what_the_tests_stand_in_for():
    for name in ("pod_names", "running", "namespaces", "names"):
        assert hasattr(WatchedObjects, name)


async def test_an_empty_list_is_a_reason_to_whoever_decides_by_it():
    empty = {"rules[0]": reading({}), "externalRules[0]": reading()}
    made = await provider(RecordingFeed(empty))
    pods, external = await made.answer(
        [PodMetric("shop", METRIC, "app=web"), ExternalMetric("shop", "queue_depth")]
    )
    assert isinstance(pods, NoData)
    assert isinstance(external, NoData)
    gone = reading({"x": 1.0}, stale=dict.fromkeys(("web-0", "web-1", "web-2"), math.inf))
    made = await provider(RecordingFeed({"rules[0]": gone}))
    (answer,) = await made.answer([PodMetric("shop", METRIC, "app=web")])
    assert isinstance(answer, Stale)


RESOURCES = RULES.replace(
    "'cpu{<<.LabelMatchers>>} by (<<.GroupBy>>)'",
    "'sum(rate(cpu{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)'",
)


async def test_an_answer_tells_of_the_gap_that_its_own_query_reaches_into():
    used = {(pod, "app"): 0.5 for pod in PODS["shop"]}
    answers = {"resourceRules": reading(containers=used)}
    for gap in (None, SampleGap(1.0, 2.0, 120.0, 3.0)):
        feed = RecordingFeed(answers)
        feed.gap_found = gap
        asked = [
            PodMetric("shop", METRIC, "app=web"),
            ObjectMetric("shop", "pods", "web-0", METRIC),
            PodResource("shop", "app=web", "cpu"),
            # Gauges are whole at once, and what cannot be measured has no gap.
            PodResource("shop", "app=web", "memory"),
            ExternalMetric("shop", "queue_depth"),
            PodMetric("shop", METRIC, "app=nobody"),
        ]
        found = await (await provider(feed, text=RESOURCES)).answer(asked)
        assert [each.gap for each in found[:5]] == [gap, gap, gap, None, None]
        assert isinstance(found[5], NoData)


UNSCOPED = RULES.replace("resources: {overrides:", "resources: {namespaced: false, overrides:")


async def test_a_query_without_a_namespace_is_asked_for_the_namespace_that_wants_to_know():
    feed = RecordingFeed()
    made = await provider(feed, text=UNSCOPED)
    questions = [ExternalMetric(namespace, "queue_depth") for namespace in ("a", "b")] * 2
    questions += [
        ObjectMetric("a", "namespaces", "a", METRIC),
        PodMetric("shop", METRIC, "app=web"),
    ]
    await made.answer(questions)
    (demands,) = feed.asked
    assert [(demand.namespace, demand.asker) for demand in demands] == [
        ("", "a"), ("", "b"), ("", "a"), ("shop", ""),
    ]  # fmt: skip
