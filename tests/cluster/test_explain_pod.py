"""The situations of a pod without a node on the real scheduler: its own sentence is ours."""

import os
from collections.abc import Callable
from typing import Any

from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.tools.process import NotReadyError, wait_until
from tests.unit.nodes.explain.situations import SITUATIONS, Situation
from tests.unit.nodes.explain.test_situations import explained

NOT_READY = "node.kubernetes.io/not-ready"
PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
# Everything, or every fourth of them.
CHOSEN = SITUATIONS[:: 4 if os.environ.get("PODSCALE_SHORT") else 1]


def test_the_scheduler_says_what_explain_says(
    private_plane: Callable[[PlaneSettings], Plane],
) -> None:
    plane = private_plane(PlaneSettings(nodes=0))
    for situation in CHOSEN:
        met(plane, situation)
    print(f"{len(CHOSEN)} of {len(SITUATIONS)} situations as the scheduler says")


def met(plane: Plane, situation: Situation) -> None:
    """Make the situation, compare, and leave nothing of it."""
    admin, asked = plane.admin, situation.pod["metadata"]["name"]
    for node in situation.nodes:
        admin.post(NODES, node)
    ready = f"{situation.name}: its nodes are ready"
    wait_until(ready, lambda: all(map(_is_ready, admin.get(NODES)["items"])), 30.0)
    for each in situation.others:
        admin.post(CLAIMS, each)
    for each in (*situation.pods, situation.pod):
        admin.post(PODS, each)
    expected = explained(situation).message
    said: list[str] = []

    def is_said() -> bool:
        conditions = admin.get(f"{PODS}/{asked}")["status"].get("conditions", ())
        for scheduled in (each for each in conditions if each["type"] == "PodScheduled"):
            said[:] = [scheduled.get("message", "")]
            # What follows is what the scheduler thinks of preemption.
            is_ours = bool(expected) and said[0].startswith(expected)
            return is_ours or (not expected and bool(scheduled["status"] == "True"))
        return False

    try:
        wait_until(f"{situation.name}: the scheduler says it", is_said, 20.0)
    except NotReadyError as late:
        raise AssertionError(f"{late}\nexpected: {expected or 'bound'}\nsaid: {said}") from None
    for path in (PODS, CLAIMS, NODES):
        for each in admin.get(path)["items"]:
            admin.request("DELETE", f"{path}/{each['metadata']['name']}")
    gone = f"{situation.name}: everything is gone"
    wait_until(gone, lambda: not any(admin.get(p)["items"] for p in (PODS, CLAIMS, NODES)), 30.0)


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
    taints = {each["key"] for each in node["spec"].get("taints", ())}
    return conditions.get("Ready") == "True" and NOT_READY not in taints
