"""The loop over a scripted API: what is written, when, and what must never be."""

import asyncio
from typing import Any

import msgspec
import numpy as np
import pytest

from hpa.decide import Settings
from hpa.passes import Limits
from podscale.core.metrics import (
    Answer,
    ContainerColumns,
    NoData,
    NotFound,
    PodSamples,
    Refused,
    Sample,
    Stale,
    Unavailable,
)
from podscale.kube.errors import (
    Conflict,
    Forbidden,
    NotLeading,
    ServerFailed,
    Unprocessable,
    Unreachable,
)
from podscale.kube.lease import Term
from podscale.kube.objects.cluster import Lease
from podscale.kube.watching import Broken
from podscale.kube.wire import decode, format_micro_time
from tests.unit.hpa.world import (
    NS,
    Cluster,
    deployment_object,
    hpa_object,
    pod_object,
    writer,
)

pytestmark = pytest.mark.looptime

SETTINGS = Settings(sync_period_s=15.0)


def web(cluster: Cluster, size: int, *, most: int = 10, **spec: Any) -> None:
    cluster.put(hpa_object("web", most=most, **spec), deployment_object("web", size))
    cluster.put_pods(*(pod_object("web", n) for n in range(size)))


def as_read(seconds: float) -> float:
    """Return a time as a Lease's decoder makes it."""
    text = msgspec.json.encode({"metadata": {}, "spec": {"renewTime": format_micro_time(seconds)}})
    found = decode(text, Lease).spec.renew_time
    assert found is not None
    return found


def load(cluster: Cluster, milli: int) -> None:
    cluster.provider.usage = lambda _question, _pod: milli


async def test_twice_the_target_doubles_the_size_in_one_write() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    load(cluster, 2000)
    await cluster.run_for(1.0)
    assert cluster.scales() == [("web", 4)]
    (name, status) = cluster.statuses()[0]
    assert name == "web"
    assert status["desiredReplicas"] == 4
    assert status["lastScaleTime"]
    assert [each["reason"] for each in status["conditions"]][:3] == [
        "SucceededRescale", "ValidMetricFound", "DesiredWithinRange",
    ]  # fmt: skip
    assert ("web", "Normal", "SuccessfulRescale") in [e[:3] for e in cluster.recorder.events]


async def test_our_own_write_is_visible_to_the_next_pass() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    load(cluster, 2000)
    # No watch event comes at all: only the answers to our writes tell.
    await cluster.run_for(40.0)
    assert cluster.scales()[0] == ("web", 4)
    assert cluster.stores.deployments.get(NS, "web").spec.replicas == cluster.scales()[-1][1]  # type: ignore[union-attr]
    sizes = [size for _, size in cluster.scales()]
    assert sizes == sorted(set(sizes))  # never the same decision twice


async def test_a_steady_workload_is_neither_read_nor_written() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    await cluster.run_for(20.0)
    cluster.world.writes.clear()
    cluster.world.reads.clear()
    load(cluster, 1050)  # within tolerance, and within 10 % of the target
    await cluster.run_for(60.0)
    assert [w for w in cluster.world.writes if "configmaps" not in w[1]] == []
    assert [path for path in cluster.world.reads if "configmaps" not in path] == []
    assert cluster.metrics.saved > 0


async def test_without_a_deadband_every_value_is_written_as_upstream_does() -> None:
    cluster = Cluster(settings=SETTINGS, deadband=0.0)
    web(cluster, 2)
    values = iter(range(1000, 1100, 5))
    current = [next(values)]
    cluster.provider.usage = lambda _question, _pod: current[0]
    leading = asyncio.ensure_future(cluster.controller.run(Term(0, "", None)))
    for _ in range(4):
        await asyncio.sleep(15.0)
        current[0] = next(values)
    leading.cancel()
    await asyncio.wait({leading})
    assert len(cluster.statuses()) >= 4


async def test_a_new_object_and_a_changed_spec_are_decided_at_once() -> None:
    cluster = Cluster(settings=SETTINGS)
    leading = asyncio.ensure_future(cluster.controller.run(Term(0, "", None)))
    await asyncio.sleep(0.5)
    web(cluster, 2, least=3)
    await asyncio.sleep(0.5)
    assert cluster.scales() == [("web", 3)]
    changed = cluster.world.hpas[(NS, "web")]
    changed["spec"] = {**changed["spec"], "minReplicas": 5}
    changed["metadata"]["resourceVersion"] = cluster.world.next_version()
    cluster.sync()
    await asyncio.sleep(0.5)
    assert cluster.scales() == [("web", 3), ("web", 5)]
    leading.cancel()
    await asyncio.wait({leading})


async def test_with_the_old_release_a_changed_spec_waits_for_its_turn() -> None:
    from hpa.decide import Gates

    cluster = Cluster(
        settings=Settings(release="1.36", gates=Gates(generation=False), sync_period_s=15.0)
    )
    leading = asyncio.ensure_future(cluster.controller.run(Term(0, "", None)))
    await asyncio.sleep(20.0)
    web(cluster, 2, least=3)
    await asyncio.sleep(15.5)
    assert cluster.scales() == [("web", 3)]
    leading.cancel()
    await asyncio.wait({leading})


async def test_an_own_period_is_kept_beside_the_slots() -> None:
    cluster = Cluster(settings=SETTINGS)
    quick = hpa_object("web")
    quick["metadata"]["annotations"] = {"podscale.io/sync-period": "3s"}
    cluster.put(quick, deployment_object("web", 1))
    cluster.put_pods(pod_object("web", 0))
    await cluster.run_for(31.0)
    assert 10 <= len(cluster.provider.asked) <= 12


@pytest.mark.parametrize("conflicts", [4, 5])
async def test_four_conflicts_are_outlasted_and_five_are_not(conflicts: int) -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2, least=3)
    left = [conflicts]

    def fail(method: str, path: str) -> Exception | None:
        if method == "PUT" and path.endswith("/scale") and left[0]:
            left[0] -= 1
            return Conflict(409, "Conflict", "the object has been modified")
        return None

    cluster.world.fail = fail  # type: ignore[assignment]
    await cluster.run_for(1.0)
    reasons = [event[2] for event in cluster.recorder.events]
    if conflicts == 4:
        assert cluster.world.workloads[(NS, "web")]["spec"]["replicas"] == 3
        assert reasons == ["SuccessfulRescale"]
    else:
        assert len(cluster.scales()) == 5
        assert cluster.world.workloads[(NS, "web")]["spec"]["replicas"] == 2
        assert reasons == ["FailedRescale"]
        assert cluster.statuses()[0][1]["conditions"][0]["reason"] == "FailedUpdateScale"
        trace = cluster.controller.traces.last((NS, "web"))
        assert trace is not None
        assert trace.outcome is not None
        assert trace.outcome.scale == "conflict"


@pytest.mark.parametrize(
    "failure",
    [
        Forbidden(403, "Forbidden", "no rights on deployments/scale"),
        Unprocessable(422, "Invalid", "spec.replicas: not like this"),
        ServerFailed(500, "InternalError", "webhook says no"),
        Unreachable("connection refused"),
    ],
)
async def test_a_refused_scale_is_told_and_tried_again_next_period(failure: Exception) -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2, least=3)
    cluster.world.fail = lambda method, path: (
        failure if method == "PUT" and "scale" in path else None
    )
    await cluster.run_for(1.0)
    assert len(cluster.scales()) == 1
    assert cluster.recorder.events[0][2] == "FailedRescale"
    cluster.world.fail = lambda _method, _path: None
    await cluster.run_for(16.0)
    assert cluster.world.workloads[(NS, "web")]["spec"]["replicas"] == 3


async def test_a_failed_status_write_is_an_event_and_not_a_forgotten_rescale() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2, behavior={"scaleUp": {"policies": [
        {"type": "Pods", "value": 2, "periodSeconds": 600}]}})  # fmt: skip
    load(cluster, 9000)
    cluster.world.fail = lambda method, _path: (
        ServerFailed(500, "InternalError", "etcd is full") if method == "PATCH" else None
    )
    await cluster.run_for(31.0)
    assert cluster.scales() == [("web", 4)]  # the policy still counts the first rescale
    assert "FailedUpdateStatus" in [event[2] for event in cluster.recorder.events]


async def test_nothing_is_written_without_the_lease() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2, least=3)

    def guard() -> None:
        raise NotLeading("the Lease has run out")

    cluster.world.guard = guard
    await cluster.run_for(20.0)
    assert cluster.world.writes == []
    assert cluster.recorder.events == []


async def test_shadow_decides_and_writes_nothing_at_all() -> None:
    cluster = Cluster(settings=Settings(sync_period_s=15.0, mode="shadow"))
    web(cluster, 2)
    load(cluster, 2000)
    await cluster.run_for(40.0)
    assert cluster.world.writes == []
    assert cluster.controller.traces.reason((NS, "web")) == "ShadowMode"
    assert cluster.controller.traces.decided((NS, "web")) == 4


async def test_shadow_adopts_the_rescales_of_the_controller_that_acts() -> None:
    cluster = Cluster(settings=Settings(sync_period_s=15.0, mode="shadow"))
    web(cluster, 2, behavior={"scaleUp": {}})
    leading = asyncio.ensure_future(cluster.controller.run(Term(0, "", None)))
    await asyncio.sleep(16.0)
    acted = cluster.world.hpas[(NS, "web")]
    cluster.world.hpas[(NS, "web")] = {
        **acted,
        "metadata": {
            **acted["metadata"],
            "resourceVersion": cluster.world.next_version(),
            "managedFields": [writer("kube-controller-manager", "2026-11-21T10:00:00Z")],
        },
        "status": {
            "currentReplicas": 2,
            "desiredReplicas": 4,
            "lastScaleTime": "2026-11-21T10:00:00Z",
        },
    }
    cluster.sync()
    entry = cluster.controller.catalog.get((NS, "web"))
    assert entry is not None
    assert entry.hpa is not None
    past = cluster.controller.memory.past(entry, entry.hpa, 2, cluster.wall())
    assert [each.change for each in past.scale_ups] == [2]
    leading.cancel()
    await asyncio.wait({leading})


async def test_nothing_shrinks_while_a_watch_is_broken_and_growth_goes_on() -> None:
    cluster = Cluster(settings=Settings(sync_period_s=15.0, downscale_stabilization_s=0.0))
    web(cluster, 4)
    load(cluster, 100)
    broken = Broken("the stream broke", None)
    cluster.stores.pods.apply(broken, scope="", now=0.0)
    await cluster.run_for(40.0)
    assert cluster.scales() == []
    load(cluster, 2000)
    await cluster.run_for(16.0)
    assert cluster.scales() == [("web", 8)]


async def test_a_metric_failure_keeps_the_size_and_says_why() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 4)
    cluster.provider.answer_with = lambda _question: Unavailable("PrometheusDown", "no route")
    await cluster.run_for(40.0)
    assert cluster.scales() == []
    reasons = {event[2] for event in cluster.recorder.events}
    assert reasons == {"FailedGetPodsMetric", "FailedComputeMetricsReplicas"}
    assert cluster.controller.traces.reason((NS, "web")) == "MetricUnavailable"


_NOW = 1_795_000_000.0
NOTHING = np.empty(0)
USELESS: dict[str, Answer] = {
    "no-such-metric": NotFound("NotFound", "no rule knows it"),
    "no-data": NoData("NoSeries", ""),
    "stale": Stale("Stale", "too old", 900.0),
    "down": Unavailable("Unreachable", "connection refused"),
    "late": Unavailable("Timeout", "too slow", is_timeout=True),
    "refused": Refused("BadQuery", "parse error"),
    "no-pod": PodSamples({}, _NOW),
    "all-stale": PodSamples({}, _NOW, frozenset({"web-0", "web-1", "web-2", "web-3"})),
    "pods-long-gone": PodSamples({"web-77": Sample(1, _NOW, 30.0)}, _NOW),
    "no-number": PodSamples({"web-0": Sample(float("nan"), _NOW)}, _NOW),  # type: ignore[arg-type]
    "another-question": ContainerColumns((), (), (), NOTHING, NOTHING, NOTHING, _NOW),
}


@pytest.mark.parametrize("name", USELESS)
async def test_no_useless_answer_shrinks_anything(name: str) -> None:
    cluster = Cluster(settings=Settings(sync_period_s=15.0, downscale_stabilization_s=0.0))
    web(cluster, 4)
    cluster.provider.answer_with = lambda _question: USELESS[name]
    await cluster.run_for(46.0)
    assert cluster.scales() == []


async def test_a_provider_that_raises_or_hangs_is_a_failed_metric() -> None:
    cluster = Cluster(settings=SETTINGS, limits=Limits(answer_timeout_s=5.0))
    web(cluster, 4)
    cluster.provider.delay_s = 60.0
    await cluster.run_for(30.0)
    assert cluster.scales() == []
    trace = cluster.controller.traces.last((NS, "web"))
    assert trace is not None
    assert trace.observation.answers[0] == Unavailable(
        "MetricsTimeout", "no answer within 5 s", is_timeout=True
    )


async def test_a_slow_write_delays_nobody_else() -> None:
    cluster = Cluster(settings=SETTINGS)
    names = [f"web{n}" for n in range(20)]
    cluster.put(
        *(hpa_object(name, least=3) for name in names),
        *(deployment_object(name, 2) for name in names),
    )
    cluster.put_pods(*(pod_object(name, n) for name in names for n in range(2)))
    cluster.world.delay = lambda _method, path: 30.0 if "web0/" in path else 0.0
    await cluster.run_for(2.0)
    assert {name for name, _ in cluster.scales()} >= set(names[1:])


async def test_two_hpas_on_one_target_both_stand_still_and_are_told() -> None:
    cluster = Cluster(settings=SETTINGS)
    twin = hpa_object("twin")
    twin["spec"]["scaleTargetRef"]["name"] = "web"
    web(cluster, 2)
    cluster.put(twin)
    load(cluster, 5000)
    await cluster.run_for(31.0)
    assert cluster.scales() == []
    for name in ("web", "twin"):
        assert cluster.controller.traces.reason((NS, name)) == "SameTargetAsOtherHPA"
    assert {e[0] for e in cluster.recorder.events if e[2] == "AmbiguousSelector"} == {"web", "twin"}


async def test_a_paused_object_is_left_alone() -> None:
    cluster = Cluster(settings=SETTINGS)
    paused = hpa_object("web", least=3)
    paused["metadata"]["annotations"] = {"podscale.io/paused": "true"}
    cluster.put(paused, deployment_object("web", 1))
    cluster.put_pods(pod_object("web", 0))
    await cluster.run_for(31.0)
    assert cluster.scales() == []
    assert cluster.statuses() == []
    assert cluster.provider.asked == []
    assert cluster.controller.traces.reason((NS, "web")) == "Paused"


async def test_a_vanished_target_is_told_in_the_api_servers_words() -> None:
    cluster = Cluster(settings=SETTINGS)
    cluster.put(hpa_object("web"))
    cluster.put_pods()
    await cluster.run_for(1.0)
    condition = cluster.statuses()[0][1]["conditions"][0]
    assert condition["reason"] == "FailedGetScale"
    assert condition["message"].endswith('deployments/scale.apps "web" not found')


async def test_a_deleted_object_is_forgotten_with_its_history() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    leading = asyncio.ensure_future(cluster.controller.run(Term(0, "", None)))
    await asyncio.sleep(2.0)
    assert "shop/web" in str(cluster.world.config_maps)
    del cluster.world.hpas[(NS, "web")]
    cluster.sync()
    await asyncio.sleep(10.0)
    assert "shop/web" not in str(cluster.world.config_maps)
    assert cluster.controller.traces.last((NS, "web")) is None
    leading.cancel()
    await asyncio.wait({leading})


async def test_the_next_leader_keeps_the_window_of_the_last_one() -> None:
    first = Cluster(settings=SETTINGS)
    web(first, 2)
    load(first, 2000)
    await first.run_for(16.0)  # recommends 4
    world = first.world
    second = Cluster(settings=SETTINGS, world=world, wall=first.wall)
    second.sync()
    second.put_pods(*(pod_object("web", n) for n in range(4)))
    load(second, 100)
    await second.run_for(60.0, Term(1, "other", as_read(first.wall())))
    assert world.workloads[(NS, "web")]["spec"]["replicas"] >= 4
    assert second.controller.traces.reason((NS, "web")) == "ScaleDownStabilized"


async def test_a_leader_that_died_before_storing_is_found_out_by_the_status() -> None:
    policy = [{"type": "Pods", "value": 2, "periodSeconds": 600}]
    first = Cluster(settings=SETTINGS)
    web(first, 2, behavior={"scaleUp": {"policies": policy}})
    load(first, 9000)
    await first.run_for(1.0)
    assert first.scales() == [("web", 4)]
    first.world.config_maps.clear()
    second = Cluster(settings=SETTINGS, world=first.world, wall=first.wall)
    second.sync()
    second.put_pods(*(pod_object("web", n) for n in range(4)))
    load(second, 9000)
    await second.run_for(31.0, Term(1, "other", first.wall()))
    assert second.scales() == [("web", 4)]  # only the write of the first one


async def test_a_size_that_nothing_explains_counts_as_a_rescale_of_now() -> None:
    policy = [{"type": "Pods", "value": 2, "periodSeconds": 600}]
    first = Cluster(settings=SETTINGS)
    web(first, 2, behavior={"scaleUp": {"policies": policy}})
    await first.run_for(1.0)
    first.world.workloads[(NS, "web")]["spec"]["replicas"] = 4  # written, and then died
    second = Cluster(settings=SETTINGS, world=first.world, wall=first.wall)
    second.sync()
    second.put_pods(*(pod_object("web", n) for n in range(4)))
    load(second, 9000)
    await second.run_for(31.0, Term(1, "other", first.wall()))
    assert second.scales() == []


async def test_histories_that_cannot_be_read_hold_everything_up() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2, least=3)
    cluster.world.fail = lambda _method, path: (
        ServerFailed(503, "", "down") if "configmaps" in path else None
    )
    await cluster.run_for(10.0)
    assert cluster.scales() == []
    cluster.world.fail = lambda _method, _path: None
    await cluster.run_for(10.0)
    assert cluster.scales() == [("web", 3)]


async def test_a_clock_that_jumps_neither_stops_nor_floods_the_loop() -> None:
    jump = [0.0]
    cluster = Cluster(
        settings=SETTINGS,
        wall=lambda: 1_795_000_000.0 + asyncio.get_running_loop().time() + jump[0],
    )
    web(cluster, 2)
    leading = asyncio.ensure_future(cluster.controller.run(Term(0, "", None)))
    for jumped in (0.0, 7200.0, -7200.0):
        jump[0] = jumped
        before = len(cluster.provider.asked)
        await asyncio.sleep(45.0)
        assert 3 <= len(cluster.provider.asked) - before <= 4
    leading.cancel()
    await asyncio.wait({leading})
    assert cluster.scales() == []


async def test_a_status_that_was_read_is_not_kept_twice_and_the_next_one_is_read_whole() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    await cluster.run_for(1.0)
    entry = cluster.controller.catalog.get((NS, "web"))
    assert entry is not None
    assert entry.hpa is not None
    assert {each.type for each in entry.hpa.status.conditions} >= {"AbleToScale", "ScalingActive"}
    assert entry.hpa.status.metrics
    assert entry.written.status.conditions is None
    assert cluster.stores.autoscalers.get(NS, "web") is entry.written
