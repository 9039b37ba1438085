"""Queries on their way to Prometheus: bounded in number, with a deadline, counted.

Batches are few and large; requests of one are many. Each kind has places of its own, which rules
and tenants share: all rules whose last query did not end in time hold no more than half of the
places together, and those who wait come in turn, owner by owner. A query may be accompanied by the
one for its samples' times; both are for the same moment and take one place.

A namespace has so many queries in a period of the autoscalers, however many there are and however
often they ask. What is beyond is not asked, and the next period asks for other queries.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal

import structlog
from msgspec import Struct

from podscale.core.metrics import NO_BUDGET, Unavailable
from podscale.feed.decoding.wire import InstantAnswer
from podscale.feed.errors import Kind, QueryError
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import FeedOptions, Verb
from podscale.feed.plan import Demand
from podscale.feed.stats import FeedStats


class _Waiter(Struct, eq=False):
    owner: str
    rule: str
    let_in: asyncio.Future[None]
    is_slow: bool = False  # its rule was when it was let in

    @property
    def queue(self) -> tuple[str, str]:
        return self.owner, self.rule


class FairSemaphore:
    """So many places, ``most`` of them for one owner."""

    def __init__(self, places: int, most: int) -> None:
        self._free = places
        self._most = most
        self._most_slow = max(places // 2, 1)
        self._held: Counter[str] = Counter()  # by owner
        self._held_by_slow = 0
        self._slow: set[str] = set()
        # By owner and rule, in the order of their turns; none is empty.
        self._waiting: dict[tuple[str, str], deque[_Waiter]] = {}

    @asynccontextmanager
    async def place(self, owner: str, rule: str, patience_s: float | None) -> AsyncIterator[None]:
        """Hold a place for a query of ``rule``; raises TimeoutError if none is free in time."""
        waiter = _Waiter(owner, rule, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(waiter.queue, deque()).append(waiter)
        self._let_in()
        try:
            async with asyncio.timeout(patience_s):
                await waiter.let_in
        except BaseException:
            if waiter.let_in.cancelled():
                self._take_out(waiter)
                self._let_in()
            else:  # it was let in at the same moment
                self._leave(waiter)
            raise
        try:
            yield
        finally:
            self._leave(waiter)

    def note(self, rule: str, *, is_slow: bool) -> None:
        """Say how a query of ``rule`` ended: in time, or not."""
        if is_slow:
            self._slow.add(rule)
        elif rule in self._slow:
            self._slow.discard(rule)
            self._let_in()

    def _let_in(self) -> None:
        while self._free:
            waiter = next((each[0] for each in self._waiting.values() if self._may(each[0])), None)
            if waiter is None:
                return
            rest = self._take_out(waiter)
            if rest:
                self._waiting[waiter.queue] = self._waiting.pop(waiter.queue)  # behind the others
            self._free -= 1
            self._held[waiter.owner] += 1
            waiter.is_slow = waiter.rule in self._slow
            self._held_by_slow += waiter.is_slow
            waiter.let_in.set_result(None)

    def _may(self, waiter: _Waiter) -> bool:
        if waiter.let_in.cancelled() or self._held[waiter.owner] >= self._most:
            return False
        return waiter.rule not in self._slow or self._held_by_slow < self._most_slow

    def _take_out(self, waiter: _Waiter) -> bool:
        """Return whether others wait behind it."""
        queue = self._waiting[waiter.queue]
        queue.remove(waiter)
        if not queue:
            del self._waiting[waiter.queue]
        return bool(queue)

    def _leave(self, waiter: _Waiter) -> None:
        self._free += 1
        self._held_by_slow -= waiter.is_slow
        self._held[waiter.owner] -= 1
        if not self._held[waiter.owner]:
            del self._held[waiter.owner]
        self._let_in()


class NamespaceBudget(Struct):
    """What one namespace asks in a period; one in ``parts`` of it may be asked."""

    parts: int = 1
    tried: int = 0
    made: int = 0


# Below, gzip costs Prometheus more than it saves the link (1.05 ms against 0.45 ms a query).
COMPRESS_FROM_SERIES = 500

Purpose = Literal["batch", "single"]

_LATE: frozenset[Kind] = frozenset({"deadline", "timeout"})

log = structlog.get_logger(__name__)


class Queries:
    """The two lanes to Prometheus: few batches, more requests of one."""

    def __init__(self, client: PrometheusClient, options: FeedOptions, stats: FeedStats) -> None:
        self._client = client
        self._options = options
        self._stats = stats
        # A batch reads for many who would all wait for a rule that hangs, be it only once.
        batches, singles = options.batches_in_flight, options.queries_in_flight
        self._batches = FairSemaphore(batches, max(batches // 2, 1))
        self._singles = FairSemaphore(singles, singles)
        self._period = 0.0
        self._budgets: dict[str, NamespaceBudget] = {}  # of this period

    def refusal(self, demand: Demand, query: object, now_s: float) -> Unavailable | None:
        """Return why ``query`` is not to be made for a demand; ``None``: its namespace may.

        Of a namespace that asked for too much in the period before, chance says who may ask: in
        each period for other queries, so that however often or seldom one asks, none waits for
        ever, and nothing is remembered of any. The usage of its pods is always asked for.
        """
        most, period_s = self._options.namespace_queries, self._options.period_s
        if (period := now_s // period_s) != self._period:
            self._period, before = period, self._budgets
            self._budgets = {
                name: NamespaceBudget(-(-each.tried // most))
                for name, each in before.items()
                if each.tried > most
            }
            if self._budgets:
                log.warning("over their budget of queries", namespaces=sorted(self._budgets)[:10])
        owner = demand.namespace or demand.asker
        if not owner or demand.plan.labels.container:
            return None
        budget = self._budgets.setdefault(owner, NamespaceBudget())
        budget.tried += 1
        if budget.made < most and not hash((query, period)) % budget.parts:
            budget.made += 1
            return None
        return Unavailable(
            NO_BUDGET,
            f"not asked: the budget of the namespace is {most} queries in {period_s:g} s, and "
            "what is beyond is asked for by turns",
        )

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
                # An outage is logged when it begins and ends, not query by query.
                tell = log.debug if self._client.outage_text() else log.warning
                tell("query failed", kind=error.kind, said=error.detail, query=text[:500])
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
