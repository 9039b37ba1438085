"""Headroom as objects: what is read of decisions, workloads and VPAs, and what is written."""

import time
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
from podscale.kube.discovery.restmapper import Mapper
from podscale.kube.informer.list_watch import ListedState, ListPage, WatchAlive, WatchPage
from podscale.kube.informer.store import Store
from podscale.nodes.cluster.workloads import WorkloadVpa
from podscale.nodes.decide.headroom import HOLD_S, HeadroomLimit
from podscale.nodes.headroom.keeper import HeadroomChoice, HeadroomKeeper
from podscale.nodes.selfmetrics import NodesMetrics

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
        self.refusal: KubeError | None = None  # of writes to headroom
        self.registry = CollectorRegistry()
        self.mapper = Mapper()
        self.now = NOW
        self.vpas = Store[WorkloadVpa]()
        limit = HeadroomLimit(int(cpu) * 1000, int(memory.removesuffix("Gi")) * 2**30)
        self.rounds = HeadroomKeeper(
            self, self.vpas, HeadroomChoice(limit, "pause:1"), NodesMetrics(self.registry),
            lambda: self.mapper, wall=lambda: self.now,
        )  # fmt: skip

    def workload(self, name: str, cpu: str, **spec: Any) -> None:
        resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
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
        items = [decode(msgspec.json.encode(vpa), WorkloadVpa)]
        for happening in (ListedState(), WatchPage(items, "1"), ListPage("1"),
                          WatchAlive("1", 1e9)):  # fmt: skip
            self.vpas.apply(happening, scope="", now=time.monotonic())

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
        guard: Callable[[], None] | None = None,
    ) -> Response:
        if self.is_down:
            raise ApiUnreachable("connection refused")
        sent = msgspec.json.decode(body) if body else None
        parts = path.split("/namespaces/podscale-headroom/")
        if len(parts) == 2:
            plural, _, name = parts[1].partition("/")
            return _answer(self._held(method, self.held.setdefault(plural, {}), name, sent))
        if path.endswith("/scalingdecisions"):
            return _answer({"items": self.decisions})
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


async def test_pause_pods_go_where_the_pods_would_and_harm_nobody(
    cluster: HeadroomCluster,
) -> None:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": []}}, "podAntiAffinity": {}}  # fmt: skip
    cluster.workload("web", "1", nodeSelector={"pool": "web"}, affinity=affinity,
                     tolerations=[{"key": "web", "operator": "Exists"}],
                     serviceAccountName="web", priorityClassName="high")  # fmt: skip
    await cluster.round()
    (made,) = cluster.held["deployments"].values()
    spec = made["spec"]["template"]["spec"]
    assert (spec["nodeSelector"], spec["tolerations"][0]["key"]) == ({"pool": "web"}, "web")
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
    cluster.workload("bad", "2", tolerations=[{"operator": "nonsense"}])
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
    cluster.workload("bad", "2", tolerations=[{"operator": "nonsense"}])
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
