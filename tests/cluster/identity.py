"""Who talks to the plane: an identity, its kubeconfig file, and a plain client for it.

The client is the tests' own and knows nothing of podscale, so that it can be the
judge of what podscale serves. It blocks: call it from an async test in a thread.
"""

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.pki import KeyPair
from tests.tools.process import LOOPBACK

REQUEST_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Identity:
    """A certificate, a bearer token, or neither (anonymous)."""

    name: str
    port: int
    ca_file: Path
    cert: KeyPair | None = None
    token: str | None = None

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self.port}"

    def write_kubeconfig(self, path: Path, *, namespace: str = "default") -> Path:
        """Write a kubeconfig for this identity alone; JSON, which every reader of YAML takes."""
        user: dict[str, str] = {}
        if self.cert:
            user["client-certificate"] = str(self.cert.cert_file)
            user["client-key"] = str(self.cert.key_file)
        if self.token:
            user["token"] = self.token
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
        context = {"cluster": "plane", "user": self.name, "namespace": namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "plane",
            "clusters": [{"name": "plane", "cluster": cluster}],
            "users": [{"name": self.name, "user": user}],
            "contexts": [{"name": "plane", "context": context}],
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=1))
        return path


@dataclass(frozen=True)
class Answer:
    """What the API server said, whatever the status."""

    status: int
    headers: Mapping[str, str]  # lower-case names
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class RefusedError(Exception):
    """A request that was meant to succeed did not; ``status`` and ``body`` say why."""

    def __init__(self, method: str, path: str, answer: Answer) -> None:
        super().__init__(
            f"{method} {path}: {answer.status} {answer.raw[:1000].decode(errors='replace')}"
        )
        self.status = answer.status
        self.body = answer.raw


class Client:
    """Requests as one identity; every request has its own connection and a deadline."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._tls = ssl.create_default_context(cafile=str(identity.ca_file))
        if identity.cert:
            self._tls.load_cert_chain(identity.cert.cert_file, identity.cert.key_file)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Answer:
        """Send one request and return the answer, errors included; bytes are sent as they are."""
        sent = {"Accept": "application/json", **(headers or {})}
        if self.identity.token:
            sent["Authorization"] = f"Bearer {self.identity.token}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPSConnection(
            LOOPBACK, self.identity.port, context=self._tls, timeout=timeout_s
        )
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            raw = response.read()
        except http.client.HTTPException as broken:
            raise ConnectionError(f"{method} {path}: {broken!r}") from broken
        finally:
            connection.close()
        return Answer(
            response.status, {name.lower(): value for name, value in response.getheaders()}, raw
        )

    def get(self, path: str) -> Any:
        return self._wanted("GET", path)

    def post(self, path: str, body: object) -> Any:
        return self._wanted("POST", path, body)

    def put(self, path: str, body: object) -> Any:
        return self._wanted("PUT", path, body)

    def patch(
        self, path: str, body: object, content_type: str = "application/merge-patch+json"
    ) -> Any:
        return self._wanted("PATCH", path, body, {"Content-Type": content_type})

    def delete(self, path: str) -> Any:
        return self._wanted("DELETE", path)

    def _wanted(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        answer = self.request(method, path, body, headers)
        if answer.status >= 400:
            raise RefusedError(method, path, answer)
        return answer.body
