"""The second recommender of the process, chosen by ``spec.recommenders``."""

import asyncio

import pytest
from msgspec.structs import replace

from podscale.core import quantity
from tests.integration.test_vpa_recommender import FAST, measured, recommending, target
from tests.integration.vpa_stage import Stage, stage, vpa
from vpa.model.autopilot.recommender import AutopilotSettings


@pytest.fixture
async def small(tmp_path):
    async with stage(tmp_path) as built:
        yield built


def chosen(small: Stage) -> None:
    named = vpa("Off", "learned", recommenders=[{"name": "autopilot"}])
    named["spec"]["targetRef"]["name"] = "web"
    small.objects.create("verticalpodautoscalers", "default", named)


def milli(small: Stage, name: str) -> int:
    return quantity.parse(target(small, name)["cpu"]).milli


@pytest.mark.parametrize(
    "settings",
    [AutopilotSettings(), AutopilotSettings(method="windows", cpu="batch")],
    ids=["learned", "windows"],
)
async def test_each_vpa_gets_the_recommendation_of_the_one_it_names(small, settings):
    await measured(small)
    chosen(small)
    options = replace(FAST, autopilot=settings)
    async with recommending(small, options):
        await small.until(lambda: target(small) is not None and bool(target(small, "learned")))
        await small.until(lambda: milli(small, "learned") >= 200)
    assert milli(small, "web") == 247
    assert 200 <= milli(small, "learned") <= 270
    assert milli(small, "learned") != 247


async def test_without_a_name_nobody_is_autopilots(small):
    await measured(small)
    chosen(small)
    async with recommending(small, replace(FAST, autopilot_name="")):
        await small.until(lambda: target(small) is not None)
        await asyncio.sleep(0.5)
    assert target(small, "learned") is None


async def test_after_a_restart_nothing_is_lowered_before_it_knows_enough(small):
    await measured(small)
    chosen(small)
    async with recommending(small):
        await small.until(lambda: target(small, "learned") is not None)
    before = milli(small, "learned")
    small.usage.cores = 0.05  # what a few ticks after the restart would recommend from
    async with recommending(small) as part:
        begun = small.usage.now
        await small.until(lambda: small.usage.now > begun + 30 * 60.0)
        assert part.recommender.is_healthy()
    assert milli(small, "learned") == before
