"""The script of the play: rollouts, puppets, deletions, scalings and edits, seeded.

A puppet is a bare pod that no scheduler takes and no kubelet runs, so that its status is
what the script says: running without being ready, failed, finished, terminating for ever.
"""

import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any, Self

from tests.cluster.beside_cast import REQUESTS, Role, pod_spec
from tests.cluster.identity import RefusedError
from tests.cluster.plane import Plane

FINALIZER = "podscale.io/held-by-the-test"
_REST_S = 8.0  # a workload that was touched is left alone for so long
_MERGE = "application/merge-patch+json"


class Script:
    """Plays in a thread until left; ``done`` counts what was done."""

    def __init__(
        self,
        plane: Plane,
        namespace: str,
        roles: list[Role],
        seed: int,
        pause_s: float,
        pods: Callable[[], dict[str, Any]],
    ) -> None:
        self._client = plane.admin
        self._namespace = namespace
        self._roles = [role for role in roles if role.objects]
        self._draw = Random(seed)
        self._pause_s = pause_s
        self._pods = pods
        self._touched: dict[str, float] = {}
        self._number = 0
        self._over = threading.Event()
        self.done: dict[str, int] = {}
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run, name="script")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        acts: list[Callable[[Role], bool]] = [
            self.rollout,
            self.unready_puppet,
            self.starting_puppet,
            self.pending_puppet,
            self.running_puppet,
            self.flip_puppet,
            self.end_puppet,
            self.fail_puppet,
            self.terminate_puppet,
            self.release_puppet,
            self.delete_pod,
            self.scale_by_hand,
            self.edit_bounds,
        ]
        while not self._over.wait(self._pause_s):
            now = time.time()
            free = [r for r in self._roles if now - self._touched.get(r.name, 0.0) > _REST_S]
            if not free:
                continue
            role, act = self._draw.choice(free), self._draw.choice(acts)
            try:
                if act(role):
                    self._touched[role.name] = now
                    name = act.__name__
                    self.done[name] = self.done.get(name, 0) + 1
            except RefusedError as refused:
                # Others act on the same objects: what has gone or changed is left alone.
                if refused.status not in (404, 409):
                    self.failures.append(str(refused))

    def rollout(self, role: Role) -> bool:
        mark = {"metadata": {"annotations": {"rolled": str(self._number)}}}
        self._number += 1
        self._patch(f"{self._workload(role)}", {"spec": {"template": mark}})
        return True

    def running_puppet(self, role: Role) -> bool:
        return self._puppet(role, "Running", "True", started_s=40, changed_s=35)

    def unready_puppet(self, role: Role) -> bool:
        return self._puppet(role, "Running", "False", started_s=40, changed_s=38)

    def starting_puppet(self, role: Role) -> bool:
        return self._puppet(role, "Running", "True", started_s=6, changed_s=2)

    def pending_puppet(self, role: Role) -> bool:
        return self._puppet(role, "Pending", "", started_s=0, changed_s=0)

    def flip_puppet(self, role: Role) -> bool:
        found = self._a_puppet(role)
        if found is None:
            return False
        is_ready = any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in found["status"].get("conditions", ())
        )
        self._status(found, "Running", "False" if is_ready else "True", 60, 0)
        return True

    def end_puppet(self, role: Role) -> bool:
        return self._finish(role, "Succeeded")

    def fail_puppet(self, role: Role) -> bool:
        return self._finish(role, "Failed")

    def terminate_puppet(self, role: Role) -> bool:
        found = self._a_puppet(role)
        if found is None:
            return False
        self._client.delete(f"{self._path('pods')}/{found['metadata']['name']}")
        return True

    def release_puppet(self, role: Role) -> bool:
        for name, pod in self._of(role):
            if "deletionTimestamp" in pod["metadata"] and pod["metadata"].get("finalizers"):
                self._patch(f"pods/{name}", {"metadata": {"finalizers": None}})
                return True
        return False

    def delete_pod(self, role: Role) -> bool:
        own = [name for name, pod in self._of(role) if pod["metadata"].get("ownerReferences")]
        if not own:
            return False
        self._client.delete(f"{self._path('pods')}/{self._draw.choice(sorted(own))}")
        return True

    def scale_by_hand(self, role: Role) -> bool:
        size = self._draw.choice((1, 2, 3, 5, 9))
        self._patch(f"{self._workload(role)}/scale", {"spec": {"replicas": size}})
        return True

    def edit_bounds(self, role: Role) -> bool:
        least = role.hpa["spec"]["minReplicas"]
        bounds = self._draw.choice(((least, 7), (least, 4), (2, 7), (least, 6)))
        spec = {"minReplicas": bounds[0], "maxReplicas": bounds[1]}
        path = f"/apis/autoscaling/v2/namespaces/{self._namespace}/horizontalpodautoscalers"
        self._client.patch(f"{path}/{role.name}", {"spec": spec}, _MERGE)
        return True

    def _puppet(
        self, role: Role, phase: str, ready: str, *, started_s: float, changed_s: float
    ) -> bool:
        if sum(not pod["metadata"].get("ownerReferences") for _, pod in self._of(role)) >= 3:
            return False
        self._number += 1
        # At most one pod without requests: of several, upstream names any.
        bare = self._number % 12 == 0 and not any("bare" in name for name, _ in self._of(role))
        name = f"{role.name}-{'bare' if bare else 'puppet'}-{self._number}"
        requests = {"memory": REQUESTS["memory"]} if bare else REQUESTS
        spec = {**pod_spec(requests=requests), "schedulerName": "nobody"}
        metadata = {"name": name, "labels": {"app": role.name}, "finalizers": [FINALIZER]}
        made = self._client.post(self._path("pods"), {"metadata": metadata, "spec": spec})
        if phase != "Pending":
            self._status(made, phase, ready, started_s, changed_s)
        return True

    def _finish(self, role: Role, phase: str) -> bool:
        found = self._a_puppet(role)
        if found is None:
            return False
        self._status(found, phase, "False", 60, 0)
        return True

    def _status(
        self, found: Any, phase: str, ready: str, started_s: float, changed_s: float
    ) -> None:
        now = time.time()
        status = {
            "phase": phase,
            "startTime": _time(now - started_s),
            "conditions": [
                {"type": "Ready", "status": ready, "lastTransitionTime": _time(now - changed_s)}
            ],
        }
        self._patch(f"pods/{found['metadata']['name']}/status", {"status": status})

    def _a_puppet(self, role: Role) -> dict[str, Any] | None:
        found: list[dict[str, Any]] = [
            pod
            for _, pod in self._of(role)
            if not pod["metadata"].get("ownerReferences")
            and "deletionTimestamp" not in pod["metadata"]
        ]
        return self._draw.choice(found) if found else None

    def _of(self, role: Role) -> list[tuple[str, dict[str, Any]]]:
        return sorted(
            (name, pod)
            for name, pod in list(self._pods().items())
            if pod["metadata"].get("labels", {}).get("app") == role.name
        )

    def _path(self, plural: str) -> str:
        return f"/api/v1/namespaces/{self._namespace}/{plural}"

    def _workload(self, role: Role) -> str:
        return f"{role.plural}/{role.name}"

    def _patch(self, path: str, body: object) -> None:
        if path.startswith("pods/"):
            self._client.patch(self._path(path), body, _MERGE)
        else:
            prefix = f"/apis/apps/v1/namespaces/{self._namespace}"
            self._client.patch(f"{prefix}/{path}", body, _MERGE)


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
