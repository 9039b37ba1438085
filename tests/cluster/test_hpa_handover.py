"""Two replicas of the HPA: the leader leaves politely, is killed, and is frozen in time."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.cluster.beside_cast import role
from tests.cluster.beside_stage import Dial
from tests.cluster.beside_watch import Watch
from tests.cluster.hpa_stack import LEASE_S, RETRY_S, HpaStack
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings, audited
from tests.cluster.test_hpa import CPU, hpa, replicas
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.tools.process import NotReadyError, wait_until

SLACK_S = 2.0  # two cores, a plane and two interpreters
WINDOW_S = 25.0  # longer than any hand-over here
BUSY, IDLE = 2.0, 0.2  # of three pods' worth: six pods, one pod


def test_whatever_ends_a_leader_the_next_one_acts_and_nothing_is_written_twice(
    private_plane: Callable[[PlaneSettings], Plane], tmp_path: Path
) -> None:
    audit = audited("deployments/scale.apps", verbs=("update",))
    plane = private_plane(PlaneSettings(nodes=1, audit=(audit,)))
    window = f"--horizontal-pod-autoscaler-downscale-stabilization={WINDOW_S:g}s"
    with (
        plane.namespace() as namespace,
        Watch(plane, f"/api/v1/namespaces/{namespace}/pods") as pods,
        Dial.raised(plane, namespace, tmp_path, pods) as stage,
        HpaStack(plane, tmp_path, window, replicas=2) as stack,
    ):
        held = role(namespace, "held", ("external-average",), "none")
        plane.apply(
            deployment("web", namespace), horizontal_pod_autoscaler("web", namespace, CPU, least=2)
        )
        plane.apply(*held.objects, held.hpa)
        size = 2
        idle_since: list[float] = []
        wait_for_size(plane, stack, namespace, size, 20)
        for how in ("SIGTERM", "SIGKILL", "SIGSTOP"):
            old = int(stack.leader()[-1])
            new = 1 - old
            stage.level = BUSY
            wait_until(
                "six are wanted",
                lambda n=old: proposed(stack, namespace, n) == [6],  # type: ignore[misc]
                20,
            )
            stage.level = IDLE
            idle_since.append(time.time())
            wait_until(
                "one is enough",
                lambda n=old: proposed(stack, namespace, n) == [1],  # type: ignore[misc]
                20,
            )
            began = time.monotonic()
            match how:
                case "SIGTERM":
                    stack.replicas[old].ask_to_stop()
                    limit_s = 2.0
                case "SIGKILL":
                    stack.replicas[old].kill()
                    limit_s = LEASE_S + RETRY_S * 1.2 + SLACK_S
                case "SIGSTOP":
                    stack.replicas[old].pause()
                    limit_s = LEASE_S + RETRY_S * 1.2 + SLACK_S
            wait_until(
                f"the other leads after {how}",
                lambda n=new: stack.leader() == stack.pod(n),  # type: ignore[misc]
                limit_s + 5,
                tuple(stack.replicas[new : new + 1]),
            )
            took = time.monotonic() - began
            print(f"{how}: another leads after {took:.1f} s (limit {limit_s:.1f} s)")
            assert took <= limit_s, stack.tails()
            size += 1
            path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/web"
            plane.admin.patch(path, {"spec": {"minReplicas": size}})
            wait_for_size(plane, stack, namespace, size, 20)
            wait_for_explanation(stack, namespace, new)
            kept = replicas(plane, namespace, "held")
            age_s = time.time() - idle_since[-1]
            print(f"{how}: {kept} pods held {age_s:.1f} s after the load went")
            assert kept == 6 or age_s >= WINDOW_S
            if how == "SIGSTOP":
                stack.replicas[old].resume()
                wait_until(
                    "the thawed one says that it does not lead",
                    lambda n=old: not_leader(stack, namespace, n),  # type: ignore[misc]
                    20,
                )
            else:
                stack.replicas[old].stop(grace_s=10.0)
                stack.replicas[old].start()
                stack.wait_serving(old)
            assert stack.leader() == stack.pod(new)
            labelled = plane.admin.get(
                "/api/v1/namespaces/podscale/pods?labelSelector=leader.podscale.io%2Fhpa%3Dtrue"
            )["items"]
            assert [pod["metadata"]["name"] for pod in labelled] == [stack.pod(new)]
        assert hpa(plane, namespace)["status"]["desiredReplicas"] == size
        wait_until(
            "the window closes in the end",
            lambda: replicas(plane, namespace, "held") == 1,
            WINDOW_S + 10,
        )
    done = [entry for entry in plane.audit() if entry["responseStatus"]["code"] == 200]
    assert [size for name, size, _ in map(rescale, done) if name == "web"] == [2, 3, 4, 5]
    falls = [at for name, size, at in map(rescale, done) if name == "held" and size == 1]
    assert falls
    for at in falls:
        # One sync period and a second: the last pass that wanted six may lie before the change.
        assert at >= max(each for each in idle_since if each < at) + WINDOW_S - 2.0


def rescale(entry: Mapping[str, Any]) -> tuple[str, int, float]:
    """Return the target of a scale PUT, its size, and when it came."""
    at = datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
    return entry["objectRef"]["name"], entry["requestObject"]["spec"].get("replicas", 0), at


def proposed(stack: HpaStack, namespace: str, number: int) -> object:
    """Return what the metrics of ``held`` asked for last."""
    found = stack.decision(namespace, "held", number)
    is_told = isinstance(found, dict) and found.get("kind") == "ScalingDecision"
    return found["status"].get("proposals") if is_told else None


def wait_for_size(
    plane: Plane, stack: HpaStack, namespace: str, size: int, deadline_s: float
) -> None:
    try:
        wait_until(f"{size} replicas", lambda: replicas(plane, namespace) == size, deadline_s)
    except NotReadyError as late:
        raise AssertionError(f"{late}\n{stack.tails()}") from None


def wait_for_explanation(stack: HpaStack, namespace: str, number: int) -> None:
    seen: list[object] = []

    def is_there() -> bool:
        seen[:] = [stack.decision(namespace, "web", number)]
        return isinstance(seen[0], dict) and seen[0].get("kind") == "ScalingDecision"

    try:
        wait_until("explanations are there again", is_there, 20)
    except NotReadyError as late:
        raise AssertionError(f"{late}\n{seen}\n{stack.tails()}") from None


def not_leader(stack: HpaStack, namespace: str, number: int) -> bool:
    found = stack.decision(namespace, "web", number)
    causes = found.get("details", {}).get("causes", ()) if isinstance(found, dict) else ()
    return any(cause["reason"] == "NotLeader" for cause in causes)
