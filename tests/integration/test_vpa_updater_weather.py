"""The updater in bad weather: lost answers, refusals for an hour, restarts, VPAs that break."""

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from podscale.kube.client.errors import ApiUnreachable, Forbidden, TooManyRequests, Unprocessable
from podscale.kube.client.wire import StatusCause
from tests.integration.test_vpa_admission import recommended
from tests.integration.test_vpa_updater import decisions, events, requests, running, uids
from tests.integration.vpa_stage import deployment, vpa
from tests.integration.vpa_weather import (
    PER_DAY,
    Weather,
    annotate,
    is_eviction,
    is_resize,
    loops,
    small,
    updating,
)
from vpa.updater.cluster.pod_disruptor import INFEASIBLE
from vpa.updater.decide.disruption_budget import SPENT, EvictionRate
from vpa.updater.decide.priority import UpdaterSettings
from vpa.updater.flags import Options

__all__ = ["small"]

BUDGET = (StatusCause("DisruptionBudget"),)


async def test_an_eviction_refused_for_an_hour_is_asked_once_a_loop_and_then_done(small):
    recommended(small, "Recreate")
    before = await running(small, 6)
    weather = Weather(small)
    weather.refuse = lambda method, path: (
        TooManyRequests(429, "TooManyRequests", "Cannot evict pod: budget", causes=BUDGET)
        if is_eviction(method, path)
        else None
    )
    async with updating(small, weather) as part:
        await small.until(lambda: "PdbRefuses" in decisions(part))
        weather.sent.clear()
        started = part.updater.loop.succeeded
        await small.until(loops(part)(60), 30)  # an hour of loops at the default interval
        ended = part.updater.loop.succeeded - started
        assert uids(small) == before
        assert 1 <= weather.sent["POST eviction"] <= ended + 1
        assert set(decisions(part)) == {"PdbRefuses"}
        assert not any(each.act for each in part.updater.decisions.everything())
        part.updater.decisions.forget = lambda _stores: None
        weather.refuse = lambda _method, _path: None
        await small.until(lambda: uids(small) != before)
        await small.until(
            lambda: any(each.act is not None for each in part.updater.decisions.everything())
        )
        acts = [each.act for each in part.updater.decisions.everything() if each.act is not None]
        assert not any(act.in_place for act in acts)


async def test_a_refusal_says_nothing_about_pods_with_other_labels(small):
    recommended(small, "Recreate")
    await running(small, 4)
    canary = small.pods()[0]
    name = canary["metadata"]["name"]
    metadata = {**canary["metadata"], "labels": {**canary["metadata"]["labels"], "track": "canary"}}
    small.objects.update("pods", "default", name, {**canary, "metadata": metadata})
    weather = Weather(small)
    asked: Counter[str] = Counter()

    def refuse(method: str, path: str) -> Exception | None:
        if not is_eviction(method, path):
            return None
        asked[path.split("/")[-2]] += 1
        return TooManyRequests(429, "TooManyRequests", "Cannot evict pod: budget", causes=BUDGET)

    weather.refuse = refuse
    async with updating(small, weather) as part:
        await small.until(lambda: asked[name] > 0)
        await small.until(loops(part)(3))
        assert len(asked) == 2  # and one of the three that are alike


async def test_a_budget_that_is_seen_to_allow_nothing_is_not_asked(small):
    recommended(small, "Recreate")
    await running(small)
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
    budget = "poddisruptionbudgets"
    await small.until(
        lambda: (
            (small.objects.get(budget, "default", "all").get("status") or {}).get("expectedPods")
            == 2
        )
    )
    weather = Weather(small)
    async with updating(small, weather) as part:
        await small.until(lambda: part.updater.loop.succeeded > 5)
        assert weather.sent["POST eviction"] == 0
        assert set(decisions(part)) == {"PdbRefuses"}


async def test_an_eviction_whose_answer_is_lost_counts_against_the_budget(small):
    recommended(small, "Recreate")
    before = await running(small, 4)
    once = Options(interval_s=0.1, lease="", settings=UpdaterSettings(eviction_tolerance=0.25))
    weather = Weather(small)
    # It neither arrives nor is refused: the pod lives on, and may yet go.
    weather.refuse = lambda method, path: (
        ApiUnreachable("timed out", is_timeout=True) if is_eviction(method, path) else None
    )
    async with updating(small, weather, once) as part:
        await small.until(lambda: weather.sent["POST eviction"] == 1)
        await small.until(loops(part)(10))
        assert weather.sent["POST eviction"] == 1
    assert uids(small) == before


async def test_the_budget_of_a_day_outlives_restarts_and_lost_answers(small):
    recommended(small, "Recreate")
    annotate(small, **{PER_DAY: "2"})
    before = await running(small, 6)
    weather = Weather(small)
    weather.lose = is_eviction
    for _ in range(3):
        async with updating(small, weather) as part:
            await small.until(loops(part)(8))
    assert small.vpa()["metadata"]["annotations"][SPENT].endswith(":2")
    assert len(before - uids(small)) <= 2  # one that came back unsized may be the second
    assert weather.sent["POST eviction"] == 2
    async with updating(small, weather) as part:
        await small.until(lambda: "BudgetExhausted" in decisions(part))
        told = part.updater.decisions.everything()[0].decision
        assert told.facts["held_by"] == "DailyBudgetExhausted"


async def test_nothing_is_disturbed_that_cannot_be_counted(small):
    recommended(small, "Recreate")
    annotate(small, **{PER_DAY: "2"})
    before = await running(small, 6)
    weather = Weather(small)
    weather.refuse = lambda method, path: (
        ApiUnreachable("gone") if method == "PATCH" and "verticalpodautoscalers" in path else None
    )
    async with updating(small, weather) as part:
        await small.until(loops(part)(5))
        assert uids(small) == before
        # Upstream's rights do not include it: then the count lasts until a restart.
        weather.refuse = lambda method, path: (
            Forbidden(403, "Forbidden", "no")
            if method == "PATCH" and "verticalpodautoscalers" in path
            else None
        )
        await small.until(lambda: weather.sent["POST eviction"] == 2)
        await small.until(loops(part)(5))
        assert weather.sent["POST eviction"] == 2


async def test_a_vpa_that_breaks_loses_its_own_turn_only(small):
    recommended(small, "Recreate")
    before = await running(small)
    small.objects.create("deployments", "default", deployment(2, "bad"))
    bad = vpa("Recreate", "bad")
    small.objects.create("verticalpodautoscalers", "default", bad)
    await small.until(lambda: small.ready() == 4)
    weather = Weather(small)
    async with updating(small, weather) as part:
        observer = part.updater._tools.observer
        pods_of = observer.pods_of

        async def breaking(rivals: Any) -> Any:
            if rivals[0].vpa.metadata.name == "bad":
                raise ZeroDivisionError
            return await pods_of(rivals)

        observer.pods_of = breaking
        await small.until(lambda: bool(before - uids(small)))
        assert {told(each) for each in events(small, "EvictedPod")} <= {"web"}


async def test_a_rate_that_is_slower_than_the_loops_is_kept_and_nobody_starves(small):
    recommended(small, "Recreate")
    await running(small)
    small.objects.create("deployments", "default", deployment(2, "zoo"))
    small.objects.create("verticalpodautoscalers", "default", vpa("Recreate", "zoo"))
    status = {**small.vpa("zoo"), "status": small.vpa()["status"]}
    small.objects.update("verticalpodautoscalers", "default", "zoo", status, "status")
    await small.until(lambda: small.ready() == 4)
    weather = Weather(small)
    # No pod comes back sized, so the first VPA alone could use the rate up for ever.
    slow = Options(interval_s=0.1, lease="", rate=EvictionRate(2.0, 1))
    async with updating(small, weather, slow):
        begun = asyncio.get_running_loop().time()
        await small.until(lambda: len({told(each) for each in events(small, "EvictedPod")}) == 2)
        took_s = asyncio.get_running_loop().time() - begun
        assert weather.sent["POST eviction"] <= 1 + took_s / 0.5


def told(event: dict[str, Any]) -> str:
    found: str = event["involvedObject"]["name"]
    return found


async def test_a_resize_that_fails_evicts_nobody_and_one_that_is_refused_does(small):
    recommended(small, "InPlaceOrRecreate")
    before = await running(small)
    weather = Weather(small)
    weather.refuse = lambda method, path: (
        ApiUnreachable("timed out", is_timeout=True) if is_resize(method, path) else None
    )
    async with updating(small, weather) as part:
        await small.until(lambda: weather.sent["PATCH resize"] > 0)
        await small.until(loops(part)(5))
        assert uids(small) == before
        assert weather.sent["POST eviction"] == 0
    weather.refuse = lambda method, path: (
        Unprocessable(422, "Invalid", "may not be resized") if is_resize(method, path) else None
    )
    async with updating(small, weather):
        await small.until(lambda: bool(before - uids(small)))
        await small.until(lambda: bool(events(small, "EvictedByVPA")))
    assert set(requests(small)) == {"100m"}


async def test_a_size_that_the_node_cannot_give_is_not_tried_again_after_a_restart(small):
    recommended(small, "InPlace")
    before = await running(small)
    weather = Weather(small)
    for pod in small.pods():
        status = {
            **pod["status"],
            "conditions": [
                *pod["status"]["conditions"],
                {"type": "PodResizePending", "status": "True", "reason": "Infeasible"},
            ],
        }
        name = pod["metadata"]["name"]
        small.objects.update("pods", "default", name, {**pod, "status": status}, "status")
    async with updating(small, weather) as part:
        await small.until(
            lambda: all(INFEASIBLE in p["metadata"].get("annotations", {}) for p in small.pods())
        )
        await small.until(loops(part)(3))
    weather.sent.clear()
    async with updating(small, weather) as part:
        await small.until(loops(part)(5))
        assert weather.sent["PATCH resize"] == 0
        assert weather.sent["POST eviction"] == 0
    assert uids(small) == before


async def test_a_pod_that_is_not_tried_again_is_counted_under_its_vpa(small):
    recommended(small, "InPlace")
    body = deployment(2)
    template = body["spec"]["template"]
    refused = msgspec.json.encode(small.vpa()["status"]["recommendation"]).decode()
    template["metadata"]["annotations"] = {INFEASIBLE: refused}
    small.objects.create("deployments", "default", body)
    await small.until(lambda: small.ready() == 2)
    weather, registry = Weather(small), CollectorRegistry()
    names = {"vpa_name": "web", "vpa_namespace": "default"}
    labels = {"vpa_size_log2": "1", "update_mode": "InPlace", **names}
    metric = "vpa_updater_in_place_infeasible_skip_pods_total"
    async with updating(small, weather, registry=registry):
        await small.until(lambda: (registry.get_sample_value(metric, labels) or 0) >= 2)
        assert weather.sent["PATCH resize"] == 0


@pytest.mark.parametrize("how", ["deleted", "off", "annotated"])
async def test_a_vpa_that_changes_within_its_turn_disturbs_no_more(small, how):
    recommended(small, "Recreate")
    await running(small, 6)
    weather = Weather(small)
    # One turn evicts three pods in ten seconds; the second one must see what happened.
    slow = Options(interval_s=20.0, lease="", rate=EvictionRate(2.0, 1))
    async with updating(small, weather, slow) as part:
        await small.until(lambda: part.updater.loop.heartbeat.is_expected)
        turn = asyncio.create_task(part.updater.once())
        await small.until(lambda: weather.sent["POST eviction"] == 1)
        if how == "deleted":
            small.objects.delete("verticalpodautoscalers", "default", "web")
        elif how == "annotated":
            annotate(small, **{"vpa.podscale.io/disruption-windows": ""})
        else:
            held = small.vpa()
            spec = {**held["spec"], "updatePolicy": {"updateMode": "Off"}}
            small.objects.update("verticalpodautoscalers", "default", "web", {**held, "spec": spec})
        await turn
        assert weather.sent["POST eviction"] == 1


async def test_a_window_that_closes_within_a_loop_is_closed(small):
    recommended(small, "Recreate")
    annotate(small, **{"vpa.podscale.io/disruption-windows": "Mon 10:00-11:00"})
    await running(small, 6)
    weather = Weather(small)
    monday = 1_773_054_000.0 - 3600.0  # 2026-03-09T10:00:00Z
    slow = Options(interval_s=20.0, lease="", rate=EvictionRate(2.0, 1))
    async with updating(small, weather, slow) as part:
        await small.until(lambda: part.updater.loop.heartbeat.is_expected)
        part.updater.wall = lambda: monday + (3600.0 if weather.sent["POST eviction"] else 3599.0)
        await part.updater.once()
        assert weather.sent["POST eviction"] == 1
        assert "BudgetExhausted" in decisions(part)
