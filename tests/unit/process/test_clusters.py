"""Objects, TokenReviews and SubjectAccessReviews: each asked of the cluster that is named."""

import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from adapter import flags as adapter_flags
from adapter.part import NEEDED
from podscale.kube.client.connect import ApiServerTarget, is_in_pod
from podscale.kube.client.resource import PODS
from podscale.process.clusters import reached
from podscale.serving import flags as serving_flags
from tests.conformance.adapter_world import discovery, kubeconfig
from tests.kit.adapter import served_adapter

NAMES = ("lister", "authentication", "authorization")
DISCOVERY = {
    "/api": discovery([PODS], is_core=True),
    "/apis": discovery([], is_core=False),
}


def parse(*words):
    return serving_flags.parse(words, adapter_flags.TABLE)


def named(words, *, is_in_pod):
    given = parse(*(f"--{word}" for word in words.split()))
    found = adapter_flags.targets(given, is_in_pod=is_in_pod)
    targets = (found.objects, found.authentication, found.authorization)
    assert all(target == ApiServerTarget(kubeconfig=target.kubeconfig) for target in targets)
    return [target.kubeconfig for target in targets]


@pytest.mark.parametrize(("words", "in_pod", "outside"), [
    ("", ["", "", ""], ["", "", ""]),
    ("lister-kubeconfig=a", ["a", "", ""], ["a", "a", "a"]),
    ("authentication-kubeconfig=b", ["", "b", ""], ["b", "b", "b"]),
    ("authorization-kubeconfig=c", ["", "", "c"], ["c", "c", "c"]),
    ("authorization-kubeconfig=c authentication-kubeconfig=b", ["", "b", "c"], ["b", "b", "c"]),
    ("lister-kubeconfig=a authorization-kubeconfig=c", ["a", "", "c"], ["a", "a", "c"]),
    ("lister-kubeconfig=a authentication-kubeconfig=b authorization-kubeconfig=c",
     ["a", "b", "c"], ["a", "b", "c"]),
])  # fmt: skip
def test_each_flag_names_one_cluster_and_without_it_there_is_the_pods_own(words, in_pod, outside):
    assert named(words, is_in_pod=True) == in_pod
    assert named(words, is_in_pod=False) == outside


def test_a_process_with_one_connection_has_the_listers():
    given = parse("--authorization-kubeconfig=c", "--lister-kubeconfig=a")
    assert adapter_flags.targets(given, is_in_pod=True).objects == ApiServerTarget(kubeconfig="a")


def test_a_pod_is_where_a_service_account_is(tmp_path):
    variables = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert not is_in_pod(variables, tmp_path)
    (tmp_path / "token").write_text("t")
    assert is_in_pod(variables, tmp_path)
    assert not is_in_pod({}, tmp_path)


class Cluster:
    """An API server that remembers what it was asked, and grants everything."""

    def __init__(self):
        self.asked = set()
        self.rights = set()

    async def listen(self, stack: AsyncExitStack) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def _handle(self, request: web.Request) -> web.Response:
        self.asked.add(request.path.rpartition("/")[2])
        if request.path in DISCOVERY:
            return web.json_response(DISCOVERY[request.path])
        if request.method != "POST":
            return web.json_response({"kind": "List", "metadata": {}, "items": []})
        body = await request.json()
        if request.path.endswith("/selfsubjectaccessreviews"):
            self.rights.add(body["spec"]["resourceAttributes"]["resource"])
        user = {"username": "alice", "groups": []}
        status = {"allowed": True, "authenticated": True, "user": user}
        return web.json_response(body | {"status": status}, status=201)


async def kubeconfigs(stack: AsyncExitStack, directory: Path, count: int):
    """Return running clusters and the flags that name them, in the order of ``NAMES``."""
    clusters, words = [Cluster() for _ in range(count)], []
    for at, name in enumerate(NAMES):
        if at < count:
            (directory / name).write_text(kubeconfig(await clusters[at].listen(stack)))
        words.append(f"--{name}-kubeconfig={directory / NAMES[min(at, count - 1)]}")
    return clusters, words


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_one_connection_for_each_kubeconfig_and_each_right_asked_where_it_is_used(
    tmp_path, count
):
    async with AsyncExitStack() as stack:
        _, words = await kubeconfigs(stack, tmp_path, count)
        where = adapter_flags.targets(parse(*words), is_in_pod=False)
        found = await stack.enter_async_context(reached(where, user_agent="test"))
        apis = [found.objects, found.authentication, found.authorization]
        assert len(set(map(id, apis))) == count
        needs = found.needs(NEEDED)
        assert len(needs) == count
        assert sorted(map(str, (right for _, some in needs for right in some))) == sorted(
            map(str, NEEDED)
        )
        for group, api in (("authentication.k8s.io", apis[1]), ("authorization.k8s.io", apis[2])):
            (asked,) = (a for a, some in needs if any(right.group == group for right in some))
            assert asked is api


async def test_reviews_and_listing_go_to_their_own_clusters(tmp_path):
    (tmp_path / "rules.yaml").write_text("rules: []\n")
    async with AsyncExitStack() as stack:
        clusters, words = await kubeconfigs(stack, tmp_path, 3)
        flags = parse(
            f"--config={tmp_path / 'rules.yaml'}", "--prometheus-url=http://127.0.0.1:1",
            f"--cert-dir={tmp_path / 'certificates'}", "--bind-address=127.0.0.1",
            "--authentication-tolerate-lookup-failure", "--shutdown-delay-duration=0s", *words,
        )  # fmt: skip
        served = await stack.enter_async_context(served_adapter(flags))
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        url = f"https://127.0.0.1:{served.server.port}/metrics"
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, ssl=context, headers={"Authorization": "Bearer t"}) as response,
        ):
            assert response.status == 200
    lister, authentication, authorization = clusters
    assert "apis" in lister.asked
    assert not {"tokenreviews", "subjectaccessreviews"} & lister.asked
    assert "tokenreviews" in authentication.asked
    assert "extension-apiserver-authentication" in authentication.asked
    assert not {"apis", "subjectaccessreviews"} & authentication.asked
    assert "subjectaccessreviews" in authorization.asked
    assert not {"apis", "tokenreviews"} & authorization.asked
    assert authentication.rights <= {"tokenreviews"}
    assert authorization.rights <= {"subjectaccessreviews"}
    assert not {"tokenreviews", "subjectaccessreviews"} & lister.rights
