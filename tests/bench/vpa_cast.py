"""A large cluster as a recommender's watches hold it, and an API server that only says yes.

No I/O: what is measured over it is the recommender itself, from its stores to the bodies of
its requests.

Its containers were started over the first day, as in a cluster that lives: a memory window
begins with a container's first sample, so each minute of a later day ends some of them. (A
recommender that meets a cluster for the first time has all windows begin at once.)
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from podscale.core.metrics import Answer, ContainerColumns, Question
from podscale.kube.client.api import Response
from podscale.kube.client.wire import decode, encode
from podscale.kube.informer.store import Store
from podscale.kube.objects.pod import Pod
from podscale.kube.objects.scale import Workload
from podscale.kube.objects.vpa import StoredVpa
from tests.kit.stores import fill
from vpa.recommender.pod_feed import StoredEvent
from vpa.stores import VpaStores

NAMESPACES = 50
CONTAINERS = ("app", "side")
START = 1_772_409_600.0


class Yes:
    """Answers every request at once; counts them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._specs: dict[str, tuple[bytes, bytes]] = {}
        self._version = 1_000_000

    def know(self, path: str, raw: dict[str, Any]) -> None:
        self._specs[path] = encode(raw["metadata"]), encode(raw["spec"])

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> Response:
        if method == "GET":
            return Response(200, {}, b'{"metadata":{"resourceVersion":"1"},"items":[]}')
        if path.endswith("/status"):
            self.counts["status"] += 1
            meta, spec = self._specs[path.removesuffix("/status")]
            self._version += 1
            version = b'"resourceVersion":"%d"' % self._version
            meta = meta.replace(b'"resourceVersion":"1"', version)
            status = body.partition(b'"path":"/status","value":')[2][:-2]
            answer = b'{"metadata":%s,"spec":%s,"status":%s}' % (meta, spec, status)
            return Response(200, {}, answer)
        self.counts["checkpoint"] += 1
        return Response(200, {}, b"{}")


class Cast:
    """``vpas`` VPAs over ``pods`` pods each, two containers a pod."""

    def __init__(self, vpas: int, pods: int) -> None:
        self.api = Yes()
        self.stores = VpaStores(self.api, None)  # type: ignore[arg-type] # no kind is asked for
        self.evictions: Store[StoredEvent] = Store()
        self.now = START
        self._random = np.random.default_rng(7)
        named = [(f"team-{n % NAMESPACES}", f"web-{n}") for n in range(vpas)]
        for store in (*self.stores.workloads.by_kind.values(), self.stores.workloads.controllers,
                      self.stores.workloads.cron_jobs, self.stores.limit_ranges,
                      self.stores.nodes, self.evictions):  # fmt: skip
            fill(store, [])
        fill(self.stores.workloads.by_kind["Deployment"], map(self._deployment, named))
        fill(self.stores.vpas, map(self._vpa, named))
        self._names: tuple[list[str], list[str], list[str]] = ([], [], [])
        fill(self.stores.pods, (self._pod(*each, pod) for each in named for pod in range(pods)))
        size = len(self._names[0])
        self._started = START + self._random.uniform(0.0, 86400.0, size)
        self._scraped = self._random.uniform(0.0, 1.0, size)
        self._cores = np.exp(self._random.normal(np.log(0.2), 1.0, size))
        self._memory = np.exp(self._random.normal(np.log(2e8), 1.0, size))

    async def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Return one noisy sample of every container, all of this instant."""
        return [self.usage() for _ in questions]

    def usage(self, within_s: float = 0.0) -> ContainerColumns:
        """Return one noisy sample of every container, taken within the last seconds."""
        times = self.now - self._scraped * within_s
        runs = np.where(times >= self._started, 1.0, np.nan)
        size = runs.size
        return ContainerColumns(
            *self._names,
            runs * self._cores * np.exp(self._random.normal(0.0, 0.3, size)),
            runs * self._memory * np.exp(self._random.normal(0.0, 0.05, size)),
            times,
            self.now,
        )

    def _deployment(self, named: tuple[str, str]) -> Workload:
        namespace, name = named
        raw = {
            "metadata": {**meta(namespace, name), "uid": f"d-{name}"},
            "spec": {"selector": {"matchLabels": {"app": name}}},
        }
        return decode(encode(raw), Workload)

    def _vpa(self, named: tuple[str, str]) -> StoredVpa:
        namespace, name = named
        raw: dict[str, Any] = {
            "metadata": meta(namespace, name),
            "spec": {"targetRef": {"kind": "Deployment", "name": name, "apiVersion": "apps/v1"}},
        }
        path = f"/apis/autoscaling.k8s.io/v1/namespaces/{namespace}/verticalpodautoscalers/{name}"
        self.api.know(path, raw)
        return decode(encode(raw), StoredVpa)

    def _pod(self, namespace: str, app: str, number: int) -> Pod:
        name = f"{app}-6d4f9c5b7d-{number:05d}"
        for container in CONTAINERS:
            for place, word in enumerate((namespace, name, container)):
                self._names[place].append(word)
        containers = [
            {"name": each, "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
            for each in CONTAINERS
        ]
        labels = {"app": app, "tier": "backend", "pod-template-hash": "6d4f9c5b7d"}
        raw = {
            "metadata": {**meta(namespace, name), "labels": labels},
            "spec": {"nodeName": "node-1", "containers": containers},
            "status": {"phase": "Running"},
        }
        return decode(encode(raw), Pod)


def meta(namespace: str, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": namespace,
        "uid": f"00000000-0000-4000-8000-{abs(hash((namespace, name))) % 10**12:012d}",
        "resourceVersion": "1",
        "creationTimestamp": "2026-03-01T00:00:00Z",
    }
