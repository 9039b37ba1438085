"""The updater against the sandbox: evictions, resizes, budgets, and what holds it back."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from podscale.kube.client.wire import format_micro_time
from tests.integration.test_vpa_admission import admitting, recommended
from tests.integration.vpa_stage import RHYTHM, Stage, deployment, stage, vpa
from vpa.model.samples.membership import VpaKey
from vpa.updater.decide.priority import UpdaterSettings
from vpa.updater.flags import Options
from vpa.updater.part import UpdaterPart

FREE = Options(interval_s=0.2, lease="")
LEASE = "vpa-admission-controller"


@pytest.fixture
async def small(tmp_path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as built:
        yield built


@asynccontextmanager
async def updating(
    small: Stage, options: Options = FREE, registry: CollectorRegistry | None = None
) -> AsyncIterator[UpdaterPart]:
    stores = small.stores(needs_nodes=True, needs_budgets=True)
    part = UpdaterPart(
        small.api, stores, options, registry or CollectorRegistry(), lease=None, rhythm=RHYTHM
    )
    task = asyncio.create_task(part.run())
    try:
        yield part
    finally:
        await part.stop()
        task.cancel()
        await asyncio.wait({task})


async def running(small: Stage, replicas: int = 2, **more: Any) -> set[str]:
    small.objects.create("deployments", "default", deployment(replicas, **more))
    await small.until(lambda: small.ready() == replicas)
    return uids(small)


def uids(small: Stage) -> set[str]:
    return {pod["metadata"]["uid"] for pod in small.pods()}


def requests(small: Stage) -> list[str]:
    return [p["spec"]["containers"][0]["resources"]["requests"]["cpu"] for p in small.pods()]


def events(small: Stage, reason: str) -> list[dict[str, Any]]:
    return [each for each in small.objects.list("events") if each["reason"] == reason]


def decisions(part: UpdaterPart) -> list[str]:
    return [each.decision.reasons[0] for each in part.updater.decisions.everything()]


def sign_of_life(small: Stage, at: float) -> None:
    small.objects.put(
        {
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": {"name": LEASE, "namespace": "kube-system"},
            "spec": {"holderIdentity": "x", "renewTime": format_micro_time(at)},
        }
    )


async def test_pods_are_evicted_and_come_back_sized_while_admission_lives(small, tmp_path):
    recommended(small, "Recreate")
    before = await running(small)
    registry = CollectorRegistry()
    options = Options(interval_s=0.2)
    async with updating(small, options, registry) as part:
        await small.until(lambda: "AdmissionNotAlive" in decisions(part))
        assert uids(small) == before
        async with admitting(small, tmp_path):
            await small.until(lambda: requests(small) == ["250m", "250m"] and small.ready() == 2)
            await small.until(lambda: bool(events(small, "EvictedByVPA")))
            await small.until(lambda: set(decisions(part)) == {"NothingToChange"})
    assert not uids(small) & before
    texts = {each["message"] for each in events(small, "EvictedPod")}
    assert texts
    for text in texts:
        # As upstream writes it, for those who read names out of it.
        name = text.removeprefix("VPA Updater evicted Pod web-")
        assert name.removesuffix(" to apply resource recommendation.").replace("-", "").isalnum()
    template = small.objects.get("deployments", "default", "web")["spec"]["template"]
    assert template["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "100m"
    text = generate_latest(registry).decode()
    assert 'vpa_updater_evicted_pods_total{update_mode="Recreate"' in text


async def test_an_old_sign_of_life_is_none(small):
    recommended(small, "Recreate")
    before = await running(small)
    registry = CollectorRegistry()

    def skipped(reason: str) -> float:
        name = "vpa_updater_admission_controller_status_invalid_total"
        return registry.get_sample_value(name, {"reason": reason}) or 0.0

    async with updating(small, Options(interval_s=0.1), registry) as part:
        await small.until(lambda: decisions(part) == ["AdmissionNotAlive"] * 2)
        assert skipped("error") > 0  # there is none
        assert skipped("invalid") == 0
        sign_of_life(small, time.time())
        part.updater.wall = lambda: time.time() + 120.0
        await small.until(lambda: skipped("invalid") > 0)
        assert decisions(part) == ["AdmissionNotAlive"] * 2
        assert uids(small) == before
        sign_of_life(small, time.time() + 120.0)
        await small.until(lambda: uids(small) != before)


@pytest.mark.parametrize("mode", ["Off", "Initial"])
async def test_modes_that_leave_running_pods_alone_do(small, mode):
    recommended(small, mode)
    before = await running(small)
    async with updating(small) as part:
        await small.until(lambda: part.updater.loop.succeeded > 1)
        await asyncio.sleep(0.5)
    assert uids(small) == before
    assert requests(small) == ["100m", "100m"]


async def test_a_resize_in_place_keeps_the_pods(small):
    recommended(small, "InPlaceOrRecreate")
    before = await running(small)
    async with updating(small):
        await small.until(lambda: requests(small) == ["250m", "250m"])
        await small.until(lambda: bool(events(small, "InPlaceResizedByVPA")))
        await small.until(
            lambda: all(
                (p["metadata"].get("annotations") or {}).get("vpaInPlaceUpdated") == "true"
                for p in small.pods()
            )
        )
        counts = small.cluster.server.counts
        resizes = counts[("patch", "pods/resize")]
        await asyncio.sleep(0.6)
        assert counts[("patch", "pods/resize")] == resizes  # never one that changes nothing
    assert uids(small) == before
    assert not events(small, "EvictedByVPA")


async def test_a_disruption_budget_that_allows_nothing_is_respected(small):
    recommended(small, "Recreate")
    before = await running(small)
    small.objects.create(
        "poddisruptionbudgets",
        "default",
        {
            "kind": "PodDisruptionBudget",
            "apiVersion": "policy/v1",
            "metadata": {"name": "all"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
        },
    )
    async with updating(small) as part:
        await small.until(lambda: "PdbRefuses" in decisions(part))
    assert uids(small) == before


async def test_a_single_replica_is_left_alone_unless_the_vpa_says_otherwise(small):
    recommended(small, "Recreate")
    before = await running(small, 1)
    async with updating(small) as part:
        await small.until(lambda: decisions(part) == ["TooFewReplicas"])
    assert uids(small) == before
    held = small.vpa()
    policy = {**held["spec"]["updatePolicy"], "minReplicas": 1}
    spec = {**held["spec"], "updatePolicy": policy}
    small.objects.update("verticalpodautoscalers", "default", "web", {**held, "spec": spec})
    async with updating(small):
        await small.until(lambda: not uids(small) & before)


async def test_a_loop_evicts_no_more_than_the_tolerance(small):
    recommended(small, "Recreate")
    before = await running(small, 4)
    once = Options(interval_s=0.1, lease="", settings=UpdaterSettings(eviction_tolerance=0.25))
    async with updating(small, once):
        await small.until(lambda: len(uids(small) & before) < 4)
        assert len(uids(small) & before) >= 2


async def test_outside_of_its_window_nothing_is_disturbed(small):
    closed = time.strftime("%a", time.gmtime(time.time() + 3 * 86400.0))
    recommended(small, "Recreate")
    held = small.vpa()
    window = {"vpa.podscale.io/disruption-windows": f"{closed} 00:00-24:00"}
    metadata = {**held["metadata"], "annotations": window}
    small.objects.update("verticalpodautoscalers", "default", "web", {**held, "metadata": metadata})
    before = await running(small)
    async with updating(small) as part:
        await small.until(lambda: decisions(part) == ["BudgetExhausted"] * 2)
    assert uids(small) == before


async def test_the_webhook_lets_the_updater_count_what_it_disturbs(small, tmp_path):
    recommended(small, "Recreate")
    held = small.vpa()
    metadata = {**held["metadata"], "annotations": {"vpa.podscale.io/max-disruptions-per-day": "5"}}
    small.objects.update("verticalpodautoscalers", "default", "web", {**held, "metadata": metadata})
    before = await running(small)
    async with admitting(small, tmp_path), updating(small):
        await small.until(lambda: not uids(small) & before)
    assert small.vpa()["metadata"]["annotations"]["vpa.podscale.io/disruptions"].endswith(":2")


async def test_of_two_vpas_the_older_one_decides(small):
    recommended(small, "Recreate")
    second = vpa("Recreate", "younger")
    second["spec"]["targetRef"]["name"] = "web"
    small.objects.create("verticalpodautoscalers", "default", second)
    await running(small)
    async with updating(small) as part:
        await small.until(lambda: bool(part.updater.decisions.everything()))
        assert part.updater.decisions.of(VpaKey("default", "web"))
        assert not part.updater.decisions.of(VpaKey("default", "younger"))


@pytest.mark.parametrize("mode", ["Off", "Recreate"])
async def test_a_boost_ends_by_a_resize_once_the_pod_is_ready(small, tmp_path, mode):
    boost = {"startupBoost": {"cpu": {"type": "Factor", "factor": 3, "durationSeconds": 1}}}
    recommended(small, mode, **boost)
    settings = UpdaterSettings(cpu_startup_boost=True)
    async with admitting(small, tmp_path, "--feature-gates=CPUStartupBoost=true"):
        before = await running(small)
        # Three times the recommendation, or in mode Off three times what the pod asks for.
        assert set(requests(small)) == {"300m" if mode == "Off" else "750m"}
        async with updating(small, Options(interval_s=0.2, lease="", settings=settings)):
            unboosted = {"100m" if mode == "Off" else "250m"}
            await small.until(lambda: set(requests(small)) == unboosted)
            await small.until(
                lambda: (
                    not any(
                        key.startswith("vpaCpuStartupBoost/")
                        for pod in small.pods()
                        for key in pod["metadata"]["annotations"]
                    )
                )
            )
    assert uids(small) == before
