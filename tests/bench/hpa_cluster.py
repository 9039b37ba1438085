"""A sandbox API server full of HPAs, as a process of its own, for ``bench_hpa``.

Each HPA has a Deployment, its ReplicaSet and ten pods; two Pods metrics and an External
one. Sizes that change are followed by pods within half a second. Counts of requests are
written to ``--counts`` every second.
"""

import argparse
import asyncio
import gc
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podscale.sandbox.server import SandboxServer

PER_NAMESPACE = 10
PODS = 10
MOST = 12  # of those that are rescaled every period
EVERY = 20  # one in so many is: 5 %
STEP_S = 0.5


def is_restless(index: int) -> bool:
    """Whether this HPA rescales every period."""
    return index % EVERY == 0


def namespace_of(index: int) -> str:
    return f"ns-{index // PER_NAMESPACE}"


def name_of(index: int) -> str:
    return f"web-{index}"


def hpa(index: int) -> dict[str, Any]:
    restless = is_restless(index)
    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name_of(index)},
        "minReplicas": PODS if restless else 1,
        "maxReplicas": MOST if restless else 30,
        "metrics": [
            *(
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": metric},
                        "target": {"type": "AverageValue", "averageValue": "1"},
                    },
                }
                for metric in ("load", "connections")
            ),
            {
                "type": "External",
                "external": {
                    "metric": {"name": "queue"},
                    "target": {"type": "AverageValue", "averageValue": "2" if restless else "1"},
                },
            },
        ],
    }
    if restless:
        spec["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name_of(index), "namespace": namespace_of(index)},
        "spec": spec,
    }


def workload(index: int, kind: str, size: int, owner: Mapping[str, Any] | None) -> dict[str, Any]:
    labels = {"app": name_of(index)}
    metadata: dict[str, Any] = {"name": name_of(index), "namespace": namespace_of(index)}
    if owner is not None:
        metadata["ownerReferences"] = [_owner(owner)]
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {**metadata, "labels": labels},
        "spec": {
            "replicas": size,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "app", "image": "pretend"}]},
            },
        },
        "status": {"replicas": size, "readyReplicas": size},
    }


def pod(index: int, number: int, owner: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name_of(index)}-{number}",
            "namespace": namespace_of(index),
            "labels": {"app": name_of(index)},
            "ownerReferences": [_owner(owner)],
        },
        "spec": {
            "containers": [
                {"name": "app", "image": "pretend", "resources": {"requests": {"cpu": "100m"}}}
            ]
        },
        "status": {
            "phase": "Running",
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}
            ],
        },
    }


def _owner(owner: Mapping[str, Any]) -> dict[str, Any]:
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


class Fleet:
    """The workloads, and what their controllers would do."""

    def __init__(self, server: SandboxServer, count: int) -> None:
        self._objects = server.objects
        self._count = count
        self._sets: dict[int, Mapping[str, Any]] = {}
        self._sizes: dict[int, int] = {}

    def seed(self) -> None:
        self._objects.put(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "podscale"}}
        )
        for index in range(self._count):
            if index % PER_NAMESPACE == 0:
                self._objects.put(
                    {
                        "apiVersion": "v1",
                        "kind": "Namespace",
                        "metadata": {"name": namespace_of(index)},
                    }
                )
            deployment = self._objects.put(workload(index, "Deployment", PODS, None))
            found = self._objects.put(workload(index, "ReplicaSet", PODS, deployment))
            self._sets[index] = found
            self._sizes[index] = PODS
            for number in range(PODS):
                self._objects.put(pod(index, number, found))
            self._objects.put(hpa(index))

    async def follow(self) -> None:
        """Let pods and statuses follow the sizes, for ever."""
        restless = [index for index in range(self._count) if is_restless(index)]
        while True:
            await asyncio.sleep(STEP_S)
            for index in restless:
                self._step(index)

    def _step(self, index: int) -> None:
        namespace, name = namespace_of(index), name_of(index)
        found = self._objects.find("deployments.apps", namespace, name)
        if found is None:
            return
        wanted, size = int(found["spec"]["replicas"]), self._sizes[index]
        if wanted == size:
            return
        for number in range(size, wanted):
            self._objects.put(pod(index, number, self._sets[index]))
        for number in range(wanted, size):
            self._objects.delete("pods", namespace, f"{name}-{number}")
        self._sizes[index] = wanted
        status = {**found.get("status", {}), "replicas": wanted, "readyReplicas": wanted}
        self._objects.put({**found, "status": status})


async def _serve() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hpas", type=int, default=100)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--counts", type=Path, required=True)
    given = parser.parse_args()
    server = SandboxServer(history=200_000)
    fleet = Fleet(server, given.hpas)
    gc.disable()
    fleet.seed()
    gc.enable()
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with server:
        server.kubeconfig(given.kubeconfig)
        following = asyncio.create_task(fleet.follow())
        waiting = asyncio.create_task(stopped.wait())
        print(server.url, flush=True)
        while not stopped.is_set():
            counts = {f"{verb} {what}": n for (verb, what), n in server.counts.items()}
            given.counts.with_suffix(".new").write_text(json.dumps(counts))
            given.counts.with_suffix(".new").replace(given.counts)
            await asyncio.wait({following, waiting}, timeout=1.0)
            if following.done():
                following.result()
        following.cancel()


if __name__ == "__main__":
    asyncio.run(_serve())
