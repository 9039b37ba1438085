"""The HPA part over sockets: the sandbox's API server, its watches, its faults."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from hpa.cluster.stores import HpaStores
from hpa.flags import TABLE, choice
from hpa.loop.forecasts import ForecastGate
from hpa.part import HpaPart
from podscale.core.metrics import ExternalMetric
from podscale.kube.client.api import user_agent
from podscale.kube.client.connect import ApiServerTarget, connect
from podscale.kube.client.resource import PODS
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.informer.list_watch import WatchSource, WatchTiming
from podscale.kube.informer.reflector import Reflector
from podscale.kube.objects.pod import Pod
from podscale.serving.flags import parse
from tests.kit.apiserver.server import FaultySandbox
from tests.unit.hpa.world import Metrics, deployment_object, hpa_object, pod_object

NS = "shop"
# Watches fall silent soon, so that a test can wait for it.
QUICK = WatchTiming(silence_s=2.0, backoff_s=0.05, backoff_max_s=0.2, watch_timeout_s=30.0)
GADGETS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gadgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Gadget", "plural": "gadgets", "singular": "gadget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
            }
        ],
    },
}


class Running:
    """A part on a sandbox."""

    def __init__(self, server: FaultySandbox, part: HpaPart, metrics: Metrics) -> None:
        self.server, self.part, self.metrics = server, part, metrics

    def put(self, kind: str, content: dict[str, Any]) -> None:
        kinds = {"Deployment": "apps/v1", "HorizontalPodAutoscaler": "autoscaling/v2", "Pod": "v1"}
        made = {"apiVersion": kinds.get(kind, "example.com/v1"), "kind": kind, **content}
        made["metadata"] = {k: v for k, v in made["metadata"].items() if k != "resourceVersion"}
        self.server.objects.put(made)

    def web(self, size: int, **spec: Any) -> None:
        self.put("Deployment", deployment_object("web", size))
        for number in range(size):
            self.put("Pod", pod_object("web", number))
        self.put("HorizontalPodAutoscaler", hpa_object("web", **spec))

    def size(self, name: str = "web", resource: str = "deployments.apps") -> int:
        return int(self.server.objects.get(resource, NS, name)["spec"]["replicas"])

    def status(self, name: str = "web") -> Any:
        found = self.server.objects.get("horizontalpodautoscalers.autoscaling", NS, name)
        return found.get("status", {})


@contextlib.asynccontextmanager
async def running(
    server: FaultySandbox,
    *words: str,
    gate: ForecastGate | None = None,
    wall: Callable[[], float] = time.time,
) -> AsyncIterator[Running]:
    """Run one part with a sync period of a second; the metrics say 1 for every pod."""
    flags = parse(["--horizontal-pod-autoscaler-sync-period=1s", *words], TABLE)
    chosen = choice(flags, own_namespace="default")
    metrics = Metrics(lambda _question, _pod: 1000)
    metrics.now = wall
    async with connect(ApiServerTarget(server=server.url), user_agent=user_agent("hpa")) as api:
        discovery = ApiDiscovery(api)
        await discovery.refresh()
        pods = PodStore(keep_annotations=())
        metrics.pods = lambda _question: pods.select_all(NS).names
        stores = HpaStores(chosen.namespaces, pods)
        part = HpaPart(api, chosen, discovery, metrics, stores, gate=gate, rhythm=QUICK, wall=wall)
        watched = Reflector(api, WatchSource(PODS, Pod, rhythm=QUICK), pods)
        working = asyncio.create_task(part.run())
        feeding = asyncio.create_task(watched.run())
        try:
            yield Running(server, part, metrics)
        finally:
            await part.stop()
            working.cancel()
            feeding.cancel()
            await asyncio.wait({working, feeding})
    if not working.cancelled() and (error := working.exception()) is not None:
        raise error


@pytest.fixture
async def sandbox() -> AsyncIterator[FaultySandbox]:
    server = FaultySandbox(bookmark_interval_s=0.5)
    server.objects.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
    async with server:
        yield server


async def until(what: str, holds: Callable[[], object], deadline_s: float = 10.0) -> None:
    try:
        async with asyncio.timeout(deadline_s):
            while not holds():  # noqa: ASYNC110 - what is waited for is the state of a server
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {deadline_s:g} s: {what}") from None


async def test_a_created_object_is_scaled_and_its_status_and_events_are_written(
    sandbox: FaultySandbox,
) -> None:
    async with running(sandbox) as hpa:
        await until("leading", hpa.part.is_leader)
        hpa.metrics.usage = lambda _question, _pod: 3000
        hpa.web(2)
        await until("six replicas", lambda: hpa.size() == 6)
        await until("its status", lambda: hpa.status().get("desiredReplicas") == 6)
        assert hpa.status()["conditions"][0]["type"] == "AbleToScale"
        await until(
            "an event",
            lambda: [
                each
                for each in sandbox.objects.list("events", NS)
                if each["reason"] == "SuccessfulRescale"
            ],
        )


async def test_any_kind_with_a_scale_subresource_is_scaled_by_one_get_a_pass(
    sandbox: FaultySandbox,
) -> None:
    sandbox.objects.put(GADGETS)
    async with running(sandbox) as hpa:
        hpa.put(
            "Gadget",
            {
                "metadata": {"name": "g", "namespace": NS},
                "spec": {"replicas": 1},
                "status": {"replicas": 1, "selector": "app=g"},
            },
        )
        target = hpa_object("g", least=3)
        target["spec"]["scaleTargetRef"] = {
            "apiVersion": "example.com/v1", "kind": "Gadget", "name": "g",
        }  # fmt: skip
        hpa.put("HorizontalPodAutoscaler", target)
        await until("three", lambda: hpa.size("g", "gadgets.example.com") == 3)
        missing = hpa_object("lost")
        missing["spec"]["scaleTargetRef"] = {
            "apiVersion": "example.com/v1", "kind": "Nothing", "name": "n",
        }  # fmt: skip
        hpa.put("HorizontalPodAutoscaler", missing)
        await until("it is told", lambda: hpa.status("lost").get("conditions"))
        message = hpa.status("lost")["conditions"][0]["message"]
        assert 'no matches for kind "Nothing"' in message


async def test_a_thousand_objects_at_once_are_all_decided_within_a_period_and_a_half(
    sandbox: FaultySandbox,
) -> None:
    async with running(sandbox) as hpa:
        await until("leading", hpa.part.is_leader)
        await until("reconciling", lambda: hpa.part.metrics.counts.is_leader)
        began = time.monotonic()
        for number in range(1000):
            name = f"web{number}"
            hpa.put("Deployment", deployment_object(name, 1))
            hpa.put("HorizontalPodAutoscaler", hpa_object(name, least=2))
        made = time.monotonic()
        await until(
            "all are raised",
            lambda: all(hpa.size(f"web{number}") == 2 for number in range(0, 1000, 37)),
            60.0,
        )
        print(f"created in {made - began:.1f} s, raised {time.monotonic() - made:.1f} s later")
        await until("every one", lambda: len(hpa.part.controller.traces) == 1000, 30.0)


async def test_a_watch_that_breaks_or_is_too_old_is_healed_and_nothing_is_lost(
    sandbox: FaultySandbox,
) -> None:
    async with running(sandbox) as hpa:
        hpa.web(2)
        await until("a first decision", lambda: len(hpa.part.controller.traces))
        sandbox.cut_watches()
        sandbox.compact()
        hpa.put("HorizontalPodAutoscaler", hpa_object("web", least=4))
        await until("the change is seen", lambda: hpa.size() == 4)


async def test_an_api_server_that_goes_away_stops_nothing_for_good(
    sandbox: FaultySandbox,
) -> None:
    server = FaultySandbox(bookmark_interval_s=0.5)
    server.objects.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
    async with contextlib.AsyncExitStack() as stack:
        await server.__aenter__()
        hpa = await stack.enter_async_context(
            running(server, "--horizontal-pod-autoscaler-downscale-stabilization=0s")
        )
        hpa.web(4)
        await until("a first decision", lambda: len(hpa.part.controller.traces))
        await server.__aexit__(None, None, None)
        hpa.metrics.usage = lambda _question, _pod: 100
        await asyncio.sleep(3.0)
        assert hpa.size() == 4  # nothing could be written, and nothing may shrink
        await server.__aenter__()
        await until("it goes on", lambda: hpa.size() < 4, 40.0)
        await stack.aclose()
        await server.__aexit__(None, None, None)


async def test_external_metrics_are_asked_with_their_selector(sandbox: FaultySandbox) -> None:
    metric = {
        "type": "External",
        "external": {
            "metric": {"name": "queue", "selector": {"matchLabels": {"queue": "a"}}},
            "target": {"type": "AverageValue", "averageValue": "10"},
        },
    }
    async with running(sandbox) as hpa:
        hpa.put("Deployment", deployment_object("web", 1))
        hpa.put("HorizontalPodAutoscaler", hpa_object("web", metric))
        await until("asked", lambda: hpa.metrics.asked)
        assert hpa.metrics.asked[0] == [ExternalMetric(NS, "queue", "queue=a")]
