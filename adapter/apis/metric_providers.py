"""Where the APIs get their values: the rules file first, then other packages' providers, then the
adapters behind us (``--external-backends``). The parts of this process get what is left from the
cluster's metrics APIs: metrics-server, KEDA, another adapter.

A package that registers a ``MetricsProvider`` under the entry-point group
``podscale.metrics_providers`` is asked for what the rules do not know. The entry point is
a callable without arguments; if its provider has a method ``listed()`` that returns
``(resource, metric)`` pairs (resource "" for external metrics), discovery shows them; if it has
``patience_s``, it is waited for as long.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from itertools import chain
from typing import get_args

import structlog
from msgspec import structs

from adapter.apis.failures import PROVIDER_FAILED, PROVIDER_TIMEOUT
from adapter.backends.backend import PassedAnswer
from adapter.backends.backend_router import BackendRouter
from adapter.provider import ApiQuestion, FeedProvider, ObjectsMetric
from adapter.queries import readings
from podscale.core import metrics as core
from podscale.kube.client.resource import PODS

log = structlog.get_logger(__name__)

GROUP = "podscale.metrics_providers"

ApiAnswer = core.Answer | PassedAnswer
_FAILURES = frozenset(get_args(core.Failure))
_ANSWERS: Mapping[type, tuple[type, ...]] = {
    core.PodResource: (core.PodSamples, *_FAILURES),
    core.ContainerUsage: (core.ContainerColumns, *_FAILURES),
    core.NodeUsage: (core.NodeUsageColumns, *_FAILURES),
    core.PodMetric: (core.PodSamples, *_FAILURES),
    ObjectsMetric: (core.PodSamples, *_FAILURES),
    core.ObjectMetric: (core.ObjectSample, *_FAILURES),
    core.ExternalMetric: (core.ExternalSamples, PassedAnswer, *_FAILURES),
}


class MetricSources:
    """The rules file, the providers of other packages, other adapters. A ``MetricsProvider``."""

    def __init__(
        self,
        provider: FeedProvider,
        others: Sequence[core.MetricsProvider] = (),
        backends: BackendRouter | None = None,
        *,
        cluster: core.MetricsProvider | None = None,
        patience_s: float = 10.0,
    ) -> None:
        """``cluster`` is asked for what nobody here knows, and never for our own APIs, which may be
        those of the cluster. ``patience_s`` is how long each of ``others`` may take, as a query of
        the rules may."""
        self._patience_s = patience_s
        self.provider = provider
        self.others = tuple(others)
        self._backends = backends
        self._cluster = cluster

    async def answer(self, questions: Sequence[core.Question]) -> list[core.Answer]:
        """Return one answer per question, in order. Never raises for a failed source."""
        answers = [
            readings.or_nothing(each.samples if isinstance(each, PassedAnswer) else each)
            for each in await self.read(questions)
        ]
        left = [
            place
            for place, answer in enumerate(answers)
            if type(answer) in _FAILURES and self._is_left(questions[place], answer)
        ]
        if self._cluster is not None and left:
            found = await self._elsewhere(self._cluster, [questions[place] for place in left])
            for place, answer in zip(left, found, strict=True):
                answers[place] = _of_cluster(answer, answers[place])
        return answers

    def _is_left(self, question: core.Question, answer: core.Answer) -> bool:
        """Return whether no rule, no backend and no other provider covers the question."""
        match question:
            case core.PodResource() | core.ContainerUsage() | core.NodeUsage():
                return self.provider.usage.rules is None
            case core.ExternalMetric() if self._backends and self._backends.claimant(question):
                return False
        return self._is_unknown(question, answer)

    async def read(self, questions: Sequence[ApiQuestion]) -> list[ApiAnswer]:
        """Return the same as the APIs show it, lists as they are: of the external backend that
        claims the question, by the rules, else of the first other that knows more than that
        there is none."""
        backends = self._backends
        if backends is None:
            return await self._unclaimed(questions)
        claimed = {
            place: each
            for place, each in enumerate(questions)
            if isinstance(each, core.ExternalMetric) and backends.claimant(each)
        }
        if not claimed:
            return await self._unclaimed(questions)
        rest = [each for place, each in enumerate(questions) if place not in claimed]
        async with asyncio.TaskGroup() as group:
            unclaimed = group.create_task(self._unclaimed(rest))
            owned = group.create_task(backends.answer([*claimed.values()]))
        of_rest, of_claimed = iter(unclaimed.result()), iter(owned.result())
        return [
            next(of_claimed if place in claimed else of_rest) for place in range(len(questions))
        ]

    async def _unclaimed(self, questions: Sequence[ApiQuestion]) -> list[ApiAnswer]:
        answers: list[ApiAnswer] = [*await self.provider.read(questions)]
        unknown = [
            place
            for place, answer in enumerate(answers)
            # isinstance takes six times as long, of all that a round asks for.
            if type(answer) in _FAILURES and self._is_unknown(questions[place], answer)
        ]
        backends = () if self._backends is None else (self._backends,)
        others: Sequence[core.MetricsProvider | BackendRouter] = (*self.others, *backends)
        for provider in others if unknown else ():
            # Only what is still unknown: one that hangs keeps nobody waiting whom others know.
            found = await self._elsewhere(provider, [questions[place] for place in unknown])
            for place, answer in zip(unknown, found, strict=True):
                answers[place] = answer or answers[place]
            unknown = [p for p, answer in zip(unknown, found, strict=True) if answer is None]
            if not unknown:
                break
        return answers

    def listed(self) -> Iterable[tuple[str, str]]:
        """Yield what the other providers say they have, backends apart."""
        for provider in self.others:
            lister: Callable[[], Iterable[tuple[str, str]]] | None = getattr(
                provider, "listed", None
            )
            if lister is not None:
                yield from lister()

    @property
    def passed_names(self) -> frozenset[str]:
        """The external metrics that adapters behind us list; the same object until they change."""
        return frozenset() if self._backends is None else self._backends.names

    def _is_unknown(self, question: ApiQuestion, answer: ApiAnswer) -> bool:
        match question:
            case core.PodMetric():
                resource = PODS.group_resource
            case core.ObjectMetric() | ObjectsMetric():
                resource = question.resource
            case core.ExternalMetric():
                resource = ""
            case _:  # usage, which is the rules'
                return False
        # A rule that may have anything, and is not listed, must not hide what others have.
        return isinstance(answer, core.NotFound | core.Unavailable) and not self.provider.is_ours(
            resource, question.metric, question.namespace
        )

    async def _elsewhere(
        self, provider: core.MetricsProvider | BackendRouter, questions: Sequence[ApiQuestion]
    ) -> list[ApiAnswer | None]:
        """Return what another provider knows; ``None``: nothing, or what is no answer."""
        parts = [_parts(question) for question in questions]
        answers = iter(await self._asked(provider, [*chain.from_iterable(parts)]))
        return [
            _whole(question, [(part, next(answers)) for part in own])
            for question, own in zip(questions, parts, strict=True)
        ]

    async def _asked(
        self, provider: core.MetricsProvider | BackendRouter, questions: Sequence[core.Question]
    ) -> Sequence[object]:
        try:
            async with asyncio.timeout(getattr(provider, "patience_s", self._patience_s)):
                answers = await provider.answer(questions)
            if len(answers) != len(questions):
                raise ValueError(f"{len(answers)} answers to {len(questions)} questions")
        except TimeoutError:
            text = f"{type(provider).__name__} did not answer in time"
            log.warning("provider too slow", provider=type(provider).__name__)
            return [core.Unavailable(PROVIDER_TIMEOUT, text, is_timeout=True)] * len(questions)
        except Exception as error:  # noqa: BLE001 - somebody else's code must not break ours
            log.error("provider failed", provider=type(provider).__name__, error=repr(error))
            text = f"{type(provider).__name__} failed"
            return [core.Unavailable(PROVIDER_FAILED, text)] * len(questions)
        return answers


def _parts(question: ApiQuestion) -> Sequence[core.Question]:
    """Return the question in the words of a ``MetricsProvider``: of several objects those know
    pods of a namespace only."""
    if not isinstance(question, ObjectsMetric):
        return (question,)
    namespace, resource = question.namespace, question.resource
    metric, metric_selector = question.metric, question.metric_selector
    if resource == PODS.group_resource and namespace:
        return (core.PodMetric(namespace, metric, question.selector, metric_selector),)
    return [
        core.ObjectMetric(namespace, resource, name, metric, metric_selector)
        for name in question.objects.names
    ]


def _whole(
    question: ApiQuestion, answers: Sequence[tuple[core.Question, object]]
) -> ApiAnswer | None:
    """Return the answer that the answers to its parts are."""
    if isinstance(question, ObjectsMetric):
        samples = {
            part.name: answer
            for part, answer in answers
            if isinstance(part, core.ObjectMetric) and isinstance(answer, core.ObjectSample)
        }
        if samples:
            asked_s = min(one.asked_s for one in samples.values())
            return core.PodSamples({name: one.sample for name, one in samples.items()}, asked_s)
    for _, answer in answers:
        fits = isinstance(answer, _ANSWERS[type(question)])
        if fits and isinstance(answer, ApiAnswer) and not isinstance(answer, core.NotFound):
            return answer
    return None


def _of_cluster(answer: ApiAnswer | None, own: core.Answer) -> core.Answer:
    """Return the answer of the cluster's metrics API, by whose name it goes; ``own`` where it has
    none either, or fails as well as a rule that may have the metric."""
    if isinstance(answer, core.Samples):
        return structs.replace(answer, answered_by=answer.answered_by or core.CLUSTER_APIS)
    if isinstance(own, core.Unavailable) or isinstance(answer, PassedAnswer):
        return own
    if answer is None and isinstance(own, core.NotFound):
        text = f"{own.message}; {core.CLUSTER_APIS} has none either"
        return structs.replace(own, message=text)
    return answer or own


def load() -> list[core.MetricsProvider]:
    """Return the providers of installed packages; one that does not load is reported."""
    providers: list[core.MetricsProvider] = []
    for entry in entry_points(group=GROUP):
        try:
            providers.append(entry.load()())
        except Exception as error:  # noqa: BLE001 - somebody else's code must not stop ours
            log.error("provider not loaded", provider=entry.name, error=repr(error))
    return providers
