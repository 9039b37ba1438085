"""The recommender against the sandbox: whose pods and checkpoints a VPA means, as it changes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.integration.test_vpa_recommender import (
    FAST,
    checkpoints,
    condition,
    measured,
    recommending,
    target,
)
from tests.integration.vpa_stage import Stage, deployment, stage, vpa


@pytest.fixture
async def small(tmp_path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as built:
        yield built


def changed(small: Stage, **spec: Any) -> dict[str, Any]:
    held = small.vpa()
    small.objects.update(
        "verticalpodautoscalers", "default", "web", {**held, "spec": {**held["spec"], **spec}}
    )
    return small.vpa()


async def test_the_generation_that_was_decided_about_is_told(small):
    await measured(small)
    async with recommending(small):
        await small.until(lambda: small.vpa().get("status", {}).get("observedGeneration") == 1)
        # Nothing that is recommended depends on it.
        changed(small, updatePolicy={"updateMode": "Initial"})
        await small.until(lambda: small.vpa()["status"]["observedGeneration"] == 2)
        # Nor does the model read it at all.
        changed(small, whatever="x")
        await small.until(lambda: small.vpa()["status"]["observedGeneration"] == 3)


async def test_another_workload_does_not_get_the_numbers_of_the_one_before(small):
    await measured(small)
    async with recommending(small):
        await small.until(lambda: target(small) is not None and bool(checkpoints(small)))
    small.objects.create("deployments", "default", deployment(0, "other"))
    async with recommending(small) as part:
        await small.until(lambda: part.recommender.estimates is not None)
        assert target(small) is not None
        ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}
        changed(small, targetRef=ref)
        await small.until(lambda: condition(small, "NoPodsMatched") is not None)
        assert target(small) is None
        await asyncio.sleep(0.3)
        assert target(small) is None
        # And back again: what runs there is still known.
        changed(small, targetRef={**ref, "name": "web"})
        await small.until(lambda: target(small) is not None)


async def test_a_target_of_another_name_with_the_same_pods_keeps_its_numbers(small):
    await measured(small)
    async with recommending(small):
        await small.until(lambda: target(small) is not None and bool(checkpoints(small)))
    before, small.usage.is_down = target(small), True
    async with recommending(small) as part:
        await small.until(lambda: part.recommender.estimates is not None)
        small.objects.delete("deployments", "default", "web")
        await small.until(lambda: condition(small, "ConfigUnsupported") is not None)
        small.objects.create("deployments", "default", {**deployment(0), "metadata": {"name": "w"}})
        changed(small, targetRef={"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"})
        await small.until(lambda: condition(small, "ConfigUnsupported") is None)
        assert target(small) == before


async def test_between_two_runs_the_pods_of_a_cron_job_still_match(small):
    night = deployment(0, "night")
    small.objects.create("deployments", "default", night)
    small.objects.create("verticalpodautoscalers", "default", vpa("Off", "night"))
    run = {"kind": "Pod", "apiVersion": "v1", **night["spec"]["template"]}
    run["metadata"] = {**run["metadata"], "name": "night-1"}
    small.objects.create("pods", "default", run)
    await small.until(lambda: small.ready() == 1)
    over = small.objects.get("pods", "default", "night-1")
    over = {**over, "status": {**over["status"], "phase": "Succeeded"}}
    small.objects.update("pods", "default", "night-1", over, "status")
    async with recommending(small):
        await small.until(lambda: condition(small, "RecommendationProvided", "night") is not None)
        assert condition(small, "NoPodsMatched", "night") is None
        small.objects.delete("pods", "default", "night-1")
        await small.until(lambda: condition(small, "NoPodsMatched", "night") is not None)


async def test_checkpoints_in_an_ignored_namespace_are_left_to_others(small):
    await measured(small)
    for namespace in ("theirs", "default"):
        small.objects.put(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
        orphan = {
            "kind": "VerticalPodAutoscalerCheckpoint",
            "apiVersion": "autoscaling.k8s.io/v1",
            "metadata": {"name": "gone-main"},
            "spec": {"vpaObjectName": "gone", "containerName": "main"},
        }
        small.objects.create("verticalpodautoscalercheckpoints", namespace, orphan)

    def orphans(namespace: str) -> list[str]:
        found = small.objects.list("verticalpodautoscalercheckpoints", namespace)
        names = [each["metadata"]["name"] for each in found]
        return [name for name in names if name.startswith("gone")]

    options = replace(FAST, checkpoints_gc_s=0.0, ignored=("theirs",))
    async with recommending(small, options, ignored=("theirs",)):
        await small.until(lambda: not orphans("default"))
        await asyncio.sleep(0.3)
    assert orphans("theirs") == ["gone-main"]


@pytest.mark.parametrize("status", ["True", "False"])
async def test_checkpoints_wait_only_while_somebody_is_fetching_history(small, status):
    await measured(small)
    fetching = {"type": "FetchingHistory", "status": status}
    held = small.vpa()
    small.objects.update(
        "verticalpodautoscalers", "default", "web",
        {**held, "status": {"conditions": [fetching]}}, "status",
    )  # fmt: skip
    async with recommending(small):
        await small.until(lambda: target(small) is not None)
        if status == "False":
            await small.until(lambda: bool(checkpoints(small)))
        await asyncio.sleep(0.3)
    assert bool(checkpoints(small)) == (status == "False")
