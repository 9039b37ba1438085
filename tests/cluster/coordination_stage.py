"""What is around a workload that is sized in both directions: its load, and sudden ends.

``SharedLoad`` is the metrics API of workloads whose load is shared among their pods.
``WriteGate`` is an admission webhook that ends a process at one of its own writes: just before
the API server takes it, or just after.
"""

import base64
import http.server
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from podscale.core.selectors.selector import parse
from tests.cluster.beside_stage import Stage, _discovery, _listed
from tests.cluster.pki import Authority
from tests.cluster.plane import Plane
from tests.tools.process import LOOPBACK, Program, free_port

Review = Mapping[str, Any]
_MEMORY = "64Mi"


class SharedLoad(Stage):
    """CPU that the running pods of an app share, in cores; 1 where none is named."""

    cores: Mapping[str, float] = {}

    def answer(self, path: str, query: Mapping[str, str], now: float) -> tuple[int, Any]:
        """Return status and body for one request."""
        words = path.strip("/").split("/")
        if len(words) < len(("apis", "group", "version")):
            return super().answer(path, query, now)
        _, group, version, *rest = words
        if not rest:
            return 200, _discovery(group, version)
        selector = parse(query.get("labelSelector", ""))
        running: dict[str, list[Mapping[str, Any]]] = {}
        for pod in list(self._pods().values()):
            if pod["status"].get("phase") == "Running":
                running.setdefault(pod["metadata"]["labels"]["app"], []).append(pod)
        items = [
            _usage(pod, self.cores.get(app, 1.0) / len(pods), now)
            for app, pods in running.items()
            for pod in pods
            if selector.matches(pod["metadata"]["labels"])
        ]
        return 200, _listed(group, version, items)


def _usage(pod: Mapping[str, Any], cores: float, now: float) -> dict[str, Any]:
    usage = {"cpu": f"{round(cores * 1e9)}n", "memory": _MEMORY}
    return {
        "metadata": {key: pod["metadata"][key] for key in ("name", "namespace")},
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "window": "5s",
        "containers": [
            {"name": each["name"], "usage": usage} for each in pod["spec"]["containers"]
        ],
    }


_WRITTEN_WITHIN_S = 0.5


class Kill:
    """The end of a program at a write: ``is_taken`` says whether the API server still takes it."""

    def __init__(
        self, program: Program, is_meant: Callable[[Review], bool], *, is_taken: bool
    ) -> None:
        self.program, self.is_meant, self.is_taken = program, is_meant, is_taken
        self.is_begun = self.is_done = False

    def begin(self, lock: threading.Lock) -> None:
        """End the program, or freeze it so that it never sees the answer to its write."""
        self.is_begun = True
        if not self.is_taken:
            self.program.kill()
            self.is_done = True
            return
        # The API server drops the request of a client that hangs up.
        self.program.pause()
        threading.Timer(_WRITTEN_WITHIN_S, self._end, (lock,)).start()

    def _end(self, lock: threading.Lock) -> None:
        with lock:
            self.program.kill()
            self.is_done = True


class WriteGate:
    """Carries kills out, one for each write; a context manager."""

    def __init__(self, plane: Plane, authority: Authority) -> None:
        self._plane = plane
        self._authority = authority
        self.lock = threading.Lock()  # of whoever starts or ends one of the programs
        self.kills: list[Kill] = []
        port = free_port()
        self._url = f"https://{LOOPBACK}:{port}/"
        gate = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                review = json.loads(self.rfile.read(length))
                raw = json.dumps(gate.reviewed(review)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                pass

        pair = authority.issue("write-gate", hosts=(LOOPBACK,))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pair.cert_file, pair.key_file)
        self._server = http.server.ThreadingHTTPServer((LOOPBACK, port), Handler)
        self._server.socket = tls.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @contextmanager
    def open(self) -> Iterator["WriteGate"]:
        """Stand between the parts and the API server."""
        self._thread.start()
        try:
            self._plane.apply(self._webhook())
            yield self
        finally:
            path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
            self._plane.admin.request("DELETE", f"{path}/write-gate")
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def reviewed(self, review: Review) -> dict[str, Any]:
        """Return the answer to an AdmissionReview."""
        request = review["request"]
        with self.lock:
            due = (each for each in self.kills if not each.is_begun and each.is_meant(request))
            kill = next(due, None)
            if kill is not None:
                kill.begin(self.lock)
        is_taken = kill is None or kill.is_taken
        return {
            "apiVersion": review["apiVersion"],
            "kind": review["kind"],
            "response": {"uid": request["uid"], "allowed": is_taken},
        }

    def _webhook(self) -> dict[str, Any]:
        def rule(group: str, *resources: str) -> dict[str, Any]:
            return {
                "apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"],
                "resources": list(resources),
            }  # fmt: skip

        vpas = ("verticalpodautoscalers", "verticalpodautoscalers/status")
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "write-gate"},
            "webhooks": [
                {
                    "name": "write-gate.podscale.io",
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "clientConfig": {
                        "url": self._url,
                        "caBundle": base64.b64encode(self._authority.cert_pem).decode(),
                    },
                    "rules": [
                        rule("autoscaling.k8s.io", *vpas),
                        rule("autoscaling", "horizontalpodautoscalers/status"),
                        rule("apps", "deployments/scale"),
                    ],
                }
            ],
        }
