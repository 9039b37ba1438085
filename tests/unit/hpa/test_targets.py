"""Scales at hand, and whether they may be believed."""

import msgspec
import pytest

from podscale.kube.objects.scale import ReplicationController, Workload
from podscale.kube.watching import Alive, Broken, Listed, Listing, Page
from podscale.kube.wire import decode
from tests.unit.hpa.world import NS, Cluster, deployment_object, hpa_object

pytestmark = pytest.mark.looptime

KINDS = [
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "StatefulSet", "stateful_sets"),
    ("apps/v1", "ReplicaSet", "replica_sets"),
    ("v1", "ReplicationController", "replication_controllers"),
]


@pytest.mark.parametrize(("version", "kind", "store"), KINDS)
async def test_a_scale_is_not_believed_while_its_watch_is_broken(
    version: str, kind: str, store: str
) -> None:
    cluster = Cluster()
    scaler = hpa_object("web")
    scaler["spec"]["scaleTargetRef"] = {"apiVersion": version, "kind": kind, "name": "web"}
    cluster.put(scaler)
    targets = cluster.controller.targets
    entry = cluster.controller.catalog.get((NS, "web"))
    assert entry is not None
    assert targets.is_current(entry)
    getattr(cluster.stores, store).apply(Broken("the stream broke", None), scope="", now=0.0)
    assert not targets.is_current(entry)


async def test_a_replication_controllers_scale_is_at_hand() -> None:
    cluster = Cluster()
    scaler = hpa_object("web")
    scaler["spec"]["scaleTargetRef"] |= {"apiVersion": "v1", "kind": "ReplicationController"}
    cluster.put(scaler)
    made = deployment_object("web", 3)
    made["spec"]["selector"] = {"app": "web", "tier": "front"}
    found = [decode(msgspec.json.encode(made), ReplicationController)]
    store = cluster.stores.replication_controllers
    for happening in (Listing(), Page(found, "9"), Listed("9"), Alive("9", 1e9)):
        store.apply(happening, scope="", now=0.0)
    entry = cluster.controller.catalog.get((NS, "web"))
    assert entry is not None
    seen = cluster.controller.targets.at_hand(entry)
    assert seen is not None
    assert (seen.scale.spec_replicas, seen.scale.selector) == (3, "app=web,tier=front")  # type: ignore[union-attr]


@pytest.mark.parametrize("is_owned", [True, False])
async def test_of_a_replica_set_that_belongs_to_a_deployment_the_scale_is_asked_for(
    is_owned: bool,
) -> None:
    cluster = Cluster()
    scaler = hpa_object("web")
    scaler["spec"]["scaleTargetRef"] |= {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    cluster.put(scaler)
    made = deployment_object("web", 3)
    if is_owned:
        owner = {"kind": "Deployment", "name": "web", "uid": "d", "controller": True}
        made["metadata"]["ownerReferences"] = [owner]
    found = [decode(msgspec.json.encode(made), Workload)]
    store = cluster.stores.replica_sets
    for happening in (Listing(), Page(found, "9"), Listed("9"), Alive("9", 1e9)):
        store.apply(happening, scope="", now=0.0)
    entry = cluster.controller.catalog.get((NS, "web"))
    assert entry is not None
    seen = cluster.controller.targets.at_hand(entry)
    # Its selector is not kept: ten of them belong to each Deployment.
    assert (seen is None) == is_owned
    kept = store.get(NS, "web")
    assert kept is not None
    assert (kept.spec.selector is None) == is_owned
