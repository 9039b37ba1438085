"""Why a pod has no node: each situation with what must be said first."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from podscale.cli.commands.explain_pod import lines
from podscale.kube.client.wire import decode
from podscale.kube.objects.cluster import Node
from podscale.nodes.cluster.node_table import BALLAST_LABEL, THRESHOLD_LABELS
from podscale.nodes.cluster.patches import TAINT_KEY
from podscale.nodes.explain import PodPlacement, explain
from podscale.nodes.scheduling.cluster_view import ClusterView
from podscale.nodes.scheduling.objects import NodePool, ScheduledPod, VolumeClaim
from tests.unit.nodes.explain.situations import (
    SITUATIONS,
    TAINT,
    A,
    Object,
    Situation,
    by_pods,
    node,
    pod,
    taint,
    volume_of,
)

PREFIX = "nodes are available: "


def daemon(cpu: str, component: str, at: str = "a") -> Object:
    made = pod(component, cpu, at=at, labels={"app.kubernetes.io/component": component})
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": component, "uid": "1",
         "controller": True}]  # fmt: skip
    return made


FULL_AND_HELD = Situation(
    "", pod(cpu="6"), [node(f"node-{n}", cpu="16") for n in (1, 2, 3)], "", "", [
        pod("p-1", "2", at="node-1"), daemon("12393m", "ballast", "node-1"),
        pod("p-2", "14499m", at="node-2"), daemon("1m", "ballast", "node-2"),
        pod("p-3", "14299m", at="node-3"), daemon("1m", "ballast", "node-3"),
    ])  # fmt: skip


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
    assert group.details == {"a": "cpu: 2 wanted, 1 of 4 free; 0 requested by pods, 3 by ballast"}


def test_numbers_are_told_of_the_nodes_that_they_are_of() -> None:
    got = explained(FULL_AND_HELD)
    full, held = got.refused
    assert (full.nodes, full.is_by_load) == (("node-3", "node-2"), False)  # the most room first
    assert full.details == {
        "node-2": "cpu: 6 wanted, 1500m of 16 free; 14499m requested by pods, 1m by ballast",
        "node-3": "cpu: 6 wanted, 1700m of 16 free; 14299m requested by pods, 1m by ballast",
    }
    numbers = "cpu: 6 wanted, 1607m of 16 free; 2 requested by pods, 12393m by ballast"
    assert (held.details, held.is_by_load) == ({"node-1": numbers}, True)
    told = "\n".join(lines(got))
    assert f"      node-1 ({numbers})" in told
    assert f"      node-3 ({full.details['node-3']})\n      node-2" in told


def test_thousands_of_nodes_are_told_shortly() -> None:
    nodes = [node(f"n-{n}", taints=[taint(f"team-{n}")] if n % 2 else []) for n in range(5000)]
    there = [pod(f"p-{n}", f"{2000 + n % 1000}m", at=f"n-{n}") for n in range(5000)]
    got = explained(Situation("", pod(cpu="3"), nodes, "", "", there))
    told = lines(got)
    assert len(told) < 20
    assert max(map(len, told)) < 250
    assert "      and 2485 more: -o json has them" in told
    assert sum(len(group.details) for group in got.refused) == 5000


@pytest.mark.parametrize(("held", "requested", "is_by_load"), [
    pytest.param("3", "0", True, id="it-would-fit-but-for-the-load"),
    pytest.param("1", "2500m", False, id="it-would-not-fit-either"),
    pytest.param("1m", "2", False, id="ballast-at-its-least-is-no-load"),
])  # fmt: skip
def test_load_is_the_cause_where_ballast_alone_refuses(
    held: str, requested: str, *, is_by_load: bool
) -> None:
    there = [daemon(held, "ballast"), pod("one", requested, at="a")]
    got = explained(Situation("", pod(cpu="2"), [A], "", "", there))
    (group,) = got.refused
    assert group.is_by_load == is_by_load
    (change,) = got.changes
    assert ("measured load falls" in change) == is_by_load
    assert ("request less" in change) != is_by_load
    for label in (*THRESHOLD_LABELS, f'{BALLAST_LABEL}: "off"'):
        assert (label in change) == is_by_load


def test_podscales_own_taint_is_told_as_such() -> None:
    other = taint("dedicated")
    nodes = [node("hot", taints=[taint(TAINT_KEY)]), node("both", taints=[taint(TAINT_KEY), other])]
    got = explained(Situation("", pod(), nodes, "", f"2 {TAINT}"))
    loaded, kept = sorted(got.refused, key=lambda group: not group.is_by_load)
    assert (loaded.nodes, loaded.is_by_load) == (("hot",), True)
    assert kept.details == {"both": "dedicated=:NoSchedule"}
    assert "measured load falls" in got.changes[0]
    assert got.autoscaler == (
        "adds a node like hot, if its pool's limits allow it",
        "podscale's taint is on none of the nodes that it would add",
    )
    assert "1 × TaintToleration (by podscale, for measured load alone): " in "\n".join(lines(got))


def test_every_group_has_its_change_and_the_cheapest_is_first() -> None:
    control_planes = [node(name, taints=[taint("control-plane")]) for name in ("b", "c")]
    there = [pod("one", "2", at="a")]
    got = explained(Situation("", pod(cpu="3"), [*control_planes, A], "", "", there))
    assert got.changes == (
        "request less, free some, or add a node", "tolerate the taint, or take it away",
    )  # fmt: skip
    assert got.autoscaler == ("adds a node like a, if its pool's limits allow it",)
    larger = explained(Situation("", pod(cpu="6"), [*control_planes, A], "", "", there))
    assert larger.autoscaler == (f"{DIFFERS} (NodeResourcesFit, TaintToleration)",)


def test_a_cluster_with_other_pods_is_looked_at_anew() -> None:
    ballast = next(each for each in SITUATIONS if each.name == "cpu-taken-by-ballast")
    asked, cluster = read(ballast)
    assert not explain(asked, cluster, 0.0).has_room
    assert explain(asked, replace(cluster, pods=()), 0.0).has_room


POOLED = node("a", labels={"karpenter.sh/nodepool": "web"})
NEW = "adds a node like a"
DIFFERS = "adds nothing, unless a pool's template differs in this"
GROWS = "NodePool web may grow by it"


def pool(**limits: str) -> NodePool:
    made = {"metadata": {"name": "web"}, "spec": {"limits": limits},
            "status": {"resources": {"cpu": "4", "nodes": "1"}}}  # fmt: skip
    return msgspec.convert(made, NodePool)


@pytest.mark.parametrize(("asked", "there", "pods", "sentence"), [
    pytest.param(pod(cpu="3"), A, [pod("one", "2", at="a")],
                 f"{NEW}, if its pool's limits allow it", id="a-node-that-is-full"),
    pytest.param(pod(cpu="5"), A, [], f"{DIFFERS} (NodeResourcesFit)",
                 id="larger-than-any-node"),
    pytest.param(pod(cpu="3"), A, [daemon("2", "agent")], f"{DIFFERS} (NodeResourcesFit)",
                 id="what-runs-on-every-node"),
    pytest.param(pod(cpu="3"), A, [daemon("2", "ballast")],
                 f"{NEW}, if its pool's limits allow it", id="ballast-is-nothing-of-a-new-node"),
    pytest.param(pod(nodeSelector={"no": "such"}), A, [], f"{DIFFERS} (NodeAffinity)",
                 id="a-label-of-no-node"),
    pytest.param(pod(nodeSelector={"kubernetes.io/hostname": "a"}, cpu="3"), A,
                 [pod("one", "2", at="a")], f"{DIFFERS} (NodeAffinity)", id="one-node-by-name"),
    pytest.param(pod(), node("a", taints=[taint("dedicated")]), [],
                 f"{DIFFERS} (TaintToleration)", id="a-taint-of-the-pool"),
    pytest.param(pod(), node("a", unschedulable=True, taints=[
        taint("node.kubernetes.io/unschedulable")]), [], f"{NEW}, if its pool's limits allow it",
        id="a-node-that-is-cordoned"),
    pytest.param(pod(affinity=by_pods("podAntiAffinity", "db")), A,
                 [pod("db", at="a", labels={"app": "db"})],
                 f"{NEW}, if its pool's limits allow it", id="away-from-a-pod"),
    pytest.param(pod(volumes=[volume_of("data")]), A, [],
                 "adds nothing, whatever nodes there are (VolumeRestrictions)", id="a-claim"),
    pytest.param(pod(priority=-11, cpu="5"), A, [],
                 "cluster autoscaler passes over pods of priority below -10", id="expendable"),
])  # fmt: skip
def test_what_a_node_autoscaler_would_do(
    asked: Object, there: Object, pods: Sequence[Object], sentence: str
) -> None:
    got = explained(Situation("", asked, [there], "", "", pods))
    assert sentence in got.autoscaler


@pytest.mark.parametrize(("limits", "sentence"), [
    ({}, f"{NEW}: {GROWS}"),
    ({"cpu": "8"}, f"{NEW}: {GROWS}"),
    ({"cpu": "7", "memory": "1Ti"}, "adds nothing: NodePool web is at its limit of cpu"),
    ({"nodes": "1"}, "adds nothing: NodePool web is at its limit of nodes"),
])  # fmt: skip
def test_a_pool_adds_no_node_beyond_its_limits(limits: dict[str, str], sentence: str) -> None:
    situation = Situation("", pod(cpu="3"), [POOLED], "", "", [pod("one", "2", at="a")])
    asked, cluster = read(situation)
    assert explain(asked, replace(cluster, pools=(pool(**limits),)), 0.0).autoscaler == (sentence,)
    # Of a pool that cannot be read nothing is claimed.
    assert explain(asked, cluster, 0.0).autoscaler == (f"{NEW}, if its pool's limits allow it",)


def test_a_pod_that_is_seconds_old_is_not_looked_at_yet() -> None:
    asked, cluster = read(Situation("", pod(cpu="5"), [A], "", ""))
    young = msgspec.structs.replace(
        asked, metadata=msgspec.structs.replace(asked.metadata, creation_timestamp=995.0)
    )
    said = "the pod is only seconds old: not looked at yet"
    assert said in explain(young, cluster, 1000.0).autoscaler
    assert said not in explain(young, cluster, 1010.0).autoscaler


def test_what_needs_no_node() -> None:
    bound = explained(Situation("", pod(at="a"), [A], "", ""))
    assert (bound.reason, bound.node) == ("Scheduled", "a")
    assert lines(bound) == ["default/web: Scheduled on a"]
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
