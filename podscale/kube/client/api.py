"""The one seam between us and the API server: ``request`` and ``stream``.

``podscale.kube.client.connect`` makes the real one; tests run it against loopback servers.
Everything else in the room (store, lease, events, REST mapping) takes an ``Api``.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import Literal, Protocol, TypedDict, Unpack

from msgspec import Struct

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

DEFAULT_TIMEOUT_S = 30.0
WATCH_OPENS_S = 10.0


class Response(Struct, frozen=True):
    """A 2xx or 304 answer."""

    status: int
    headers: Mapping[str, str]  # by names in lower case
    body: bytes


class RequestOptions(TypedDict, total=False):
    """What a request may say besides: no query, body or header, JSON and 30 s by default."""

    query: Mapping[str, str] | None
    body: bytes | None
    content_type: str
    accept: str
    headers: Mapping[str, str] | None
    timeout_s: float  # covers everything, waiting for the client-side limiter included
    most_bytes: int  # of the answer's body, beyond which ``AnswerTooLong`` is raised
    # Runs immediately before each attempt goes out, after every wait; what it raises is raised.
    guard: Callable[[], None] | None


class Api(Protocol):
    """An API server, with credentials and deadlines already arranged."""

    @property
    def user_agent(self) -> str:
        """What the server's audit log calls us; the field manager of our writes."""

    async def request(
        self, method: Method, path: str, **options: Unpack[RequestOptions]
    ) -> Response:
        """Return the answer; raises a leaf of ``ApiError`` from 400 on, or ``Unreachable``.

        ``path`` is already escaped (``podscale.kube.client.resource`` builds it). Only GET is
        ever repeated by the connection itself (429 and 503 with Retry-After, within the
        deadline), and any method once after a 401, with fresh credentials.
        """

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
        silence_s: float,
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        """Open a watch: batches of whole lines, as they arrive.

        Entering raises as ``request`` does, within ``WATCH_OPENS_S``: a watch is answered
        before anything has changed. The iteration ends when the server ends the stream or is
        silent for ``silence_s``, and raises ``ApiUnreachable`` when the stream breaks.
        """


def user_agent(part: str) -> str:
    """Return the User-Agent of one of our parts: ``podscale-hpa/0.1.0``."""
    return f"podscale-{part}/{version('podscale')}"
