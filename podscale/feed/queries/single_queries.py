"""The per-request path: the query as prometheus-adapter renders it, shared by all who wait for it.

Equal texts share one running query and, for a moment, its answer. Errors are not kept. An answer
that Prometheus marks as partial is an error: an autoscaler that sums it up would shrink by what
is missing.
"""

import asyncio
from collections.abc import Callable, Coroutine

import structlog
from msgspec import Struct, field

from podscale.core.boundedcache import BoundedCache
from podscale.core.metrics import Failure, Refused, Unavailable
from podscale.core.pace import LoopPace
from podscale.feed.decoding.wire import InstantAnswer
from podscale.feed.errors import QueryError
from podscale.feed.http import refusals
from podscale.feed.options import FeedOptions
from podscale.feed.plan import Demand, Outcome, Reading
from podscale.feed.prover.proof import Constant, Verdict, Widened
from podscale.feed.queries.answer_rows import AnswerRows, add_own, own_at_once, reading, stamps_of
from podscale.feed.queries.group import is_fresh
from podscale.feed.queries.queue import Queries
from podscale.feed.stats import FeedStats

log = structlog.get_logger(__name__)

_MOST_BYTES = 16 * 1024 * 1024  # of answers and their queries
_ROW_BYTES = 400
_TEXT_BYTES = 8  # for each character of a query, which the plans of its readings hold again


class _Held(Struct):
    asked_s: float
    answer: InstantAnswer
    stamps: InstantAnswer | None  # the times of its samples, from a second query
    size: int
    readings: dict[object, Reading] = field(default_factory=dict)  # by what tells them apart


QueryOutcome = _Held | Failure
_HISTOGRAM = Refused(
    "ResultIsHistogram",
    "the query of the rule gives native histograms, which are no numbers: "
    "use histogram_quantile, histogram_avg or histogram_count in metricsQuery",
)
_BROKEN = Unavailable("InternalError", "reading the answer failed: see the log")


class SingleQueries:
    def __init__(
        self,
        queries: Queries,
        options: FeedOptions,
        stats: FeedStats,
        clock: Callable[[], float],
        spawn: Callable[
            [Coroutine[object, object, QueryOutcome]], asyncio.Task[QueryOutcome | None]
        ],
    ) -> None:
        self._queries = queries
        self._options = options
        self._stats = stats
        self._clock = clock
        self._spawn = spawn
        self._held: BoundedCache[str, _Held] = BoundedCache(
            _MOST_BYTES, age_s=2 * options.max_age_s, largest=1.0
        )
        self._running: dict[str, asyncio.Task[QueryOutcome | None]] = {}

    async def read(self, demand: Demand, verdict: Verdict | None) -> Outcome:
        """Return the answer to the request's own query. ``verdict`` tells whether a second query
        can ask for the times of the samples, and whether the text is the same for everybody.
        """
        try:
            text = demand.plan.text(demand.namespace, demand.names)
        except ValueError as error:
            return Refused("QueryInvalid", f"metricsQuery cannot be rendered: {error}")
        if not text.strip():
            return Refused("QueryInvalid", "metricsQuery renders to nothing")
        stamp_text = self._stamp_text(demand, verdict)
        keep_s = self._options.max_age_s
        if not isinstance(verdict, Constant):
            keep_s = min(keep_s, self._options.text_cache_s)
        found = await self._fetch(demand, text, stamp_text, keep_s)
        return await self._reading(found, demand) if isinstance(found, _Held) else found

    def _stamp_text(self, demand: Demand, verdict: Verdict | None) -> str | None:
        if not (self._options.with_sample_timestamps and isinstance(verdict, Widened)):
            return None
        if demand.plan.api == "external" and verdict.default is not None:
            return None  # the query fills in a default value, which was never sampled
        if not verdict.skeleton.covers(demand.namespace, demand.names):
            return None
        return verdict.stamp_text((demand.namespace,), demand.names)

    async def _fetch(
        self, demand: Demand, text: str, stamp_text: str | None, keep_s: float
    ) -> QueryOutcome:
        if not self._options.is_coalescing:
            refusal = self._queries.refusal(demand, text, self._clock())
            return refusal or await self._ask(demand, text, stamp_text)
        held = self._held.get(text)
        if held is not None and is_fresh(held.asked_s, self._clock(), keep_s):
            return held
        task = self._running.get(text)
        if task is None:
            if refusal := self._queries.refusal(demand, text, self._clock()):
                return refusal
            task = self._running[text] = self._spawn(self._ask(demand, text, stamp_text))
            task.add_done_callback(lambda done: self._ended(text, done))
        return await asyncio.shield(task) or _BROKEN

    async def _ask(self, demand: Demand, text: str, stamp_text: str | None) -> QueryOutcome:
        asked_s, rule, tenant = self._clock(), demand.plan.rule, demand.namespace or demand.asker
        try:
            answer, stamps = await self._queries.ask(
                "single", text, stamp_text, asked_s, rule=rule, tenant=tenant
            )
        except QueryError as error:
            return error.failure
        if answer.is_partial or (stamps is not None and stamps.is_partial):
            self._stats.failures["partial"] += 1
            log.warning("partial answer", said=answer.warnings, query=text[:500])
            return refusals.failure("partial")
        if not answer.is_float_only:
            return _HISTOGRAM
        rows = len(answer.values) + (0 if stamps is None else len(stamps.values))
        texts = _TEXT_BYTES * (len(text) + len(stamp_text or ""))
        size = texts + _ROW_BYTES * rows
        return _Held(asked_s, answer, stamps, size)

    def _ended(self, text: str, task: asyncio.Task[QueryOutcome | None]) -> None:
        self._running.pop(text, None)
        if not task.cancelled() and isinstance(held := task.result(), _Held):
            self._held.put(text, held, held.size)

    async def _reading(self, held: _Held, demand: Demand) -> Outcome:
        plan, answer = demand.plan, held.answer
        if answer.kind != "vector" and not (plan.api == "external" and answer.kind == "scalar"):
            return Refused(
                f"ResultIs{answer.kind.capitalize()}",
                f"the query of the rule gives a {answer.kind}, not a vector: correct metricsQuery",
            )
        key = plan.api, plan.labels
        made = held.readings.get(key)
        if made is None:
            pace = LoopPace()
            rows = own_at_once(answer, held.asked_s) if plan.api == "external" else None
            if rows is None:
                rows = AnswerRows(held.asked_s)
                for page in answer.pages():
                    add_own(rows, page, plan)
                    await pace.rest()
            if held.stamps is not None:
                rows.stamps = {}
                for page in held.stamps.pages():
                    stamps = stamps_of(page, plan.labels)
                    rows.stamps |= {name: time_s for (_, name), time_s in stamps.items()}
                    await pace.rest()
            await pace.rest()
            made = reading(rows, plan, self._options.max_sample_age_s)
            await pace.rest()
            made = held.readings.setdefault(key, made)  # somebody may have been faster
        return made
