"""The recommender against the sandbox: recommendations, checkpoints, restarts, failures."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from podscale.core import quantity
from podscale.core.times.rfc3339 import rfc3339
from podscale.kube.client.errors import Unprocessable
from podscale.kube.leadership.leading import LeaseChoice
from podscale.kube.leadership.lease import LeaseTimes
from tests.integration.vpa_stage import RHYTHM, Stage, deployment, stage, vpa
from vpa.model.checkpoint_selection import SaveBand
from vpa.model.recommendations import DeadBand
from vpa.model.samples.checkpoints import ANNOTATION, Extra
from vpa.model.samples.container_rows import OpenWindow
from vpa.recommender.flags import Options
from vpa.recommender.part import RecommenderPart

FAST = Options(
    interval_s=0.1, status_band=DeadBand(0.0, 0.0), save_band=SaveBand(0.0, 0.0), workers=4
)
LEASE = LeaseChoice("kube-system", "vpa-recommender-lease", "one", LeaseTimes(2.0, 1.5, 0.1))


@pytest.fixture
async def small(tmp_path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as built:
        yield built


@asynccontextmanager
async def recommending(
    small: Stage,
    options: Options = FAST,
    lease: LeaseChoice | None = None,
    registry: CollectorRegistry | None = None,
    **stores: Any,
) -> AsyncIterator[RecommenderPart]:
    part = RecommenderPart(
        small.api,
        small.stores(**stores),
        small.usage,
        options,
        registry or CollectorRegistry(),
        lease=lease,
        rhythm=RHYTHM,
    )
    part.recommender._wall = lambda: small.usage.now
    task = asyncio.create_task(part.run())
    try:
        yield part
    finally:
        await part.stop()
        task.cancel()
        await asyncio.wait({task})


def target(small: Stage, name: str = "web") -> dict[str, str] | None:
    status = small.vpa(name).get("status") or {}
    entries = (status.get("recommendation") or {}).get("containerRecommendations") or ()
    return entries[0]["target"] if entries else None


def condition(small: Stage, kind: str, name: str = "web") -> dict[str, Any] | None:
    conditions = (small.vpa(name).get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind), None)


def checkpoints(small: Stage) -> list[dict[str, Any]]:
    return small.objects.list("verticalpodautoscalercheckpoints", "default")


def open_windows(small: Stage) -> list[OpenWindow]:
    annotations = checkpoints(small)[0]["metadata"].get("annotations") or {}
    if ANNOTATION not in annotations:
        return []
    return list(msgspec.json.decode(annotations[ANNOTATION], type=Extra).windows)


async def measured(small: Stage) -> None:
    small.objects.create("deployments", "default", deployment(2))
    small.objects.create("verticalpodautoscalers", "default", vpa("Off"))
    await small.until(lambda: small.ready() == 2)


async def test_a_deployment_with_a_vpa_gets_a_recommendation_and_a_checkpoint(small):
    await measured(small)
    registry = CollectorRegistry()
    async with recommending(small, registry=registry):
        await small.until(lambda: target(small) is not None and bool(checkpoints(small)))
    # 200 m of CPU lie in a bucket whose end is 215 m; 15 % margin on top of it (vpa.md 2.4).
    assert quantity.parse(target(small)["cpu"]).milli == 247
    provided = condition(small, "RecommendationProvided")
    assert provided is not None
    assert provided["status"] == "True"
    (checkpoint,) = checkpoints(small)
    assert checkpoint["metadata"]["name"] == "web-main"
    assert checkpoint["spec"] == {"vpaObjectName": "web", "containerName": "main"}
    assert checkpoint["status"]["version"] == "v3"
    assert checkpoint["status"]["totalSamplesCount"] >= 1
    text = generate_latest(registry).decode()
    assert 'vpa_recommender_vpa_objects_count{api="v1",has_recommendation="true"' in text
    assert 'vpa_recommender_execution_latency_seconds_count{step="UpdateVPAs"}' in text


async def test_a_restart_keeps_the_recommendation_and_goes_on_from_the_checkpoint(small):
    await measured(small)
    async with recommending(small):
        await small.until(
            lambda: (
                bool(checkpoints(small))
                and checkpoints(small)[0]["status"]["totalSamplesCount"] >= 10
            )
        )
    before = target(small)
    count = checkpoints(small)[0]["status"]["totalSamplesCount"]
    small.usage.is_down = True
    async with recommending(small) as part:
        await small.until(lambda: part.recommender.estimates is not None)
        await asyncio.sleep(0.3)
        assert target(small) == before
        small.usage.is_down = False
        await small.until(lambda: checkpoints(small)[0]["status"]["totalSamplesCount"] > count)
    assert target(small) == before


async def test_without_any_sample_nothing_is_recommended_and_a_condition_says_so(small):
    await measured(small)
    small.usage.is_down = True
    async with recommending(small):
        await small.until(lambda: condition(small, "RecommendationProvided") is not None)
    provided = condition(small, "RecommendationProvided")
    assert provided is not None
    assert (provided["status"], provided["reason"]) == ("False", "NoSamples")
    assert target(small) is None
    assert checkpoints(small) == []


async def test_a_target_that_is_missing_or_not_topmost_is_a_condition(small):
    await measured(small)
    small.objects.create("verticalpodautoscalers", "default", vpa("Off", "gone"))
    (replica_set,) = small.objects.list("replicasets", "default")
    below = vpa("Off", "below")
    below["spec"]["targetRef"] = {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set["metadata"]["name"],
    }  # fmt: skip
    small.objects.create("verticalpodautoscalers", "default", below)
    async with recommending(small):
        await small.until(lambda: condition(small, "ConfigUnsupported", "gone") is not None)
        await small.until(lambda: condition(small, "ConfigUnsupported", "below") is not None)
        await small.until(lambda: target(small) is not None)
    assert "does not exist" in condition(small, "ConfigUnsupported", "gone")["message"]
    name = replica_set["metadata"]["name"]
    assert condition(small, "ConfigUnsupported", "below")["message"] == (
        f"The target apps/v1.ReplicaSet/{name} has a parent controller but it should point to a "
        "topmost well-known or scalable controller"
    )
    assert condition(small, "ConfigUnsupported") is None


async def test_another_recommenders_vpa_is_left_alone(small):
    await measured(small)
    named = vpa("Off", "named", recommenders=[{"name": "other"}])
    named["spec"]["targetRef"]["name"] = "web"
    small.objects.create("verticalpodautoscalers", "default", named)
    async with recommending(small):
        await small.until(lambda: target(small) is not None)
    assert "status" not in small.vpa("named")


async def test_an_oom_raises_memory_at_once_and_survives_a_restart(small):
    await measured(small)
    registry = CollectorRegistry()
    async with recommending(small, registry=registry):
        await small.until(lambda: target(small) is not None)
        before = quantity.parse(target(small)["memory"]).value
        pod = small.pods()[0]
        state = dict(pod["status"]["containerStatuses"][0])
        finished = rfc3339(small.usage.now)
        killed = {"reason": "OOMKilled", "exitCode": 137, "startedAt": finished,
                  "finishedAt": finished}  # fmt: skip
        state["resources"] = {"requests": {"cpu": "100m", "memory": "2Gi"}}
        state["restartCount"] = 1
        state["lastState"] = {"terminated": killed}
        status = {**pod["status"], "containerStatuses": [state]}
        small.objects.update(
            "pods", "default", pod["metadata"]["name"], {**pod, "status": status}, "status"
        )
        await small.until(lambda: quantity.parse(target(small)["memory"]).value > before)
        raised = quantity.parse(target(small)["memory"]).value
        read = 'vpa_resources_get_resources_count{source="Pod.Status.ContainerStatuses"} 1.0'
        assert read in generate_latest(registry).decode()
        # The bump stands in the open window: in the annotation, not in the v3 status.
        await small.until(lambda: any(window.oom_peak for window in open_windows(small)))
    async with recommending(small) as part:
        await small.until(lambda: part.recommender.estimates is not None)
        await asyncio.sleep(0.3)
        assert quantity.parse(target(small)["memory"]).value >= raised * 0.95


async def test_checkpoints_of_a_vpa_that_is_gone_are_deleted(small):
    await measured(small)
    options = Options(interval_s=0.1, checkpoints_gc_s=0.0, save_band=SaveBand(0.0, 0.0))
    async with recommending(small, options):
        await small.until(lambda: bool(checkpoints(small)))
        small.objects.delete("verticalpodautoscalers", "default", "web")
        await small.until(lambda: not checkpoints(small))


async def test_two_pairs_of_one_checkpoint_name_do_not_overwrite_each_other(small):
    await measured(small)
    other = deployment(1, "web-a")
    other["spec"]["template"]["spec"]["containers"][0]["name"] = "b"
    second = deployment(1, "web-b")
    second["spec"]["template"]["spec"]["containers"][0]["name"] = "a-b"
    small.objects.create("deployments", "default", other)
    small.objects.create("deployments", "default", second)
    small.objects.create("verticalpodautoscalers", "default", vpa("Off", "web-a"))
    clash = vpa("Off", "web")
    small.objects.delete("verticalpodautoscalers", "default", "web")
    clash["spec"]["targetRef"]["name"] = "web-b"
    small.objects.create("verticalpodautoscalers", "default", clash)
    async with recommending(small):
        await small.until(lambda: len(checkpoints(small)) == 2)
    pairs = {(c["spec"]["vpaObjectName"], c["spec"]["containerName"]) for c in checkpoints(small)}
    assert pairs == {("web-a", "b"), ("web", "a-b")}


async def test_a_damaged_checkpoint_is_mended_and_harms_nobody(small):
    await measured(small)
    small.objects.create(
        "verticalpodautoscalercheckpoints",
        "default",
        {
            "kind": "VerticalPodAutoscalerCheckpoint",
            "apiVersion": "autoscaling.k8s.io/v1",
            "metadata": {"name": "web-main"},
            "spec": {"vpaObjectName": "web", "containerName": "main"},
            "status": {"version": "v2", "totalSamplesCount": -1},
        },
    )
    async with recommending(small):
        await small.until(lambda: checkpoints(small)[0]["status"].get("version") == "v3")
        await small.until(lambda: target(small) is not None)


async def test_with_dead_bands_a_steady_load_writes_next_to_nothing(small):
    small.objects.create("deployments", "default", deployment(2))
    # Bounds close in while history is young: let a minute count as a long history.
    intervals = {f"vpa.podscale.io/{name}-confidence-interval": "1m" for name in ("cpu", "memory")}
    wanted = vpa("Off")
    wanted["metadata"]["annotations"] = intervals
    small.objects.create("verticalpodautoscalers", "default", wanted)
    await small.until(lambda: small.ready() == 2)
    steady = Options(
        interval_s=0.02, status_band=DeadBand(0.02, 1e9), save_band=SaveBand(0.01, 1e9)
    )
    began = small.usage.now
    async with recommending(small, steady):
        await small.until(lambda: small.usage.now > began + 60 * 60.0)
        counts = small.cluster.server.counts
        patches = (
            ("patch", "verticalpodautoscalers.autoscaling.k8s.io/status"),
            ("patch", "verticalpodautoscalercheckpoints.autoscaling.k8s.io"),
        )
        before = [counts[each] for each in patches]
        await small.until(lambda: small.usage.now > began + 90 * 60.0)
        # Thirty passes; upstream would have sent sixty requests.
        assert sum(counts[each] for each in patches) - sum(before) <= 2
    assert before[0]


class Overtaken:
    """A connection on which somebody is faster than the first status."""

    def __init__(self, small: Stage) -> None:
        self._small, self._api = small, small.api
        self.user_agent, self.stream = small.api.user_agent, small.api.stream
        self.answers: list[str] = []

    async def request(self, method: Any, path: str, **more: Any) -> Any:
        if method != "PATCH" or not path.endswith("/web/status"):
            return await self._api.request(method, path, **more)
        if not self.answers:
            held = self._small.vpa()
            policy = {"containerPolicies": [{"containerName": "*", "minAllowed": {"cpu": "7"}}]}
            spec = {**held["spec"], "resourcePolicy": policy}
            changed = {**held, "spec": spec}
            self._small.objects.update("verticalpodautoscalers", "default", "web", changed)
        try:
            answer = await self._api.request(method, path, **more)
        except Unprocessable:
            self.answers.append("refused")
            raise
        self.answers.append("written")
        return answer


async def test_a_status_decided_about_another_spec_is_decided_anew(small):
    await measured(small)
    small.api = overtaken = Overtaken(small)
    async with recommending(small):
        await small.until(lambda: (target(small) or {}).get("cpu") == "7")
    assert overtaken.answers[:2] == ["refused", "written"]


async def test_two_replicas_write_as_one_and_hand_over(small):
    await measured(small)
    async with recommending(small, lease=LEASE) as first:
        await small.until(lambda: target(small) is not None)
        other = LeaseChoice(LEASE.namespace, LEASE.name, "two", LEASE.times)
        async with recommending(small, lease=other) as second:
            assert first.is_leader()
            assert not second.is_leader()
            await first.stop()
            await small.until(second.is_leader)
            assert not first.is_leader()
            await small.until(lambda: second.recommender.estimates is not None)
