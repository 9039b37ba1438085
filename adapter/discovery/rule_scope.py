"""The rules that are listed together, and what is known of each: while rules are replaced, and
after an answer to a seriesQuery."""

import math
from collections.abc import Collection, Generator, Iterator
from itertools import chain, islice

import structlog
from msgspec import structs

from adapter.discovery.listing import ListingBuilder, MetricSource, RuleListing
from adapter.discovery.registry import PAGE, MetricRegistry, RelistFailure, RuleState
from adapter.rules.ruleset import Rule, RuleSet
from adapter.stages import Stage
from podscale.core.pace import LoopPace
from podscale.feed.http.client import SeriesAnswer

log = structlog.get_logger(__name__)

# Origin, section and fingerprint: the same rule, wherever it stands.
RuleContent = tuple[str, str, str]


class RuleScope:
    """The rules that are listed together: those of everywhere, or a namespace's own."""

    def __init__(self, rules: RuleSet) -> None:
        self.states = {rule.id: _first_state(rule) for rule in _every(rules)}
        # Rules of before a change, which serve on until those that came with it are listed.
        self.leaving: dict[RuleContent, RuleState] = {}
        self.awaited: set[RuleContent] = set()

    async def replaced(self, rules: RuleSet) -> "RuleScope":
        """Return the scope of other rules; see ``Relister.replace``. Changes nothing, so that
        whatever ends it on the way leaves the rules of before in force."""
        before = {_content(state.rule): state for state in self.states.values()}
        known = {**self.leaving, **before}
        scope, pace = RuleScope(rules), LoopPace()
        for rule in _every(rules):
            await pace.rest()
            if (old := known.get(_content(rule))) is not None:
                scope.states[rule.id] = await _moved(old, rule)
        come = {_content(state.rule) for state in scope.states.values()}
        scope.awaited = (self.awaited | (come - before.keys())) & come
        scope.leaving = {
            content: state
            for content, state in known.items()
            if content not in come and state.listing is not None
        }
        return scope

    def asked(self) -> Iterator[RuleState]:
        """Yield what Prometheus is asked for: not the rules that are refused."""
        return (state for state in self.states.values() if state.rule.refusal is None)

    def let_go(self) -> tuple[RuleState, ...]:
        """Return what is leaving, without that in whose place everything is listed."""
        if not self.leaving:
            return ()
        unlisted = {_content(state.rule) for state in self.asked() if state.listing is None}
        self.awaited &= unlisted
        origins = {origin for origin, _, _ in self.awaited}
        self.leaving = {c: state for c, state in self.leaving.items() if c[0] in origins}
        return tuple(self.leaving.values())


def _every(rules: RuleSet) -> tuple[Rule, ...]:
    return (*rules.custom, *rules.external)


def _content(rule: Rule) -> RuleContent:
    return rule.origin, rule.section, rule.fingerprint


def _first_state(rule: Rule) -> RuleState:
    refusal = rule.refusal
    if refusal is None:
        return RuleState(rule)
    return RuleState(
        rule, failure=RelistFailure(Stage.QUERY_INVALID, refusal.message, refusal.reason)
    )


def is_behind(state: RuleState) -> bool:
    """Return whether another attempt may bring a list, or a newer one."""
    if state.failure is None:
        return state.listing is None
    return state.rule.refusal is None and not state.failure.is_final


async def _moved(state: RuleState, rule: Rule) -> RuleState:
    """Return what is known of a rule under the name that its new place gives it."""
    if state.listing is None or state.rule.id == rule.id:
        return structs.replace(state, rule=rule)
    exposed, pace = {}, LoopPace()
    for key, source in state.listing.exposed.items():
        await pace.rest()
        exposed[key] = MetricSource(rule, source.series)
    listing = structs.replace(state.listing, rule=rule, exposed=exposed)
    return structs.replace(state, rule=rule, listing=listing)


_FEW_SHAPES = 200
_MOST_LOGGED, _MOST_SHOWN = 20, 200  # names, and characters of one

# Of one namespace's own rules, each counted for every kind of object: some 3 MB.
MOST_METRICS = 20_000
_TOO_MANY = RelistFailure(
    Stage.QUERY_INVALID,
    f"the MetricRules of its namespace list more than {MOST_METRICS} metrics: narrow seriesQuery, "
    "or leave series out by seriesFilters",
    "TooManyMetrics",
)

_Key = tuple[str, str]  # resource[.group] and metric


def _is_unchanged(before: RuleState, outcome: SeriesAnswer) -> bool:
    """Return whether the answer comes to the list that is there."""
    return (
        before.listing is not None
        and before.listing.rule is before.rule  # one that is read anew may map labels otherwise
        and before.listing.names == outcome.names
        and not (before.failure or before.gone or before.is_partial or outcome.crowded)
    )


async def renewed(
    before: RuleState, outcome: SeriesAnswer, now: float, grace_s: float, most: float = math.inf
) -> RuleState:
    """Return what is known of a rule with an answer to its seriesQuery.

    A name that has gone is listed ``grace_s`` longer. With more than ``most`` metrics it has
    failed to be listed.
    """
    if _is_unchanged(before, outcome):
        return structs.replace(before, listed_s=now, series=outcome.count)
    rule = before.rule
    builder = ListingBuilder(rule)
    pace = LoopPace()
    for name, shapes in outcome.names.items():
        for labels in shapes:
            builder.add(name, labels)
            await pace.rest()
        if builder.metrics > most:
            return structs.replace(before, failure=_TOO_MANY)
    crowded = tuple(sorted(name for name in outcome.crowded if rule.keeps(name)))
    listing = structs.replace(builder.build(), crowded=crowded)
    if listing.shared:  # they may be many, and are not kept
        log.info("series share a name", rule=rule.id, metrics=sorted(listing.shared)[:_MOST_LOGGED])
        listing = structs.replace(listing, shared={})
    # A template asks which resources the cluster has now: its list does not stay.
    if listing.shapes <= _FEW_SHAPES and not (outcome.crowded or rule.labels.has_template):
        listing = structs.replace(listing, names=outcome.names)
    # What a partial answer lacks has not gone.
    grace_s = math.inf if outcome.is_partial else grace_s
    gone: dict[tuple[str, str], float] = {}
    if before.listing is not None:
        gone = await LoopPace().through(_still_in_grace(before, listing, now, grace_s))
        listing = await LoopPace().through(_with_gone(before.listing, listing, gone))
    if before.failure is not None:
        log.info("relist works again", rule=rule.id)
    if crowded and (before.listing is None or before.listing.crowded != crowded):
        series = [name[:_MOST_SHOWN] for name in crowded[:_MOST_LOGGED]]
        log.warning("series are crowded", reason="TooManyLabels", rule=rule.id, series=series)
    is_partial = outcome.is_partial and (before.listing is None or before.is_partial)
    return RuleState(rule, listing, now, outcome.count, gone=gone, is_partial=is_partial)


def _still_in_grace(
    before: RuleState, listing: RuleListing, now: float, grace_s: float
) -> Generator[None, None, dict[_Key, float]]:
    # Key -> when it was first missed. Names stay only as long as the grace lasts from then.
    gone: dict[_Key, float] = {}
    if not grace_s or before.listing is None:
        return gone
    keys = iter(before.listing.exposed)
    while page := list(islice(keys, PAGE)):
        for key in page:
            if key not in listing.exposed and now - before.gone.get(key, now) < grace_s:
                gone[key] = before.gone.get(key, now)
        if len(page) == PAGE:
            yield
    return gone


def _with_gone(
    before: RuleListing, listing: RuleListing, gone: Collection[_Key]
) -> Generator[None, None, RuleListing]:
    """Return ``listing`` and what is gone of the one before; its own object where nothing else
    is exposed than before, so that it need not be merged again.
    """
    made, old = listing.exposed, before.exposed
    if len(made) + len(gone) == len(old) and before.rule is listing.rule:
        items = iter(made.items())
        is_same = True
        while is_same and (page := list(islice(items, PAGE))):
            is_same = all((was := old.get(key)) and was.series == new.series for key, new in page)
            if len(page) == PAGE:
                yield
        if is_same:
            return structs.replace(listing, exposed=old, kinds=before.kinds)
    if not gone:
        return listing
    kept = {key: old[key] for key in gone}
    kinds = listing.kinds | {kind for kind, _ in gone}
    return structs.replace(listing, exposed={**kept, **made}, kinds=kinds)


def with_missing(
    before: MetricRegistry, now: MetricRegistry
) -> Generator[None, None, MetricRegistry]:
    """Return the metrics of one namespace's rules, with what those that are still there listed
    before and list no more. Yields wherever others may run."""
    if now.sources is before.sources and not before.gone:
        return now
    rules = {state.rule.fingerprint for state in now.states}
    listed = ((key, source.rule) for key, source in before.sources.items())
    several = chain(before.gone.items(), listed)
    gone: dict[_Key, Rule] = {}
    while page := list(islice(several, PAGE)):
        gone |= {k: r for k, r in page if k not in now.sources and r.fingerprint in rules}
        yield
    beyond = max(len(gone) - MOST_METRICS, 0)
    return structs.replace(now, gone=dict(islice(gone.items(), beyond, None)))
