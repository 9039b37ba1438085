"""Queries on their way to Prometheus: bounded in number, with a deadline, counted.

Batches are few and large; requests of one are many. Each kind has places of its own, which
rules and tenants share (``lanes``). A query may be accompanied by the one for its samples'
times; both are for the same moment and take one place.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Literal

import structlog

from podscale.feed.decoding.wire import InstantAnswer
from podscale.feed.errors import Kind, QueryError
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import FeedOptions, Verb
from podscale.feed.queries.lanes import FairSemaphore
from podscale.feed.stats import FeedStats

# Below, gzip costs Prometheus more than it saves the link (1.05 ms against 0.45 ms a query).
COMPRESS_FROM_SERIES = 500

Purpose = Literal["batch", "single"]

_LATE: frozenset[Kind] = frozenset({"deadline", "timeout"})

log = structlog.get_logger(__name__)


class Queries:
    """The two lanes to Prometheus: few batches, more requests of one."""

    def __init__(self, client: PrometheusClient, options: FeedOptions, stats: FeedStats) -> None:
        self._client = client
        self._stats = stats
        # A batch reads for many who would all wait for a rule that hangs, be it only once.
        batches, singles = options.batches_in_flight, options.queries_in_flight
        self._batches = FairSemaphore(batches, max(batches // 2, 1))
        self._singles = FairSemaphore(singles, singles)

    async def ask(
        self,
        purpose: Purpose,
        text: str,
        stamp_text: str | None,
        time_s: float,
        *,
        rule: str,
        tenant: str = "",
        series: int = 0,
    ) -> tuple[InstantAnswer, InstantAnswer | None]:
        """Return the answer and the one to ``stamp_text``; raises ``QueryError``.

        ``rule`` is the one asked about, ``tenant`` who wants to know: the namespace of a request
        of one.
        """
        lane = self._batches if purpose == "batch" else self._singles
        patience_s = self._client.options.deadline_s
        async with AsyncExitStack() as stack:
            # Waiting for a place counts: nobody waits longer than two deadlines in all.
            try:
                await stack.enter_async_context(
                    lane.place(tenant if purpose != "batch" else rule, rule, patience_s)
                )
            except TimeoutError:
                self._stats.failures["no-place"] += 1
                log.warning("no place for a query", rule=rule, tenant=tenant, after_s=patience_s)
                raise self._client.no_place(patience_s) from None
            self._stats.in_flight += 1
            stack.callback(self._ended)
            try:
                answers = await self._pair(purpose, text, stamp_text, time_s, series)
            except QueryError as error:
                lane.note(rule, is_slow=error.kind in _LATE)
                self._stats.failures[error.kind] += 1
                log.warning("query failed", kind=error.kind, said=error.detail, query=text[:500])
                raise
            lane.note(rule, is_slow=False)
            return answers

    def _ended(self) -> None:
        self._stats.in_flight -= 1

    async def _pair(
        self, purpose: Purpose, text: str, stamp_text: str | None, time_s: float, series: int
    ) -> tuple[InstantAnswer, InstantAnswer | None]:
        verb: Verb | None = "POST" if purpose == "batch" else None
        compress = series > COMPRESS_FROM_SERIES and not self._client.is_local
        is_raw = purpose == "batch"  # it comes again and again with the same labels
        self._stats.queries[purpose] += 1
        asked = self._client.query(text, time_s, verb=verb, compress=compress, is_raw=is_raw)
        if stamp_text is None:
            return await asked, None
        self._stats.queries["stamp"] += 1
        try:
            async with asyncio.TaskGroup() as both:
                answer = both.create_task(asked)
                stamps = both.create_task(self._stamps(purpose, stamp_text, time_s, verb, compress))
        except* QueryError as errors:
            raise _first(errors) from None
        return answer.result(), stamps.result()

    async def _stamps(
        self, purpose: Purpose, text: str, time_s: float, verb: Verb | None, compress: bool
    ) -> InstantAnswer | None:
        try:
            return await self._client.query(
                text, time_s, verb=verb, compress=compress, is_raw=purpose == "batch"
            )
        except QueryError as error:
            # One request can be answered with an unknown age; a batch falls back to that.
            if purpose != "batch" and error.kind in ("bad-data", "execution"):
                return None
            raise


def _first(errors: BaseExceptionGroup[QueryError]) -> QueryError:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            return _first(error)
        return error
    raise AssertionError("an empty group of errors")
