"""Who is asking: bearer tokens, client certificates, impersonation, anonymous."""

import secrets
import ssl
from collections.abc import Mapping
from typing import Any

from podscale.core.ascii_text import ascii_lower
from podscale.serving import status
from podscale.serving.auth.user import ANONYMOUS_USER, AUTHENTICATED, User
from podscale.serving.status import StatusError


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


def peer_certificate(connection: ssl.SSLObject | None) -> Mapping[str, Any] | None:
    """Return the verified client certificate of a TLS connection, if it gave one."""
    return connection.getpeercert() if connection is not None else None
