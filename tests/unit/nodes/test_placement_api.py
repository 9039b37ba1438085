"""Why a pod has no node, asked of the part."""

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from podscale.kube.client.api import Response
from podscale.kube.client.errors import AnswerTooLong, Forbidden, ObjectNotFound
from podscale.kube.client.resource import PODS
from podscale.nodes import apis
from podscale.nodes.apis import NodeApis
from podscale.nodes.explain import explain
from podscale.nodes.scheduling.cluster_reading import read_all
from podscale.nodes.scheduling.objects import ScheduledPod
from podscale.serving.apis.api import ApiRequest, ApiResponse, Media
from podscale.serving.auth.user import ANONYMOUS_USER
from podscale.serving.request_info import request_info
from podscale.serving.status import Status
from tests.kit.api import FakeApi, Sent, ok
from tests.unit.nodes.explain.situations import node, pod, taint
from tests.unit.nodes.fleet import Fleet
from tests.unit.nodes.test_rounds import Rounds


class PlacementCluster(FakeApi):
    """A pod that waits, a tainted node and a full one; no namespaces may be listed."""

    def __init__(self) -> None:
        self.forbidden = {"/api/v1/namespaces"}
        self.reading = self.most_reading = 0

    async def reply(self, sent: Sent) -> Response:
        self.reading += 1
        self.most_reading = max(self.most_reading, self.reading)
        await asyncio.sleep(0)
        self.reading -= 1
        if sent.path in self.forbidden:
            raise Forbidden(403, "Forbidden", f"{sent.path} is forbidden")
        objects = {
            "/api/v1/namespaces/default/pods/web": pod(cpu="3"),
            "/api/v1/pods": {"items": [pod("one", "2", at="full")]},
            "/api/v1/nodes": {"items": [node("full"), node("kept", taints=[taint("gpu")])]},
        }
        if sent.path not in objects:
            raise ObjectNotFound(404, "", sent.path)
        return ok(objects[sent.path])


def placement(cluster: PlacementCluster) -> NodeApis:
    return NodeApis(Rounds(Fleet()).rounds, cluster, None, stale_s=600)


async def get(api: NodeApis, path: str) -> Any:
    request = ApiRequest("GET", path, request_info("GET", path, {}), {}, {}, b"",
                         ANONYMOUS_USER, Media(), 0.0)  # fmt: skip
    (route,) = [each for each in api.routes() if each.path == "/placement/*"]
    answer: Any = await route.handler(request)  # type: ignore[misc]
    if isinstance(answer, Status):
        return answer
    assert isinstance(answer, ApiResponse)
    return msgspec.to_builtins(answer.value)


async def test_it_is_what_explain_pod_tells() -> None:
    got = await get(placement(PlacementCluster()), "/placement/default/web")
    assert (got["namespace"], got["name"]) == ("default", "web")
    assert {group["plugin"]: group["nodes"] for group in got["refused"]} == {
        "NodeResourcesFit": ("full",), "TaintToleration": ("kept",),
    }  # fmt: skip
    assert got["autoscaler"] == ("adds a node like full, if its pool's limits allow it",)


@pytest.mark.parametrize("path", ["/placement/default/gone", "/placement/default",
                                  "/placement/default/web/log", "/placement/"])  # fmt: skip
async def test_what_is_not_there(path: str) -> None:
    assert (await get(placement(PlacementCluster()), path)).code == 404


async def test_what_may_not_be_read_is_said() -> None:
    cluster = PlacementCluster()
    cluster.forbidden.add("/api/v1/nodes")
    refused = await get(placement(cluster), "/placement/default/web")
    assert refused.code == 503
    assert "/api/v1/nodes is forbidden" in refused.message


async def test_one_cluster_at_a_time_is_read() -> None:
    cluster = PlacementCluster()
    api = placement(cluster)
    await asyncio.gather(*(get(api, "/placement/default/web") for _ in range(3)))
    assert cluster.most_reading == 1


async def test_whoever_leaves_keeps_the_turn_until_its_thread_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, most, go = [0], [0], threading.Event()
    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    def slow(*given: Any) -> Any:
        running[0] += 1
        most[0] = max(most[0], running[0])
        loop.call_soon_threadsafe(begun.set)
        go.wait(10.0)
        running[0] -= 1
        return explain(*given)

    monkeypatch.setattr(apis, "explain", slow)
    api = placement(PlacementCluster())
    leaving = [asyncio.create_task(get(api, "/placement/default/web")) for _ in range(4)]
    await begun.wait()
    for task in leaving:
        task.cancel()
    staying = asyncio.create_task(get(api, "/placement/default/web"))
    await asyncio.sleep(0.2)
    assert most[0] == 1
    go.set()
    assert (await staying)["name"] == "web"
    assert most[0] == 1
    await asyncio.wait(leaving)
    assert all(task.cancelled() for task in leaving)


async def test_pods_of_1_mb_each_are_read_a_few_at_a_time() -> None:
    limits: list[int] = []

    class Large(FakeApi):
        async def reply(self, sent: Sent) -> Response:
            limits.append(int(sent.query["limit"]))
            if limits[-1] > 20:
                raise AnswerTooLong("too long")
            first = int(sent.query.get("continue", "0"))
            pods = [pod(f"pod-{place}") for place in range(first, first + limits[-1])]
            return ok({"metadata": {"continue": str(first + 7) if first < 14 else ""},
                       "items": pods})  # fmt: skip

    assert len(await read_all(Large(), PODS, ScheduledPod)) == 21
    assert limits == [500, 62, 7, 7, 7]
