"""What stands before every request: nothing here, since the demo's cluster is its user's own.

Tests put RBAC and faults here.
"""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from podscale.sandbox.http.request import Request
from podscale.serving.auth.user import User


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
