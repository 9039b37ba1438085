"""Ten deployments of the sandbox under production's loads, side by side at twenty times the
speed, and the replay of what the HPA part was told of them.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from hpa.cluster.stores import HpaStores
from hpa.decide.api.reading import read, to_v2
from hpa.decide.settings import Settings
from hpa.flags import HpaChoice
from hpa.loop.state import Options
from hpa.part import HpaPart
from hpa.simulate.workload import Plant
from podscale.cli.demo.scenes import Clock
from podscale.core.metrics import Answer, PodMetric, PodSamples, Question, Sample
from podscale.core.selectors.selector import parse
from podscale.kube.client.connect import ApiServerTarget, connect
from podscale.kube.client.resource import PODS
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.informer.list_watch import WatchSource
from podscale.kube.informer.reflector import Reflector
from podscale.kube.leadership.leading import LeaseChoice
from podscale.kube.leadership.lease import LeaseTimes
from podscale.kube.objects.pod import Pod
from podscale.sandbox.controllers.kubelet import NodeTiming
from podscale.sandbox.load import Traffic
from podscale.sandbox.objects.objects import is_ready
from podscale.sandbox.server import SandboxCluster, SandboxServer
from tests.integration.crane import Floats
from tests.integration.test_replay_fidelity import METRIC, PEAK_PODS, PERIOD_S, TARGET
from tests.kit.replayed import LivePass, ReplayedPasses, share_alike
from tests.kit.traces import crane
from tests.unit.hpa.world import deployment_object, hpa_object, pod_object

SPEED, HOUR_S = 20.0, 3600.0
DURATION_S = HOUR_S / 12 if os.environ.get("PODSCALE_SHORT") else HOUR_S
NS = "default"
TIMING = NodeTiming()
# No multiple of the period: what lies on the edge of the window is in or out by a millisecond.
SETTINGS = Settings(sync_period_s=PERIOD_S, downscale_stabilization_s=307.5)
EQUAL = 0.99  # of the passes


class Measured:
    """A ``MetricsProvider`` of what the sandbox's pods do; ``passes`` are those that asked."""

    def __init__(self, cluster: SandboxCluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self.passes: dict[str, list[LivePass]] = defaultdict(list)

    async def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Return the requests a second of the pods that are ready now."""
        now = self._clock()
        self._cluster.load.advance(now)
        return [self._one(each, now) for each in questions]

    def _one(self, question: Question, now: float) -> Answer:
        assert isinstance(question, PodMetric)
        selector = parse(question.selector)
        used = {
            pod["metadata"]["name"]: round(usage.rps * 1000)
            for pod, usage in self._cluster.load.pods()
            if is_ready(pod) and selector.matches(pod["metadata"]["labels"])
        }
        name = question.selector.removeprefix("app=")
        size = self._cluster.server.objects.get("deployments.apps", NS, name)["spec"]["replicas"]
        total = sum(used.values()) / 1000
        self.passes[name].append(LivePass(now, total, size, len(used)))
        return PodSamples({pod: Sample(value, now, 30.0) for pod, value in used.items()}, now)


@pytest.mark.slow
@pytest.mark.timeout(DURATION_S / SPEED + 120)
async def test_replay_of_an_hour_on_the_sandbox_decides_as_the_part_did(tmp_path: Path) -> None:
    clock = Clock(SPEED)
    loads = dict(_busiest_hours())
    timing = NodeTiming(*(clock.real_s(each) for each in structs.astuple(TIMING)))
    cluster = SandboxCluster(SandboxServer(wall=clock), timing=timing)
    sizes = {name: round(load[0] / TARGET) + 1 for name, load in loads.items()}
    for name, size in sizes.items():
        cluster.server.objects.put(_deployment(name, size))
    async with cluster:
        async with asyncio.timeout(30.0):
            while sum(map(is_ready, cluster.server.objects.list("pods"))) < sum(sizes.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        began = clock()
        for name, load in loads.items():
            cluster.load.set(name, Traffic(NS, parse(f"app={name}"), _rate(load, began)))
            cluster.server.objects.put(_hpa(name))
        kubeconfig = cluster.server.kubeconfig(tmp_path / "kubeconfig")
        target = ApiServerTarget(kubeconfig=str(kubeconfig))
        async with connect(target, user_agent="hpa-test") as api:
            discovery, pods = ApiDiscovery(api), PodStore(keep_annotations=())
            measured = Measured(cluster, clock)
            chosen = HpaChoice(
                settings=structs.replace(SETTINGS, sync_period_s=clock.real_s(PERIOD_S)),
                options=Options(),
                is_feed=False, namespaces=(), selector="",
                lease=LeaseChoice(NS, "hpa", "one", LeaseTimes()), is_leader_elected=False,
            )  # fmt: skip
            part = HpaPart(api, chosen, discovery, measured, HpaStores((), pods), wall=clock)
            watched = Reflector(api, WatchSource(PODS, Pod), pods)
            with _running(watched.run(), discovery.run(), part.run()) as tasks:
                await asyncio.sleep(clock.real_s(DURATION_S))
                assert not any(task.done() for task in tasks)
                await part.stop()
    plant = Plant(ready_after_s=(TIMING.start_s + TIMING.ready_s,), metric_age_s=0.0)
    found = [ReplayedPasses(name, read(to_v2(_hpa(name))), measured.passes[name], plant, SETTINGS)
             for name in loads]  # fmt: skip
    share = share_alike("the sandbox", found)
    assert min(len(each.live) for each in found) >= 0.7 * DURATION_S / PERIOD_S
    assert sum(each.rescales for each in found) > len(found) / 2
    assert share >= EQUAL


def _busiest_hours() -> Iterator[tuple[str, Floats]]:
    """Yield each trace's hour that moves most, minute by minute."""
    minutes = int(HOUR_S / 60)
    for name, recorded in crane().items():
        values = recorded * (PEAK_PODS * TARGET / recorded.max())
        moves = np.convolve(np.abs(np.diff(values)), np.ones(minutes - 1), mode="valid")
        first = int(np.argmax(moves))
        yield f"crane{name}", values[first : first + minutes]


def _rate(load: Floats, began: float) -> Callable[[float], float]:
    return lambda now: float(load[min(int((now - began) / 60.0), len(load) - 1)])


def _deployment(name: str, size: int) -> dict[str, Any]:
    found = deployment_object(name, size, NS)
    template = {"metadata": {"labels": {"app": name}}, "spec": pod_object(name, 0, NS)["spec"]}
    found["spec"]["template"] = template
    return {**found, "kind": "Deployment", "apiVersion": "apps/v1"}


def _hpa(name: str) -> dict[str, Any]:
    found = hpa_object(name, METRIC, namespace=NS, most=50)
    return {**found, "kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2"}


@contextmanager
def _running(*works: Coroutine[Any, Any, None]) -> Iterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(each) for each in works]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
