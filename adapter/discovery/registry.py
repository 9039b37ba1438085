"""Which metrics there are, at one moment: the listings of all rules, merged.

Immutable: a relist makes a new one, and requests keep the one they began with.
"""

import difflib
import operator
from collections.abc import Generator, Mapping, Sequence
from itertools import islice

from msgspec import Struct, structs

from adapter.discovery.labels import ROOT_RESOURCES
from adapter.discovery.listing import MetricSource, RuleListing
from adapter.rules.ruleset import Rule
from adapter.stages import Finding, Stage
from podscale.core.metrics import Unavailable

_MOST_LETTERS, _MOST_NAMES, _MOST_LIKE = 200, 5_000, 50  # of a search for a name like another
NOT_LISTED_YET = "NotListedYet"
PAGE = 2_000  # metrics worked off in one turn of the loop, a millisecond at most
_MERGED = 5  # in which time a rule's list is taken in, however few it has


class RelistFailure(Struct, frozen=True):
    """Why the last relist of a rule brought nothing; its last good list may still serve."""

    stage: Stage
    message: str
    reason: str = Stage.PROMETHEUS_UNREACHABLE  # the class of the failure, as readers see it
    is_timeout: bool = False
    retry_after_s: float | None = None
    since_s: float | None = None  # unix seconds, in an outage of the source

    @property
    def is_final(self) -> bool:
        """Whether it is the rule's own fault: another attempt would end alike."""
        return self.stage is Stage.SERIES_QUERY_INVALID


class RuleState(Struct, frozen=True):
    rule: Rule
    listing: RuleListing | None = None  # the last good one
    listed_s: float | None = None  # when, in unix seconds
    series: int = 0  # that seriesQuery found then
    failure: RelistFailure | None = None  # of the last attempt
    gone: Mapping[tuple[str, str], float] = {}  # listed in grace: when they were first missed
    is_partial: bool = False  # of every list so far something was missing

    @property
    def is_waiting(self) -> bool:
        """Whether the rule may have metrics that are not listed yet. One whose seriesQuery
        Prometheus refuses exposes nothing until it is mended."""
        is_final = self.failure is not None and self.failure.is_final
        return not is_final and (self.listing is None or self.is_partial)

    @property
    def absence(self) -> Unavailable:
        """Why it is not known whether the rule, which is waiting, has a metric."""
        rule, failure = self.rule.id, self.failure
        if failure is not None:
            return Unavailable(
                failure.reason, f"{rule} could not be listed: {failure.message}",
                failure.is_timeout, failure.retry_after_s, failure.since_s, rule,
            )  # fmt: skip
        if self.listing is not None:
            text = f"{rule} is listed in part: a store behind Prometheus does not answer"
            return Unavailable("PartialAnswer", text, rule=rule)
        text = f"{rule} is not listed yet; its first list is under way"
        return Unavailable(NOT_LISTED_YET, text)


class MetricRegistry(Struct, frozen=True):
    """All metrics of one API: custom by (resource, metric), external by ("", metric)."""

    sources: Mapping[tuple[str, str], MetricSource] = {}
    states: tuple[RuleState, ...] = ()  # by precedence, the lowest first
    waiting: tuple[RuleState, ...] = ()  # the highest first
    leaving: tuple[RuleState, ...] = ()  # replaced by what is not listed yet; of no precedence
    revision: int = 0  # changes when ``sources`` lists other metrics
    parts: tuple[Mapping[tuple[str, str], MetricSource], ...] = ()  # what ``sources`` is merged of
    # By namespace, those that it has to itself; kept current by whoever keeps the lists.
    within: Mapping[str, "MetricRegistry"] = {}
    # Of a namespace's own: what no rule lists now, by the rule that did and is still there.
    gone: Mapping[tuple[str, str], Rule] = {}

    def find(
        self, resource: str, metric: str, namespace: str = ""
    ) -> MetricSource | Unavailable | None:
        """Return where ``metric`` of ``resource[.group]`` in ``namespace`` comes from: of the
        first rule in order of precedence that has it, the namespace's own before the others;
        ``Unavailable`` if one before that could have it and is not listed yet, or is a namespace's
        own and has no series for it now.

        A rule of everybody keeps a metric from the others only where it would take it from the
        same series, or says its name itself: one that is slow to list must not hold back all.
        """
        own = self.within.get(namespace) if is_namespaced(resource) else None
        found = None if own is None else own.find(resource, metric)
        if found is not None:
            return found
        source = self.sources.get((resource, metric))
        if source is not None and (rule := self.owner(resource, metric, namespace)) is not None:
            text = (
                f"{rule.id} has no series for {metric} now, and {source.rule.id}, which has, may "
                "count something else: delete the former, or rename its metric, to have the latter"
            )
            return Unavailable(Stage.NO_SERIES, text)
        for state in self.waiting:
            rule = state.rule
            if source is not None and rule.precedence <= source.rule.precedence:
                break
            series = () if source is None else (source.series, metric)
            if rule.may_expose(metric) if rule.namespace else rule.exposes(metric, *series):
                return self._replaced(rule.origin, (resource, metric)) or state.absence
        return source

    def owner(self, resource: str, metric: str, namespace: str) -> Rule | None:
        """Return which rule of ``namespace`` keeps ``metric``, which none of its own lists, from
        everybody's rules: one that listed it, or that lists nothing and says its name. In doubt
        none: ``{job="worker"}`` would keep every name while nobody works.
        """
        own = self.within.get(namespace) if is_namespaced(resource) else None
        if own is None or (resource, metric) in own.sources:
            return None
        empty = (s.rule for s in own.states if s.listing is None or not s.listing.exposed)
        says = (rule for rule in empty if rule.exposes(metric))
        return own.gone.get((resource, metric)) or next(says, None)

    def _replaced(self, origin: str, key: tuple[str, str]) -> MetricSource | None:
        """Return what stood in the same file or object before a reload."""
        listings = (each.listing for each in reversed(self.leaving) if each.rule.origin == origin)
        found = (each.exposed.get(key) for each in listings if each is not None)
        return next(filter(None, found), None)


def merging(
    states: Sequence[RuleState], before: MetricRegistry, leaving: Sequence[RuleState] = ()
) -> Generator[None, None, MetricRegistry]:
    """Return the registry of these listings: a later rule wins, as upstream. Yields wherever
    others may run.

    Rules that are ``leaving`` are no part of it any more; what only they have is served.
    """
    listings = [each.listing for each in (*leaving, *states) if each.listing is not None]
    parts = tuple(listing.exposed for listing in listings)
    waiting = tuple(state for state in reversed(states) if state.is_waiting)
    made = structs.replace(
        before, states=tuple(states), waiting=waiting, leaving=tuple(leaving), parts=parts
    )
    if len(parts) == len(before.parts) and all(map(operator.is_, parts, before.parts)):
        return made
    sources: dict[tuple[str, str], MetricSource] = {}
    same, done = True, 0
    for part in parts:
        items = iter(part.items())
        while page := dict(islice(items, PAGE)):
            sources.update(page)
            same = same and page.keys() <= before.sources.keys()
            done += len(page) + _MERGED  # thousands of rules expose a handful each
            if done >= PAGE:
                done = 0
                yield
    same = same and len(sources) == len(before.sources)
    return structs.replace(made, sources=sources, revision=before.revision + (not same))


def is_namespaced(resource: str) -> bool:
    """Return how discovery lists metrics of ``resource[.group]``, as upstream does."""
    return resource not in ROOT_RESOURCES


def unlisted(
    registry: MetricRegistry, resource: str, metric: str, namespace: str = ""
) -> Unavailable | None:
    """Return why it cannot be said whether there is ``metric``; ``None``: it can.

    A rule that could expose it was never listed, so it may well be there.
    """
    found = registry.find(resource, metric, namespace)
    if found is not None:  # a source: known, and asked for at the wrong place
        return found if isinstance(found, Unavailable) else None
    return next((s.absence for s in registry.waiting if s.rule.may_expose(metric)), None)


def why_unknown(
    registry: MetricRegistry, resource: str, metric: str, namespace: str = ""
) -> Finding:
    """Return at which stage ``metric`` of ``resource`` was lost; it is not in the registry.

    The rule meant for it is the last that exposes the name for another kind of object,
    or would expose it had it not lost the series, or that loses a series of that name.
    """
    own = registry.within.get(namespace)
    if own is not None:
        finding = why_unknown(own, resource, metric)
        if finding.stage is not Stage.NO_SERIES:
            return finding
    listed = [
        (each.rule, each.listing) for each in reversed(registry.states) if each.listing is not None
    ]
    for cause in (_for_other_kinds, _lost_under_this_name, _under_another_name):
        for rule, listing in listed:
            if (lost := cause(rule, listing, resource, metric)) is not None:
                return lost
    return _rules_without_series(registry, metric)


def _for_other_kinds(
    rule: Rule, listing: RuleListing, resource: str, metric: str
) -> Finding | None:
    others = [kind for kind in listing.kinds if (kind, metric) in listing.exposed]
    if not others:
        return None
    message = (
        f"{rule.id} exposes {metric} for {', '.join(sorted(others))} and not for "
        f"{resource}: no label of the series maps to it"
    )
    return Finding(Stage.NO_RESOURCE_LABEL, message, rule.id)


def _lost_under_this_name(
    rule: Rule, listing: RuleListing, resource: str, metric: str
) -> Finding | None:
    series = listing.lost_as.get(metric)
    if series is not None:
        lost = listing.lost[series]
        if lost.stage is Stage.FILTERED_OUT:
            patterns = ", ".join(f.text for f in rule.filters if not f.keeps(series))
            reason = patterns or listing.left_out
            text = f"{rule.id} drops {series} by its filters (or name.matches): {reason}"
        elif lost.stage is Stage.LABEL_NOT_A_RESOURCE:
            text = (
                f"{rule.id}: the labels {', '.join(lost.unresolved)} of {series} fit the "
                "template, and the cluster has no such resource"
            )
        else:
            text = (
                f"{rule.id} maps no label of {series} to {resource or 'an object'}; it "
                f"carries {', '.join(sorted(lost.labels)) or 'none'}"
            )
        return Finding(lost.stage, text, rule.id)
    return None


def _under_another_name(
    rule: Rule, listing: RuleListing, _resource: str, metric: str
) -> Finding | None:
    name = rule.namer.name(metric) if rule.keeps(metric) else None
    found = (listing.exposed.get((kind, name or "")) for kind in listing.kinds)
    if name is None or not any(each is not None and each.series == metric for each in found):
        return None
    text = f"{rule.id} exposes the series {metric} as {name}"
    return Finding(Stage.NAME_MISMATCH, text, rule.id)


def _rules_without_series(registry: MetricRegistry, metric: str) -> Finding:
    for state in registry.states:
        if state.failure is not None and state.rule.may_expose(metric):
            text = f"{state.rule.id} could not be listed: {state.failure.message}"
            return Finding(state.failure.stage, text, state.rule.id)
    empty = [s.rule.id for s in registry.states if s.listing is not None and not s.listing.shapes]
    if empty:
        text = f"no rule exposes {metric}; {', '.join(empty)} found no series at all"
        return Finding(Stage.NO_SERIES, text, empty[-1])
    return Finding(Stage.NO_SERIES, f"no rule exposes {metric}{_nearest(registry, metric)}")


def _nearest(registry: MetricRegistry, metric: str) -> str:
    """Return which metric may be meant. Looks at a bounded number of names: whoever may ask may
    ask for any."""
    asked = metric[:_MOST_LETTERS]
    like = (
        name
        for _, name in islice(registry.sources, _MOST_NAMES)
        if abs(len(name) - len(asked)) < 8 and (name[:3] == asked[:3] or name[-3:] == asked[-3:])
    )
    near = difflib.get_close_matches(asked, dict.fromkeys(islice(like, _MOST_LIKE)), n=1)
    return f"; the nearest name is {near[0]}" if near else ""
