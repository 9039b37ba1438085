"""The questions of the autoscalers of one slot, asked together: one call of the provider.

A provider may be late, raise, or answer something else; each of these is a failed metric
with a reason, never a number.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import structlog
from msgspec import Struct

from hpa.cluster.record import AutoscalerRecord, AutoscalerView
from hpa.decide import schedules
from hpa.decide.api.spec import HPA, MOST_METRICS_TOGETHER
from hpa.decide.numbers import INT64_MAX, INT64_MIN
from hpa.decide.observation import MetricAnswer
from hpa.history.clock import SteadyClock
from hpa.loop.observe import is_question
from hpa.selfmetrics import HpaMetrics
from podscale.core import metrics as core
from podscale.core.samplecolumns import SampleColumns
from podscale.kube.client.wire import GO_ZERO_TIME_S

_log = structlog.get_logger()

PAGE = 64  # passes between two looks of the loop at others: some 5 ms
_PATIENCE_S = 1.0  # with scales that are read; passes whose scale takes longer ask alone
_MOST_WINDOWS = 200  # of schedules, looked for in one slot for one namespace: some 20 ms
_SLOW_S = 2.0  # an answer that took longer makes metrics be asked for apart ...
_APART_S = 300.0  # ... for so long
_NONE = float("inf")  # the time of no sample

MetricAnswers = tuple[MetricAnswer | None, ...]  # one for each question of a view, in order
_Waiter = tuple[AutoscalerView, "asyncio.Future[SlotAnswers]"]


class SlotAnswers(Struct, frozen=True, gc=False):
    """What one autoscaler decides on, and when. The times are one object for all of a page: a
    float less to keep for each past number."""

    metrics: MetricAnswers
    now: float  # monotonic
    unix: float


class SlotQuestions:
    """The questions of one slot, asked once all of its autoscalers have been observed."""

    def __init__(
        self, reader: "MetricsReader", clock: SteadyClock, records: Iterable[AutoscalerRecord]
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._observing = set(records)  # that may still come with questions
        self._waiting: list[_Waiter] = []
        self._are_observed = asyncio.Event()
        self._is_asked = not self._observing
        self._windows: Counter[str] = Counter()  # of schedules, by namespace

    async def answers(self, view: AutoscalerView) -> SlotAnswers:
        """Return the answers to what one autoscaler asks: with those of the others, unless it has
        too many questions or comes too late."""
        if self._is_asked or view.hpa.is_read_apart:
            self.leave(view.record)
            (metrics,) = await self._reader.about([view])
            self._clock.look()
            return SlotAnswers(metrics, self._clock.now(), self._clock.unix())
        waiter: asyncio.Future[SlotAnswers] = asyncio.get_running_loop().create_future()
        self._waiting.append((view, waiter))
        self.leave(view.record)
        return await waiter

    def may_find_windows(self, hpa: HPA, unix: float) -> bool:
        """Return whether the windows of its schedules may be looked for: their namespace has only
        so much of a slot, and another pass comes."""
        unknown = schedules.unknown(hpa.options.schedules, unix)
        self._windows[hpa.namespace] += unknown
        return not unknown or self._windows[hpa.namespace] <= _MOST_WINDOWS

    def leave(self, record: AutoscalerRecord) -> None:
        """Wait for ``record`` no more: it has asked, or has nothing to ask."""
        self._observing.discard(record)
        if not self._observing:
            self._are_observed.set()

    async def ask(self) -> None:
        """Ask for all, and hand out the answers page by page."""
        if self._is_asked:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._are_observed.wait()
        self._is_asked = True
        if not self._reader.is_slow:
            await self._answer(self._waiting)
            return
        async with asyncio.TaskGroup() as apart:
            for waiting in _by_metrics(self._waiting):
                apart.create_task(self._answer(waiting))

    def close(self) -> None:
        """End the passes that were not answered: the slot was cut short."""
        self._is_asked = True
        for _, waiter in self._waiting:
            waiter.cancel()

    async def _answer(self, waiting: Sequence[_Waiter]) -> None:
        metrics = await self._reader.about([view for view, _ in waiting])
        for first in range(0, len(waiting), PAGE):
            if first:
                await asyncio.sleep(0)
            self._clock.look()
            now, unix = self._clock.now(), self._clock.unix()
            for place in range(first, min(first + PAGE, len(waiting))):
                waiter = waiting[place][1]
                if not waiter.done():
                    waiter.set_result(SlotAnswers(metrics[place], now, unix))


@dataclass(eq=False)
class MetricsReader:
    """One provider, and how it has behaved lately."""

    provider: core.MetricsProvider
    metrics: HpaMetrics
    timeout_s: float
    wall: Callable[[], float]
    apart_until: float = -math.inf
    # Of autoscalers that are read apart, one part at a time.
    apart: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_slow(self) -> bool:
        """Whether different metrics are better asked for apart."""
        return time.monotonic() < self.apart_until

    async def about(self, views: Sequence[AutoscalerView]) -> list[MetricAnswers]:
        """Return the answers for each view. One that is to be read apart comes alone."""
        questions: list[core.Question] = [
            each for view in views for each in view.questions if is_question(each)
        ]
        is_apart = len(views) == 1 and views[0].hpa.is_read_apart
        read = self._in_parts if is_apart else self._together
        answers = iter(await read(questions) if questions else ())
        rows = [
            tuple([next(answers) if is_question(each) else each for each in view.questions])
            for view in views
        ]
        metrics = cast("list[MetricAnswers]", rows)
        self._note_ages(metrics)
        return metrics

    def _note_ages(self, rows: list[MetricAnswers]) -> None:
        """Observe the oldest sample of each view; what cannot be read is a failed metric."""
        now = self.wall()
        known: dict[int, float] = {}  # of answers that many were given, by identity
        unreadable = 0
        for place, answers in enumerate(rows):
            try:
                oldest = _oldest(answers, known)
                if -_NONE < oldest < _NONE:  # NaN is not, either
                    self.metrics.data_age.add((), max(now - oldest, 0.0))
            except Exception:  # noqa: BLE001 - as below; no other autoscaler hears of it
                unreadable += 1
                rows[place] = tuple(map(_readable, answers))
        if unreadable:
            _log.error("metrics provider failed", error="WrongAnswer", autoscalers=unreadable)

    async def _together(self, questions: Sequence[core.Question]) -> Sequence[core.Answer]:
        began = time.monotonic()
        try:
            return await self._answers(questions)
        finally:
            if time.monotonic() - began > _SLOW_S:
                self.apart_until = time.monotonic() + _APART_S

    async def _in_parts(self, questions: Sequence[core.Question]) -> Sequence[core.Answer]:
        """Return the answers of one that has many: however many such there are, one part of one
        of them is under way, so that others never wait for more than that."""
        found: list[core.Answer] = []
        while len(found) < len(questions):
            async with self.apart:
                part = questions[len(found) : len(found) + MOST_METRICS_TOGETHER]
                answers = await self._answers(part)
            found += answers
            last = answers[-1]
            is_late = isinstance(last, core.Unavailable) and last.is_timeout
            if is_late and all(each is last for each in answers):
                break  # nor would the others be answered in time
        found += found[-1:] * (len(questions) - len(found))
        return found

    async def _answers(self, questions: Sequence[core.Question]) -> Sequence[core.Answer]:
        try:
            async with asyncio.timeout(self.timeout_s):
                answers = await self.provider.answer(questions)
            if len(answers) == len(questions):
                return answers
            failure = core.Unavailable(
                "WrongAnswer", f"{len(answers)} answers to {len(questions)} questions"
            )
            _log.error("metrics provider failed", error=failure.message)
        except TimeoutError:
            failure = core.Unavailable(
                "MetricsTimeout", f"no answer within {self.timeout_s:g} s", is_timeout=True
            )
        except Exception as error:  # noqa: BLE001 - a provider of another package may do anything
            _log.exception("metrics provider failed")
            failure = core.Unavailable("ProviderFailed", f"{type(error).__name__}: {error}")
        return [failure] * len(questions)


def _oldest(answers: MetricAnswers, known: dict[int, float]) -> float:
    """Return when the oldest sample was taken; infinite where there is none: all failed."""
    oldest = _NONE
    for answer in answers:
        if type(answer) is core.PodSamples and type(answer.pods) is SampleColumns:
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
    if answer is None or isinstance(answer, core.Failure):
        return [_NONE]
    if not isinstance(answer, core.Samples):
        raise TypeError(f"{type(answer).__name__} is no answer")
    samples = core.samples_of(answer)
    for each in samples:
        if not INT64_MIN <= each.value_milli <= INT64_MAX:
            raise ValueError(f"{each.value_milli} is no number of milli-units in 64 bits")
    times = [answer.asked_s if each.time_s is None else each.time_s for each in samples]
    return [_NONE, *(at for at in times if at != GO_ZERO_TIME_S)]  # of which no age is known


def _readable(answer: MetricAnswer | None) -> MetricAnswer | None:
    try:
        _oldest((answer,), {})
    except Exception as error:  # noqa: BLE001 - a provider of another package may answer anything
        return core.Unavailable("WrongAnswer", f"not readable: {type(error).__name__}: {error}")
    return answer


def _by_metrics(waiting: Sequence[_Waiter]) -> list[list[_Waiter]]:
    """Return those that need the same metrics together: a slow one then delays only its own."""
    groups: dict[frozenset[str], list[_Waiter]] = {}
    for each in waiting:
        names = frozenset(f"{metric.type}/{metric.name}" for metric in each[0].hpa.metrics)
        groups.setdefault(names, []).append(each)
    return list(groups.values())
