"""A sandbox API server full of HPAs, as a process of its own, for ``bench_hpa``.

Each HPA has a Deployment, its ReplicaSet and ten pods; two Pods metrics and an External
one. Sizes that change are followed by pods within half a second. Counts of requests are
written to ``--counts`` every second. With ``--vpas FILE`` every tenth HPA has a utilization of CPU
in place of a Pods metric; while FILE is there it also has a VPA, by whose anchor it is held.
"""

import argparse
import asyncio
import gc
import json
import signal
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import yaml

from podscale.coordinate.anchor import ANNOTATION, Anchor, format_anchor
from podscale.core.settings import COORDINATE
from podscale.sandbox.server import SandboxServer

ROOT = Path(__file__).parent.parent.parent

PER_NAMESPACE = 10
PODS = 10
MOST = 12  # of those that are rescaled every period
EVERY = 20  # one in so many is: 5 %
STEP_S = 0.5
SIZED_EVERY = 10  # HPAs, one with a VPA; none of them is restless
CPU_MILLI = 100  # what a container requests, and about what it uses
STATUSES_S = 60.0  # a VPA's status is written as often as the recommender does
_HPAS, _VPAS = "horizontalpodautoscalers.autoscaling", "verticalpodautoscalers.autoscaling.k8s.io"


def is_restless(index: int) -> bool:
    """Whether this HPA rescales every period."""
    return index % EVERY == 0


def sized(count: int) -> range:
    """Return those of so many HPAs that may have a VPA."""
    return range(1, count, SIZED_EVERY)


def namespace_of(index: int) -> str:
    return f"ns-{index // PER_NAMESPACE}"


def name_of(index: int) -> str:
    return f"web-{index}"


def hpa(index: int, *, has_cpu: bool = False) -> dict[str, Any]:
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
    if has_cpu:
        target = {"type": "Utilization", "averageUtilization": 100}
        spec["metrics"][1] = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
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
                {
                    "name": "app",
                    "image": "pretend",
                    "resources": {"requests": {"cpu": f"{CPU_MILLI}m"}},
                }
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


def vpa(index: int, deployment: Mapping[str, Any]) -> dict[str, Any]:
    anchor = Anchor(CPU_MILLI, CPU_MILLI, deployment["metadata"]["uid"])
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {
            "name": name_of(index),
            "namespace": namespace_of(index),
            "annotations": {ANNOTATION: format_anchor(anchor)},
        },
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name_of(index)}
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

    def __init__(self, server: SandboxServer, count: int, vpas: Path | None) -> None:
        self._objects = server.objects
        self._count = count
        self._vpas, self._has_vpas = vpas, False
        steps = round(STATUSES_S / STEP_S)
        self._turns = cycle([sized(count)[turn::steps] for turn in range(steps)])
        self._sets: dict[int, Mapping[str, Any]] = {}
        self._sizes: dict[int, int] = {}

    def seed(self) -> None:
        if self._vpas is not None:
            for crd in yaml.safe_load_all((ROOT / "config/crds/vpa/vpa.yaml").read_text()):
                self._objects.create("customresourcedefinitions", "", crd)
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
            has_cpu = self._vpas is not None and index in sized(self._count)
            self._objects.put(hpa(index, has_cpu=has_cpu))

    async def follow(self) -> None:
        """Let pods and statuses follow the sizes, for ever."""
        restless = [index for index in range(self._count) if is_restless(index)]
        while True:
            await asyncio.sleep(STEP_S)
            for index in restless:
                self._step(index)
            if self._vpas is not None:
                self._follow_vpas(has_vpas=self._vpas.exists())

    def _follow_vpas(self, *, has_vpas: bool) -> None:
        objects, written = self._objects, next(self._turns)
        if has_vpas is not self._has_vpas:
            self._has_vpas = has_vpas
            for index in sized(self._count):
                key = namespace_of(index), name_of(index)
                autoscaler = objects.find(_HPAS, *key)
                deployment = objects.find("deployments.apps", *key)
                assert autoscaler is not None
                assert deployment is not None
                notes = {COORDINATE: "on"} if has_vpas else {}
                meta = {**autoscaler["metadata"], "annotations": notes}
                objects.put({**autoscaler, "metadata": meta})
                if has_vpas:
                    objects.put(vpa(index, deployment))
                else:
                    objects.delete(_VPAS, *key)
        for index in written if has_vpas else ():
            found = objects.find(_VPAS, namespace_of(index), name_of(index))
            assert found is not None
            objects.put({**found, "status": {"conditions": []}})

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
    parser.add_argument("--vpas", type=Path)
    given = parser.parse_args()
    server = SandboxServer(history=200_000)
    fleet = Fleet(server, given.hpas, given.vpas)
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
