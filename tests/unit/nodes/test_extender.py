"""What a scheduler extender answers: the predicate of ballast, by name."""

from typing import Any

import msgspec
import numpy as np
import pytest

from podscale.nodes.apis import NodeApis
from podscale.nodes.cluster.pod_sums import LiveRequests
from podscale.nodes.decide.ballast import LEAST, refuses
from podscale.serving.apis.api import ApiRequest, ApiResponse, Media
from podscale.serving.auth.user import ANONYMOUS_USER
from podscale.serving.request_info import request_info
from podscale.serving.status import Status
from tests.unit.nodes.fleet import GI, Fleet
from tests.unit.nodes.test_rounds import NOW, OLD, Rounds

NAMES = ["a", "b", "new"]
FULL = "node(s) had no room by measured load"


class Asked:
    """An extender over a fleet of two nodes: 6 and 2 of 10 cores used, 2 requested on each."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        for name, cores in (("a", 6.0), ("b", 4.5)):
            self.fleet.node(name)
            self.fleet.pod(f"web-{name}", name, "2", started=OLD)
            self.fleet.usage[name] = (cores, GI)
        self.live = LiveRequests(self.fleet.pod_store, "podscale-ballast")
        self.rounds = Rounds(self.fleet, mode="extender")
        self.apis = NodeApis(self.rounds.rounds, self.fleet, self.live, stale_s=600,
                             wall=lambda: self.rounds.now)  # type: ignore[arg-type]  # fmt: skip

    def post(self, verb: str, cpu: str, names: list[str] | None = None, **args: Any) -> Any:
        container = {"name": "app", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
        metadata = {"name": "asked", "namespace": "shop",
                    "creationTimestamp": "2026-11-18T11:06:35Z"}  # fmt: skip
        pod = {"metadata": metadata, "spec": {"containers": [container]}, "status": {}}
        body = {"Pod": pod, "Nodes": None, "NodeNames": NAMES if names is None else names, **args}
        return self.send(verb, msgspec.json.encode(body))

    def send(self, verb: str, body: bytes) -> Any:
        path = f"/scheduler/{verb}"
        (route,) = [each for each in self.apis.routes() if each.path == path]
        request = ApiRequest("POST", path, request_info("POST", path, {}), {}, {}, body,
                             ANONYMOUS_USER, Media(), 0.0)  # fmt: skip
        answer = route.handler(request)
        if isinstance(answer, Status):
            return answer
        assert isinstance(answer, ApiResponse)
        return msgspec.json.decode(msgspec.json.encode(answer.value))


async def test_nodes_are_refused_by_measured_load() -> None:
    asked = Asked()
    await asked.rounds.at(0)
    assert asked.post("filter", "2") == {"NodeNames": NAMES, "FailedAndUnresolvableNodes": {}}
    got = asked.post("filter", "2001m")  # 6 + 2.001 > 8
    assert got["NodeNames"] == ["b", "new"]  # what is not known yet has its own fit check
    assert got["FailedAndUnresolvableNodes"] == {"a": FULL}
    assert asked.post("filter", "3501m")["NodeNames"] == ["new"]
    # Of nodes that another filter has refused nothing is said.
    assert asked.post("filter", "3501m", ["b"]) == {
        "NodeNames": [], "FailedAndUnresolvableNodes": {"b": FULL},
    }  # fmt: skip
    # Who requests nothing of it is not kept out by it.
    assert asked.post("filter", "0")["NodeNames"] == NAMES


async def test_names_come_back_in_the_order_they_were_sent() -> None:
    asked = Asked()
    await asked.rounds.at(0)
    got = asked.post("filter", "2001m", ["new-2", "b", "a", "new", "b"])
    assert got == {"NodeNames": ["new-2", "b", "new", "b"],
                   "FailedAndUnresolvableNodes": {"a": FULL}}  # fmt: skip
    got = asked.post("filter", "3501m", ["b", "a"])
    assert got == {"NodeNames": [], "FailedAndUnresolvableNodes": {"b": FULL, "a": FULL}}
    got = asked.post("filter", "3501m", [])
    assert got == {"NodeNames": [], "FailedAndUnresolvableNodes": {}}
    assert asked.post("prioritize", "500m", ["new", "b", "a"]) == [
        {"Host": "new", "Score": 0}, {"Host": "b", "Score": 4}, {"Host": "a", "Score": 2},
    ]  # fmt: skip


async def test_nodes_that_came_or_went_are_known_after_the_next_round() -> None:
    asked = Asked()
    await asked.rounds.at(0)
    assert asked.post("filter", "3501m")["NodeNames"] == ["new"]
    asked.fleet.node("new")
    asked.fleet.usage["new"] = (7.0, GI)
    del asked.fleet.nodes["a"]
    await asked.rounds.at(15)
    assert asked.post("filter", "3501m")["FailedAndUnresolvableNodes"] == {"b": FULL, "new": FULL}


async def test_pods_that_came_since_the_round_count() -> None:
    asked = Asked()
    await asked.rounds.at(0)
    asked.fleet.pod("next", "b", "3", started="2026-11-18T11:06:40Z")
    asked.fleet.feed()
    assert asked.post("filter", "1")["NodeNames"] == ["a", "new"]
    del asked.fleet.pods["next"]
    asked.fleet.feed()
    assert asked.post("filter", "1")["NodeNames"] == NAMES


async def test_the_emptier_node_has_the_higher_score() -> None:
    asked = Asked()
    await asked.rounds.at(0)
    assert asked.post("prioritize", "500m") == [
        {"Host": "a", "Score": 2}, {"Host": "b", "Score": 4}, {"Host": "new", "Score": 0},
    ]  # fmt: skip


async def test_scores_count_pods_that_came_or_went_since_the_round() -> None:
    asked = Asked()
    asked.fleet.pod("brief", "b", "2", started="2026-11-18T11:06:35Z")
    await asked.rounds.at(0)

    def found() -> list[int]:
        return [each["Score"] for each in asked.post("prioritize", "500m", ["a", "b"])]

    assert found() == [2, 1]  # (4.5 + 2 + 0.5) / 8
    del asked.fleet.pods["brief"]
    asked.fleet.feed()
    assert found() == [2, 4]
    asked.fleet.pod("next", "b", "1", started="2026-11-18T11:06:40Z")
    asked.fleet.feed()
    assert found() == [2, 2]  # (4.5 + 1 + 0.5) / 8
    # What a pod of the window's age used is in the usage until that is measured anew.
    del asked.fleet.pods["next"], asked.fleet.pods["web-b"]
    asked.fleet.feed()
    assert found() == [2, 4]


async def test_what_cannot_be_answered_is_no_refusal_of_nodes() -> None:
    asked = Asked()
    assert asked.post("filter", "1").code == 503  # no round yet
    await asked.rounds.at(0)
    asked.rounds.now = NOW + 601
    assert asked.post("filter", "1").code == 503
    await asked.rounds.at(602)
    assert asked.send("filter", b'{"NodeNames": 5}').code == 400
    for names in (5, ["a", 5]):
        assert asked.post("filter", "1", NodeNames=names).code == 400
    whole = {"NodeNames": None, "Nodes": {"items": []}}
    assert "nodeCacheCapable" in asked.post("filter", "1", **whole)["Error"]
    assert asked.post("prioritize", "1", **whole).code == 400


async def test_a_node_that_is_let_go_is_open() -> None:
    asked = Asked()
    await asked.rounds.at(0)
    asked.fleet.nodes["a"]["spec"] = {"unschedulable": True}
    await asked.rounds.at(15)
    assert asked.post("filter", "5")["NodeNames"] == ["a", "new"]


def test_nodes_that_pods_only_name_are_forgotten_with_the_pods() -> None:
    fleet = Fleet()
    live = LiveRequests(fleet.pod_store, "podscale-ballast")
    fleet.node("a")
    fleet.pod("stays", "a", "3", started=OLD)
    for number in range(1000):
        fleet.pod("goes", f"invented-{number}", "2", started=OLD)
        fleet.feed()
        del fleet.pods["goes"]
        fleet.feed()
    assert live._sums.keys() == {"a"}
    rounds = Rounds(fleet, mode="extender")
    fleet.feed()
    assert live.over(rounds.rounds._table.arrays())[0].tolist() == [3000.0]


def test_whoever_requests_the_most_there_is_leaves_the_sums_of_others_as_they_were() -> None:
    fleet = Fleet()
    live = LiveRequests(fleet.pod_store, "podscale-ballast")
    fleet.node("a")
    fleet.pod("stays", "a", "3", started=OLD)
    for number in range(9):  # bound by their author, until the kubelet has no room for them
        fleet.pod(f"huge-{number}", "a", str(2**63 - 1), started=OLD)
        fleet.feed()
    fleet.pod("comes", "a", "1500", started=OLD)
    fleet.feed()
    for number in range(9):
        del fleet.pods[f"huge-{number}"]
    fleet.feed()
    del fleet.pods["comes"]
    fleet.feed()
    rounds = Rounds(fleet, mode="extender")
    fleet.feed()
    assert live.over(rounds.rounds._table.arrays())[0].tolist() == [3000.0]


@pytest.mark.parametrize("seed", range(20))
def test_sums_that_are_kept_are_those_that_are_counted(seed: int) -> None:
    random = np.random.default_rng(seed)
    fleet = Fleet()
    live = LiveRequests(fleet.pod_store, "podscale-ballast")
    for name in "abc":
        fleet.node(name)
    for step in range(12):
        name = f"pod-{random.integers(6)}"
        if name in fleet.pods and random.random() < 0.5:
            del fleet.pods[name]
        else:
            pod = fleet.pod(name, str(random.choice(["a", "b", "c", "gone", ""])),
                            f"{random.integers(1, 5)}", started=OLD)  # fmt: skip
            if random.random() < 0.3:
                pod["status"]["phase"] = "Succeeded"
            if random.random() < 0.3:
                pod["status"]["conditions"] = [{"type": "PodResizeInProgress", "status": "True"}]
                pod["status"]["containerStatuses"] = [
                    {"name": "app", "resources": {"requests": {"cpu": "3"}}}
                ]
        if step == 5:
            fleet.ballast("a", "3")
            fleet.pod("room", "b", "3", started=OLD, namespace="podscale-headroom",
                      labels={"app.kubernetes.io/component": "headroom"})  # fmt: skip
        fleet.feed()
    rounds = Rounds(fleet, mode="extender")
    fleet.feed()
    nodes = rounds.rounds._table.arrays()
    counted = rounds.rounds._totals.sums(nodes, NOW).requested
    np.testing.assert_array_equal(live.over(nodes), counted)
    np.testing.assert_array_equal(
        LiveRequests(fleet.pod_store, "podscale-ballast").over(nodes), counted
    )


async def test_a_node_that_cannot_be_read_refuses_nothing() -> None:
    asked = Asked()
    asked.fleet.nodes["a"]["status"]["capacity"] = {"cpu": "lots"}
    await asked.rounds.at(0)
    decided = asked.rounds.rounds.decided
    assert decided is not None
    assert np.isnan(decided.plan.requests[:, 0]).all()
    full = refuses(decided.columns, decided.plan, decided.sums.requested, (9e9, 9e9))
    assert full.tolist() == [False, bool((decided.plan.requests[:, 1:] > LEAST).any())]
