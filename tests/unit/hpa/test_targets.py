"""Scales at hand, and whether they may be believed."""

from typing import Any

import msgspec
import pytest

from hpa.cluster.record import AutoscalerRecord
from hpa.decide.observation import ScaleUnreadable
from hpa.explain.explanation import explain
from podscale.kube.client.resource import REPLICA_SETS, Resource
from podscale.kube.client.wire import decode
from podscale.kube.informer.list_watch import (
    WatchBroken,
)
from podscale.kube.objects.scale import ReplicationController
from tests.kit.stores import fill
from tests.unit.hpa.webs import load
from tests.unit.hpa.world import (
    NS,
    Cluster,
    KnownKinds,
    World,
    deployment_object,
    hpa_object,
    pod_object,
)  # fmt: skip

pytestmark = pytest.mark.looptime

KINDS = [
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "StatefulSet", "stateful_sets"),
    ("apps/v1", "ReplicaSet", "replica_sets"),
    ("v1", "ReplicationController", "replication_controllers"),
]


def scaling(version: str, kind: str) -> tuple[Cluster, AutoscalerRecord]:
    """Return an HPA of a target that no watch has shown yet."""
    cluster = Cluster()
    scaler = hpa_object("web")
    scaler["spec"]["scaleTargetRef"] = {"apiVersion": version, "kind": kind, "name": "web"}
    cluster.put(scaler)
    entry = cluster.controller.catalog.get((NS, "web"))
    assert entry is not None
    return cluster, entry


@pytest.mark.parametrize(("version", "kind", "store"), KINDS)
async def test_a_scale_is_not_believed_while_its_watch_is_broken_and_read_by_get_if_that_lasts(
    version: str, kind: str, store: str
) -> None:
    cluster, entry = scaling(version, kind)
    targets = cluster.controller.state.targets
    seen = targets.at_hand(entry)
    assert seen is not None
    assert targets.is_current(entry, seen)
    getattr(cluster.stores, store).apply(WatchBroken("the stream broke", None), scope="", now=0.0)
    assert not targets.is_current(entry, seen)
    for now, is_asked in ((170.0, False), (190.0, True)):
        targets.note_silence(now, is_other_heard=True)
        assert (targets.at_hand(entry) is None) is is_asked


async def test_a_replication_controllers_scale_is_at_hand() -> None:
    cluster, entry = scaling("v1", "ReplicationController")
    made = deployment_object("web", 3)
    made["spec"]["selector"] = {"app": "web", "tier": "front"}
    found = [decode(msgspec.json.encode(made), ReplicationController)]
    store = cluster.stores.replication_controllers
    fill(store, found, "9", now=0.0)
    seen = cluster.controller.state.targets.at_hand(entry)
    assert seen is not None
    assert (seen.scale.spec_replicas, seen.scale.selector) == (3, "app=web,tier=front")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("version", "kind", "text"),
    [
        *((each[0], each[1], f'{each[1].lower()}s.apps "web" not found') for each in KINDS[:3]),
        ("v1", "ReplicationController", 'replicationcontrollers "web" not found'),
        ("shop/v1", "Gizmo", 'no matches for kind "Gizmo" in group "shop"'),
    ],
)
async def test_what_there_is_no_scale_of_is_told_in_the_words_of_kubernetes(
    version: str, kind: str, text: str
) -> None:
    """As kube-controller-manager 1.37.2 said beside us: its scale is looked up by kind and group,
    and the API server names the workload, not its scale."""
    cluster, record = scaling(version, kind)
    targets = cluster.controller.state.targets
    seen = targets.at_hand(record) or await targets.fetch(record)
    assert isinstance(seen.scale, ScaleUnreadable)
    assert seen.scale.text == text


@pytest.mark.parametrize(
    ("version", "kind", "is_asked"),
    [("apps/v1", "Deployment", True), ("argoproj.io/v1alpha1", "Rollout", False), ("", "", False)],
)
async def test_a_replica_set_is_scaled_whoever_owns_it(
    version: str, kind: str, is_asked: bool
) -> None:
    cluster = Cluster(kinds=KnownKinds(REPLICA_SETS))
    scaler = hpa_object("web")
    scaler["spec"]["scaleTargetRef"] |= {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    made = {**deployment_object("web", 2), "kind": "ReplicaSet"}
    if kind:
        owner = {"apiVersion": version, "kind": kind, "name": "web", "uid": "d", "controller": True}
        made["metadata"]["ownerReferences"] = [owner]
    cluster.put(scaler, made)
    cluster.put_pods(*(pod_object("web", n) for n in range(2)))
    load(cluster, 2000)
    await cluster.run_for(20.0)
    assert cluster.scales() == [("web", 4)]
    kept = cluster.stores.replica_sets.get(NS, "web")
    assert kept is not None
    assert kept.spec.replicas == 4  # seen at once
    # The selector of a Deployment's is not kept: it has ten of them.
    reads = [path for path in cluster.world.reads if path.endswith("/scale")]
    assert bool(reads) == (kept.spec.selector is None) == is_asked
    # By GET it may be believed, whatever has become of the watch.
    cluster.stores.replica_sets.apply(WatchBroken("the stream broke", None), scope="", now=0.0)
    entry = cluster.controller.catalog.get((NS, "web"))
    assert entry is not None
    targets = cluster.controller.state.targets
    seen = targets.at_hand(entry)
    assert (seen is None) == is_asked
    assert targets.is_current(entry, seen or await targets.fetch(entry)) == is_asked


ROLLOUTS = Resource("argoproj.io", "v1alpha1", "rollouts", "Rollout", True)
NOT_CONVERTIBLE = (
    "received an object from a /scale endpoint which was not convertible to autoscaling Scale: "
    "failed to parse target selector: "
)


class Rollouts(World):
    """Answers scales of custom resources, whose status.selector is whatever it is."""

    def __init__(self, selector: str) -> None:
        super().__init__()
        self.selector = selector

    def _scale(self, *args: Any) -> Any:
        found = super()._scale(*args)
        return {**found, "status": {**found["status"], "selector": self.selector}}


def rollout(selector: str) -> Cluster:
    cluster = Cluster(world=Rollouts(selector), kinds=KnownKinds(ROLLOUTS))
    scaler = hpa_object("web")
    scaler["spec"]["scaleTargetRef"] |= {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}
    cluster.put(scaler)
    cluster.world.workloads[NS, "web"] = deployment_object("web", 2)
    cluster.put_pods(pod_object("web", 0), pod_object("web", 1))
    return cluster


# As executed by tests/cluster/test_hpa_executed.py, with client-go's own conversion.
@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ("a b c", ('couldn\'t parse the selector string "a b c": unable to parse requirement: '
         "found 'b', expected: in, notin, =, ==, !=, gt, lt")),
        ("app=web,", ('couldn\'t parse the selector string "app=web,": found \'\', expected: '
         "identifier after ','")),
        ("app!=web", '"!=" is not a valid label selector operator'),
        ("n>1", '"gt" isn\'t supported in label selectors'),
        ("app=web,n<1", '"lt" isn\'t supported in label selectors'),
    ],
)  # fmt: skip
async def test_a_scale_whose_selector_has_no_object_form_cannot_be_read(
    selector: str, text: str
) -> None:
    cluster = rollout(selector)
    load(cluster, 3000)
    await cluster.run_for(3.0)
    (status,) = [status for _, status in cluster.statuses()]
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"]) == ("AbleToScale", "False")
    assert condition["reason"] == "FailedGetScale"
    assert condition["message"].endswith(f": {NOT_CONVERTIBLE}{text}")
    assert cluster.recorder.events == [("web", "Warning", "FailedGetScale", NOT_CONVERTIBLE + text)]
    assert cluster.scales() == []
    trace = cluster.controller.traces.last((NS, "web"))
    assert trace is not None
    told = explain(trace)
    assert told.first_reason == "SelectorInvalid"
    assert told.facts["message"] == NOT_CONVERTIBLE + text


@pytest.mark.parametrize(
    ("selector", "asked"),
    [
        ("app==web", "app=web"),
        ("tier in (a),app=web", "app=web,tier in (a)"),
        ("app=db,app=web", "app=web"),  # the object form has one value for a key
        (" app , !x ", "app,!x"),
    ],
)
async def test_pods_are_asked_for_by_what_the_object_form_leaves_of_a_selector(
    selector: str, asked: str
) -> None:
    cluster = rollout(selector)
    await cluster.run_for(3.0)
    assert [each.selector for page in cluster.provider.asked for each in page] == [asked]  # type: ignore[union-attr]


async def test_a_selector_without_any_requirement_is_none() -> None:
    cluster = rollout(" ")
    await cluster.run_for(3.0)
    trace = cluster.controller.traces.last((NS, "web"))
    assert trace is not None
    assert explain(trace).first_reason == "SelectorMissing"


async def test_a_workload_whose_selector_is_invalid_has_no_scale() -> None:
    cluster = Cluster()
    made = deployment_object("web", 2)
    made["spec"]["selector"] = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
    cluster.put(hpa_object("web"), made)
    cluster.put_pods()
    await cluster.run_for(3.0)
    assert cluster.recorder.events == [
        ("web", "Warning", "FailedGetScale", '"Near" is not a valid label selector operator')
    ]
