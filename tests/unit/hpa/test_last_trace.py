"""What is kept of the newest decision of each autoscaler."""

from hpa.decide import Past, Settings, conclude, decide
from hpa.decide.decision import DONE
from hpa.history.last_trace import LastTrace
from podscale.core.metrics import ExternalSample, ExternalSamples, PodSamples, Sample
from tests.unit.hpa.decide.situations import NOW, listed, per_pod, pod, queue, seen, web
from tests.unit.hpa.world import in_columns


def test_three_metrics_of_ten_pods_take_ten_bytes_a_sample_and_come_back_as_they_were() -> None:
    names = [f"web-{row}" for row in range(10)]
    used = PodSamples(in_columns({each: Sample(500, NOW - 5.0, 30.0) for each in names}), NOW)
    waiting = ExternalSamples([ExternalSample({"namespace": "shop"}, Sample(9000, NOW - 5.0))], NOW)
    hpa = web(per_pod(500), per_pod(600, "load"), queue(1000))
    observation = seen(hpa, 10, listed(*[pod()] * 10), [used, used, waiting])
    done = conclude(decide(observation, Past(), Settings(), NOW), DONE, NOW)
    kept = LastTrace.of(done.trace, done.past)
    # Beyond 512 bytes an object is the allocator's alone: ten thousand of them leave holes.
    assert len(kept.answers) < 21 * 10 + 128
    assert kept.trace() == done.trace
