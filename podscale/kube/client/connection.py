"""An ``Api`` over HTTP: one aiohttp session, a deadline on every request."""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Self
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from podscale.kube.client.api import DEFAULT_TIMEOUT_S, JSON, WATCH_OPENS_S, Api, Method, Response
from podscale.kube.client.credentials import Credentials, Identity
from podscale.kube.client.errors import AnswerTooLong, ApiError, ApiUnreachable
from podscale.kube.client.resource import LEASES
from podscale.kube.client.wire import WireStatusDetails, decode


class Limiter:
    """A token bucket; those who wait are served in order."""

    def __init__(self, qps: float, burst: int) -> None:
        """``qps`` 0 or less is no limit; ``burst`` at least 1."""
        self._interval_s = 1.0 / qps if qps > 0 else 0.0
        self._slack_s = self._interval_s * (max(burst, 1) - 1)
        self._next = float("-inf")  # loop time at which the bucket would be just full enough
        self._head = asyncio.Lock()  # passed on in order

    async def wait(self) -> None:
        """Return when the next request may go out. Who gives up before has taken nothing."""
        if not self._interval_s:
            return
        async with self._head:
            now = asyncio.get_running_loop().time()
            # The virtual schedule runs ahead of the clock by at most the burst.
            due = max(self._next, now - self._slack_s)
            if due > now:
                await asyncio.sleep(due - now)
            self._next = due + self._interval_s


_CONNECT_S = 10.0
_TLS_SETTING = re.compile(r" ssl:(?:default|True|False|\[?<[^<>]*>\]?)")
# The form with a date is not read, nor what Python takes for a number besides: nan, inf, 1_0.
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]*)?")
_LEASES = f"/apis/{LEASES.group}/"
# kube-apiserver closes idle connections after 90 s. A write on one that is just being
# closed fails without having been tried, so ours are given up earlier.
_KEEPALIVE_S = 60.0
_LINE_LIMIT = 16 << 20  # etcd takes 1.5 MB an object; a line beyond this is not a watch event


_guard: ContextVar[Callable[[], None] | None] = ContextVar("guard", default=None)


class _GuardedRequest(aiohttp.ClientRequest):
    """Calls the guard of its task when the connection stands and nothing has been written to it:
    the last moment at which a write can be stopped, at every attempt (aiohttp repeats a PUT by
    itself when the server had closed an idle connection). A trace would cost a fifth of a request.
    """

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Send it, unless the guard raises."""
        guard = _guard.get()
        if guard is not None:
            guard()
        return await super().send(conn)


class Connection:
    """The real ``Api``. Use as an async context manager."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        user_agent: str,
        impersonate: str = "",
        impersonate_groups: tuple[str, ...] = (),
        limiter: Limiter | None = None,
        most_bytes: int = 0,
        most_at_once: int = 0,
    ) -> None:
        """``most_bytes`` bounds the body of one answer, ``most_at_once`` the requests under way:
        others wait for their turn, within their deadlines. 0: no bound.
        """
        self._most_bytes = most_bytes
        self._most_at_once = most_at_once
        self._credentials = credentials
        self.user_agent = user_agent
        self._extra = [("Impersonate-Group", group) for group in impersonate_groups]
        if impersonate:
            self._extra.append(("Impersonate-User", impersonate))
        self._limiter = limiter
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._most_at_once, keepalive_timeout=_KEEPALIVE_S
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            request_class=_GuardedRequest,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
        self._session = None

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
        timeout_s: float = DEFAULT_TIMEOUT_S,
        most_bytes: int = 0,
        guard: Callable[[], None] | None = None,
    ) -> Response:
        """Return the answer; see ``Api.request``."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        sent = dict(headers or {})
        sent["Accept"] = accept
        if body is not None:
            sent["Content-Type"] = content_type
        with _translated(method, path, timeout_s):
            async with asyncio.timeout_at(deadline):
                while True:
                    try:
                        async with contextlib.AsyncExitStack() as stack:
                            answer = await self._open(
                                stack, deadline, method, path, query, body, sent, guard
                            )
                            most = most_bytes or self._most_bytes
                            content = await self._body(answer, method, path, most)
                            return Response(answer.status, answer.headers, content)
                    except ApiError as error:
                        pause_s = error.retry_after_s
                        if method != "GET" or error.status not in (429, 503) or pause_s is None:
                            raise
                        if asyncio.get_running_loop().time() + pause_s >= deadline:
                            raise
                    await asyncio.sleep(pause_s)

    async def _body(
        self, answer: aiohttp.ClientResponse, method: str, path: str, most: int
    ) -> bytes:
        if not most:
            return await answer.read()
        body = bytearray()
        async for chunk in answer.content.iter_any():
            body += chunk
            if len(body) > most:
                raise AnswerTooLong(f"{method} {path}: more than {most} bytes")
        return bytes(body)

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
        silence_s: float,
    ) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Open a watch; see ``Api.stream``."""
        async with contextlib.AsyncExitStack() as stack:
            opens_s = min(silence_s, WATCH_OPENS_S)
            with _translated("GET", path, opens_s):
                deadline = asyncio.get_running_loop().time() + opens_s
                async with asyncio.timeout_at(deadline):
                    sent = {"Accept": accept}
                    answer = await self._open(stack, deadline, "GET", path, query, None, sent, None)
            yield _lines(answer, path, silence_s)

    async def _open(
        self,
        stack: contextlib.AsyncExitStack,
        deadline: float,
        method: Method,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        headers: Mapping[str, str],
        guard: Callable[[], None] | None,
    ) -> aiohttp.ClientResponse:
        """Return an answer below 400, after a 401 once with fresh credentials; raises others."""
        identity = await self._credentials.current()
        for is_last in (False, True):
            await self._turn(method, path, deadline)
            answer = await stack.enter_async_context(
                self._send(identity, method, path, query, body, headers, guard)
            )
            if answer.status < 400:
                break
            error = _error(
                answer, await self._body(answer, method, path, self._most_bytes), identity
            )
            if error.status != 401 or is_last:
                raise error
            identity = await self._credentials.renew()
        return answer

    async def _turn(self, method: str, path: str, deadline: float) -> None:
        """Wait for the limiter. Leases pass it: behind many reads a renewal loses the term."""
        if self._limiter is None or path.startswith(_LEASES):
            return
        now = asyncio.get_running_loop().time()
        try:
            # In overload the first in line is always the one with least time left: without a
            # share kept for the answer, each request would go out just to be given up.
            async with asyncio.timeout_at(now + (deadline - now) / 2):
                await self._limiter.wait()
        except TimeoutError as error:
            text = f"{method} {path}: not sent, too many wait for the limit of requests"
            raise ApiUnreachable(text, is_timeout=True) from error

    def _send(
        self,
        identity: Identity,
        method: Method,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        headers: Mapping[str, str],
        guard: Callable[[], None] | None,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._session is None:
            raise ApiUnreachable("the connection is closed")
        _guard.set(guard)
        all_headers = CIMultiDict(self._extra)
        all_headers.update(identity.headers)
        all_headers.update(headers)
        all_headers["User-Agent"] = self.user_agent
        # Compressing costs the API server more than the network inside a cluster is worth.
        all_headers["Accept-Encoding"] = "identity"
        asked = f"?{urlencode(query, quote_via=quote)}" if query else ""
        return self._session.request(
            method,
            URL(f"{identity.server}{path}{asked}", encoded=True),
            data=body,
            headers=all_headers,
            ssl=identity.tls if identity.tls is not None else True,
            server_hostname=identity.server_hostname,
            proxy=identity.proxy,
            allow_redirects=False,
        )


async def _lines(
    answer: aiohttp.ClientResponse, path: str, silence_s: float
) -> AsyncIterator[list[bytes]]:
    rest = b""
    while True:
        with _translated("GET", path, silence_s):
            chunk = b""
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(silence_s):
                    chunk = await answer.content.readany()
        if not chunk:
            return  # a line without its end was cut off: the next watch brings it again
        if b"\n" not in chunk:
            rest += chunk
            if len(rest) > _LINE_LIMIT:
                raise ApiUnreachable(f"GET {path}: a line of more than {_LINE_LIMIT} bytes")
            continue
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        yield [line for line in lines if line]


@contextlib.contextmanager
def _translated(method: str, path: str, timeout_s: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        text = f"{method} {path}: no answer within {timeout_s:g} s"
        raise ApiUnreachable(text, is_timeout=True) from error
    except asyncio.CancelledError as error:
        # When a connection is closed, aiohttp cancels the futures of those who wait for a place.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ApiUnreachable(f"{method} {path}: the connection is closed") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise ApiUnreachable(f"{method} {path}: {_words(error)}") from error


def _error(answer: aiohttp.ClientResponse, content: bytes, identity: Identity) -> ApiError:
    try:
        status = decode(content, WireStatusDetails)
    except msgspec.DecodeError:  # not every proxy in between speaks Status
        text = content[:300].decode(errors="replace").strip() or answer.reason or ""
        if text.startswith("404 page not found"):  # Go's words for a path that nobody serves
            text = "the server has no such resource (is its CRD or APIService installed?)"
        else:
            text = f"{answer.status} {text}"
        status = WireStatusDetails(message=f"{answer.method} {answer.url.path}: {text}")
    asked = answer.headers.get("Retry-After", "")
    retry_after = float(asked) if _SECONDS.fullmatch(asked) else None
    if retry_after is None and status.details and status.details.retry_after_seconds:
        retry_after = float(status.details.retry_after_seconds)
    message = status.message
    if answer.status == 401 and identity.refused:
        message = f"{message or 'Unauthorized'}: {identity.refused}"
    return ApiError.of(
        answer.status,
        status.reason,
        message,
        causes=(status.details and status.details.causes) or (),
        retry_after_s=retry_after,
    )


def _check(connection: Connection) -> Api:
    return connection  # mypy proves here that the Protocol is met


def _words(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(
        error, aiohttp.ClientSSLError
    ):
        # asyncio's text holds the address as a tuple, or one text for each address of a name.
        cause = error.os_error
        number = cause.errno or 0  # names that are not found have negative ones
        why = os.strerror(number).lower() if number > 0 else cause.strerror or str(cause)
        return f"no connection to {error.host}:{error.port}: {why}"
    # aiohttp shows the TLS setting it was given, which is an object of Python.
    return _TLS_SETTING.sub("", str(error)) or type(error).__name__
