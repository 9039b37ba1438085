"""metrics.k8s.io that tells every client the same story, page by page, however fast it reads.

The n-th list of a client gets the n-th answer, stamped a minute after the one before: two
recommenders with different clocks see the very same samples. ``release`` says how far the
story may go; clients that are through hear its last page again and again.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from random import Random
from typing import Any

from tests.cluster.aggregated import AggregatedServer, send, user_of
from tests.cluster.pki import Authority, KeyPair

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
STEP_S = 60.0
Container = tuple[str, str, str]  # namespace, pod, container


class UsageServer(AggregatedServer):
    """The same pages to each client."""

    def __init__(
        self,
        serving: KeyPair,
        front_proxy_ca: Authority,
        containers: Sequence[Container],
        *,
        begin: float,
        seed: int = 20261121,
    ) -> None:
        """``begin`` is the time of page 0, which nobody gets."""
        super().__init__(serving, front_proxy_ca)
        self.read: Counter[str] = Counter()  # pages by client
        self.lists: Counter[str] = Counter()
        self._last = 0
        self._begin, self._seed = begin, seed
        self._containers = sorted(containers)
        self._pages: dict[int, bytes] = {}
        self._lock = threading.Lock()

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0].rstrip("/")
        send(request, *self.answer(path, user_of(request)))

    def release(self, page: int) -> None:
        """Let the story go on up to this page."""
        self._last = page

    def stamp(self, page: int) -> str:
        """Return the time of a page's samples."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._begin + page * STEP_S))

    def answer(self, path: str, user: str) -> tuple[int, bytes]:
        """Return status and body."""
        root = f"/apis/{GROUP}/{VERSION}"
        if path == root:
            verbs = ["get", "list"]
            resource = {"name": "pods", "singularName": "", "namespaced": True,
                        "kind": "PodMetrics", "verbs": verbs}  # fmt: skip
            found = {"kind": "APIResourceList", "apiVersion": "v1",
                     "groupVersion": f"{GROUP}/{VERSION}", "resources": [resource]}  # fmt: skip
            return 200, json.dumps(found).encode()
        if path != f"{root}/pods":
            return 404, b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":404}'
        with self._lock:
            self.lists[user] += 1
            page = self.read[user] = min(self.read[user] + 1, self._last)
            if page not in self._pages:
                self._pages[page] = json.dumps(self._page(page)).encode()
            return 200, self._pages[page]

    def _page(self, page: int) -> dict[str, Any]:
        stamp = self.stamp(page)
        pods: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for namespace, pod, container in self._containers if page else ():
            usage = self._usage(pod, container, page)
            entry = {"name": container, "usage": usage}
            pods.setdefault((namespace, pod), []).append(entry)
        items = [
            {
                "metadata": {"name": pod, "namespace": namespace},
                "timestamp": stamp,
                "window": "30s",
                "containers": containers,
            }
            for (namespace, pod), containers in pods.items()
        ]
        return {"kind": "PodMetricsList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {},
                "items": items}  # fmt: skip

    def amounts(self, pod: str, container: str, page: int) -> tuple[float, float]:
        """Return the cores and bytes that a container uses on a page."""
        # A level of its own for each container, noise, and now and then a burst.
        level = Random(f"{self._seed}/{pod}/{container}")
        cpu, memory = level.lognormvariate(-2.0, 1.2), level.lognormvariate(18.5, 1.3)
        noise = Random(f"{self._seed}/{pod}/{container}/{page}")
        burst = 4.0 if noise.random() < 0.05 else 1.0
        cores = cpu * noise.uniform(0.6, 1.4) * burst
        return cores, memory * noise.uniform(0.9, 1.1) * (1.5 if burst > 1.0 else 1.0)

    def _usage(self, pod: str, container: str, page: int) -> dict[str, str]:
        cores, memory = self.amounts(pod, container, page)
        return {"cpu": f"{int(cores * 1e9)}n", "memory": f"{int(memory) // 1024}Ki"}
