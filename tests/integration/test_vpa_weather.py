"""The recommender where the cluster is not as it should be."""

import asyncio

import pytest

from tests.integration.test_vpa_recommender import (
    checkpoints,
    condition,
    measured,
    recommending,
    target,
)
from tests.integration.vpa_stage import deployment, stage, vpa


@pytest.fixture
async def small(tmp_path):
    async with stage(tmp_path) as built:
        yield built


def stored(name: str = "web-main", **status: object) -> dict[str, object]:
    return {
        "kind": "VerticalPodAutoscalerCheckpoint", "apiVersion": "autoscaling.k8s.io/v1",
        "metadata": {"name": name},
        "spec": {"vpaObjectName": "web", "containerName": "main"}, "status": status,
    }  # fmt: skip


GOOD = {"version": "v3", "totalSamplesCount": 5,
        "cpuHistogram": {"bucketWeights": {"5": 10000}, "totalWeight": 1.0}}  # fmt: skip


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"version": "v3", "cpuHistogram": {"bucketWeights": {"a": 1}}}, id="bucket"),
        pytest.param({**GOOD, "version": "v2"}, id="other-version"),
        pytest.param({**GOOD, "totalSamplesCount": -1}, id="negative-count"),
        pytest.param(
            {"version": "v3", "cpuHistogram": {"bucketWeights": {"5": -1}, "totalWeight": 1.0}},
            id="negative-weight",
        ),
        pytest.param({"version": "v3", "cpuHistogram": {"totalWeight": -3.0}}, id="negative-total"),
        pytest.param({**GOOD, "firstSampleStart": "yesterday"}, id="time"),
        pytest.param({}, id="empty"),
    ],
)
async def test_a_checkpoint_that_cannot_be_read_is_replaced_and_stops_nobody(small, status):
    await measured(small)
    small.objects.create("verticalpodautoscalercheckpoints", "default", stored(**status))
    async with recommending(small):
        await small.until(lambda: target(small) is not None)
        await small.until(lambda: checkpoints(small)[0]["status"].get("totalSamplesCount", 0) > 1)
    assert target(small)["cpu"] == "247m"


async def test_without_the_checkpoints_crd_it_recommends_all_the_same(small):
    await measured(small)
    name = "verticalpodautoscalercheckpoints.autoscaling.k8s.io"
    small.objects.delete("customresourcedefinitions", "", name)
    async with recommending(small) as part:
        await small.until(lambda: target(small) is not None)
        assert part.recommender.loop.heartbeat().is_ok


async def test_a_pass_that_hangs_is_told_by_the_health(small, monkeypatch):
    async def never(_questions: object) -> object:
        return await asyncio.get_running_loop().create_future()

    await measured(small)
    async with recommending(small) as part:
        await small.until(lambda: target(small) is not None)
        assert part.recommender.loop.heartbeat().is_ok
        monkeypatch.setattr(small.usage, "answer", never)
        await small.until(lambda: not part.recommender.loop.heartbeat().is_ok)
        monkeypatch.undo()


async def test_a_target_that_goes_takes_nothing_away_and_comes_back(small):
    await measured(small)
    async with recommending(small):
        await small.until(lambda: target(small) is not None)
        before = target(small)
        small.objects.delete("deployments", "default", "web")
        await small.until(lambda: condition(small, "ConfigUnsupported") is not None)
        assert target(small) == before
        assert checkpoints(small)
        small.objects.create("deployments", "default", deployment(2))
        await small.until(lambda: condition(small, "ConfigUnsupported") is None)
    assert target(small) == before


async def test_a_vpa_that_cannot_be_read_stops_no_other(small):
    await measured(small)
    broken = vpa("Off", "broken")
    broken["metadata"]["annotations"] = {"vpa.podscale.io/cpu-target-percentile": "most"}
    small.objects.create("verticalpodautoscalers", "default", broken)
    async with recommending(small):
        await small.until(lambda: target(small) is not None)
        await small.until(lambda: condition(small, "AnnotationInvalid", "broken") is not None)
    assert target(small)["cpu"] == "247m"
