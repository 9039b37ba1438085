"""A boost ends, whatever has become of the VPA that gave it."""

import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from podscale.kube.client.errors import Forbidden
from tests.integration.test_vpa_admission import recommended
from tests.integration.test_vpa_updater import decisions, requests, sign_of_life, uids
from tests.integration.vpa_stage import Stage, deployment, vpa
from tests.integration.vpa_weather import (
    Weather,
    annotate,
    is_resize,
    loops,
    small,
    updating,
)
from vpa.updater.decide.priority import UpdaterSettings
from vpa.updater.flags import Options

__all__ = ["small"]

BOOSTED = "vpaCpuStartupBoost/main"
SETTINGS = UpdaterSettings(cpu_startup_boost=True)
QUICK = Options(interval_s=0.1, lease="", settings=SETTINGS)


def boost(duration_s: int, factor: int = 3) -> dict[str, Any]:
    return {"cpu": {"type": "Factor", "factor": factor, "durationSeconds": duration_s}}


async def boosted(small: Stage, cpu: str = "750m") -> set[str]:
    """Run two pods as admission leaves them: with more CPU, and with what they had before."""
    body = deployment(2, cpu=cpu, memory="200Mi")
    original = '{"requests":{"cpu":"100m","memory":"200Mi"}}'
    body["spec"]["template"]["metadata"]["annotations"] = {BOOSTED: original}
    small.objects.create("deployments", "default", body)
    await small.until(lambda: small.ready() == 2)
    return uids(small)


def marks(small: Stage) -> int:
    return sum(BOOSTED in (pod["metadata"].get("annotations") or {}) for pod in small.pods())


def is_mark(method: str, path: str) -> bool:
    return method == "PATCH" and "/pods/" in path and not is_resize(method, path)


@pytest.mark.parametrize(
    ("mode", "cpu"), [("Off", "100m"), ("Initial", "250m"), ("Recreate", "250m")]
)
async def test_a_boost_that_is_configured_no_longer_ends_in_every_mode(small, mode, cpu):
    recommended(small, mode)
    before = await boosted(small)
    registry = CollectorRegistry()
    names = {"vpa_name": "web", "vpa_namespace": "default"}
    labels = {"vpa_size_log2": "1", "update_mode": mode, **names}
    total = "vpa_updater_in_place_updated_pods_total"
    async with updating(small, Weather(small), QUICK, registry):
        await small.until(lambda: set(requests(small)) == {cpu} and not marks(small))
        # An answer is counted after the pod has changed.
        await small.until(lambda: registry.get_sample_value(total, labels) == 2)
    assert uids(small) == before


async def test_without_the_gate_a_mode_that_updates_nothing_does_nothing(small):
    recommended(small, "Off")
    await boosted(small)
    weather = Weather(small)
    async with updating(small, weather, Options(interval_s=0.1, lease="")) as part:
        await small.until(loops(part)(3))
    assert weather.sent["PATCH resize"] == 0
    assert marks(small) == 2


async def test_a_boost_that_changed_nothing_leaves_no_mark_behind(small):
    recommended(small, "InPlaceOrRecreate", startupBoost=boost(1, factor=1))
    before = await boosted(small, "250m")
    weather = Weather(small)
    async with updating(small, weather, QUICK):
        await small.until(lambda: not marks(small))
        assert weather.sent["PATCH resize"] == 0
        # The pods are updated like all others from now on.
        status = small.vpa()["status"]
        entry = status["recommendation"]["containerRecommendations"][0]
        raised = {**entry, "target": {"cpu": "600m", "memory": "200Mi"}}
        raised |= {"lowerBound": {"cpu": "500m"}, "upperBound": {"cpu": "1"}}
        status = {**status, "recommendation": {"containerRecommendations": [raised]}}
        held = {**small.vpa(), "status": status}
        small.objects.update("verticalpodautoscalers", "default", "web", held, "status")
        await small.until(lambda: set(requests(small)) == {"600m"})
    assert uids(small) == before


async def test_a_mark_that_could_not_be_removed_is_tried_again(small):
    recommended(small, "Recreate", startupBoost=boost(1))
    before = await boosted(small)
    weather = Weather(small)
    weather.refuse = lambda method, path: (
        Forbidden(403, "Forbidden", "not now") if is_mark(method, path) else None
    )
    async with updating(small, weather, QUICK) as part:
        await small.until(lambda: set(requests(small)) == {"250m"})
        await small.until(loops(part)(3))
        assert marks(small) == 2
        weather.refuse = lambda _method, _path: None
        await small.until(lambda: not marks(small))
        assert weather.sent["PATCH resize"] == 2  # one for each pod
    assert uids(small) == before


async def test_a_boost_ends_while_admission_is_dead(small):
    recommended(small, "Recreate", startupBoost=boost(1))
    before = await boosted(small)
    sign_of_life(small, time.time())
    options = Options(interval_s=0.1, settings=SETTINGS)
    async with updating(small, Weather(small), options) as part:
        part.updater.wall = lambda: time.time() + 120.0
        await small.until(lambda: set(requests(small)) == {"250m"} and not marks(small))
        await small.until(lambda: decisions(part) == ["AdmissionNotAlive"] * 2)
    assert uids(small) == before


async def test_a_window_that_cannot_be_read_holds_up_updates_and_not_the_end_of_a_boost(small):
    recommended(small, "Recreate", startupBoost=boost(1))
    annotate(small, **{"vpa.podscale.io/disruption-windows": "whenever"})
    before = await boosted(small)
    async with updating(small, Weather(small), QUICK) as part:
        await small.until(lambda: set(requests(small)) == {"250m"} and not marks(small))
        assert decisions(part) == []
    assert uids(small) == before


async def test_a_vpa_that_does_nothing_does_not_end_the_boost_of_one_that_acts(small):
    idle = vpa("Off", "idle")
    idle["spec"]["targetRef"]["name"] = "web"
    small.objects.create("verticalpodautoscalers", "default", idle)
    recommended(small, "Recreate", startupBoost=boost(3600))
    await boosted(small)
    weather = Weather(small)
    async with updating(small, weather, QUICK) as part:
        await small.until(loops(part)(5))
        assert weather.sent["PATCH resize"] == 0
        assert marks(small) == 2
        small.objects.delete("verticalpodautoscalers", "default", "web")
        await small.until(lambda: set(requests(small)) == {"100m"} and not marks(small))
