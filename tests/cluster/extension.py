"""The smallest server that may stand behind kube-aggregator: it serves given JSON by path."""

import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler

from tests.cluster.aggregated import AggregatedServer, send, user_of
from tests.cluster.pki import Authority, KeyPair


class ExtensionServer(AggregatedServer):
    """Remembers who asked."""

    def __init__(self, serving: KeyPair, front_proxy_ca: Authority, paths: Mapping[str, object]):
        super().__init__(serving, front_proxy_ca)
        self.seen: list[tuple[str, str]] = []  # path, user
        self._paths = paths

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        self.seen.append((path, user_of(request)))
        raw = json.dumps(self._paths.get(path, {})).encode()
        send(request, 200 if path in self._paths else 404, raw)
