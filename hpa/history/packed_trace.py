"""Traces as bytes: their inputs alone. The steps are made again when somebody asks."""

from collections.abc import Sequence
from numbers import Integral, Real

import msgspec
from msgspec import structs

from hpa.decide import replay
from hpa.decide.decision import Trace
from hpa.decide.observation import MetricAnswer
from podscale.core.metrics import PodSamples
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
_decode = msgspec.msgpack.Decoder(Trace).decode


def encode(trace: Trace) -> bytes:
    """Return all inputs of a trace as bytes, with samples by name in place of columns."""
    seen = trace.observation
    answers = tuple(map(_plain_answer, seen.answers))
    return _encode(
        structs.replace(trace, observation=structs.replace(seen, answers=answers), steps=())
    )


def decode(packed: bytes) -> Trace:
    """Return the trace that was packed, with its steps."""
    found = _decode(packed)
    made = replay(found).trace
    return structs.replace(made, outcome=found.outcome, outcome_at=found.outcome_at)


def _plain_answer(answer: MetricAnswer | None) -> MetricAnswer | None:
    if type(answer) is PodSamples and type(answer.pods) is SampleColumns:
        # The columns may stay for a period, what is made of them here need not.
        by_name = structs.replace(answer.pods, by_name=None).as_dict()
        return structs.replace(answer, pods=by_name)
    return answer
