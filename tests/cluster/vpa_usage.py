"""metrics.k8s.io that tells every client the same story, page by page, however fast it reads.

The n-th list of a client gets the n-th answer, stamped a minute after the one before: two
recommenders with different clocks see the very same samples. ``release`` says how far the
story may go; clients that are through hear its last page again and again.
"""

import http.server
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, Self

from tests.cluster.pki import Authority, KeyPair
from tests.tools.process import LOOPBACK, free_port

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
STEP_S = 60.0
Container = tuple[str, str, str]  # namespace, pod, container


class UsageServer:
    """HTTPS on the loopback, for clients of the front proxy's CA only."""

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
        self.port = free_port()
        self.read: Counter[str] = Counter()  # pages by client
        self.lists: Counter[str] = Counter()
        self._last = 0
        self._begin, self._seed = begin, seed
        self._containers = sorted(containers)
        self._pages: dict[int, bytes] = {}
        self._lock = threading.Lock()
        stage = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                path = self.path.partition("?")[0].rstrip("/")
                code, raw = stage.answer(path, self.headers.get("X-Remote-User", ""))
                head = (
                    f"HTTP/1.1 {code} told\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(raw)}\r\n\r\n"
                )
                self.wfile.write(head.encode() + raw)

            def log_message(self, *_: object) -> None:
                pass

        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(serving.cert_file, serving.key_file)
        tls.load_verify_locations(front_proxy_ca.cert_file)
        tls.verify_mode = ssl.CERT_REQUIRED
        self._server = http.server.ThreadingHTTPServer((LOOPBACK, self.port), Handler)
        # The handshake belongs in the connection's own thread, not in accept().
        self._server.socket = tls.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

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
