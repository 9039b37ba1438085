"""What is kept of the newest decision of each autoscaler."""

import pytest
from msgspec import structs

from hpa.decide.conclusion import conclude
from hpa.decide.decision import DONE
from hpa.decide.observation import ExpectedDemand, HeldTarget, Observation, Past, Scale
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from hpa.history.decision_log import PackedTrace
from podscale.core.metrics import ExternalSample, ExternalSamples, PodSamples, Sample, SampleGap
from tests.unit.hpa.decide.situations import NOW, listed, per_pod, pod, queue, seen, web
from tests.unit.hpa.world import in_columns


def test_three_metrics_of_ten_pods_take_ten_bytes_a_sample_and_come_back_as_they_were() -> None:
    names = [f"web-{row}" for row in range(10)]
    used = PodSamples(in_columns({each: Sample(500, NOW - 5.0, 30.0) for each in names}), NOW)
    waiting = ExternalSamples([ExternalSample({"namespace": "shop"}, Sample(9000, NOW - 5.0))], NOW)
    hpa = web(per_pod(500), per_pod(600, "load"), queue(1000))
    observation = seen(hpa, 10, listed(*[pod()] * 10), [used, used, waiting])
    done = conclude(decide(observation, Past(), Settings(), NOW), DONE, NOW)
    kept = PackedTrace.of(done.trace)
    # Beyond 512 bytes an object is the allocator's alone: ten thousand of them leave holes.
    assert len(kept.answers) < 21 * 10 + 192
    assert kept.trace() == done.trace


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
    assert PackedTrace.of(trace.trace).trace().observation.answers == (queued, used)


@pytest.mark.parametrize("field", structs.fields(Observation), ids=lambda field: field.name)
def test_whatever_was_observed_is_kept(field: structs.FieldInfo) -> None:
    """A decision is explained from what it rested on, and from nothing less."""
    plain = Observation(web(per_pod(500)), Scale(2, 2, "app=web"), listed(pod(), pod()))
    observation = structs.replace(plain, **{field.name: SEEN[field.name]})
    trace = decide(observation, Past(), Settings(), NOW).trace
    assert PackedTrace.of(trace).trace() == trace
