"""What a targetRef comes to when somebody stands above it, or may stand there."""

import asyncio
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest

from podscale.kube.client.api import Response
from podscale.kube.client.errors import (
    ApiError,
    ApiUnreachable,
    Forbidden,
    KubeError,
    ObjectNotFound,
    ServerFailed,
)
from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import OwnerReference, decode, encode
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from podscale.kube.objects.scale import Workload
from vpa.admission.matching import OwningController
from vpa.targets import Workloads

FLEET = Resource("shop.io", "v1", "fleets", "Fleet")
TARGET = CrossVersionObjectReference("Deployment", "web", "apps/v1")
MISSING = ObjectNotFound(404, "NotFound", "the server could not find the requested resource")


class Fleets:
    """An API server that knows the scale of one Fleet, or answers with an error."""

    user_agent = "test"

    def __init__(self) -> None:
        self.error: Exception | None = None

    async def for_kind(self, kind: str, group: str, version: str = "") -> tuple[Resource, ...]:
        assert (kind, group) == ("Fleet", "shop.io")
        return (FLEET,)

    async def request(self, _method: Any, path: str, **_: Any) -> Response:
        assert path == FLEET.path("default", "all", "scale")
        if self.error is not None:
            raise self.error
        scale = {"metadata": {"name": "all", "namespace": "default"},
                 "status": {"selector": "app=web"}}  # fmt: skip
        return Response(200, {}, encode(scale))


def owned(api: Fleets, clock: Any = lambda: 0.0) -> Workloads:
    """Return a Deployment whose controller is the Fleet."""
    workloads = Workloads(api, api, clock=clock)  # type: ignore[arg-type]
    body = {
        "metadata": {
            "name": "web", "namespace": "default", "uid": "u1", "resourceVersion": "1",
            "ownerReferences": [{"apiVersion": "shop.io/v1", "kind": "Fleet", "name": "all",
                                 "uid": "u2", "controller": True}],
        },
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    }  # fmt: skip
    workloads.by_kind["Deployment"].accept(decode(encode(body), Workload))
    return workloads


async def above(workloads: Workloads) -> OwningController | None:
    owner = OwnerReference("Deployment", "web", "u1", "apps/v1", True)
    return await workloads.topmost("default", owner)


async def test_a_target_below_another_is_refused_in_upstreams_words():
    workloads = owned(Fleets())
    found = await workloads.resolve("default", TARGET)
    assert found.selector is None
    assert found.unsupported == (
        "The target apps/v1.Deployment/web has a parent controller but it should point to a "
        "topmost well-known or scalable controller"
    )
    assert found.state.topmost == "Fleet/all"
    assert await above(workloads) == OwningController("default", "Fleet", "all")


async def test_an_owner_without_a_scale_is_none():
    api = Fleets()
    api.error = MISSING
    workloads = owned(api)
    assert (await workloads.resolve("default", TARGET)).unsupported is None
    assert await above(workloads) == OwningController("default", "Deployment", "web")


@pytest.mark.parametrize(
    "error",
    [
        Forbidden(403, "Forbidden", "no rights"),
        ServerFailed(503, "ServiceUnavailable", "away"),
        ApiUnreachable("nobody answers", is_timeout=True),
    ],
    ids=["403", "503", "timeout"],
)
async def test_while_nobody_can_say_who_stands_above_nothing_is_sized(error: ApiError):
    api = Fleets()
    api.error = error
    workloads = owned(api)
    found = await workloads.resolve("default", TARGET)
    assert found.selector is None
    said = "Error checking if target apps/v1.Deployment/web is a topmost well-known or scalable"
    assert (found.unsupported or "").startswith(said)
    assert str(error) in (found.unsupported or "")
    assert await above(workloads) is None
    owner = OwnerReference("Deployment", "web", "u1", "apps/v1", True)
    with pytest.raises(KubeError, match="cannot be read"):
        await workloads.topmost("default", owner, asks=True)


@pytest.mark.parametrize("first", [None, MISSING], ids=["scalable", "not scalable"])
async def test_what_was_known_of_an_owner_outlives_an_outage(first: Exception | None):
    api, now = Fleets(), [0.0]
    workloads = owned(api, lambda: now[0])
    api.error = first
    before = await workloads.resolve("default", TARGET)
    api.error, now[0] = ServerFailed(503, "ServiceUnavailable", "away"), 3600.0
    assert await workloads.resolve("default", TARGET) == before


def chained(*owners: str) -> Workloads:
    """Return Deployments, each owned by the next one; the last by nobody."""
    workloads = Workloads(Fleets(), Fleets())  # type: ignore[arg-type]
    for name, above_it in pairwise(owners):
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": above_it, "uid": above_it,
                 "controller": True}  # fmt: skip
        metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1",
                    "ownerReferences": [owner]}  # fmt: skip
        body = {"metadata": metadata, "spec": {"selector": {"matchLabels": {"app": "web"}}}}
        workloads.by_kind["Deployment"].accept(decode(encode(body), Workload))
    return workloads


@pytest.mark.parametrize(
    ("owners", "problem"),
    [
        (["web", "web"], "cycle detected in ownership chain"),
        (["web", "a", "b", "web"], "cycle detected in ownership chain"),
        (["web", "a", "b", "a"], "cycle detected in ownership chain"),
        (["web", *"abcdefghijk"], "more than 10 owners above each other"),
    ],
    ids=["itself", "circle", "circle above", "too deep"],
)
async def test_owners_in_a_circle_have_no_top(owners: list[str], problem: str):
    workloads = chained(*owners)
    found = await workloads.resolve("default", TARGET)
    assert found.selector is None
    assert found.unsupported == (
        "Error checking if target apps/v1.Deployment/web is a topmost well-known or scalable "
        f"controller: {problem}"
    )
    assert await above(workloads) is None
    owner = OwnerReference("Deployment", "web", "u1", "apps/v1", True)
    with pytest.raises(KubeError, match=problem):
        await workloads.topmost("default", owner, asks=True)


async def test_ten_owners_above_each_other_have_a_top():
    assert await above(chained("web", *"abcdefghi")) == OwningController(
        "default", "Deployment", "i"
    )


class Hanging(Fleets):
    """The scale of one object hangs; all others answer after a moment."""

    async def request(self, _method: Any, path: str, **_: Any) -> Response:
        if "/bad/" in path:
            raise ApiUnreachable("no answer", is_timeout=True)
        await asyncio.sleep(0.02)
        return Response(200, {}, encode({"metadata": {"name": "x", "namespace": "default"}}))


async def test_a_review_waits_a_moment_for_the_neighbour_of_an_object_that_hangs():
    api = Hanging()
    workloads = Workloads(api, api)  # type: ignore[arg-type]
    with pytest.raises(KubeError, match="no answer"):
        await workloads.topmost("default", fleet("bad"), asks=True)
    found = await workloads.topmost("default", fleet("good"), asks=True)
    assert found == OwningController("default", "Fleet", "good")


def fleet(name: str) -> OwnerReference:
    return OwnerReference("Fleet", name, "u", "shop.io/v1", True)


class Long(Fleets):
    """Scales with selectors of some length, each of its own."""

    async def request(self, _method: Any, path: str, **_: Any) -> Response:
        name = path.split("/")[-2]
        metadata = {"name": name, "namespace": "default", "uid": f"{name}-uid",
                    "creationTimestamp": "2026-11-18T11:06:35Z"}  # fmt: skip
        selector = ",".join(f"{name}-{label}=value-of-{label}" for label in range(10))
        return Response(200, {}, encode({"metadata": metadata, "status": {"selector": selector}}))


async def test_the_sizes_of_scales_and_selectors_are_not_less_than_what_they_take():
    workloads = Workloads(Long(), Long())  # type: ignore[arg-type]
    await workloads.topmost("default", fleet("warm"))
    deployments = []
    for number in range(400):
        metadata = {"name": f"web-{number}", "namespace": "default", "uid": f"u{number}"}
        labels = {f"{number}-{label}": f"value-of-{label}" for label in range(10)}
        body = {"metadata": metadata, "spec": {"selector": {"matchLabels": labels}}}
        deployments.append(encode(body))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(400):
            await workloads.topmost("default", fleet(f"x{number}"))
        scales = tracemalloc.get_traced_memory()[0] - before
        for each in deployments:
            workloads._selector_of(decode(each, Workload))
        selectors = tracemalloc.get_traced_memory()[0] - before - scales
    finally:
        tracemalloc.stop()
    await workloads.scales.stop()
    assert 100_000 < scales <= workloads.scales._known.held_bytes * 1.2
    assert 100_000 < selectors <= workloads._selectors.held_bytes * 1.2
