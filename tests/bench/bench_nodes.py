"""Rounds over 5,000 nodes and 100,000 pods, beside one numpy pass over the same arrays.

The API server's side of writes is a function that takes them; usage has ±5 % of independent
noise in each round.
"""

import asyncio
import gc
import os
import sys
import time
from statistics import median

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry

from podscale.core.metrics import NodeUsageColumns
from podscale.kube.client.api import Response
from podscale.kube.client.wire import decode
from podscale.kube.columns.pods import PodStore
from podscale.kube.events.recorder import Recorder
from podscale.kube.informer.store import Store
from podscale.kube.objects.cluster import Node
from podscale.kube.objects.pod import Pod
from podscale.nodes.rounds import NodeRounds
from podscale.nodes.selfmetrics import NodesMetrics
from podscale.nodes.settings import NodesChoice
from tests.bench.figures import Figures, resident_mb
from tests.kit.stores import fill

NODES, PODS_A_NODE = 5_000, 20
WARM, ROUNDS, PERIOD_S = 62, 40, 15.0
GI = 2**30
NOW = 1_795_000_000.0


class Fleet:
    """Usage, and the API server's side of a resize."""

    user_agent = "bench"

    def __init__(self) -> None:
        self.noise = np.random.default_rng(27)
        self.steady = self.noise.uniform(4.0, 30.0, NODES)
        self.now = NOW
        self.writes = 0
        self.nodes: Store[Node] = Store()
        self.pods = PodStore()
        self._bodies: dict[str, dict] = {}

    def fill(self) -> None:
        sizes = {"cpu": "32", "memory": "128Gi"}
        nodes = [
            {"metadata": {"name": f"node-{n}", "resourceVersion": "2"},
             "status": {"capacity": sizes, "allocatable": {"cpu": "31500m", "memory": "125Gi"}}}
            for n in range(NODES)
        ]  # fmt: skip
        _feed(self.nodes, nodes, Node)
        pods = []
        for n in range(NODES):
            for p in range(PODS_A_NODE):
                cpu = f"{200 + 50 * ((n + p) % 37)}m"
                pods.append(
                    _pod(f"web-{n}-{p}", f"node-{n}", cpu, "app", {"app": f"web-{n % 400}"})
                )
            ballast = _pod(f"ballast-{n}", f"node-{n}", "1m", "pause",
                           {"app.kubernetes.io/component": "ballast"})  # fmt: skip
            ballast["metadata"]["namespace"] = "podscale-ballast"
            self._bodies[f"ballast-{n}"] = ballast
            pods.append(ballast)
        _feed(self.pods, pods, Pod)

    async def request(self, method: str, path: str, **given: object) -> Response:
        if method != "PATCH":
            return Response(200, {}, b"{}")
        self.writes += 1
        body = self._bodies[path.split("/")[-2]]
        body["metadata"]["resourceVersion"] = str(10 + self.writes)
        requests = msgspec.json.decode(given["body"])[2]["value"]
        body["spec"]["containers"][0]["resources"]["requests"] = requests
        return Response(200, {}, msgspec.json.encode(body))

    def stream(self, *_: object, **__: object) -> object:
        raise NotImplementedError

    async def answer(self, questions: object) -> list[NodeUsageColumns]:
        cores = self.steady * self.noise.uniform(0.95, 1.05, NODES)
        memory = np.full(NODES, 20.0 * GI) * self.noise.uniform(0.95, 1.05, NODES)
        return [NodeUsageColumns(cores, memory, np.full(NODES, self.now), self.now)]


def _pod(name: str, node: str, cpu: str, container: str, labels: dict[str, str]) -> dict:
    return {
        "metadata": {"name": name, "namespace": "shop", "labels": labels, "uid": name,
                     "resourceVersion": "2"},
        "spec": {"nodeName": node, "containers": [
            {"name": container, "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}]},
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
    }  # fmt: skip


def _feed(store: object, objects: list[dict], kind: type) -> None:
    items = [decode(msgspec.json.encode(each), kind) for each in objects]
    fill(store, items, "2")


def _pass_s(rounds: NodeRounds, pods: PodStore) -> float:
    """Return the CPU of one sum over each array that a round reads."""
    placed = pods.placed()
    arrays = [rounds.windows._values, rounds.windows._times, placed.node, placed.template,
              placed.phase, placed.started]  # fmt: skip
    begun = time.process_time()
    for _ in range(10):
        for each in arrays:
            each.sum()
    return (time.process_time() - begun) / 10


async def _run(figures: Figures) -> None:
    fleet = Fleet()
    fleet.fill()
    gc.collect()
    gc.freeze()
    before = resident_mb(os.getpid())
    rounds = NodeRounds(
        fleet, fleet, fleet.nodes, fleet.pods, NodesChoice(mode="ballast"),  # type: ignore[arg-type]
        NodesMetrics(CollectorRegistry()), Recorder(fleet, "bench"),  # type: ignore[arg-type]
        is_leader=lambda: True, wall=lambda: fleet.now,
    )  # fmt: skip
    _feed_again(rounds, fleet)
    figures.note(f"{NODES:,} nodes, {len(fleet.pods):,} pods, of them {NODES:,} ballast")
    spent: list[float] = []
    passes: list[float] = []
    written: list[int] = []
    for number in range(WARM + ROUNDS):
        fleet.now = NOW + number * PERIOD_S
        before_writes = fleet.writes
        begun = time.process_time()
        await rounds.once()
        took = time.process_time() - begun
        if number == 0:
            figures.note(f"first round: {took:.2f} s of CPU, {fleet.writes:,} nodes written")
        if number >= WARM:
            spent.append(took)
            written.append(fleet.writes - before_writes)
            passes.append(_pass_s(rounds, fleet.pods))
    figures.note(
        f"a round {1000 * median(spent):.1f} ms of CPU, a pass {1000 * median(passes):.2f} ms"
    )
    ratio = median(a / b for a, b in zip(spent, passes, strict=True))
    figures.at_most("CPU of a round, in passes of numpy over the same arrays", ratio, 30.0)
    share = 100 * np.array(written) / NODES
    figures.at_most("nodes written in a round of the steady state, in percent",
                    share.max(), 5.0, f"(mean {share.mean():.2f})")  # fmt: skip
    figures.at_most("memory beside the stores, MB", resident_mb(os.getpid()) - before, 500.0)


def _feed_again(rounds: NodeRounds, fleet: Fleet) -> None:
    # The table of nodes lives on changes: it was made after the store was filled.
    for node in list(fleet.nodes.values()):
        version = str(int(node.metadata.resource_version) + 1)
        newer = msgspec.structs.replace(node.metadata, resource_version=version)
        fleet.nodes.accept(msgspec.structs.replace(node, metadata=newer))


def main() -> int:
    figures = Figures("nodes")
    asyncio.run(_run(figures))
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
