"""Events: counted, combined, limited, never in the way."""

import asyncio
from typing import Any

import pytest

from podscale.kube.client.errors import NotLeading, TooManyRequests
from podscale.kube.events import (
    BURST,
    COMBINED,
    REFILL_S,
    Correlator,
    EventSeries,
    Occurrence,
    Recorder,
)
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


def written(correlator: Correlator, *, at: float, **kind: Any) -> EventSeries:
    occurrence = seen(time_s=at, **kind)
    key, _ = correlator.observe(occurrence)
    series = correlator.write(key, occurrence, at)
    assert series is not None
    correlator.written(key, "its name", at)
    return series


def test_equal_events_are_one_series():
    correlator = Correlator()
    for n in range(2):
        correlator.observe(seen(time_s=15.0 * n))
    last = written(correlator, at=30.0)
    assert (last.count, last.first_s, last.last_s) == (3, 0.0, 30.0)


def test_a_count_is_written_after_a_minute_then_every_five():
    correlator = Correlator()
    now, gaps = 0.0, []
    for _ in range(4):
        _, due = correlator.observe(seen(time_s=now))
        gaps.append(due - now)
        now = max(due, now)
        written(correlator, at=now)
    assert gaps == [float("-inf"), 60.0, 300.0, 300.0]
    _, due = correlator.observe(seen("another", time_s=now))
    assert due == float("-inf")


def test_a_newer_state_of_the_object_stays_in_its_series():
    correlator = Correlator()
    correlator.observe(seen())
    newer = ObjectReference(
        kind=HPA.kind, namespace="shop", name="web", uid="u1", api_version="autoscaling/v2",
        resource_version="99",
    )  # fmt: skip
    assert written(correlator, at=1.0, about=newer).count == 2


def test_many_different_messages_of_one_reason_are_combined():
    correlator = Correlator()
    texts = []
    for n in range(15):
        series = written(correlator, at=float(n), message=f"message {n}")
        texts.append((series.message, series.count))
    assert texts[8] == ("message 8", 1)
    assert texts[9] == (f"{COMBINED}message 9", 1)
    assert texts[14] == (f"{COMBINED}message 14", 6)
    _, due = correlator.observe(seen("message 15", time_s=15.0))
    assert due == float("-inf"), "what it says is new each time"


def test_messages_far_apart_are_not_combined():
    correlator = Correlator()
    observed = [written(correlator, at=601.0 * n, message=f"message {n}") for n in range(20)]
    assert all(not series.message.startswith(COMBINED) for series in observed)


def test_one_object_gets_a_burst_and_then_one_in_five_minutes():
    correlator = Correlator()

    def is_written(now: float, about: ObjectReference = HPA, time_s: float = 0.0) -> bool:
        occurrence = seen(time_s=time_s, about=about)
        key, _ = correlator.observe(occurrence)
        return correlator.write(key, occurrence, now) is not None

    assert sum(is_written(0.0) for _ in range(100)) == BURST
    assert not is_written(299.0)
    # By the time it is written, not by the time it happened: those may come in any order.
    assert not is_written(299.5, time_s=1e6)
    assert is_written(301.0)
    assert is_written(301.0, ObjectReference(kind="Pod", namespace="shop", name="web-1"))
    # What was not written was counted all the same.
    assert written(correlator, at=602.0).count == 104


def test_a_refused_one_waits_until_the_limit_may_let_it_through():
    correlator = Correlator()
    for n in range(BURST):
        written(correlator, at=0.0, message=f"message {n % 5}")
    occurrence = seen("message 9")
    key, due = correlator.observe(occurrence)
    assert due == float("-inf")
    assert correlator.write(key, occurrence, 1.0) is None
    _, due = correlator.observe(occurrence)
    assert due == REFILL_S  # for the object, and as news: the last of its reason was at 0


def test_why_nothing_scales_is_said_though_rescales_have_spent_the_budget():
    correlator = Correlator()

    def is_written(reason: str, message: str, now: float) -> bool:
        occurrence = Occurrence(HPA, "Warning", reason, message, now)
        key, _ = correlator.observe(occurrence)
        if correlator.write(key, occurrence, now) is None:
            return False
        correlator.written(key, "its name", now)
        return True

    for n in range(2 * BURST):
        is_written("SuccessfulRescale", f"New size: {n}", n)
    assert not is_written("SuccessfulRescale", "New size: 1", 99.0)
    silent = [is_written("FailedGetPodsMetric", f"since {n}", 100.0 + n) for n in range(100)]
    assert silent == [True] + [False] * 99
    assert not is_written("FailedGetPodsMetric", "since 0", 200.0)  # a count waits for the budget
    # Another outage, and how much all that can become.
    assert is_written("FailedGetPodsMetric", "since then", 100.0 + REFILL_S)
    count = sum(is_written("FailedGetPodsMetric", f"{n}", 401.0 + n) for n in range(3600))
    assert count <= 2 * 3600 / REFILL_S + 1


def test_news_that_could_not_be_written_is_tried_again_after_a_minute():
    correlator = Correlator()
    for n in range(BURST):
        written(correlator, at=0.0, message=f"message {n % 5}")
    news = Occurrence(HPA, "Warning", "FailedGetPodsMetric", "since 0", 100.0)

    def tried(now: float) -> EventSeries | None:
        key, due = correlator.observe(news)
        return correlator.write(key, news, now) if due <= now else None

    for now in (100.0, 160.0):  # refused by the API server both times
        series = tried(now)
        assert series is not None
        correlator.failed(news, series, now)
        assert [tried(now + later) for later in (15.0, 59.0)] == [None, None]
    assert tried(220.0) is not None
    # A count that fails is no news, and gives none back.
    key, _ = correlator.observe(news)
    correlator.written(key, "its name", 220.0)
    correlator.failed(news, EventSeries(2, 0.0, 0.0, "since 0", name="its name"), 220.0)
    other = Occurrence(HPA, "Warning", "FailedGetPodsMetric", "since 1", 290.0)
    key, _ = correlator.observe(other)
    assert correlator.write(key, other, 290.0) is None


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


async def test_too_much_that_waits_is_dropped_and_counted():
    recorder = Recorder(MemoryApi(LittleCluster()), "hpa", most=2)
    for n in range(5):
        recorder.event(HPA, "Normal", "R", f"message {n}")
    assert recorder.dropped == 3


@pytest.mark.looptime
async def test_a_repeated_event_is_counted_later():
    cluster = LittleCluster()
    recorder = Recorder(MemoryApi(cluster), "hpa")
    task = asyncio.create_task(recorder.run())
    for n in range(9):  # one each nine seconds
        recorder.event(HPA, "Normal", "R", "m")
        await asyncio.sleep(9.0)
        (event,) = events(cluster)
        assert event["count"] == (1 if n < 8 else 9)  # due after 60 s, written within 15 more
    recorder.event(HPA, "Normal", "R", "m")
    await asyncio.sleep(315.0)  # nothing happens any more: the last one is counted, too
    (event,) = events(cluster)
    assert event["count"] == 10
    assert len(cluster.requests) == 3
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.looptime
async def test_counts_are_written_together_and_no_series_twice_at_once():
    class Slow(MemoryApi):
        now, most = 0, 0

        async def request(self, *args: Any, **kwargs: Any) -> Any:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.5)
            try:
                return await super().request(*args, **kwargs)
            finally:
                self.now -= 1

    cluster = LittleCluster()
    api = Slow(cluster)
    recorder = Recorder(api, "hpa")
    task = asyncio.create_task(recorder.run())
    for _ in range(2):  # the second while the first is on its way, or has just been written
        for n in range(20):
            recorder.event(HPA, "Normal", f"R{n}", "m")
            await asyncio.sleep(0.02)
    await asyncio.sleep(90.0)
    assert sorted(event["count"] for event in events(cluster)) == [2] * 20
    assert 4 <= api.most <= 8
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.looptime
async def test_one_that_could_not_be_written_is_new_when_it_comes_again():
    cluster = LittleCluster()
    cluster.fault = lambda *_: Refusal(503, "ServiceUnavailable")
    recorder = Recorder(MemoryApi(cluster), "hpa")
    recorder.event(HPA, "Normal", "R", "m")
    await drained(recorder)
    assert (events(cluster), recorder.dropped) == ([], 1)
    cluster.fault = lambda *_: None
    task = asyncio.create_task(recorder.run())
    recorder.event(HPA, "Normal", "R", "m")
    await asyncio.sleep(1.0)
    assert [event["count"] for event in events(cluster)] == [2]
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.looptime
async def test_news_that_the_server_refuses_once_is_written_beside_the_budget_all_the_same():
    cluster = LittleCluster()
    recorder = Recorder(MemoryApi(cluster), "hpa")
    for n in range(BURST):
        recorder.event(HPA, "Normal", f"R{n}", "m")
    await drained(recorder)
    cluster.fault = lambda *_: Refusal(403, "Forbidden")
    recorder.event(HPA, "Warning", "FailedGetPodsMetric", "m")
    await drained(recorder)
    cluster.fault = lambda *_: None
    task = asyncio.create_task(recorder.run())
    for _ in range(6):
        recorder.event(HPA, "Warning", "FailedGetPodsMetric", "m")
        await asyncio.sleep(15.0)
    assert "FailedGetPodsMetric" in {event["reason"] for event in events(cluster)}
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.looptime
async def test_without_the_lease_what_waits_is_left_to_the_leader_at_once():
    class Elsewhere(MemoryApi):
        is_ours = False

        async def request(self, *args: Any, **kwargs: Any) -> Any:
            if not self.is_ours:
                raise NotLeading("another one leads")
            return await super().request(*args, **kwargs)

    cluster = LittleCluster()
    api = Elsewhere(cluster)
    recorder = Recorder(api, "hpa")
    began = asyncio.get_running_loop().time()
    for n in range(5):
        recorder.event(HPA, "Normal", f"R{n}", "m")
    await drained(recorder)
    assert recorder.dropped == 5
    assert asyncio.get_running_loop().time() == began
    api.is_ours = True
    recorder.event(HPA, "Normal", "R0", "m")
    await drained(recorder)
    assert [event["count"] for event in events(cluster)] == [2]


@pytest.mark.looptime
async def test_counts_leave_room_to_what_is_new():
    cluster = LittleCluster()
    recorder = Recorder(MemoryApi(cluster), "hpa", most=4)
    for n in range(4):
        recorder.event(HPA, "Normal", f"R{n}", "m")
    await drained(recorder)
    for n in range(4):
        recorder.event(HPA, "Normal", f"R{n}", "m")
    assert recorder.dropped == 2
    recorder.event(HPA, "Normal", "new", "m")
    assert recorder.dropped == 2
    await drained(recorder)
    assert sorted(event["count"] for event in events(cluster)) == [1, 1, 1, 2, 2]


@pytest.mark.looptime
async def test_one_that_is_to_wait_for_an_hour_waits_half_a_minute_as_do_those_behind_it():
    class Proxied(MemoryApi):
        async def request(self, *args: Any, **kwargs: Any) -> Any:
            asked.append(loop.time())
            if len(asked) == 1:
                raise TooManyRequests(429, "", "later", retry_after_s=3600.0)
            return await super().request(*args, **kwargs)

    loop, asked = asyncio.get_running_loop(), list[float]()
    cluster = LittleCluster()
    recorder = Recorder(Proxied(cluster), "hpa")
    for n in range(2):
        recorder.event(HPA, "Normal", f"R{n}", "m")
    task = asyncio.create_task(recorder.run())
    await asyncio.sleep(1.0)
    recorder.event(HPA, "Normal", "behind", "m")
    await asyncio.sleep(31.0)
    assert len(events(cluster)) == 3
    assert recorder.dropped == 0
    task.cancel()
    await asyncio.wait({task})
