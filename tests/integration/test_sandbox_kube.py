"""podscale.kube and the sandbox meet: what one sends, the other understands."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from adapter.metric_rules.watched import WatchedMetricRules
from adapter.rules.ruleset import RuleSet
from adapter.sources.sources_file import NamedSources, SourceAccess
from podscale.core.selectors import selector
from podscale.kube.client.api import Api
from podscale.kube.client.connect import ApiServerTarget, connect
from podscale.kube.client.resource import PODS
from podscale.kube.client.wire import PartialObjectMetadata
from podscale.kube.columns.metadata import MetadataStore
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.informer.list_watch import WatchSource, WatchTiming
from podscale.kube.informer.reflector import Reflector
from podscale.kube.leadership.lease import Elector, Term
from podscale.kube.objects.pod import Pod
from tests.kit.apiserver.faults import Fault
from tests.kit.apiserver.server import FaultySandbox

CRDS = Path(__file__).parent.parent.parent / "config/crds/metric-rules/metricrules.yaml"
QUICK = WatchTiming(page_size=7, backoff_s=0.02, backoff_max_s=0.1, poll_s=0.1, silence_s=5.0)


def pod(number: int, app: str = "web") -> dict[str, object]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"p{number:02}",
            "namespace": "default",
            "labels": {"app": app},
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


@pytest.fixture
async def server() -> AsyncIterator[FaultySandbox]:
    async with FaultySandbox(tls=True, bookmark_interval_s=0.2) as running:
        for number in range(20):
            running.objects.put(pod(number))
        yield running


@pytest.fixture
async def api(server: FaultySandbox, tmp_path) -> AsyncIterator[Api]:
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    async with connect(ApiServerTarget(kubeconfig=str(kubeconfig)), user_agent="test") as connected:
        yield connected


@asynccontextmanager
async def reflected(api: Api, source: WatchSource, store: object) -> AsyncIterator[None]:
    task = asyncio.create_task(Reflector(api, source, store).run())  # type: ignore[arg-type]
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not claim():  # noqa: ASYNC110 - claims are about anything
            await asyncio.sleep(0.01)


def web(store: PodStore) -> set[str]:
    return set(store.names("default", selector.parse("app=web")))


async def test_the_pod_store_follows_through_cuts_compactions_and_errors(api, server):
    store = PodStore()
    async with reflected(api, WatchSource(PODS, Pod, rhythm=QUICK), store):
        await until(store.is_current)
        assert len(web(store)) == 20
        assert server.counts["list", "pods"] == 3  # pages of seven
        server.objects.delete("pods", "default", "p00")
        await until(lambda: "p00" not in web(store))
        server.faults.cut_watches()
        server.objects.put(pod(50))
        await until(lambda: "p50" in web(store))
        fault = server.faults.add(Fault(kind="cut"))
        server.objects.put(pod(51))
        server.objects.delete("pods", "default", "p01")
        server.compact()
        await until(lambda: fault.hits > 1)
        server.faults.clear()
        await until(lambda: "p51" in web(store) and "p01" not in web(store))
        server.faults.add(Fault(kind="gone", count=1))
        server.faults.cut_watches()
        server.objects.put(pod(52))
        await until(lambda: "p52" in web(store))
        assert len(web(store)) == 21


async def test_metadata_is_watched_without_the_rest(api, server):
    store = MetadataStore()
    source = WatchSource(PODS, PartialObjectMetadata, metadata_only=True, rhythm=QUICK)
    async with reflected(api, source, store):
        await until(store.is_current)
        assert store.labels("default", "p03") == {"app": "web"}
        server.objects.put(pod(3, app="db"))
        await until(lambda: store.labels("default", "p03") == {"app": "db"})


async def test_discovery_maps_names_and_learns_new_resources(api, server):
    discovery = ApiDiscovery(api, min_gap_s=0.0)
    mapper = await discovery.refresh()
    assert mapper.resource_for("pod").plural == "pods"
    assert mapper.resource_for("deployments").group == "apps"
    assert mapper.resource_for("ingress").group == "networking.k8s.io"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    server.objects.put(
        {
            "kind": "CustomResourceDefinition",
            "apiVersion": "apiextensions.k8s.io/v1",
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
                "versions": [version],
            },
        }
    )
    found = await discovery.resource_for("thing")
    assert (found.group, found.plural, found.namespaced) == ("example.com", "things", True)


async def test_metric_rules_are_found_when_their_crds_come_later(api, server):
    taken: list[str] = []

    async def take(rules: RuleSet, namespace: str) -> None:
        taken.extend(rule.id for rule in rules.custom if namespace == "shop")

    discovery = ApiDiscovery(api, min_gap_s=0.0)
    await discovery.refresh()
    sources = NamedSources(access={"default": SourceAccess(("shop",))})
    watched = WatchedMetricRules(api, discovery, lambda: sources, take, look_s=0.05)
    task = asyncio.create_task(watched.run())
    await until(lambda: watched.absence is None)
    assert not watched.installed.is_set()
    for definition in yaml.safe_load_all(CRDS.read_text()):
        server.objects.put(definition)
    await until(watched.installed.is_set)
    server.objects.put(
        {
            "kind": "MetricRule",
            "apiVersion": "metrics.podscale.io/v1alpha1",
            "metadata": {"name": "depth", "namespace": "shop"},
            "spec": {
                "seriesQuery": "depth",
                "resources": {"overrides": {"pod": {"resource": "pod"}}},
                "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
            },
        }
    )
    await until(lambda: taken == ["MetricRule shop/depth"])
    task.cancel()
    await asyncio.wait({task})


async def test_one_of_two_electors_leads_and_the_other_follows_its_end(api, server):
    terms: list[str] = []
    ended = asyncio.Event()

    async def work(name: str, _: Term) -> None:
        terms.append(name)
        await ended.wait()

    def elector(name: str) -> asyncio.Task[None]:
        made = Elector(api, namespace="kube-system", name="podscale", identity=name)
        return asyncio.create_task(made.run(lambda term: work(name, term)))

    first = elector("a")
    await until(lambda: terms == ["a"])
    second = elector("b")
    await asyncio.sleep(0.2)
    assert terms == ["a"]
    lease = server.objects.get("leases", "kube-system", "podscale")
    assert lease["spec"]["holderIdentity"] == "a"
    first.cancel()
    await asyncio.wait({first})
    await until(lambda: terms == ["a", "b"])
    second.cancel()
    await asyncio.wait({second})
