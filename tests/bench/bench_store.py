"""100,000 pods in the store: bytes for each, and CPU for each watch event at 1 % churn.

Pods are of the size that a real API server sends (about 4 KB of JSON), ten to a
ReplicaSet. The events come as bytes through the reflector: decoding and storing are
measured, HTTP and TLS are not. The yardstick is what a client of dicts pays for parsing
alone, ``json.loads`` of the same lines.
"""

import asyncio
import gc
import json
import os
import random
import sys
import time
import tracemalloc
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from podscale.core.selectors import selector
from podscale.kube.client.api import Response
from podscale.kube.client.resource import PODS
from podscale.kube.client.wire import ListOf, decode, encode
from podscale.kube.columns.pods import PodStore
from podscale.kube.informer.list_watch import WatchSource
from podscale.kube.informer.reflector import Reflector
from podscale.kube.objects.pod import Pod
from tests.bench.figures import Figures, resident_mb
from tests.kit.api import FakeApi, Sent

PODS_IN_ALL = 100_000
PER_OWNER = 10
NAMESPACES = 100
PAGE = 500
CHURN = PODS_IN_ALL // 100
SECONDS = 20
BYTES_GOAL = 500.0
CPU_GOAL = 1.0
SELECTS = 10_000

_VOLUMES = [
    {
        "name": f"volume-{n}",
        "configMap": {
            "name": f"settings-{n}",
            "defaultMode": 420,
            "items": [{"key": "a", "path": "b"}],
        },
    }
    for n in range(4)
]
_ENV = [
    {"name": f"SETTING_{n}", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": f"k{n}"}}}
    for n in range(12)
]
_PROBE = {
    "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
    "initialDelaySeconds": 5,
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}


def pod(number: int, version: int, *, is_ready: bool = True) -> dict[str, object]:
    """One pod as the API server shows it."""
    owner = number // PER_OWNER
    name = f"web-{owner}-5d4f8c7b9-{number:05d}"
    since = f"2026-11-21T10:{version // 60 % 60:02d}:{version % 60:02d}Z"
    resources = {
        "requests": {"cpu": f"{100 + owner % 10}m", "memory": "128Mi"},
        "limits": {"memory": "256Mi"},
    }
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "generateName": f"web-{owner}-5d4f8c7b9-",
            "namespace": f"team-{owner % NAMESPACES}",
            "uid": str(uuid.UUID(int=(7 << 100) + number)),
            "resourceVersion": str(version),
            "generation": 1,
            "creationTimestamp": "2026-11-21T09:00:00Z",
            "labels": {"app": f"web-{owner}", "tier": "front", "pod-template-hash": "5d4f8c7b9"},
            "annotations": {"prometheus.io/scrape": "true", "checksum/config": "0" * 64},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"web-{owner}-5d4f8c7b9",
                    "uid": str(uuid.UUID(int=(9 << 100) + owner)),
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "volumes": _VOLUMES,
            "containers": [
                {
                    "name": "app",
                    "image": "example.com/web:1.2.3",
                    "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                    "env": _ENV,
                    "resources": resources,
                    "livenessProbe": _PROBE,
                    "readinessProbe": _PROBE,
                    "terminationMessagePath": "/dev/termination-log",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Always",
            "nodeName": f"node-{number % 1000}",
            "tolerations": [
                {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
                for key in ("not-ready", "unreachable")
            ],
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "podIP": "10.1.2.3",
            "startTime": "2026-11-21T09:00:01Z",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2026-11-21T09:00:02Z"}
                for kind in ("PodScheduled", "Initialized", "ContainersReady")
            ]
            + [{"type": "Ready", "status": str(is_ready), "lastTransitionTime": since}],
            "containerStatuses": [
                {
                    "name": "app",
                    "ready": is_ready,
                    "restartCount": 0,
                    "image": "example.com/web:1.2.3",
                    "imageID": "example.com/web@sha256:" + "0" * 64,
                    "containerID": f"containerd://{number:064x}",
                    "started": True,
                    "state": {"running": {"startedAt": "2026-11-21T09:00:02Z"}},
                    "lastState": {},
                }
            ],
        },
    }


def pages() -> Iterator[bytes]:
    """The list, page by page, as bytes."""
    for start in range(0, PODS_IN_ALL, PAGE):
        end = start + PAGE
        meta = {"resourceVersion": "1000000"}
        if end < PODS_IN_ALL:
            meta["continue"] = str(end)
        items = [pod(number, number + 1) for number in range(start, end)]
        yield encode({"metadata": meta, "items": items})


def events(second: int) -> list[bytes]:
    """One second of churn: pods replaced (deleted, added) and pods that change their readiness."""
    choose, lines = random.Random(second), []
    version = 1_000_000 + second * CHURN
    for number in choose.sample(range(PODS_IN_ALL), CHURN // 2):
        version += 1
        kind = choose.choice(["DELETED", "ADDED", "MODIFIED", "MODIFIED"])
        shown = pod(number, version, is_ready=choose.random() < 0.5)
        for what in ("DELETED", "ADDED") if kind in ("DELETED", "ADDED") else (kind, kind):
            version += 1
            shown["metadata"]["resourceVersion"] = str(version)  # type: ignore[index]
            lines.append(encode({"type": what, "object": shown}))
    return lines


class Script(FakeApi):
    """An ``Api`` that serves the list and then one second's events after the other."""

    def __init__(self, seconds: list[list[bytes]]) -> None:
        self._pages = pages()
        self._seconds = seconds
        self.may_go_on = asyncio.Event()
        self.is_waiting = asyncio.Event()

    async def reply(self, sent: Sent) -> Response:
        return Response(200, {}, next(self._pages))

    @asynccontextmanager
    async def stream(self, path: str, **_: object) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        yield self._batches()

    async def _batches(self) -> AsyncIterator[list[bytes]]:
        for lines in self._seconds:
            await self._turn()
            for start in range(0, len(lines), 20):  # some 80 KB, as a socket hands them over
                yield lines[start : start + 20]
        await self._turn()

    async def _turn(self) -> None:
        self.is_waiting.set()
        await self.may_go_on.wait()
        self.may_go_on.clear()

    async def one_second(self) -> None:
        """Let the watch have the next second's events, and wait until it has taken them."""
        self.is_waiting.clear()
        self.may_go_on.set()
        await self.is_waiting.wait()


def bytes_per_pod(figures: Figures) -> None:
    """Fill a store under tracemalloc, and print what the same pods cost as structs."""
    sample = [page for page, _ in zip(pages(), range(4), strict=False)]
    gc.collect()
    tracemalloc.start()
    structs = [decode(page, ListOf[Pod]).items or [] for page in sample]
    gc.collect()
    as_structs = tracemalloc.get_traced_memory()[0] / sum(map(len, structs))
    tracemalloc.stop()
    del structs, sample

    async def fill() -> PodStore:
        store = PodStore()
        task = asyncio.create_task(Reflector(Script([]), WatchSource(PODS, Pod), store).run())
        await store.wait_synced()
        task.cancel()
        await asyncio.wait({task})
        return store

    gc.collect()
    tracemalloc.start()
    store = asyncio.run(fill())
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(store) == PODS_IN_ALL
    figures.note(f"as structs {as_structs:,.0f} bytes a pod")
    figures.at_most("bytes per pod", held / PODS_IN_ALL, BYTES_GOAL)


async def churn(figures: Figures) -> None:
    """List, then measure the CPU of the churn beside that of ``json.loads``."""
    seconds = [events(second) for second in range(SECONDS)]
    count = sum(map(len, seconds))
    size = sum(len(line) for lines in seconds for line in lines) / count
    before_mb = resident_mb(os.getpid())
    script, store = Script(seconds), PodStore()
    task = asyncio.create_task(Reflector(script, WatchSource(PODS, Pod), store).run())
    began = time.process_time()
    await store.wait_synced()
    figures.note(
        f"resident memory grew by {resident_mb(os.getpid()) - before_mb:.0f} MB (printed only)"
    )
    figures.note(
        f"list: {(time.process_time() - began) / PODS_IN_ALL * 1e6:.0f} us a pod, made and read"
    )
    gc.collect()
    gc.freeze()
    await script.is_waiting.wait()
    ours = theirs = 0.0
    for lines in seconds:  # in turns, so that a busy machine slows both
        began = time.process_time()
        await script.one_second()
        ours += time.process_time() - began
        began = time.process_time()
        for line in lines:
            json.loads(line)
        theirs += time.process_time() - began
    ours, theirs = ours / count, theirs / count
    task.cancel()
    await asyncio.wait({task})
    figures.note(
        f"{count:,} events of {size:,.0f} bytes, {CHURN:,} a second: {ours * 1e6:.1f} us CPU each, "
        f"{ours * CHURN * 100:.1f} % of a core; json.loads alone {theirs * 1e6:.1f} us"
    )
    figures.at_most("CPU per watch event / json.loads of its line", ours / theirs, CPU_GOAL)
    began = time.process_time()
    found = 0
    for number in range(SELECTS):
        wanted = selector.parse(f"app=web-{number}")
        found += len(store.select(f"team-{number % NAMESPACES}", wanted))
    each = (time.process_time() - began) / SELECTS
    figures.note(
        f"{SELECTS:,} selections of {found / SELECTS:.1f} pods: {each * 1e6:.1f} us CPU each"
    )


def main() -> int:
    figures = Figures("store")
    figures.note(f"{PODS_IN_ALL:,} pods, {PODS_IN_ALL // PER_OWNER:,} ReplicaSets")
    bytes_per_pod(figures)
    asyncio.run(churn(figures))
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
