"""A real adapter to be attacked: on the sandbox, before a pretend Prometheus of two metrics.

Who attacks sends bytes of his own making and reads no more than the status.
"""

import json
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol, Self

import trustme

from tests.bench.figures import resident_mb
from tests.bench.stage import METRIC, Stage
from tests.tools.process import LOOPBACK, wait_until

MIB = 1024 * 1024
PODS = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/ns-0/pods/%2A/" + METRIC
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/ns-0/ballast"
_POD = {"namespace": "ns-0", "pod": "app-0-0"}
_SERIES = [
    {"__name__": "http_requests_total", **_POD},
    {"__name__": "ballast", "id": "0"},
]


class _PretendPrometheus(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _answer(self, asked: bytes) -> None:
        data: object = _SERIES
        if not urllib.parse.urlsplit(self.path).path.endswith("/series"):
            # When it was scraped is asked beside the value.
            value = [time.time(), str(time.time()) if b"timestamp" in asked else "7"]
            data = {"resultType": "vector", "result": [{"metric": _POD, "value": value}]}
        body = json.dumps({"status": "success", "data": data}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Certificate(Protocol):
    """Who a client is."""

    def configure_cert(self, ctx: ssl.SSLContext) -> None:
        """Present it in every handshake."""


class Attacker:
    """One client that keeps a connection for as long as it is let."""

    def __init__(self, port: int, certificate: Certificate | None = None) -> None:
        self._port = port
        self._tls = ssl._create_unverified_context()  # noqa: S323 - its self-signed certificate
        if certificate is not None:
            certificate.configure_cert(self._tls)
        self._socket: ssl.SSLSocket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def send(self, request: bytes) -> int:
        """Return the status of the answer."""
        if self._socket is None:
            plain = socket.create_connection((LOOPBACK, self._port), timeout=60)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = self._tls.wrap_socket(plain)
        self._socket.sendall(request)
        head, _, rest = self._read(b"").partition(b"\r\n\r\n")
        fields = head.lower().split(b"\r\n")
        length = next(int(f[15:]) for f in fields if f.startswith(b"content-length:"))
        while len(rest) < length:
            rest += self._socket.recv(65536)
        if b"connection: close" in fields:
            self.close()
        return int(head.split(b" ", 2)[1])

    def _read(self, data: bytes) -> bytes:
        assert self._socket is not None
        while b"\r\n\r\n" not in data:
            more = self._socket.recv(65536)
            assert more, "the connection was closed without an answer"
            data += more
        return data


class Attacked:
    """The adapter's memory, port and the certificate of its front proxy."""

    def __init__(self, stage: Stage, proxy: trustme.LeafCert) -> None:
        self._stage = stage
        self.port = stage.port
        self.token = stage.token
        self.proxy = proxy

    @property
    def memory(self) -> int:
        """Resident bytes."""
        return int(resident_mb(self._stage.adapter.pid) * 1e6)


@contextmanager
def attacked(directory: Path) -> Iterator[Attacked]:
    """Run the adapter for as long as the block."""
    proxies = trustme.CA()
    proxies.cert_pem.write_to_path(directory / "proxies.crt")
    with ThreadingHTTPServer((LOOPBACK, 0), _PretendPrometheus) as prometheus:
        thread = threading.Thread(target=prometheus.serve_forever, daemon=True)
        thread.start()
        flags = (
            f"--requestheader-client-ca-file={directory / 'proxies.crt'}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        )
        url = f"http://{LOOPBACK}:{prometheus.server_address[1]}"
        stage = Stage(
            directory, namespaces=1, apps=1, pods=1, arguments=flags, prometheus_url=url, rbac=True
        )
        with stage:
            wait_until("the metric is served", lambda: _is_served(stage), 60, (stage.adapter,))
            yield Attacked(stage, proxies.issue_cert(common_name="front-proxy-client"))
        prometheus.shutdown()
        thread.join()


def _is_served(stage: Stage) -> bool:
    return len(stage.get(PODS)["items"]) == 1
