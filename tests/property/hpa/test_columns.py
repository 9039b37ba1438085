"""Samples in columns decide as the same samples in a dict do, bit for bit."""

import os
from random import Random

import msgspec
from msgspec import structs

from hpa.decide.observation import MetricAnswer, Observation
from hpa.decide.pods import Pods
from hpa.decide.reconcile import decide
from hpa.decide.settings import Variation
from podscale.core.metrics import PodSamples, Sample
from tests.property.hpa import worlds
from tests.property.hpa.worlds import NOW
from tests.unit.hpa import world

SEED = 20_270_000
COUNT = 2_000 if os.environ.get("PODSCALE_SHORT") else 40_000
VARIATIONS = (Variation(), Variation(tolerance=False), Variation(averaged="missing"))


encode = msgspec.msgpack.Encoder().encode


def told(draw: Random, answer: MetricAnswer | None, pods: Pods) -> MetricAnswer | None:
    """Return the answer with one window for all samples, often from exactly these pods."""
    if not isinstance(answer, PodSamples):
        return answer
    found = dict(answer.pods)
    if draw.random() < 0.6:
        some = Sample(draw.randint(0, 30_000), NOW - 5)
        found = {name: found.get(name, some) for name in pods.names}
    window_s = draw.choice((None, 30.0))
    samples = {name: structs.replace(each, window_s=window_s) for name, each in found.items()}
    return structs.replace(answer, pods=samples)


def in_columns(answer: MetricAnswer | None) -> MetricAnswer | None:
    if not isinstance(answer, PodSamples):
        return answer
    return structs.replace(answer, pods=world.in_columns(answer.pods))


def test_columns_and_dicts_decide_alike() -> None:
    plain = 0
    for number in range(COUNT):
        draw = Random(SEED + number)
        seen, past = worlds.observation(draw), worlds.past(draw, NOW)
        settings, variation = worlds.settings(draw), draw.choice(VARIATIONS)
        seen = structs.replace(seen, answers=tuple(told(draw, a, seen.pods) for a in seen.answers))
        other: Observation = structs.replace(seen, answers=tuple(map(in_columns, seen.answers)))
        one = decide(seen, past, settings, NOW, variation)
        two = decide(other, past, settings, NOW, variation)
        # What differs is only how the samples were given.
        given = structs.replace(two.trace.observation, answers=seen.answers)
        trace = structs.replace(two.trace, observation=given)
        draft = two.draft and structs.replace(two.draft, trace=trace)
        two = structs.replace(two, trace=trace, draft=draft)
        assert encode(two) == encode(one), number
        plain += seen.pods.all_run() and any(
            isinstance(a, PodSamples) and tuple(a.pods) == seen.pods.names for a in seen.answers
        )
    assert plain > COUNT / 50
