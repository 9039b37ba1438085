"""The doctor's questions, put to a living Prometheus.

A series query is read as discovery reads it, names and label names only, streamed; label
values come from small samples. So neither the number of requests (one per distinct
question) nor memory grows with the number of series.
"""

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from msgspec import structs

from adapter.doctor import evidence
from adapter.rules.ruleset import Rule, RuleSet, wanted_by
from podscale.core.goquote import quote
from podscale.core.times import duration
from podscale.feed.decoding.wire import InstantAnswer
from podscale.feed.errors import QueryError
from podscale.feed.http import refusals
from podscale.feed.http.client import PrometheusClient
from podscale.feed.prover import tree as promql
from podscale.feed.prover.printer import printed

# Prometheus writes its configuration out with every default filled in, so that each job has its
# interval at two blanks, and the global one says nothing more.
_JOB_INTERVAL = re.compile(
    r"^- job_name: .*\n(?:  .*\n)*?  scrape_interval: ([0-9a-z]+)$", re.MULTILINE
)
T = TypeVar("T")

_SAMPLE = 20  # label sets shown or compared; three are printed
_MOST_POINTS = 5_000


class Examiner:
    """Answers needs from Prometheus, each distinct one once; counts its requests."""

    def __init__(
        self,
        client: PrometheusClient,
        window_s: float,
        rules: RuleSet | None = None,
        asked: Callable[[evidence.Need], None] = lambda _: None,
    ) -> None:
        """``window_s`` is how far back discovery looks; labels that ``rules`` map are kept even
        of metrics with too many; ``asked`` hears each question.
        """
        self._client = client
        self._window_s = window_s
        self._sharing: dict[str, list[Rule]] = {}  # the rules of each seriesQuery
        for rule in (*rules.custom, *rules.external) if rules is not None else ():
            self._sharing.setdefault(rule.series_query, []).append(rule)
        self.crowded: dict[str, Collection[str]] = {}  # by query: names with too many label names
        self._asked = asked
        self._known: dict[evidence.Need, evidence.Given] = {}
        self.requests = 0

    async def problem(self) -> str | None:
        """Return what is wrong with Prometheus itself, after the cheapest of queries."""
        self.requests += 1
        try:
            await self._client.query("1", time.time())
        except QueryError as error:
            return _words(error)
        return None

    async def scrape_interval_s(self) -> float | None:
        """Return the longest scrape interval of the configuration, ``None`` if not told.

        Proxies before several servers (Thanos, Mimir) have no configuration to show.
        """
        self.requests += 1
        try:
            written = await self._client.configuration()
        except QueryError:
            return None
        return longest_interval_s(written)

    async def answer(self, need: evidence.Need) -> evidence.Given:
        if need not in self._known:
            self._asked(need)
            try:
                self._known[need] = await self._ask(need)
            except QueryError as error:
                self._known[need] = _failure(error)
        return self._known[need]

    async def _ask(self, need: evidence.Need) -> evidence.Given:
        if isinstance(need, evidence.ResultOf):
            return await self._result(need)
        if need.name:
            return await self._values(need)
        self.requests += 1
        if not need.within_window:
            return evidence.Series(await self._client.sample_series(need.match, None, _SAMPLE))
        start_s = time.time() - self._window_s
        wanted = wanted_by(self._sharing.get(need.match, ()))
        found = await self._client.series(need.match, start_s, wanted)
        self.crowded[need.match] = found.crowded
        labels = [
            {**dict.fromkeys(shape, ""), "__name__": name}
            for name, shapes in found.names.items()
            for shape in shapes
        ]
        if found.is_partial and not labels:
            raise refusals.error("partial")
        return evidence.Series(labels)

    async def _values(self, need: evidence.SeriesOf) -> evidence.Series:
        start_s = time.time() - self._window_s if need.within_window else None
        found: list[dict[str, str]] = []
        if need.label and need.wanted:
            chosen = "|".join(map(re.escape, need.wanted[:100]))
            match = f"{{__name__={quote(need.name)},{need.label}=~{quote(chosen)}}}"
            self.requests += 1
            found += await self._client.sample_series(match, start_s, _SAMPLE)
        self.requests += 1
        match = f"{{__name__={quote(need.name)}}}"
        found += await self._client.sample_series(match, start_s, _SAMPLE)
        return evidence.Series(found)

    async def _result(self, need: evidence.ResultOf) -> evidence.Result:
        now = time.time()
        self.requests += 1
        answer = await self._client.query(need.promql, now)
        if answer.is_partial:  # the adapter refuses it as well
            raise refusals.error("partial")
        if not answer.values:
            return evidence.Result([])
        ages = await self._ages_s(need.promql, answer, now)
        samples = zip(answer.metrics[:_MOST_POINTS], answer.values, strict=False)
        points = [(labels, value, ages.get(_without_name(labels))) for labels, value in samples]
        return evidence.Result([evidence.Point.of(*point) for point in points])

    async def _ages_s(
        self, query: str, answer: InstantAnswer, now: float
    ) -> dict[frozenset[tuple[str, str]], float]:
        """Return the age of the newest sample behind each series, where it can be known."""
        text = stamp_query(query, sorted({k for m in answer.metrics[:100] for k in m}))
        if text is None:
            return {}
        self.requests += 1
        try:
            stamps = await self._client.query(text, now)
        except QueryError:
            return {}
        pairs = zip(stamps.metrics, stamps.values, strict=True)
        return {_without_name(labels): max(now - stamp, 0.0) for labels, stamp in pairs}


def stamp_query(text: str, labels: Sequence[str]) -> str | None:
    """Return the query for the newest sample behind each series of the answer.

    ``None`` where several selectors, or one at another time, are behind it.
    """
    try:
        found = list(promql.selectors(promql.parse(text)))
    except promql.NotPromql:
        return None
    if len(found) != 1 or found[0].offset_ms or found[0].at:
        return None
    instant = structs.replace(found[0], range_ms=None)
    by = tuple(label for label in labels if label != "__name__")
    stamp: promql.Node = promql.FunctionCall("timestamp", (instant,), False)
    return printed(promql.Aggregation("max", "by", by, stamp))


def _without_name(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((key, value) for key, value in labels.items() if key != "__name__")


def longest_interval_s(written: str) -> float | None:
    """Return the longest ``scrape_interval`` of a Prometheus configuration that is used.

    A rule's window must suit all the targets whose series it takes, and which those are the
    configuration does not say.
    """
    jobs = [duration.parse_prometheus(m[1]) for m in _JOB_INTERVAL.finditer(written)]
    return max(jobs, default=None)


def _failure(error: QueryError) -> evidence.Given:
    if error.kind in ("bad-data", "execution", "timeout"):
        return evidence.Rejected(
            400 if error.kind == "bad-data" else 422, error.detail or str(error)
        )
    return evidence.Unreachable(_words(error))


def _words(error: QueryError) -> str:
    return f"{error} ({error.detail})" if error.detail else str(error)
