"""Weeks of samples, read by a child process that hands back numpy arrays.

Decoding a large range answer takes seconds of CPU, and a thread would stall the loop; so a
child (this module run as a program, the only importer of ``prometheus_api_client``) asks,
decodes and packs, and the parent only wraps the bytes. A query is cut into slices of time of
a bounded number of points, so that neither process ever holds more than one.
"""

import ast
import asyncio
import gc
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self, TypedDict
from urllib.parse import urlsplit, urlunsplit

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.core.json_decoder import JsonDecoder, decode_json
from podscale.core.showable import is_same_origin
from podscale.feed.errors import SPLITTABLE, Kind, QueryError
from podscale.feed.http import refusals
from podscale.feed.http.credentials import context, headers
from podscale.feed.options import PrometheusOptions

POINTS = 250_000  # of one slice: about 50 MB while the child decodes it
MAX_STEPS = 11_000  # per series and query: Prometheus refuses more
FIRST_STEPS = 10  # how many series there are is not known before the first answer
GROWTH = 8
ATTEMPTS = 4  # of one slice; pauses of 1, 2 and 4 seconds between
QUERY_DEADLINE_S = 300.0  # as upstream's --prometheus-query-timeout
# Of one slice: all attempts at it and at its halves take less, a child that hangs does not.
SLICE_DEADLINE_S = 3600.0
RETRIED: frozenset[Kind] = frozenset({"unreachable", "deadline", "throttled", "gateway"})
_LENGTH_BYTES = 8
_NICE = 19

Floats = NDArray[np.float64]


class HistorySeries(Struct, frozen=True, eq=False):
    """One series over a slice, oldest sample first."""

    labels: Mapping[str, str]
    time_s: Floats
    values: Floats


class HistoryColumns:
    """Series whose samples lie one after the other; each is made when somebody looks at it.

    A thousand of them at once would hold up for milliseconds who shares the loop.
    """

    def __init__(
        self, labels: Sequence[msgspec.Raw], counts: Sequence[int], time_s: Floats, values: Floats
    ) -> None:
        """``labels`` are msgpack; ``counts`` the samples of each series."""
        self.label_texts = labels  # the same bytes are the same labels
        self.counts = np.array(counts, dtype=np.intp)
        self._ends = np.cumsum(self.counts)
        self.time_s = time_s
        self.values = values

    def __len__(self) -> int:
        return len(self.label_texts)

    def __iter__(self) -> Iterator[HistorySeries]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, place: int) -> HistorySeries:
        end = int(self._ends[place])
        part = slice(end - int(self.counts[place]), end)
        return HistorySeries(
            _labels.decode(self.label_texts[place]), self.time_s[part], self.values[part]
        )


class HistorySlice(Struct, frozen=True, eq=False):
    """All series of a query between two times, both inclusive."""

    start_s: float
    end_s: float
    series: HistoryColumns
    done: float  # fraction of the query's time that has been read, this slice included


class RangeReader(Protocol):
    """Reads range queries: what ``HistoryReader`` does."""

    def read(
        self, query: str, start_s: float, end_s: float, step_s: int, *, points: int = POINTS
    ) -> AsyncIterator[HistorySlice]:
        """Yield the query's slices, oldest first."""


class _Request(Struct, frozen=True):
    query: str
    start_s: int
    end_s: int
    step_s: int
    points: int
    attempts: int
    first_steps: int = FIRST_STEPS


class _Slice(Struct, frozen=True, tag=True):
    start_s: float
    end_s: float
    labels: list[msgspec.Raw]
    counts: list[int]  # samples of each series
    time_s: bytes  # float64 in native order, series after series
    values: bytes


class _End(Struct, frozen=True, tag=True):
    kind: Kind | None = None  # None: all was read
    detail: str = ""


class _WireSeries(Struct, gc=False):
    metric: dict[str, str]
    values: msgspec.Raw


class _WireData(TypedDict):
    result: list[_WireSeries]


class _WireAnswer(TypedDict):
    """What the library reads of an answer."""

    data: _WireData


_answers = JsonDecoder(_WireAnswer)
_pairs = JsonDecoder(list[tuple[float, float]], strict=False)
_labels = msgspec.msgpack.Decoder(dict[str, str])
_frames: msgspec.msgpack.Decoder[_Slice | _End] = msgspec.msgpack.Decoder(_Slice | _End)


class HistoryReader:
    """A child process for range queries, one at a time. An async context manager."""

    def __init__(self, options: PrometheusOptions, attempts: int = ATTEMPTS) -> None:
        self._options = options
        self._attempts = attempts
        self._child: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "podscale.feed.range_reader", stdin=pipe, stdout=pipe
        )
        # Through the pipe, not as arguments: other users can read those.
        await self._say(msgspec.json.encode(self._options, enc_hook=str))
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the child, whatever it is doing."""
        if self._child is not None:
            with suppress(ProcessLookupError):
                self._child.kill()
            await self._child.communicate()

    async def read(
        self, query: str, start_s: float, end_s: float, step_s: int, *, points: int = POINTS
    ) -> AsyncIterator[HistorySlice]:
        """Yield the query's slices, oldest first; raises ``QueryError``.

        Times are whole seconds (the library sends no others). Leaving the iteration early, or
        a slice that does not come, makes the reader unusable: close it then.
        """
        begin, end = math.floor(start_s), math.floor(end_s)
        request = _Request(query, begin, end, step_s, points, self._attempts)
        await self._say(msgspec.json.encode(request))
        while True:
            frame = await self._frame()
            if isinstance(frame, _End):
                if frame.kind is not None:
                    raise refusals.error(frame.kind, frame.detail)
                return
            yield _slice_of(frame, start_s, end_s, step_s)

    async def _say(self, line: bytes) -> None:
        child = self._child
        if child is None or child.stdin is None:
            raise RuntimeError("enter the reader first")
        with suppress(ConnectionError):  # a dead child is noticed where its answer is read
            child.stdin.write(line + b"\n")
            await child.stdin.drain()

    async def _frame(self) -> _Slice | _End:
        if self._child is None or self._child.stdout is None:
            raise RuntimeError("enter the reader first")
        try:
            async with asyncio.timeout(SLICE_DEADLINE_S):
                length = await self._child.stdout.readexactly(_LENGTH_BYTES)
                frame = await self._child.stdout.readexactly(int.from_bytes(length, "big"))
        except asyncio.IncompleteReadError:
            return _End("unreachable", "the child process that reads history ended")
        except TimeoutError:
            return _End("deadline", f"no slice of history within {SLICE_DEADLINE_S:g} s")
        return _frames.decode(frame)


class HistoryClient:
    """Range queries from this process, which waits for them: of a child whose only work it is.

    They are of few series: slices are as long as Prometheus lets them be from the first one on,
    since each of them costs 2 ms besides its samples. Answers come as they are: unpacking them
    was a fifth of the CPU.
    """

    def __init__(self, options: PrometheusOptions) -> None:
        self._ask = HistoryRequest(options, is_packed=False)

    async def read(
        self, query: str, start_s: float, end_s: float, step_s: int, *, points: int = POINTS
    ) -> AsyncIterator[HistorySlice]:
        """Yield the query's slices, oldest first; raises ``QueryError``."""
        begin, end = math.floor(start_s), math.floor(end_s)
        request = _Request(query, begin, end, step_s, points, ATTEMPTS, MAX_STEPS)
        for made in slices(request, self._ask):
            yield _slice_of(made, start_s, end_s, step_s)


def _slice_of(frame: _Slice, start_s: float, end_s: float, step_s: int) -> HistorySlice:
    is_last = frame.end_s + step_s > end_s
    done = 1.0 if is_last else (frame.end_s - start_s) / (end_s - start_s)
    times, values = np.frombuffer(frame.time_s), np.frombuffer(frame.values)
    series = HistoryColumns(frame.labels, frame.counts, times, values)
    return HistorySlice(frame.start_s, frame.end_s, series, done)


def slices(request: _Request, ask: Callable[[_Request, int, int], _Slice]) -> Iterator[_Slice]:
    """Yield the slices of a request; raises ``QueryError``. Runs in the child.

    The length of a slice follows the number of series that the last one had; a slice that is
    too much for Prometheus is halved, a failed one tried again.
    """
    start_s, steps = request.start_s, request.first_steps
    while start_s <= request.end_s:
        left = (request.end_s - start_s) // request.step_s + 1
        steps = max(1, min(steps, left, MAX_STEPS))
        end_s = start_s + (steps - 1) * request.step_s
        try:
            made = ask(request, start_s, end_s)
        except QueryError as error:
            if error.kind not in SPLITTABLE or steps == 1:
                raise
            steps //= 2
            continue
        yield made
        start_s += steps * request.step_s
        fitting = request.points // max(1, len(made.labels))
        steps = min(fitting, steps * GROWTH)


class HistoryRequest:
    """Range queries of the child, with ``prometheus_api_client``."""

    def __init__(self, options: PrometheusOptions, *, is_packed: bool = True) -> None:
        """Answers are compressed if ``is_packed``. Raises OSError for files that do not serve."""
        import requests
        from prometheus_api_client import PrometheusConnect
        from requests.adapters import HTTPAdapter

        self._options = options
        parts = urlsplit(options.url)
        # The user goes into a header: requests quotes URLs in its errors.
        url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")
        tls = context(options) if url.startswith("https:") else None

        class TlsAdapter(HTTPAdapter):
            """Trusts whom all our requests to Prometheus trust. Retries are ours: the library's
            would also repeat a query that is too much."""

            def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
                super().init_poolmanager(*args, **kwargs, ssl_context=tls)

            def cert_verify(self, *_: Any) -> None:
                """Add no CAs to those of the context."""

        class Session(requests.Session):
            """Follows redirects where the credentials belong only."""

            def get_redirect_target(self, resp: requests.Response) -> str | None:
                target: str | None = super().get_redirect_target(resp)
                return target if target and is_same_origin(resp.url, target) else None

            def send(self, request: Any, **kwargs: Any) -> requests.Response:
                answer = super().send(request, **kwargs)
                # The library asks the answer for its JSON: ours takes a sixth of the time.
                body = answer.content  # not ``answer`` itself: nobody would collect the cycle
                answer.json = lambda **_: _answers.decode(body)  # type: ignore[method-assign]
                return answer

        session = Session()
        session.trust_env = False
        session.verify = not options.is_insecure
        if not is_packed:
            session.headers["Accept-Encoding"] = "identity"
        self._connection: Any = PrometheusConnect(url, session=session)
        session.adapters.clear()  # the library's, and those that trust whom they like
        session.mount(f"{parts.scheme}://", TlsAdapter(max_retries=0))

    def __call__(self, request: _Request, start_s: int, end_s: int) -> _Slice:
        """Return one slice; raises ``QueryError`` after the last attempt."""
        attempt = 1
        while True:
            try:
                return self._once(request, start_s, end_s)
            except QueryError as error:
                if error.kind not in RETRIED or attempt >= request.attempts:
                    raise
            time.sleep(2.0 ** (attempt - 1))
            attempt += 1

    def _once(self, request: _Request, start_s: int, end_s: int) -> _Slice:
        import requests
        from prometheus_api_client.exceptions import PrometheusApiClientException

        self._connection.headers = headers(self._options)  # a token file may have changed
        try:
            begin, end = (datetime.fromtimestamp(each, UTC) for each in (start_s, end_s))
            found = self._connection.custom_query_range(
                request.query, begin, end, str(request.step_s), timeout=QUERY_DEADLINE_S
            )
            return _packed(found, start_s, end_s)
        except PrometheusApiClientException as error:
            raise _refused(str(error)) from error
        except requests.Timeout as error:
            raise refusals.error("deadline", str(error)) from error
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
            raise refusals.error("nonsense", repr(error)) from error
        except requests.RequestException as error:
            raise refusals.of_connection(error) from error


def _packed(found: list[_WireSeries], start_s: float, end_s: float) -> _Slice:
    samples = [_samples(entry.values) for entry in found]
    times, values = np.concatenate([np.empty((0, 2)), *samples]).T
    if len(times) and not (times.min() >= start_s - 1.0 and times.max() <= end_s + 1.0):
        raise ValueError("samples of times that were not asked for")
    labels = [msgspec.Raw(msgspec.msgpack.encode(entry.metric)) for entry in found]
    counts = [len(each) for each in samples]
    return _Slice(start_s, end_s, labels, counts, times.tobytes(), values.tobytes())


def _samples(text: msgspec.Raw) -> NDArray[np.float64]:
    # Times and values of one series, a row a sample. Only Go writes a sign before Inf.
    pairs = _pairs.decode(bytes(text).replace(b'"+Inf"', b'"Inf"'))
    return np.fromiter(chain.from_iterable(pairs), np.float64, 2 * len(pairs)).reshape(-1, 2)


def _refused(text: str) -> QueryError:
    # The library's text is "HTTP Status Code 422 (b'{...}')": it keeps neither apart.
    status, _, body = text.removeprefix("HTTP Status Code ").partition(" ")
    try:
        return refusals.of_status(int(status), ast.literal_eval(body))
    except (ValueError, SyntaxError):
        return refusals.error("gateway", text)


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until the parent closes the pipe."""
    os.nice(_NICE)  # whoever answers others meanwhile goes first
    gc.disable()  # it would look at a million pairs again and again; answers have no cycles
    options = JsonDecoder(PrometheusOptions, dec_hook=lambda _, value: Path(value))
    ask = HistoryRequest(options.decode(source.readline()))
    for line in source:
        end = _End()
        try:
            for made in slices(decode_json(line, _Request), ask):
                _send(sink, made)
        except QueryError as error:
            end = _End(error.kind, error.detail)
        _send(sink, end)


def _send(sink: BinaryIO, frame: _Slice | _End) -> None:
    body = msgspec.msgpack.encode(frame)
    sink.writelines((len(body).to_bytes(_LENGTH_BYTES, "big"), body))
    sink.flush()


if __name__ == "__main__":
    with suppress(BrokenPipeError, KeyboardInterrupt):
        serve(sys.stdin.buffer, sys.stdout.buffer)
