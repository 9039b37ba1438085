"""The newest decision of one autoscaler, in as little memory as its inputs take."""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real

import msgspec
from msgspec import Struct, structs

from hpa.decide import decide
from hpa.decide.api.spec import HPA
from hpa.decide.decision import Outcome, Trace
from hpa.decide.observation import (
    ExpectedDemand,
    MetricAnswer,
    Observation,
    Past,
    Recommendation,
    Scale,
    ScaleUnreadable,
)
from hpa.decide.pods import Pods
from hpa.decide.settings import Settings
from podscale.core.metrics import ExternalSample, ExternalSamples, PodSamples, Sample
from podscale.core.samplecolumns import SampleColumns


def _plain_of(value: object) -> object:
    if isinstance(value, Sequence):
        return list(value)  # external samples that are made when somebody looks
    # Of a provider of another package: numpy's numbers, or any other class of them.
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise NotImplementedError(f"a trace holds a {type(value).__name__}")


_encode = msgspec.msgpack.Encoder(enc_hook=_plain_of).encode


def _plain_answer(answer: MetricAnswer | None) -> MetricAnswer | None:
    if type(answer) is PodSamples and type(answer.pods) is SampleColumns:
        return structs.replace(answer, pods=answer.pods.as_dict())
    return answer


def encode(trace: Trace) -> bytes:
    """Return the trace as it is stored: with samples by name in place of columns, and without its
    steps, which are made again."""
    seen = trace.observation
    answers = tuple(map(_plain_answer, seen.answers))
    return _encode(
        structs.replace(trace, observation=structs.replace(seen, answers=answers), steps=())
    )


class _Columns(Struct, frozen=True, gc=False, array_like=True):
    """Samples in columns as they are; without names they are those of the pods, in order."""

    values: bytes
    times: bytes  # one for all of them, where they are equal
    window_s: float | None
    asked_s: float
    names: tuple[str, ...] | None


class _Series(Struct, frozen=True, gc=False, array_like=True):
    """The one series of an external metric."""

    labels: Mapping[str, str]
    value_milli: int
    time_s: float | None
    window_s: float | None
    asked_s: float
    left_out: int


class _Answers(Struct, frozen=True, gc=False, array_like=True):
    """The answers of a trace, each in the first of the three forms that holds it."""

    columns: tuple[_Columns | None, ...]
    series: tuple[_Series | None, ...]
    others: tuple[MetricAnswer | None, ...]


_answers = msgspec.msgpack.Decoder(_Answers)


class LastTrace(Struct, frozen=True, gc=False):
    """The newest trace, as its inputs: the answers as bytes, the rest lives elsewhere anyway. Its
    steps are made again when somebody asks.

    Ten thousand object graphs would cost the collector 150 ms; everything as bytes, twice the
    memory.
    """

    hpa: HPA
    scale: Scale | ScaleUnreadable
    pods: Pods
    past: Past
    slot: int  # -1: ``past`` is as it was; else as it became, by this recommendation
    old: Recommendation | None  # what was in the slot; None: nothing, it is the last one
    settings: Settings
    now: float
    answers: bytes
    rivals: tuple[str, ...]
    same_target: tuple[str, ...]
    expected: ExpectedDemand | None
    outcome: Outcome | None
    outcome_at: float | None

    @classmethod
    def of(cls, trace: Trace, after: Past | None = None) -> "LastTrace":
        """Return what is kept of ``trace``; ``after`` is kept elsewhere as what became of its
        past, so that nothing of the past is kept twice."""
        seen, past = trace.observation, trace.past
        slot, old = -1, None
        if after is not None and (found := _slot(past, after)) is not None:
            past, (slot, old) = after, found
        names = seen.pods.names
        columns: list[_Columns | None] = []
        series: list[_Series | None] = []
        others: list[MetricAnswer | None] = []
        for each in seen.answers:
            one = _one_series(each)
            series.append(one)
            if type(each) is PodSamples and type(each.pods) is SampleColumns and not each.stale:
                held = each.pods
                own = None if held.names == names else held.names
                times = held.times_raw
                if times[:8] * len(held.names) == times:
                    times = times[:8]  # of one scrape, or not known
                columns.append(_Columns(held.values_raw, times, held.window_s, each.asked_s, own))
                others.append(None)
            else:
                columns.append(None)
                others.append(None if one is not None else _plain_answer(each))
        return cls(
            seen.hpa,
            seen.scale,
            seen.pods,
            past,
            slot,
            old,
            trace.settings,
            trace.now,
            _encode(_Answers(tuple(columns), tuple(series), tuple(others))),
            seen.rivals,
            seen.same_target,
            seen.expected,
            trace.outcome,
            trace.outcome_at,
        )

    def trace(self) -> Trace:
        """Return the trace as it was."""
        found = _answers.decode(self.answers)
        answers = tuple(
            _samples(columns, self.pods.names) if columns else _external(one) if one else other
            for columns, one, other in zip(found.columns, found.series, found.others, strict=True)
        )
        seen = Observation(
            self.hpa, self.scale, self.pods, answers, self.rivals, self.same_target, self.expected
        )
        past = self.past
        if self.slot >= 0:
            past = structs.replace(past, recommendations=_without(past, self.slot, self.old))
        made = decide(seen, past, self.settings, self.now).trace
        return structs.replace(made, outcome=self.outcome, outcome_at=self.outcome_at)


def _slot(before: Past, after: Past) -> tuple[int, Recommendation | None] | None:
    """Return the slot in which ``after`` has another recommendation, and what was in it;
    ``None``: they differ otherwise."""
    one, other = before.recommendations, after.recommendations
    if not one or not other or structs.replace(before, recommendations=other) != after:
        return None
    if len(other) == len(one) + 1 and other[:-1] == one:
        return len(one), None
    places = [place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a is not b]
    if len(places) != 1 or len(one) != len(other):
        return None
    return places[0], one[places[0]]


def _without(past: Past, slot: int, old: Recommendation | None) -> tuple[Recommendation, ...]:
    found = past.recommendations or ()
    return found[:slot] + (() if old is None else (old,)) + found[slot + 1 :]


def _samples(columns: _Columns, names: tuple[str, ...]) -> PodSamples:
    own = names if columns.names is None else columns.names
    held = SampleColumns(own, columns.values, columns.times, columns.window_s)
    return PodSamples(held, columns.asked_s)


def _one_series(answer: MetricAnswer | None) -> _Series | None:
    if type(answer) is not ExternalSamples or len(answer.series) != 1:
        return None
    one, asked_s = answer.series[0], answer.asked_s
    held = one.sample
    return _Series(
        one.labels, held.value_milli, held.time_s, held.window_s, asked_s, answer.left_out
    )


def _external(one: _Series) -> ExternalSamples:
    sample = Sample(one.value_milli, one.time_s, one.window_s)
    return ExternalSamples([ExternalSample(one.labels, sample)], one.asked_s, one.left_out)
