"""What the recommender must not lose: checkpoints, targets, VPAs that are out of sight."""

from collections.abc import AsyncIterator, Sequence
from copy import deepcopy
from typing import Any

import pytest

from podscale.core import quantity
from podscale.core.metrics import Answer, Question
from podscale.core.times.rfc3339 import rfc3339
from tests.integration.test_vpa_recommender import (
    checkpoints,
    condition,
    measured,
    recommending,
    target,
)
from tests.integration.vpa_stage import Stage, deployment, stage
from vpa.decisions import decisions as sizing
from vpa.decisions.api import SizingApi
from vpa.model.samples.membership import VpaKey
from vpa.recommender.part import RecommenderPart

WEB = VpaKey("default", "web")
PLURAL = "verticalpodautoscalers"
CHECKPOINTS = "verticalpodautoscalercheckpoints"
WEEKS_S = 21 * 86400.0


@pytest.fixture
async def small(tmp_path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as built:
        yield built


async def passes(part: RecommenderPart, small: Stage, count: int = 3) -> None:
    """Wait until so many more passes have asked for usage, and the last has ended."""
    until = small.usage.now + (count + 1) * small.usage.step_s
    await small.until(lambda: small.usage.now >= until)


def samples(small: Stage) -> int:
    return sum(int(each["status"].get("totalSamplesCount", 0)) for each in checkpoints(small))


async def large(small: Stage) -> dict[str, str]:
    """Let much be learned and published weeks ago; return the target."""
    await measured(small)
    small.usage.cores, small.usage.memory = 2.0, 9e9
    async with recommending(small):
        await small.until(lambda: samples(small) >= 20)
    web = deepcopy(small.vpa())
    for each in web["status"]["conditions"]:
        each["lastTransitionTime"] = rfc3339(small.usage.now - WEEKS_S)
    small.objects.update("verticalpodautoscalers", "default", "web", web, "status")
    small.usage.cores, small.usage.memory = 0.02, 1e8
    before = target(small)
    assert before is not None
    return before


async def test_without_its_checkpoint_a_recommendation_stands_for_a_day(small):
    before = await large(small)
    for each in checkpoints(small):
        small.objects.delete(CHECKPOINTS, "default", each["metadata"]["name"])
    async with recommending(small) as part:
        await passes(part, small)
        assert target(small) == before
        told = condition(small, "LowConfidence")
        assert told is not None
        assert (told["status"], told["reason"]) == ("True", "HistoryLost")
        explained = sizing.body(SizingApi(part.recommender, lambda: True).known(WEB))["status"]
        for each in explained["recommendation"]:
            assert each["decision"]["value"] == before[each["resource"]]
            assert each["facts"]["held_by"] == "HistoryLost"
            assert each["facts"]["held_until"] in each["change"]
        assert [each["reason"] for each in explained["conditions"]] == ["HistoryLost"]
    async with recommending(small) as part:  # its checkpoint now holds a few samples
        await passes(part, small)
        assert target(small) == before
        small.usage.now += 86400.0
        await small.until(lambda: target(small) != before)
        await small.until(lambda: condition(small, "LowConfidence") is None)
    assert quantity.parse(target(small)["cpu"]).milli < 100


async def test_a_recommendation_is_reset_by_removing_it_and_its_checkpoint(small):
    await large(small)
    for each in checkpoints(small):
        small.objects.delete(CHECKPOINTS, "default", each["metadata"]["name"])
    web = deepcopy(small.vpa())
    del web["status"]["recommendation"]
    small.objects.update("verticalpodautoscalers", "default", "web", web, "status")
    async with recommending(small):
        await small.until(lambda: target(small) is not None)
    assert quantity.parse(target(small)["cpu"]).milli < 100


async def test_a_deployment_that_is_made_anew_keeps_its_recommendation(small):
    before = await large(small)
    async with recommending(small) as part:
        await passes(part, small)
        count = samples(small)
        small.objects.delete("deployments", "default", "web")
        await small.until(lambda: condition(small, "ConfigUnsupported") is not None)
        await passes(part, small)
        assert target(small) == before
        small.objects.create("deployments", "default", deployment(2))
        await small.until(lambda: condition(small, "ConfigUnsupported") is None)
        await passes(part, small)
        assert target(small) == before
        assert samples(small) >= count


async def test_a_vpa_that_cannot_be_read_stays_as_it_last_was(small):
    before = await large(small)
    good = small.vpa()["spec"]
    bad = {**good, "targetRef": ["not", "an", "object"]}
    crds = small.objects.list("customresourcedefinitions")
    crd = deepcopy(next(each for each in crds if each["spec"]["names"]["plural"] == PLURAL))
    for version in crd["spec"]["versions"]:
        loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version["schema"]["openAPIV3Schema"].setdefault("properties", {})["spec"] = loose
    small.objects.update("customresourcedefinitions", "", crd["metadata"]["name"], crd)

    def put(spec: dict[str, Any]) -> None:
        web = deepcopy(small.vpa())
        small.objects.update("verticalpodautoscalers", "default", "web", {**web, "spec": spec})

    async with recommending(small) as part:
        await passes(part, small)
        count = samples(small)
        put(bad)
        await small.until(lambda: part.recommender.stores.vpa(WEB) is None)
        await passes(part, small)
        assert WEB in part.recommender.cluster.vpas
        put(good)
        await small.until(lambda: part.recommender.stores.vpa(WEB) is not None)
        await passes(part, small)
        assert (target(small), samples(small) > count) == (before, True)
        count = samples(small)
        put(bad)
    # Nor does a process that starts meanwhile write over what it could not load.
    async with recommending(small) as part:
        await passes(part, small)
        assert WEB not in part.recommender.cluster.vpas
        put(good)
        await small.until(lambda: WEB in part.recommender.cluster.vpas)
        await passes(part, small)
        assert (target(small), samples(small) > count) == (before, True)


async def test_a_vpa_that_is_gone_for_a_pass_goes_on_where_it_was(small):
    before = await large(small)
    async with recommending(small) as part:
        await passes(part, small)
        count, web = samples(small), small.vpa()
        small.objects.delete("verticalpodautoscalers", "default", "web")
        await small.until(lambda: WEB not in part.recommender.cluster.vpas)
        meta = {"name": "web", "namespace": "default"}
        small.objects.create("verticalpodautoscalers", "default",
                             {**web, "metadata": meta, "status": {}})  # fmt: skip
        await small.until(lambda: target(small) is not None)
        await passes(part, small)
        assert (target(small), samples(small) > count) == (before, True)


async def test_a_pod_that_went_before_a_pass_that_failed_leaves_the_model(small):
    await measured(small)
    async with recommending(small) as part:
        await small.until(lambda: target(small) is not None)
        answer = small.usage.answer
        names = {pod["metadata"]["name"] for pod in small.pods()}
        failures = 0

        async def fails(questions: Sequence[Question]) -> Sequence[Answer]:
            nonlocal failures
            failures += 1
            raise RuntimeError("a defect")

        small.usage.answer = fails
        for name in names:
            small.objects.delete("pods", "default", name)
        await small.until(lambda: not names & {p["metadata"]["name"] for p in small.pods()})
        seen = failures
        await small.until(lambda: failures >= seen + 3)
        small.usage.answer = answer
        cluster = part.recommender.cluster
        await small.until(lambda: not any(cluster.has_pod("default", name) for name in names))
