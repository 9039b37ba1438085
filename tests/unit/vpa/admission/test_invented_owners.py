"""Whoever reaches the webhook's port may invent owners: they cost neither memory nor requests."""

import tracemalloc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

from podscale.core import boundedcache
from podscale.kube.client.errors import NoMatch, ObjectNotFound
from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import decode, encode, read_time
from podscale.kube.objects.vpa import StoredVpa
from tests.unit.vpa.test_unread_controllers import VPA, Counted
from vpa.admission.patches.patch import BoostSettings
from vpa.admission.validation import VpaGates
from vpa.admission.webhook import ReviewedResource, ReviewRequest, Webhook
from vpa.stores import VpaStores

MIB = 1024 * 1024
WIDGETS = Resource("example.com", "v1", "widgets", "Widget")


class Empty:
    """An API server that serves Widgets, of which there are none."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def request(self, _method: str, path: str, **_more: Any) -> Any:
        self.paths.append(path)
        raise ObjectNotFound(404, "NotFound", "the server could not find the requested resource")

    async def for_kind(self, kind: str, group: str, version: str = "") -> tuple[Resource, ...]:
        if (kind, group) == ("Widget", "example.com"):
            return (WIDGETS,)
        raise NoMatch(f'no matches for kind "{kind}" in group "{group}"')


class Reviews:
    """A webhook in whose namespace there is a VPA."""

    def __init__(self) -> None:
        self.api = Empty()
        api: Any = self.api
        boost: Any = BoostSettings
        gates: Any = VpaGates
        self.stores = VpaStores(api, self.api, needs_pods=False)
        self.webhook = Webhook(self.stores, Counted().admitted, boost=boost, gates=gates)
        self.stores.vpas.accept(decode(VPA, StoredVpa))

    async def outcome(self, kind: str, name: str, version: str, uid: str = "u") -> str:
        owner = {"kind": kind, "name": name, "uid": uid, "apiVersion": version, "controller": True}
        pod = {"metadata": {"name": "a", "ownerReferences": [owner]},
               "spec": {"containers": [{"name": "app"}]}}  # fmt: skip
        resource = ReviewedResource("", "pods")
        review = ReviewRequest("1", resource, "shop", "CREATE", msgspec.Raw(encode(pod)))
        return (await self.webhook._answer(review)).outcome


@pytest.fixture
async def reviews() -> AsyncIterator[Reviews]:
    made = Reviews()
    yield made
    await made.stores.workloads.scales.stop()


@pytest.fixture
def growth() -> Iterator[Any]:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        yield lambda: tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


LONG = "n" * 200_000


@pytest.mark.parametrize(
    ("kind", "name", "version", "uid"),
    [
        pytest.param("Kind", LONG, "example.com/v1", "u", id="name"),
        pytest.param("Widget", LONG, "example.com/v1", "u", id="name of a kind that is served"),
        pytest.param("K" + LONG, "a", "example.com/v1", "u", id="kind"),
        pytest.param("Kind", "a", LONG + "/v1", "u", id="group"),
        pytest.param("Kind", "a", "example.com/" + LONG, "u", id="version"),
        pytest.param("ReplicaSet", LONG, "apps/v1", "u", id="name of a ReplicaSet"),
        pytest.param("ReplicaSet", "a", "apps/v1", LONG, id="uid"),
    ],
)
async def test_long_texts_of_an_owner_are_not_kept(
    reviews: Reviews, growth: Any, kind: str, name: str, version: str, uid: str
) -> None:
    for number in range(100):
        digits = f"{number:03}"
        owner = [text.replace("n" * 9, "n" * 6 + digits) for text in (kind, name, version, uid)]
        assert await reviews.outcome(*owner) == "skipped"
    assert growth() < 4 * MIB


async def test_times_of_any_length_are_not_kept(reviews: Reviews, growth: Any) -> None:
    for number in range(100):
        metadata = {
            "name": "a",
            "creationTimestamp": f"2026-11-21T10:00:00.{number:03}{'0' * 200_000}Z",
        }
        pod = msgspec.Raw(encode({"metadata": metadata, "spec": {"containers": [{"name": "app"}]}}))
        review = ReviewRequest("1", ReviewedResource("", "pods"), "shop", "CREATE", pod)
        await reviews.webhook._answer(review)
    assert growth() < 4 * MIB


async def test_what_a_pod_says_of_its_status_is_not_read(reviews: Reviews) -> None:
    times = [f"2026-11-21T10:00:00.{number:06}Z" for number in range(4_000)]
    conditions = [{"type": "a", "status": "b", "lastTransitionTime": time} for time in times]
    sent = {"metadata": {"name": "a"}, "status": {"conditions": conditions}}
    review = ReviewRequest("1", ReviewedResource("", "pods"), "shop", "CREATE",
                           msgspec.Raw(encode(sent)))  # fmt: skip
    before = read_time.cache_info().misses
    assert (await reviews.webhook._answer(review)).outcome == "skipped"
    assert read_time.cache_info().misses == before


async def test_owners_of_ordinary_length_are_kept_within_a_bound_and_for_a_time(
    reviews: Reviews, growth: Any
) -> None:
    for number in range(2_000):
        name = f"{number:0253}"
        assert await reviews.outcome("Widget", name, "example.com/v1") == "skipped"
    kept = reviews.stores.workloads.scales._known
    assert MIB < growth() < kept.held_bytes * 1.2
    for _ in range(2):
        boundedcache.grow_older(1e9)
        boundedcache.grow_older(2e9)
    assert len(kept) == 0


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        pytest.param("ReplicaSet", "apps/v1", id="well-known"),
        pytest.param("Widget", "example.com/v1", id="by its scale"),
    ],
)
async def test_an_absent_owner_is_asked_for_once_whoever_asks(
    reviews: Reviews, kind: str, version: str
) -> None:
    for _ in range(50):
        assert await reviews.outcome(kind, "web", version) == "skipped"
    assert len(reviews.api.paths) == 1


async def test_an_invented_owner_does_not_hide_the_real_one(reviews: Reviews) -> None:
    await reviews.outcome("ReplicaSet", "web", "apps/v1", "invented")
    await reviews.outcome("ReplicaSet", "web", "apps/v1", "real")
    assert len(reviews.api.paths) == 2


async def test_an_owner_that_is_no_segment_of_a_path_is_not_asked_for(reviews: Reviews) -> None:
    for name in ("../pods/a", "a/b", "a?b", "A", "n" * 254, ""):
        assert await reviews.outcome("ReplicaSet", name, "apps/v1") == "skipped"
        assert await reviews.outcome("Widget", name, "example.com/v1") == "skipped"
    assert reviews.api.paths == []
