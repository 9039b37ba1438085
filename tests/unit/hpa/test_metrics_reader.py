"""What a provider answers: how old it is, and what becomes of what cannot be read."""

import asyncio
import math
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from hpa.decide.settings import Settings
from hpa.selfmetrics import AGES
from podscale.core.metrics import (
    ContainerColumns,
    ExternalSample,
    ExternalSamples,
    NoData,
    ObjectSample,
    PodSamples,
    Sample,
    Stale,
    Unavailable,
)
from podscale.kube.leadership.lease import Term
from tests.unit.hpa.world import (
    NS,
    POD_METRIC,
    Cluster,
    deployment_object,
    hpa_object,
    in_columns,
    pod_object,
)

pytestmark = pytest.mark.looptime
SETTINGS = Settings(sync_period_s=15.0)


def at(*times: float | None) -> dict[str, Sample]:
    return {f"web-{n}": Sample(1000, time_s) for n, time_s in enumerate(times)}


async def ages(*answers: Any) -> list[float]:
    """Return the ages of a pass at time 1000 with these answers, one of each metric; as bounds."""
    cluster = Cluster(settings=SETTINGS, wall=lambda: 1000.0)
    metrics = [
        {"type": "Pods", "pods": {**POD_METRIC["pods"], "metric": {"name": f"m{n}"}}}  # type: ignore[dict-item]
        for n, _ in enumerate(answers)
    ]
    cluster.put(hpa_object("web", *metrics), deployment_object("web", 2))
    cluster.put_pods(pod_object("web", 0), pod_object("web", 1))
    cluster.provider.answer_with = lambda question: answers[int(question.metric[1:])]  # type: ignore[union-attr]
    await cluster.run_for(1.0)
    counts = cluster.metrics.data_age.counts.get((), [])
    assert all(map(math.isfinite, cluster.metrics.data_age.sums.values()))
    found = zip((*AGES, math.inf), counts, strict=False)
    return [bound for bound, count in found for _ in range(count)]


FAILURES = (
    Unavailable("MetricsTimeout", "late"),
    NoData("NoData", "nothing"),
    Stale("Stale", "old"),
)


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failed_metric_has_no_age(failure: Any) -> None:
    assert await ages(failure) == []
    assert await ages(failure, PodSamples(in_columns(at(960.0, 960.0)), 1000.0)) == [45.0]


@pytest.mark.parametrize("many", [0, 100])
@pytest.mark.parametrize(
    ("times", "age"),
    [
        ((990.0, 960.0), 45.0),
        ((960.0, 990.0), 45.0),
        ((None, 960.0), 45.0),
        ((990.0, None, 960.0), 45.0),
        ((990.0, 960.0, None), 45.0),
        ((None, None), 5.0),
        ((1010.0, 1010.0), 1.0),
    ],
)
async def test_the_oldest_sample_counts_wherever_it_stands(
    times: tuple[float | None, ...], age: float, many: int
) -> None:
    samples = at(*times, *[1001.0 if age == 1.0 else times[0]] * many)
    assert await ages(PodSamples(in_columns(samples), 996.0)) == [age]
    if None not in times:
        assert await ages(PodSamples(samples, 996.0)) == [age]
        series = [ExternalSample({}, each) for each in samples.values()]
        assert await ages(ExternalSamples(series, 996.0)) == [age]


async def test_an_answer_that_several_are_given_counts_for_each() -> None:
    cluster = Cluster(settings=SETTINGS, wall=lambda: 1000.0)
    for name in ("web", "api", "db"):
        cluster.put(hpa_object(name), deployment_object(name, 2))
    cluster.put_pods(*(pod_object(name, n) for name in ("web", "api", "db") for n in range(2)))
    for shared in (PodSamples(in_columns(at(960.0)), 996.0), PodSamples(at(960.0, 970.0), 996.0)):
        cluster.metrics.data_age.counts.clear()
        cluster.provider.answer_with = lambda _question, shared=shared: shared  # type: ignore[misc]
        await cluster.run_for(1.0)
        assert sum(cluster.metrics.data_age.counts[()]) == 3
        assert cluster.metrics.data_age.counts[()][AGES.index(45.0)] == 3


async def test_an_answer_without_a_sample_has_no_age() -> None:
    assert await ages(PodSamples({}, 1000.0)) == []
    assert await ages(PodSamples(in_columns({}), 1000.0)) == []
    assert await ages(ExternalSamples([], 1000.0)) == []


@pytest.mark.parametrize("time_s", [math.nan, math.inf, -math.inf, -62_135_596_800.0])
async def test_a_time_that_is_no_time_is_not_counted(time_s: float) -> None:
    assert await ages(ObjectSample(Sample(1, time_s), 1000.0)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        PodSamples(None, 0.0),  # type: ignore[arg-type]
        PodSamples({"web-0": "much"}, 0.0),  # type: ignore[dict-item]
        PodSamples(at(1.0, "late"), 0.0),  # type: ignore[arg-type]
        ExternalSamples(None, 0.0),  # type: ignore[arg-type]
        ObjectSample(None, 0.0),  # type: ignore[arg-type]
        ObjectSample(Sample(1, "late"), 0.0),  # type: ignore[arg-type]
        ObjectSample(Sample(1), None),  # type: ignore[arg-type]
        "many",
        ContainerColumns((), (), (), *([np.empty(0)] * 3), 0.0),  # to another question
    ],
)
async def test_an_answer_that_cannot_be_read_fails_its_metric_and_no_other_autoscaler(
    wrong: Any,
) -> None:
    cluster = Cluster(settings=SETTINGS)
    for name in ("bad", "web"):
        cluster.put(hpa_object(name), deployment_object(name, 2))
    cluster.put_pods(*(pod_object(name, n) for name in ("bad", "web") for n in range(2)))
    cluster.provider.usage = lambda _question, _pod: 2000
    cluster.provider.answer_with = lambda question: (
        wrong if "bad" in question.selector else None  # type: ignore[union-attr]
    )
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    with capture_logs() as logs:
        await asyncio.sleep(16.0)
    assert cluster.scales()[0] == ("web", 4)
    trace = cluster.controller.traces.last((NS, "bad"))
    assert trace is not None
    (answer,) = trace.observation.answers
    assert isinstance(answer, Unavailable)
    assert answer.reason == "WrongAnswer"
    assert {each["event"] for each in logs} <= {"metrics provider failed", "reconciling"}
    leading.cancel()
    await asyncio.wait({leading})
