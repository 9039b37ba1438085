"""The loop over a scripted API that fails, and what must never be written then."""

import numpy as np
import pytest

from hpa.decide.settings import Settings
from hpa.loop.state import Options
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
from podscale.kube.client.errors import (
    ApiUnreachable,
    Forbidden,
    NotLeading,
    ServerFailed,
    Unprocessable,
    WriteConflict,
)
from podscale.kube.informer.list_watch import WatchBroken
from tests.unit.hpa.webs import SETTINGS, load, web
from tests.unit.hpa.world import NS, Cluster, deployment_object, hpa_object, pod_object

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("conflicts", [4, 5])
async def test_four_conflicts_are_outlasted_and_five_are_not(conflicts: int) -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2, least=3)
    left = [conflicts]

    def fail(method: str, path: str) -> Exception | None:
        if method == "PUT" and path.endswith("/scale") and left[0]:
            left[0] -= 1
            return WriteConflict(409, "Conflict", "the object has been modified")
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
        ApiUnreachable("connection refused"),
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


async def test_nothing_shrinks_while_a_watch_is_broken_and_growth_goes_on() -> None:
    cluster = Cluster(settings=Settings(sync_period_s=15.0, downscale_stabilization_s=0.0))
    web(cluster, 4)
    load(cluster, 100)
    broken = WatchBroken("the stream broke", None)
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
    cluster = Cluster(settings=SETTINGS, options=Options(answer_timeout_s=5.0))
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


async def test_a_vanished_target_is_told_in_the_api_servers_words() -> None:
    cluster = Cluster(settings=SETTINGS)
    cluster.put(hpa_object("web"))
    cluster.put_pods()
    await cluster.run_for(1.0)
    condition = cluster.statuses()[0][1]["conditions"][0]
    assert condition["reason"] == "FailedGetScale"
    assert condition["message"].endswith('deployments.apps "web" not found')
