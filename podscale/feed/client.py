"""Prometheus over HTTP: one request in, a decoded answer or a ``QueryError`` out.

Every request has a deadline and a bound on its body. Answers are cut into pages while
they arrive, and the loop runs between pages. Retrying, sharing and limiting how many run
at once is the feed's business.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol, Self, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import aiohttp
import msgspec
import structlog
from msgspec import Struct
from yarl import URL

from podscale.feed import refusals
from podscale.feed.credentials import Credentials
from podscale.feed.options import PrometheusOptions, Verb
from podscale.feed.pace import Pace
from podscale.feed.splitter import PAGE_BYTES, Splitter
from podscale.feed.wire import (
    DECODE_ERRORS,
    Answer,
    SeriesReader,
    VectorReader,
    last_series_entries,
    series_entries,
)

# Longer queries go by POST unless GET was asked for: proxies commonly end URLs at 8 KiB, and
# names are percent-encoded.
GET_LIMIT = 2048
_REFUSAL_LIMIT = 64 * 1024
_UNSPLIT_LIMIT = 64 * 1024 * 1024  # of a streamed answer without borders between its entries

SeriesNames = Mapping[str, frozenset[frozenset[str]]]  # name -> the sets of label names seen

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Series(Struct, frozen=True):
    """What discovery knows of a selector: label names, not values."""

    names: SeriesNames
    count: int  # series, not names
    is_partial: bool = False  # a store behind Prometheus did not answer


class _Reader(Protocol):
    page_bytes: int

    def page(self, page: bytes) -> None: ...


class _Whole:
    """Keeps the answer together: one text has no entries to read page by page."""

    page_bytes = PAGE_BYTES

    def page(self, page: bytes) -> None:
        """Refuse a page; a body that holds one is not the one asked for."""
        raise ValueError("entries where a text was asked for")


class _Configuration(Struct, frozen=True):
    class _Data(Struct, frozen=True):
        yaml: str = ""

    data: _Data = _Data()


class _Enough(Exception):
    """The reader has what it wanted; the rest of the answer need not arrive."""


class _FirstSeries:
    """Keeps the first entries, with their values."""

    page_bytes = PAGE_BYTES

    def __init__(self, limit: int) -> None:
        self.found: list[dict[str, str]] = []
        self._limit = limit

    def page(self, page: bytes) -> None:
        """Take entries; raises ``_Enough`` when the last one wanted has come."""
        self.found += series_entries(page)[: self._limit - len(self.found)]
        if len(self.found) >= self._limit:
            raise _Enough

    def end(self, rest: bytes) -> None:
        """Take the entries of an answer that fitted one page."""
        self.found += last_series_entries(rest)[: self._limit - len(self.found)]


class PrometheusClient:
    """Queries and series of one Prometheus. An async context manager."""

    def __init__(self, options: PrometheusOptions) -> None:
        """Prepare; raises ValueError for a URL that cannot be one."""
        self.options = options
        parts = urlsplit(options.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{options.url!r} is not an http or https URL with a host")
        self.is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        self._base = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
        # As prometheus-adapter: parameters of the URL survive with POST only.
        self._extra = parse_qsl(parts.query) if options.verb == "POST" else []
        self._credentials = Credentials(
            options, lambda error: log.warning("credentials not read again", error=str(error))
        )
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Read the credentials and open; raises OSError for unreadable files."""
        await self._credentials.refresh()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.options.connections),
            timeout=aiohttp.ClientTimeout(total=None),
            headers={"User-Agent": "podscale", "Accept": "application/json"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def query(
        self,
        promql: str,
        time_s: float,
        *,
        verb: Verb | None = None,
        compress: bool = False,
        is_raw: bool = False,
    ) -> Answer:
        """Return the instant answer at ``time_s``; raises ``QueryError``.

        ``verb`` is what to use where the options leave it open. ``compress`` allows gzip: it
        costs Prometheus twice the CPU of a small answer, so it is for large remote ones.
        ``is_raw`` leaves a vector's label sets undecoded (``Answer.labelled``).
        """
        deadline_s = self.options.deadline_s
        # Prometheus gives up first, so that "too much work" and "not there" can be told apart.
        patience_s = max(deadline_s - 1.0, deadline_s / 2)
        fields = [("query", promql), ("time", format_time(time_s)), ("timeout", f"{patience_s:g}")]
        chosen: Verb = self.options.verb or verb or ("GET" if len(promql) <= GET_LIMIT else "POST")
        reader = VectorReader(is_raw=is_raw)
        rest = await self._exchange(
            chosen,
            "/api/v1/query",
            fields,
            reader,
            deadline_s,
            self.options.body_limit_bytes,
            compress,
        )
        return _decoded(reader.end, rest)

    async def series(self, match: str, start_s: float) -> Series:
        """Return the names and label names of the series that ``match`` selects since
        ``start_s``; raises ``QueryError``. Streams: the body is never held whole.
        """
        reader = SeriesReader()
        fields = [("match[]", match), ("start", format_time(start_s))]
        rest = await self._exchange(
            self.options.verb or "GET",
            "/api/v1/series",
            fields,
            reader,
            self.options.series_deadline_s,
            None,
            not self.is_local,
        )
        is_partial = _decoded(reader.end, rest)
        return Series(reader.names(), reader.count, is_partial)

    async def sample_series(
        self, match: str, start_s: float | None, limit: int
    ) -> list[dict[str, str]]:
        """Return up to ``limit`` label sets that ``match`` selects since ``start_s`` (``None``:
        ever); raises ``QueryError``. For people's eyes: servers that know no ``limit`` are
        stopped in the middle of their answer.
        """
        reader = _FirstSeries(limit)
        fields = [("match[]", match), ("limit", str(limit))]
        if start_s is not None:
            fields.append(("start", format_time(start_s)))
        with contextlib.suppress(_Enough):
            rest = await self._exchange(
                self.options.verb or "GET",
                "/api/v1/series",
                fields,
                reader,
                self.options.series_deadline_s,
                None,
                not self.is_local,
            )
            _decoded(reader.end, rest)
        return reader.found

    async def configuration(self) -> str:
        """Return the server's configuration as it writes it (YAML); raises ``QueryError``."""
        rest = await self._exchange(
            "GET",
            "/api/v1/status/config",
            [],
            _Whole(),
            self.options.deadline_s,
            self.options.body_limit_bytes,
            not self.is_local,
        )
        return _decoded(msgspec.json.Decoder(_Configuration).decode, rest).data.yaml

    async def _exchange(
        self,
        verb: Verb,
        path: str,
        fields: list[tuple[str, str]],
        reader: _Reader,
        deadline_s: float,
        limit: int | None,
        compress: bool,
    ) -> bytes:
        """Send; hand whole pages to ``reader``; return the rest of the document."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._credentials.refresh()
                try:
                    return await self._send(verb, path, fields, reader, limit, compress)
                except aiohttp.ServerDisconnectedError:
                    # A kept connection that died while idle, as after a restart of Prometheus.
                    # aiohttp tries again for GET only; our POSTs are reads as well.
                    return await self._send(verb, path, fields, reader, limit, compress)
        except TimeoutError:
            raise refusals.error("deadline", f"after {deadline_s:g} s") from None
        except (aiohttp.ClientPayloadError, aiohttp.http.HttpProcessingError) as error:
            raise refusals.error("nonsense", str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise refusals.of_connection(error) from error

    async def _send(
        self,
        verb: Verb,
        path: str,
        fields: list[tuple[str, str]],
        reader: _Reader,
        limit: int | None,
        compress: bool,
    ) -> bytes:
        assert self._session is not None, "enter the client first"  # noqa: S101
        form = urlencode([*self._extra, *fields])
        headers = {
            **self._credentials.headers,
            "Accept-Encoding": "gzip" if compress else "identity",
        }
        url, data = f"{self._base}{path}", None
        if verb == "GET":
            url = f"{url}?{form}"
        else:
            data = form.encode()
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        async with self._session.request(
            verb,
            URL(url, encoded=True),
            data=data,
            headers=headers,
            ssl=self._credentials.tls,
            server_hostname=self.options.server_name,
            max_redirects=3,
        ) as response:
            if response.status // 100 != 2:
                body = await _beginning(response.content)
                raise refusals.of_status(response.status, body, response.headers.get("Retry-After"))
            return await _read(response.content, reader, limit)


async def _beginning(content: aiohttp.StreamReader) -> bytes:
    # What one read gives may be the first half of a refusal, which then reads as nonsense.
    body = b""
    while len(body) < _REFUSAL_LIMIT and (chunk := await content.readany()):
        body += chunk
    return body


async def _read(content: aiohttp.StreamReader, reader: _Reader, limit: int | None) -> bytes:
    splitter, received, pace = Splitter(reader.page_bytes), 0, Pace()
    async for chunk in content.iter_chunked(reader.page_bytes):
        received += len(chunk)
        if limit is not None and received > limit:
            raise refusals.error("oversize", f"more than {limit} bytes")
        page = splitter.feed(chunk)
        if page is not None:
            _decoded(reader.page, page)
            await pace.rest()  # chunks that have arrived already do not yield by themselves
        elif splitter.held > _UNSPLIT_LIMIT:
            raise refusals.error("oversize", "an answer without borders between entries")
    return splitter.rest()


def _decoded(decode: Callable[[bytes], T], document: bytes) -> T:
    try:
        return decode(document)
    except DECODE_ERRORS as error:
        raise refusals.error("nonsense", str(error)) from error


def format_time(time_s: float) -> str:
    """Return unix seconds with up to three decimals, as Prometheus's Go client."""
    return f"{time_s:.3f}".rstrip("0").rstrip(".")
