"""Pods, VPAs and strangers that want the admission webhook for themselves."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from podscale.serving.apis.api import ApiRequest, Media
from podscale.serving.auth.user import ANONYMOUS_USER
from podscale.serving.request_info import RequestInfo
from podscale.serving.status import Status
from tests.integration.test_vpa_admission import admitting
from tests.integration.vpa_stage import Stage, deployment, stage, vpa
from vpa.admission import part
from vpa.admission.patches.resources import MOST_CONTAINERS

UNBOUNDED = 12_000  # containers: what etcd takes


@pytest.fixture
async def small(tmp_path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as built:
        yield built


def containers(count: int) -> list[dict[str, Any]]:
    return [{"name": f"c{number}"} for number in range(count)]


def pod(count: int, **more: Any) -> dict[str, Any]:
    # A pod of the Deployment that the VPA sizes, as the API server sends it.
    owner = {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1",
        "controller": True,
    }  # fmt: skip
    return {
        "metadata": {"name": "web-1", "labels": {"app": "web"}, "ownerReferences": [owner]},
        "spec": {"containers": containers(count)},
        **more,
    }


def review(obj: dict[str, Any], group: str = "", resource: str = "pods") -> bytes:
    request = {
        "uid": "1", "resource": {"group": group, "version": "v1", "resource": resource},
        "namespace": "default", "name": "web", "operation": "CREATE", "object": obj,
    }  # fmt: skip
    body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return msgspec.json.encode(body)


@asynccontextmanager
async def sizing(small: Stage, tmp_path: Any, count: int) -> AsyncIterator[part.AdmissionPart]:
    """Run the webhook beside a VPA that recommends something for ``count`` containers."""
    target = {"cpu": "250m", "memory": "200Mi"}
    entries = [{"containerName": each["name"], "target": target} for each in containers(count)]
    small.objects.create("deployments", "default", deployment(0))
    small.objects.create("verticalpodautoscalers", "default", vpa("Initial"))
    held = small.vpa()
    status = {"recommendation": {"containerRecommendations": entries}}
    small.objects.update(
        "verticalpodautoscalers", "default", "web", {**held, "status": status}, "status"
    )
    async with admitting(small, tmp_path, "--register-webhook=false") as served:
        await served.stores.wait_synced()
        await small.until(lambda: served.stores.workloads.find("default", "Deployment", "web"))
        yield served


async def answered(
    session: aiohttp.ClientSession, served: part.AdmissionPart, body: bytes
) -> dict[str, Any]:
    url = f"https://127.0.0.1:{served.server.port}/"
    headers = {"Content-Type": "application/json"}
    async with session.post(url, data=body, headers=headers, ssl=False) as answer:
        assert answer.status == 200, await answer.text()
        response: dict[str, Any] = (await answer.json())["response"]
        return response


def patched(response: dict[str, Any]) -> int:
    """Return how many containers a patch gives CPU."""
    if "patch" not in response:
        return 0
    entries = msgspec.json.decode(base64.b64decode(response["patch"]))
    return sum(entry["path"].endswith("/requests/cpu") for entry in entries)


async def test_a_pod_with_more_containers_than_are_sized_passes_at_once_and_unchanged(
    small, tmp_path
):
    async with (
        sizing(small, tmp_path, UNBOUNDED) as served,
        aiohttp.ClientSession() as session,
    ):
        sized = await answered(session, served, review(pod(MOST_CONTAINERS)))
        assert (sized["allowed"], patched(sized)) == (True, MOST_CONTAINERS)
        for count in (MOST_CONTAINERS + 1, 4_000, UNBOUNDED):
            response = await answered(session, served, review(pod(count)))
            assert (response["uid"], response["allowed"]) == ("1", True)
            assert "patch" not in response


async def test_a_review_of_more_bytes_than_are_read_passes_unchanged_whatever_it_holds(
    small, tmp_path
):
    long = {"annotations": {"a": "x" * 300_000}}
    large = pod(1) | {"metadata": {**pod(1)["metadata"], **long}}
    wrong = vpa("Recreate", updatePolicy={"minReplicas": -1}) | {"metadata": {"name": "w", **long}}
    async with (
        sizing(small, tmp_path, 1) as served,
        aiohttp.ClientSession() as session,
    ):
        for body in (
            review(large),
            review(wrong, "autoscaling.k8s.io", "verticalpodautoscalers"),
            review(large)[:-1000],  # not even JSON: it is not read
        ):
            response = await answered(session, served, body)
            assert response == {"uid": "1", "allowed": True}


HOSTILE = {
    "containers": lambda: pod(UNBOUNDED),
    "containers-of-59-kilobytes": lambda: pod(4_200),
    "as-many-as-are-sized": lambda: pod(MOST_CONTAINERS),
    "init-containers": lambda: pod(1, spec={
        "containers": containers(1), "initContainers": containers(10_000)}),
    "statuses": lambda: pod(1, status={"containerStatuses": [
        {"name": each["name"], "resources": {"requests": {"cpu": "1"}}}
        for each in containers(4_000)]}),
    "resources": lambda: pod(1, spec={"containers": [{"name": "c0", "resources": {
        "requests": {f"example.com/r{number}": f"{number}" for number in range(6_000)}}}]}),
    "labels": lambda: pod(1, metadata={"labels": {f"l{n}": f"{n}" for n in range(10_000)}}),
    "owners": lambda: pod(1, metadata={"ownerReferences": [
        {"kind": "ReplicaSet", "name": f"r{n}", "apiVersion": "apps/v1"} for n in range(3_000)]}),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
async def test_no_pod_takes_a_turn_of_the_loop_that_others_would_notice(small, tmp_path, kind):
    # The yardstick is a pod of eight containers, which is sized in one turn.
    async with sizing(small, tmp_path, UNBOUNDED) as served:
        usual = min([await longest_turn(served, review(pod(8))) for _ in range(7)])
        hostile = min([await longest_turn(served, review(HOSTILE[kind]())) for _ in range(3)])
    assert hostile < 15 * usual, (hostile, usual)


async def longest_turn(served: part.AdmissionPart, body: bytes) -> float:
    """Return the CPU seconds of the longest turn that the handler of one review takes."""
    steps = served.webhook.handle(request(body)).__await__()
    longest = 0.0
    while True:
        begun = time.process_time()
        waits = next(steps, DONE)
        longest = max(longest, time.process_time() - begun)
        if waits is DONE:
            return longest
        assert waits is None  # nothing is asked for: the watches have shown everything
        await asyncio.sleep(0)


DONE = object()


def request(body: bytes) -> ApiRequest:
    info = RequestInfo(is_resource=False, path="/", verb="post")
    headers = {"content-type": "application/json"}
    return ApiRequest("POST", "/", info, {}, headers, body, ANONYMOUS_USER, Media(), 0.0)


async def test_pods_of_others_do_not_wait_for_large_ones(small, tmp_path):
    """Twenty large pods come first; what comes after them is answered before most of them."""
    done: list[str] = []

    async def ask(session: aiohttp.ClientSession, kind: str, count: int) -> None:
        response = await answered(session, served, review(pod(count)))
        done.append(kind)
        assert patched(response) == count

    async with (
        sizing(small, tmp_path, MOST_CONTAINERS) as served,
        aiohttp.ClientSession() as session,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(20):
            group.create_task(ask(session, "large", MOST_CONTAINERS))
        await asyncio.sleep(0)
        for _ in range(20):
            group.create_task(ask(session, "usual", 2))
    last = len(done) - 1 - done[::-1].index("usual")
    assert done[:last].count("large") <= 10, done


async def test_the_deadline_interrupts_the_work_on_a_pod(small, tmp_path):
    async with sizing(small, tmp_path, MOST_CONTAINERS) as served:
        served.webhook._deadline_s = 1e-6
        answer = await served.webhook.handle(request(review(pod(MOST_CONTAINERS))))
    assert answer.value["response"] == {"uid": "1", "allowed": True}


@pytest.mark.parametrize("depth", [2_000, 100_000])
async def test_deep_nesting_is_garbage_in_a_review_and_lets_a_pod_through(small, tmp_path, depth):
    deep = b"[" * depth + b"]" * depth
    placed = review(pod(1)).replace(b'"spec":{', b'"spec":{"deep":' + deep + b",")
    async with sizing(small, tmp_path, 1) as served:
        answer = await served.webhook.handle(request(b'{"request":' + deep + b"}"))
        assert isinstance(answer, Status)
        assert answer.code == 400
        answer = await served.webhook.handle(request(placed))
        response = answer.value["response"]
        assert response["allowed"]
        assert "patch" in response  # sized as without the field that nobody reads


@pytest.mark.parametrize("count", [101, 3_000])
async def test_a_vpa_with_more_policies_than_are_checked_passes_with_a_warning(
    small, tmp_path, count
):
    policies = [{"containerName": each["name"], "mode": "No"} for each in containers(count)]
    wanted = vpa("Initial", resourcePolicy={"containerPolicies": policies})
    async with (
        sizing(small, tmp_path, 1) as served,
        aiohttp.ClientSession() as session,
    ):
        body = review(wanted, "autoscaling.k8s.io", "verticalpodautoscalers")
        response = await answered(session, served, body)
    assert response["allowed"]
    assert "not checked" in response["warnings"][0]


@pytest.mark.parametrize(
    ("policy", "field", "message"),
    [
        ({"minAllowed": {"cpu": "-1"}}, "minAllowed[cpu]", "greater than or equal to 0"),
        ({"maxAllowed": {"memory": "-1Gi"}}, "maxAllowed[memory]", "greater than or equal to 0"),
        ({"minAllowed": {"cpu": "9223372036854775807"}}, "minAllowed[cpu]", "less than or equal"),
        ({"maxAllowed": {"memory": "1e30"}}, "maxAllowed[memory]", "less than or equal"),
        ({"minAllowed": {"memory": "12 apples"}}, "minAllowed[memory]", "12 apples"),
        ({"minAllowed": {"cpu": {"a": 1}}}, "minAllowed[cpu]", "a text or a number"),
    ],
)
async def test_a_vpa_with_amounts_that_nobody_can_have_is_refused_by_field_and_name(
    small, tmp_path, policy, field, message
):
    wanted = vpa("Initial", resourcePolicy={"containerPolicies": [{"containerName": "*"} | policy]})
    body = review(wanted, "autoscaling.k8s.io", "verticalpodautoscalers")
    async with sizing(small, tmp_path, 1) as served, aiohttp.ClientSession() as session:
        response = await answered(session, served, body)
    assert not response["allowed"]
    details = response["status"]["details"]
    assert (details["name"], details["group"], details["kind"]) == (
        "web",
        "autoscaling.k8s.io",
        "VerticalPodAutoscaler",
    )
    (cause,) = details["causes"]
    assert cause["reason"] == "FieldValueInvalid"
    assert cause["field"] == f"spec.resourcePolicy.containerPolicies[0].{field}"
    assert message in cause["message"]


@pytest.mark.parametrize(
    "target",
    [
        {"cpu": "-1"},
        {"memory": "-1Gi"},
        {"cpu": "9223372036854775807"},
        {"cpu": "1e30"},
        {"nvidia.com/gpu": "1"},
    ],
)
async def test_a_target_that_no_pod_can_have_is_not_patched_into_one(small, tmp_path, target):
    limited = pod(1)
    limited["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "100m", "memory": "64Mi"},
        "limits": {"cpu": "200m", "memory": "128Mi"},
    }
    async with sizing(small, tmp_path, 1) as served, aiohttp.ClientSession() as session:
        assert patched(await answered(session, served, review(limited))) == 1
        held = small.vpa()
        entries = [{"containerName": "c0", "target": target}]
        status = {"recommendation": {"containerRecommendations": entries}}
        version = small.objects.update(
            "verticalpodautoscalers", "default", "web", {**held, "status": status}, "status"
        ).object["metadata"]["resourceVersion"]
        await small.until(
            lambda: served.stores.vpas.get("default", "web").metadata.resource_version == version
        )
        response = await answered(session, served, review(limited))
    assert response == {"uid": "1", "allowed": True}
