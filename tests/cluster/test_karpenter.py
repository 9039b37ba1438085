"""A real node autoscaler beside ballast: it adds a node where load leaves no room, and takes
nodes away that hold nothing but ballast."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.karpenter import Karpenter
from tests.cluster.kubelet import kubelet
from tests.cluster.nodes_stack import BALLAST, NodesStack
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.cluster.workloads import deployment
from tests.integration.exporter import Exporter
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import wait_until

pytestmark = [
    pytest.mark.timeout(900),
    # Its short form is test_node_autoscaler.py, which decides by the scheduler's packages.
    pytest.mark.skipif(
        bool(os.environ.get("PODSCALE_SHORT")),
        reason="left to make test-full: Karpenter is built for this test alone",
    ),
]

MEMORY = 8 * 2.0**30
HOT, COOL = 7.0, 1.0  # of 10 cores; ballast holds a node from 4 on, and pods up to 8
# Karpenter looks every 10 s, waits 5 s as the NodePool says, and looks again after 15 s.
CONSOLIDATES_S = 5.0 + 10.0 + 15.0
LOOKS_AGAIN_S = 300.0  # where it has seen nothing change
# It looks at the newest pod of each DaemonSet once a minute.
DAEMONS_S = 60.0


@pytest.fixture
def stack(
    private_plane: Callable[[PlaneSettings], Plane],
    exporter: Exporter,
    prometheus: PrometheusServer,
    tmp_path: Path,
) -> Iterator[NodesStack]:
    plane = private_plane(PlaneSettings(nodes=0))
    with NodesStack(plane, exporter, prometheus, tmp_path) as made, kubelet(plane, BALLAST):
        yield made


@pytest.fixture
def karpenter(stack: NodesStack, tmp_path: Path) -> Iterator[Karpenter]:
    with Karpenter(stack.plane, tmp_path) as made:
        yield made


def run(plane: Plane, name: str, cores: int) -> None:
    """Apply a Deployment with one pod of so many cores."""
    requests = {"cpu": str(cores), "memory": "16Mi"}
    plane.apply(deployment(name, "default", requests=requests))


def keep(plane: Plane, name: str) -> None:
    """Forbid Karpenter to move a Deployment's pod."""
    plane.kubectl("annotate", "pods", f"--selector=app={name}", "karpenter.sh/do-not-disrupt=true")


def end(plane: Plane, name: str) -> None:
    """Delete a Deployment and wait until its pod is gone."""
    plane.kubectl("delete", "deployment", name)
    wait_until(f"{name} is gone", lambda: not plane.pods("default", {"app": name}), 30.0)


def placed(plane: Plane, name: str, deadline_s: float = 60.0) -> str:
    """Return the node of the Deployment's pod, once it runs."""
    found: list[str] = []

    def runs() -> bool:  # by one list: a pod may be moved between two
        found[:] = (pod["spec"]["nodeName"] for pod in plane.pods("default", {"app": name})
                    if pod["status"].get("phase") == "Running"
                    and "deletionTimestamp" not in pod["metadata"])  # fmt: skip
        return len(found) == 1

    wait_until(f"{name} runs", runs, deadline_s)
    return found[0]


def wait_held(stack: NodesStack, **wanted: float) -> None:
    """Return when the ballast of these nodes requests so many cores."""

    def is_held() -> bool:
        return wanted.items() <= stack.held().items()

    wait_until(f"ballast is {wanted}", is_held, 40.0, stack.running)


def test_a_node_comes_for_load_and_goes_when_only_ballast_is_left(
    stack: NodesStack, karpenter: Karpenter
) -> None:
    plane = stack.plane
    run(plane, "base", 2)
    hot = placed(plane, "base")
    assert karpenter.nodes() == [hot]
    stack.use({hot: (HOT, MEMORY)})

    # Nothing is held yet: a pod that fits by requests lands on the node that is hot.
    run(plane, "unheld", 3)
    assert placed(plane, "unheld") == hot
    assert karpenter.nodes() == [hot]
    end(plane, "unheld")

    # 7 + 9.9 - 0.8 · 10 - 2: what is left is what usage leaves, one core.
    part = stack.start("--mode=ballast")
    wait_held(stack, **{hot: 6.9})
    # Nor does what the newest ballast has grown to count on a node to come: no instance type
    # has 4 + 6.9 cores.
    time.sleep(DAEMONS_S + 5.0)
    begun = time.monotonic()
    run(plane, "held", 4)
    cool = placed(plane, "held")
    assert cool != hot
    assert sorted(karpenter.nodes()) == sorted((hot, cool))
    print(f"a pod of 4 cores that usage leaves no room for ran on a node of its own after "
          f"{time.monotonic() - begun:.1f} s")  # fmt: skip

    # A node whose pods have ended is empty, whatever its ballast holds for its load.
    stack.use({cool: (HOT, MEMORY)})
    wait_held(stack, **{cool: 4.9})
    end(plane, "held")
    wait_held(stack, **{cool: 8.9})
    begun = time.monotonic()
    assert karpenter.wait_nodes(1, 120.0) == [hot]
    print(f"a node that held 8.9 cores of ballast and nothing else went after "
          f"{time.monotonic() - begun:.1f} s")  # fmt: skip

    # Nothing is moved to where usage leaves no room for it.
    run(plane, "held", 4)
    cool = placed(plane, "held")
    karpenter.nodes()
    stack.use({cool: (HOT, MEMORY)})
    wait_held(stack, **{hot: 6.9, cool: 4.9})
    time.sleep(CONSOLIDATES_S + 10.0)
    assert sorted(karpenter.nodes()) == sorted((hot, cool))
    assert (placed(plane, "base"), placed(plane, "held")) == (hot, cool)

    # A third node, the newest, which is hot and stays so.
    run(plane, "third", 2)
    newest = placed(plane, "third")
    assert sorted(karpenter.nodes()) == sorted((hot, cool, newest))
    stack.use({newest: (HOT, MEMORY)})
    wait_held(stack, **{newest: 6.9})
    keep(plane, "third")
    keep(plane, "held")
    time.sleep(DAEMONS_S + 5.0)

    # Once usage leaves room on another node, both are on that one, and the first goes with its
    # ballast; what the newest has grown to is not held back there either. To Karpenter a resize
    # is no change worth looking at again: within five minutes, or when any pod ends.
    stack.use({hot: (COOL, MEMORY), cool: (COOL, MEMORY)})
    wait_held(stack, **{hot: 0.0, cool: 0.0, newest: 6.9})
    begun = time.monotonic()
    run(plane, "passing", 1)
    placed(plane, "passing")
    end(plane, "passing")
    left = karpenter.wait_nodes(2, LOOKS_AGAIN_S + CONSOLIDATES_S + 10.0)
    print(f"consolidated onto one node {time.monotonic() - begun:.1f} s after ballast fell")
    assert sorted(left) == sorted((cool, newest))
    assert {placed(plane, "base"), placed(plane, "held")} == {cool}
    assert part.is_running
