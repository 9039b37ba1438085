"""What may stand behind kube-aggregator: HTTPS on the loopback, for the front proxy alone."""

import http.server
import ssl
import threading
from http.server import BaseHTTPRequestHandler
from typing import Self

from tests.cluster.pki import Authority, KeyPair
from tests.tools.process import LOOPBACK, free_port


class AggregatedServer:
    """A thread for each connection; ``handle`` answers a GET."""

    def __init__(self, serving: KeyPair, front_proxy_ca: Authority) -> None:
        self.port = free_port()
        handle = self.handle

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                handle(self)

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

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one GET, by ``send``."""
        raise NotImplementedError


def user_of(request: BaseHTTPRequestHandler) -> str:
    """Return for whom the API server asks."""
    return request.headers.get("X-Remote-User", "")


def send(request: BaseHTTPRequestHandler, status: int, raw: bytes) -> None:
    """Send ``raw``, which is JSON."""
    head = (
        f"HTTP/1.1 {status} told\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(raw)}\r\n\r\n"
    )
    request.wfile.write(head.encode() + raw)
