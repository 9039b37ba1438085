"""Whatever a decision rested on is packed with its trace."""

import pytest
from msgspec import structs

from hpa.decide import Observation, Past, Scale, Settings, decide
from hpa.decide.observation import ExpectedDemand, HeldTarget
from hpa.history.packed_trace import decode, encode
from podscale.core.metrics import ExternalSample, ExternalSamples, PodSamples, Sample, SampleGap
from tests.unit.hpa.decide.situations import NOW, listed, per_pod, pod, queue, seen, web
from tests.unit.hpa.world import in_columns

SEEN = {
    "hpa": web(per_pod(500)),
    "scale": Scale(2, 2, "app=web"),
    "pods": listed(pod(), pod()),
    "answers": (PodSamples({}, NOW),),
    "rivals": ("other",),
    "same_target": ("another",),
    "expected": ExpectedDemand(5.0, NOW, 9.0, "day", 300.0),
    "held": HeldTarget("NoAnchor", "a VPA that is not known yet", may_shrink=False),
}


def test_whose_answer_it_was_and_its_gap_are_kept() -> None:
    gap = SampleGap(NOW - 60, NOW - 30, 120.0, NOW + 120)
    one = ExternalSample({}, Sample(9000, NOW))
    queued = ExternalSamples([one], NOW, answered_by="keda", gap=gap)
    used = PodSamples(in_columns({"web-0": Sample(500, NOW), "web-1": Sample(500, NOW)}), NOW)
    used = structs.replace(used, gap=gap)
    hpa = web(queue(1000), per_pod(500))
    trace = decide(seen(hpa, 2, listed(pod(), pod()), [queued, used]), Past(), Settings(), NOW)
    assert decode(encode(trace.trace)).observation.answers == (queued, used)


@pytest.mark.parametrize("field", structs.fields(Observation), ids=lambda field: field.name)
def test_whatever_was_observed_is_kept(field: structs.FieldInfo) -> None:
    """A decision is explained from what it rested on, and from nothing less."""
    plain = Observation(web(per_pod(500)), Scale(2, 2, "app=web"), listed(pod(), pod()))
    observation = structs.replace(plain, **{field.name: SEEN[field.name]})
    trace = decide(observation, Past(), Settings(), NOW).trace
    assert decode(encode(trace)) == trace
