"""The updater in its worst nights: lost answers, frozen watches, pods that others take away."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from podscale.kube.errors import ServerFailed, TooManyRequests, Unreachable
from tests.integration.test_vpa_admission import recommended
from tests.integration.test_vpa_updater import decisions, running, uids
from tests.integration.test_vpa_updater_weather import (
    PER_DAY,
    Weather,
    annotate,
    is_eviction,
    is_resize,
    updating,
)
from tests.integration.vpa_stage import Stage, stage
from vpa.model.membership import VpaKey
from vpa.updater.flags import Options
from vpa.updater.main import UpdaterPart
from vpa.updater.pace import RateLimit
from vpa.updater.priority import UpdaterSettings

# Loops are run by hand.
SLOW = Options(interval_s=60.0, lease="", settings=UpdaterSettings(in_place=True))
AT_ONCE = {"gracePeriodSeconds": 0}
SILENT = ServerFailed(500, "InternalError", "etcdserver: request timed out")


@pytest.fixture
async def small(tmp_path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as built:
        yield built


async def ready(small: Stage, part: UpdaterPart) -> None:
    await small.until(lambda: part.updater._is_running)


def freeze(part: UpdaterPart) -> None:
    """Let the watch of pods show nothing more, and be believed."""
    part._stores.pods.apply = lambda *_args, **_more: None  # type: ignore[method-assign]


def later(part: UpdaterPart, seconds: float) -> None:
    hands = part.updater._hands
    hands.observer._clock = hands.returns._clock = lambda: time.monotonic() + seconds


def held_by(part: UpdaterPart) -> set[Any]:
    return {each.decision.facts.get("held_by") for each in part.updater.told.everything()}


@pytest.mark.parametrize("is_shown", [True, False])
@pytest.mark.parametrize("error", [SILENT, ServerFailed(504, "Timeout", "late"),
                                   Unreachable("reset")])  # fmt: skip
async def test_an_eviction_without_an_answer_counts_and_ends_the_turn_of_its_group(
    small, error, is_shown
):
    recommended(small, "Recreate")
    annotate(small, **{PER_DAY: "9"})
    before = await running(small, 6)
    weather = Weather(small)
    weather.lose, weather.instead = is_eviction, error
    async with updating(small, weather, SLOW) as part:
        await ready(small, part)
        if not is_shown:
            freeze(part)
        await part.updater.once()
        assert weather.sent["POST eviction"] == 1
        assert len(before - uids(small)) == 1
        assert "OutcomeUnknown" in held_by(part)
        spending = part.updater._hands.spending
        assert await spending.today(VpaKey("default", "web"), time.time()) == 1


async def test_a_resize_without_an_answer_counts_and_ends_the_turn_of_its_group(small):
    recommended(small, "InPlaceOrRecreate")
    await running(small, 6)
    weather = Weather(small)
    weather.lose, weather.instead = is_resize, SILENT
    async with updating(small, weather, SLOW) as part:
        await ready(small, part)
        await part.updater.once()
        assert weather.sent["PATCH resize"] == 1
        assert weather.sent["POST eviction"] == 0


async def test_the_500_of_several_budgets_is_a_no(small):
    recommended(small, "Recreate")
    annotate(small, **{PER_DAY: "9"})
    before = await running(small, 4)
    weather = Weather(small)
    text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"
    weather.refuse = lambda m, p: ServerFailed(500, "", text) if is_eviction(m, p) else None
    async with updating(small, weather, SLOW) as part:
        await ready(small, part)
        await part.updater.once()
        assert set(decisions(part)) == {"PdbRefuses"}
        assert uids(small) == before
        spending = part.updater._hands.spending
        assert await spending.today(VpaKey("default", "web"), time.time()) == 0


async def test_flow_control_is_no_disruption_budget(small):
    recommended(small, "Recreate")
    await running(small, 4)
    weather = Weather(small)
    busy = TooManyRequests(429, "TooManyRequests", "too many requests, please try again later")
    weather.refuse = lambda m, p: busy if is_eviction(m, p) else None
    async with updating(small, weather, SLOW) as part:
        await ready(small, part)
        await part.updater.once()
        assert "PdbRefuses" not in decisions(part)
        assert "ApiServerBusy" in held_by(part)
        assert weather.sent["POST eviction"] == 1
        weather.refuse = lambda _method, _path: None
        await part.updater.once()
        assert weather.sent["POST eviction"] == 3


async def test_a_frozen_watch_is_not_settled_by_the_next_loop(small):
    recommended(small, "Recreate")
    before = await running(small, 6)
    weather = Weather(small)
    async with updating(small, weather, SLOW) as part:
        await ready(small, part)
        freeze(part)
        await part.updater.once()
        assert weather.sent["POST eviction"] == 3
        for age_s in (60.05, 149.0):  # the next loop, and the last one that believes the watch
            later(part, age_s)
            await part.updater.once()
            assert weather.sent["POST eviction"] == 3
        assert len(before & uids(small)) == 3


async def test_pods_that_others_took_away_are_down(small):
    recommended(small, "Recreate")
    before = await running(small, 6)
    weather = Weather(small)
    async with updating(small, weather, SLOW) as part:
        await ready(small, part)
        freeze(part)
        taken = sorted(pod["metadata"]["name"] for pod in small.pods())[:3]
        for name in taken:
            small.objects.delete("pods", "default", name, options=AT_ONCE)
        left = uids(small) & before
        await part.updater.once()
        assert weather.sent["POST eviction"] == 3
        later(part, 60.05)
        await part.updater.once()
        assert uids(small) >= left


def lose_node(small: Stage, spared: int) -> None:
    for pod in small.pods()[spared:]:
        small.objects.delete("pods", "default", pod["metadata"]["name"], options=AT_ONCE)


async def test_a_group_that_shrinks_after_an_eviction_is_left_alone(small):
    recommended(small, "Recreate")
    await running(small, 6)
    weather = Weather(small)

    def lose(method: str, path: str) -> bool:
        if is_eviction(method, path) and weather.sent["POST eviction"] == 1:
            lose_node(small, 2)
        return False

    weather.lose = lose
    async with updating(small, weather, Options(60.0, lease="", rate=RateLimit(2.0, 1))) as part:
        await ready(small, part)
        await part.updater.once()
        assert weather.sent["POST eviction"] == 1


async def test_a_group_that_shrinks_while_a_disruption_is_counted_is_left_alone(small):
    recommended(small, "Recreate")
    annotate(small, **{PER_DAY: "9"})
    await running(small, 6)
    weather = Weather(small)
    async with updating(small, weather, SLOW) as part:
        await ready(small, part)
        spending = part.updater._hands.spending
        spend = spending.spend

        async def slowly(key: VpaKey, now: float) -> bool:
            if weather.sent["POST eviction"] == 1:
                lose_node(small, 2)
                await asyncio.sleep(0.5)  # the watch shows it meanwhile
            return await spend(key, now)

        spending.spend = slowly  # type: ignore[method-assign]
        await part.updater.once()
        assert weather.sent["POST eviction"] == 1
        assert await spending.today(VpaKey("default", "web"), time.time()) == 1


async def test_a_group_that_grows_within_its_turn_is_left_alone(small):
    recommended(small, "Recreate")
    await running(small, 6)
    weather = Weather(small)

    def lose(method: str, path: str) -> bool:
        if is_eviction(method, path) and weather.sent["POST eviction"] == 1:
            held = small.objects.get("deployments", "default", "web")
            spec = {**held["spec"], "replicas": 12}
            small.objects.update("deployments", "default", "web", {**held, "spec": spec})
        return False

    weather.lose = lose
    async with updating(small, weather, Options(60.0, lease="", rate=RateLimit(2.0, 1))) as part:
        await ready(small, part)
        await part.updater.once()
        assert weather.sent["POST eviction"] == 1


async def test_a_group_whose_pods_come_back_unsized_is_tried_one_at_a_time_after_a_while(small):
    recommended(small, "Recreate")
    before = await running(small, 6)
    weather = Weather(small)
    async with updating(small, weather, SLOW) as part:
        await ready(small, part)
        await part.updater.once()
        assert weather.sent["POST eviction"] == 3
        await small.until(lambda: small.ready() == 6)
        await small.until(lambda: len(part._stores.pods) == 6)
        await part.updater.once()
        assert weather.sent["POST eviction"] == 3
        assert set(decisions(part)) == {"AdmissionNotAlive"}
        assert held_by(part) == {"PodsReturnUnsized"}
        later(part, 700.0)
        await part.updater.once()
        assert weather.sent["POST eviction"] == 4
        await small.until(lambda: small.ready() == 6)
        await part.updater.once()
        assert weather.sent["POST eviction"] == 4
        assert len(before & uids(small)) >= 2


async def test_a_pod_that_waits_for_a_node_is_known_when_others_are_evicted(small):
    recommended(small, "Recreate")
    await running(small, 6)
    async with updating(small, Weather(small), SLOW) as part:
        await ready(small, part)
        observer, returns = part.updater._hands.observer, part.updater._hands.returns
        pods_of = observer.pods_of

        async def one_waits(rivals: Any) -> Any:
            live, _ = await pods_of(rivals)
            return live[1:], live[:1]

        observer.pods_of = one_waits  # type: ignore[method-assign]
        before = uids(small)
        await part.updater.once()
        assert [group.known for group in returns._groups.values()] == [before]
