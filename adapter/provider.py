"""Questions about metrics answered from Prometheus: the adapter's ``MetricsProvider``.

Names come from the registry and the stores, PromQL from the rules, samples from the feed.
A batch of thousands of questions is a handful of demands on the feed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct

from adapter.discovery import mapping, registry
from adapter.discovery.listing import MetricSource
from adapter.discovery.objects import Names, WatchedObjects, askable, name_problem
from adapter.discovery.registry import MetricRegistry
from adapter.errors import NoLabel, RuleQueryError
from adapter.queries import promql, readings
from adapter.queries.inquiry import Inquiry, JoinedQuestions, PodsOfSelector, ask, parse
from adapter.queries.plans import Plans
from adapter.queries.readings import Origin
from adapter.queries.usage import UsageByRules
from adapter.stages import Stage
from podscale.core.metrics import (
    Answer,
    ContainerUsage,
    ExternalMetric,
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
    Unavailable,
)
from podscale.core.pace import LoopPace
from podscale.core.selectors import selector as selectors
from podscale.core.selectors.labels import is_label
from podscale.feed.plan import Demand, Outcome, QueryPlan
from podscale.feed.source_routing import DemandReader

T = TypeVar("T")

_AT_ONCE = 500  # samples that may be read in one turn of the loop


class ObjectsMetric(Struct, frozen=True):
    """One custom metric of all objects that match: what the API is asked beyond a provider's
    questions."""

    namespace: str  # "" for objects at the root
    resource: str  # plural[.group]
    objects: Names  # those that match
    selector: str  # canonical label selector by which they do
    metric: str
    metric_selector: str = ""


ApiQuestion = Question | ObjectsMetric
_Inquiry = Inquiry[Answer | list[Answer]] | Failure
_Plan = tuple[QueryPlan, Origin] | Failure


class _PodQuestion(Struct, frozen=True, eq=False, gc=False):
    plan: QueryPlan
    origin: Origin
    namespace: str
    pods: PodsOfSelector


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
        self._joined = JoinedQuestions(objects)
        self._custom = custom
        self._external = external
        self._absence = absence

    @property
    def listed(self) -> tuple[MetricRegistry, MetricRegistry]:
        """What metrics there are: custom ones, and external ones."""
        return self._custom(), self._external()

    async def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer per question, in order. Never raises for a failed source."""
        return [readings.or_nothing(answer) for answer in await self.read(questions)]

    async def read(self, questions: Sequence[ApiQuestion]) -> list[Answer]:
        """Return the same to whoever shows lists as they are: empty ones, and incomplete ones."""
        inquiries = await self._inquiries(questions)
        answers: list[Answer | None] = [None] * len(questions)
        read = await ask(self.feed, [inquiry for inquiry, _ in inquiries], self._with_gap)
        for (_, askers), answer in zip(inquiries, read, strict=True):
            own = answer if isinstance(answer, list) else [answer]
            for places, each in zip(askers, own, strict=True):
                for place in places:
                    answers[place] = each
        return [answer for answer in answers if answer is not None]

    def at_once(self, question: ObjectsMetric) -> PodSamples | None:
        """Return what ``read`` would, from a fresh snapshot; ``None``: ask it."""
        if len(question.objects.names) > _AT_ONCE:
            return None
        inquiry = self._objects(question)
        if not isinstance(inquiry, Inquiry):
            return None
        outcome = self.feed.at_once(inquiry.demands[0])
        answer = None if outcome is None else inquiry.finish((outcome,))
        return answer if isinstance(answer, PodSamples) else None

    def is_ours(self, resource: str, metric: str, namespace: str) -> bool:
        """Return whether a rule has ``metric`` of ``resource[.group]`` ("": an external one), or
        will once it is listed, or one of the namespace's own has no series for it now."""
        listed = self._custom() if resource else self._external()
        where = resource, metric, namespace
        return (self._absence() or listed.find(*where) or listed.owner(*where)) is not None

    def _with_gap(
        self, demand: Demand, outcome: Outcome, answer: Answer | list[Answer]
    ) -> Answer | list[Answer]:
        gap = self.feed.gap(demand, outcome, partial(self._plans.windows, demand.plan))
        if gap is None:
            return answer
        if isinstance(answer, list):
            return [readings.with_gap(each, gap) for each in answer]
        return readings.with_gap(answer, gap)

    async def _inquiries(
        self, questions: Sequence[ApiQuestion]
    ) -> list[tuple[_Inquiry, list[list[int]]]]:
        """Return how to ask, and for each answer the places of the questions that it is for.

        What is asked of the pods of a namespace is joined by query. Each question is asked
        once: ten autoscalers of a namespace ask for the same external metric.
        """
        self._joined.grow_older()
        distinct: dict[ApiQuestion, list[int]] = {}
        for place, question in enumerate(questions):
            distinct.setdefault(question, []).append(place)
        plans: dict[tuple[str, str, str], _Plan] = {}
        members: dict[tuple[QueryPlan, str], list[tuple[_PodQuestion, list[int]]]] = {}
        inquiries: list[tuple[_Inquiry, list[list[int]]]] = []
        # A query of 500 operators takes 20 ms to be refused, and a namespace may ask thousands.
        pace = LoopPace()
        for question, places in distinct.items():
            if await pace.rest():
                plans.clear()
            prepared = self._prepared(question, plans)
            if isinstance(prepared, _PodQuestion):
                key = prepared.plan, prepared.namespace
                members.setdefault(key, []).append((prepared, places))
            else:
                inquiries.append((prepared, [places]))
        for (plan, namespace), asking in members.items():
            pods = [each.pods for each, _ in asking]
            joined = self._joined.joined(plan, asking[0][0].origin, namespace, pods)
            inquiries.append((joined.inquiry, [places for _, places in asking]))
        return inquiries

    def _prepared(
        self, question: ApiQuestion, plans: dict[tuple[str, str, str], _Plan]
    ) -> Inquiry[Answer] | Failure | _PodQuestion:
        try:
            match question:
                case PodMetric():
                    return self._pods(question, plans)
                case ObjectMetric():
                    return self._object(question)
                case ObjectsMetric():
                    return self._objects(question)
                case ExternalMetric():
                    return self._inquiry(
                        question, "", question.namespace, (), None, readings.external
                    )
                case PodResource():
                    return self.usage.pod_resource(question)
                case ContainerUsage():
                    return self.usage.containers(question.namespaces)
                case NodeUsage():
                    return self.usage.node_columns(question.names)
        except selectors.SelectorError as error:
            return Refused("BadSelector", str(error))

    def _pods(
        self, question: PodMetric, plans: dict[tuple[str, str, str], _Plan]
    ) -> _PodQuestion | Failure:
        namespace, selector = question.namespace, question.selector
        pods = self._joined.pods(namespace, selector) if namespace else None
        if pods is None:
            text = f"no pod in {namespace} matches {selector or 'everything'}"
            return NoData(Stage.OBJECT_MISMATCH, text)
        key = namespace, question.metric, question.metric_selector
        if key not in plans:
            plans[key] = self._plan("pods", *key)
        plan = plans[key]
        return _PodQuestion(*plan, namespace, pods) if isinstance(plan, tuple) else plan

    def _objects(self, question: ObjectsMetric) -> Inquiry[PodSamples | Failure] | Failure:
        resource, namespace, objects = question.resource, question.namespace, question.objects
        if not objects.names:
            where, selector = namespace or "the cluster", question.selector or "all"
            return NoData(Stage.OBJECT_MISMATCH, f"no {resource} in {where} match {selector}")
        names = askable(resource, objects.names)
        return self._inquiry(
            question, resource, namespace, tuple(sorted(names)), objects.known,
            lambda outcome, origin: readings.pods(outcome, names, origin),
        )  # fmt: skip

    def _object(self, question: ObjectMetric) -> Inquiry[ObjectSample | Failure] | Failure:
        name = question.name
        described = mapping.resolve(self.mapper, *mapping.split(question.resource))
        if described is None:
            text = f"the cluster has no resource {question.resource!r}"
            return NotFound(Stage.LABEL_NOT_A_RESOURCE, text)
        key = described.group_resource
        namespace = "" if key == "namespaces" else question.namespace
        if problem := name_problem(key, namespace, name):
            return NoData(Stage.OBJECT_MISMATCH, problem)
        return self._inquiry(
            question, key, namespace, (name,), None,
            lambda outcome, origin: readings.single(outcome, name, origin),
        )  # fmt: skip

    def _inquiry(
        self,
        question: ObjectMetric | ObjectsMetric | ExternalMetric,
        resource: str,
        namespace: str,
        names: tuple[str, ...],
        known: int | None,
        read: Callable[[Outcome, Origin], T],
    ) -> Inquiry[T] | Failure:
        found = self._plan(resource, namespace, question.metric, question.metric_selector)
        if not isinstance(found, tuple):
            return found
        plan, origin = found
        if plan.labels.namespace and not is_label(namespace):
            return NoData(Stage.OBJECT_MISMATCH, f"no namespace can be called {namespace!r}")
        scope = namespace if resource or plan.labels.namespace else ""
        demand = Demand(plan, scope, names, known, "" if scope else question.namespace)
        return Inquiry((demand,), lambda got: read(got[0], origin))

    def _plan(self, resource: str, namespace: str, metric: str, metric_selector: str) -> _Plan:
        """Return the query for ``metric`` of ``resource[.group]`` ("": an external one).

        Raises ``SelectorError``.
        """
        source = self._source(resource, namespace, metric)
        if not isinstance(source, MetricSource):
            return source
        selector = parse(metric_selector)
        if problem := promql.unwritable(selector):
            return Refused(Stage.QUERY_INVALID, problem)
        try:
            is_scoped = bool(namespace)
            plan = self._plans.metric(source, resource, is_scoped, selector, metric_selector)
        except RuleQueryError as error:
            no_namespace = isinstance(error, NoLabel) and namespace
            stage = Stage.NOT_NAMESPACED if no_namespace else Stage.QUERY_INVALID
            kind = NotFound if resource else Refused
            return kind(stage, f"{source.rule.id}: {error}")
        return plan, Origin(metric, source.rule.id, self._plans.window_s(plan))

    def _source(
        self, resource: str, namespace: str, metric: str
    ) -> MetricSource | NotFound | Unavailable:
        listed = self._custom() if resource else self._external()
        source = self._absence() or listed.find(resource, metric, namespace)
        if resource and not namespace and registry.is_namespaced(resource):
            # Without a namespace only what is truly cluster-scoped can be asked for: unlike
            # upstream that holds for storage classes and cluster-wide custom resources too.
            described = mapping.resolve(self.mapper, *mapping.split(resource))
            if described is None or described.namespaced:
                source = None
        # Of what was never listed nobody knows whether it is there: that is no "not found".
        source = source or registry.unlisted(listed, resource, metric, namespace)
        if source is None:
            finding = registry.why_unknown(listed, resource, metric, namespace)
            return NotFound(finding.stage, finding.message)
        return source
