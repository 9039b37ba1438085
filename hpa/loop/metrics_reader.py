"""The answers to what many looks ask: one call of the provider, whatever it does.

A provider may be late, raise, or answer something else; each of these is a failed metric
with a reason, never a number.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import cast

import structlog

from hpa.cluster.questions import is_question
from hpa.decide.api.spec import MOST_METRICS_TOGETHER
from hpa.decide.numbers import INT64_MAX, INT64_MIN
from hpa.decide.observation import MetricAnswer
from hpa.machine.record import Look
from hpa.selfmetrics import HpaMetrics
from podscale.core.metrics import (
    Answer,
    ExternalSamples,
    MetricsProvider,
    NoData,
    NotFound,
    ObjectSample,
    PodSamples,
    Question,
    Refused,
    Stale,
    Unavailable,
)
from podscale.core.samplecolumns import SampleColumns
from podscale.kube.client.wire import GO_ZERO_TIME_S

_log = structlog.get_logger()

_SLOW_S = 2.0  # an answer that took longer makes metrics be asked for apart ...
_APART_S = 300.0  # ... for so long
_NONE = float("inf")  # the time of no sample

Given = tuple[MetricAnswer | None, ...]  # one for each of a look's ``asked``, in order


class MetricsReader:
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
        self._apart = asyncio.Lock()  # of autoscalers that are read apart, one part at a time

    @property
    def is_slow(self) -> bool:
        """Whether different metrics are better asked for apart."""
        return time.monotonic() < self._apart_until

    async def about(self, looks: Sequence[Look]) -> list[Given]:
        """Return the answers for each look. One that is to be read apart comes alone."""
        asked: list[Question] = [each for look in looks for each in look.asked if is_question(each)]
        is_apart = len(looks) == 1 and looks[0].hpa.is_read_apart
        read = self._in_parts if is_apart else self._together
        answers = iter(await read(asked) if asked else ())
        given = [
            tuple([next(answers) if is_question(each) else each for each in look.asked])
            for look in looks
        ]
        found = cast("list[Given]", given)
        self._note_ages(found)
        return found

    def _note_ages(self, found: list[Given]) -> None:
        """Observe the oldest sample of each look; what cannot be read is a failed metric."""
        now = self._wall()
        known: dict[int, float] = {}  # of answers that many were given, by identity
        unreadable = 0
        for row, given in enumerate(found):
            try:
                oldest = _oldest(given, known)
                if -_NONE < oldest < _NONE:  # NaN is not, either
                    self._metrics.data_age.add((), max(now - oldest, 0.0))
            except Exception:  # noqa: BLE001 - as below; no other autoscaler hears of it
                unreadable += 1
                found[row] = tuple(map(_readable, given))
        if unreadable:
            _log.error("metrics provider failed", error="WrongAnswer", autoscalers=unreadable)

    async def _together(self, questions: Sequence[Question]) -> Sequence[Answer]:
        began = time.monotonic()
        try:
            return await self._answers(questions)
        finally:
            if time.monotonic() - began > _SLOW_S:
                self._apart_until = time.monotonic() + _APART_S

    async def _in_parts(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Return the answers of one that has many: however many such there are, one part of one
        of them is under way, so that others never wait for more than that."""
        found: list[Answer] = []
        while len(found) < len(questions):
            async with self._apart:
                part = questions[len(found) : len(found) + MOST_METRICS_TOGETHER]
                answers = await self._answers(part)
            found += answers
            last = answers[-1]
            is_late = isinstance(last, Unavailable) and last.is_timeout
            if is_late and all(each is last for each in answers):
                break  # nor would the others be answered in time
        found += found[-1:] * (len(questions) - len(found))
        return found

    async def _answers(self, questions: Sequence[Question]) -> Sequence[Answer]:
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
        return [failure] * len(questions)


def _oldest(answers: Given, known: dict[int, float]) -> float:
    """Return when the oldest sample was taken; infinite where there is none: all failed."""
    oldest = _NONE
    for answer in answers:
        if type(answer) is PodSamples and type(answer.pods) is SampleColumns:
            if not answer.pods.names:
                continue
            at = answer.pods.oldest_s
            if at != at:
                at = answer.asked_s
        elif (at := known.get(id(answer), math.nan)) != at:
            at = known[id(answer)] = min(_times(answer))
        oldest = min(oldest, at)
    return oldest


def _times(answer: MetricAnswer | None) -> list[float]:
    match answer:
        case PodSamples(pods=pods, asked_s=asked_s):
            samples = list(pods.values())
        case ObjectSample(sample=sample, asked_s=asked_s):
            samples = [sample]
        case ExternalSamples(series=series, asked_s=asked_s):
            samples = [each.sample for each in series]
        case None | NotFound() | NoData() | Stale() | Unavailable() | Refused():
            return [_NONE]
        case _:
            raise TypeError(f"{type(answer).__name__} is no answer")
    for each in samples:
        if not INT64_MIN <= each.value_milli <= INT64_MAX:
            raise ValueError(f"{each.value_milli} is no number of milli-units in 64 bits")
    times = [asked_s if each.time_s is None else each.time_s for each in samples]
    return [_NONE, *(at for at in times if at != GO_ZERO_TIME_S)]  # of which no age is known


def _readable(answer: MetricAnswer | None) -> MetricAnswer | None:
    try:
        _oldest((answer,), {})
    except Exception as error:  # noqa: BLE001 - a provider of another package may answer anything
        return Unavailable("WrongAnswer", f"not readable: {type(error).__name__}: {error}")
    return answer
