"""What a request asks for, in the words of RBAC."""

from collections.abc import Mapping
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
