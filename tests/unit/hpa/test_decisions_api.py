"""The API of decisions: who answers, what, and in which words it refuses."""

import asyncio
from typing import Any

import pytest

from hpa.decide.settings import Settings
from hpa.decisions import DecisionsApi
from podscale.kube.leadership.lease import Term
from tests.unit.hpa.world import Cluster, deployment_object, hpa_object, pod_object
from tests.unit.serving.kit import answered

pytestmark = pytest.mark.looptime
BASE = "/apis/hpa.podscale.io/v1alpha1"


async def ask(
    api: DecisionsApi, path: str, *, as_table: bool = False, method: str = "GET", **query: str
) -> Any:
    return await answered(api, BASE + path, query, as_table=as_table, method=method)


async def decided(*names: str) -> tuple[Cluster, DecisionsApi]:
    cluster = Cluster(settings=Settings(sync_period_s=15.0))
    cluster.put(*map(hpa_object, names), *(deployment_object(name, 1) for name in names))
    cluster.put_pods(*(pod_object(name, 0) for name in names))
    await cluster.run_for(1.0)
    return cluster, DecisionsApi(cluster.controller, lambda: True, wall=cluster.wall)


async def test_one_decision_is_explained_whole() -> None:
    _, api = await decided("web")
    found = await ask(api, "/namespaces/shop/scalingdecisions/web")
    assert found["kind"] == "ScalingDecision"
    assert found["spec"]["scaleTargetRef"]["name"] == "web"
    status = found["status"]
    assert status["first_reason"] == "WithinTolerance"
    assert status["facts"]["metric"] == "load"
    assert status["sentences"]
    assert status["change"]
    assert status["conditions"] == []


async def test_a_term_that_waits_for_its_histories_shows_nothing_of_the_term_before() -> None:
    cluster, api = await decided("web")
    assert len((await ask(api, "/scalingdecisions"))["items"]) == 1
    cluster.world.delay = lambda _method, path: 30.0 if "configmaps" in path else 0.0
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(20.0)
    for path in ("/scalingdecisions", "/namespaces/shop/scalingdecisions/web"):
        refused = await ask(api, path)
        assert refused.code == 503
        assert "has not been decided on yet" in refused.message
    leading.cancel()
    await asyncio.wait({leading})


async def test_lists_are_by_namespace_selector_and_name() -> None:
    _, api = await decided("web", "api", "db")
    for path, query, names in (
        ("/scalingdecisions", {}, ["api", "db", "web"]),
        ("/namespaces/shop/scalingdecisions", {}, ["api", "db", "web"]),
        ("/namespaces/other/scalingdecisions", {}, []),
        ("/namespaces/shop/scalingdecisions", {"labelSelector": "tier=front"}, []),
        ("/namespaces/shop/scalingdecisions", {"fieldSelector": "metadata.name=db"}, ["db"]),
    ):
        found = await ask(api, path, **query)
        assert [each["metadata"]["name"] for each in found["items"]] == names
    rows = (await ask(api, "/scalingdecisions", as_table=True))["rows"]
    assert rows[2]["cells"][:5] == ["web", "Deployment/web", "1", "1", "WithinTolerance"]


async def test_a_filter_that_is_not_known_shows_nothing_instead_of_too_much() -> None:
    _, api = await decided("web")
    refused = await ask(api, "/scalingdecisions", fieldSelector="spec.mode=shadow")
    assert (refused.code, refused.message) == (400, "field label not supported: spec.mode")


@pytest.mark.parametrize("as_table", [False, True])
async def test_a_long_list_comes_in_pages_as_kubectl_asks_for_it(as_table: bool) -> None:
    _, api = await decided("web", "api", "db")
    first = await ask(api, "/scalingdecisions", as_table=as_table, limit="2")
    assert first["metadata"]["remainingItemCount"] == 1
    rest = await ask(
        api, "/scalingdecisions", as_table=as_table, limit="2",
        **{"continue": first["metadata"]["continue"]},
    )  # fmt: skip
    assert "continue" not in rest["metadata"]
    shown = [*first["rows"], *rest["rows"]] if as_table else [*first["items"], *rest["items"]]
    objects = [each["object"] if as_table else each for each in shown]
    assert [each["metadata"]["name"] for each in objects] == ["api", "db", "web"]


async def test_rows_hold_whole_objects_for_clients_that_sort_by_them() -> None:
    _, api = await decided("web")
    found = await ask(api, "/scalingdecisions", as_table=True, includeObject="Object")
    assert found["rows"][0]["object"]["status"]["replicas"] == 1


async def test_a_leader_that_has_just_begun_never_lists_nothing() -> None:
    cluster = Cluster(settings=Settings(sync_period_s=15.0))
    api = DecisionsApi(cluster.controller, lambda: True, wall=cluster.wall)
    assert (await ask(api, "/scalingdecisions"))["items"] == []  # there is nothing to decide on
    cluster.put(hpa_object("web"))
    for query in ({}, {"labelSelector": ""}):
        refused = await ask(api, "/scalingdecisions", **query)
        assert (refused.code, refused.details.causes[0].reason) == (503, "NotDecidedYet")
    other = await ask(api, "/namespaces/other/scalingdecisions")
    assert other["items"] == []


async def test_who_loses_the_lease_while_a_list_is_made_gives_no_part_of_it() -> None:
    cluster, _ = await decided("web")
    leads = iter((True, False))
    api = DecisionsApi(cluster.controller, lambda: next(leads), wall=cluster.wall)
    assert (await ask(api, "/scalingdecisions")).code == 503


async def test_an_object_that_cannot_be_read_any_more_says_so_above_its_last_decision() -> None:
    cluster, api = await decided("web")
    entry = cluster.controller.catalog.get(("shop", "web"))
    assert entry is not None
    entry.hpa, entry.problem = None, "quantities must match the regular expression"
    found = await ask(api, "/namespaces/shop/scalingdecisions/web")
    (condition,) = found["status"]["conditions"]
    assert condition["type"] == "SpecInvalid"
    assert "must match the regular expression" in condition["message"]


async def test_a_replica_that_does_not_lead_says_so_and_never_lists_nothing() -> None:
    cluster, _ = await decided("web")
    api = DecisionsApi(cluster.controller, lambda: False)
    for path in ("/scalingdecisions", "/namespaces/shop/scalingdecisions/web"):
        refused = await ask(api, path)
        assert (refused.code, refused.details.causes[0].reason) == (503, "NotLeader")


async def test_what_is_not_there_is_refused_in_words() -> None:
    cluster, api = await decided("web")
    path = "/namespaces/shop/scalingdecisions/"
    assert (await ask(api, path + "nobody")).code == 404
    assert (await ask(api, path + "web/status")).code == 404
    assert (await ask(api, path + "web", method="DELETE")).code == 405
    old = await ask(api, "/proxy/namespaces/shop/scalingdecisions")  # RBAC judged "proxy"
    assert old.code == 405
    assert (await ask(api, "/scalingdecisions", watch="1")).code == 405
    assert (await ask(api, "/scalingdecisions", labelSelector="a==b==c")).code == 400
    cluster.put(hpa_object("new"))
    undecided = await ask(api, path + "new")
    assert (undecided.code, undecided.details.causes[0].reason) == (503, "NotDecidedYet")


async def test_what_is_known_of_now_is_not_said_of_an_earlier_decision() -> None:
    cluster = Cluster(settings=Settings(sync_period_s=15.0))
    cluster.put(hpa_object("web"), deployment_object("web", 1))
    cluster.put_pods(pod_object("web", 0))
    api = DecisionsApi(cluster.controller, lambda: True, wall=cluster.wall)

    async def paused_by_hand() -> None:
        await asyncio.sleep(5.0)
        paused = hpa_object("web")
        paused["metadata"] |= {
            "annotations": {"podscale.io/paused": "true"},
            "generation": 2,
            "resourceVersion": cluster.world.next_version(),
        }
        cluster.put(paused)

    async with asyncio.TaskGroup() as group:
        group.create_task(paused_by_hand())
        await cluster.run_for(25.0)
    entry = cluster.controller.catalog.get(("shop", "web"))
    assert entry is not None
    entry.problem = "it cannot be read now"
    path = "/namespaces/shop/scalingdecisions/web"
    age = "23s"
    now, then = await ask(api, path), await ask(api, path, at=age)
    assert now["status"]["first_reason"] != then["status"]["first_reason"]
    assert [len(each["status"]["conditions"]) for each in (now, then)] == [1, 0]
    (row,) = (await ask(api, path, as_table=True, at=age))["rows"]
    assert row["cells"][4] == then["status"]["first_reason"]


async def test_an_earlier_decision_is_asked_for_by_time_or_age() -> None:
    _, api = await decided("web")
    path = "/namespaces/shop/scalingdecisions/web"
    assert (await ask(api, path, at="0s"))["kind"] == "ScalingDecision"
    too_early = await ask(api, path, at="1h")
    assert too_early.code == 404
    assert " before 20" in too_early.message
    assert "only recent ones are kept" in too_early.message
    ahead = await ask(api, path, at="-5m")
    assert (ahead.code, "lies ahead" in ahead.message) == (400, True)
    assert (await ask(api, path, at="yesterday")).code == 400
