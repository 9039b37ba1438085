"""The API of sizing decisions: who reads which, and what long lists cost everybody else."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from podscale.core.selectors import selector
from podscale.kube.client.wire import decode, encode
from podscale.kube.objects.vpa import StoredVpa
from tests.kit.stores import fill
from tests.unit.loop_turns import others
from tests.unit.serving.kit import answered
from tests.unit.vpa.recommender.test_loop import recommender
from vpa.admission.patches.resources import MOST_CONTAINERS
from vpa.decisions.api import SizingApi
from vpa.explain.admission import REASONS
from vpa.model.samples.membership import VpaKey
from vpa.recommender.loop import Recommender
from vpa.targets import ResolvedTarget
from vpa.updater.decide.decision import UpdateDecision
from vpa.updater.loop.memory import PodDecisions

BASE = "/apis/vpa.podscale.io/v1alpha1"
SHOP = "/namespaces/shop/sizingdecisions"


async def ask(api: SizingApi, path: str, *, as_table: bool = False, **query: str) -> Any:
    return await answered(api, BASE + path, query, as_table=as_table)


async def passed(count: int) -> tuple[Recommender, SizingApi]:
    """Return a recommender that has had one pass over so many VPAs, and its API."""
    made = recommender(count)
    await made._load_vpas()
    made.estimates = made.reader.read()
    return made, SizingApi(made, lambda: True)


def names(found: Any) -> list[str]:
    return [each["metadata"]["name"] for each in found["items"]]


async def test_a_role_with_resource_names_reads_no_other_object() -> None:
    # RBAC judges such a list as the object vpa-1: more must not come.
    _, api = await passed(3)
    for path in (SHOP, "/sizingdecisions"):
        assert names(await ask(api, path, fieldSelector="metadata.name=vpa-1")) == ["vpa-1"]
        table = await ask(api, path, as_table=True, fieldSelector="metadata.name=vpa-1")
        assert [row["cells"][0] for row in table["rows"]] == ["vpa-1"]


async def test_lists_heed_labels_fields_and_pages() -> None:
    _, api = await passed(3)
    assert names(await ask(api, SHOP, labelSelector="team=none")) == []
    assert names(await ask(api, "/namespaces/other/sizingdecisions")) == []
    assert (await ask(api, SHOP, fieldSelector="spec.mode=Off")).code == 400
    first = await ask(api, SHOP, limit="2")
    assert (names(first), first["metadata"]["remainingItemCount"]) == (["vpa-0", "vpa-1"], 1)
    rest = await ask(api, SHOP, limit="2", **{"continue": first["metadata"]["continue"]})
    assert names(rest) == ["vpa-2"]


async def test_a_leader_before_its_first_pass_says_neither_nothing_nor_not_found() -> None:
    made = recommender(2)
    api = SizingApi(made, lambda: True)
    for path in (SHOP, f"{SHOP}/vpa-0"):
        refused = await ask(api, path)
        assert (refused.code, refused.details.causes[0].reason) == (503, "NotDecidedYet")


async def test_others_get_their_turn_while_thousands_are_listed() -> None:
    _, api = await passed(3000)
    async with others() as turns:
        found = await ask(api, "/sizingdecisions")
    assert len(found["items"]) == 3000
    assert turns.taken > 5


@pytest.mark.parametrize("labels", [{"app": "web"}, {"app": "db"}, {}])
async def test_whether_a_vpa_has_pods_is_known_without_a_look_at_all_others(
    labels: dict[str, str],
) -> None:
    made, _ = await passed(1)
    cluster, key = made.cluster, VpaKey("shop", "vpa-0")
    cluster.put_vpa(cluster.vpas[key].vpa, selector.parse("app=web"), 0.0)
    cluster.put_pod("shop", "a-0", labels, ["main"], 0.0)
    cluster.put_pod("other", "a-0", {"app": "web"}, ["main"], 0.0)
    assert cluster.is_matched(key) is (key in cluster.matched()) is (labels == {"app": "web"})
    cluster.remove_pod("shop", "a-0")
    assert not cluster.is_matched(key)
    assert key not in cluster.matched()


async def test_what_was_in_force_while_another_replica_led_is_not_known() -> None:
    made, api = await passed(1)
    path = f"{SHOP}/vpa-0"
    tell(made, "2")
    await asyncio.sleep(0.01)
    assert (await ask(api, path, at="0s"))["kind"] == "SizingDecision"
    made._begin()  # another term
    await made._load_vpas()
    made.estimates = made.reader.read()
    assert (await ask(api, path)).get("kind") == "SizingDecision"
    assert (await ask(api, path, at="0s")).code == 404


def updater_of(count: int) -> Any:
    """An updater that has decided on a pod of each VPA; but for that nothing is asked of it."""
    told = PodDecisions()
    for number in range(count):
        seen: Any = SimpleNamespace(namespace="shop", name=f"web-{number}")
        decision = UpdateDecision("none", ("UpdateModeOff",), {})
        told.note(seen, VpaKey("shop", f"vpa-{number}"), decision, time.time())
    return SimpleNamespace(decisions=told)


async def test_what_was_decided_on_pods_stands_until_the_updaters_term_ends() -> None:
    now = 1000.0
    made, _ = await passed(1)
    updater = updater_of(1)
    api = SizingApi(made, lambda: True, updater=updater, wall=lambda: now)
    tell(made, "2")
    await asyncio.sleep(0.01)
    now += 60.0
    updater.decisions.clear()
    await asyncio.sleep(0.01)
    now += 60.0

    async def pods(at: str) -> list[str]:
        found = await ask(api, f"{SHOP}/vpa-0", at=at)
        return [each["pod"] for each in found["status"]["pods"]]

    assert await pods("61s") == ["web-0"]
    assert await pods("0s") == []


async def test_others_get_their_turn_when_the_term_of_an_updater_of_thousands_ends() -> None:
    made, _ = await passed(3000)
    updater = updater_of(3000)
    api = SizingApi(made, lambda: True, updater=updater)
    updater.decisions.clear()
    assert (await ask(api, f"{SHOP}/vpa-0", at="0s")).code == 404  # all are yet to be kept
    turns = 0
    while api._changed:
        turns += 1
        await asyncio.sleep(0)
    assert turns > 5
    for number in (0, 2999):
        assert (await ask(api, f"{SHOP}/vpa-{number}", at="0s"))["status"]["pods"] == []


async def test_of_pods_only_what_the_webhook_wrote_is_asked_for() -> None:
    made, _ = await passed(1)
    asked: list[str] = []

    class Pods:
        async def request(self, *_: Any, accept: str, **__: Any) -> Any:
            asked.append(accept)
            told = {"vpa": "vpa-0", "containers": {}}
            annotations = {REASONS: msgspec.json.encode(told).decode()}
            meta = {"name": "web-0", "namespace": "shop", "annotations": annotations}
            return SimpleNamespace(body=msgspec.json.encode({"items": [{"metadata": meta}]}))

    key = VpaKey("shop", "vpa-0")
    made.api = cast(Any, Pods())
    made.held[key].resolved = ResolvedTarget(selector.parse("app=web"))
    found = await ask(SizingApi(made, lambda: True), f"{SHOP}/vpa-0")
    assert [each["pod"] for each in found["status"]["pods"]] == ["web-0"]
    assert asked == ["application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"]


def tell(made: Recommender, version: str) -> None:
    """Bring a new version of the only VPA, with a recommendation in its status."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "vpa-0"}
    entry = {"containerName": "app", "target": {"cpu": "1", "memory": "2Gi"}}
    written = {
        "metadata": {"name": "vpa-0", "namespace": "shop", "uid": "vpa-0",
                     "resourceVersion": version},
        "spec": {"targetRef": target},
        "status": {"recommendation": {"containerRecommendations": [entry]}},
    }  # fmt: skip
    fill(made.stores.vpas, [decode(encode(written), StoredVpa)], version)


async def test_no_more_containers_are_explained_than_a_pod_that_is_sized_may_have() -> None:
    made, api = await passed(1)
    cluster, key = made.cluster, VpaKey("shop", "vpa-0")
    cluster.put_vpa(cluster.vpas[key].vpa, selector.parse("app=web"), 0.0)
    many = [f"c{number:05}" for number in range(3_000)]
    cluster.put_pod("shop", "a-0", {"app": "web"}, many, 0.0)
    made.estimates = made.reader.read()
    found = await ask(api, f"{SHOP}/vpa-0")
    told = {each["container"] for each in found["status"]["recommendation"]}
    assert told == set(many[:MOST_CONTAINERS])
