"""The script of the play: rollouts, puppets, deletions, scalings, edits, re-creations, seeded.

A puppet is a bare pod that no scheduler takes and no kubelet runs, so that its status is
what the script says: running without being ready, failed, finished, terminating for ever.
"""

import threading
import time
from collections.abc import Callable, Mapping
from itertools import cycle
from random import Random
from typing import Any, Self

from tests.cluster.beside_cast import BEHAVIORS, FORMS, REQUESTS, Role, pod_spec
from tests.cluster.identity import RefusedError
from tests.cluster.plane import Plane

FINALIZER = "podscale.io/held-by-the-test"
_REST_S = 8.0  # a workload that was touched is left alone for so long
_MERGE = "application/merge-patch+json"
_GONE_S = 5.0  # an object that is deleted for long comes back so much later


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
        self._gizmos = cycle([role for role in self._roles if role.kind == "Gizmo"])
        self._due: list[tuple[float, str, Any]] = []  # what comes back: when, where, the object
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
            self.edit_metrics,
            self.edit_behavior,
            self.recreate_hpa,
            self.recreate_workload,
            self.stray_puppet,
            self.select_otherwise,
        ]
        while not self._over.wait(self._pause_s):
            now = time.time()
            self._keep_up(now)
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
        if role.kind == "Gizmo":
            return False
        self._client.patch(role.path(self._namespace), {"spec": {"template": mark}}, _MERGE)
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
        self._client.patch(
            f"{role.path(self._namespace)}/scale", {"spec": {"replicas": size}}, _MERGE
        )
        return True

    def edit_bounds(self, role: Role) -> bool:
        least = role.hpa["spec"]["minReplicas"]
        bounds = self._draw.choice(((least, 7), (least, 4), (2, 7), (least, 6)))
        spec = {"minReplicas": bounds[0], "maxReplicas": bounds[1]}
        self._client.patch(self._hpa(role), {"spec": spec}, _MERGE)
        return True

    def edit_metrics(self, role: Role) -> bool:
        # What goes down to zero needs a metric that is measured without pods.
        least = role.hpa["spec"]["minReplicas"]
        among = [form for form in FORMS if least or form.startswith("external")]
        if role.name.startswith("external-value"):
            among.remove("external-average")  # its metric is below zero at times, see the stage
        forms = self._draw.sample(among, min(self._draw.choice((1, 1, 2)), len(among)))
        metrics = [FORMS[form](self._namespace, role.name) for form in forms]
        self._client.patch(self._hpa(role), {"spec": {"metrics": metrics}}, _MERGE)
        return True

    def edit_behavior(self, role: Role) -> bool:
        rules = self._draw.choice(list(BEHAVIORS.values()))
        edits = [{"op": "add", "path": "/spec/behavior", "value": rules or {}}]
        if rules is None:
            edits.append({"op": "remove", "path": "/spec/behavior"})
        self._client.patch(self._hpa(role), edits, "application/json-patch+json")
        return True

    def recreate_hpa(self, role: Role) -> bool:
        if role.is_shared:
            return False  # whose pass it was could then not be told
        self._recreate(self._hpa(role), role.hpa)
        return True

    def recreate_workload(self, role: Role) -> bool:
        self._recreate(role.path(self._namespace), role.objects[0])
        return True

    def _recreate(self, path: str, made: Any) -> None:
        self._client.delete(f"{path}?propagationPolicy=Background")
        back = time.time() + self._draw.choice((0.0, _GONE_S))
        self._due.append((back, path.rpartition("/")[0], made))

    def stray_puppet(self, role: Role) -> bool:
        """A pod that another HPA selects as well."""
        more = {"mesh": "wide"}
        return self._puppet(role, "Running", "True", started_s=40, changed_s=35, labels=more)

    def select_otherwise(self, role: Role) -> bool:
        if role.kind != "Gizmo":
            return False
        plain = f"app={role.name}"
        texts = (plain, plain, f"tier=web,{plain}", f"app in ({role.name})", f"{plain},!canary")
        bad = ("", "app=((", f"{plain},tier!=x", "size>3")
        self._select(role, self._draw.choice((*texts, *bad)))
        return True

    def _select(self, role: Role, selector: str) -> None:
        status = {"status": {"replicas": 2, "selector": selector}}
        self._client.patch(f"{role.path(self._namespace)}/status", status, _MERGE)

    def _keep_up(self, now: float) -> None:
        """Bring back what is due, and be the controller of the custom resources."""
        due = [each for each in self._due if each[0] <= now]
        self._due = [each for each in self._due if each[0] > now]
        for each in due:
            try:
                self._client.post(each[1], each[2])
            except RefusedError as refused:
                if refused.status != 409:  # it is still on its way out
                    self.failures.append(str(refused))
                self._due.append((now + self._pause_s, *each[1:]))
        role = next(self._gizmos)
        answer = self._client.request("GET", role.path(self._namespace))
        if answer.status == 200:
            found = answer.body
            status = {"selector": f"app={role.name}", **found.get("status", {})}
            if status.get("replicas") != found["spec"]["replicas"]:
                status["replicas"] = found["spec"]["replicas"]
                path = f"{role.path(self._namespace)}/status"
                self._client.request("PATCH", path, {"status": status}, {"Content-Type": _MERGE})

    def _puppet(
        self,
        role: Role,
        phase: str,
        ready: str,
        *,
        started_s: float,
        changed_s: float,
        labels: Mapping[str, str] | None = None,
    ) -> bool:
        if sum(not pod["metadata"].get("ownerReferences") for _, pod in self._of(role)) >= 3:
            return False
        self._number += 1
        # At most one pod without requests: of several, upstream names any.
        bare = self._number % 12 == 0 and not any("bare" in name for name, _ in self._of(role))
        name = f"{role.name}-{'bare' if bare else 'puppet'}-{self._number}"
        requests = {"memory": REQUESTS["memory"]} if bare else REQUESTS
        spec = {**pod_spec(requests=requests), "schedulerName": "nobody"}
        labels = {**role.labels, **(labels or {})}
        metadata = {"name": name, "labels": labels, "finalizers": [FINALIZER]}
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
            if pod["metadata"].get("labels", {}).get("app") == role.labels["app"]
        )

    def _path(self, plural: str) -> str:
        return f"/api/v1/namespaces/{self._namespace}/{plural}"

    def _hpa(self, role: Role) -> str:
        path = f"/apis/autoscaling/v2/namespaces/{self._namespace}/horizontalpodautoscalers"
        return f"{path}/{role.name}"

    def _patch(self, path: str, body: object) -> None:
        self._client.patch(self._path(path), body, _MERGE)


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
