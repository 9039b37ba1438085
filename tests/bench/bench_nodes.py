"""Rounds over 5,000 nodes and 100,000 pods, beside one numpy pass over the same arrays; calls of
the extender, beside calls of the same server that answer with all nodes unread; 1,000 pending
pods explained, beside kube-scheduler's own filters over the same pods and nodes.

The API server's side of writes is a function that takes them; usage has ±5 % of independent
noise in each round.
"""

import asyncio
import gc
import http.client
import os
import ssl
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import TypeVar

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry

from podscale.core.metrics import NodeUsageColumns
from podscale.kube.client.api import Response
from podscale.kube.client.wire import PartialObjectMetadata, decode
from podscale.kube.columns.pods import PodStore
from podscale.kube.events import Recorder
from podscale.kube.informer.store import Store
from podscale.kube.objects.cluster import Node
from podscale.kube.objects.pod import Pod
from podscale.nodes.apis import BODY_LIMIT, NodeApis
from podscale.nodes.cluster.pod_sums import LiveRequests
from podscale.nodes.explain import explain
from podscale.nodes.flags import NodesChoice
from podscale.nodes.rounds import NodeRounds
from podscale.nodes.scheduling.cluster_view import ClusterView
from podscale.nodes.scheduling.objects import ScheduledPod
from podscale.nodes.selfmetrics import NodesMetrics
from podscale.serving.apis.api import ApiRequest, ApiResponse, Route
from tests.bench.figures import Figures, resident_mb
from tests.cluster.scheduler_executed import execute, program
from tests.kit.stores import fill
from tests.tools.programs import release
from tests.unit.serving.kit import Pki, ScriptedApi, flags_for, serving

NODES, PODS_A_NODE = 5_000, 20
WARM, ROUNDS, PERIOD_S = 62, 40, 15.0
TURNS, CALLS = 9, 50
CANDIDATES = 500  # that kube-scheduler finds before it asks an extender, of so many nodes
PENDING = 1_000
GI = 2**30
NOW = 1_795_000_000.0

T = TypeVar("T")


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
        _feed(self.nodes, fleet_nodes(), Node)
        pods = []
        for n in range(NODES):
            pods += fleet_pods(n)
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
        patch = msgspec.json.decode(given["body"])
        body = self._bodies[path.removesuffix("/resize").rpartition("/")[2]]
        body["metadata"]["resourceVersion"] = str(10 + self.writes)
        if path.endswith("/resize"):
            body["spec"]["containers"][0]["resources"]["requests"] = patch[2]["value"]
        else:  # to be made anew, which no DaemonSet does here
            body["metadata"]["labels"]["controller-revision-hash"] = patch[1]["value"]
        return Response(200, {}, msgspec.json.encode(body))

    def stream(self, *_: object, **__: object) -> object:
        raise NotImplementedError

    async def answer(self, questions: object) -> list[NodeUsageColumns]:
        cores = self.steady * self.noise.uniform(0.95, 1.05, NODES)
        memory = np.full(NODES, 20.0 * GI) * self.noise.uniform(0.95, 1.05, NODES)
        return [NodeUsageColumns(cores, memory, np.full(NODES, self.now), self.now)]


def fleet_nodes() -> list[dict]:
    sizes = {"cpu": "32", "memory": "128Gi"}
    return [
        {"metadata": {"name": f"node-{n}", "resourceVersion": "2"},
         "status": {"capacity": sizes, "allocatable": {"cpu": "31500m", "memory": "125Gi"}}}
        for n in range(NODES)
    ]  # fmt: skip


def fleet_pods(n: int) -> list[dict]:
    """Return the pods of one node, without ballast."""
    return [
        _pod(f"web-{n}-{p}", f"node-{n}", f"{200 + 50 * ((n + p) % 37)}m", "app",
             {"app": f"web-{n % 400}"})
        for p in range(PODS_A_NODE)
    ]  # fmt: skip


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


class Unread(msgspec.Struct, rename="pascal"):
    """What the extender is sent, not looked at."""

    node_names: msgspec.Raw


class Everything(msgspec.Struct, rename="pascal"):
    """The answer that admits to all nodes."""

    node_names: msgspec.Raw
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


_UNREAD = msgspec.json.Decoder(Unread)


def unread(request: ApiRequest) -> ApiResponse:
    """Answer with the names as they came."""
    return ApiResponse(value=Everything(_UNREAD.decode(request.body).node_names))


class Scheduler:
    """Calls over one TLS connection, in a thread whose CPU is not counted."""

    def __init__(self, port: int, tls: ssl.SSLContext, names: list[str]) -> None:
        self._connection = http.client.HTTPSConnection("localhost", port, context=tls)
        pod = _pod("asked", "", "1500m", "app", {"app": "asked"})
        body = {"Pod": pod, "Nodes": None, "NodeNames": names}
        self._body = msgspec.json.encode(body)

    def call(self, path: str) -> int:
        """Return how many nodes are left."""
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", path, self._body, headers)
        answer = self._connection.getresponse()
        read = answer.read()
        assert answer.status == 200, read
        return len(msgspec.json.decode(read)["NodeNames"])

    def calls(self, path: str) -> None:
        for _ in range(CALLS):
            self.call(path)


async def _extender(figures: Figures, directory: Path) -> None:
    fleet = Fleet()
    live = LiveRequests(fleet.pods, "podscale-ballast")
    fleet.fill()
    gc.collect()
    gc.freeze()
    rounds = NodeRounds(
        fleet, fleet, fleet.nodes, fleet.pods, NodesChoice(mode="extender"),  # type: ignore[arg-type]
        NodesMetrics(CollectorRegistry()), Recorder(fleet, "bench"),  # type: ignore[arg-type]
        is_leader=lambda: True, wall=lambda: fleet.now,
    )  # fmt: skip
    _feed_again(rounds, fleet)
    await rounds.once()
    apis = NodeApis(rounds, fleet, live, stale_s=600.0, wall=lambda: fleet.now)  # type: ignore[arg-type]
    beside = Route("/unread", unread, ("POST",), body_limit=BODY_LIMIT)
    pki, api = Pki(), ScriptedApi()
    api.allowed = lambda _: True
    flags = flags_for(directory, pki)
    async with serving(flags, api, routes=[*apis.routes(), beside]) as server:
        tls = pki.client(pki.user("system:kube-scheduler"))
        names = [f"node-{n}" for n in range(NODES)]
        some = fleet.noise.choice(names, CANDIDATES, replace=False).tolist()
        for asked in (some, names):
            scheduler = await asyncio.to_thread(Scheduler, server.port, tls, asked)
            left = await asyncio.to_thread(scheduler.call, "/scheduler/filter")
            figures.note(f"a filter call leaves {left:,} of {len(asked):,} nodes")
            ratio = await _in_unread_calls(figures, scheduler)
            if asked is some:
                figures.note(f"in calls that answer with all of these unread: {ratio:.2f}")
    figures.at_most("CPU of a filter call, in calls that answer with all nodes unread",
                    ratio, 6.0)  # fmt: skip


async def _in_unread_calls(figures: Figures, scheduler: Scheduler) -> float:
    """Return the CPU of a filter call, in that of calls that look at nothing."""
    ratios, took = [], {"/scheduler/filter": 0.0, "/unread": 0.0}
    for _ in range(TURNS):
        spent = {}
        for path in took:
            begun = time.thread_time()
            await asyncio.to_thread(scheduler.calls, path)
            spent[path] = (time.thread_time() - begun) / CALLS
            took[path] += spent[path] / TURNS
        ratios.append(spent["/scheduler/filter"] / spent["/unread"])
    told = ", ".join(f"{path} {1000 * each:.2f} ms" for path, each in took.items())
    figures.note(f"CPU of a call: {told}")
    return median(ratios)


def _explain(figures: Figures) -> None:
    nodes = [_labelled(node, n) for n, node in enumerate(fleet_nodes())]
    placed = [pod for n in range(NODES) for pod in fleet_pods(n)]
    pending = [_pending(n) for n in range(PENDING)]
    asked = {"nodes": nodes, "pods": placed, "claims": [], "volumes": [], "classes": [],
             "namespaces": [{"metadata": {"name": "shop"}}]}  # fmt: skip
    (told,) = execute(program(release()), [asked | {"pending": pending}])
    assert "failed" not in told, told
    cluster, pods = _read(asked), [_as(ScheduledPod, each) for each in pending]
    gc.collect()
    gc.freeze()
    begun = time.process_time()
    reasons = Counter(explain(pod, cluster, NOW).reason for pod in pods)
    spent = time.process_time() - begun
    figures.note(f"{PENDING:,} pods explained: {spent:.1f} s of CPU, {dict(reasons)}; the filters: "
                 f"{told['cpu_s']:.1f} s")  # fmt: skip
    figures.at_most("CPU of explaining pending pods, in kube-scheduler's filters over the same",
                    spent / told["cpu_s"], 5.0)  # fmt: skip


def _labelled(node: dict, n: int) -> dict:
    labels = {"kubernetes.io/hostname": node["metadata"]["name"], "zone": f"zone-{n % 3}",
              "pool": "gpu" if n % 10 == 0 else "general"}  # fmt: skip
    taints = [{"key": "dedicated", "effect": "NoSchedule"}] if n % 20 == 1 else []
    sizes = {**node["status"]["allocatable"], "pods": "110"}
    return {"metadata": node["metadata"] | {"labels": labels}, "spec": {"taints": taints},
            "status": {"capacity": sizes, "allocatable": sizes}}  # fmt: skip


def _pending(n: int) -> dict:
    """Return a pod that is too large for what is free, in six of ten cases with more to it."""
    app = {"app": f"web-{n % 400}"}
    pod = _pod(f"pending-{n}", "", f"{19 + n % 8}", "app", app)
    pod["status"] = {"phase": "Pending"}
    selector = {"labelSelector": {"matchLabels": app}}
    match n % 10:
        case 0 | 1:
            pod["spec"]["nodeSelector"] = {"pool": "gpu"}
        case 2 | 3:
            pod["spec"]["topologySpreadConstraints"] = [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
                | selector
            ]
        case 4:
            pod["spec"]["affinity"] = {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    selector | {"topologyKey": "kubernetes.io/hostname"}
                ]
            }}  # fmt: skip
        case 5:
            pod["spec"]["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    return pod


def _read(asked: dict) -> ClusterView:
    return ClusterView(
        nodes=tuple(_as(Node, each) for each in asked["nodes"]),
        pods=tuple(_as(ScheduledPod, each) for each in asked["pods"]),
        namespaces=tuple(_as(PartialObjectMetadata, each) for each in asked["namespaces"]),
    )


def _as(kind: type[T], found: dict) -> T:
    return decode(msgspec.json.encode(found), kind)


def _feed_again(rounds: NodeRounds, fleet: Fleet) -> None:
    # The table of nodes lives on changes: it was made after the store was filled.
    for node in list(fleet.nodes.values()):
        version = str(int(node.metadata.resource_version) + 1)
        newer = msgspec.structs.replace(node.metadata, resource_version=version)
        fleet.nodes.accept(msgspec.structs.replace(node, metadata=newer))


def main() -> int:
    figures = Figures("nodes")
    asyncio.run(_run(figures))
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_extender(figures, Path(directory)))
    _explain(figures)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
