"""What a product registers with the server, and what passes between the two.

``ApiGroup`` serves everything below ``/apis/<group>/<version>``; ``Route`` serves one
path outside the APIs (a webhook, the page). The server has authenticated, authorized (but
for public routes) and parsed the request before a handler sees it, and encodes, compresses
and counts the answer after it.
"""

from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import UNSET, Struct, UnsetType

from podscale.serving.auth.authorization import Permission
from podscale.serving.auth.user import User
from podscale.serving.http.parser import SMALL_BODY
from podscale.serving.request_info import RequestInfo
from podscale.serving.status import Status


class Media(Struct, frozen=True, gc=False):
    """How the client wants its answer, after negotiation."""

    content_type: str = "application/json"  # or "application/yaml"
    as_table: bool = False  # only where the group offers tables
    is_pretty: bool = False


def nobody(_: RequestInfo) -> Permission:
    """Return a denial: without an authorizer nothing more is allowed."""
    return Permission(False, "no authorizer to ask")


class ApiRequest(Struct, frozen=True, gc=False):
    """One request, authenticated and authorized unless its route is public."""

    method: str
    path: str  # decoded, without the query
    info: RequestInfo  # group, version, namespace, resource, name, subresource, verb
    query: Mapping[str, Sequence[str]]  # decoded; every value of a repeated key, in order
    headers: Mapping[str, str]  # keys in lower case; repeated headers joined by ","
    body: bytes
    user: User
    media: Media
    deadline_s: float  # loop time (``asyncio.get_running_loop().time()``) of the 504
    # What ``user`` may do besides ``info``: for an answer that reaches beyond it. Raises
    # ``ReviewFailed`` when awaited.
    review: Callable[[RequestInfo], Permission | Coroutine[Any, Any, Permission]] = nobody

    def parameter(self, name: str) -> str:
        """Return the first value of a query parameter, "" when absent (Go's ``Get``)."""
        values = self.query.get(name)
        return values[0] if values else ""


class ApiResponse(Struct, frozen=True, gc=False):
    """An answer: JSON bytes, a value to encode, or other bytes with their own type.

    JSON goes out as YAML or indented when the client asked for it, so a handler looks at
    ``media.as_table`` only. ``content_type`` set means: send ``body``
    as it is.
    """

    body: bytes = b""
    status: int = 200
    value: Any = UNSET  # encoded with msgspec instead of ``body``
    content_type: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, status: Status) -> "ApiResponse":
        """Return the answer that carries ``status``, with Retry-After where it has one."""
        retry = 0 if isinstance(status.details, UnsetType) else status.details.retry_after_seconds
        headers = (("Retry-After", str(retry)),) if retry else ()
        return cls(body=status.json(), status=status.code, headers=headers)


Answered = ApiResponse | Status
Handler = Callable[[ApiRequest], Answered | Awaitable[Answered]]


class ApiResource(Struct, frozen=True, gc=False, rename="camel"):
    """One entry of an APIResourceList; the field order is the order on the wire."""

    name: str  # "pods", or "pods/http_requests" for a subresource
    singular_name: str
    namespaced: bool
    kind: str
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] | UnsetType = UNSET
    categories: tuple[str, ...] | UnsetType = UNSET


class ApiGroup(Protocol):
    """One API group, served in all its versions by one product."""

    @property
    def name(self) -> str:
        """The group: ``custom.metrics.k8s.io``."""

    @property
    def versions(self) -> Sequence[str]:
        """Served versions, the preferred one first."""

    @property
    def offers_table(self) -> bool:
        """Whether handlers answer ``as=Table``; otherwise the next media type is taken."""

    def revision(self) -> Hashable:
        """A value that changes whenever ``resources`` would: discovery re-encodes then only."""

    def resources(self, version: str) -> Sequence[ApiResource]:
        """Known resources, any order, no duplicates. Empty: a placeholder is listed.

        Called in a thread of its own, ``revision`` before it and on the loop.
        """

    def schemas(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        """OpenAPI v3 schemas by definition name (``io.k8s.metrics.…``); may be empty."""

    def paths(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        """OpenAPI v3 path items below ``/apis/<group>/<version>``; may be empty."""

    def handle(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        """Answer a request below ``/apis/<group>/<version>/``, any method.

        Returning the answer itself instead of an awaitable saves a task: do so when
        it is at hand. ``status.path_not_found()`` and ``status.method_not_allowed()``
        are the answers for what the group does not know. An exception becomes a 500
        whose text does not show it.
        """


class Route(Struct, frozen=True):
    """One path outside the APIs.

    A body is read before it is known who sends it, so strangers could fill our memory in somebody
    else's name: behind authentication, large ones are taken with a client certificate only.
    """

    path: str  # exact, or a prefix when it ends in "/*"
    handler: Handler
    methods: tuple[str, ...] = ("GET",)
    is_public: bool = False  # True: neither authentication nor authorization (webhooks)
    is_listed: bool = True  # in the index at "/"
    body_limit: int = SMALL_BODY  # bytes; beyond it a request gets 413
