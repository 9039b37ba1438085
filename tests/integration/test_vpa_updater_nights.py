"""The updater in its worst nights: lost answers, frozen watches, pods that others take away."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from podscale.kube.client.errors import ApiUnreachable, ServerFailed, TooManyRequests
from tests.integration.test_vpa_admission import recommended
from tests.integration.test_vpa_updater import decisions, running, uids
from tests.integration.vpa_stage import Stage
from tests.integration.vpa_weather import (
    PER_DAY,
    Weather,
    annotate,
    is_eviction,
    is_resize,
    small,
    updating,
)
from vpa.model.samples.membership import VpaKey
from vpa.updater.decide.disruption_budget import EvictionRate
from vpa.updater.decide.priority import UpdaterSettings
from vpa.updater.flags import Options
from vpa.updater.part import UpdaterPart

__all__ = ["small"]

# Loops are run by hand.
SLOW = Options(interval_s=60.0, lease="", settings=UpdaterSettings(in_place=True))
RATED = Options(
    60.0, lease="", rate=EvictionRate(2.0, 1)
)  # an eviction, and half a second to the next
AT_ONCE = {"gracePeriodSeconds": 0}
SILENT = ServerFailed(500, "InternalError", "etcdserver: request timed out")


class Night:
    """Six pods that an updater would all disturb, and the updater, whose loops are run by hand."""

    def __init__(self, small: Stage, weather: Weather, part: UpdaterPart) -> None:
        self.small, self.weather, self.part = small, weather, part
        self.before = uids(small)
        self.tools = part.updater._tools

    @property
    def evictions(self) -> int:
        """How many were asked for so far."""
        return self.weather.sent["POST eviction"]

    async def loop(self) -> None:
        await self.part.updater.once()

    def freeze(self) -> None:
        """Let the watch of pods show nothing more, and be believed."""
        self.part.stores.pods.apply = lambda *_args, **_more: None  # type: ignore[method-assign]

    def later(self, seconds: float) -> None:
        """Let it be so much later by the monotonic clock."""
        tools = self.tools
        tools.observer._clock = tools.returns._clock = lambda: time.monotonic() + seconds

    def held_by(self) -> set[Any]:
        """What holds the pods that were decided about."""
        return {
            each.decision.facts.get("held_by") for each in self.part.updater.decisions.everything()
        }

    async def spent(self) -> int | None:
        """How many disruptions of the day are counted."""
        return await self.tools.spending.today(VpaKey("default", "web"), time.time())

    def delete(self, pods: list[dict[str, Any]]) -> None:
        """Take pods away, as somebody else would."""
        for pod in pods:
            self.small.objects.delete("pods", "default", pod["metadata"]["name"], options=AT_ONCE)


@asynccontextmanager
async def night(
    small: Stage, mode: str = "Recreate", options: Options = SLOW, *, per_day: str = ""
) -> AsyncIterator[Night]:
    recommended(small, mode)
    if per_day:
        annotate(small, **{PER_DAY: per_day})
    await running(small, 6)
    weather = Weather(small)
    async with updating(small, weather, options) as part:
        await small.until(lambda: part.updater.loop.heartbeat.is_expected)
        yield Night(small, weather, part)


@pytest.mark.parametrize("is_shown", [True, False])
@pytest.mark.parametrize("error", [SILENT, ServerFailed(504, "Timeout", "late"),
                                   ApiUnreachable("reset")])  # fmt: skip
async def test_an_eviction_without_an_answer_counts_and_ends_the_turn_of_its_group(
    small, error, is_shown
):
    async with night(small, per_day="9") as stage:
        stage.weather.lose, stage.weather.instead = is_eviction, error
        if not is_shown:
            stage.freeze()
        await stage.loop()
        assert stage.evictions == 1
        assert len(stage.before - uids(small)) == 1
        assert "OutcomeUnknown" in stage.held_by()
        assert await stage.spent() == 1


async def test_a_resize_without_an_answer_counts_and_ends_the_turn_of_its_group(small):
    async with night(small, "InPlaceOrRecreate") as stage:
        stage.weather.lose, stage.weather.instead = is_resize, SILENT
        await stage.loop()
        assert stage.weather.sent["PATCH resize"] == 1
        assert stage.evictions == 0


async def test_the_500_of_several_budgets_is_a_no(small):
    text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"
    async with night(small, per_day="9") as stage:
        stage.weather.refuse = lambda m, p: (
            ServerFailed(500, "", text) if is_eviction(m, p) else None
        )
        await stage.loop()
        assert set(decisions(stage.part)) == {"PdbRefuses"}
        assert uids(small) == stage.before
        assert await stage.spent() == 0


async def test_flow_control_is_no_disruption_budget(small):
    busy = TooManyRequests(429, "TooManyRequests", "too many requests, please try again later")
    async with night(small) as stage:
        stage.weather.refuse = lambda m, p: busy if is_eviction(m, p) else None
        await stage.loop()
        assert "PdbRefuses" not in decisions(stage.part)
        assert "ApiServerBusy" in stage.held_by()
        assert stage.evictions == 1
        stage.weather.refuse = lambda _method, _path: None
        await stage.loop()
        assert stage.evictions == 4


async def test_a_frozen_watch_is_not_settled_by_the_next_loop(small):
    async with night(small) as stage:
        stage.freeze()
        await stage.loop()
        assert stage.evictions == 3
        for age_s in (60.05, 149.0):  # the next loop, and the last one that believes the watch
            stage.later(age_s)
            await stage.loop()
            assert stage.evictions == 3
        assert len(stage.before & uids(small)) == 3


async def test_pods_that_others_took_away_are_down(small):
    async with night(small) as stage:
        stage.freeze()
        stage.delete(sorted(small.pods(), key=lambda pod: pod["metadata"]["name"])[:3])
        left = uids(small) & stage.before
        await stage.loop()
        assert stage.evictions == 3
        stage.later(60.05)
        await stage.loop()
        assert uids(small) >= left


async def test_a_group_that_shrinks_after_an_eviction_is_left_alone(small):
    async with night(small, options=RATED) as stage:

        def lose(method: str, path: str) -> bool:
            if is_eviction(method, path) and stage.evictions == 1:
                stage.delete(small.pods()[2:])
            return False

        stage.weather.lose = lose
        await stage.loop()
        assert stage.evictions == 1


async def test_a_group_that_shrinks_while_a_disruption_is_counted_is_left_alone(small):
    async with night(small, per_day="9") as stage:
        spending = stage.tools.spending
        spend = spending.spend

        async def slowly(key: VpaKey, now: float) -> bool:
            if stage.evictions == 1:
                stage.delete(small.pods()[2:])
                await asyncio.sleep(0.5)  # the watch shows it meanwhile
            return await spend(key, now)

        spending.spend = slowly  # type: ignore[method-assign]
        await stage.loop()
        assert stage.evictions == 1
        assert await stage.spent() == 1


async def test_a_group_that_grows_within_its_turn_is_left_alone(small):
    async with night(small, options=RATED) as stage:

        def lose(method: str, path: str) -> bool:
            if is_eviction(method, path) and stage.evictions == 1:
                held = small.objects.get("deployments", "default", "web")
                spec = {**held["spec"], "replicas": 12}
                small.objects.update("deployments", "default", "web", {**held, "spec": spec})
            return False

        stage.weather.lose = lose
        await stage.loop()
        assert stage.evictions == 1


async def test_a_group_whose_pods_come_back_unsized_is_tried_one_at_a_time_after_a_while(small):
    async with night(small) as stage:
        await stage.loop()
        assert stage.evictions == 3
        await small.until(lambda: small.ready() == 6)
        await small.until(lambda: len(stage.part.stores.pods) == 6)
        await stage.loop()
        assert stage.evictions == 3
        assert set(decisions(stage.part)) == {"AdmissionNotAlive"}
        assert stage.held_by() == {"PodsReturnUnsized"}
        stage.later(700.0)
        await stage.loop()
        assert stage.evictions == 4
        await small.until(lambda: small.ready() == 6)
        await stage.loop()
        assert stage.evictions == 4
        assert len(stage.before & uids(small)) >= 2


async def test_a_pod_that_waits_for_a_node_is_known_when_others_are_evicted(small):
    async with night(small) as stage:
        observer, returns = stage.tools.observer, stage.tools.returns
        pods_of = observer.pods_of

        async def one_waits(rivals: Any) -> Any:
            live, _ = await pods_of(rivals)
            return live[1:], live[:1]

        observer.pods_of = one_waits  # type: ignore[method-assign]
        await stage.loop()
        assert [group.known for group in returns._groups.values()] == [stage.before]
