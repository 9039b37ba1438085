"""The HTTP session with Prometheus, how answers are read, and what it does not put up with.

Whoever answers in Prometheus's name gets no credentials sent elsewhere, and no more turns of the
loop than one answer takes. The proxy that the environment names for a URL is found as Go's programs
find it: ``HTTPS_PROXY`` or ``HTTP_PROXY`` by the scheme, and ``NO_PROXY``; capitals come first
(``golang.org/x/net/http/httpproxy``). What runs beside us is never asked through one.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader
from yarl import URL

from podscale.core.pace import LoopPace
from podscale.core.showable import is_same_origin, shown_url
from podscale.feed.decoding.splitter import PAGE_BYTES, Splitter
from podscale.feed.decoding.wire import DECODE_ERRORS
from podscale.feed.http import refusals
from podscale.feed.http.series import SeriesReader
from podscale.feed.options import PrometheusOptions

_PORTS = {"http": "80", "https": "443"}


def proxy_of(options: PrometheusOptions, environ: Mapping[str, str]) -> URL | None:
    """Return the proxy between us and Prometheus; ``None``: none. Raises as ``proxy_for``.

    Upstream's transport with a CA file of its own knows no proxy.
    """
    return None if options.ca_file is not None else proxy_for(options.url, environ)


def proxy_for(url: str, environ: Mapping[str, str]) -> URL | None:
    """Return the proxy for an http or https URL, with its user and password; ``None``: none.

    Raises ValueError for a proxy that cannot be used; its text holds no password.
    """
    parts = urlsplit(url)
    variable = f"{parts.scheme.upper()}_PROXY"
    named = _either(environ, variable)
    if not named or parts.hostname is None:
        return None
    port = str(parts.port or _PORTS[parts.scheme])
    if not _is_proxied(parts.hostname.lower(), port, _either(environ, "NO_PROXY")):
        return None
    try:
        proxy = URL(named if "://" in named else f"http://{named}")
    except (ValueError, IndexError):  # the latter is yarl's word for brackets and no host
        raise ValueError(
            f"{variable} is not the URL of a proxy; write one like http://proxy.example:3128, or "
            f"{parts.hostname} in NO_PROXY"
        ) from None
    if proxy.scheme not in ("http", "https") or not proxy.host:
        raise ValueError(
            f"{variable}={shown_url(named)}: only http and https proxies can be used; "
            f"name one, or {parts.hostname} in NO_PROXY"
        )
    return proxy


def _either(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.lower()) or ""


def _is_proxied(host: str, port: str, exceptions: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    written = (each.strip().lower() for each in exceptions.split(","))
    return not any(_is_met(each, host, port, address) for each in written if each)


def _is_met(
    exception: str, host: str, port: str, address: IPv4Address | IPv6Address | None
) -> bool:
    """Whether one entry of ``NO_PROXY`` is about the host."""
    if exception == "*":
        return True
    if "/" in exception:
        try:
            return address is not None and address in ip_network(exception, strict=False)
        except ValueError:
            return False
    named, its_port = _split(exception)
    if its_port and its_port != port:
        return False
    if (its_address := _address(named)) is not None:
        return its_address == address
    domain = named.removeprefix("*")
    if domain.startswith("."):
        return host.endswith(domain)
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _split(text: str) -> tuple[str, str]:
    """Return host and port of an entry; an IPv6 address without brackets has no port."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":")
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, port
    return text, ""


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


MOST_INTERIM = 16  # answers 1xx before the one that was asked for
_REFUSAL_LIMIT = 64 * 1024
_UNSPLIT_LIMIT = 64 * 1024 * 1024  # of a streamed answer without borders between its entries
T = TypeVar("T")
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
        factory: Callable[..., ResponseHandler] = _Protocol
        self._factory = partial(factory, self._loop)


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


class AnswerReader(Protocol):
    """Takes an answer page by page."""

    page_bytes: int

    def page(self, page: bytes) -> None: ...


class WholeText:
    """Keeps the answer together: one text has no entries to read page by page."""

    page_bytes = PAGE_BYTES

    def page(self, page: bytes) -> None:
        """Refuse a page; a body that holds one is not the one asked for."""
        raise ValueError("entries where a text was asked for")


async def beginning(content: aiohttp.StreamReader) -> bytes:
    """Return so much of a refusal as is read."""
    # What one read gives may be the first half of a refusal, which then reads as nonsense.
    body = b""
    while len(body) < _REFUSAL_LIMIT and (chunk := await content.readany()):
        body += chunk
    return body


async def read_answer(
    content: aiohttp.StreamReader, reader: AnswerReader, limit: int | None
) -> bytes:
    """Hand the pages of an answer to ``reader``; return what is left without them."""
    series = reader if isinstance(reader, SeriesReader) else None
    splitter = Splitter(reader.page_bytes, None if series is None else series.leave_out)
    received, pace = 0, LoopPace()
    async for chunk in content.iter_chunked(reader.page_bytes):
        received += len(chunk)
        if limit is not None and received > limit:
            raise refusals.error("oversize", f"more than {limit} bytes")
        page = splitter.feed(chunk)
        if page is not None:
            decoded(reader.page, page)
            if series is not None:
                await pace.through(series.look_closer())
        elif splitter.held > _UNSPLIT_LIMIT:
            raise refusals.error("oversize", "an answer without borders between entries")
        elif splitter.held < reader.page_bytes:
            continue  # nothing was done with it yet
        await pace.rest()  # chunks that have arrived already do not yield by themselves
    return splitter.rest()


def decoded(decode: Callable[[bytes], T], document: bytes) -> T:
    """Return what ``decode`` makes of it; raises ``QueryError`` where it makes nothing."""
    try:
        return decode(document)
    except DECODE_ERRORS as error:
        raise refusals.error("nonsense", str(error)) from error
