"""Where the APIs get their values: the rules file first, then other packages' providers, then the
adapters behind us (``--external-backends``).

A package that registers a ``MetricsProvider`` under the entry-point group
``podscale.metrics_providers`` is asked for what the rules do not know. The entry point is
a callable without arguments; if its provider has a method ``listed()`` that returns
``(resource, metric)`` pairs (resource "" for external metrics), discovery shows them; if it has
``patience_s``, it is waited for as long.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import entry_points
from typing import TypeVar, get_args

import structlog

from adapter.apis.failures import PROVIDER_FAILED, PROVIDER_TIMEOUT
from adapter.backends.backend import PassedAnswer
from adapter.backends.backend_router import BackendRouter
from adapter.discovery import mapping
from adapter.provider import FeedProvider
from adapter.queries.inquiry import ask, at_once
from adapter.stages import Stage
from podscale.core.metrics import (
    Answer,
    ExternalMetric,
    ExternalSamples,
    Failure,
    MetricsProvider,
    NoData,
    NotFound,
    ObjectMetric,
    ObjectSample,
    PodMetric,
    PodSamples,
    Question,
    Unavailable,
)
from podscale.core.selectors.selector import Selector
from podscale.kube.client.resource import PODS, Resource

log = structlog.get_logger(__name__)

GROUP = "podscale.metrics_providers"
_AT_ONCE = 500  # samples that may be read in one turn of the loop

T = TypeVar("T", ObjectSample, ExternalSamples, PodSamples)


class MetricSources:
    """The rules file, the providers of other packages, other adapters. A ``MetricsProvider``."""

    def __init__(
        self,
        provider: FeedProvider,
        others: Sequence[MetricsProvider] = (),
        backends: BackendRouter | None = None,
        *,
        patience_s: float = 10.0,
    ) -> None:
        """``patience_s`` is how long each of ``others`` may take, as a query of the rules may."""
        self._patience_s = patience_s
        self.provider = provider
        self.others = tuple(others)
        self._backends = backends

    async def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer per question, in order: of the external backend that claims it, by
        the rules, else of the first other that knows more than that there is none."""
        backends = self._backends
        if backends is None:
            return await self._unclaimed(questions)
        claimed = {p for p, each in enumerate(questions) if backends.claimant(each)}
        if not claimed:
            return await self._unclaimed(questions)
        rest = [each for place, each in enumerate(questions) if place not in claimed]
        async with asyncio.TaskGroup() as group:
            unclaimed = group.create_task(self._unclaimed(rest))
            owned = group.create_task(backends.answer([questions[p] for p in sorted(claimed)]))
        of_rest, of_claimed = iter(unclaimed.result()), iter(owned.result())
        return [
            next(of_claimed if place in claimed else of_rest) for place in range(len(questions))
        ]

    async def _unclaimed(self, questions: Sequence[Question]) -> list[Answer]:
        answers = await self.provider.answer(questions)
        unknown = [
            place
            for place, answer in enumerate(answers)
            # isinstance takes six times as long, of all that a round asks for.
            if type(answer) in _FAILURES
            and (named := _metric_of(questions[place]))
            and self._is_unknown(answer, *named)
        ]
        for provider in self._others() if unknown else ():
            # Only what is still unknown: one that hangs keeps nobody waiting whom others know.
            found = await self._asked(provider, [questions[place] for place in unknown])
            asked, unknown = unknown, []
            for place, answer in zip(asked, found, strict=True):
                if isinstance(answer, _ANSWERS) and not isinstance(answer, NotFound):
                    answers[place] = answer
                else:
                    unknown.append(place)
            if not unknown:
                break
        return answers

    def several_at_once(
        self,
        resource: Resource,
        namespace: str,
        selector: Selector,
        metric: str,
        metric_selector: str,
    ) -> PodSamples | None:
        """Return what ``several`` would, for pods in a fresh snapshot; ``None``: ask it."""
        if resource.group_resource != PODS.group_resource or self.provider.objects.is_refused:
            return None
        found = self.provider.objects.pod_names(namespace, selector)
        if not 0 < len(found.names) <= _AT_ONCE:
            return None
        inquiry = self.provider.several(
            resource.group_resource, namespace, found.names, found.known, metric, metric_selector
        )
        answer = at_once(self.provider.feed, inquiry)
        return answer if isinstance(answer, PodSamples) else None

    async def several(
        self,
        resource: Resource,
        namespace: str,
        selector: Selector,
        metric: str,
        metric_selector: str,
    ) -> PodSamples | Failure:
        """Return one metric of all objects that match, in the order of a LIST.

        Raises ``KubeError`` when the objects cannot be listed. ``namespace`` "" asks for
        objects at the root.
        """
        key = resource.group_resource
        found = await self.provider.objects.names(
            resource, namespace if resource.namespaced else "", selector
        )
        if not found.names:
            where = namespace or "the cluster"
            return NoData(Stage.OBJECT_MISMATCH, f"no {key} in {where} match {selector or 'all'}")
        inquiry = self.provider.several(
            key, namespace, found.names, found.known, metric, metric_selector
        )
        (answer,) = await ask(self.provider.feed, [inquiry])
        if isinstance(answer, Failure) and self._is_unknown(answer, key, metric, namespace):
            answer = await self._elsewhere_objects(
                key, namespace, found.names, str(selector), metric, metric_selector, answer
            )
        return answer

    async def single(
        self, resource: str, namespace: str, name: str, metric: str, metric_selector: str
    ) -> ObjectSample | Failure:
        """Return one metric of one object; whether it exists is not looked up."""
        inquiry = self.provider.single(resource, namespace, name, metric, metric_selector)
        (answer,) = await ask(self.provider.feed, [inquiry])
        if not self.others:
            return answer
        described = mapping.resolve(self.provider.mapper, *mapping.split(resource))
        key = described.group_resource if described is not None else resource
        if not self._is_unknown(answer, key, metric, namespace):
            return answer
        question = ObjectMetric(namespace, key, name, metric, metric_selector)
        return await self._elsewhere(question, ObjectSample) or answer

    async def external(
        self, namespace: str, metric: str, metric_selector: str, *, by_rules_only: bool = False
    ) -> ExternalSamples | PassedAnswer | Failure:
        """Return the values of an external metric. ``by_rules_only``: nobody else is asked."""
        question = ExternalMetric(namespace, metric, metric_selector)
        backends = None if by_rules_only else self._backends
        if backends is not None and (claimant := backends.claimant(question)) is not None:
            return await backends.passed(question, claimant)
        inquiry = self.provider.external(namespace, metric, metric_selector)
        (answer,) = await ask(self.provider.feed, [inquiry])
        if by_rules_only or not self._is_unknown(answer, "", metric, namespace):
            return answer
        found = await self._elsewhere(question, ExternalSamples)
        if found is not None or backends is None:
            return found or answer
        passed = await backends.passed(question)
        return answer if isinstance(passed, NotFound) else passed

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

    def _others(self) -> Sequence[MetricsProvider]:
        return self.others if self._backends is None else (*self.others, self._backends)

    def _is_unknown(self, answer: object, resource: str, metric: str, namespace: str) -> bool:
        # A rule that may have anything, and is not listed, must not hide what others have.
        if isinstance(answer, Unavailable):
            return not self.provider.is_ours(resource, metric, namespace)
        return isinstance(answer, NotFound)

    async def _elsewhere(self, question: Question, kind: type[T]) -> T | Failure | None:
        """Return the first answer of another provider that is not "not found"."""
        for provider in self.others:
            (answer,) = await self._asked(provider, [question])
            if isinstance(answer, kind) or (
                isinstance(answer, Failure) and not isinstance(answer, NotFound)
            ):
                return answer
        return None

    async def _elsewhere_objects(
        self,
        resource: str,
        namespace: str,
        names: Sequence[str],
        selector: str,
        metric: str,
        metric_selector: str,
        unknown: Failure,
    ) -> PodSamples | Failure:
        if not self.others:
            return unknown
        if resource == PODS.group_resource and namespace:
            pods = PodMetric(namespace, metric, selector, metric_selector)
            return await self._elsewhere(pods, PodSamples) or unknown
        questions = [
            ObjectMetric(namespace, resource, name, metric, metric_selector) for name in names
        ]
        for provider in self.others:
            answers = await self._asked(provider, questions)
            samples = {
                name: answer
                for name, answer in zip(names, answers, strict=True)
                if isinstance(answer, ObjectSample)
            }
            if samples:
                asked_s = min(one.asked_s for one in samples.values())
                return PodSamples({n: one.sample for n, one in samples.items()}, asked_s)
            if not all(isinstance(answer, NotFound) for answer in answers):
                first = next(a for a in answers if not isinstance(a, NotFound))
                return first if isinstance(first, Failure) else unknown
        return unknown

    async def _asked(
        self, provider: MetricsProvider, questions: Sequence[Question]
    ) -> Sequence[object]:
        try:
            async with asyncio.timeout(getattr(provider, "patience_s", self._patience_s)):
                answers = await provider.answer(questions)
            if len(answers) != len(questions):
                raise ValueError(f"{len(answers)} answers to {len(questions)} questions")
        except TimeoutError:
            text = f"{type(provider).__name__} did not answer in time"
            log.warning("provider too slow", provider=type(provider).__name__)
            return [Unavailable(PROVIDER_TIMEOUT, text, is_timeout=True)] * len(questions)
        except Exception as error:  # noqa: BLE001 - somebody else's code must not break ours
            log.error("provider failed", provider=type(provider).__name__, error=repr(error))
            text = f"{type(provider).__name__} failed"
            return [Unavailable(PROVIDER_FAILED, text)] * len(questions)
        return answers


_ANSWERS, _FAILURES = get_args(Answer), frozenset(get_args(Failure))


def _metric_of(question: Question) -> tuple[str, str, str] | None:
    """Return resource ("" for external ones), metric and namespace; None for usage, which is
    the rules'.
    """
    match question:
        case PodMetric():
            return PODS.group_resource, question.metric, question.namespace
        case ObjectMetric():
            return question.resource, question.metric, question.namespace
        case ExternalMetric():
            return "", question.metric, question.namespace
    return None


def load() -> list[MetricsProvider]:
    """Return the providers of installed packages; one that does not load is reported."""
    providers: list[MetricsProvider] = []
    for entry in entry_points(group=GROUP):
        try:
            providers.append(entry.load()())
        except Exception as error:  # noqa: BLE001 - somebody else's code must not stop ours
            log.error("provider not loaded", provider=entry.name, error=repr(error))
    return providers
