"""A blocking client for a sandbox that runs on another thread's loop."""

import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from podscale.sandbox.server import SandboxServer
from tests.integration.sandbox_contract import Send


def sender(server: SandboxServer) -> Send:
    """Return what sends one request as the administrator."""
    address = urlsplit(server.url)

    def send(method: str, path: str, body: object, headers: Mapping[str, str]) -> tuple[int, Any]:
        sent = {
            "Authorization": f"Bearer {server.admin_token}",
            "Accept": "application/json",
            **({} if body is None else {"Content-Type": "application/json"}),
            **headers,
        }
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        try:
            return response.status, json.loads(raw)
        except json.JSONDecodeError:
            return response.status, raw.decode()

    return send
