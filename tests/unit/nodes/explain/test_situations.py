"""Why a pod has no node: each situation with what must be said first."""

from dataclasses import replace

import msgspec
import pytest

from podscale.kube.client.wire import decode
from podscale.kube.objects.cluster import Node
from podscale.nodes.explain import PodPlacement, explain
from podscale.nodes.scheduling.cluster_view import ClusterView
from podscale.nodes.scheduling.objects import ScheduledPod, VolumeClaim
from tests.unit.nodes.explain.situations import SITUATIONS, A, Situation, by_pods, node, pod

PREFIX = "nodes are available: "


def read(situation: Situation) -> tuple[ScheduledPod, ClusterView]:
    wire = msgspec.json.encode
    cluster = ClusterView(
        tuple(decode(wire(each), Node) for each in situation.nodes),
        tuple(decode(wire(each), ScheduledPod) for each in situation.pods),
        tuple(decode(wire(each), VolumeClaim) for each in situation.others),
    )
    return decode(wire(situation.pod), ScheduledPod), cluster


def explained(situation: Situation) -> PodPlacement:
    return explain(*read(situation), 0.0)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.name)
def test_the_reason_that_comes_first(situation: Situation) -> None:
    got = explained(situation)
    said = f"0/{len(situation.nodes)} {PREFIX}{situation.message}." if situation.message else ""
    assert got.message == said
    if situation.reason == "Fits":
        assert got.has_room
    else:
        first = {got.reason, *(group.plugin for group in got.refused)}
        assert situation.reason in first
        assert not got.has_room


def test_there_are_enough_of_them() -> None:
    assert len(SITUATIONS) >= 40
    assert len({each.name for each in SITUATIONS}) == len(SITUATIONS)


def test_ballast_is_named_as_such() -> None:
    ballast = next(each for each in SITUATIONS if each.name == "cpu-taken-by-ballast")
    (group,) = explained(ballast).refused
    assert group.detail == "cpu: 2 wanted, 3 of 4 requested, 3 of it ballast"


def test_a_cluster_with_other_pods_is_looked_at_anew() -> None:
    ballast = next(each for each in SITUATIONS if each.name == "cpu-taken-by-ballast")
    asked, cluster = read(ballast)
    assert not explain(asked, cluster, 0.0).has_room
    assert explain(asked, replace(cluster, pods=()), 0.0).has_room


@pytest.mark.parametrize(("changes", "sentence"), [
    ({}, "adds a node, if a pool's limits allow it and its template has the room"),
    ({"priority": -11}, "cluster autoscaler passes over pods of priority below -10"),
    ({"nodeSelector": {"no": "such"}},
     "adds nothing, unless a pool's template differs in this (NodeAffinity)"),
])  # fmt: skip
def test_what_a_node_autoscaler_would_do(changes: dict[str, object], sentence: str) -> None:
    got = explained(Situation("", pod(cpu="5", **changes), [A], "", ""))
    assert sentence in got.autoscaler


def test_what_needs_no_node() -> None:
    assert explained(Situation("", pod(at="a"), [A], "", "")).reason == "Scheduled"
    gated = explained(Situation("", pod(schedulingGates=[{"name": "quota"}]), [A], "", ""))
    assert gated.reason == "SchedulingGates"
    assert explained(Situation("", pod(), [], "", "")).reason == "NoNodes"


def test_what_is_resized_counts_with_the_most_of_it() -> None:
    growing = pod("one", "1", at="a")
    growing["status"] = {"containerStatuses": [
        {"name": "app", "allocatedResources": {"cpu": "2"},
         "resources": {"requests": {"cpu": "3"}}}]}  # fmt: skip
    asked = pod(cpu="1500m")
    assert not explained(Situation("", asked, [A], "", "", [growing])).has_room
    # What the node can never give does not count.
    never = pod("one", "4", at="a")
    never["status"] = {
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
        "containerStatuses": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}],
    }
    assert explained(Situation("", asked, [A], "", "", [never])).has_room == ("a",)


def test_a_claim_that_is_not_made_yet() -> None:
    own = {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    got = explained(Situation("", pod(volumes=[own]), [A], "", ""))
    assert got.reason == "VolumeBinding"
    assert 'controller to create the persistentvolumeclaim "web-own"' in got.message


def test_who_has_ended_takes_no_room() -> None:
    ended = pod("one", "4", at="a")
    ended["status"] = {"phase": "Succeeded"}
    assert explained(Situation("", pod(cpu="3"), [A], "", "", [ended])).has_room == ("a",)


def test_what_cannot_be_read_of_a_node_is_no_room() -> None:
    odd = node("a", cpu="lots")
    assert explained(Situation("", pod(), [odd], "", "")).reason == "NodeResourcesFit"
    shy = pod("shy", at="gone", affinity=by_pods("podAntiAffinity", "web"))
    assert explained(Situation("", pod(labels={"app": "web"}), [A], "", "", [shy])).has_room
