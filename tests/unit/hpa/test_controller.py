"""The loop over a scripted API: what is decided and written, and when."""

import asyncio
import gc
from collections import deque
from typing import Any

import pytest

from hpa.cluster.record import AutoscalerRecord
from hpa.decide.settings import Settings
from hpa.explain.explanation import explain
from hpa.flags import TABLE, settings_of
from podscale.kube.client.errors import ServerFailed
from podscale.kube.leadership.lease import Term
from podscale.serving.flags import parse
from tests.unit.hpa.webs import SETTINGS, load, web
from tests.unit.hpa.world import NS, Cluster, deployment_object, hpa_object, pod_object, writer

pytestmark = pytest.mark.looptime


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


async def test_a_generation_of_none_is_observed_as_zero_and_once() -> None:
    cluster = Cluster(settings=SETTINGS)
    scaler = hpa_object("web")
    del scaler["metadata"]["generation"]  # of an API server before 1.37
    cluster.put(scaler, deployment_object("web", 2))
    cluster.put_pods(pod_object("web", 0), pod_object("web", 1))
    await cluster.run_for(40.0)
    assert [status.get("observedGeneration") for _, status in cluster.statuses()] == [0]


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
    assert cluster.metrics.counts.saved > 0


async def test_statuses_that_were_written_together_are_refreshed_apart() -> None:
    cluster = Cluster(settings=SETTINGS)
    names = [f"web{n}" for n in range(60)]
    for name in names:
        cluster.put(hpa_object(name), deployment_object(name, 1))
    cluster.put_pods(*(pod_object(name, 0) for name in names))
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(5.0)
    assert len(cluster.statuses()) >= 60, "all of them, for their conditions are new"
    load(cluster, 1050)  # within tolerance, and within 10 % of the target
    refreshed: list[list[str]] = []
    for _ in range(21):
        cluster.world.writes.clear()
        await asyncio.sleep(15.0)
        refreshed.append([name for name, _ in cluster.statuses()])
    assert max(map(len, refreshed)) <= 12, "not all of them five minutes after the first"
    assert {name for each in refreshed for name in each} == set(names)
    leading.cancel()
    await asyncio.wait({leading})


async def test_without_a_deadband_every_value_is_written_as_upstream_does() -> None:
    cluster = Cluster(settings=SETTINGS, deadband=0.0)
    web(cluster, 2)
    values = iter(range(1000, 1100, 5))
    current = [next(values)]
    cluster.provider.usage = lambda _question, _pod: current[0]
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    for _ in range(4):
        await asyncio.sleep(15.0)
        current[0] = next(values)
    leading.cancel()
    await asyncio.wait({leading})
    assert len(cluster.statuses()) >= 4


async def test_a_new_object_and_a_changed_spec_are_decided_at_once() -> None:
    cluster = Cluster(settings=SETTINGS)
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
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
    from hpa.decide.settings import Gates

    cluster = Cluster(
        settings=Settings(release="1.36", gates=Gates(generation=False), sync_period_s=15.0)
    )
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
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


@pytest.mark.parametrize(("text", "asked", "is_told"), [("1s", 4, True), ("20s", 2, False)])
async def test_an_annotation_shortens_the_period_only_as_far_as_the_flag_allows(
    text: str, asked: int, is_told: bool
) -> None:
    cluster = Cluster(settings=settings_of(parse(["--min-sync-period=10s"], TABLE)))
    quick = hpa_object("web")
    quick["metadata"]["annotations"] = {"podscale.io/sync-period": text}
    cluster.put(quick, deployment_object("web", 1))
    cluster.put_pods(pod_object("web", 0))
    await cluster.run_for(38.0)
    assert asked <= len(cluster.provider.asked) <= asked + 1
    trace = cluster.controller.traces.last((NS, "web"))
    assert trace is not None
    sentence = "It is decided every 10 s: --min-sync-period allows no shorter period."
    assert (sentence in explain(trace).sentences) == is_told


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
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
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
    past = cluster.controller.state.memory.past(entry, entry.hpa, 2, cluster.wall())
    assert [each.change for each in past.scale_ups] == [2]
    leading.cancel()
    await asyncio.wait({leading})


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


async def test_a_deleted_object_is_forgotten_with_its_history() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(2.0)
    assert "shop/web" in cluster.world.histories()
    del cluster.world.hpas[(NS, "web")]
    cluster.sync()
    await asyncio.sleep(10.0)
    assert "shop/web" not in cluster.world.histories()
    assert cluster.controller.traces.last((NS, "web")) is None
    leading.cancel()
    await asyncio.wait({leading})


async def test_a_clock_that_jumps_neither_stops_nor_floods_the_loop() -> None:
    jump = [0.0]
    cluster = Cluster(
        settings=SETTINGS,
        wall=lambda: 1_795_000_000.0 + asyncio.get_running_loop().time() + jump[0],
    )
    web(cluster, 2)
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    for jumped in (0.0, 7200.0, -7200.0):
        jump[0] = jumped
        before = len(cluster.provider.asked)
        await asyncio.sleep(45.0)
        assert 3 <= len(cluster.provider.asked) - before <= 4
    leading.cancel()
    await asyncio.wait({leading})
    assert cluster.scales() == []


def reachable(start: object) -> list[object]:
    """Return what an object holds, as far as it is data or of ours."""
    found: dict[int, object] = {}
    left = [start]
    while left:
        each = left.pop()
        is_ours = type(each).__module__.startswith(("hpa.", "podscale.kube."))
        if id(each) in found or not (is_ours or isinstance(each, dict | list | tuple | deque)):
            continue
        found[id(each)] = each
        left += gc.get_referents(each)
    return list(found.values())


async def test_a_deleted_object_is_nowhere_any_more() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    cluster.put(hpa_object("api"), deployment_object("api", 2))
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(40.0)

    def known() -> set[str]:
        held = reachable(cluster.controller)
        keys = {each[1] for each in held if isinstance(each, tuple) and each[:1] == (NS,)}
        return keys | {each.key[1] for each in held if isinstance(each, AutoscalerRecord)}

    assert known() >= {"web", "api"}
    for objects in (cluster.world.hpas, cluster.world.workloads):
        del objects[(NS, "web")]
    cluster.sync()
    cluster.put_pods()
    await asyncio.sleep(31.0)
    assert "web" not in known()
    assert "api" in known()
    leading.cancel()
    await asyncio.wait({leading})


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


async def test_a_former_leader_says_no_more_what_it_decided_and_who_else_scales() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    world, metrics = cluster.world, cluster.metrics
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(20.0)
    written = world.hpas[NS, "web"]
    # Written by somebody else, later than by us.
    for minute in (1, 2):
        written["metadata"] |= {
            "resourceVersion": world.next_version(),
            "managedFields": [writer("kube-controller-manager", f"2026-11-21T11:0{minute}:00Z")],
        }
        cluster.sync()
        await asyncio.sleep(16.0)
    world.fail = lambda _method, path: (
        ServerFailed(500, "", "etcd is full") if "configmaps" in path else None
    )
    cluster.controller._keeping.config_maps.put((NS, "web"), None)  # type: ignore[union-attr]
    await asyncio.sleep(5.0)
    assert list(metrics.read.replicas()) == [(NS, "web", 2)]
    assert metrics.counts.foreign == 1
    assert metrics.read.unsaved_s() == 5.0
    leading.cancel()
    await asyncio.wait({leading})
    assert list(metrics.read.replicas()) == []
    assert (metrics.counts.foreign, metrics.counts.is_leader, metrics.read.unsaved_s()) == (
        0,
        0,
        0.0,
    )


async def test_events_that_were_lost_are_counted() -> None:
    cluster = Cluster(settings=SETTINGS)
    cluster.recorder.dropped = 7
    assert cluster.metrics.read.events_dropped() == 7


@pytest.mark.parametrize("mode", ["replace", "shadow"])
async def test_an_annotation_that_is_no_setting_is_an_event_once_for_each_change(mode: str) -> None:
    cluster = Cluster(settings=Settings(mode=mode, sync_period_s=15.0))  # type: ignore[arg-type]
    web(cluster, 2)
    scaler = cluster.world.hpas[NS, "web"]
    scaler["metadata"]["annotations"] = {
        "podscale.io/fallbak": "{}", "podscale.io/sync-period": "1 day", "example.io/x": "y",
    }  # fmt: skip
    scaler["metadata"]["resourceVersion"] = cluster.world.next_version()
    cluster.sync()
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(100.0)
    told = [each for each in cluster.recorder.events if each[2] == "InvalidAnnotation"]
    expected = [
        ("web", "Warning", "InvalidAnnotation", text)
        for text in (
            (
                'podscale.io/sync-period: time: unknown unit " day" in duration "1 day"; '
                "write one like 30s, 2m or 1h30m"
            ),
            "podscale.io/fallbak: there is no such setting (the nearest is podscale.io/fallback)",
        )
    ]
    assert told == (expected if mode == "replace" else [])
    scaler = dict(scaler)
    scaler["metadata"] = {
        **scaler["metadata"],
        "annotations": {"podscale.io/pause": "true"},
        "resourceVersion": cluster.world.next_version(),
    }
    cluster.world.hpas[NS, "web"] = scaler
    cluster.sync()
    await asyncio.sleep(100.0)
    told = [each for each in cluster.recorder.events if each[2] == "InvalidAnnotation"]
    assert len(told) == (3 if mode == "replace" else 0)
    leading.cancel()
    await asyncio.wait({leading})


async def test_a_field_that_is_not_known_is_an_event_and_a_condition_while_it_is_there() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)

    def change(**spec: Any) -> None:
        scaler = cluster.world.hpas[NS, "web"]
        scaler["spec"] = {key: each for key, each in (scaler["spec"] | spec).items() if each != ""}
        scaler["metadata"]["resourceVersion"] = cluster.world.next_version()
        cluster.sync()

    def told() -> list[tuple[str, str]]:
        conditions = cluster.world.hpas[NS, "web"]["status"]["conditions"]
        return [(each["status"], each["message"]) for each in conditions
                if each["type"] == "UnknownField"]  # fmt: skip

    change(warmUp={"seconds": 5})
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(40.0)
    text = "spec.warmUp: podscale does not know this field, and decides without it"
    events = [each for each in cluster.recorder.events if each[2] == "UnknownField"]
    assert events == [("web", "Warning", "UnknownField", text)]
    assert told() == [("True", text)]
    change(warmUp="")
    await asyncio.sleep(40.0)
    assert told() == []
    leading.cancel()
    await asyncio.wait({leading})


@pytest.mark.parametrize("kind", ["Deployment", "Rollout"])
async def test_of_a_paused_object_nothing_is_told_that_was_not_looked_at(kind: str) -> None:
    cluster = Cluster()
    web(cluster, 2)
    scaler = cluster.world.hpas[NS, "web"]
    scaler["metadata"]["annotations"] = {"podscale.io/paused": "true"}
    scaler["metadata"]["resourceVersion"] = cluster.world.next_version()
    scaler["spec"]["scaleTargetRef"]["kind"] = kind
    cluster.sync()
    await cluster.run_for(3.0)
    trace = cluster.controller.traces.last((NS, "web"))
    assert trace is not None
    told = explain(trace)
    assert told.first_reason == "Paused"
    assert "pods_matched" not in told.facts
    assert not any(" 0 pods" in each or " 0 replicas" in each for each in told.sentences)
    assert told.decision.get("replicas") == (2 if kind == "Deployment" else None)
    assert cluster.recorder.events == []
    assert cluster.statuses() == []
