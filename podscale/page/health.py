"""How the feed does: rates from counters, ages from its histogram, rules from their lists. And the
fullest nodes as rows of one table: ``MOST_NODES`` by usage, those whose usage is not known last.
"""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from adapter.discovery.registry import RuleState
from podscale.feed.outage import Outage
from podscale.feed.stats import AGE_BUCKETS_S, FeedStats
from podscale.nodes.conditions import DecidedNodes
from podscale.nodes.decide.ballast import CPU, MEMORY, Reason
from podscale.page.values import RuleHealth, ShownHealth

_LOOKS = 13  # twelve intervals: at five seconds, the last minute
_WORST_OF = 0.99


class FeedSource(Struct, frozen=True):
    """A feed in this process, and the rules read through it."""

    stats: FeedStats
    rules: Callable[[], Sequence[RuleState]]
    refused: Callable[[], str] = str  # what is wrong with the rules file as it is now; "": nothing
    outage: Callable[[], Outage | None] = lambda: None


class _Look(Struct, frozen=True):
    at: float
    queries: int
    failures: int
    demands: int
    reused: int
    age_sum_s: float
    ages: tuple[int, ...]


class FeedHealth:
    """Looks at the counters from time to time; what it tells is about the last looks."""

    def __init__(self, source: FeedSource | None) -> None:
        """``source`` None: metrics come from the cluster's APIs, whose feed we cannot see."""
        self._source = source
        self._looks: deque[_Look] = deque(maxlen=_LOOKS)

    def look(self, now: float) -> None:
        """Note the counters."""
        if self._source is None:
            return
        stats = self._source.stats
        reused = stats.hits + stats.merged
        self._looks.append(
            _Look(
                now,
                sum(stats.queries.values()),
                sum(stats.failures.values()),
                reused + stats.misses + stats.singles,
                reused,
                stats.age_sum_s,
                tuple(stats.age_counts),
            )
        )

    def answer(self, now: float) -> ShownHealth:
        if self._source is None:
            return ShownHealth(now, "api", None, None, None, None, None, (), 0)
        rules = [_rule(state) for state in self._source.rules()]
        if refused := self._source.refused():
            rules.insert(0, RuleHealth("rules file", 0, None, refused))
        failing = sum(1 for rule in rules if rule.problem)
        outage = self._source.outage()
        problem, silent_s = (
            ("", 0.0)
            if outage is None
            else (outage.failure.message, max(now - outage.since_s, 0.0))
        )
        # Nothing is younger than the outage, whatever was served before it.
        age_s = worst_age_s = silent_s or None
        queries = failures = reused = None
        if len(self._looks) >= 2:
            first, last = self._looks[0], self._looks[-1]
            span_s = max(last.at - first.at, 1e-9)
            ages = [b - a for a, b in zip(first.ages, last.ages, strict=True)]
            served, demands = sum(ages), last.demands - first.demands
            if served:
                age_s = max((last.age_sum_s - first.age_sum_s) / served, silent_s)
                worst_age_s = max(_bound(ages), silent_s)
            queries = (last.queries - first.queries) / span_s
            failures = (last.failures - first.failures) / span_s
            reused = (last.reused - first.reused) / demands if demands else None
        return ShownHealth(now, "feed", age_s, worst_age_s, queries, failures, reused, rules,
                           failing, problem)  # fmt: skip


def _bound(ages: Sequence[int]) -> float:
    wanted, total = sum(ages) * _WORST_OF, 0
    for bound, count in zip(AGE_BUCKETS_S, ages, strict=False):
        total += count
        if total >= wanted:
            return bound
    return AGE_BUCKETS_S[-1]


def _rule(state: RuleState) -> RuleHealth:
    problem = state.failure.message if state.failure is not None else ""
    exposed = len(state.listing.exposed) if state.listing is not None else 0
    return RuleHealth(state.rule.id, exposed, state.listed_s, problem)


MOST_NODES = 50


class NodeAmounts(Struct, frozen=True):
    """One resource of a node: cores or bytes; NaN, null on the wire, is not known."""

    usage: float
    requested: float
    ballast: float  # what it is to request
    allocatable: float
    room: float  # by load: what is left of the threshold


class NodeRow(Struct, frozen=True):
    name: str
    reason: str  # for what its ballast is
    measured: float  # unix seconds: when its usage was last read; NaN: never
    cpu: NodeAmounts
    memory: NodeAmounts


class ShownNodes(Struct, frozen=True):
    """The nodes that are used most, of what they may be, and how many there are."""

    total: int
    rows: Sequence[NodeRow]


def shown_nodes(decided: DecidedNodes | None) -> ShownNodes:
    """Return the table of the newest round; None: there was none, or nodes are not looked at."""
    if decided is None:
        return ShownNodes(0, ())
    names, columns, plan = decided.nodes.names, decided.columns, decided.plan
    most = decided.nodes.thresholds * columns.capacity
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (columns.usage / most).max(axis=0)
    fullest = np.argsort(-share)[:MOST_NODES].tolist()  # NaN comes last
    measured = np.where(np.isfinite(decided.columns.measured_s), decided.columns.measured_s, np.nan)
    room = np.maximum(most - columns.usage, 0)
    amounts = np.stack([columns.usage, columns.requested, plan.requests, columns.allocatable, room])
    return ShownNodes(
        len(names),
        [
            NodeRow(
                names[place],
                Reason(int(plan.reason[place])).token,
                float(measured[place]),
                NodeAmounts(*(amounts[:, CPU, place] / 1000).tolist()),
                NodeAmounts(*amounts[:, MEMORY, place].tolist()),
            )
            for place in fullest
        ],
    )
