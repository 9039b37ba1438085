"""An ``Api`` without a connection, for fakes that say themselves what is answered."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
from msgspec import Struct

from podscale.kube.client.api import JSON, Method, Response


class Sent(Struct, frozen=True):
    """One request as it was made."""

    method: Method
    path: str
    query: Mapping[str, str]
    body: bytes | None
    timeout_s: float
    guard: Callable[[], None] | None

    @property
    def object(self) -> Any:
        """The body, read; None where there is none."""
        return msgspec.json.decode(self.body) if self.body else None


class FakeApi:
    """Override ``reply``, and ``stream`` where something is watched."""

    user_agent = "podscale-test"

    async def request(
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
        most_bytes: int = 0,
        guard: Callable[[], None] | None = None,
    ) -> Response:
        return await self.reply(Sent(method, path, query or {}, body, timeout_s, guard))

    async def reply(self, sent: Sent) -> Response:
        """Return the answer, or raise what the client would."""
        raise NotImplementedError

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
        silence_s: float,
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        raise NotImplementedError("what is watched is put into stores by the test")


def ok(answer: Any) -> Response:
    """Return a 200 with ``answer`` as JSON."""
    return Response(200, {}, msgspec.json.encode(answer))
