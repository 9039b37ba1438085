"""One refresh of a group: gather for a moment, then read every batch that somebody waits for.

All batches of a refresh are for the same whole second, so that replicas agree. Who waits
gets a ``NamespaceRead``, a ``Failure``, or ``None``: "take your own query". An error of a widened
query is never shown: it only leads there.
"""

import asyncio
import math
from collections.abc import Callable, Iterable

import structlog
from msgspec import Struct

from podscale.core.metrics import Failure
from podscale.core.pace import LoopPace
from podscale.feed.decoding.wire import DECODE_ERRORS, InstantAnswer
from podscale.feed.errors import SPLITTABLE, QueryError
from podscale.feed.http import refusals
from podscale.feed.prover.proof import Widened
from podscale.feed.queries.answer_rows import AnswerRows, Collector, laying_out, reading, stamps_of
from podscale.feed.queries.group import (
    GET_LIMITS,
    Batch,
    BatchLimits,
    NamespaceRead,
    QueryGroup,
    is_fresh,
)
from podscale.feed.queries.queue import Queries
from podscale.feed.stats import FeedStats

EXTRA_QUERIES = 16  # that halving one failing batch may cost

Result = NamespaceRead | Failure | None

log = structlog.get_logger(__name__)


class _Budget(Struct):
    left: int = EXTRA_QUERIES


class _Parts(Struct):
    """What has come in of one namespace, whose names may be spread over several batches."""

    missing: int
    rows: AnswerRows | None = None
    covered: frozenset[str] | None = frozenset()
    failure: Failure | None = None
    is_failed: bool = False


class Refresh:
    """Runs once; ``awaited`` may be called as long as ``takes`` says so."""

    def __init__(
        self,
        group: QueryGroup,
        queries: Queries,
        stats: FeedStats,
        clock: Callable[[], float],
        *,
        is_get: bool,
    ) -> None:
        self._group = group
        self._queries = queries
        self._stats = stats
        self._clock = clock
        self._limits = GET_LIMITS if is_get else BatchLimits()
        self._waiting: dict[str, asyncio.Future[Result]] = {}
        self._parts: dict[str, _Parts] = {}
        self.asked_s: float | None = None  # None while gathering

    def takes(self, namespace: str, names: Iterable[str], now_s: float) -> bool:
        """Return whether this refresh will answer a demand that comes now."""
        if self.asked_s is None:
            return True
        max_age_s = self._group.options.max_age_s
        if namespace not in self._parts or not is_fresh(self.asked_s, now_s, max_age_s):
            return False
        covered = self._parts[namespace].covered
        return self._parts[namespace].missing > 0 and (covered is None or covered.issuperset(names))

    def awaited(self, namespace: str) -> asyncio.Future[Result]:
        """Return what will become of one namespace. Others wait for the same: shield it."""
        future = self._waiting.get(namespace)
        if future is None:
            future = self._waiting[namespace] = asyncio.get_running_loop().create_future()
        return future

    async def run(self, gather_s: float) -> None:
        """Gather, read, answer. Everybody has an answer when it returns."""
        try:
            await asyncio.sleep(gather_s)
            now_s = self._clock()
            self.asked_s = math.floor(now_s)
            self._stats.refreshes += 1
            batches = [
                batch
                for batch in self._group.batches(now_s, self._limits)
                if any(namespace in self._waiting for namespace in batch.namespaces)
            ]
            self._expect(batches)
            async with asyncio.TaskGroup() as tasks:
                for batch in batches:
                    tasks.create_task(self._read(batch, _Budget()))
        except asyncio.CancelledError:
            for future in self._waiting.values():
                future.cancel()
            raise
        finally:
            for future in self._waiting.values():
                if not future.done():
                    future.set_result(None)

    def _expect(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            for namespace in batch.namespaces:
                parts = self._parts.setdefault(namespace, _Parts(0))
                parts.missing += 1
                parts.covered = (
                    parts.covered | frozenset(batch.names)
                    if batch.names and parts.covered is not None
                    else None
                )

    async def _read(self, batch: Batch, budget: _Budget) -> None:
        verdict, asked_s = self._group.verdict, self.asked_s
        if not isinstance(verdict, Widened) or asked_s is None:
            return
        stamp_text = None
        if self._group.options.with_sample_timestamps:
            stamp_text = verdict.stamp_text(batch.namespaces, batch.names)
        try:
            answer, stamps = await self._queries.ask(
                "batch",
                verdict.text(batch.namespaces, batch.names),
                stamp_text,
                asked_s,
                rule=self._group.plan.rule,
                series=len(batch.namespaces) * max(1, len(batch.names)),
            )
        except QueryError as error:
            await self._failed(batch, error, budget)
            return
        if answer.kind == "vector" and not answer.is_float_only and not answer.is_partial:
            # Somebody's histograms: the others keep their batch, and that namespace is left out.
            await self._split(batch, budget)
            return
        if not _is_plain(answer) or (stamps is not None and not _is_plain(stamps)):
            self._give_up(batch, None)
            return
        if not self._place(batch, answer, stamps):
            try:
                await self._sort(batch, verdict, answer, stamps)
            except DECODE_ERRORS as error:
                self._give_up(batch, refusals.error("nonsense", str(error)).failure)
                return

    def _place(self, batch: Batch, answer: InstantAnswer, stamps: InstantAnswer | None) -> bool:
        """Deliver an answer whose labels are known; whether it is one."""
        layout, asked_s = self._group.layouts.get(batch), self.asked_s
        if layout is None or asked_s is None or not all(map(self._is_whole, batch.namespaces)):
            return False
        found = layout.readings(answer, stamps, asked_s, self._group.options.max_sample_age_s)
        for namespace, placed in found or ():
            parts = self._parts[namespace]
            parts.missing = 0
            self._answer(namespace, NamespaceRead(placed, parts.covered))
        return found is not None

    async def _sort(
        self, batch: Batch, verdict: Widened, answer: InstantAnswer, stamps: InstantAnswer | None
    ) -> None:
        """Sort an answer out row by row, for the next one too, and deliver it.

        Raises one of ``DECODE_ERRORS``.
        """
        plan, asked_s = self._group.plan, self.asked_s
        assert asked_s is not None  # noqa: S101 - set before anything is read
        collector = Collector(
            plan,
            asked_s,
            batch.namespaces,
            carries_namespace=verdict.carries_namespace,
            is_by_name=verdict.is_by_name,
        )
        pace = LoopPace()
        metrics: list[dict[str, str]] = []
        for page in answer.pages():
            decoded = page.labelled()
            metrics += decoded.metrics
            collector.add(decoded)
            await pace.rest()
        known: list[dict[str, str]] = []
        if stamps is not None:
            collector.expect_stamps()
            for page in stamps.pages():
                decoded = page.labelled()
                known += decoded.metrics
                collector.stamp(stamps_of(decoded, verdict.labels))
                await pace.rest()
        steps = laying_out(
            answer, stamps, plan, collector.rows, metrics, known,
            self._group.wanted, self._group.shared,
        )  # fmt: skip
        layout = await pace.through(steps)
        if layout is None:
            self._group.layouts.pop(batch, None)
        else:
            self._group.layouts[batch] = layout
            # With the names that are kept anyway: those just read, a text for each object, would
            # stay until the next refresh, and in a first round for all namespaces at once.
            if self._place(batch, answer, stamps):
                return
        for namespace, rows in collector.rows.items():
            await pace.rest()
            self._deliver(namespace, rows)

    def _is_whole(self, namespace: str) -> bool:
        """Whether one batch brings all of the namespace."""
        parts = self._parts[namespace]
        return parts.missing == 1 and parts.rows is None and not parts.is_failed

    async def _failed(self, batch: Batch, error: QueryError, budget: _Budget) -> None:
        if error.kind == "bad-data":
            self._group.is_demoted = True
            self._group.snapshots.clear()
            self._stats.demotions["bad-data"] += 1
            log.warning("a rule goes query by query", rule=self._group.plan.rule)
            self._give_up(batch, None)
        elif error.kind not in SPLITTABLE:
            self._give_up(batch, error.failure)
        else:
            await self._split(batch, budget)

    async def _split(self, batch: Batch, budget: _Budget) -> None:
        """Read the halves; where there are none, count it against the namespace."""
        if (halves := batch.halves()) is not None and budget.left >= 2:
            budget.left -= 2
            self._stats.splits += 1
            if halves[0].namespaces == halves[1].namespaces:
                self._parts[batch.namespaces[0]].missing += 1
            async with asyncio.TaskGroup() as tasks:
                for half in halves:
                    tasks.create_task(self._read(half, budget))
        else:
            if len(batch.namespaces) == 1 and self._group.failed(
                batch.namespaces[0], self._clock()
            ):
                self._stats.exclusions += 1
            self._give_up(batch, None)

    def _give_up(self, batch: Batch, failure: Failure | None) -> None:
        for namespace in batch.namespaces:
            parts = self._parts[namespace]
            parts.is_failed, parts.failure = True, parts.failure or failure
            self._complete(namespace, parts)

    def _deliver(self, namespace: str, rows: AnswerRows) -> None:
        parts = self._parts[namespace]
        if parts.rows is None:
            parts.rows = rows
        else:
            parts.rows.extend(rows)
        self._complete(namespace, parts)

    def _complete(self, namespace: str, parts: _Parts) -> None:
        parts.missing -= 1
        if parts.missing > 0:
            return
        result: Result = parts.failure
        if not parts.is_failed and parts.rows is not None:
            result = self._snapshot(parts.rows, parts.covered)
        self._answer(namespace, result)

    def _answer(self, namespace: str, result: Result) -> None:
        if isinstance(result, NamespaceRead):
            self._group.succeeded(namespace, result)
        future = self._waiting.get(namespace)
        if future is not None and not future.done():
            future.set_result(result)

    def _snapshot(self, rows: AnswerRows, covered: frozenset[str] | None) -> NamespaceRead:
        verdict = self._group.verdict
        default = verdict.default if isinstance(verdict, Widened) else None
        made = reading(rows, self._group.plan, self._group.options.max_sample_age_s, default)
        return NamespaceRead(made, covered, frozenset(rows.duplicated))


def _is_plain(answer: InstantAnswer) -> bool:
    return answer.kind == "vector" and answer.is_float_only and not answer.is_partial
