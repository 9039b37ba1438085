"""A stand-in for the kubelet's side of in-place resize: it takes a resize, or says why not.

kwok makes pods run and leaves their resources alone. What becomes of a resize is written on
the pod's label ``kubelet``: ``accepts``, ``fits`` (as its node has room, by CPU), or the state
that stays.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from podscale.core import quantity
from tests.cluster.plane import Plane

_LOOK_S = 0.1
# State: condition and reason, as the kubelet of Kubernetes 1.36 writes them.
STATES: Mapping[str, tuple[str, str]] = {
    "deferred": ("PodResizePending", "Deferred"),
    "infeasible": ("PodResizePending", "Infeasible"),
    "progress": ("PodResizeInProgress", ""),
    "error": ("PodResizeInProgress", "Error"),
}


class Kubelet:
    """Looks after the pods of one namespace."""

    def __init__(self, plane: Plane, namespace: str) -> None:
        self._plane, self._namespace = plane, namespace
        self._end = threading.Event()
        self.failures: list[str] = []

    def step(self) -> None:
        """Look at every pod once."""
        for pod in self._plane.pods(self._namespace):
            running = pod["status"].get("phase") == "Running"
            if running and "deletionTimestamp" not in pod["metadata"]:
                status = self._status(pod)
                if status is not None:
                    self._write(pod["metadata"]["name"], status)

    def run(self) -> None:
        while not self._end.wait(_LOOK_S):
            try:
                self.step()
            except OSError as error:
                self.failures.append(str(error))

    def stop(self) -> None:
        self._end.set()

    def _status(self, pod: Mapping[str, Any]) -> dict[str, Any] | None:
        wanted = {c["name"]: c["resources"] for c in pod["spec"]["containers"]}
        found = pod["status"].get("containerStatuses") or []
        actual = {status["name"]: status.get("resources") for status in found}
        if actual == wanted:
            return None
        will = pod["metadata"].get("labels", {}).get("kubelet", "accepts")
        starts = any(resources is None for resources in actual.values())
        if will == "fits" and not starts:
            will = "accepts" if self._has_room(pod) else "deferred"
        conditions = pod["status"].get("conditions") or []
        if will == "accepts" or starts:
            # A container starts with what its pod was admitted with.
            granted: dict[str, Any] = {
                "containerStatuses": [
                    {**status, "resources": wanted[status["name"]],
                     "allocatedResources": wanted[status["name"]].get("requests", {})}
                    for status in found
                ]
            }  # fmt: skip
            waited = [each for each in conditions if each["type"] != "PodResizePending"]
            if len(waited) < len(conditions):
                granted["conditions"] = waited
            return granted
        kind, reason = STATES[will]
        if any(c["type"] == kind for c in conditions):
            return None
        return {
            "conditions": [
                *conditions,
                {"type": kind, "status": "True", "reason": reason,
                 "message": f"pretended: {will}" if reason else ""},
            ]
        }  # fmt: skip

    def _has_room(self, pod: Mapping[str, Any]) -> bool:
        node = pod["spec"]["nodeName"]
        path = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}"
        others = [each for each in self._plane.admin.get(path)["items"]
                  if each["metadata"]["uid"] != pod["metadata"]["uid"]]  # fmt: skip
        wanted = sum(_cpu(each) for each in pod["spec"]["containers"])
        for other in others:
            actual = {each["name"]: each for each in other["status"].get("containerStatuses", ())}
            for container in other["spec"]["containers"]:
                is_known = "resources" in actual.get(container["name"], {})
                wanted += _cpu(actual[container["name"]] if is_known else container)
        has = self._plane.admin.get(f"/api/v1/nodes/{node}")["status"]["allocatable"]["cpu"]
        return wanted <= quantity.parse(has).milli

    def _write(self, name: str, status: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{self._namespace}/pods/{name}/status"
        answer = self._plane.admin.request(
            "PATCH", path, {"status": status}, {"Content-Type": "application/merge-patch+json"}
        )
        if answer.status not in (200, 404, 409):
            self.failures.append(f"{name}: {answer.status} {answer.body!r}")


def _cpu(container: Mapping[str, Any]) -> int:
    requests = container["resources"].get("requests", {})
    return quantity.parse(requests.get("cpu", "0")).milli


@contextlib.contextmanager
def kubelet(plane: Plane, namespace: str) -> Iterator[Kubelet]:
    """Run one while the block runs."""
    stand_in = Kubelet(plane, namespace)
    thread = threading.Thread(target=stand_in.run)
    thread.start()
    try:
        yield stand_in
    finally:
        stand_in.stop()
        thread.join()
    assert not stand_in.failures, stand_in.failures[:3]
