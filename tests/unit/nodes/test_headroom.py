"""Headroom as objects: what is read of decisions, workloads and VPAs, and what is written."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from podscale.kube.client.api import Method, Response
from podscale.kube.client.errors import (
    ApiUnreachable,
    Forbidden,
    KubeError,
    ObjectNotFound,
    Unprocessable,
)
from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import decode
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import Mapper
from podscale.kube.informer.store import Store
from podscale.kube.objects.cluster import Node
from podscale.kube.objects.pod import Pod
from podscale.kube.objects.vpa import StoredVpa, Vpa, readable
from podscale.nodes.headroom.keeper import HeadroomChoice, HeadroomKeeper
from podscale.nodes.headroom.shapes import HOLD_S, HeadroomLimit
from podscale.nodes.selfmetrics import NodesMetrics
from tests.kit.stores import fill

NOW = 1_795_000_000.0
Json = dict[str, Any]


class HeadroomCluster:
    """An ``Api`` over objects by path."""

    user_agent = "podscale-nodes/test"

    def __init__(self, cpu: str = "10", memory: str = "10Gi") -> None:
        self.decisions: list[Json] = []
        self.workloads: dict[str, Json] = {}
        self.held: dict[str, dict[str, Json]] = {}  # by plural and name
        self.is_down = False
        self.is_unread = ""  # the plural of headroom that cannot be listed
        self.refusal: KubeError | None = None  # of writes to headroom
        self.registry = CollectorRegistry()
        self.mapper = Mapper()
        self.now = NOW
        self.vpas = Store[StoredVpa]()
        self.nodes, self.pods = Store[Node](), PodStore()
        self.quotas: list[Json] = []
        limit = HeadroomLimit(int(cpu) * 1000, int(memory.removesuffix("Gi")) * 2**30)
        self.rounds = HeadroomKeeper(
            self, self.nodes, self.pods, self.vpas, HeadroomChoice(limit, "pause:1"),
            NodesMetrics(self.registry), lambda: self.mapper, wall=lambda: self.now,
        )  # fmt: skip

    def workload(self, name: str, cpu: str, *, more: Json | None = None, **spec: Any) -> None:
        resources = {"requests": {"cpu": cpu, "memory": "1Gi"}} if more is None else more
        containers = [{"name": "app", "image": "shop", "resources": resources}]
        template = {"spec": {"containers": containers, **spec}}
        self.workloads[name] = {"metadata": {"name": name}, "spec": {"template": template}}

    def decide(
        self,
        name: str,
        replicas: int | None,
        *proposals: int | None,
        most: int = 100,
        namespace: str = "shop",
        **more: Any,
    ) -> None:
        self.decisions = [each for each in self.decisions if each["metadata"]["name"] != name]
        status = {"replicas": replicas, "proposals": proposals, "sentences": ["so"], **more}
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        self.decisions.append({
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"scaleTargetRef": reference, "maxReplicas": most, "mode": "replace"},
            "status": {key: value for key, value in status.items() if value is not None},
        })  # fmt: skip

    def size(self, name: str, cpu: str, mode: str = "Recreate") -> None:
        vpa = {
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                     "updatePolicy": {"updateMode": mode}},
            "status": {"recommendation": {"containerRecommendations": [
                {"containerName": "app", "target": {"cpu": cpu}}]}},
        }  # fmt: skip
        fill(self.vpas, [decode(msgspec.json.encode(vpa), StoredVpa)])

    def run_on(self, taints: Mapping[str, Json], running: Mapping[str, str]) -> None:
        """Let there be a node with each taint, by name, and on each of ``running`` a pod of the
        namespace."""
        fill(self.nodes, [
            decode(msgspec.json.encode({"metadata": {"name": name}, "spec": {"taints": [taint]}}),
                   Node) for name, taint in taints.items()
        ])  # fmt: skip
        fill(self.pods, [
            decode(msgspec.json.encode({
                "metadata": {"name": f"on-{node}", "namespace": namespace, "uid": node},
                "spec": {"nodeName": node, "containers": []}, "status": {"phase": "Running"},
            }), Pod) for node, namespace in running.items()
        ])  # fmt: skip

    def quota(self, hard: Json, used: Json, namespace: str = "shop", **spec: Any) -> None:
        self.quotas.append({"metadata": {"name": "quota", "namespace": namespace},
                            "spec": {"hard": hard, **spec}, "status": {"used": used}})  # fmt: skip

    async def round(self, seconds: float = 0.0) -> dict[str, int]:
        """Run one round; returns the CPU request and the replicas of what holds room."""
        self.now += seconds
        await self.rounds.once()
        return self.deployments()

    def deployments(self) -> dict[str, int]:
        return {
            container(each)["resources"]["requests"]["cpu"]: each["spec"]["replicas"]
            for each in self.held.get("deployments", {}).values()
        }

    async def request(
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "",
        accept: str = "",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
        most_bytes: int = 0,
        guard: Callable[[], None] | None = None,
    ) -> Response:
        if self.is_down:
            raise ApiUnreachable("connection refused")
        sent = msgspec.json.decode(body) if body else None
        parts = path.split("/namespaces/podscale-headroom/")
        if len(parts) == 2:
            plural, _, name = parts[1].partition("/")
            if method == "GET" and plural == self.is_unread:
                raise ApiUnreachable("connection refused")
            return _answer(self._held(method, self.held.setdefault(plural, {}), name, sent))
        if path.endswith("/scalingdecisions"):
            return _answer({"items": self.decisions})
        if path == "/api/v1/resourcequotas":
            return _answer({"items": self.quotas})
        name = path.rpartition("/")[2]
        if "/deployments/" in path and name in self.workloads:
            return _answer(self.workloads[name])
        raise ObjectNotFound(404, "NotFound", path)

    def stream(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"podscale_nodes_headroom_{name}", labels)

    def _held(self, method: str, objects: dict[str, Json], name: str, sent: Any) -> Json:
        if method != "GET" and self.refusal is not None:
            raise self.refusal
        if method == "POST":
            if "nonsense" in str(sent):
                raise Unprocessable(422, "Invalid", "spec.template: no such operator")
            objects[sent["metadata"]["name"]] = sent
        elif method == "PATCH":
            objects[name]["spec"].update(sent["spec"])
        elif method == "DELETE":
            del objects[name]
        return {"items": list(objects.values())} if method == "GET" else {}


def container(deployment: Json) -> Json:
    found: Json = deployment["spec"]["template"]["spec"]["containers"][0]
    return found


def _answer(body: Json) -> Response:
    return Response(200, {}, msgspec.json.encode(body))


@pytest.fixture
def cluster() -> HeadroomCluster:
    """One workload of pods of a core, of which four run."""
    made = HeadroomCluster()
    made.workload("web", "1")
    made.decide("web", 4, 7)
    return made


async def test_room_is_kept_for_what_is_proposed_beyond_what_runs(
    cluster: HeadroomCluster,
) -> None:
    assert await cluster.round() == {"1": 3}
    cluster.decide("web", 6, 7)  # two have come, and have taken their room
    assert await cluster.round(15) == {"1": 1}
    cluster.decide("web", 7, 7)
    assert await cluster.round(15) == {}


async def test_a_proposal_that_wavers_keeps_its_room_for_a_while(cluster: HeadroomCluster) -> None:
    await cluster.round()
    cluster.decide("web", 4, 5)
    assert await cluster.round(60) == {"1": 3}
    assert await cluster.round(HOLD_S) == {"1": 1}


@pytest.mark.parametrize(("replicas", "proposals", "more", "expected"), [
    pytest.param(4, (5, 9, None), {}, {"1": 5}, id="the-metric-that-asks-for-most"),
    pytest.param(4, (5,), {"forecast": 8}, {"1": 4}, id="a-forecast"),
    pytest.param(4, (50,), {"most": 6}, {"1": 2}, id="at-most-maxReplicas"),
    pytest.param(4, (3,), {}, {}, id="on-the-way-down"),
    pytest.param(4, (None,), {}, {}, id="metrics-that-cannot-be-read"),
    pytest.param(None, (9,), {}, {}, id="a-target-that-cannot-be-read"),
    pytest.param(4, (90,), {}, {"1": 10}, id="never-more-than-the-limit"),
])  # fmt: skip
async def test_how_many(replicas: int, proposals: Any, more: Any, expected: Any) -> None:
    cluster = HeadroomCluster()
    cluster.workload("web", "1")
    cluster.decide("web", replicas, *proposals, **more)
    assert await cluster.round() == expected


@pytest.mark.parametrize(("mode", "expected"), [("Recreate", "2"), ("Off", "1")])
async def test_pods_come_in_the_size_that_their_vpa_gives_them(
    cluster: HeadroomCluster, mode: str, expected: str
) -> None:
    cluster.size("web", "2", mode)
    assert await cluster.round() == {expected: 3}


async def test_a_round_reads_each_vpa_once_however_many_workloads_are_short(
    cluster: HeadroomCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.size("web", "2")
    for name in ("api", "jobs"):
        cluster.workload(name, "1")
        cluster.decide(name, 1, 2)
    reads: list[str] = []

    def counted(stored: StoredVpa) -> Vpa | None:
        reads.append(stored.metadata.name)
        return readable(stored)

    monkeypatch.setattr("podscale.nodes.headroom.keeper.readable", counted)
    assert await cluster.round() == {"2": 3, "1": 2}
    assert reads == ["web"]


async def test_pause_pods_go_where_the_pods_would_and_harm_nobody(
    cluster: HeadroomCluster,
) -> None:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": []}}, "podAntiAffinity": {}}  # fmt: skip
    cluster.workload("web", "1", nodeSelector={"pool": "web"}, affinity=affinity,
                     serviceAccountName="web", priorityClassName="high")  # fmt: skip
    await cluster.round()
    (made,) = cluster.held["deployments"].values()
    spec = made["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"pool": "web"}
    assert spec["affinity"] == {"nodeAffinity": affinity["nodeAffinity"]}
    assert spec["priorityClassName"] == "podscale-headroom"
    assert "serviceAccountName" not in spec
    assert container(made)["image"] == "pause:1"
    assert container(made)["securityContext"]["capabilities"] == {"drop": ["ALL"]}


async def test_pause_pods_keep_apart_and_near_as_the_pods_would(cluster: HeadroomCluster) -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    web, db = ({"matchLabels": {"app": name}} for name in ("web", "db"))
    host, zone = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
    cluster.workload(
        "web", "1",
        affinity={
            "podAntiAffinity": {required: [
                {"labelSelector": web, "topologyKey": host, "matchLabelKeys": ["version"]},
                {"labelSelector": db, "topologyKey": host, "namespaces": ["data"]},
            ]},
            "podAffinity": {required: [{"labelSelector": db, "topologyKey": zone}]},
        },
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": zone, "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": web, "matchLabelKeys": ["version"]},
            {"maxSkew": 1, "topologyKey": host, "whenUnsatisfiable": "ScheduleAnyway",
             "labelSelector": web},
        ],
    )  # fmt: skip
    cluster.workloads["web"]["spec"]["template"]["metadata"] = {"labels": {"app": "web"}}
    await cluster.round()
    (made,) = cluster.held["deployments"].values()
    own, spec = made["spec"]["selector"], made["spec"]["template"]["spec"]
    assert spec["affinity"] == {
        "podAntiAffinity": {required: [
            {"labelSelector": web, "topologyKey": host, "namespaces": ["shop"]},
            {"labelSelector": db, "topologyKey": host, "namespaces": ["data"]},
            {"labelSelector": own, "topologyKey": host},
        ]},
        "podAffinity": {required: [
            {"labelSelector": db, "topologyKey": zone, "namespaces": ["shop"]},
        ]},
    }  # fmt: skip
    assert spec["topologySpreadConstraints"] == [
        {"maxSkew": 1, "topologyKey": zone, "whenUnsatisfiable": "DoNotSchedule",
         "labelSelector": own},
    ]  # fmt: skip


async def test_a_template_that_the_api_server_refuses_leaves_the_others_theirs(
    cluster: HeadroomCluster,
) -> None:
    cluster.workload("bad", "2", nodeSelector={"pool": "nonsense"})
    cluster.decide("bad", 1, 2)
    assert await cluster.round() == {"1": 3}


async def test_silence_keeps_what_is_held_and_lets_it_go_in_the_end(
    cluster: HeadroomCluster,
) -> None:
    await cluster.round()
    cluster.is_down = True
    with pytest.raises(ApiUnreachable):
        await cluster.round(60)
    assert cluster.deployments() == {"1": 3}
    cluster.is_down = False
    cluster.decisions = []  # the HPA is gone
    assert await cluster.round(HOLD_S + 1) == {}


@pytest.mark.parametrize("refusal", [
    pytest.param(ObjectNotFound(404, "NotFound", "namespaces not found"), id="no-namespace"),
    pytest.param(Forbidden(403, "Forbidden", "may not create"), id="no-rights"),
])  # fmt: skip
async def test_what_cannot_be_written_is_not_said_to_be_held(
    cluster: HeadroomCluster, refusal: KubeError
) -> None:
    cluster.refusal = refusal
    with capture_logs() as log, pytest.raises(type(refusal)):
        await cluster.round()
    assert "components/nodes-headroom" in log[0]["event"]
    assert cluster.sample("requests", resource="cpu") == 0
    assert cluster.sample("rounds_total", result="failed") == 1
    cluster.refusal = None
    await cluster.round(15)
    assert cluster.sample("requests", resource="cpu") == 3
    assert cluster.sample("rounds_total", result="done") == 1


async def test_a_size_class_that_is_refused_is_not_counted_as_held(
    cluster: HeadroomCluster,
) -> None:
    cluster.workload("bad", "2", nodeSelector={"pool": "nonsense"})
    cluster.decide("bad", 1, 2)
    await cluster.round()
    assert cluster.sample("requests", resource="cpu") == 3


async def test_capacity_buffers_hold_the_room_where_they_are_known(
    cluster: HeadroomCluster,
) -> None:
    await cluster.round()
    group = "autoscaling.x-k8s.io"
    cluster.mapper = Mapper([Resource(group, "v1beta1", "capacitybuffers", "CapacityBuffer")])
    assert await cluster.round(15) == {}  # no pause pods any more
    (buffer,) = cluster.held["capacitybuffers"].values()
    name = buffer["metadata"]["name"]
    assert buffer["apiVersion"] == "autoscaling.x-k8s.io/v1beta1"
    assert buffer["spec"] == {"replicas": 3, "podTemplateRef": {"name": name}}
    template = cluster.held["podtemplates"][name]["template"]
    assert template["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"
    cluster.decide("web", 6, 7)
    await cluster.round(15)
    assert cluster.held["capacitybuffers"][name]["spec"]["replicas"] == 1
    cluster.decide("web", 7, 7)
    await cluster.round(15)
    assert (cluster.held["capacitybuffers"], cluster.held["podtemplates"]) == ({}, {})


async def test_capacity_buffers_that_cannot_be_listed_are_still_said_to_be_held(
    cluster: HeadroomCluster,
) -> None:
    cluster.mapper = Mapper([
        Resource("autoscaling.x-k8s.io", "v1beta1", "capacitybuffers", "CapacityBuffer")
    ])  # fmt: skip
    await cluster.round()
    assert cluster.sample("requests", resource="cpu") == 3
    cluster.is_unread = "capacitybuffers"
    with pytest.raises(ApiUnreachable):
        await cluster.round(15)
    assert cluster.sample("requests", resource="cpu") == 3


async def test_pause_pods_go_to_tainted_nodes_only_where_pods_of_the_namespace_run(
    cluster: HeadroomCluster,
) -> None:
    taints = {name: {"key": "pool", "value": name, "effect": "NoSchedule"}
              for name in ("web", "data", "free")}  # fmt: skip
    away = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    cluster.run_on({**taints, "away": away}, {"web": "shop", "data": "data", "away": "shop"})
    cluster.workload("web", "1", tolerations=[{"operator": "Exists"}])
    cluster.workload("stern", "2")
    cluster.decide("stern", 1, 2)
    await cluster.round()
    specs = [each["spec"]["template"]["spec"] for each in cluster.held["deployments"].values()]
    tolerated = {"key": "pool", "operator": "Equal", "value": "web", "effect": "NoSchedule"}
    assert [each.get("tolerations") for each in specs] == [None, [tolerated]]


@pytest.mark.parametrize(("hard", "used", "spec", "expected"), [
    pytest.param({"pods": "5"}, {"pods": "1"}, {}, {"10m": 4}, id="pods"),
    pytest.param({"count/pods": "3"}, {"count/pods": "1"}, {}, {"10m": 2}, id="objects"),
    pytest.param({"requests.cpu": "1"}, {"requests.cpu": "970m"}, {}, {"10m": 3}, id="requests"),
    pytest.param({"memory": "4Gi"}, {"memory": "5Gi"}, {}, {}, id="used-up"),
    pytest.param({"limits.cpu": "5"}, {"limits.cpu": "0"}, {}, {"10m": 2}, id="limits"),
    pytest.param({"pods": "0"}, {}, {"scopes": ["BestEffort"]}, {"10m": 16}, id="of-others"),
    pytest.param({"pods": "1"}, {}, {"scopeSelector": {"matchExpressions": [
        {"scopeName": "NotTerminating", "operator": "Exists"}]}}, {"10m": 1}, id="of-these"),
])  # fmt: skip
async def test_never_more_than_resource_quotas_admit(
    hard: Json, used: Json, spec: Json, expected: Json
) -> None:
    cluster = HeadroomCluster("1000", "1000Gi")
    cluster.workload("web", "", more={"requests": {"cpu": "10m", "memory": "1Gi"},
                                      "limits": {"cpu": "2"}})  # fmt: skip
    cluster.decide("web", 1, 2**31 - 1, most=2**31 - 1)
    cluster.quota(hard, used, **spec)
    cluster.quota({"pods": "0"}, {}, namespace="data")
    assert await cluster.round() == expected


@pytest.mark.parametrize(("resources", "expected"), [
    ({}, {}),
    ({"limits": {"cpu": "2"}}, {"2": 3}),
])  # fmt: skip
async def test_pods_that_request_nothing_need_no_room(
    cluster: HeadroomCluster, resources: Json, expected: Json
) -> None:
    cluster.workload("web", "", more=resources)
    assert await cluster.round() == expected
