"""The HPA part's own loop and the replay of what it measured come to the same sizes.

The loop runs in virtual time over a scripted API; pods and their measurements are made here and
not by ``hpa.simulate``. What is replayed is what was recorded: values of pods, added up.
"""

import asyncio
import math
import os

import numpy as np
import pytest

from hpa.decide.api.reading import read, to_v2
from hpa.decide.settings import Settings
from hpa.simulate.workload import LoadHistory, Plant
from podscale.core.metrics import PodMetric, Question
from podscale.core.times.rfc3339 import rfc3339
from podscale.kube.leadership.lease import Term
from tests.kit.traces import crane
from tests.unit.hpa.simulate.loads import simulated
from tests.unit.hpa.world import NS, Cluster, deployment_object, hpa_object, pod_object

HOURS = 2 if os.environ.get("PODSCALE_SHORT") else 24
TARGET, PEAK_PODS = 50.0, 20
READY_AFTER_S, AGE_S, PERIOD_S = 50.0, 15.0, 15.0
METRIC = {
    "type": "Pods",
    "pods": {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "50"}},
}


class Fleet:
    """Deployments under recorded loads, whose pods come up and are measured."""

    def __init__(self, cluster: Cluster, loads: dict[str, np.ndarray]) -> None:
        self.cluster, self.loads = cluster, loads
        self.began = cluster.wall()
        self.pods = {name: [(0, self.began - 9e3)] for name in loads}  # number, created
        self.gone: dict[str, list[tuple[float, float]]] = {name: [] for name in loads}
        self.count = dict.fromkeys(loads, 1)
        self.recorded: dict[str, dict[float, int]] = {name: {} for name in loads}
        cluster.provider.usage = self.measured
        cluster.provider.pods = self.asked

    def name_of(self, question: Question) -> str:
        assert isinstance(question, PodMetric)
        return question.selector.partition("=")[2]

    def asked(self, question: Question) -> list[str]:
        name = self.name_of(question)
        return [f"{name}-{number}" for number, _ in sorted(self.pods[name])]

    def serving(self, name: str, at: float) -> int:
        present = sum(created + READY_AFTER_S <= at for _, created in self.pods[name])
        return present + sum(c + READY_AFTER_S <= at < gone for c, gone in self.gone[name])

    def measured(self, question: Question, pod: str) -> int | None:
        name, at = self.name_of(question), self.cluster.wall() - AGE_S
        own = sorted(self.pods[name])
        ready = [f"{name}-{n}" for n, created in own if created + READY_AFTER_S <= at]
        if pod not in ready or at < self.began:
            return None
        row = min(int((at - self.began) / 60.0), len(self.loads[name]) - 1)
        each, more = divmod(round(self.loads[name][row] * 1000), self.serving(name, at))
        value = each + (ready.index(pod) < more)
        seen = self.recorded[name]
        if pod == ready[0]:  # what all of them served then: the value of one, times the pods
            seen[at] = round(self.loads[name][row] * 1000)
        return value

    async def live(self) -> None:
        """Do what Deployments and kubelets do, once a second."""
        before = self.began
        while True:
            now, changed = self.cluster.wall(), False
            for name, own in self.pods.items():
                wanted = self.cluster.world.workloads[NS, name]["spec"]["replicas"]
                while len(own) < wanted:
                    own.append((self.count[name], now))
                    self.count[name] += 1
                    changed = True
                while len(own) > wanted:
                    own.sort(key=lambda pod: (pod[1] + READY_AFTER_S > now, pod))
                    _, created = own.pop()
                    self.gone[name] = [*self.gone[name][-20:], (created, now)]
                    changed = True
                changed |= any(before < c + READY_AFTER_S <= now for _, c in own)
            if changed:
                self.show(now)
            before = now
            await asyncio.sleep(1.0)

    def show(self, now: float) -> None:
        for name, own in self.pods.items():
            target = self.cluster.world.workloads[NS, name]
            if target["status"]["replicas"] != len(own):
                target["status"]["replicas"] = len(own)
                target["metadata"]["resourceVersion"] = self.cluster.world.next_version()
        self.cluster.sync()
        self.cluster.put_pods(*(self.pod(name, *pod, now)
                                for name, own in self.pods.items() for pod in own))  # fmt: skip

    def pod(self, name: str, number: int, created: float, now: float) -> dict[str, object]:
        made = pod_object(name, number)
        ready_at = created + READY_AFTER_S
        is_ready = ready_at <= now
        made["metadata"]["resourceVersion"] = "2" if is_ready else "1"
        made["status"]["phase"] = "Running" if is_ready else "Pending"
        made["status"]["startTime"] = rfc3339(created)
        made["status"]["conditions"] = [{
            "type": "Ready", "status": "True" if is_ready else "False",
            "lastTransitionTime": rfc3339(ready_at if is_ready else created),
        }]  # fmt: skip
        return made


@pytest.mark.looptime
@pytest.mark.timeout(900)
async def test_replay_of_a_day_decides_as_the_loop_did() -> None:
    loads = {}
    for name, recorded in crane().items():
        values = recorded[: HOURS * 60]
        loads[f"crane{name}"] = values / values.max() * PEAK_PODS * TARGET
    cluster = Cluster(settings=Settings(sync_period_s=PERIOD_S))
    cluster.put(*(hpa_object(name, METRIC, most=50) for name in loads),
                *(deployment_object(name, 1) for name in loads))  # fmt: skip
    fleet = Fleet(cluster, loads)
    fleet.show(fleet.began)
    sizes: dict[str, list[int]] = {name: [] for name in loads}
    living = asyncio.ensure_future(fleet.live())
    leading = asyncio.ensure_future(cluster.controller.run(Term(None)))
    await asyncio.sleep(PERIOD_S / 2)  # between two passes
    for _ in range(round(HOURS * 3600 / PERIOD_S)):
        for name, found in sizes.items():
            found.append(cluster.world.workloads[NS, name]["spec"]["replicas"])
        await asyncio.sleep(PERIOD_S)
    for task in (living, leading):
        task.cancel()
    await asyncio.wait({living, leading})
    plant = Plant(ready_after_s=(READY_AFTER_S,), metric_age_s=AGE_S)
    for name, live in sizes.items():
        times = np.array(sorted(fleet.recorded[name]))
        values = np.array([fleet.recorded[name][at] / 1000.0 for at in times])
        history = LoadHistory(times, {"load": values}, np.zeros(len(times), np.bool_))
        spec = read(to_v2({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
                           **hpa_object(name, METRIC, most=50)}))  # fmt: skip
        first_pass = round((times[0] + AGE_S - fleet.began) / PERIOD_S)
        # The first sample is decided on one age later, as it was live.
        run = simulated(
            spec, history, plant, Settings(sync_period_s=PERIOD_S), live[first_pass - 1]
        )
        offset = math.floor(AGE_S / PERIOD_S)
        replayed = run.replicas[offset:].tolist()
        pairs = list(zip(live[first_pass:], replayed, strict=False))
        equal = sum(one == other for one, other in pairs) / len(pairs)
        apart = [(row, one, other) for row, (one, other) in enumerate(pairs) if one != other]
        print(f"{name}: {equal:.2%} of {len(pairs)} passes, {max(live)} pods at most, {apart[:6]}")
        assert max(live) > 5
        assert not apart, apart[:20]  # in virtual time nothing is left to chance
