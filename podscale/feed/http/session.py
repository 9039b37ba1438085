"""The HTTP session with Prometheus, and what it does not put up with.

Whoever answers in Prometheus's name gets no credentials sent elsewhere, and no more turns of
the loop than one answer takes.
"""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader

from podscale.core.showable import is_same_origin
from podscale.feed.http import refusals

MOST_INTERIM = 16  # answers 1xx before the one that was asked for
_HEAD_BYTES = 4 * 1024  # read at once until that one begins


def session(connections: int) -> aiohttp.ClientSession:
    """Return a session for so many connections; to be closed."""
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(_stay_at_origin)
    return aiohttp.ClientSession(
        connector=_Connector(limit=connections),
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"User-Agent": "podscale", "Accept": "application/json"},
        cookie_jar=aiohttp.DummyCookieJar(),
        trace_configs=[trace],
    )


async def _stay_at_origin(
    _session: aiohttp.ClientSession,
    _context: SimpleNamespace,
    found: aiohttp.TraceRequestRedirectParams,
) -> None:
    # aiohttp leaves away Authorization only, and a token may be in any header.
    headers = found.response.headers
    target = headers.get("Location") or headers.get("URI") or ""
    if not is_same_origin(str(found.response.url), target):
        raise refusals.error(
            "nonsense",
            f"{found.response.status}: a redirect to another scheme, host or port is not followed "
            "(it would be sent the credentials): name the place itself in --prometheus-url",
        )


class _Connector(aiohttp.TCPConnector):
    def __init__(self, limit: int) -> None:
        super().__init__(limit=limit)
        self._factory = partial(_protocol, self._loop)


class _Protocol(ResponseHandler):
    """Ends a connection on which interim answers do not end: aiohttp takes thousands of them in
    one turn of the loop, and waits on.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._interim = 0
        self._is_before_answer = False

    def set_response_params(self, **params: Any) -> None:
        """Begin with the answer to another request."""
        self._interim, self._is_before_answer = 0, True
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """Take what has come; until an answer begins, little at a time."""
        while self._is_before_answer and len(data) > _HEAD_BYTES:
            super().data_received(data[:_HEAD_BYTES])
            data = data[_HEAD_BYTES:]
        if self._interim <= MOST_INTERIM:
            super().data_received(data)

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Queue one message, unless too many interim ones have come."""
        if not 100 <= data[0].code < 200 or data[0].code == 101:
            self._is_before_answer = False
        else:
            self._interim += 1
        if self._interim <= MOST_INTERIM:
            super().feed_data(data, size)
        elif self._interim == MOST_INTERIM + 1:
            self._is_before_answer = False
            self.set_exception(ValueError(f"more than {MOST_INTERIM} interim answers (1xx)"))
            if self.transport is not None:
                self.transport.close()


def _protocol(loop: asyncio.AbstractEventLoop) -> ResponseHandler:
    return _Protocol(loop)
