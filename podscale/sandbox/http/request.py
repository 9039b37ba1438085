"""A request, read as far as routing and RBAC need it, and the gate that stands before it.

The gate is open, since the demo's cluster is its user's own. Tests put RBAC and faults there.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from msgspec import Struct

from podscale.serving.auth.user import User
from podscale.serving.request_info import RequestInfo, request_info


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
