"""Rows of parts A and C that describe behaviour: A6, A8, A11, A12, C9b and C10.

Tests are named after their rows; ``test_adapter.py`` imports them.
"""

import asyncio
import re
import time
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from adapter import flags as adapter_flags
from adapter.apis.schemas import definitions
from adapter.discovery.relist import Relister, RelistOptions
from adapter.selfmetrics import AdapterMetrics
from podscale.core.metrics import Unavailable
from podscale.feed.feed import Feed
from podscale.feed.http.client import PrometheusClient
from podscale.feed.http.credentials import PrometheusCredentials
from podscale.feed.options import FeedOptions, PrometheusOptions
from podscale.feed.plan import Demand, KeyLabels, QueryPlan
from podscale.kube.client.errors import NoMatch
from podscale.kube.client.resource import Resource
from podscale.kube.discovery import Mapper
from podscale.serving import flag_table
from podscale.serving import flags as serving_flags
from podscale.serving.flags import FlagError
from tests.conformance import adapter_lists as lists
from tests.conformance.adapter_cases import numbered, rows, served_resources
from tests.conformance.adapter_pure import external_rules


def shaped(name, is_meant):
    """Parametrize ``row`` over the rows of a file whose columns have a shape."""
    return pytest.mark.parametrize(
        "row", [pytest.param(row, id=id_) for id_, row in numbered(name) if is_meant(row[1:])]
    )


def has(key):
    return lambda columns: isinstance(columns[0], dict) and key in columns[0]


def are_options(columns):
    return columns[-1] in ("ok", "error") and isinstance(columns[0], list)


def are_resources(columns):
    return has("gr")(columns) or (isinstance(columns[0], list) and not are_options(columns))


def parse(*words):
    return serving_flags.parse(words, adapter_flags.TABLE)


async def test_a6_1_a_new_list_is_announced_once():
    announced = []
    relister = Relister(
        lists.GivenSeries({"q": [("m", {"a": "b"})]}),
        external_rules("q"),
        RelistOptions(),
        renewed=lambda: announced.append(set(relister.external.sources)),
    )
    await relister.relist()
    assert announced == [{("", "m")}]


async def test_a6_2_a_list_is_kept_between_relists():
    lister = lists.GivenSeries({"q": [("m", {"a": "b"})]})
    relister = Relister(lister, external_rules("q"), RelistOptions())
    assert not relister.external.sources
    assert len(lister.asked) == 0
    await relister.relist()
    assert len(lister.asked) == 1
    assert relister.external.sources
    assert len(lister.asked) == 1


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://prometheus.example"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
"""


@pytest.fixture
def files(tmp_path):
    """Files with what the names of A8 say."""
    import trustme

    ca = trustme.CA()
    issued = ca.issue_cert("client.example")
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    (tmp_path / "malformed").write_text("][")
    ca.cert_pem.write_to_path(tmp_path / "ca")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert")
    issued.private_key_pem.write_to_path(tmp_path / "key")
    (tmp_path / "broken").write_text("no PEM")
    return tmp_path


@shaped("A8", has("kubeconfigPath"))
def test_a8_kubeconfig(row, files):
    _, given, outcome = row
    words = [f"--prometheus-auth-incluster={str(given['inCluster']).lower()}"]
    path = given["kubeconfigPath"]
    if path:
        name = "kubeconfig" if path == "valid" else "malformed"
        words.append(f"--prometheus-auth-config={files / name}")
    if outcome.startswith("error"):
        with pytest.raises(FlagError):
            adapter_flags.prometheus_options(parse(*words))
        return
    options = adapter_flags.prometheus_options(parse(*words))
    assert (options.token == "t") is bool(path)


@shaped("A8", has("ca"))
async def test_a8_ca(row, files):
    _, given, outcome = row
    words = []
    for flag, key in (("ca-file", "ca"), ("client-tls-cert-file", "cert"),
                      ("client-tls-key-file", "key")):  # fmt: skip
        if written := given[key]:
            name = key if written == "valid" else "broken"
            words.append(f"--prometheus-{flag}={files / name}")
    options = adapter_flags.prometheus_options(parse(*words))
    credentials = PrometheusCredentials(options)
    if outcome.startswith("error"):
        with pytest.raises((OSError, ValueError)):
            await credentials.refresh()
        return
    await credentials.refresh()
    assert (options.ca_file is not None) is ("RootCAs set" in outcome)
    assert (options.client_cert_file is not None) is ("client certificate set" in outcome)


@shaped("A8", lambda columns: isinstance(columns[0], list))
def test_a8_headers(row):
    _, given, expected = row
    made = dict(adapter_flags.headers(tuple(given)))
    # Several values of one header are sent joined, which means the same.
    assert made == {name: ", ".join(values) for name, values in expected.items()}


@shaped("A8", has("flag"))
def test_a8_defaults(row):
    _, given, expected = row
    assert f"default {parse().values[given['flag']]}" == expected


@shaped("A11", has("observe"))
def test_a11_freshness(row):
    registry = CollectorRegistry()
    metrics = AdapterMetrics(registry)
    for group, ages in row[1]["observe"].items():
        for age_s in ages:
            metrics.freshness.labels(group).observe(age_s)
    name = row[1]["metric"]
    for group, facts in row[1]["expect"].items():
        for fact, number in facts.items():
            kind, _, bound = fact.partition(" ")
            suffix = "bucket" if kind == "le" else kind
            labels = {row[1]["label"]: group} | ({"le": bound} if bound else {})
            assert registry.get_sample_value(f"{name}_{suffix}", labels) == number, fact
    (family,) = [f for f in registry.collect() if f.name == name]
    assert family.type == row[1]["type"]
    group = next(iter(row[1]["observe"]))
    bounds = [
        s.labels["le"] for s in family.samples if "le" in s.labels and s.labels["group"] == group
    ]
    assert [float(b) for b in bounds] == pytest.approx([float(b) for b in row[1]["buckets"]])


def test_a11_openapi_definitions_come_with_the_groups(sampled):
    document = sampled.ask("/openapi/v2").body
    kinds = {name.rpartition(".")[2] for name in document["definitions"]}
    assert {"MetricValue", "ExternalMetricValue"} <= kinds
    assert any("v1beta2.MetricValue" in name for name in document["definitions"])
    assert set(definitions("external.metrics.k8s.io", "v1beta1")) <= set(document["definitions"])


@shaped("A11", are_options)
def test_a11_options(row):
    _, words, outcome = row
    problems = flag_table.problems(parse(*words))
    assert bool(problems) is (outcome == "error"), problems


def test_a11_new_resources_are_known_after_the_mapper_is_made_anew():
    flunders = Resource("wardle.example.com", "v1alpha1", "flunders", "Flunder", True, "flunder")
    pods = [r for r in served_resources() if r.plural == "pods"]
    services = [r for r in served_resources() if r.plural == "services"]
    before, after = Mapper(pods), Mapper([*pods, *services, flunders])
    for name in ("services", "flunders"):
        with pytest.raises(NoMatch):
            before.resource_for(name)
        assert after.resource_for(name).plural == name
    assert before.resource_for("pods").kind == after.resource_for("pods").kind == "Pod"


@shaped("A11", are_resources)
def test_a11_normalisation(row):
    _, given, outcome = row
    mapper = Mapper(served_resources())
    written = [given["gr"]] if isinstance(given, dict) else given
    ((name, singular),) = {
        (found.group_resource, found.singular) for found in map(mapper.resource_for, written)
    }
    said = re.search(r"\(([a-z.]+)\).*\(([a-z]+)\)", outcome)
    if said:
        assert said.groups() == (name, singular)
    else:
        assert outcome == f"singular = {singular}"


def wanted(name):
    plan = QueryPlan("external", name, "s", KeyLabels(), lambda _matchers, _values: name)
    return Demand(plan)


@asynccontextmanager
async def blocked_prometheus():
    """A Prometheus that answers nobody until ``open`` is set."""
    gate = asyncio.Event()
    arrived = []

    async def handle(request):
        arrived.append(request.query["query"])
        await gate.wait()
        return web.json_response(
            {"status": "success", "data": {"resultType": "vector", "result": []}}
        )

    app = web.Application()
    app.router.add_get("/api/v1/query", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}", arrived, gate
    finally:
        gate.set()
        await runner.cleanup()


async def test_a12_no_more_than_the_limit_is_in_flight():
    (limit,) = [row[1] for row in rows("A12") if isinstance(row[1], int)]
    async with blocked_prometheus() as (url, arrived, gate):
        options = PrometheusOptions(url=url, connections=limit + 10)
        feed_options = FeedOptions(is_coalescing=False, queries_in_flight=limit)
        async with PrometheusClient(options) as client, Feed(client, feed_options) as feed:
            running = [asyncio.create_task(feed.read([wanted(f"q{i}")])) for i in range(limit)]
            while len(arrived) < limit:  # noqa: ASYNC110 - a count, not an event
                await asyncio.sleep(0.01)
            waiting = asyncio.create_task(feed.read([wanted("one too many")]))
            cancelled = asyncio.create_task(feed.read([wanted("cancelled")]))
            await asyncio.sleep(0.1)
            assert len(arrived) == limit
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            gate.set()
            outcomes = [await task for task in (*running, waiting)]
            assert len(arrived) == limit + 1
            assert not any(isinstance(one, Unavailable) for (one,) in outcomes)
            assert "cancelled" not in arrived


def test_c9b_a_query_teaches_discovery_nothing(served):
    path = "/apis/custom.metrics.k8s.io/v1beta2"

    def keep_a():
        return [r["name"] for r in served.ask(path).body["resources"] if "keep_a" in r["name"]]

    before = keep_a()
    assert served.ask(f"{path}/namespaces/default/deployments.apps/web/keep_a").status == 200
    served.run(served.served.adapter.relister.relist)
    assert keep_a() == before == ["deployments.apps/keep_a"]


def test_c10_1_series_are_asked_for_by_match_and_start(served):
    served.prometheus.requests.clear()
    served.prometheus.forms.clear()
    served.run(served.served.adapter.relister.relist)
    forms = served.prometheus.forms
    assert {request.path for request in served.prometheus.requests} == {"/api/v1/series"}
    assert {request.method for request in served.prometheus.requests} == {"GET"}
    queries = [form["match[]"] for form in forms]
    assert sorted(queries) == sorted({rule["seriesQuery"] for section in ("rules", "externalRules")
                                      for rule in served.config[section]})  # fmt: skip
    for form in forms:
        assert set(form) == {"match[]", "start"}
        assert abs(float(form["start"]) - (time.time() - 600)) < 10


def test_c10_2_an_instant_query_has_a_time_and_a_deadline(served):
    served.prometheus.requests.clear()
    served.prometheus.forms.clear()
    path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue_depth"
    assert served.ask(path).status == 200
    (request,), (form,) = served.prometheus.requests, served.prometheus.forms
    assert (request.method, request.path) == ("GET", "/api/v1/query")
    assert form["query"] == "sum(queue_depth{}) by (name)"
    assert abs(float(form["time"]) - time.time()) < 10
    assert form["timeout"] != ""  # upstream's is there and empty


async def test_c10_3_post_keeps_the_parameters_of_the_url():
    seen = []

    async def handle(request):
        seen.append(
            (request.method, request.path, dict(await request.post()), request.content_type)
        )
        return web.json_response({"status": "success", "data": []})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        url = f"http://{host}:{port}/prefix?dedup=true"
        for verb in ("POST", "GET"):
            flags = parse(f"--prometheus-url={url}", f"--prometheus-verb={verb}")
            async with PrometheusClient(adapter_flags.prometheus_options(flags)) as client:
                await client.series("up", 1.0)
    finally:
        await runner.cleanup()
    (post, get) = seen
    form = {"match[]": "up", "start": "1", "dedup": "true"}
    kind = "application/x-www-form-urlencoded"
    assert post == ("POST", "/prefix/api/v1/series", form, kind)
    assert get[:2] == ("GET", "/prefix/api/v1/series")


async def test_c10_4_headers_and_token_go_with_every_request(tmp_path):
    seen = []

    async def handle(request):
        seen.append(
            {name: request.headers.get(name) for name in ("X-Scope-OrgID", "Authorization")}
        )
        data = {"resultType": "vector", "result": []} if "query" in request.path else []
        return web.json_response({"status": "success", "data": data})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    (tmp_path / "token").write_text("secret\n")
    flags = parse(f"--prometheus-url=http://{host}:{port}", "--prometheus-header=X-Scope-OrgID=7",
                  f"--prometheus-token-file={tmp_path / 'token'}")  # fmt: skip
    try:
        async with PrometheusClient(adapter_flags.prometheus_options(flags)) as client:
            await client.series("up", 1.0)
            await client.query("up", 1.0)
    finally:
        await runner.cleanup()
    assert seen == [{"X-Scope-OrgID": "7", "Authorization": "Bearer secret"}] * 2
