"""Ballast with the real scheduler: who is admitted, who is not, and how it is let go."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from podscale.core import quantity
from podscale.nodes.cluster.patches import TAINT_KEY
from tests.cluster.kubelet import kubelet
from tests.cluster.nodes_stack import BALLAST, BY_LOAD, ROOT, NodesStack
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.integration.exporter import Exporter
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import wait_until

CORES = 10.0
THETA = 0.8
# Usage and requests of each node, in cores. All are 10 cores large.
USAGE = {"node-0": 6.0, "node-1": 4.5, "node-2": 9.5, "node-3": 1.0}
REQUESTED = {"node-0": 2.0, "node-1": 6.0, "node-2": 2.0, "node-3": 3.0}
# R = U + A - θ·C - Σ, at most A - Σ; node-3 is used less than half of θ.
HELD = {"node-0": 6.0, "node-1": 0.5, "node-2": 8.0, "node-3": 0.0}
LET_GO = dict.fromkeys(USAGE, 0.0)
MEMORY = 8 * 2.0**30
SIZES = (0.5, 1.0, 2.0, 2.01, 3.5, 3.51, 4.0, 4.01, 6.0)
IS_SHORT = bool(os.environ.get("PODSCALE_SHORT"))
IMPATIENT = ("--patience=3s", "--interval=500ms")
# Of the watchdog that is there when all replicas are killed: as shipped in the long form.
WATCHDOG, PATIENCE_S, KILLED_S = (IMPATIENT, 3, 10.0) if IS_SHORT else ((), 300, 600.0)


@pytest.fixture
def stack(
    private_plane: Callable[[PlaneSettings], Plane],
    exporter: Exporter,
    prometheus: PrometheusServer,
    tmp_path: Path,
) -> Iterator[NodesStack]:
    plane = private_plane(PlaneSettings(nodes=4, node_cpu="10", node_memory="64Gi"))
    with NodesStack(plane, exporter, prometheus, tmp_path) as made, kubelet(plane, BALLAST):
        made.use({name: (cores, MEMORY) for name, cores in USAGE.items()})
        plane.apply(*(pod(f"filler-{name}", cpu, name) for name, cpu in REQUESTED.items()))
        made.wait_held(LET_GO)
        yield made


def pod(name: str, cores: float, node: str, scheduler: str = "") -> dict[str, Any]:
    resources = {"requests": {"cpu": f"{round(cores * 1000)}m", "memory": "16Mi"}}
    container = {"name": "app", "image": "pretend", "resources": resources}
    spec: dict[str, Any] = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    if scheduler:
        spec["schedulerName"] = scheduler
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def podscale(plane: Plane, *words: str) -> str:
    """Return what a command of an administrator prints."""
    done = subprocess.run(
        [sys.executable, "-m", "podscale", *words, f"--kubeconfig={plane.admin_kubeconfig}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_admitted(plane: Plane, name: str, cores: float, node: str, scheduler: str = "") -> bool:
    """Return whether a scheduler binds such a pod; it is gone afterwards."""
    path = f"/api/v1/namespaces/default/pods/{name}"
    verdict: list[bool] = []

    def is_decided() -> bool:
        found = plane.admin.get(path)
        conditions = {each["type"]: each for each in found["status"].get("conditions", ())}
        scheduled = conditions.get("PodScheduled")
        if scheduled is None:
            return False
        assert scheduled["status"] == "True" or scheduled["reason"] == "Unschedulable"
        verdict[:] = [scheduled["status"] == "True"]
        return True

    plane.apply(pod(name, cores, node, scheduler))
    wait_until(f"{name} is decided on", is_decided, 20.0)
    plane.admin.request("DELETE", path)
    wait_until(f"{name} is gone", lambda: plane.admin.request("GET", path).status == 404, 20.0)
    return verdict[0]


def as_the_predicate_says(plane: Plane, scheduler: str = "") -> None:
    """Probe every node with every size of pod."""
    probes = 0
    for node, usage in USAGE.items():
        for size in SIZES:
            by_load = usage + size <= THETA * CORES or not HELD[node]
            expected = by_load and REQUESTED[node] + size <= CORES
            name = f"probe-{node}-{round(size * 1000)}"
            before = names_of_ballast(plane, node)
            admitted = is_admitted(plane, name, size, node, scheduler)
            # While ballast is made anew, which a probe brings about, two pods hold it for a moment.
            is_settled = len(before) == 1 and names_of_ballast(plane, node) == before
            if expected and not admitted and not is_settled:
                wait_until("it is made anew", partial(is_alone, plane, node), 20.0)
                admitted = is_admitted(plane, name, size, node, scheduler)
            assert admitted == expected, (node, size)
            probes += 1
    print(f"{scheduler or 'ballast'}: {probes} of {probes} placements as the predicate says")


def test_pods_are_admitted_by_load_and_ballast_is_let_go_without_a_leader(
    stack: NodesStack,
) -> None:
    plane = stack.plane
    # As shipped nothing is written.
    shadow = stack.start()
    wait_until("the part runs", lambda: "leading" in shadow.tail(), 30.0, (shadow,))
    time.sleep(2.0)  # of rounds every half second
    assert stack.held() == LET_GO
    stack.stop(shadow)

    part = stack.start("--mode=ballast")
    stack.wait_held(HELD)
    as_the_predicate_says(plane)

    # Room that comes lets a waiting pod in: a resize makes the scheduler try again.
    plane.apply(pod("waiting", 3.0, "node-0"))
    time.sleep(1.0)
    assert "waiting" not in plane.ready_pods("default")
    said = podscale(plane, "explain", "pod/waiting", "--namespace=default")
    assert "1 × NodeResourcesFit (by podscale, for measured load alone): Insufficient cpu" in said
    assert " by ballast)" in said
    assert "The scheduler said: 0/4 nodes are available" in said
    # And so does the part say, to who may ask.
    path, reader = "/placement/default/waiting", plane.user("placement-reader")
    assert stack.ask(path, reader).status == 403
    plane.kubectl("create", "clusterrolebinding", reader.name,
                  "--clusterrole=podscale:placement-reader", f"--user={reader.name}")  # fmt: skip
    wait_until("it may ask", lambda: stack.ask(path, reader).status != 403, 30.0, (part,))
    told = json.loads(
        podscale(plane, "explain", "pod/waiting", "--namespace=default", "--output=json")
    )
    answer = stack.ask(path, reader).body
    for each in (answer, told):
        del each["autoscaler"]  # says for a while that the pod is young
    assert answer == told
    stack.use({"node-0": (4.5, MEMORY)})
    wait_until("it is bound", lambda: "waiting" in plane.ready_pods("default"), 20.0, (part,))

    # A cordoned node is let go at once.
    plane.kubectl("cordon", "node-2")
    wait_until("node-2 is let go", lambda: not stack.held()["node-2"], 20.0, (part,))
    plane.kubectl("uncordon", "node-2")
    wait_until("node-2 is held", lambda: stack.held()["node-2"] == 8.0, 20.0, (part,))

    # A leader that lives and may not resize: the watchdog, which may do nothing else, lets go.
    watchdog = stack.start_watchdog(*IMPATIENT)
    time.sleep(5.0)
    assert stack.held()["node-2"] == 8.0  # it lets go of nothing while rounds work
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{BALLAST}/rolebindings/podscale-nodes"
    binding = plane.admin.get(path)
    plane.admin.request("DELETE", path)
    stack.use({"node-2": (7.0, MEMORY)})  # what is let go of it is refused
    useless = time.monotonic()
    stack.wait_held(LET_GO)
    print(f"a leader that may not resize: {len(LET_GO)} nodes let go after "
          f"{time.monotonic() - useless:.1f} s with a patience of 3 s")  # fmt: skip
    assert part.is_running
    stack.use({"node-2": (9.5, MEMORY)})
    plane.apply({**binding, "metadata": {"name": "podscale-nodes", "namespace": BALLAST}})
    wait_until("node-2 is held", lambda: stack.held()["node-2"] == 8.0, 20.0, (part,))

    # And so it does when nobody leads: nothing before its patience ends, and then all of it.
    stack.stop(watchdog)
    watchdog = stack.start_watchdog(*WATCHDOG)
    part.kill()
    stack.stop(part)
    killed = time.monotonic()
    stack.wait_held(LET_GO, PATIENCE_S + 30.0)
    released_s = time.monotonic() - killed
    print(f"all replicas killed: {len(LET_GO)} nodes let go after {released_s:.1f} s "
          f"with a patience of {PATIENCE_S} s")  # fmt: skip
    assert released_s > PATIENCE_S - 2.0
    while time.monotonic() < killed + KILLED_S:
        assert stack.held() == LET_GO
        time.sleep(1.0)
    stack.stop(watchdog)
    assert watchdog.exit_code == 0

    # And `off` leaves nothing behind.
    podscale(plane, "nodes", "off")
    for path in (f"/api/v1/namespaces/{BALLAST}",
                 "/apis/scheduling.k8s.io/v1/priorityclasses/podscale-ballast"):  # fmt: skip
        assert plane.admin.request("GET", path).status == 404
    assert plane.pods(BALLAST) == []


def test_a_scheduler_with_the_extender_comes_to_the_same_placements(stack: NodesStack) -> None:
    plane = stack.plane
    part = stack.start("--mode=extender")
    wait_until("the part runs", lambda: "leading" in part.tail(), 30.0, (part,))
    stack.start_scheduler()
    # Without the right to ask, the extender is an error, and this one is ignorable.
    assert is_admitted(plane, "unasked", 6.0, "node-0", BY_LOAD)
    plane.kubectl(
        "create", "clusterrolebinding", BY_LOAD, "--clusterrole=podscale:scheduler-extender",
        "--user=system:kube-scheduler",
    )  # fmt: skip
    wait_until("it is asked", lambda: not is_admitted(plane, "asked", 6.0, "node-0", BY_LOAD), 60.0)
    as_the_predicate_says(plane, BY_LOAD)
    assert stack.held() == LET_GO  # nothing is written

    # Without a node selector the emptiest node is taken, and the full one is not.
    free = pod("free", 0.5, "", BY_LOAD)
    del free["spec"]["nodeSelector"]
    plane.apply(free)
    path = "/api/v1/namespaces/default/pods/free"
    wait_until("it is bound", lambda: "nodeName" in plane.admin.get(path)["spec"], 20.0, (part,))
    assert plane.admin.get(path)["spec"]["nodeName"] == "node-3"


def test_ballast_is_renewed_without_a_gap(stack: NodesStack) -> None:
    # node-3 has more room and is open: of the closed ones node-0 and node-2 have the most.
    plane = stack.plane
    part = stack.start("--mode=ballast")
    stack.wait_held(HELD)
    # Bound as soon as there is room for it, which there is by requests: 2 + 3 of 10.
    plane.apply(pod("waiting", 3.0, "node-0"))
    newer = pod("newer", 0.5, "node-1")
    newer["spec"]["nodeName"] = "node-1"
    plane.apply(newer)
    newest = started(plane, "newer")
    held: list[float] = []

    def is_renewed() -> bool:
        pods = ballast_of(plane, "node-0")
        held.append(sum(requested_cores(each) for each in pods))
        return are_renewed(pods, newest)

    wait_until("the ballast of node-0 is made anew", is_renewed, 60.0, (part,))
    assert min(held) > 5.9, held  # of 6: the younger needs some room to start
    assert "waiting" not in plane.ready_pods("default")
    stack.wait_held(HELD | {"node-1": 0.0})


def ballast_of(plane: Plane, node: str) -> list[dict[str, Any]]:
    return [each for each in plane.pods(BALLAST) if each["spec"].get("nodeName") == node]


def names_of_ballast(plane: Plane, node: str) -> list[str]:
    return sorted(each["metadata"]["name"] for each in ballast_of(plane, node))


def is_alone(plane: Plane, node: str) -> bool:
    return len(names_of_ballast(plane, node)) == 1


def are_renewed(ballast: list[dict[str, Any]], newest: str) -> bool:
    """Return whether one pod is left, which started after ``newest``."""
    starts = [each["status"].get("startTime", "") for each in ballast]
    return len(starts) == 1 and starts[0] > newest


def started(plane: Plane, name: str) -> str:
    """Return when a pod started, as soon as it has."""
    wait_until(f"{name} runs", lambda: name in plane.ready_pods("default"), 20.0)
    status = plane.admin.get(f"/api/v1/namespaces/default/pods/{name}")["status"]
    return str(status["startTime"])


def requested_cores(pod: dict[str, Any]) -> float:
    cpu = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return quantity.from_wire(cpu).milli / 1000


def test_a_pod_of_a_higher_class_preempts_ballast_and_no_users_pod(stack: NodesStack) -> None:
    # Of equals the older stays: ballast is made anew where a user's pod is younger (decision 056).
    plane = stack.plane

    def classed(name: str, cores: float, node: str) -> None:
        made = pod(f"{name}-{node}", cores, node)
        made["spec"]["priorityClassName"] = name
        plane.apply(made)

    for name, value in (("middle", 10), ("high", 1000)):
        plane.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                     "metadata": {"name": name}, "value": value})  # fmt: skip
    for node in ("node-0", "node-2"):
        plane.admin.request("DELETE", f"/api/v1/namespaces/default/pods/filler-{node}")
    time.sleep(2.0)  # start times are whole seconds, and this one is to be after ballast's
    plane.apply(pod("filler-node-0", REQUESTED["node-0"], "node-0"))
    classed("middle", REQUESTED["node-2"], "node-2")
    newest = started(plane, "filler-node-0")
    assert not are_renewed(ballast_of(plane, "node-0"), newest)
    part = stack.start("--mode=ballast")
    wait_until("the ballast of node-0 is made anew",
               lambda: are_renewed(ballast_of(plane, "node-0"), newest), 60.0, (part,))  # fmt: skip
    stack.wait_held(HELD)
    # Without ballast both would be bound beside what is there.
    high = {"high-node-0", "high-node-2"}
    for node in ("node-0", "node-2"):
        classed("high", 2.01, node)
    wait_until("both are bound", lambda: high <= set(plane.ready_pods("default")), 30.0, (part,))
    left = set(plane.ready_pods("default")) - high
    assert left == {"filler-node-0", "filler-node-1", "middle-node-2", "filler-node-3"}


def test_full_nodes_are_tainted_until_they_are_well_below(stack: NodesStack) -> None:
    plane = stack.plane
    plane.kubectl("apply", "-k", str(ROOT / "config/rbac/nodes-taint"))
    part = stack.start("--mode=taint")
    stack.wait_tainted("node-2")  # 9.5 of 8
    assert not is_admitted(plane, "kept-out", 0.5, "node-2")
    assert is_admitted(plane, "let-in", 0.5, "node-1")
    stack.use({"node-0": (8.5, MEMORY), "node-2": (6.0, MEMORY)})
    stack.wait_tainted("node-0")
    # Nobody leads: the watchdog takes it away, if it is told to.
    part.kill()
    stack.stop(part)
    watchdog = stack.start_watchdog(*IMPATIENT, "--taints")
    stack.wait_tainted()
    stack.stop(watchdog)
    plane.kubectl("taint", "nodes", "node-1", f"{TAINT_KEY}=:NoSchedule")
    podscale(plane, "nodes", "off")
    assert stack.tainted() == []
