"""Who is asking, and for what: certificates and tokens, a request read as far as routing and RBAC
need it, and the gate that stands before it.

The gate is open, since the demo's cluster is its user's own. Tests put RBAC and faults there.
"""

import secrets
import ssl
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from msgspec import Struct

from podscale.core.ascii_text import ascii_lower
from podscale.serving import status
from podscale.serving.auth.user import ANONYMOUS_USER, AUTHENTICATED, User
from podscale.serving.certificates.issuing import KeyPair, make_authority, make_client, make_leaf
from podscale.serving.request_info import RequestInfo, request_info
from podscale.serving.status import StatusError

_LIFE_S = 7 * 86400.0
_HOSTS = ("localhost", "127.0.0.1", "kubernetes.default.svc")


class Pki:
    """Everything signed for one sandbox."""

    def __init__(self) -> None:
        now = time.time()
        self.authority = make_authority("sandbox-ca", now=now, life_s=_LIFE_S)
        self.serving = make_leaf(self.authority, _HOSTS, now=now, life_s=_LIFE_S)
        self.front_proxy_authority = make_authority("front-proxy-ca", now=now, life_s=_LIFE_S)
        self.front_proxy = make_client(
            self.front_proxy_authority, "front-proxy-client", now=now, life_s=_LIFE_S
        )

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """Return a client certificate that logs in as ``user``."""
        return make_client(self.authority, user, groups, now=time.time(), life_s=_LIFE_S)

    def server_context(self) -> ssl.SSLContext:
        """Return the context of the server: client certificates are asked for, not required."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        with _files(self.serving) as (certificate, key):
            context.load_cert_chain(certificate, key)
        context.load_verify_locations(cadata=self.authority.certificate.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def proxy_context(self, ca_bundle: bytes | None) -> ssl.SSLContext:
        """Return the context towards an extension server; None does not verify it."""
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
        if ca_bundle is None:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cadata=ca_bundle.decode())
        with _files(self.front_proxy) as (certificate, key):
            context.load_cert_chain(certificate, key)
        return context


@contextmanager
def _files(pair: KeyPair) -> Iterator[tuple[str, str]]:
    """Lend a pair as files: the ssl module reads nothing else."""
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        yield str(certificate), str(key)


class SandboxTokens:
    """Bearer tokens that the sandbox gave out."""

    def __init__(self) -> None:
        self._users: dict[str, User] = {}

    def issue(self, name: str, *groups: str) -> str:
        """Return a new token of a user."""
        token = secrets.token_urlsafe(24)
        self._users[token] = User(name, (*groups, AUTHENTICATED))
        return token

    def issue_service_account(self, namespace: str, name: str) -> str:
        """Return a new token of a ServiceAccount."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        return self.issue(f"system:serviceaccount:{namespace}:{name}", *groups)

    def user(self, token: str) -> User | None:
        return self._users.get(token)


def authenticate(
    headers: Mapping[str, str], tokens: SandboxTokens, certificate: Mapping[str, Any] | None
) -> User:
    """Return the user of a request; raises ``StatusError`` 401 for a token nobody issued."""
    kind, _, token = headers.get("Authorization", "").partition(" ")
    if token and ascii_lower(kind) == "bearer":
        user = tokens.user(token.strip())
        if user is None:
            raise StatusError(status.unauthorized())
        return user
    if certificate:
        subject = [pair for part in certificate.get("subject", ()) for pair in part]
        names = [value for key, value in subject if key == "commonName"]
        groups = [value for key, value in subject if key == "organizationName"]
        if names:
            return User(names[0], (*groups, AUTHENTICATED))
    return ANONYMOUS_USER


class Request(Struct, frozen=True):
    """One request, read as far as routing, authorization and faults need it."""

    target: RequestInfo
    query: Mapping[str, str]
    user: User
    http: web.BaseRequest

    @property
    def verb(self) -> str:
        return self.target.verb

    @property
    def resource(self) -> str:
        """``plural[.group]``."""
        target = self.target
        return f"{target.resource}.{target.group}" if target.group else target.resource


def read_request(request: web.BaseRequest, user: User) -> Request:
    query = {key: request.query.getall(key) for key in request.query}
    path = unquote(request.raw_path.partition("?")[0])
    return Request(request_info(request.method, path, query), request.query, user, request)


class OpenGate:
    """Lets every request pass."""

    async def answer(self, request: web.BaseRequest) -> web.Response | None:
        """Return what is answered before anybody asks who sends the request; None: go on."""
        return None

    async def admit(self, asked: Request) -> None:
        """Let a request pass; raises ``StatusError`` for one that must not."""

    def is_allowed(self, user: User, attributes: Mapping[str, Any]) -> tuple[bool, str]:
        """Return whether ``user`` may do what a SubjectAccessReview asks about, and why.

        ``attributes`` are ``verb`` and ``path``, or ``verb``, ``group``, ``resource``,
        ``subresource``, ``namespace``, ``name``.
        """
        return True, "the sandbox does not enforce RBAC"

    def is_mute(self, asked: Request) -> bool:
        """Return whether a watch must say nothing now."""
        return False
