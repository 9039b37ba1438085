"""Prometheus over HTTP: one request in, a decoded answer or a ``QueryError`` out.

Every request has a deadline and a bound on its body. Answers are cut into pages while
they arrive, and the loop runs between pages. Retrying, sharing and limiting how many run
at once is the feed's business.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import aiohttp
import structlog
from msgspec import Struct
from yarl import URL

from podscale.core.json_decoder import JsonDecoder
from podscale.core.pace import LoopPace
from podscale.core.showable import shown_url
from podscale.feed.decoding.wire import InstantAnswer, VectorReader, refusal
from podscale.feed.errors import QueryError
from podscale.feed.http import refusals, session
from podscale.feed.http import series as lists
from podscale.feed.http.credentials import PrometheusCredentials
from podscale.feed.options import PrometheusOptions, Verb
from podscale.feed.outage import OutageWatch

# Longer queries go by POST unless GET was asked for: proxies commonly end URLs at 8 KiB, and
# names are percent-encoded.
GET_LIMIT = 2048
# Answers that may be meant for the method alone; a redirected POST becomes a GET without a query.
_POST_AGAIN_S = 60.0  # a gateway that restarts refuses for a moment, and long texts need POST
_NO_POST = frozenset({301, 302, 303, 307, 308, 403, 405, 501})
_QUERY, _SERIES = "/api/v1/query", "/api/v1/series"

log = structlog.get_logger(__name__)


class SeriesAnswer(Struct, frozen=True):
    """What discovery knows of a selector: label names, not values."""

    names: lists.SeriesNames
    count: int  # series, not names
    is_partial: bool = False  # a store behind Prometheus did not answer
    crowded: Collection[str] = ()  # some names with more label names than are kept


class _Configuration(Struct, frozen=True):
    class _Data(Struct, frozen=True):
        yaml: str = ""

    data: _Data = _Data()


class _PostRefused(Exception):
    """A query that nobody asked to go by POST met a refusal that may be of POST."""

    def __init__(self, error: QueryError) -> None:
        super().__init__(str(error))
        self.error = error


class PrometheusClient:
    """Queries and series of one Prometheus. An async context manager."""

    def __init__(self, options: PrometheusOptions, clock: Callable[[], float] = time.time) -> None:
        """Prepare; raises ValueError for a URL that is none, or a proxy that cannot be used."""
        self.options = options
        self.outage = OutageWatch()
        self._out_since_s: float | None = None  # as it was logged
        self._clock = clock
        try:
            parts = urlsplit(options.url)
        except ValueError:  # whose words quote what may be a password
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{shown_url(options.url)} is not an http or https URL with a host")
        self.is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        # User and password of the URL go into a header.
        host = parts.netloc.rpartition("@")[2]
        self._base = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        proxy = session.proxy_of(options, os.environ)
        self._proxy = None if proxy is None else proxy.with_user(None)
        self._proxy_auth = (
            aiohttp.BasicAuth(proxy.user, proxy.password or "")
            if proxy is not None and proxy.user is not None
            else None
        )
        self._no_post_until_s = float("-inf")  # of the event loop
        # As prometheus-adapter: parameters of the URL survive with POST only.
        self._extra = parse_qsl(parts.query) if options.verb == "POST" else []
        self._extra += options.parameters
        self._credentials = PrometheusCredentials(
            options, lambda error: log.warning("credentials not read again", error=str(error))
        )
        self._session: aiohttp.ClientSession | None = None

    def outage_text(self) -> str:
        """Return since when and why Prometheus does not answer, ``""`` where it does."""
        found = self.outage.current(self._clock())
        return "" if found is None else found.failure.message

    def no_place(self, waited_s: float) -> QueryError:
        """Return the failure of a query that waited so long for those before it, and was not sent:
        that of an outage, if that is why they hold their places.
        """
        return self.outage.got_no_place(refusals.error("no-place"), waited_s, self._clock())

    @contextlib.contextmanager
    def _watched(self, *, holds_place: bool = False) -> Iterator[None]:
        sent_s = self._clock()
        if holds_place:
            self.outage.in_flight.append(sent_s)
        try:
            yield
        except QueryError as error:
            raise self.outage.failed(error, sent_s, self._clock()) from error
        else:
            self.outage.answered(self._clock())
        finally:
            if holds_place:
                self.outage.in_flight.remove(sent_s)
            self._log_outage(self._clock())

    def _log_outage(self, now_s: float) -> None:
        found, url = self.outage.current(now_s), shown_url(self.options.url)
        if found is not None and self._out_since_s is None:
            self._out_since_s = found.since_s
            log.warning("Prometheus does not answer", url=url, why=found.failure.message)
        elif found is None and self._out_since_s is not None:
            lasted_s = round(now_s - self._out_since_s)
            log.warning("Prometheus answers again", url=url, outage_s=lasted_s)
            self._out_since_s = None

    @property
    def is_get(self) -> bool:
        """Whether every query has to fit a URL: GET was asked for, or POST is refused."""
        return self.options.verb == "GET" or self._is_post_refused()

    async def __aenter__(self) -> Self:
        """Read the credentials and open; raises OSError for unreadable files."""
        await self._credentials.refresh()
        self._session = session.session(self.options.connections)
        return self

    async def __aexit__(self, *_: object) -> None:
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
    ) -> InstantAnswer:
        """Return the instant answer at ``time_s``; raises ``QueryError``.

        ``verb`` is what to use where the options leave it open and POST was not refused.
        ``compress`` allows gzip: it costs Prometheus twice the CPU of a small answer, so it is for
        large remote ones.
        ``is_raw`` leaves a vector's label sets undecoded (``InstantAnswer.labelled``).
        """
        deadline_s = self.options.deadline_s
        # Prometheus gives up first, so that "too much work" and "not there" can be told apart.
        patience_s = max(deadline_s - 1.0, deadline_s / 2)
        fields = [("query", promql), ("time", format_time(time_s)), ("timeout", f"{patience_s:g}")]
        chosen: Verb = verb or ("GET" if len(promql) <= GET_LIMIT else "POST")
        if self.options.verb is not None:
            chosen = self.options.verb
        elif self._is_post_refused():
            chosen = "GET"
        reader = VectorReader(is_raw=is_raw)
        with self._watched(holds_place=True):
            rest = await self._exchange(chosen, _QUERY, fields, reader, compress=compress)
            answer = session.decoded(reader.end, rest)
        if not answer.has_times:
            raise refusals.error("nonsense", "a sample of a time before 1970, after 9999, or none")
        return answer

    async def clock_s(self) -> float:
        """Return the time where Prometheus runs, in unix seconds; raises ``QueryError``."""
        reader = VectorReader()
        rest = await self._exchange("GET", _QUERY, [("query", "time()")], reader)
        values = session.decoded(reader.end, rest).values
        if len(values) != 1:
            raise refusals.error("nonsense", f"{len(values)} values for time()")
        return float(values[0])

    async def series(
        self, match: str, start_s: float, wanted: lists.Wanted = lambda _: False
    ) -> SeriesAnswer:
        """Return the names and label names of the series that ``match`` selects since
        ``start_s``; raises ``QueryError``. Streams: the body is never held whole, and of names
        with very many label names only those ``wanted`` are sure to be told.
        """
        reader = lists.SeriesReader(wanted)
        with self._watched():
            rest = await self._series(match, start_s, reader)
            is_partial = session.decoded(reader.end, rest)
        names = await LoopPace().through(reader.names())
        return SeriesAnswer(names, reader.count, is_partial, reader.crowded)

    async def series_by(
        self, match: str, start_s: float, label: str, values: Sequence[str]
    ) -> dict[str, SeriesAnswer]:
        """Return what ``series`` does for each of several values of a label, from one answer;
        raises ``QueryError``. Values of which there is too much to be told are left out: ask for
        each by itself.
        """
        reader = lists.SplitSeriesReader(label, values)
        with self._watched():
            rest = await self._series(match, start_s, reader)
            is_partial = session.decoded(reader.end, rest)
        if reader.is_left_out:
            return {}
        found, pace = {}, LoopPace()
        for value, each in reader.readers.items():
            if not each.crowded:
                names = await pace.through(each.names())
                found[value] = SeriesAnswer(names, each.count, is_partial)
        return found

    async def _series(self, match: str, start_s: float, reader: lists.SeriesReader) -> bytes:
        fields = [("match[]", match), ("start", format_time(start_s))]
        return await self._list_series(fields, reader)

    async def _list_series(
        self, fields: list[tuple[str, str]], reader: session.AnswerReader
    ) -> bytes:
        verb = self.options.verb or "GET"
        return await self._exchange(verb, _SERIES, fields, reader, compress=not self.is_local)

    async def sample_series(
        self, match: str, start_s: float | None, limit: int
    ) -> list[dict[str, str]]:
        """Return up to ``limit`` label sets that ``match`` selects since ``start_s`` (``None``:
        ever); raises ``QueryError``. For people's eyes: servers that know no ``limit`` are
        stopped in the middle of their answer.
        """
        reader = lists.FirstSeries(limit)
        fields = [("match[]", match), ("limit", str(limit))]
        if start_s is not None:
            fields.append(("start", format_time(start_s)))
        with contextlib.suppress(lists.Enough):
            session.decoded(reader.end, await self._list_series(fields, reader))
        return reader.found

    async def configuration(self) -> str:
        """Return the server's configuration as it writes it (YAML); raises ``QueryError``."""
        path, compress = "/api/v1/status/config", not self.is_local
        rest = await self._exchange("GET", path, [], session.WholeText(), compress=compress)
        return session.decoded(JsonDecoder(_Configuration).decode, rest).data.yaml

    async def _exchange(
        self,
        verb: Verb,
        path: str,
        fields: list[tuple[str, str]],
        reader: session.AnswerReader,
        *,
        compress: bool = False,
    ) -> bytes:
        """Send; hand whole pages to ``reader``; return the rest of the document."""
        options, limit = self.options, None
        deadline_s = options.series_deadline_s
        if path != _SERIES:  # whose answers are streamed
            deadline_s, limit = options.deadline_s, options.body_limit_bytes
        send = partial(
            self._send, path=path, fields=fields, reader=reader, limit=limit, compress=compress
        )
        try:
            async with asyncio.timeout(deadline_s):
                await self._credentials.refresh()
                try:
                    return await send(verb)
                except _PostRefused as refused:
                    # Gateways that let read only, and kube-rbac-proxy, to which POST is "create".
                    # Upstream asks by GET unless told otherwise.
                    try:
                        rest = await send("GET")
                    except QueryError as error:
                        if error.kind != "oversize":  # a long URL is no answer to GET itself
                            raise refused.error from None
                        self._stay_with_get(refused.error)
                        raise
                    self._stay_with_get(refused.error)
                    return rest
                except aiohttp.ServerDisconnectedError:
                    # A kept connection that died while idle, as after a restart of Prometheus.
                    # aiohttp tries again for GET only; our POSTs are reads as well.
                    return await send(verb)
        except TimeoutError:
            raise refusals.error("deadline", f"after {deadline_s:g} s") from None
        except (aiohttp.ClientPayloadError, aiohttp.http.HttpProcessingError) as error:
            raise refusals.error("nonsense", str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise refusals.of_connection(error) from error
        except (ValueError, RecursionError) as error:
            # Of headers and addresses that an answer or a file brought in: no caller expects them.
            raise refusals.error("nonsense", f"{type(error).__name__}: {error}") from error

    def _stay_with_get(self, refusal_of_post: QueryError) -> None:
        if self._no_post_until_s < 0.0:  # said once
            log.warning("POST is refused: queries go by GET", said=refusal_of_post.detail)
        self._no_post_until_s = asyncio.get_running_loop().time() + _POST_AGAIN_S

    def _is_post_refused(self) -> bool:
        return asyncio.get_running_loop().time() < self._no_post_until_s

    async def _send(
        self,
        verb: Verb,
        path: str,
        fields: list[tuple[str, str]],
        reader: session.AnswerReader,
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
            allow_redirects=verb == "GET" or self.options.verb == "POST",
            max_redirects=3,
            proxy=self._proxy,
            proxy_auth=self._proxy_auth,
        ) as response:
            if response.status // 100 != 2:
                body = await session.beginning(response.content)
                retry_after = response.headers.get("Retry-After")
                error = refusals.of_status(response.status, body, retry_after)
                may_be_of_post = response.status in _NO_POST and refusal(body) is None
                if verb == "POST" and self.options.verb is None and may_be_of_post:
                    raise _PostRefused(error)
                raise error
            return await session.read_answer(response.content, reader, limit)


def format_time(time_s: float) -> str:
    """Return unix seconds with up to three decimals, as Prometheus's Go client."""
    return f"{time_s:.3f}".rstrip("0").rstrip(".")
