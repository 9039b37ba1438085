"""Room for resizes that wait: who is evicted, who never is, and when nothing is done."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.nodes.room_cluster import NOW, RoomCluster, Unreadable


@pytest.fixture
def cluster() -> RoomCluster:
    """Node a: 3 cores of web, which grow to 6, beside 7 cores of others; b is empty."""
    made = RoomCluster()
    made.node("a")
    made.node("b")
    made.workload("web", "3", "a", "b")
    return made


@pytest.fixture
async def writing(cluster: RoomCluster) -> Any:
    task = asyncio.ensure_future(cluster.recorder.run())
    yield
    task.cancel()


def names(evicted: list[str]) -> list[str]:
    return sorted(name.rpartition("-")[0] for name in evicted)


async def test_the_fewest_pods_go_and_the_resize_fits(cluster: RoomCluster, writing: None) -> None:
    cluster.workload("small", "1", *"aab", replicas=3)
    cluster.workload("large", "3500m", "a", "b")
    pod = cluster.resize("web", "6")
    assert cluster.is_waiting(pod)
    assert names(await cluster.round()) == ["large"]
    # One plan of a node at a time: until the kubelet has let go nothing more happens.
    assert await cluster.round(15) == []
    cluster.kubelet()
    assert not cluster.is_waiting(pod)
    cluster.controllers()
    assert await cluster.round(15) == []
    assert cluster.plans() == {"Evict": 1, "PodsLeave": 1}
    assert sorted(reason for reason, _ in await cluster.told()) == ["EvictedForRoom", "RoomMade"]


async def test_a_vpa_that_cannot_be_read_keeps_no_other_from_room(
    cluster: RoomCluster, writing: None
) -> None:
    cluster.workload("large", "3500m", "a", "b")
    cluster.workload("other", "3", "a", "b")
    cluster.vpas["other"]["spec"]["targetRef"] = "other"
    cluster.resize("web", "6")
    assert names(await cluster.round()) == ["large"]


async def test_a_vpa_that_cannot_be_read_and_has_not_opted_in_speaks_for_its_namespace(
    cluster: RoomCluster, writing: None
) -> None:
    # It may size the workload of another that has.
    cluster.workload("large", "3500m", "a", "b")
    cluster.workload("other", "3", "a", "b", opted_in=False)
    cluster.vpas["other"]["spec"]["targetRef"] = "large"
    cluster.resize("web", "6")
    assert await cluster.round() == []


def opted_out(cluster: RoomCluster) -> None:
    cluster.workload("other", "3", "a", "b", opted_in=False)


def pretending_to_be_headroom(cluster: RoomCluster, component: str = "headroom") -> None:
    cluster.workload("other", "3", "a", "b", opted_in=False)
    cluster.one("other")["metadata"]["labels"]["app.kubernetes.io/component"] = component


def pretending_to_be_ballast(cluster: RoomCluster) -> None:
    pretending_to_be_headroom(cluster, "ballast")  # which would give way by itself


def more_important(cluster: RoomCluster) -> None:
    cluster.workload("other", "3", "a", "b", priority=1)


def on_disk(cluster: RoomCluster) -> None:
    cluster.workload("other", "3", "a", "b", volumes=[{"name": "data", "emptyDir": {}}])


def on_the_hosts_path(cluster: RoomCluster) -> None:
    cluster.workload("other", "3", "a", "b", volumes=[{"name": "d", "hostPath": {"path": "/"}}])


def on_a_local_volume(cluster: RoomCluster) -> None:
    cluster.volumes["disk"] = {"metadata": {"name": "disk"}, "spec": {"local": {"path": "/d"}}}
    claim = {"name": "d", "persistentVolumeClaim": {"claimName": "disk"}}
    cluster.workload("other", "3", "a", "b", volumes=[claim])


def not_to_be_disrupted(cluster: RoomCluster) -> None:
    cluster.workload("other", "3", "a", "b",
                     pod_annotations={"karpenter.sh/do-not-disrupt": "true"})  # fmt: skip


def not_safe_to_evict(cluster: RoomCluster) -> None:
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict"
    cluster.workload("other", "3", "a", "b", pod_annotations={key: "false"})


def bare(cluster: RoomCluster) -> None:
    cluster.workload("other", "3", "a", "b")
    cluster.one("other")["metadata"]["ownerReferences"] = []


def of_a_daemon_set(cluster: RoomCluster) -> None:
    cluster.workload("other", "3", "a", "b")
    cluster.one("other")["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"


def alone(cluster: RoomCluster) -> None:
    cluster.workload("other", "3", "a")


def many_are_down_already(cluster: RoomCluster) -> None:
    cluster.workload("other", "3", "a", "b", replicas=4)


def budgeted(cluster: RoomCluster) -> None:
    cluster.workload("other", "3", "a", "b", pdb=2)


def twice_budgeted(cluster: RoomCluster) -> None:
    cluster.workload("other", "3", "a", "b", pdb=0)
    cluster.budgets["all"] = {"metadata": {"name": "all", "namespace": "shop"},
                              "spec": {"selector": {}, "minAvailable": 0}}  # fmt: skip


def outside_its_window(cluster: RoomCluster) -> None:
    windows = {"vpa.podscale.io/disruption-windows": "Sat,Sun 00:00-24:00"}
    cluster.workload("other", "3", "a", "b", annotations=windows)


def budgeted_by_the_day(cluster: RoomCluster) -> None:
    budget = {"vpa.podscale.io/max-disruptions-per-day": "9"}
    cluster.workload("other", "3", "a", "b", annotations=budget)


@pytest.mark.parametrize("made", [
    opted_out, pretending_to_be_headroom, pretending_to_be_ballast, more_important, on_disk,
    on_the_hosts_path, on_a_local_volume, not_to_be_disrupted,
    not_safe_to_evict, bare, of_a_daemon_set, alone, many_are_down_already, budgeted,
    twice_budgeted, outside_its_window, budgeted_by_the_day,
])  # fmt: skip
async def test_who_never_goes(cluster: RoomCluster, made: Any) -> None:
    cluster.admission_s = None  # nor does the pod itself move
    cluster.workload("filler", "4", "a", "b", opted_in=False)
    made(cluster)
    pod = cluster.resize("web", "6")
    assert cluster.is_waiting(pod)
    assert await cluster.round() == []
    assert cluster.plans() == {"NoRoom": 1}


async def test_what_was_refused_goes_where_nothing_forbids_it(cluster: RoomCluster) -> None:
    # So that the test above tells of its reasons, not of its cluster.
    cluster.admission_s = None
    cluster.workload("filler", "4", "a", "b", opted_in=False)
    windows = {"vpa.podscale.io/disruption-windows": "Wed 11:00-12:00"}
    cluster.workload("other", "3", "a", "b", priority=-1, annotations=windows)
    cluster.resize("web", "6")
    assert names(await cluster.round()) == ["other"]


async def test_the_pod_that_grows_has_to_be_opted_in_as_well(cluster: RoomCluster) -> None:
    cluster.workload("other", "6", "a", "b")
    cluster.vpas["web"]["metadata"]["annotations"] = {}
    cluster.resize("web", "6")
    assert await cluster.round() == []
    assert cluster.plans() == {}


@pytest.mark.parametrize(("size", "others", "admission_s", "expected"), [
    pytest.param("7", ("2", "2", "2"), NOW, ["web"], id="one-move-instead-of-two-evictions"),
    pytest.param("6", ("3", "3"), NOW, ["other0"], id="one-eviction-instead-of-a-move"),
    pytest.param("12", ("1",), NOW, ["web"], id="larger-than-its-node"),
    pytest.param("12", ("1",), NOW - 90, [], id="not-without-the-admission-webhook"),
    pytest.param("12", ("1",), None, [], id="nor-where-it-never-was"),
    pytest.param("21", ("1",), NOW, [], id="not-where-no-node-has-room"),
])  # fmt: skip
async def test_when_the_pod_itself_moves(
    cluster: RoomCluster, size: str, others: tuple[str, ...], admission_s: float, expected: Any
) -> None:
    cluster.node("c", 20)
    cluster.admission_s = admission_s
    for number, cpu in enumerate(others):
        cluster.workload(f"other{number}", cpu, "a", "b")
    cluster.resize("web", size)
    assert names(await cluster.round()) == expected


async def test_ballast_gives_way_by_itself_and_headroom_goes_first(cluster: RoomCluster) -> None:
    cluster.workload("other", "3", "a", "b")
    for component, cpu in (("ballast", "1"), ("headroom", "1"), ("headroom", "2")):
        name = cluster.pod(component, cpu, "a")
        labels = {"app": component, "app.kubernetes.io/component": component}
        cluster.pods[name]["metadata"] |= {"labels": labels, "namespace": f"podscale-{component}"}
    cluster.resize("web", "6")
    # 3 cores lack, less the one of ballast: the larger headroom pod is enough.
    evicted = await cluster.round()
    assert [cluster.pods[name]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            for name in evicted] == ["2"]  # fmt: skip
    assert names(evicted) == ["headroom"]


async def test_it_stays_out_where_the_scheduler_preempts(cluster: RoomCluster) -> None:
    cluster.workload("other", "6", "a", "b")
    cluster.gate = (b'kubernetes_feature_enabled{name="InPlacePodVerticalScalingSchedulerPreemption'
                    b'",stage="ALPHA"} 1\n')  # fmt: skip
    cluster.resize("web", "6")
    assert await cluster.round() == []
    assert cluster.plans() == {"SchedulerPreempts": 1}
    cluster.nodes["a"]["spec"] = {"podPreemptionPolicy": {"disableResizePreemption": ["x.io/y"]}}
    assert names(await cluster.round(60)) == ["other"]


async def test_a_plan_that_is_refused_in_part_evicts_nobody(cluster: RoomCluster) -> None:
    cluster.admission_s = None
    for name in ("one", "two"):
        cluster.workload(name, "3", "a", "b", pdb=1)
    cluster.resize("web", "10")
    read = cluster._read

    def grants_all(path: str, query: Any) -> Any:
        # What budgets said a moment ago: one is used up since.
        found = read(path, query)
        if path.endswith("/poddisruptionbudgets"):
            cluster.budgets["two"]["spec"]["minAvailable"] = 2
        return found

    cluster._read = grants_all  # type: ignore[method-assign]
    assert await cluster.round() == []
    assert cluster.refused == []
    assert cluster.plans() == {"Refused": 1}


async def test_a_resize_without_room_is_read_for_more_and_more_seldom(
    cluster: RoomCluster,
) -> None:
    cluster.workload("other", "6", "a", "b", opted_in=False)
    cluster.resize("web", "6")
    looks = []
    for second in range(0, 3600, 15):
        asked = len(cluster.asked)
        await cluster.round(15)
        if len(cluster.asked) > asked:
            looks.append(second)
    assert looks == [0, 60, 180, 420, 900, 1500, 2100, 2700, 3300]


async def test_nothing_moves_where_labels_of_namespaces_are_not_known(cluster: RoomCluster) -> None:
    """Whom a pod may not stand beside hangs on them."""
    cluster.node("c", 20)
    cluster.workload("other", "1", "a", "b")
    cluster.resize("web", "12")
    cluster.unreadable = "/api/v1/namespaces"
    assert await cluster.round() == []
    assert cluster.plans() == {"Unreadable": 1}


async def test_nothing_happens_on_what_cannot_be_read_or_is_old() -> None:
    cluster = Unreadable()
    cluster.node("a")
    cluster.workload("web", "3", "a", "a")
    cluster.workload("other", "4", "a", "a", replicas=2)
    cluster.resize("web", "6")
    assert await cluster.round() == []
    assert cluster.plans() == {"Unreadable": 1}
    silent = RoomCluster()
    await silent.maker.once()  # its watches have not listed yet
    assert silent.asked == []


@pytest.fixture(autouse=True)
def in_budget(cluster: RoomCluster) -> Iterator[None]:
    yield
    assert cluster.refused == []
