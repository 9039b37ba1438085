"""Traces as they are kept: their inputs, packed. The steps are made again when somebody asks."""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real

import msgspec
from msgspec import Struct, structs

from hpa.decide import decide
from hpa.decide.decision import Trace
from hpa.decide.observation import MetricAnswer
from podscale.core.metrics import ExternalSample, ExternalSamples, PodSamples, Sample, SampleGap
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
    """Return all inputs of a trace as bytes, with samples by name in place of columns."""
    seen = trace.observation
    answers = tuple(map(_plain_answer, seen.answers))
    return _encode(
        structs.replace(trace, observation=structs.replace(seen, answers=answers), steps=())
    )


class _Columns(Struct, frozen=True, gc=False, array_like=True, tag=0):
    """Samples in columns as they are; without names they are those of the pods, in order."""

    values: bytes
    times: bytes  # one for all of them, where they are equal
    window_s: float | None
    asked_s: float
    names: tuple[str, ...] | None
    gap: SampleGap | None

    def answer(self, pods: tuple[str, ...]) -> PodSamples:
        names = pods if self.names is None else self.names
        held = SampleColumns(names, self.values, self.times, self.window_s)
        return PodSamples(held, self.asked_s, gap=self.gap)


class _Series(Struct, frozen=True, gc=False, array_like=True, tag=1):
    labels: Mapping[str, str]
    value_milli: int
    time_s: float | None
    window_s: float | None
    asked_s: float
    left_out: int
    answered_by: str
    gap: SampleGap | None

    def answer(self, _pods: tuple[str, ...]) -> ExternalSamples:
        series = ExternalSample(self.labels, Sample(self.value_milli, self.time_s, self.window_s))
        rest = self.left_out, self.answered_by, self.gap
        return ExternalSamples([series], self.asked_s, *rest)


class _Whole(Struct, frozen=True, gc=False, array_like=True, tag=2):
    """Any other answer."""

    given: MetricAnswer | None

    def answer(self, _pods: tuple[str, ...]) -> MetricAnswer | None:
        return self.given


_Small = _Columns | _Series | _Whole
_answers = msgspec.msgpack.Decoder(tuple[_Small, ...])


class PackedTrace(Struct, frozen=True, gc=False):
    """The inputs of an autoscaler's newest trace: the answers as bytes, the rest lives elsewhere
    anyway.

    Ten thousand object graphs would cost the collector 150 ms; everything as bytes, twice the
    memory.
    """

    rest: Trace  # without steps and answers
    answers: bytes

    @classmethod
    def of(cls, trace: Trace) -> "PackedTrace":
        seen = trace.observation
        answers = _encode([_small(each, seen.pods.names) for each in seen.answers])
        seen = structs.replace(seen, answers=())
        return cls(structs.replace(trace, observation=seen, steps=()), answers)

    def trace(self) -> Trace:
        rest, pods = self.rest, self.rest.observation.pods.names
        answers = tuple(each.answer(pods) for each in _answers.decode(self.answers))
        seen = structs.replace(rest.observation, answers=answers)
        made = decide(seen, rest.past, rest.settings, rest.now).trace
        return structs.replace(made, outcome=rest.outcome, outcome_at=rest.outcome_at)


def _small(answer: MetricAnswer | None, pods: tuple[str, ...]) -> _Small:
    """Return an answer in the smallest form that holds it."""
    if type(answer) is PodSamples and type(answer.pods) is SampleColumns and not answer.stale:
        held = answer.pods
        times = held.times_raw
        if times[:8] * len(held.names) == times:
            times = times[:8]  # of one scrape, or not known
        own = None if held.names == pods else held.names
        return _Columns(held.values_raw, times, held.window_s, answer.asked_s, own, answer.gap)
    if type(answer) is ExternalSamples and len(answer.series) == 1:
        one = answer.series[0]
        value, time_s, window_s = structs.astuple(one.sample)
        rest = answer.asked_s, answer.left_out, answer.answered_by, answer.gap
        return _Series(one.labels, value, time_s, window_s, *rest)
    return _Whole(_plain_answer(answer))
