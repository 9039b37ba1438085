"""Who is preempted with ballast and who without it, by the real scheduler in random clusters."""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest

import pytest

from podscale.core import quantity
from tests.cluster.kubelet import kubelet
from tests.cluster.nodes_stack import BALLAST, NodesStack
from tests.cluster.plane import Plane
from tests.cluster.preemption_draws import (
    CLASSES,
    CPU_MILLI,
    GUARDED,
    MEMORY_MIB,
    TWINS,
    WITH,
    WITHOUT,
    DrawnCluster,
    DrawnPod,
    Object,
    cluster,
)
from tests.cluster.settings import PlaneSettings
from tests.integration.exporter import Exporter, Target, gauge
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import NotReadyError, Program, wait_until

pytestmark = pytest.mark.timeout(7200)

CLUSTERS = 20 if os.environ.get("PODSCALE_SHORT") else 1_000
BATCH = 75  # clusters on one plane: about 600 nodes
SIZE = (CPU_MILLI, MEMORY_MIB * 2**20)
# The product's defaults.
THRESHOLDS, RELEASE, STEP, LEAST = (0.8, 0.85), 0.5, 0.02, (1, 2**20)
# To the part all clusters are one, and it makes the ballast of a few nodes a round anew.
QUICK = {"minReadySeconds": 1, "updateStrategy": {"rollingUpdate": {"maxSurge": "100%"}}}


@dataclass(frozen=True)
class Outcome:
    """What the scheduler did for a pending pod in one of the twins."""

    node: str  # its number; empty where the pod has none
    victims: frozenset[DrawnPod]  # users' pods

    @property
    def worst(self) -> tuple[int, int]:
        """What nodes are chosen by before anything else: budgets violated, the highest class."""
        classes = [CLASSES[pod.class_name] for pod in self.victims]
        return sum(pod.is_guarded for pod in self.victims), max(classes, default=-1)


@dataclass(frozen=True)
class Decided:
    """A pending pod, and what became of it in each twin."""

    cluster: DrawnCluster
    outcomes: Mapping[str, Outcome]
    took_ballast: bool  # its node had no room for it beside ballast
    story: str


class Batch:
    """Some clusters on a plane of their own."""

    def __init__(self, plane: Plane, clusters: Sequence[DrawnCluster]) -> None:
        self._plane, self.clusters = plane, clusters
        self.usage = {
            each.node(WITH, number): (shares[0] * SIZE[0], shares[1] * SIZE[1])
            for each in clusters
            for number, shares in enumerate(each.usage)
        }
        for name, value in CLASSES.items():
            if name:
                path = "/apis/scheduling.k8s.io/v1/priorityclasses"
                plane.admin.post(path, {"metadata": {"name": name}, "value": value})
        for twin in TWINS:
            plane.admin.post("/api/v1/namespaces", {"metadata": {"name": twin}})
            path = f"/apis/policy/v1/namespaces/{twin}/poddisruptionbudgets"
            spec = {"minAvailable": 10**6, "selector": {"matchLabels": GUARDED}}
            plane.admin.post(path, {"metadata": {"name": "spent"}, "spec": spec})
            self._create("/api/v1/nodes", (n for each in clusters for n in each.nodes(twin)))

    def start_pods(self, *, is_late: bool) -> None:
        """Create the pods of all clusters in their order, no two of a cluster in one second."""
        starting = [[(each, pod) for pod in each.pods if pod.is_late == is_late]
                    for each in self.clusters]  # fmt: skip
        for wave in zip_longest(*starting):
            self._create_pods([made for made in wave if made is not None])
            wait_until("all run", lambda: not self._waiting("status.phase%21%3DRunning"), 60.0)
            time.sleep(1.0)  # start times are whole seconds

    def _create_pods(self, pods: Iterable[tuple[DrawnCluster, DrawnPod]]) -> None:
        for twin in TWINS:
            path = f"/api/v1/namespaces/{twin}/pods"
            self._create(path, (each.pod(twin, pod) for each, pod in pods))

    def _create(self, path: str, objects: Iterable[Object]) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda made: self._plane.admin.post(path, made), objects))

    def wait_settled(self, part: Program) -> None:
        """Return when each node's ballast is what its load asks for, and what holds something
        younger than the users' pods of its class."""
        users = self._by_node(*TWINS)
        newest = max(pod["status"].get("startTime", "") for pods in users.values() for pod in pods
                     if not pod["spec"]["priority"])  # fmt: skip

        def unsettled() -> list[str]:
            ballast = self._by_node(BALLAST)
            return [f"{node}, used {usage}: {told(users[node] + ballast[node])}"
                    for node, usage in self.usage.items()
                    if not is_settled(usage, users[node], ballast[node], newest)]  # fmt: skip

        try:
            wait_until("ballast is settled", lambda: not unsettled(), 300.0, (part,))
        except NotReadyError as late:
            raise AssertionError("\n".join([str(late), *unsettled()])) from None

    def _by_node(self, *namespaces: str) -> Mapping[str, list[Object]]:
        found = defaultdict[str, list[Object]](list)
        for namespace in namespaces:
            for pod in self._plane.pods(namespace):
                found[pod["spec"].get("nodeName", "")].append(pod)
        return found

    def decide(self, pending: Mapping[DrawnCluster, DrawnPod]) -> Iterator[Decided]:
        """Let one pod come to each cluster, and return what the scheduler does for it."""
        before, nodes = self._by_node(WITH, BALLAST), {twin: self._nodes(twin) for twin in TWINS}
        self._create_pods(pending.items())
        wait_until("the scheduler has decided", self._is_decided, 120.0, self._plane.programs)
        after = {twin: self._nodes(twin) for twin in TWINS}
        for each, pod in pending.items():
            outcomes = {
                twin: Outcome(
                    after[twin][pod.name].rpartition("-")[2],
                    frozenset(other for other in (*each.pods, *each.pending)
                              if other.name in nodes[twin].keys() - after[twin].keys()),
                )
                for twin in TWINS
            }  # fmt: skip
            amounts = [requests(other) for other in before[after[WITH][pod.name]]]
            took = any(
                sum(amount[place] for amount in amounts) + pod.amounts[place] > SIZE[place]
                for place in (0, 1)
            )
            names = [each.node(WITH, number) for number in range(len(each.usage))]
            lines = [f"{name}, used {self.usage[name]}: {told(before[name])}" for name in names]
            yield Decided(each, outcomes, took, "\n  ".join([f"{pod}: {outcomes}", *lines]))

    def _nodes(self, twin: str) -> Mapping[str, str]:
        """Return the node of each pod by the pod's name."""
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
                for pod in self._plane.pods(twin)}  # fmt: skip

    def _is_decided(self) -> bool:
        waiting = [pod["status"] for pod in self._waiting("spec.nodeName%3D")]
        # A pod that waits for its victims to be gone has a nominated node.
        return all(status.get("conditions") and not status.get("nominatedNodeName")
                   for status in waiting)  # fmt: skip

    def _waiting(self, fields: str) -> list[Object]:
        paths = (f"/api/v1/namespaces/{twin}/pods?fieldSelector={fields}" for twin in TWINS)
        return [pod for path in paths for pod in self._plane.admin.get(path)["items"]]


def requests(pod: Object) -> tuple[int, int]:
    """Return thousandths of a core and bytes."""
    wanted = pod["spec"]["containers"][0]["resources"]["requests"]
    return quantity.parse(wanted["cpu"]).milli, int(quantity.parse(wanted["memory"]).value)


def is_settled(
    usage: Sequence[float], users: Sequence[Object], ballast: Sequence[Object], newest: str
) -> bool:
    """Return whether a node's ballast is R = clamp(U + A - θ·C - Σ, 0, A - Σ), and younger than
    ``newest`` if it holds something and can be made anew."""
    if len(ballast) != 1:
        return False
    amounts = requests(ballast[0])
    can_surge = True
    for place, held in enumerate(amounts):
        size, load = SIZE[place], THRESHOLDS[place] * SIZE[place]
        room = size - sum(requests(pod)[place] for pod in users)
        can_surge &= room >= 2 * LEAST[place]
        wanted = 0.0 if usage[place] < RELEASE * load else min(usage[place] - load + room, room)
        if abs(max(wanted, LEAST[place]) - held) >= STEP * size:
            return False
    is_younger = ballast[0]["status"].get("startTime", "") > newest
    return amounts == LEAST or not can_surge or is_younger


def told(pods: Iterable[Object]) -> str:
    """Return who is on a node, of which class, since when, and how large."""
    return "; ".join(
        f"{pod['metadata']['name']} ({pod['spec']['priority']}) since "
        f"{pod['status'].get('startTime')}: {requests(pod)}"
        for pod in pods
    )


def test_ballast_makes_no_pod_preempt_that_would_be_bound_without_it(
    tmp_path_factory: pytest.TempPathFactory, exporter: Exporter, prometheus: PrometheusServer
) -> None:
    count, differing = Counter[str](), Counter[str]()
    caused, worse = list[str](), list[str]()

    def note(decided: Decided) -> None:
        ours, theirs = (decided.outcomes[twin] for twin in TWINS)
        assert bool(ours.node) == bool(theirs.node), decided.story
        count["pods"] += 1
        count["in ballast's place"] += decided.took_ballast
        count["preempt without ballast"] += bool(theirs.victims)
        if ours.victims and not theirs.victims:
            caused.append(decided.story)
        elif ours.victims != theirs.victims:
            differing[f"{len(ours.victims) - len(theirs.victims):+d} victims"] += 1
            if ours.worst != theirs.worst:
                worse.append(decided.story)

    start = int(os.environ.get("PODSCALE_SEED", "0"))
    for first in range(start, start + CLUSTERS, BATCH):
        clusters = [cluster(seed) for seed in range(first, min(first + BATCH, start + CLUSTERS))]
        with Plane(tmp_path_factory.mktemp("batch"), PlaneSettings(nodes=0)) as plane:
            stack = NodesStack(plane, exporter, prometheus, plane.directory)
            run(Batch(plane, clusters), stack, note)
        print(f"clusters {start} to {clusters[-1].name}: {dict(count)}; preempt only because of "
              f"ballast: {len(caused)}; preempt others: {dict(differing)}", flush=True)  # fmt: skip
    assert not caused, "\n".join(caused)
    assert not worse, "\n".join(worse)
    assert count["in ballast's place"] > count["pods"] / 4
    assert count["preempt without ballast"] > count["pods"] / 20


def run(batch: Batch, stack: NodesStack, note: Callable[[Decided], None]) -> None:
    """Fill the clusters of a batch, and let their pending pods come one after the other."""
    samples = [
        gauge(metric, amount, node=node)
        for node, (cpu_milli, memory) in batch.usage.items()
        for metric, amount in (("node_cpu", cpu_milli / 1000), ("node_memory", memory))
    ]
    stack.exporter.replace([("nodes", Target({}, samples))])
    batch.start_pods(is_late=False)
    with stack, kubelet(stack.plane, BALLAST):
        daemonsets = f"/apis/apps/v1/namespaces/{BALLAST}/daemonsets"
        stack.plane.admin.patch(f"{daemonsets}/podscale-ballast", {"spec": QUICK})
        stack.plane.admin.delete(f"{daemonsets}/podscale-ballast-planned")  # twins have none
        part = stack.start("--mode=ballast", "--nodes-interval=200ms")
        batch.wait_settled(part)
        time.sleep(1.0)  # start times are whole seconds
        batch.start_pods(is_late=True)
        coming = {each: list(each.pending) for each in batch.clusters}
        while coming:
            batch.wait_settled(part)
            turn = {each: pods.pop(0) for each, pods in coming.items()}
            alike = set[DrawnCluster]()
            for decided in batch.decide(turn):
                note(decided)
                if decided.outcomes[WITH] == decided.outcomes[WITHOUT]:
                    alike.add(decided.cluster)
            # Twins that differ have nothing to say about each other any more.
            coming = {each: pods for each, pods in coming.items() if pods and each in alike}
