"""The smallest server that may stand behind kube-aggregator: it serves given JSON by path."""

import http.server
import json
import ssl
import threading
from collections.abc import Mapping
from typing import Self

from tests.cluster.pki import Authority, KeyPair
from tests.tools.process import LOOPBACK, free_port


class ExtensionServer:
    """HTTPS on the loopback, for clients of the front proxy's CA only; remembers who asked."""

    def __init__(self, serving: KeyPair, front_proxy_ca: Authority, paths: Mapping[str, object]):
        self.port = free_port()
        self.seen: list[tuple[str, str]] = []  # path, X-Remote-User
        seen = self.seen

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                seen.append((path, self.headers.get("X-Remote-User", "")))
                raw = json.dumps(paths.get(path, {})).encode()
                self.send_response(200 if path in paths else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

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
