"""The HPA part on the sandbox's API server, over real sockets, in its bad weather."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hpa.cluster.stores import HpaStores
from hpa.decide.settings import Settings
from hpa.flags import HpaChoice
from hpa.loop.state import Options
from hpa.part import HpaPart
from podscale.core.metrics import Answer, PodMetric, PodSamples, Question, Sample, Unavailable
from podscale.kube.client.connect import ApiServerTarget, connect
from podscale.kube.client.resource import PODS
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.informer.list_watch import WatchSource, WatchTiming
from podscale.kube.informer.reflector import Reflector
from podscale.kube.leadership.leading import LeaseChoice
from podscale.kube.leadership.lease import LeaseTimes
from podscale.kube.objects.pod import Pod
from podscale.sandbox.controllers.kubelet import NodeTiming
from podscale.sandbox.server import SandboxCluster
from tests.kit.apiserver.faults import Fault
from tests.kit.apiserver.server import FaultySandbox
from tests.unit.hpa.world import deployment_object, hpa_object, pod_object

NS = "default"
QUICK = WatchTiming(
    page_size=50, list_timeout_s=3.0, backoff_s=0.05, backoff_max_s=0.2, poll_s=0.2, silence_s=1.0
)
SEED = 20261121
_FREELY = [{"type": "Pods", "value": 100, "periodSeconds": 1}]
AT_ONCE = {
    "scaleUp": {"policies": _FREELY},
    "scaleDown": {"stabilizationWindowSeconds": 0, "policies": _FREELY},
}


class Load:
    """A ``MetricsProvider``: every pod bears ``ratio`` of its target, or nothing is known."""

    def __init__(self, pods: PodStore) -> None:
        self._pods = pods
        self.ratio = 1.0
        self.is_down = False

    async def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Answer for the pods we see."""
        return [self._one(each) for each in questions]

    def _one(self, question: Question) -> Answer:
        if self.is_down or not isinstance(question, PodMetric):
            return Unavailable("Unreachable", "connection refused")
        names = self._pods.select_all(question.namespace).names
        value = round(1000 * self.ratio)
        return PodSamples({name: Sample(value, None, 30.0) for name in names}, 0.0)


class Ground:
    """One HPA on one Deployment, and the part that scales it."""

    def __init__(self, server: FaultySandbox, load: Load) -> None:
        self.server, self.load = server, load

    def size(self) -> int:
        found = self.server.objects.get("deployments.apps", NS, "web")
        return int(found["spec"]["replicas"])

    async def until(self, claim: Callable[[], bool], deadline_s: float = 20.0) -> None:
        async with asyncio.timeout(deadline_s):
            while not claim():  # noqa: ASYNC110 - claims are about anything
                await asyncio.sleep(0.02)


@asynccontextmanager
async def ground(directory: Path) -> AsyncIterator[Ground]:
    server = FaultySandbox(bookmark_interval_s=0.2)
    async with SandboxCluster(server, timing=NodeTiming()):
        workload = deployment_object("web", 2, NS)
        template = {"metadata": {"labels": {"app": "web"}}, "spec": pod_object("web", 0)["spec"]}
        workload["spec"]["template"] = template
        workload |= {"kind": "Deployment", "apiVersion": "apps/v1"}
        scaler: dict[str, Any] = hpa_object("web", namespace=NS, most=8, behavior=AT_ONCE)
        scaler |= {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2"}
        server.objects.put(workload)
        server.objects.put(scaler)
        kubeconfig = server.kubeconfig(directory / "kubeconfig")
        async with connect(
            ApiServerTarget(kubeconfig=str(kubeconfig)), user_agent="hpa-test"
        ) as api:
            discovery, pods = ApiDiscovery(api), PodStore(keep_annotations=())
            load = Load(pods)
            chosen = HpaChoice(
                settings=Settings(sync_period_s=0.5),
                options=Options(answer_timeout_s=2.0),
                is_feed=False, namespaces=(), selector="",
                lease=LeaseChoice(NS, "hpa", "one", LeaseTimes(3.0, 2.0, 0.3)),
            )  # fmt: skip
            stores = HpaStores(chosen.namespaces, pods)
            part = HpaPart(api, chosen, discovery, load, stores, rhythm=QUICK)
            watched = Reflector(api, WatchSource(PODS, Pod, rhythm=QUICK), pods)
            tasks = [
                asyncio.create_task(watched.run()),
                asyncio.create_task(discovery.run()),
                asyncio.create_task(part.run()),
            ]
            try:
                yield Ground(server, load)
                assert not any(task.done() for task in tasks)
            finally:
                server.faults.clear()
                await part.stop()
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)


@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
async def test_under_load_no_weather_shrinks_and_in_the_calm_all_is_made_good(
    tmp_path: Path, seed: int
) -> None:
    draw = Random(seed)
    async with ground(tmp_path) as at:
        await at.until(lambda: at.server.counts[("update", "leases.coordination.k8s.io")] > 0)
        at.load.ratio = 1.4
        sizes = [at.size()]
        for _ in range(12):
            at.server.faults.clear()
            for _ in range(draw.randint(1, 3)):
                at.server.faults.add(_fault(draw))
            if draw.random() < 0.3:
                at.server.compact()
                at.server.cut_watches()
            at.load.is_down = draw.random() < 0.4
            for _ in range(5):
                await asyncio.sleep(0.1)
                sizes.append(at.size())
        assert sizes == sorted(sizes)
        assert max(sizes) <= 8
        at.server.faults.clear()
        at.load.is_down = False
        # A request that hangs is given up at its own deadline only.
        await at.until(lambda: at.size() == 8, deadline_s=60.0)
        print(f"seed {seed}: sizes {sorted(set(sizes))}, then 8")


async def test_while_a_watch_is_silent_nothing_shrinks(tmp_path: Path) -> None:
    async with ground(tmp_path) as at:
        at.load.ratio = 2.0
        await at.until(lambda: at.size() == 8)
        at.load.ratio = 1.0
        mute = at.server.faults.add(Fault(kind="mute", resource="pods", verbs=("watch",)))
        cut = at.server.faults.add(Fault(kind="status", resource="pods", verbs=("list",)))
        at.server.cut_watches()
        await asyncio.sleep(2.5)  # longer than a watch may be silent
        at.load.ratio = 0.2
        await asyncio.sleep(2.0)
        assert at.size() == 8
        at.server.faults.remove(mute)
        at.server.faults.remove(cut)
        await at.until(lambda: at.size() < 8)


def _fault(draw: Random) -> Fault:
    subject = draw.choice(
        (
            {"subresource": "scale"},
            {"subresource": "status", "verbs": ("patch",)},
            {"resource": "pods"},
            {"resource": "horizontalpodautoscalers.autoscaling", "verbs": ("list", "watch")},
            {"resource": "deployments.apps", "verbs": ("list", "watch")},
            {"resource": "configmaps"},
            {},
        )
    )
    kind = draw.choice(("latency", "status", "status", "conflict", "gone", "cut", "hang", "mute"))
    code = draw.choice((403, 422, 429, 500, 503))
    return Fault(
        kind=kind, code=code, seconds=0.3, user_agent="hpa-test", count=draw.choice((1, 5, -1)),
        **subject,
    )  # fmt: skip
