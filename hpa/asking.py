"""The answers to what many looks ask: one call of the provider, whatever it does.

A provider may be late, raise, or answer something else; each of these is a failed metric
with a reason, never a number.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

import structlog

from hpa.decide.observation import MetricAnswer
from hpa.observe import Look
from hpa.questions import admitted, is_question
from hpa.selfmetrics import HpaMetrics
from podscale.core.metrics import (
    Answer,
    ExternalSamples,
    MetricsProvider,
    NotFound,
    ObjectSample,
    PodSamples,
    Question,
    Refused,
    Unavailable,
)
from podscale.core.samplecolumns import SampleColumns

_log = structlog.get_logger()

_SLOW_S = 2.0  # an answer that took longer makes metrics be asked for apart ...
_APART_S = 300.0  # ... for so long

Given = tuple[MetricAnswer | None, ...]  # one for each of a look's ``asked``, in order


class Asking:
    """One provider, and how it has behaved lately."""

    def __init__(
        self,
        provider: MetricsProvider,
        metrics: HpaMetrics,
        *,
        timeout_s: float,
        wall: Callable[[], float],
    ) -> None:
        self._provider = provider
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._wall = wall
        self._apart_until = float("-inf")

    @property
    def is_slow(self) -> bool:
        """Whether different metrics are better asked for apart."""
        return time.monotonic() < self._apart_until

    async def about(self, looks: Sequence[Look]) -> list[Given]:
        """Return the answers for each look."""
        asked: list[Question] = []
        for look in looks:
            asked += look.asked if look.is_plain else filter(is_question, look.asked)  # type: ignore[arg-type]
        answers = await self._answers(asked) if asked else ()
        found: list[Given] = []
        place = 0
        for look in looks:
            if look.is_plain:
                end = place + len(look.asked)
                found.append(tuple(map(admitted, answers[place:end])))
                place = end
                continue
            given: list[MetricAnswer | None] = []
            for each in look.asked:
                if each is None or isinstance(each, NotFound | Refused):
                    given.append(each)
                else:
                    given.append(admitted(answers[place]))
                    place += 1
            found.append(tuple(given))
        self._note_ages(found)
        return found

    async def _answers(self, questions: Sequence[Question]) -> Sequence[Answer]:
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout_s):
                answers = await self._provider.answer(questions)
            if len(answers) == len(questions):
                return answers
            failure = Unavailable(
                "WrongAnswer", f"{len(answers)} answers to {len(questions)} questions"
            )
            _log.error("metrics provider failed", error=failure.message)
        except TimeoutError:
            failure = Unavailable(
                "MetricsTimeout", f"no answer within {self._timeout_s:g} s", is_timeout=True
            )
        except Exception as error:  # noqa: BLE001 - a provider of another package may do anything
            _log.exception("metrics provider failed")
            failure = Unavailable("ProviderFailed", f"{type(error).__name__}: {error}")
        finally:
            if time.monotonic() - began > _SLOW_S:
                self._apart_until = time.monotonic() + _APART_S
        return [failure] * len(questions)

    def _note_ages(self, found: Sequence[Given]) -> None:
        now = self._wall()
        for given in found:
            if given:
                oldest = min([_sampled(each, now) for each in given])
                self._metrics.data_age.add((), max(now - oldest, 0.0))


def _sampled(answer: MetricAnswer | None, now: float) -> float:
    if type(answer) is PodSamples and type(answer.pods) is SampleColumns:
        taken = answer.pods.first_time_s
        return answer.asked_s if taken is None else taken
    match answer:
        case PodSamples(pods=pods, asked_s=asked_s):
            first = next(iter(pods.values()), None)
            at = None if first is None else first.time_s
        case ObjectSample(sample=sample, asked_s=asked_s):
            at = sample.time_s
        case ExternalSamples(series=series, asked_s=asked_s):
            at = series[0].sample.time_s if series else None
        case _:
            return now
    return asked_s if at is None else at
