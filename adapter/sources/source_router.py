"""The Prometheus servers of one adapter, each with a connection and a feed of its own.

What the sources file names comes and goes with it; the one of ``--prometheus-url`` stays. A
source that cannot be opened, hangs or is down is that source's failure only.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import structlog
from msgspec import Struct

from adapter.selfmetrics import AdapterMetrics, ObservedClient
from adapter.sources.sources_file import DEFAULT_SOURCE, NamedSources, unknown_source
from podscale.core.boundedcache import BoundedCache
from podscale.core.metrics import Failure, Unavailable
from podscale.feed.errors import QueryError
from podscale.feed.feed import Feed
from podscale.feed.http.client import PrometheusClient, SeriesAnswer
from podscale.feed.http.series import SeriesNames, Wanted
from podscale.feed.options import FeedOptions, PrometheusOptions
from podscale.feed.stats import FeedStats

log = structlog.get_logger(__name__)

_MOST_BYTES = 2 * 1024 * 1024  # of namespaces and their sources
_ENTRY_BYTES = 200


class OpenSource(Struct, frozen=True, eq=False):
    """One Prometheus that is connected to."""

    options: PrometheusOptions
    client: PrometheusClient
    feed: Feed
    closing: asyncio.Event  # set: nobody new asks it


class OneSource:
    """The series of one Prometheus, whatever source a rule names: for those who look at it."""

    def __init__(self, client: PrometheusClient) -> None:
        self._client = client

    async def series(
        self, match: str, start_s: float, _source: str = "", wanted: Wanted = lambda _: False
    ) -> SeriesAnswer:
        """Return them; raises ``QueryError``."""
        return await self._client.series(match, start_s, wanted)

    async def series_by(
        self, match: str, start_s: float, _source: str, label: str, values: Sequence[str]
    ) -> Mapping[str, SeriesAnswer]:
        """Return them for each of several values of a label; raises ``QueryError``."""
        return await self._client.series_by(match, start_s, label, values)


class SourceRouter:
    """All of them. An async context manager; a ``ChoosesSource`` of the feed."""

    def __init__(
        self,
        default: OpenSource,
        options: FeedOptions,
        metrics: AdapterMetrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.named = NamedSources()
        self._by_namespace: BoundedCache[str, str] = BoundedCache(_MOST_BYTES)
        self._default = default
        self._options = options
        self._metrics = metrics
        self._clock = clock
        self._open: dict[str, OpenSource] = {}
        self._failed: dict[str, str] = {}  # why one could not be opened
        self._replacing = asyncio.Lock()
        self._closings: set[asyncio.Event] = set()  # of those that are open, left ones among them
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        """Close them all, at once."""
        for closing in self._closings:
            closing.set()
        self._open = {}
        await self._tasks.__aexit__(*error)

    @property
    def default(self) -> Feed:
        """The feed of ``--prometheus-url``."""
        return self._default.feed

    @property
    def names(self) -> frozenset[str]:
        """What rules may choose."""
        return frozenset((DEFAULT_SOURCE, *self.named.sources))

    def feeds(self) -> Sequence[Feed]:
        """Return every feed."""
        return [self.default, *(each.feed for each in self._open.values())]

    def stats(self) -> Mapping[str, FeedStats]:
        """Return the counters of every feed, by the source's name ("": the default)."""
        return {"": self.default.stats, **{n: each.feed.stats for n, each in self._open.items()}}

    def feed_for(self, source: str, namespace: str) -> Feed | Failure:
        """Return the feed of a rule's ``source`` ("": none chosen) and a namespace."""
        name = source or self._source_of(namespace)
        if name in ("", DEFAULT_SOURCE):
            return self._default.feed
        found = self._open.get(name)
        return Unavailable("SourceNotOpen", self._why(name)) if found is None else found.feed

    async def replace(self, named: NamedSources) -> None:
        """Work with these from now on; what is unchanged keeps its connection.

        One that cannot be opened leaves what was open under its name, or is told as its failure.
        """
        async with self._replacing:
            await self._open_all(named)
            for name in self._open.keys() - named.sources.keys():
                self._leave(self._open.pop(name))
            self.named = named
            self._by_namespace = BoundedCache(_MOST_BYTES)

    async def follow(self, interval_s: float) -> None:
        """Try those again, for ever, that cannot be opened: a Secret may be mounted late."""
        while True:
            await asyncio.sleep(interval_s)
            async with self._replacing:
                if self._failed:
                    await self._open_all(self.named)

    async def _open_all(self, named: NamedSources) -> None:
        told, self._failed = self._failed, {}
        for name, options in named.sources.items():
            was = self._open.get(name)
            if was is not None and was.options == options:
                continue
            opened = await self._opened(name, options)
            if isinstance(opened, str):
                self._failed[name] = opened
                if opened != told.get(name):
                    log.error("source not opened", source=name, error=opened)
                continue
            self._open[name] = opened
            if was is not None:
                self._leave(was)

    async def series(
        self, match: str, start_s: float, source: str, wanted: Wanted = lambda _: False
    ) -> SeriesAnswer:
        """Return the series of one source, or ("") of all that rules without one are answered
        from; raises ``QueryError`` where none of them can be asked. Of several, one that fails
        makes the answer partial.
        """
        asked = self.named.listed_with(source)
        if len(asked) == 1:
            return await self._client(asked[0]).series(match, start_s, wanted)
        found = await asyncio.gather(*(self._tried(name, match, start_s, wanted) for name in asked))
        answers = [each for each in found if isinstance(each, SeriesAnswer)]
        if not answers:
            raise next(each for each in found if isinstance(each, QueryError))
        names: dict[str, frozenset[frozenset[str]]] = {}
        for each in answers:
            for name, shapes in each.names.items():
                names[name] = names.get(name, frozenset()) | shapes
        merged: SeriesNames = names
        return SeriesAnswer(
            merged,
            sum(each.count for each in answers),
            len(answers) < len(found) or any(each.is_partial for each in answers),
            frozenset().union(*(each.crowded for each in answers)),
        )

    async def series_by(
        self, match: str, start_s: float, source: str, label: str, values: Sequence[str]
    ) -> Mapping[str, SeriesAnswer]:
        """Return the series of one source for each of several values of a label; see
        ``PrometheusClient.series_by``."""
        return await self._client(source).series_by(match, start_s, label, values)

    async def _tried(
        self, name: str, match: str, start_s: float, wanted: Wanted
    ) -> SeriesAnswer | QueryError:
        try:
            return await self._client(name).series(match, start_s, wanted)
        except QueryError as error:
            return error

    def _source_of(self, namespace: str) -> str:
        # Patterns are tried one by one, and each of ten thousand demands has a namespace.
        found = self._by_namespace.get(namespace)
        if found is None:
            found = self.named.of_namespace(namespace)
            self._by_namespace.put(namespace, found, len(namespace) + len(found) + _ENTRY_BYTES)
        return found

    def _client(self, name: str) -> PrometheusClient:
        found = self._default if name in ("", DEFAULT_SOURCE) else self._open.get(name)
        if found is None:
            raise QueryError("unreachable", Unavailable("SourceNotOpen", self._why(name)))
        return found.client

    def _why(self, name: str) -> str:
        if name in self._failed:
            return f"source {name!r} cannot be opened: {self._failed[name]}"
        return unknown_source(name, self.named.sources)

    async def _opened(self, name: str, options: PrometheusOptions) -> OpenSource | str:
        ready: asyncio.Future[OpenSource | str] = asyncio.get_running_loop().create_future()
        self._tasks.create_task(self._hold(options, ready), name=f"source {name}")
        return await ready

    async def _hold(
        self, options: PrometheusOptions, ready: asyncio.Future[OpenSource | str]
    ) -> None:
        """Keep one open until it is to be closed: a feed's tasks end in the task they began in."""
        closing = asyncio.Event()
        try:
            async with (
                ObservedClient(options, self._metrics, self._clock) as client,
                Feed(client, self._options, self._clock) as feed,
            ):
                self._closings.add(closing)
                ready.set_result(OpenSource(options, client, feed, closing))
                await closing.wait()
        except (OSError, ValueError) as error:
            if ready.done():
                raise
            ready.set_result(str(error))
        finally:
            self._closings.discard(closing)

    def _leave(self, source: OpenSource) -> None:
        # What is being asked of it is answered first.
        patience_s = max(source.options.deadline_s, source.options.series_deadline_s)
        asyncio.get_running_loop().call_later(patience_s, source.closing.set)
