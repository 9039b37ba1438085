"""The adapter without the right to list in all namespaces, over real sockets.

Upstream asks for pods with resourceRules and for a ``*`` only, in the namespace of the
request; whoever granted it no more than that must not miss anything here.
"""

import json
import re
import time
from contextlib import contextmanager

import pytest
from aiohttp import web

from tests.conformance import adapter_world as world
from tests.conformance.adapter_cases import rows
from tests.conformance.adapter_wire import wire

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
DEPTH = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue_depth"
REQUESTS = "pods/*/http_requests_per_second?labelSelector=app%3Dweb"
USAGE = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
UNABLE = "Internal error occurred: unable to list matching resources"
PLAIN = ("--coalescing=off", "--sample-timestamps=off")


class BoundCluster(world.ScriptedCluster):
    """Lets list in some namespaces only; what is cluster-scoped is open."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.may_list = ["default"]  # "": in all namespaces
        self.fails = False  # no answer but 500
        self.posted = []

    async def _handle(self, request):
        namespaced = {r.path() for r in self._resources if r.namespaced and r.kind != "ConfigMap"}
        found = re.fullmatch(
            r"(/api/v1|/apis/[^/]+/[^/]+)/namespaces/([^/]+)(/[^/]+)", request.path
        )
        namespace = found[2] if found and f"{found[1]}{found[3]}" in namespaced else ""
        path = f"{found[1]}{found[3]}" if found and namespace else request.path
        if path not in namespaced:
            return await super()._handle(request)
        self.posted.append(request.path)
        if self.fails:
            status = {"kind": "Status", "status": "Failure", "code": 500}
            return web.json_response(status, status=500)
        if not {namespace, ""} & set(self.may_list):
            text = f'{path} is forbidden: User "adapter" cannot list in "{namespace}"'
            status = {"kind": "Status", "reason": "Forbidden", "message": text, "code": 403}
            return web.json_response(status, status=403)
        items = self._objects.get(path, [])
        items = [i for i in items if namespace in ("", i["metadata"]["namespace"])]
        return await self._collection(request, items)


@contextmanager
def run(directory, *may_list, until=None, fails=False):
    made = []

    def cluster(authorities):
        bound = BoundCluster(world.part_c_resources(), rows("C1"), authorities)
        bound.may_list, bound.fails = list(may_list), fails
        made.append(bound)
        return bound

    more = {} if until is None else {"until": until}
    with wire(
        directory, world.part_c_config(), cluster, world.part_c_prometheus(), *PLAIN, **more
    ) as running:
        yield running


def eventually(fact, within_s=15.0):
    deadline = time.monotonic() + within_s
    while not fact():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.05)


def names(answer):
    assert answer.status == 200, answer.body
    return [item["describedObject"]["name"] for item in answer.body["items"]]


def test_without_the_right_to_pods_it_is_ready_and_what_needs_them_says_why(tmp_path):
    with run(tmp_path) as running:
        assert running.ask("/readyz").body == "ok"
        told = running.ask("/readyz?verbose").body
        assert "[+]pods-synced ok: they may not be listed in all namespaces" in told
        assert "adapter" not in told  # open to everybody: no account, no server
        assert running.ask(DEPTH).status == 200
        assert running.ask(f"{CUSTOM}/namespaces/default/pods/web-1/scal").status == 500
        assert running.ask("/apis/metrics.k8s.io/v1beta1/nodes").status == 200
        asked = (f"{CUSTOM}/namespaces/default/{REQUESTS}", USAGE, f"{USAGE}/web-1",
                 "/apis/metrics.k8s.io/v1beta1/pods", f"{CUSTOM}/{REQUESTS}")  # fmt: skip
        for path in asked:
            failed = running.ask(path)
            assert (failed.status, failed.body["message"]) == (500, UNABLE), path
            assert failed.body["details"]["causes"][-1]["reason"] == "Forbidden"
            assert "cannot list" not in json.dumps(failed.body)
        running.cluster.may_list = [""]
        eventually(lambda: running.ask(USAGE).status == 200)
        assert "may not" not in running.ask("/readyz?verbose").body
        assert names(running.ask(f"{CUSTOM}/namespaces/default/{REQUESTS}")) == ["web-1", "web-2"]


def test_a_role_in_a_namespace_is_enough_for_a_star_there(tmp_path):
    star = f"{CUSTOM}/namespaces/default/deployments.apps/*/t_gauge"
    with run(tmp_path, "default") as running:
        assert running.ask("/readyz").body == "ok"
        assert running.ask(star).status == 200
        assert names(running.ask(f"{CUSTOM}/namespaces/default/{REQUESTS}")) == ["web-1", "web-2"]
        elsewhere = running.ask(f"{CUSTOM}/namespaces/prod/{REQUESTS}")
        assert (elsewhere.status, elsewhere.body["message"]) == (500, UNABLE)
        running.cluster.posted.clear()
        for _ in range(5):
            assert running.ask(star).status == 200
        own = "/apis/apps/v1/namespaces/default/deployments"
        assert running.cluster.posted.count(own) == 0  # it is watched, not listed each time


def test_with_the_right_the_namespaces_are_not_watched_one_by_one(tmp_path):
    with run(tmp_path, "") as running:
        assert "may not" not in running.ask("/readyz?verbose").body
        assert names(running.ask(f"{CUSTOM}/namespaces/default/{REQUESTS}")) == ["web-1", "web-2"]
        running.ask(f"{CUSTOM}/namespaces/default/deployments.apps/*/t_gauge")
        assert not [path for path in running.cluster.posted if "/namespaces/" in path]


def test_a_refusal_before_an_outage_does_not_keep_it_ready(tmp_path):
    with run(tmp_path) as running:
        assert running.ask("/readyz").body == "ok"
        running.cluster.fails = True
        eventually(lambda: running.ask("/readyz").status == 500)
        running.cluster.fails = False
        eventually(lambda: running.ask("/readyz").status == 200)


def test_a_server_that_fails_keeps_it_unready(tmp_path):
    with run(tmp_path, "", fails=True, until=lambda adapter: adapter.relister.is_tried) as running:
        eventually(lambda: len(running.cluster.posted) > 1)
        unready = running.ask("/readyz?verbose")
        assert unready.status == 500
        assert "[-]pods-synced failed: pods are not listed yet" in unready.body
        running.cluster.fails = False
        eventually(lambda: running.ask("/readyz").status == 200)


@pytest.mark.parametrize(("path", "status", "message"), [
    (f"{CUSTOM}/namespaces/default/{REQUESTS}&limit=abc", 400, "strconv.ParseInt: parsing"),
    (f"{DEPTH}?limit=abc", 400, "strconv.ParseInt: parsing"),
    (f"{USAGE}?limit=abc", 400, "strconv.ParseInt: parsing"),
    (f"{USAGE}/web-1?limit=abc", 200, ""),  # a GET has no such option
    (f"{USAGE}?resourceVersionMatch=NotOlderThan", 422, "ListOptions.meta.k8s.io"),
    (f"{DEPTH}?resourceVersionMatch=NotOlderThan", 422, "ListOptions.meta.k8s.io"),
    ("/apis/metrics.k8s.io/v1beta1/nodes?sendInitialEvents=1", 422, "ListOptions.meta.k8s.io"),
    (f"{CUSTOM}/namespaces/default/{REQUESTS}&resourceVersionMatch=NotOlderThan", 200, ""),
    (f"{CUSTOM}/namespaces/default/{REQUESTS}&fieldSelector=metadata.namespace%3Ddefault", 400,
     "fieldSelector metadata.name doesn't match"),
    (f"{CUSTOM}/namespaces/default/{REQUESTS}&fieldSelector=metadata.name!%3Dfoo", 400,
     "fieldSelector metadata.name doesn't match"),
    (f"{CUSTOM}/namespaces/default/{REQUESTS}&fieldSelector=metadata.name%3D*,", 200, ""),
    (f"{USAGE}?fieldSelector=metadata.name%3Da%3Db", 400, "invalid field selector: unescaped"),
    (f"{USAGE}?fieldSelector=metadata.name%3Dweb-1,", 200, ""),
])  # fmt: skip
def test_options_are_refused_as_upstream_refuses_them(served, path, status, message):
    # The same without the option first: what is kept of it must not answer.
    for asked in (path.partition("&limit")[0], path):
        answer = served.ask(asked)
    assert answer.status == status, answer.body
    if message:
        assert answer.body["message"].startswith(message)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """An adapter that keeps its answers for long."""
    directory = tmp_path_factory.mktemp("served")
    arguments = ("--feed-max-age=60s", "--sample-timestamps=off", "--coalescing=off")
    with wire(
        directory,
        world.part_c_config(),
        lambda authorities: world.ScriptedCluster(
            world.part_c_resources(), rows("C1"), authorities
        ),
        world.part_c_prometheus(),
        *arguments,
    ) as running:
        yield running


def test_usage_is_shown_in_the_form_that_was_asked_for(served):
    def ask(path, kind):
        form = f"application/json;as={kind};v=v1;g=meta.k8s.io"
        return served.ask(path, {"headers": {"Accept": form}})

    table = ask(USAGE, "Table").body
    assert table["apiVersion"] == "meta.k8s.io/v1"
    assert {row["object"]["kind"] for row in table["rows"]} == {"PartialObjectMetadata"}
    whole = ask(f"{USAGE}?includeObject=Object", "Table").body["rows"]
    assert [row["object"]["kind"] for row in whole] == ["PodMetrics"] * 3
    assert all(row["object"]["containers"] for row in whole)
    assert ask(USAGE, "PartialObjectMetadataList").status == 406
    missing = ask(f"{USAGE}/none", "PartialObjectMetadata")
    assert (missing.status, missing.body["kind"]) == (404, "Status")
    assert ask(DEPTH, "Table").status == 406


def test_upstreams_counters_have_upstreams_names(served):
    lines = served.ask("/metrics").body.splitlines()
    names = {re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")}
    assert names >= {
        "authentication_attempts", "authorization_attempts_total", "apiserver_request_total",
        "apiserver_request_sli_duration_seconds_bucket", "apiserver_response_sizes_bucket",
    }  # fmt: skip
    assert "authentication_attempts_total" not in names
    sums = [line for line in lines if line.startswith("apiserver_response_sizes_sum")]
    assert any(float(line.rpartition(" ")[2]) > 0 for line in sums)
