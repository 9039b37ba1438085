"""Questions about metrics answered from Prometheus: the adapter's ``MetricsProvider``.

Names come from the registry and the stores, PromQL from the rules, samples from the feed.
A batch of thousands of questions is a handful of demands on the feed.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from adapter import mapping, readings, registry
from adapter.errors import NoLabel, QueryError
from adapter.inquiry import Inquiry, LongInquiry, ask
from adapter.listing import Source
from adapter.objects import Objects
from adapter.plans import Plans
from adapter.readings import Origin
from adapter.registry import Registry
from adapter.stages import Finding, Stage
from adapter.usage import Usage
from podscale.core import selector as selectors
from podscale.core.metrics import (
    Answer,
    ContainerUsage,
    ExternalMetric,
    ExternalSamples,
    Failure,
    NoData,
    NotFound,
    ObjectMetric,
    ObjectSample,
    PodMetric,
    PodResource,
    PodSamples,
    Question,
    Refused,
)
from podscale.core.selector import Selector
from podscale.feed.feed import Feed
from podscale.feed.plan import Demand


class FeedProvider:
    """The metrics of the rules file."""

    def __init__(
        self,
        feed: Feed,
        objects: Objects,
        mapper: mapping.Mapper,
        plans: Plans,
        usage: Usage,
        *,
        custom: Callable[[], Registry],
        external: Callable[[], Registry],
    ) -> None:
        """``custom`` and ``external`` return the newest registries."""
        self.feed = feed
        self.objects = objects
        self.mapper = mapper
        self.usage = usage
        self._plans = plans
        self._custom = custom
        self._external = external

    async def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer per question, in order. Never raises for a failed source."""
        # Ten autoscalers of a namespace ask for the same external metric.
        asked = list(dict.fromkeys(questions))
        found = await ask(self.feed, [self._inquire(question) for question in asked])
        answers = {
            question: readings.or_nothing(answer)
            for question, answer in zip(asked, found, strict=True)
        }
        return [answers[question] for question in questions]

    def _inquire(self, question: Question) -> Inquiry[Answer] | LongInquiry[Answer] | Failure:
        try:
            match question:
                case PodMetric():
                    return self._pods(question)
                case ObjectMetric():
                    return self.single(
                        question.resource, question.namespace, question.name,
                        question.metric, question.metric_selector,
                    )  # fmt: skip
                case ExternalMetric():
                    return self.external(
                        question.namespace, question.metric, question.metric_selector
                    )
                case PodResource():
                    return self.usage.pod_resource(question)
                case ContainerUsage():
                    return self.usage.containers(question.namespaces)
        except selectors.SelectorError as error:
            return Refused("BadSelector", str(error))

    def _pods(self, question: PodMetric) -> Inquiry[PodSamples | Failure] | Failure:
        found = self.objects.pod_names(question.namespace, parse(question.selector))
        if not found.names:
            text = f"no pod in {question.namespace} matches {question.selector or 'everything'}"
            return NoData(Stage.OBJECT_MISMATCH, text)
        return self.several(
            "pods", question.namespace, found.names, found.known,
            question.metric, question.metric_selector,
        )  # fmt: skip

    def several(
        self,
        resource: str,
        namespace: str,
        names: Sequence[str],
        known: int | None,
        metric: str,
        metric_selector: str,
    ) -> Inquiry[PodSamples | Failure] | Failure:
        """Return how to ask for one metric of several objects of ``resource[.group]``."""
        found = self._demand(resource, namespace, names, known, metric, metric_selector)
        if not isinstance(found, tuple):
            return found
        demand, origin = found
        return Inquiry((demand,), lambda got: readings.pods(got[0], names, origin))

    def single(
        self, resource: str, namespace: str, name: str, metric: str, metric_selector: str
    ) -> Inquiry[ObjectSample | Failure] | Failure:
        """Return how to ask for one metric of one object; ``resource`` may be singular."""
        described = mapping.resolve(self.mapper, *mapping.split(resource))
        if described is None:
            text = f"the cluster has no resource {resource!r}"
            return NotFound(Stage.LABEL_NOT_A_RESOURCE, text)
        key = described.group_resource
        scope = "" if key == "namespaces" else namespace
        found = self._demand(key, scope, (name,), None, metric, metric_selector)
        if not isinstance(found, tuple):
            return found
        demand, origin = found
        return Inquiry((demand,), lambda got: readings.single(got[0], name, origin))

    def external(
        self, namespace: str, metric: str, metric_selector: str
    ) -> Inquiry[ExternalSamples | Failure] | Failure:
        """Return how to ask for an external metric."""
        known = self._external()
        source = known.find("", metric)
        if source is None:
            return _not_found(registry.why_unknown(known, "", metric))
        try:
            plan = self._plans.external(source, namespace, parse(metric_selector), metric_selector)
        except QueryError as error:
            stage = Stage.NOT_NAMESPACED if isinstance(error, NoLabel) else Stage.QUERY_INVALID
            return Refused(stage, f"{source.rule.id}: {error}")
        origin = Origin(metric, source.rule.id, self._plans.window_s(plan))
        demand = Demand(plan, namespace if plan.labels.namespace else "")
        return Inquiry((demand,), lambda got: readings.external(got[0], origin))

    def _demand(
        self,
        resource: str,
        namespace: str,
        names: Sequence[str],
        known: int | None,
        metric: str,
        metric_selector: str,
    ) -> tuple[Demand, Origin] | Failure:
        listed = self._custom()
        source = self._source(listed, resource, namespace, metric)
        if source is None:
            return _not_found(registry.why_unknown(listed, resource, metric))
        try:
            plan = self._plans.custom(
                source, resource, bool(namespace), parse(metric_selector), metric_selector
            )
        except QueryError as error:
            no_namespace = isinstance(error, NoLabel) and namespace
            stage = Stage.NOT_NAMESPACED if no_namespace else Stage.QUERY_INVALID
            return NotFound(stage, f"{source.rule.id}: {error}")
        origin = Origin(metric, source.rule.id, self._plans.window_s(plan))
        return Demand(plan, namespace, tuple(sorted(names)), known), origin

    def _source(
        self, listed: Registry, resource: str, namespace: str, metric: str
    ) -> Source | None:
        source = listed.find(resource, metric)
        if source is None or namespace or not registry.is_namespaced(resource):
            return source
        # Without a namespace only what is truly cluster-scoped can be asked for: unlike
        # upstream that holds for storage classes and cluster-wide custom resources too.
        described = mapping.resolve(self.mapper, *mapping.split(resource))
        return None if described is None or described.namespaced else source


@lru_cache(maxsize=10_000)
def parse(text: str) -> Selector:
    """Return the selector; raises ``SelectorError``."""
    return selectors.parse(text) if text else Selector()


def _not_found(finding: Finding) -> NotFound:
    return NotFound(finding.stage, finding.message)
