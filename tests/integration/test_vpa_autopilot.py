"""The second recommender of the process, chosen by ``spec.recommenders``."""

import numpy as np
import pytest

from podscale.core import quantity
from tests.integration.test_vpa_recommender import measured, recommending, target
from tests.integration.vpa_stage import Stage, stage, vpa
from vpa.model.autopilot import DEFAULT_MODELS
from vpa.model.histograms import buckets


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


def steps_above(cores: float) -> set[int]:
    """Milli-cores of the limits that lie a model's margin above the bucket of ``cores``."""
    place = int(buckets.CPU.find(np.array([cores]))[0])
    return {int(buckets.CPU.ends[place + model.margin_buckets] * 1000) for model in DEFAULT_MODELS}


async def test_each_vpa_gets_the_recommendation_of_the_one_it_names(small):
    await measured(small)
    chosen(small)
    async with recommending(small):
        await small.until(lambda: target(small) is not None and bool(target(small, "learned")))
        await small.until(lambda: milli(small, "learned") >= 200)
    assert milli(small, "web") == 247
    assert milli(small, "learned") in steps_above(0.2)


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
        assert part.recommender.loop.heartbeat().is_ok
    assert milli(small, "learned") == before
