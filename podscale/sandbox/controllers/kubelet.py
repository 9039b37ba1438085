"""Scheduler and kubelets, in short: pods get a node, start, become ready, resize, stop."""

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from podscale.core import quantity
from podscale.sandbox.objects.objects import SandboxObjects, is_true
from podscale.sandbox.objects.storage import Key, Object, changes
from podscale.serving.status import StatusError

_PODS = ("", "pods")


class NodeTiming(Struct, frozen=True):
    """How long things take on every node, in seconds."""

    start_s: float = 0.5  # from being scheduled to running
    ready_s: float = 1.0  # from running to ready
    stop_s: float = 0.2  # from being deleted to gone
    resize_s: float = 0.2  # from a changed spec to its being actuated


class Kubelet:
    """All nodes' kubelets, and the scheduler."""

    def __init__(self, objects: SandboxObjects, timing: NodeTiming | None = None) -> None:
        self._objects = objects
        self._timing = timing or NodeTiming()
        self._timers: dict[tuple[Key, str], asyncio.TimerHandle] = {}
        self._free_cpu: dict[str, int] = {}  # milli-cores by node
        self._placed: dict[Key, tuple[str, int]] = {}
        self._address = 0
        self._is_full = False  # some pod found no node
        objects.has_kubelet = True

    def add_node(self, name: str) -> None:
        """Add a node that is ready."""
        capacity = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        self._objects.put(
            {
                "kind": "Node",
                "apiVersion": "v1",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "spec": {},
                "status": {
                    "capacity": capacity,
                    "allocatable": capacity,
                    "conditions": [condition],
                    "nodeInfo": {"kubeletVersion": "v1.37.0"},
                },
            }
        )
        self._free_cpu[name] = quantity.parse(capacity["cpu"]).milli

    async def run(self) -> None:
        """Drive all pods for ever."""
        try:
            async for batch in changes(self._objects.storage, [_PODS]):
                for key in dict.fromkeys(change.now.key for change in batch):
                    pod = self._objects.find("pods", *key)
                    if pod is None:
                        self._forget(key)
                    else:
                        self._look(key, pod)
        finally:
            for timer in self._timers.values():
                timer.cancel()

    def _look(self, key: Key, pod: Object) -> None:
        spec, status = pod["spec"], pod.get("status") or {}
        phase = status.get("phase")
        if spec.get("nodeName"):
            self._count(key, spec["nodeName"], _cpu(pod))
        if pod["metadata"].get("deletionTimestamp"):
            self._after(key, "stop", self._timing.stop_s, self._stop)
        elif not spec.get("nodeName"):
            self._schedule(key, pod)
        elif phase == "Pending":
            self._after(key, "start", self._timing.start_s, self._start)
        elif phase == "Running" and not is_true(pod, "Ready"):
            self._after(key, "ready", self._timing.ready_s, self._ready)
        elif phase == "Running" and _actuated(pod) != _wanted(pod):
            self._after(key, "resize", self._timing.resize_s, self._resize)

    def _after(self, key: Key, step: str, seconds: float, act: Callable[[Key], None]) -> None:
        if (key, step) in self._timers:
            return

        def due() -> None:
            self._timers.pop((key, step), None)
            if self._objects.find("pods", *key) is not None:
                act(key)

        self._timers[key, step] = asyncio.get_running_loop().call_later(seconds, due)

    def _schedule(self, key: Key, pod: Object) -> None:
        need = _cpu(pod)
        node = max(self._free_cpu, key=lambda name: self._free_cpu[name], default=None)
        if node is None or self._free_cpu[node] < need:
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0 nodes are available: insufficient cpu.",
            }
            if (pod.get("status") or {}).get("conditions") != [condition]:
                self._status(key, {"phase": "Pending", "conditions": [condition]})
            self._is_full = True
            return
        self._count(key, node, need)
        self._objects.update("pods", *key, {**pod, "spec": {**pod["spec"], "nodeName": node}})

    def _start(self, key: Key) -> None:
        pod = self._objects.get("pods", *key)
        if pod["metadata"].get("deletionTimestamp"):
            return
        self._address += 1
        address = f"10.{self._address >> 16 & 255}.{self._address >> 8 & 255}.{self._address & 255}"
        now = self._objects.now_text()
        containers = [
            {
                "name": container["name"],
                "image": container.get("image", ""),
                "ready": False,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
                "resources": container.get("resources") or {},
                "allocatedResources": (container.get("resources") or {}).get("requests") or {},
            }
            for container in pod["spec"].get("containers", ())
        ]
        self._status(
            key,
            {
                "phase": "Running",
                "startTime": now,
                "podIP": address,
                "podIPs": [{"ip": address}],
                "containerStatuses": containers,
                "conditions": _conditions(is_ready=False, now=now),
            },
        )

    def _ready(self, key: Key) -> None:
        status = self._objects.get("pods", *key)["status"]
        containers = [{**c, "ready": True} for c in status.get("containerStatuses", ())]
        conditions = _conditions(is_ready=True, now=self._objects.now_text())
        self._status(key, {"containerStatuses": containers, "conditions": conditions})

    def kill_for_memory(self, key: Key) -> None:
        """Kill the pod's first container as out of memory, and start it again."""
        pod = self._objects.find("pods", *key)
        statuses = ((pod or {}).get("status") or {}).get("containerStatuses") or ()
        if pod is None or not statuses or pod["metadata"].get("deletionTimestamp"):
            return
        now = self._objects.now_text()
        first, *rest = statuses
        ended = {
            "exitCode": 137,
            "reason": "OOMKilled",
            "startedAt": first["state"].get("running", {}).get("startedAt", now),
            "finishedAt": now,
        }
        killed = {
            **first,
            "ready": False,
            "restartCount": first["restartCount"] + 1,
            "lastState": {"terminated": ended},
            "state": {"running": {"startedAt": now}},
        }
        conditions = _conditions(is_ready=False, now=now)
        self._status(key, {"containerStatuses": [killed, *rest], "conditions": conditions})

    def _resize(self, key: Key) -> None:
        pod = self._objects.get("pods", *key)
        wanted = _wanted(pod)
        containers = [
            {
                **container,
                "resources": wanted.get(container["name"], {}),
                "allocatedResources": wanted.get(container["name"], {}).get("requests") or {},
            }
            for container in pod["status"].get("containerStatuses", ())
        ]
        self._status(key, {"containerStatuses": containers})

    def _stop(self, key: Key) -> None:
        self._objects.delete("pods", *key, options={"gracePeriodSeconds": 0})

    def _retry_pending(self) -> None:
        waiting = [pod for pod in self._objects.list("pods") if not pod["spec"].get("nodeName")]
        for pod in sorted(waiting, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
            if not pod["metadata"].get("deletionTimestamp"):
                self._schedule((pod["metadata"]["namespace"], pod["metadata"]["name"]), pod)

    def _forget(self, key: Key) -> None:
        if (place := self._placed.pop(key, None)) is not None:
            self._free(*place)
        for step in ("start", "ready", "resize", "stop"):
            if (timer := self._timers.pop((key, step), None)) is not None:
                timer.cancel()

    def _count(self, key: Key, node: str, cpu: int) -> None:
        # What it requests now: somebody else may have bound it, and it may be resized.
        before = self._placed.get(key, (node, 0))[1]
        self._placed[key] = (node, cpu)
        self._free(node, before - cpu)

    def _free(self, node: str, cpu: int) -> None:
        if node not in self._free_cpu:
            return
        self._free_cpu[node] += cpu
        if cpu > 0 and self._is_full:
            self._is_full = False
            self._retry_pending()

    def _status(self, key: Key, part: dict[str, Any]) -> None:
        pod = self._objects.get("pods", *key)
        status = {**(pod.get("status") or {}), **part}
        try:
            self._objects.update("pods", *key, {**pod, "status": status}, "status")
        except StatusError:
            return  # gone in the meantime


def _conditions(*, is_ready: bool, now: str) -> list[dict[str, str]]:
    ready = "True" if is_ready else "False"
    return [
        {"type": kind, "status": status, "lastTransitionTime": now}
        for kind, status in (
            ("PodScheduled", "True"),
            ("Initialized", "True"),
            ("ContainersReady", ready),
            ("Ready", ready),
        )
    ]


def _wanted(pod: Object) -> dict[str, Any]:
    return {c["name"]: c.get("resources") or {} for c in pod["spec"].get("containers", ())}


def _actuated(pod: Object) -> dict[str, Any]:
    statuses = pod["status"].get("containerStatuses") or ()
    return {c["name"]: c.get("resources") or {} for c in statuses}


def _cpu(pod: Object) -> int:
    requests = [
        (container.get("resources") or {}).get("requests") or {}
        for container in pod["spec"].get("containers", ())
    ]
    return sum(quantity.from_wire(request.get("cpu", 0)).milli for request in requests)
