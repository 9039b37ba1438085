"""Providers of other packages: found by entry point, asked for what the rules do not know."""

import asyncio
import sys
from collections.abc import Sequence

import pytest

from adapter.apis import metric_providers
from adapter.apis.failures import source_failed
from adapter.apis.metric_providers import MetricSources
from adapter.discovery.registry import MetricRegistry, RelistFailure, RuleState, unlisted
from adapter.provider import ApiQuestion, FeedProvider, ObjectsMetric
from adapter.stages import Stage
from podscale.core.metrics import (
    CLUSTER_APIS,
    Answer,
    ContainerUsage,
    ExternalMetric,
    ExternalSample,
    ExternalSamples,
    MetricsProvider,
    NoData,
    NodeUsage,
    NotFound,
    ObjectMetric,
    ObjectSample,
    PodMetric,
    PodResource,
    PodSamples,
    Question,
    Sample,
    Unavailable,
)
from podscale.core.selectors.selector import Selector
from podscale.feed.http import refusals
from podscale.feed.outage import SILENT_S, OutageWatch
from podscale.feed.plan import Outcome
from podscale.kube.client.resource import PODS, SERVICES, Resource
from tests.conformance.adapter_sample import SampleProvider
from tests.unit.adapter.test_provider import METRIC, provider
from tests.unit.adapter.world import RULES, RecordingFeed, rules

DOWN = Unavailable("PrometheusUnreachable", "down")
PODS_OF_SHOP = [(f"web-{i}", {"app": "web"}) for i in range(3)]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package that registers a provider, and one whose provider does not load."""
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{metric_providers.GROUP}]\ngood = elsewhere:make\nbroken = elsewhere:absent\n"
    )
    (tmp_path / "elsewhere.py").write_text(
        "from tests.conformance.adapter_sample import SampleProvider\n"
        "def make():\n    return SampleProvider([])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("elsewhere", None)


def test_installed_providers_are_loaded_and_a_broken_one_is_left_out(installed):
    (found,) = metric_providers.load()
    assert isinstance(found, SampleProvider)


def test_no_package_registers_a_provider_by_itself():
    assert metric_providers.load() == []


class Failing:
    """A provider with a bug."""

    async def answer(self, questions):
        raise RuntimeError("a bug of theirs")


async def chained(*others: MetricsProvider) -> MetricSources:
    return MetricSources(await provider(RecordingFeed()), others)


async def objects_metric(
    provider: FeedProvider, resource: Resource, namespace: str, metric: str
) -> ObjectsMetric:
    """Return what the API asks of all objects of a namespace."""
    objects = await provider.objects.names(resource, namespace, Selector())
    return ObjectsMetric(namespace, resource.group_resource, objects, "", metric)


async def several(made: MetricSources, resource: Resource, namespace: str, metric: str) -> Answer:
    return await one(made, await objects_metric(made.provider, resource, namespace, metric))


async def one(made: MetricSources, question: ApiQuestion) -> Answer:
    (answer,) = await made.read([question])
    return answer


async def test_the_rules_come_first():
    sample = SampleProvider(PODS_OF_SHOP)
    made = await chained(sample)
    answer = await several(made, PODS, "shop", METRIC)
    assert isinstance(answer, PodSamples)
    assert sample.questions == []


async def test_what_no_rule_knows_is_asked_elsewhere():
    made = await chained(Failing(), SampleProvider(PODS_OF_SHOP))
    pods = await several(made, PODS, "shop", "some-metric")
    assert isinstance(pods, Unavailable)  # the first provider that does not say "not found"
    made = await chained(SampleProvider([]), SampleProvider(PODS_OF_SHOP))
    services = await several(made, SERVICES, "shop", "some-metric")
    assert isinstance(services, PodSamples)
    single = await one(made, ObjectMetric("shop", "services", "web", "some-metric"))
    assert isinstance(single, ObjectSample)
    external = await one(made, ExternalMetric("shop", "my-external-metric", "foo=bar"))
    assert isinstance(external, ExternalSamples)
    assert [s.sample.value_milli for s in external.series] == [42_000]


async def test_what_nobody_knows_is_not_found_with_the_rules_reason():
    made = await chained(SampleProvider([]))
    for answer in (
        await several(made, PODS, "shop", "nothing"),
        await one(made, ObjectMetric("shop", "pods", "web-0", "nothing")),
    ):
        assert isinstance(answer, NotFound)
        assert "no rule exposes nothing" in answer.message


async def test_rules_that_cannot_be_listed_hide_nothing_that_others_have():
    text = RULES.replace("http_requests_total{pod!", "{pod!").replace("'queue_depth'", "'{a=\"\"}'")
    down = await provider(RecordingFeed(), text=text, down=refusals.error("unreachable"))
    made = MetricSources(down, [SampleProvider(PODS_OF_SHOP)])
    pods = await several(made, PODS, "shop", "some-metric")
    assert isinstance(pods, PodSamples)
    single = await one(made, ObjectMetric("shop", "services", "web", "some-metric"))
    assert isinstance(single, ObjectSample)
    external = await one(made, ExternalMetric("shop", "my-external-metric", ""))
    assert isinstance(external, ExternalSamples)
    # What they do not have either may be ours, once it is listed.
    for answer in (
        await several(made, PODS, "shop", "nothing"),
        await one(made, ObjectMetric("shop", "pods", "web-0", "nothing")),
    ):
        assert (type(answer), answer.reason) == (Unavailable, "PrometheusUnreachable")


async def test_what_a_listed_rule_cannot_read_now_is_not_asked_elsewhere():
    sample = SampleProvider(PODS_OF_SHOP)
    failing = RecordingFeed(dict.fromkeys(("rules[0]", "externalRules[0]"), DOWN))
    made = MetricSources(await provider(failing), [sample])
    assert await several(made, PODS, "shop", METRIC) is DOWN
    assert await one(made, ObjectMetric("shop", "services", "web", METRIC)) is DOWN
    assert await one(made, ExternalMetric("shop", "queue_depth", "")) is DOWN
    assert sample.questions == []


async def test_without_objects_nobody_is_asked():
    sample = SampleProvider([])
    made = await chained(sample)
    answer = await several(made, PODS, "empty", "some-metric")
    assert isinstance(answer, NoData)
    assert sample.questions == []


class Empty:
    """A provider whose lists have nothing in them."""

    async def answer(self, questions):
        empty = {PodMetric: PodSamples({}, 0.0), ExternalMetric: ExternalSamples((), 0.0)}
        return [empty[type(question)] for question in questions]


async def test_an_empty_list_of_another_is_a_reason_to_whoever_decides_by_it():
    made = await chained(Empty())
    questions = [PodMetric("shop", "theirs", ""), ExternalMetric("shop", "theirs")]
    assert [type(each) for each in await made.answer(questions)] == [NoData, NoData]
    assert [type(each) for each in await made.read(questions)] == [PodSamples, ExternalSamples]


class NoAnswer:
    """A provider that answers something else than it was asked."""

    async def answer(self, questions):
        return [ObjectSample(Sample(1), 0.0) for _ in questions]


async def test_what_answers_another_question_is_passed_over():
    made = await chained(NoAnswer(), SampleProvider(PODS_OF_SHOP))
    assert isinstance(await several(made, PODS, "shop", "some-metric"), PodSamples)
    (external,) = await made.answer([ExternalMetric("shop", "my-external-metric")])
    assert isinstance(external, ExternalSamples)


class Hanging:
    """A provider whose backend never answers."""

    async def answer(self, questions):
        await asyncio.Event().wait()


async def test_a_provider_that_hangs_is_given_up():
    made = MetricSources(await provider(RecordingFeed()), [Hanging()], patience_s=0.05)
    late = await one(made, ExternalMetric("shop", "nothing"))
    assert (type(late), late.reason, late.is_timeout) == (Unavailable, "ProviderTimeout", True)
    made = MetricSources(await provider(RecordingFeed()), [Failing()])
    for failure, code, whose in (
        (late, 504, "Hanging did not answer in time"),
        (await one(made, ExternalMetric("shop", "nothing")), 503, "Failing failed"),
    ):
        told = source_failed(failure)
        assert (told.code, "Prometheus" in told.message) == (code, False)
        assert whose in told.message


@pytest.mark.parametrize(("kind", "code", "said"), [
    ("deadline", 504, "Prometheus did not answer in time"),
    ("unreachable", 503, "Prometheus cannot be read now; retrying"),
])  # fmt: skip
def test_the_answer_to_an_outage_says_since_when(kind, code, said):
    watch = OutageWatch()
    watch.failed(refusals.error(kind), 1000.0, 1000.0)
    failure = watch.current(1000.0 + SILENT_S).failure
    assert f"{said} (since 1970-01-01T00:16:40Z)" in source_failed(failure).message
    (rule,) = rules().custom[:1]
    down = RelistFailure(
        Stage.PROMETHEUS_UNREACHABLE, failure.message, failure.reason, failure.is_timeout,
        since_s=failure.since_s,
    )  # fmt: skip
    registry = MetricRegistry(waiting=(RuleState(rule, failure=down),))
    never_listed = unlisted(registry, "pods", "http_requests_per_second")
    for told in (source_failed(failure), source_failed(never_listed)):
        assert (told.code, told.message.count("(since ")) == (code, 1)
        assert told.details.causes[-1].message.endswith("(since 1970-01-01T00:16:40Z)")
    before = source_failed(refusals.failure(kind))
    assert (before.code, "since" in before.message) == (code, False)


def test_a_query_that_prometheus_gave_up_is_told_to_be_it_and_who_shows_why():
    told = source_failed(refusals.failure("timeout"))
    assert (told.code, told.details.causes[0].reason) == (504, "QueryTimeout")
    for text in (told.message, told.details.causes[0].message):
        assert "Prometheus gave up on the rule's query; `podscale doctor --metric NAME" in text


def test_what_was_not_asked_is_told_to_be_so():
    text = "not asked: the budget of the namespace is 1000 queries in 15 s"
    told = source_failed(Unavailable("NoBudget", text))
    assert (told.code, told.details.causes[0].reason) == (503, "NoBudget")
    assert not told.details.retry_after_seconds
    assert text in told.message


async def test_who_hangs_is_not_waited_for_where_another_has_answered():
    made = await chained(SampleProvider(PODS_OF_SHOP), Hanging())
    external = ExternalMetric("shop", "my-external-metric", "foo=bar")
    pods = PodMetric("shop", "some-metric", "app=web")
    async with asyncio.timeout(5):
        assert isinstance(
            await one(made, ExternalMetric("shop", "my-external-metric", "")), ExternalSamples
        )
        assert isinstance(await several(made, PODS, "shop", "some-metric"),
                          PodSamples)  # fmt: skip
        assert isinstance(await one(made, ObjectMetric("shop", "pods", "web-0", "some-metric")),
                          ObjectSample)  # fmt: skip
        first, other = await made.answer([external, pods])
    assert (type(first), type(other)) == (ExternalSamples, PodSamples)


class Cluster:
    """The cluster's metrics API: metrics-server and KEDA, nothing more."""

    patience_s = 1.0

    def __init__(self) -> None:
        self.questions: list[Question] = []

    async def answer(self, questions: Sequence[Question]) -> list[Answer]:
        self.questions += questions
        return [self._answer(each) for each in questions]

    def _answer(self, question: Question) -> Answer:
        if isinstance(question, PodResource):
            return PodSamples({"web-0": Sample(250, 100.0, 15.0)}, 100.0)
        if isinstance(question, ExternalMetric) and question.metric == "s0-kafka-lag":
            return ExternalSamples([ExternalSample({}, Sample(7000))], 100.0)
        return NotFound("NotFound", "unable to fetch metrics: not found")


WITHOUT_RESOURCES = RULES.partition("resourceRules:")[0]
CPU = PodResource("shop", "app=web", "cpu")
LAG = ExternalMetric("shop", "s0-kafka-lag", "scaledobject=web")


async def of_cluster(
    text: str = WITHOUT_RESOURCES, **outcomes: Outcome
) -> tuple[MetricSources, Cluster]:
    cluster = Cluster()
    feed = RecordingFeed(outcomes or None)
    return MetricSources(await provider(feed, text=text), cluster=cluster), cluster


async def test_what_no_rule_covers_is_asked_of_the_cluster_which_is_said():
    made, cluster = await of_cluster()
    known = PodMetric("shop", METRIC, "app=web")
    cpu, pods, lag = await made.answer([CPU, known, LAG])
    assert cluster.questions == [CPU, LAG]
    assert cpu == PodSamples({"web-0": Sample(250, 100.0, 15.0)}, 100.0, answered_by=CLUSTER_APIS)
    assert (lag.series[0].sample.value_milli, lag.answered_by) == (7000, CLUSTER_APIS)
    assert isinstance(pods, PodSamples)
    assert pods.answered_by == ""


async def test_what_a_rule_covers_is_never_asked_of_the_cluster():
    failing = dict.fromkeys(
        ("rules[0]", "externalRules[0]", "resourceRules.cpu", "resourceRules.memory"), DOWN
    )
    made, cluster = await of_cluster(RULES, **failing)
    own = [CPU, PodMetric("shop", METRIC, "app=web"), ExternalMetric("shop", "queue_depth"),
           ContainerUsage(), NodeUsage(("node-0",))]  # fmt: skip
    answers = await made.answer(own)
    assert [type(each) for each in answers] == [Unavailable] * len(own)
    assert cluster.questions == []


async def test_what_the_cluster_has_neither_keeps_the_rules_reason():
    made, cluster = await of_cluster()
    questions = [PodMetric("shop", "nothing", "app=web"), ExternalMetric("shop", "nothing"),
                 ContainerUsage()]  # fmt: skip
    answers = await made.answer(questions)
    assert cluster.questions == questions
    for answer, said in zip(answers, ("no rule exposes nothing",) * 2 + ("no resourceRules",),
                            strict=True):  # fmt: skip
        assert isinstance(answer, NotFound)
        assert said in answer.message
        assert answer.message.endswith("; the cluster's metrics API has none either")


async def test_an_outage_of_our_own_prometheus_is_told_as_that():
    text = WITHOUT_RESOURCES.replace("'queue_depth'", "'{a=\"\"}'")
    down = await provider(RecordingFeed(), text=text, down=refusals.error("unreachable"))
    for cluster in (Cluster(), Hanging()):
        made = MetricSources(down, cluster=cluster, patience_s=0.05)
        (found,) = await made.answer([ExternalMetric("shop", "of-whom")])
        assert (type(found), found.reason) == (Unavailable, "PrometheusUnreachable")
        assert CLUSTER_APIS not in found.message
    (lag,) = await MetricSources(down, cluster=Cluster()).answer([LAG])
    assert isinstance(lag, ExternalSamples)


async def test_our_own_apis_never_ask_the_cluster():
    # They may be the cluster's, which would then ask itself.
    made, cluster = await of_cluster()
    assert [type(each) for each in await made.read([LAG])] == [NotFound]
    assert cluster.questions == []


async def test_what_the_cluster_cannot_answer_is_its_failure():
    made = MetricSources(
        await provider(RecordingFeed(), text=WITHOUT_RESOURCES), cluster=Hanging(), patience_s=0.05
    )
    known = PodMetric("shop", METRIC, "app=web")
    late, pods = await made.answer([CPU, known])
    assert (type(late), late.is_timeout) == (Unavailable, True)
    assert isinstance(pods, PodSamples)
