"""Random small clusters with pods of three classes, each as two twins: with ballast and without.

Both twins are on one plane. The pods of a twin have a node selector for its nodes, so that the
scheduler weighs no others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

CPU_MILLI, MEMORY_MIB = 10_000, 65_536  # of each node, all of it allocatable
TWINS = WITH, WITHOUT = "with", "without"  # namespaces of their pods
CLASSES = {"": 0, "middle": 10, "high": 1000}  # no class is ballast's priority
GUARDED = {"budget": "spent"}
# Shares of capacity; between 0.4 and 0.45 it depends on the past whether ballast is held.
_USAGE = (0.2, 0.3, 0.37, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_MOST_PODS = 9  # before ballast and after it

Object = dict[str, Any]


@dataclass(frozen=True)
class DrawnPod:
    """A pod of one cluster; in the twins' namespaces it has the same name."""

    name: str
    cpu_milli: int
    memory_mib: int
    class_name: str
    node: int | None = None  # None: left to the scheduler
    is_guarded: bool = False  # by a PodDisruptionBudget that allows no disruption
    is_late: bool = False  # starts after ballast

    @property
    def amounts(self) -> tuple[int, int]:
        """Thousandths of a core and bytes."""
        return self.cpu_milli, self.memory_mib * 2**20


@dataclass(frozen=True, eq=False)
class DrawnCluster:
    name: str
    usage: Sequence[tuple[float, float]]  # of each node: shares of CPU and memory
    pods: Sequence[DrawnPod]  # in the order in which they start
    pending: Sequence[DrawnPod]  # come one after the other

    def node(self, twin: str, number: int) -> str:
        return f"{self.name}-{twin}-{number}"

    def nodes(self, twin: str) -> Iterator[Object]:
        """Return the nodes of a twin; ballast is on those with a host name only."""
        amounts = {"cpu": f"{CPU_MILLI}m", "memory": f"{MEMORY_MIB}Mi", "pods": "110"}
        for number in range(len(self.usage)):
            name = self.node(twin, number)
            labels = {"cluster": f"{self.name}-{twin}"}
            if twin == WITH:
                labels["kubernetes.io/hostname"] = name
            status = {"capacity": amounts, "allocatable": amounts}
            yield {"metadata": {"name": name, "labels": labels}, "status": status}

    def pod(self, twin: str, drawn: DrawnPod) -> Object:
        requests = {"cpu": f"{drawn.cpu_milli}m", "memory": f"{drawn.memory_mib}Mi"}
        container = {"name": "app", "image": "pretend", "resources": {"requests": requests}}
        spec: Object = {
            "nodeSelector": {"cluster": f"{self.name}-{twin}"},
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "priorityClassName": drawn.class_name,
        }
        if drawn.node is not None:
            spec["nodeName"] = self.node(twin, drawn.node)
        labels = GUARDED if drawn.is_guarded else {}
        return {"metadata": {"name": drawn.name, "namespace": twin, "labels": labels}, "spec": spec}


def cluster(seed: int) -> DrawnCluster:
    """Return the cluster of one seed."""
    random = Random(f"preemption {seed}")
    name = f"c{seed}"
    count = random.randint(2, 6)
    room = [[CPU_MILLI, MEMORY_MIB] for _ in range(count)]
    guarded = random.choice((0.0, 0.0, 0.3))
    late = random.choice((0.0, 0.5, 1.0))
    pods: list[DrawnPod] = []
    for _ in range(random.randint(2 * count, 6 * count)):
        node, cpu, memory = random.randrange(count), *_size(random)
        is_late = random.random() < late
        is_too_many = sum(pod.is_late == is_late for pod in pods) == _MOST_PODS
        if is_too_many or cpu > room[node][0] or memory > room[node][1]:
            continue
        room[node][0] -= cpu
        room[node][1] -= memory
        class_name = random.choice(tuple(CLASSES))
        pods.append(DrawnPod(
            f"{name}-{len(pods)}", cpu, memory, class_name, node, random.random() < guarded, is_late
        ))  # fmt: skip
    pending = [
        DrawnPod(f"{name}-pending-{number}", *_size(random), random.choice(("middle", "high")))
        for number in range(random.choice((1, 1, 2)))
    ]
    usage = [(random.choice(_USAGE), random.choice(_USAGE)) for _ in range(count)]
    return DrawnCluster(name, usage, pods, pending)


def _size(random: Random) -> tuple[int, int]:
    share = random.uniform(0.05, 0.6)
    # Most pods are of the nodes' shape, more or less.
    of_memory = min(0.6, max(0.05, share * random.choice((0.5, 1.0, 1.0, 1.5))))
    return round(share * CPU_MILLI), round(of_memory * MEMORY_MIB)
