"""Nobody reads more than the authorizer was asked about, however a request is spelled."""

import asyncio
import itertools
import string
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.adapter.scope_world import KINDS, OBJECTS, Answer, ScopeWorld

CUSTOM, EXTERNAL = "/apis/custom.metrics.k8s.io", "/apis/external.metrics.k8s.io/v1beta1"
PLURALS = {kind.kind: kind for kind in KINDS}
CLUSTER_SCOPED = {kind.kind for kind in KINDS if not kind.namespaced}
ODD = ("*", "", ".", "..", "B", "b.", "b/", "a|b", '"', 'b"} or secret{x="', "system:reader", "b\n")


def spellings(kind: Any) -> list[str]:
    """Return the ways to write a kind, those included that mean nothing."""
    words = [kind.plural, kind.singular, kind.kind, kind.plural.upper(), kind.plural[:2]]
    groups = [
        "",
        ".",
        f".{kind.group}",
        f".{kind.group[:3]}",
        ".v1",
        f".v1.{kind.group}",
        "..",
        "/",
    ]
    return [word + group for word in words for group in groups]


kinds = st.sampled_from(
    [word for kind in KINDS for word in spellings(kind)] + ["metrics", "ns", "po"]
)
namespaces = st.sampled_from(["a", "b", *ODD])
names = st.sampled_from(
    ["*", "*", *{name for found in OBJECTS.values() for _, name in found}, *ODD]
)
metrics = st.sampled_from(["load", "raw_load", "none"])
queries = st.sampled_from([
    "", "?watch=true", "?labelSelector=namespace%3Db", "?metricLabelSelector=namespace%3Db",
    "?metricLabelSelector=namespace+in+(a,b),pod%3Ddb-0", "?fieldSelector=metadata.namespace%3Db",
    "?fieldSelector=metadata.name%3Db", "?namespace=b", "?pretty=1",
])  # fmt: skip
segments = st.lists(st.one_of(kinds, namespaces, names, metrics), max_size=6)


@st.composite
def targets(draw: st.DrawFn) -> str:
    """A request that means something, and often one that means nothing."""
    version, query = draw(st.sampled_from(["v1beta1", "v1beta2"])), draw(queries)
    special = draw(st.sampled_from(["", "", "", "/watch", "/proxy"]))
    form = draw(st.integers(0, 5))
    if form == 0:
        parts = ["namespaces", draw(namespaces), "metrics", draw(metrics)]
    elif form == 1:
        parts = [draw(kinds), draw(names), draw(metrics)]
    elif form == 2:
        parts = draw(segments)
    elif form == 3:
        metric = draw(st.sampled_from(["depth", "shared", "none"]))
        parts = ["namespaces", draw(namespaces), metric]
        return EXTERNAL + special + "".join(f"/{written(draw, part)}" for part in parts) + query
    else:
        parts = ["namespaces", draw(namespaces), draw(kinds), draw(names), draw(metrics)]
    path = "".join(f"/{written(draw, part)}" for part in parts)
    return f"{CUSTOM}/{version}{special}{path}{query}"


def written(draw: st.DrawFn, part: str) -> str:
    plain = string.ascii_letters + string.digits
    return quote(part, safe=draw(st.sampled_from(["*:/", plain])))


def is_covered(
    item: Mapping[str, Any], metric: str, allowed: tuple[Mapping[str, Any], ...]
) -> bool:
    """Return whether a review was about this object, or about every one where it is."""
    described = item["describedObject"]
    kind, name = described["kind"], described["name"]
    place = described.get("namespace", "")
    if kind == "Namespace":
        place = name
    for asked in allowed:
        if asked.get("namespace", "") not in ("", place):
            continue
        if kind in CLUSTER_SCOPED - {"Namespace"} and asked.get("namespace", ""):
            continue
        if asked.get("resource") == "metrics" and kind == "Namespace":
            if asked["name"] == metric:
                return True
        elif asked.get("subresource") == metric and asked.get("name") in ("*", name):
            word = asked.get("resource", "").partition(".")[0].lower()
            if word in (PLURALS[kind].plural, PLURALS[kind].singular):
                return True
    return False


def check(answer: Answer, user: str) -> None:
    items = answer.body.get("items", []) if answer.status == 200 else []
    for item in items:
        if "describedObject" in item:
            metric = item.get("metricName") or item["metric"]["name"]
            assert is_covered(item, metric, answer.reviews), (user, item, answer.reviews)
    for text in answer.queries:
        assert "secret" not in text
        assert "\n" not in text
        if user == "tenant" and "shared" not in text:
            assert 'namespace="a"' in text or 'namespace=~"a"' in text


def allows(user: str, asked: Mapping[str, Any]) -> bool:
    return user == "admin" or asked.get("namespace") == "a"


requests = st.tuples(st.sampled_from(["tenant", "tenant", "admin"]), targets())


@settings(max_examples=600)
@given(st.lists(requests, min_size=1, max_size=4))
def test_what_is_answered_is_part_of_what_the_authorizer_was_asked(sent):
    async def run() -> None:
        world = ScopeWorld(allows)
        for user, target in sent:
            # The second of two equal requests may be answered from what the first left.
            for _ in range(2):
                check(await world.ask(user, target), user)

    asyncio.run(run())


def every_spelling() -> list[str]:
    """Return one target for every spelling of every kind, by every place, name and version."""
    places = ("", "/namespaces/a", "/namespaces/b", "/namespaces/*")
    found = [
        f"{CUSTOM}/{version}{place}/{word}/{quote(name, safe='*')}/load"
        for kind in KINDS
        for word in spellings(kind)
        if "/" not in word
        for name in ("*", *dict(OBJECTS[kind.group_resource]).values(), "a", "b")
        for place, version in itertools.product(places, ("v1beta1", "v1beta2"))
    ]
    return [*dict.fromkeys(found), *(f"{CUSTOM}/v1beta2{place}/metrics/load" for place in places)]


async def test_every_spelling_gives_a_tenant_his_own_namespace_and_nothing_else():
    world = ScopeWorld(allows)
    told: dict[str, Counter[int]] = {"tenant": Counter(), "admin": Counter()}
    seen: dict[str, set[tuple[str, str, str]]] = {"tenant": set(), "admin": set()}
    for target in every_spelling():
        for user in ("admin", "tenant"):  # the admin first: what is kept for him is not for others
            answer = await world.ask(user, target)
            check(answer, user)
            told[user][answer.status] += 1
            for item in answer.body.get("items", []):
                described = item["describedObject"]
                place = described.get("namespace", "")
                seen[user].add((described["kind"], place, described["name"]))
    kinds = {kind: sum(each[0] == kind for each in seen["tenant"]) for kind in PLURALS}
    assert kinds == {"Pod": 4, "Service": 3, "Namespace": 1, "Role": 3} | dict.fromkeys(
        ("Node", "StorageClass", "Tenant"), 0
    )
    assert {place for kind, place, _ in seen["tenant"] if kind != "Namespace"} == {"a"}
    assert ("Namespace", "", "a") in seen["tenant"]
    assert {("Node", "", "n0"), ("Node", "a", "n0"), ("Namespace", "", "b")} <= seen["admin"]
    assert min(told["tenant"][status] for status in (200, 403, 404)) > 50, told


@pytest.mark.parametrize(("target", "status", "asked"), [
    ("nodes/n0/load", 403, [""]),
    ("namespaces/a/nodes/n0/load", 403, ["a", ""]),
    ("namespaces/a/nodes/*/load", 403, ["a", ""]),
    ("namespaces/a/tenants.example.com/b/load", 403, ["a", ""]),
    ("namespaces/a/services/web/load", 200, ["a"]),
    ("namespaces/a/namespace/a/load", 200, ["a"]),
    ("namespaces/a/namespaces/*/load", 404, ["a"]),
    ("namespaces/a/Namespace/b/load", 404, ["a"]),
    ("namespaces/a/metrics/load", 200, ["a"]),
    ("namespaces/*/metrics/load", 403, ["*"]),
])  # fmt: skip
async def test_what_no_namespace_holds_is_reviewed_at_cluster_scope_as_well(target, status, asked):
    world = ScopeWorld(allows)
    answer = await world.ask("tenant", f"{CUSTOM}/v1beta2/{target}")
    spaces = [each["resourceAttributes"].get("namespace", "") for each in world.api.reviews]
    assert (answer.status, spaces) == (status, asked)
    if "" in asked:
        assert answer.body["message"].startswith(target.removeprefix("namespaces/a/").split("/")[0])
        assert "at the cluster scope" in answer.body["message"]


async def test_who_may_read_the_whole_cluster_reads_nodes_below_a_namespace_as_before():
    world = ScopeWorld(allows)
    for namespace in ("a", "*"):
        target = f"{CUSTOM}/v1beta1/namespaces/{namespace}/"
        target += "nodes/n0/load" if namespace == "a" else "metrics/load"
        answer = await world.ask("admin", target)
        assert answer.status == 200
        assert [each.get("namespace", "") for each in answer.reviews] == [namespace, ""]


@pytest.mark.parametrize("name", [each for each in ODD if each not in ("*", "", "b/")])
@pytest.mark.parametrize("metric", ["load", "raw_load"])
async def test_what_no_object_can_be_called_is_not_found_before_there_is_a_query(name, metric):
    world = ScopeWorld(allows)
    odd = quote(name, safe="")
    for place in (f"namespaces/a/pods/{odd}", f"namespaces/{odd}/pods/web-0", f"nodes/{odd}",
                  f"namespaces/{odd}/metrics", f"namespaces/{odd}/services/*"):  # fmt: skip
        answer = await world.ask("admin", f"{CUSTOM}/v1beta2/{place}/{metric}")
        assert (answer.status, answer.queries) == (404, ()), place
        if name not in (".", ".."):
            assert f"could not find the metric {metric} for " in answer.body["message"]
    answer = await world.ask("admin", f"{EXTERNAL}/namespaces/{odd}/depth")
    assert (answer.status, answer.queries) == (404, ())


async def test_an_external_metric_of_no_namespace_is_asked_below_a_star_as_upstream():
    world = ScopeWorld(allows)
    assert (await world.ask("admin", f"{EXTERNAL}/namespaces/*/shared")).queries == ("shared{}",)
    scoped = await world.ask("admin", f"{EXTERNAL}/namespaces/*/depth")
    assert (scoped.status, scoped.body["items"], scoped.queries) == (200, [], ())


async def test_a_name_of_a_kind_with_other_names_reaches_no_query_raw():
    # Whoever may create a Role chooses its name among all path segments.
    world = ScopeWorld(allows)
    answer = await world.ask("admin", f"{CUSTOM}/v1beta2/namespaces/b/roles/*/raw_load")
    assert answer.status in (200, 404)
    assert "secret" not in "".join(answer.queries)
    answer = await world.ask("admin", f"{CUSTOM}/v1beta2/namespaces/a/roles/*/raw_load")
    names = [item["describedObject"]["name"] for item in answer.body["items"]]
    assert names == ["system:reader"]


@pytest.mark.parametrize("verb", ["watch", "proxy"])
@pytest.mark.parametrize("path", [
    f"{CUSTOM}/v1beta2/%s/namespaces/a/pods/*/load", f"{CUSTOM}/v1beta1/%s/nodes/n0/load",
    f"{CUSTOM}/v1beta2/%s/namespaces/a/metrics/load", f"{CUSTOM}/v1beta2/%s/namespaces/a",
    f"{CUSTOM}/v1beta2/%s", f"{EXTERNAL}/%s/namespaces/a/depth", f"{EXTERNAL}/%s/depth",
])  # fmt: skip
async def test_paths_of_special_verbs_are_judged_as_such_and_lead_nowhere(verb, path):
    world = ScopeWorld(allows)
    answer = await world.ask("admin", path % verb)
    assert (answer.status, answer.queries) == (404, ())
    assert answer.body["message"] == "the server could not find the requested resource"
    if "/namespaces/" in path:
        assert [each["verb"] for each in answer.reviews] == [verb]


@pytest.mark.parametrize("key", ["a-b", "example.com/a", "1a"])
async def test_a_selector_on_what_no_series_is_labelled_with_reaches_no_query(key):
    world = ScopeWorld(allows)
    one = f"{CUSTOM}/v1beta2/namespaces/a/services/web/load?metricLabelSelector={quote(key)}"
    several = f"{CUSTOM}/v1beta2/namespaces/a/pods/*/raw_load?metricLabelSelector={quote(key)}"
    for target in (one, several, f"{EXTERNAL}/namespaces/a/shared?labelSelector={quote(key)}"):
        answer = await world.ask("tenant", target)
        assert (answer.status, answer.queries) == (500, ())  # as upstream, of Prometheus' refusal
        assert "unable to fetch metrics" in answer.body["message"]
