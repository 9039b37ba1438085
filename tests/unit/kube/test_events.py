"""Events: counted, combined, limited, never in the way."""

import asyncio

import pytest

from podscale.kube.correlation import BURST, COMBINED, Correlator, Occurrence
from podscale.kube.events import Recorder
from podscale.kube.objects.cluster import ObjectReference
from tests.unit.kube.little import LittleCluster, MemoryApi, Refusal

HPA = ObjectReference(
    kind="HorizontalPodAutoscaler",
    namespace="shop",
    name="web",
    uid="u1",
    api_version="autoscaling/v2",
)


def seen(message: str = "m", time_s: float = 0.0, about: ObjectReference = HPA) -> Occurrence:
    return Occurrence(about, "Warning", "FailedGetScale", message, time_s)


def test_equal_events_are_one_series():
    correlator = Correlator()
    counts = [correlator.observe(seen(time_s=15.0 * n)) for n in range(3)]
    assert [series.count for _, series in filter(None, counts)] == [1, 2, 3]
    _, last = counts[-1] or (None, None)
    assert last is not None
    assert (last.first_s, last.last_s) == (0.0, 30.0)


def test_a_newer_state_of_the_object_stays_in_its_series():
    correlator = Correlator()
    correlator.observe(seen())
    newer = ObjectReference(
        kind=HPA.kind, namespace="shop", name="web", uid="u1", api_version="autoscaling/v2",
        resource_version="99",
    )  # fmt: skip
    observed = correlator.observe(seen(about=newer))
    assert observed is not None
    assert observed[1].count == 2


def test_many_different_messages_of_one_reason_are_combined():
    correlator = Correlator()
    texts = []
    for n in range(15):
        observed = correlator.observe(seen(f"message {n}", time_s=float(n)))
        assert observed is not None
        texts.append((observed[1].message, observed[1].count))
    assert texts[8] == ("message 8", 1)
    assert texts[9] == (f"{COMBINED}message 9", 1)
    assert texts[14] == (f"{COMBINED}message 14", 6)


def test_messages_far_apart_are_not_combined():
    correlator = Correlator()
    observed = [correlator.observe(seen(f"message {n}", time_s=601.0 * n)) for n in range(20)]
    assert all(o is not None and not o[1].message.startswith(COMBINED) for o in observed)


def test_one_object_gets_a_burst_and_then_one_in_five_minutes():
    correlator = Correlator()
    sent = [correlator.observe(seen(time_s=0.0)) is not None for _ in range(100)]
    assert sum(sent) == BURST
    assert correlator.observe(seen(time_s=299.0)) is None
    assert correlator.observe(seen(time_s=301.0)) is not None
    other = ObjectReference(kind="Pod", namespace="shop", name="web-1")
    assert correlator.observe(seen(about=other)) is not None


def events(cluster: LittleCluster) -> list[dict]:
    return [obj for path, obj in cluster.objects.items() if "/events/" in path]


async def drained(recorder: Recorder) -> None:
    task = asyncio.create_task(recorder.run())
    await recorder.flush(60)
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.looptime
async def test_an_event_is_created_and_then_counted():
    cluster = LittleCluster()
    recorder = Recorder(MemoryApi(cluster), "horizontal-pod-autoscaler", clock=lambda: 1.7e9)
    for _ in range(3):
        recorder.event(HPA, "Normal", "SuccessfulRescale", "New size: 3; reason: because")
    await drained(recorder)
    (event,) = events(cluster)
    assert (event["count"], event["type"], event["reason"]) == (3, "Normal", "SuccessfulRescale")
    assert event["involvedObject"] == {
        "kind": "HorizontalPodAutoscaler",
        "namespace": "shop",
        "name": "web",
        "uid": "u1",
        "apiVersion": "autoscaling/v2",
    }
    assert event["source"] == {"component": "horizontal-pod-autoscaler"}
    assert event["firstTimestamp"] == "2023-11-14T22:13:20Z"
    assert event["metadata"]["namespace"] == "shop"


@pytest.mark.looptime
async def test_an_event_whose_object_expired_is_created_again():
    cluster = LittleCluster()
    recorder = Recorder(MemoryApi(cluster), "hpa")
    recorder.event(HPA, "Normal", "R", "m")
    await drained(recorder)
    for path in [path for path in cluster.objects if "/events/" in path]:
        cluster.delete(path)
    recorder.event(HPA, "Normal", "R", "m")
    await drained(recorder)
    assert [event["count"] for event in events(cluster)] == [2]


@pytest.mark.looptime
async def test_a_failing_server_is_tried_again_and_a_refusal_is_not():
    cluster = LittleCluster()
    failures = [Refusal(503, "ServiceUnavailable"), Refusal(429, "TooManyRequests")]
    cluster.fault = lambda *_: failures.pop() if failures else None
    recorder = Recorder(MemoryApi(cluster), "hpa")
    recorder.event(HPA, "Normal", "R", "m")
    await drained(recorder)
    assert len(events(cluster)) == 1
    cluster.fault = lambda *_: Refusal(403, "Forbidden")
    asked = len(cluster.requests)
    recorder.event(HPA, "Normal", "R2", "m")
    await drained(recorder)
    assert len(cluster.requests) == asked + 1
    assert recorder.dropped == 1


async def test_a_full_queue_drops_and_counts_instead_of_waiting():
    recorder = Recorder(MemoryApi(LittleCluster()), "hpa", queue=2)
    for _ in range(5):
        recorder.event(HPA, "Normal", "R", "m")
    assert recorder.dropped == 3
