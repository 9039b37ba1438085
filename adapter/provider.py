"""Questions about metrics answered from Prometheus: the adapter's ``MetricsProvider``.

Names come from the registry and the stores, PromQL from the rules, samples from the feed.
A batch of thousands of questions is a handful of demands on the feed.
"""

from collections.abc import Callable, Sequence
from functools import partial

from adapter.discovery import mapping, object_names, registry
from adapter.discovery.listing import MetricSource
from adapter.discovery.objects import WatchedObjects
from adapter.discovery.registry import MetricRegistry
from adapter.errors import NoLabel, RuleQueryError
from adapter.queries import matchers, readings
from adapter.queries.inquiry import Inquiries, Inquiry, LongInquiry
from adapter.queries.plans import Plans
from adapter.queries.readings import Origin
from adapter.queries.standing_questions import StandingQuestion, Standings, parse
from adapter.queries.usage import UsageByRules
from adapter.stages import Stage
from podscale.core.metrics import (
    Answer,
    ContainerUsage,
    ExternalMetric,
    ExternalSamples,
    Failure,
    NoData,
    NodeUsage,
    NotFound,
    ObjectMetric,
    ObjectSample,
    PodMetric,
    PodResource,
    PodSamples,
    Question,
    Refused,
    SampleGap,
    Unavailable,
)
from podscale.core.pace import LoopPace
from podscale.core.selectors import selector as selectors
from podscale.core.selectors.labels import is_label
from podscale.feed.plan import Demand, Outcome, QueryPlan
from podscale.feed.source_routing import DemandReader


class FeedProvider:
    """The metrics of the rules file."""

    def __init__(
        self,
        feed: DemandReader,
        objects: WatchedObjects,
        mapper: mapping.ResourceMapper,
        plans: Plans,
        usage: UsageByRules,
        *,
        custom: Callable[[], MetricRegistry],
        external: Callable[[], MetricRegistry],
        absence: Callable[[], Unavailable | None] = lambda: None,
    ) -> None:
        """``custom`` and ``external`` return the newest registries, ``absence`` why it is not
        known yet of which rules they should be."""
        self.feed = feed
        self.objects = objects
        self.mapper = mapper
        self.usage = usage
        self._plans = plans
        self._standings = Standings(objects)
        self._custom = custom
        self._external = external
        self._absence = absence

    @property
    def listed(self) -> tuple[MetricRegistry, MetricRegistry]:
        """What metrics there are: custom ones, and external ones."""
        return self._custom(), self._external()

    async def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer per question, in order. Never raises for a failed source."""
        # A query of 500 operators takes 20 ms to be refused, and a namespace may ask thousands.
        pace = LoopPace()
        standing, others = await self._sorted(questions, pace)
        joined = [
            self._standings.joined(plan, namespace, [each for each, _ in members])
            for (plan, namespace), members in standing.items()
        ]
        inquiries = []
        for question in others:
            await pace.rest()
            inquiries.append(self._inquire(question))
        asked = Inquiries(inquiries)
        outcomes = await self.feed.read([*(each.demand for each in joined), *asked.demands])
        answers: list[Answer | None] = [None] * len(questions)
        mine, rest = outcomes[: len(joined)], outcomes[len(joined) :]
        for each, members, outcome in zip(joined, standing.values(), mine, strict=True):
            await pace.rest()
            gap = self._gap(each.demand, outcome)
            for (_, place), answer in zip(members, each.answers(outcome), strict=True):
                answers[place] = answer if gap is None else readings.with_gap(answer, gap)
        gaps = {
            (demand.plan.key, demand.namespace): gap
            for demand, outcome in zip(asked.demands, rest, strict=True)
            if (gap := self._gap(demand, outcome)) is not None
        }
        for inquiry, answer, places in zip(
            inquiries, await asked.answers(rest), others.values(), strict=True
        ):
            found = readings.or_nothing(answer)
            if gaps and isinstance(inquiry, Inquiry):
                first = inquiry.demands[0]  # what was asked for; another tells what is there
                gap = gaps.get((first.plan.key, first.namespace))
                found = found if gap is None else readings.with_gap(found, gap)
            for place in places:
                answers[place] = found
        return [answer for answer in answers if answer is not None]

    def _gap(self, demand: Demand, outcome: Outcome) -> SampleGap | None:
        return self.feed.gap(demand, outcome, partial(self._plans.windows, demand.plan))

    async def _sorted(
        self, questions: Sequence[Question], pace: LoopPace
    ) -> tuple[
        dict[tuple[QueryPlan, str], list[tuple[StandingQuestion, int]]], dict[Question, list[int]]
    ]:
        """Sort out what is asked again and again, by query and namespace, and the rest, each
        question once: ten autoscalers of a namespace ask for the same external metric."""
        self._standings.grow_older()
        plans: dict[tuple[str, str, str], tuple[QueryPlan, Origin] | None] = {}
        # By namespace: its scope and its pods' state. Nothing changes until others run.
        scopes: dict[str, tuple[str, int]] = {}
        standing: dict[tuple[QueryPlan, str], list[tuple[StandingQuestion, int]]] = {}
        others: dict[Question, list[int]] = {}
        for place, question in enumerate(questions):
            if await pace.rest():
                plans.clear()
                scopes.clear()
            if isinstance(question, PodMetric):
                namespace = question.namespace
                if namespace not in scopes:
                    scope = self._custom().scope(namespace)
                    scopes[namespace] = scope, self.objects.changed(namespace)
                found = self._stands(question, plans, *scopes[namespace])
                if found is not None:
                    key = (found.plan, namespace)
                    standing.setdefault(key, []).append((found, place))
                    continue
            others.setdefault(question, []).append(place)
        return standing, others

    def _stands(
        self,
        question: PodMetric,
        plans: dict[tuple[str, str, str], tuple[QueryPlan, Origin] | None],
        scope: str,
        changed: int,
    ) -> StandingQuestion | None:
        if not question.namespace:
            return None
        try:
            key = (scope, question.metric, question.metric_selector)
            if key not in plans:
                found = self._plan("pods", question.namespace, *key[1:])
                plans[key] = found if isinstance(found, tuple) else None
            place = plans[key]
            return None if place is None else self._standings.of(question, *place, changed)
        except selectors.SelectorError:
            return None

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
                case NodeUsage():
                    return self.usage.node_columns(question.names)
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

    def is_ours(self, resource: str, metric: str, namespace: str) -> bool:
        """Return whether a rule has ``metric`` of ``resource[.group]`` ("": an external one), or
        will once it is listed."""
        listed = self._custom() if resource else self._external()
        found = self._absence() or listed.find(resource, metric, namespace)
        return found is not None

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
        names = object_names.askable(resource, names)
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
        if problem := object_names.problem(key, scope, name):
            return NoData(Stage.OBJECT_MISMATCH, problem)
        found = self._demand(key, scope, (name,), None, metric, metric_selector)
        if not isinstance(found, tuple):
            return found
        demand, origin = found
        return Inquiry((demand,), lambda got: readings.single(got[0], name, origin))

    def external(
        self, namespace: str, metric: str, metric_selector: str
    ) -> Inquiry[ExternalSamples | Failure] | Failure:
        """Return how to ask for an external metric."""
        source = self._find(self._external(), "", metric, namespace)
        if not isinstance(source, MetricSource):
            return source
        selector = parse(metric_selector)
        if problem := matchers.unwritable(selector):
            return Refused(Stage.QUERY_INVALID, problem)
        try:
            plan = self._plans.external(source, namespace, selector, metric_selector)
        except RuleQueryError as error:
            stage = Stage.NOT_NAMESPACED if isinstance(error, NoLabel) else Stage.QUERY_INVALID
            return Refused(stage, f"{source.rule.id}: {error}")
        if plan.labels.namespace and not is_label(namespace):
            return NoData(Stage.OBJECT_MISMATCH, f"no namespace can be called {namespace!r}")
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
        found = self._plan(resource, namespace, metric, metric_selector)
        if not isinstance(found, tuple):
            return found
        plan, origin = found
        return Demand(plan, namespace, tuple(sorted(names)), known), origin

    def _plan(
        self, resource: str, namespace: str, metric: str, metric_selector: str
    ) -> tuple[QueryPlan, Origin] | Failure:
        source = self._source(resource, namespace, metric)
        if not isinstance(source, MetricSource):
            return source
        selector = parse(metric_selector)
        if problem := matchers.unwritable(selector):
            return Refused(Stage.QUERY_INVALID, problem)
        try:
            plan = self._plans.custom(source, resource, bool(namespace), selector, metric_selector)
        except RuleQueryError as error:
            no_namespace = isinstance(error, NoLabel) and namespace
            stage = Stage.NOT_NAMESPACED if no_namespace else Stage.QUERY_INVALID
            return NotFound(stage, f"{source.rule.id}: {error}")
        return plan, Origin(metric, source.rule.id, self._plans.window_s(plan))

    def _find(
        self, listed: MetricRegistry, resource: str, metric: str, namespace: str
    ) -> MetricSource | NotFound | Unavailable:
        source = self._absence() or listed.find(resource, metric, namespace)
        return source or _unknown(listed, resource, metric, namespace)

    def _source(
        self, resource: str, namespace: str, metric: str
    ) -> MetricSource | NotFound | Unavailable:
        listed = self._custom()
        source = self._find(listed, resource, metric, namespace)
        if namespace or not registry.is_namespaced(resource):
            return source
        # Without a namespace only what is truly cluster-scoped can be asked for: unlike
        # upstream that holds for storage classes and cluster-wide custom resources too.
        described = mapping.resolve(self.mapper, *mapping.split(resource))
        is_at_root = described is not None and not described.namespaced
        return source if is_at_root else _unknown(listed, resource, metric, namespace)


def _unknown(
    listed: MetricRegistry, resource: str, metric: str, namespace: str
) -> NotFound | Unavailable:
    # Of what was never listed nobody knows whether it is there: that is no "not found".
    waiting = registry.unlisted(listed, resource, metric, namespace)
    if waiting is not None:
        return waiting
    finding = registry.why_unknown(listed, resource, metric, namespace)
    return NotFound(finding.stage, finding.message)
