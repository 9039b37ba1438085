"""Decisions kept for questions: the last in full, before it those at which something changed.

A change is another size decided, or other steps on the way to it; in between the kept
trace speaks for the passes that followed. Packed are the inputs alone: the steps follow from them.
"""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct, structs

from hpa.cluster.record import Key
from hpa.decide.decision import Measured, Trace
from hpa.decide.metrics.measuring import Valid
from hpa.decide.observation import MetricAnswer, Scale
from hpa.decide.reconcile import decide, replay
from hpa.explain.explanation import first_reason
from podscale.core.metrics import PodSamples, SampleGap, Unavailable
from podscale.core.samplecolumns import SampleColumns
from podscale.explain.decision_history import ChangeRing, DecisionHistory
from podscale.kube.objects.pod import TemplateContainer, WirePodTemplate

_decoder = msgspec.msgpack.Decoder(Trace, dec_hook=lambda kind, value: kind(value))  # of times


class AutoscalerLog(ChangeRing):
    """The traces of one autoscaler. Of pods by the thousand only the last is kept."""

    __slots__ = ("decided", "last")

    least = 0
    last: "PackedTrace"

    def __init__(self) -> None:
        super().__init__()
        self.decided: int | None = None  # in a pass that came to its end


class Follower(Protocol):
    """Who is told of every decision, from the pass that made it."""

    def decided(self, key: Key, trace: Trace, reason: str) -> None:
        """A decision was kept."""

    def forgotten(self, key: Key | None) -> None:
        """The autoscaler is gone; None: another leader decides from now on."""


class DecisionLog(DecisionHistory[Key, AutoscalerLog]):
    def __init__(self) -> None:
        super().__init__(AutoscalerLog)
        self.follower: Follower | None = None

    def put(self, key: Key, trace: Trace) -> str:
        """Keep one decision; returns its first reason, computed only where steps changed."""
        log = self.of(key)
        log.at, log.last = trace.now, PackedTrace.of(trace)
        if trace.decided is not None and _came_to_its_end(trace):
            log.decided = trace.decided
        mark = hash(shape_of(trace))
        if mark != log.mark:
            log.add(trace.now, mark, first_reason(trace), encode(trace))
        if self.follower is not None:
            self.follower.decided(key, trace, log.reason)
        return log.reason

    def last(self, key: Key) -> Trace | None:
        log = self._rings.get(key)
        return None if log is None else log.last.trace()

    def decided(self, key: Key) -> int | None:
        """Return the size decided last, in a pass that came to its end; None: in none yet.

        As upstream's gauge, which neither a metric nor a scale that fails moves.
        """
        log = self._rings.get(key)
        return None if log is None else log.decided

    def at(self, key: Key, time_s: float) -> Trace | None:
        """Return the trace that was in force at ``time_s``; None: that is not known any more."""
        log = self._rings.get(key)
        if log is not None and log.at <= time_s:
            return log.last.trace()
        plain = self.before(key, time_s)
        if plain is None:
            return None
        found = _decoder.decode(plain)  # without its steps
        made = replay(found).trace
        return structs.replace(made, outcome=found.outcome, outcome_at=found.outcome_at)

    def forget(self, key: Key) -> None:
        super().forget(key)
        if self.follower is not None:
            self.follower.forgotten(key)

    def clear(self) -> None:
        super().clear()
        if self.follower is not None:
            self.follower.forgotten(None)


def _came_to_its_end(trace: Trace) -> bool:
    return trace.outcome is None or trace.outcome.scale in ("written", "not_tried")


def shape_of(trace: Trace) -> tuple[object, ...]:
    """Return what has to differ for a decision to count as another one."""
    scale = trace.observation.scale
    outcome = trace.outcome
    size = scale.spec_replicas if isinstance(scale, Scale) else None
    steps: list[object] = [
        trace.decided,
        size,
        None if outcome is None else outcome.scale,
    ]
    count = len(trace.observation.pods.names)
    for step in trace.steps:
        if isinstance(step, Measured):
            result = step.result
            if isinstance(result, Valid):
                found, groups = result.calculation, result.calculation.groups
                is_plain = groups is None or groups.ready == count
                buckets = None if is_plain or groups is None else groups.filled
                steps.append((found.replicas, found.outcome, buckets))
            else:
                # An outage becomes known after a while, and then its beginning is told too.
                failure = result.failure
                since_s = failure.since_s if isinstance(failure, Unavailable) else None
                steps.append((result.cause, step.fallback, since_s))
        else:
            steps.append(type(step))
    return tuple(steps)


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


def _plain_template(template: WirePodTemplate) -> WirePodTemplate:
    """Return what decisions read of a template: its exact amounts may need more than 64 bits."""
    return WirePodTemplate(
        tuple(map(_plain_container, template.containers)),
        tuple(map(_plain_container, template.init_containers)),
        template.pod_requests_milli,
        template.overhead_milli,
    )


def _plain_container(container: TemplateContainer) -> TemplateContainer:
    return TemplateContainer(
        container.name, container.requests_milli, is_sidecar=container.is_sidecar
    )


def encode(trace: Trace) -> bytes:
    """Return the inputs of a trace as bytes, with samples by name in place of columns."""
    seen = trace.observation
    pods = structs.replace(seen.pods, templates=tuple(map(_plain_template, seen.pods.templates)))
    seen = structs.replace(seen, pods=pods, answers=tuple(map(_plain_answer, seen.answers)))
    return _encode(structs.replace(trace, observation=seen, steps=()))


class _Columns(NamedTuple):
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


_Small = _Columns | MetricAnswer | None
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
        answers = tuple(
            each.answer(pods) if isinstance(each, _Columns) else each
            for each in _answers.decode(self.answers)
        )
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
    return _plain_answer(answer)
