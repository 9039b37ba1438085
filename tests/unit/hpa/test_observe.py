"""From the stores to the columns of a decision, and what is kept while nothing changes."""

from typing import Any

import msgspec
import pytest

from hpa.cluster.record import AutoscalerView, TargetScale
from hpa.decide.observation import Scale
from hpa.decide.settings import Settings
from podscale.core.metrics import NotFound, ObjectMetric, PodMetric
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.kube.client.resource import DEPLOYMENTS
from podscale.kube.client.wire import decode, parse_time
from podscale.kube.discovery import Mapper
from podscale.kube.informer.list_watch import (
    WatchBroken,
)
from podscale.kube.objects.scale import Workload
from tests.kit.stores import fill
from tests.unit.hpa.world import (
    NS,
    POD_METRIC,
    Cluster,
    KnownKinds,
    deployment_object,
    hpa_object,
    pod_object,
)

pytestmark = pytest.mark.looptime


def owned(pod: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    owner = {"kind": kind, "name": name, "uid": f"{kind}-{name}", "controller": True}
    pod["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", **owner}]
    return pod


def look(cluster: Cluster, name: str = "web") -> AutoscalerView:
    controller = cluster.controller
    entry = controller.catalog.get((NS, name))
    assert entry is not None
    assert entry.hpa is not None
    seen = controller.state.targets.at_hand(entry)
    assert isinstance(seen, TargetScale)
    return controller.state.observer.view(entry, entry.hpa, seen, controller.state.ports.mapper())


async def test_pods_are_sorted_with_their_phases_owners_and_requests() -> None:
    cluster = Cluster()
    cluster.put(hpa_object("web"), deployment_object("web", 4))
    replica_set = deployment_object("web-7d", 4)
    replica_set["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d",
         "controller": True}
    ]  # fmt: skip
    store = cluster.stores.replica_sets
    found = [decode(msgspec.json.encode(replica_set), Workload)]
    fill(store, found, "5", now=0.0, watched_s=None)
    job = owned(pod_object("web", 3), "Job", "nightly")
    job["status"]["phase"] = "Succeeded"
    leaving = owned(pod_object("web", 1), "ReplicaSet", "web-7d")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z"
    fresh = pod_object("web", 2)
    fresh["status"] = {"phase": "Pending"}
    fresh["spec"]["initContainers"] = [
        {"name": "mesh", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}},
        {"name": "setup", "resources": {"requests": {"cpu": "1"}}},
    ]
    fresh["spec"]["overhead"] = {"cpu": "10m"}
    cluster.put_pods(
        job, leaving, fresh, owned(pod_object("web", 0), "ReplicaSet", "web-7d"),
        pod_object("other", 0),
    )  # fmt: skip
    pods = look(cluster).observation.pods
    assert pods.names == ("web-0", "web-1", "web-2", "web-3")
    assert list(pods.phase) == [
        PodPhase.RUNNING,
        PodPhase.RUNNING,
        PodPhase.PENDING,
        PodPhase.SUCCEEDED,
    ]
    assert list(pods.ready) == [
        PodReadiness.TRUE,
        PodReadiness.TRUE,
        PodReadiness.ABSENT,
        PodReadiness.TRUE,
    ]
    assert list(pods.deleted) == [0, 1, 0, 0]
    assert pods.started[2] is None
    assert pods.ready_since[0] == 1795248010.0
    assert [pods.owners[each] for each in pods.owner] == [
        "Deployment/web", "Deployment/web", "", "Job/nightly",
    ]  # fmt: skip
    template = pods.templates[pods.template[2]]
    mesh, setup = template.init_containers
    assert [each.name for each in template.running] == ["app", "mesh"]
    assert (setup.name, setup.is_sidecar) == ("setup", False)
    assert mesh.requests_milli == {"cpu": 50}
    assert template.overhead_milli == {"cpu": 10}
    assert pods.template[0] == pods.template[1]


async def test_what_did_not_change_is_the_same_object_and_what_did_is_not() -> None:
    cluster = Cluster()
    cluster.put(hpa_object("web"), deployment_object("web", 2))
    cluster.put_pods(pod_object("web", 0), pod_object("web", 1))
    first = look(cluster)
    again = look(cluster)
    assert again.observation.pods is first.observation.pods
    assert again.questions == first.questions
    changed = pod_object("web", 1)
    changed["metadata"]["resourceVersion"] = cluster.world.next_version()
    changed["status"]["phase"] = "Failed"
    cluster.put_pods(pod_object("web", 0), changed)
    assert list(look(cluster).observation.pods.phase) == [PodPhase.RUNNING, PodPhase.FAILED]


async def test_an_hpa_that_selects_our_pods_too_is_a_rival_once_it_was_looked_at() -> None:
    cluster = Cluster()
    cluster.put(
        hpa_object("web"),
        hpa_object("all"),
        deployment_object("web", 1),
        deployment_object("all", 1),
    )
    wide = cluster.world.workloads[(NS, "all")]
    wide["spec"]["selector"] = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    wide["metadata"]["resourceVersion"] = cluster.world.next_version()
    cluster.sync()
    cluster.put_pods(pod_object("web", 0))
    assert look(cluster).observation.rivals == ()
    assert look(cluster, "all").observation.rivals == ("web",)
    assert look(cluster).observation.rivals == ("all",)
    assert look(cluster).questions == ()  # and no metric is read for it


@pytest.mark.parametrize(("size", "asks"), [(0, False), (1, True), (5, True), (11, False)], ids=str)
async def test_metrics_are_asked_for_only_where_they_are_decided_by(size: int, asks: bool) -> None:
    cluster = Cluster()
    cluster.put(hpa_object("web", most=10), deployment_object("web", size))
    cluster.put_pods(pod_object("web", 0))
    assert bool(look(cluster).questions) == asks


def by_owner(name: str) -> dict[str, Any]:
    made = hpa_object(name)
    made["metadata"]["annotations"] = {"podscale.io/pods-by": "owner"}
    return made


def put_replica_sets(cluster: Cluster, *names: str) -> None:
    found = []
    for name in names:
        made = deployment_object(name, 1)
        owner = {"kind": "Deployment", "name": "web", "uid": "d", "controller": True}
        made["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", **owner}]
        found.append(decode(msgspec.json.encode(made), Workload))
    version = cluster.world.next_version()
    fill(cluster.stores.replica_sets, found, version, now=0.0)


async def test_an_owner_that_becomes_known_later_is_noticed_though_no_pod_changed() -> None:
    cluster = Cluster()
    cluster.put(by_owner("web"), deployment_object("web", 2))
    put_replica_sets(cluster, "web-1")
    cluster.put_pods(
        owned(pod_object("web", 0), "ReplicaSet", "web-1"),
        owned(pod_object("web", 1), "ReplicaSet", "web-2"),
    )
    assert not look(cluster).knows_owners
    put_replica_sets(cluster, "web-1", "web-2")
    found = look(cluster)
    assert found.knows_owners
    assert [found.observation.pods.owners[each] for each in found.observation.pods.owner] == [
        "Deployment/web"
    ] * 2


@pytest.mark.parametrize("what", ["unknown", "broken"])
async def test_pods_by_owner_do_not_shrink_by_owners_that_are_not_known(what: str) -> None:
    cluster = Cluster(settings=Settings(sync_period_s=15.0, downscale_stabilization_s=0.0))
    cluster.put(by_owner("web"), deployment_object("web", 4))
    put_replica_sets(cluster, *["web-1", "web-2"][: 1 if what == "unknown" else 2])
    # The pods of the new ReplicaSet bear all the load.
    cluster.put_pods(
        *(owned(pod_object("web", n), "ReplicaSet", f"web-{1 + n // 2}") for n in range(4))
    )
    cluster.provider.usage = lambda _question, pod: 100 if pod in ("web-0", "web-1") else 1900
    if what == "broken":
        cluster.provider.usage = lambda _question, _pod: 100
        cluster.stores.replica_sets.apply(WatchBroken("the stream broke", None), scope="", now=0.0)
    await cluster.run_for(46.0)
    assert [size for _, size in cluster.scales() if size < 4] == []


async def test_a_scale_is_read_again_when_its_workload_changed_and_only_then() -> None:
    cluster = Cluster()
    cluster.put(hpa_object("web"), deployment_object("web", 2))
    first = look(cluster).target
    assert look(cluster).target is first
    workload = cluster.world.workloads[(NS, "web")]
    workload["spec"]["replicas"] = 3
    workload["metadata"]["resourceVersion"] = cluster.world.next_version()
    cluster.sync()
    found = look(cluster).target
    assert isinstance(found.scale, Scale)
    assert found.scale.spec_replicas == 3
    assert found.resource_version == workload["metadata"]["resourceVersion"]


async def test_pods_of_others_in_the_namespace_leave_what_is_kept() -> None:
    cluster = Cluster()
    cluster.put(hpa_object("web"), deployment_object("web", 2))
    cluster.put_pods(pod_object("web", 0))
    first = look(cluster)
    cluster.put_pods(pod_object("web", 0), pod_object("other", 0))
    assert look(cluster).observation.pods is first.observation.pods
    cluster.put_pods(pod_object("web", 0), pod_object("web", 1), pod_object("other", 0))
    assert look(cluster).observation.pods.names == ("web-0", "web-1")


def object_metric() -> dict[str, Any]:
    described = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    target = {"type": "Value", "value": "1"}
    source = {"metric": {"name": "rate"}, "describedObject": described, "target": target}
    return {"type": "Object", "object": source}


async def test_after_a_discovery_questions_about_objects_are_others() -> None:
    cluster = Cluster(kinds=KnownKinds())
    cluster.put(
        hpa_object("web", object_metric()),
        hpa_object("plain"),
        deployment_object("web", 1),
        deployment_object("plain", 1),
    )
    before = [look(cluster, name).questions for name in ("web", "plain")]
    controller = cluster.controller
    found = Mapper([DEPLOYMENTS])
    controller.state.ports.mapper = lambda: found
    described, plain = (look(cluster, name).questions for name in ("web", "plain"))
    assert isinstance(before[0][0], NotFound)
    assert isinstance(described[0], ObjectMetric)
    assert plain == before[1]
    changed = hpa_object("plain", object_metric())
    changed["metadata"] |= {"resourceVersion": cluster.world.next_version(), "generation": 2}
    cluster.put(changed)
    assert isinstance(look(cluster, "plain").questions[0], ObjectMetric)


async def test_pods_that_were_born_together_share_their_times() -> None:
    cluster = Cluster()
    cluster.put(hpa_object("web"), hpa_object("api"))
    cluster.put(deployment_object("web", 3), deployment_object("api", 3))
    late = pod_object("web", 2)
    late["status"]["startTime"] = "2026-11-21T11:00:00Z"
    others = [pod_object(name, n) for name in ("web", "api") for n in range(2)]
    cluster.put_pods(*others, pod_object("api", 2), late)
    web, api = look(cluster).observation.pods, look(cluster, "api").observation.pods
    assert web.started[0] is web.started[1]
    assert web.started[2] == parse_time("2026-11-21T11:00:00Z")
    assert api.started == (web.started[0],) * 3


async def test_another_selector_of_the_workload_is_another_text_and_selects_other_pods() -> None:
    cluster = Cluster()
    cluster.put(hpa_object("web"), deployment_object("web", 2))
    cluster.put_pods(pod_object("web", 0), pod_object("api", 0))
    first = look(cluster)
    workload = cluster.world.workloads[(NS, "web")]
    for labels in ({"app": "web"}, {"app": "api"}):
        workload["spec"]["selector"] = {"matchLabels": labels}
        workload["metadata"]["resourceVersion"] = cluster.world.next_version()
        cluster.sync()
        found = look(cluster)
        assert isinstance(first.target.scale, Scale)
        assert isinstance(found.target.scale, Scale)
        same = found.target.scale.selector == first.target.scale.selector
        assert same == (labels["app"] == "web")
    assert found.target.scale.selector == "app=api"
    assert found.observation.pods.names == ("api-0",)
    assert [each.selector for each in found.questions if isinstance(each, PodMetric)] == ["app=api"]


DESCRIBED = {
    "type": "Object",
    "object": {
        "metric": {"name": "hits"},
        "describedObject": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
        "target": {"type": "Value", "value": "1"},
    },
}


@pytest.mark.parametrize("metric", [POD_METRIC, DESCRIBED], ids=["Pods", "Object"])
async def test_a_look_says_the_same_until_something_it_depends_on_changes(metric: Any) -> None:
    cluster = Cluster(kinds=KnownKinds())
    cluster.put(hpa_object("web", metric), deployment_object("web", 1))
    cluster.put_pods(pod_object("web", 0), pod_object("other", 0))
    looks = [look(cluster)]

    def differs() -> bool:
        looks.append(look(cluster))
        last, found = looks[-2:]
        return (found.observation, found.questions) != (last.observation, last.questions)

    assert not differs()
    cluster.put(hpa_object("other"), deployment_object("other", 1))
    cluster.put_pods(pod_object("web", 0), pod_object("other", 0), pod_object("other", 1))
    assert not differs(), "all of that is another's"
    assert looks[-1].observation.pods is looks[0].observation.pods
    twin = hpa_object("twin")
    twin["spec"]["scaleTargetRef"]["name"] = "web"
    cluster.put(twin)
    assert differs()
    assert looks[-1].observation.same_target == ("twin",)
    del cluster.world.hpas[NS, "twin"]
    cluster.sync()
    assert differs()
    cluster.world.claims[NS, "tree"] = hpa_object("tree") | {"spec": twin["spec"]}
    cluster.sync()
    assert differs()
    assert looks[-1].observation.same_target == ("HorizontalPodAutoscaler/tree",)
    del cluster.world.claims[NS, "tree"]
    cluster.sync()
    assert differs()
    cluster.put_pods(pod_object("web", 0), pod_object("web", 1))
    assert differs()
    assert len(looks[-1].observation.pods) == 2
    if metric is POD_METRIC:
        return
    assert isinstance(looks[-1].questions[0], NotFound), "no mapper knows the kind"
    cluster.controller.state.ports.mapper = lambda: Mapper((DEPLOYMENTS,))
    assert differs()
    assert isinstance(looks[-1].questions[0], ObjectMetric)
    cluster.controller.state.ports.mapper = lambda: Mapper((DEPLOYMENTS,))
    assert not differs(), "a new mapper that says the same"


async def test_a_namespace_without_a_replica_set_leaves_nothing_and_repeats_no_number() -> None:
    cluster = Cluster()
    cluster.put(by_owner("web"), deployment_object("web", 2))
    cluster.put_pods(owned(pod_object("web", 0), "ReplicaSet", "web-1"))
    observer = cluster.controller.state.observer
    seen: list[int] = []
    for _ in range(5):
        put_replica_sets(cluster, "web-1", "web-2")
        seen.append(observer._adoptions[NS])
        assert look(cluster).knows_owners
        put_replica_sets(cluster, "web-1")
        seen.append(observer._adoptions[NS])
        assert look(cluster).observation.pods.owners[-1] == "Deployment/web"
        put_replica_sets(cluster)
        assert not look(cluster).knows_owners
        assert look(cluster).observation.pods.owners[-1] == "ReplicaSet/web-1"
        assert not observer._adoptions
        assert not observer._sets
    assert sorted(set(seen)) == seen
