"""The doctor's first half: from the series query to the metric's name."""

import difflib
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from adapter.doctor.evidence import AskedEvidence, Given, Rejected, Series, Surroundings
from adapter.errors import NoLabel
from adapter.rules.ruleset import Rule
from adapter.stages import Stage
from podscale.core.times import duration
from podscale.feed.http.refusals import advice
from podscale.feed.prover.tree import NotPromql, VectorSelector, parse

LabelSet = Mapping[str, str]

_LEADING_NAME = re.compile(r"^\s*([A-Za-z_:][A-Za-z0-9_:]*)")
_NAME_MATCHER = re.compile(r"__name__\s*=\s*[\"']([A-Za-z_:][A-Za-z0-9_:]*)[\"']")


class Track(Struct, frozen=True):
    """How far one rule gets on the way to the asked name."""

    rule: Rule
    stage: Stage | None  # None: it exposes the name for the kind of object asked for
    seen: str = ""
    change: str = ""
    series: str = ""  # the series that answers: the last by name, as discovery decides
    names: tuple[str, ...] = ()  # names it does expose, or would
    labels: tuple[str, ...] = ()  # label names seen


def track(rule: Rule, asked: AskedEvidence, given: Given) -> Track:
    """Follow ``rule`` from its series to its names; the first stage that fails is told."""
    if isinstance(given, Rejected):
        names = tuple(_would_be_called(rule, names_in(rule.series_query)))
        return Track(rule, *refusal(rule, given), names=names)
    found = list(given.labels) if isinstance(given, Series) else []
    if not found:
        return Track(
            rule,
            Stage.NO_SERIES,
            f"seriesQuery {rule.series_query!r} matches no series within the discovery window.",
            "Try the selector on Prometheus, and mend the metric's name or its matchers.",
            names=tuple(_would_be_called(rule, names_in(rule.series_query))),
        )
    kept = [labels for labels in found if rule.keeps(labels.get("__name__", ""))]
    if not kept:
        return _filtered_out(rule, found)
    if asked.api == "external":
        return _external(rule, asked, kept)
    return _custom(rule, asked, kept)


def refusal(rule: Rule, given: Rejected) -> tuple[Stage, str, str]:
    """Return the stage at which seriesQuery fails, what was seen and what to change."""
    if lighter := advice(given.error):
        return (
            Stage.QUERY_INVALID,
            f"Prometheus gave up on seriesQuery {rule.series_query!r}: {given.error}.",
            f"Mend seriesQuery; {lighter}.",
        )
    return (
        Stage.SERIES_QUERY_INVALID,
        f"Prometheus refuses seriesQuery {rule.series_query!r} as a selector: {given.error}.",
        "Write seriesQuery as a series selector, as you would type it into the graph page.",
    )


def _filtered_out(rule: Rule, found: Sequence[LabelSet]) -> Track:
    names = sorted({labels.get("__name__", "") for labels in found})
    wanted = ", ".join(
        f"{'is' if f.is_positive else 'isNot'} {f.text!r}"
        for f in rule.filters
        if not any(f.keeps(name) for name in names)
    ) or ", ".join(f"{'is' if f.is_positive else 'isNot'} {f.text!r}" for f in rule.filters)
    return Track(
        rule,
        Stage.FILTERED_OUT,
        f"The series {_some(names)} are dropped by name: {wanted} (name.matches is a filter too).",
        "Mend seriesFilters or name.matches so that the series' name passes.",
        names=tuple(names),
    )


def _custom(rule: Rule, asked: AskedEvidence, kept: Sequence[LabelSet]) -> Track:
    labels = sorted({label for each in kept for label in each if label != "__name__"})
    mapped: dict[str, list[LabelSet]] = {}
    unresolved: set[str] = set()
    for each in kept:
        reading = rule.labels.read(label for label in each if label != "__name__")
        unresolved.update(reading.unresolved)
        for described in reading.resources:
            mapped.setdefault(described.group_resource, []).append(each)
    names = sorted({labels.get("__name__", "") for labels in kept})
    called = tuple(_would_be_called(rule, names))
    if asked.resource not in mapped:
        stage, seen, change = _unmapped(rule, asked, mapped, unresolved, names, labels)
        return Track(rule, stage, seen, change, names=called, labels=tuple(labels))
    is_scoped = asked.namespace and asked.resource != "namespaces" and rule.confinement is None
    if is_scoped and "namespaces" not in mapped:
        return Track(
            rule,
            Stage.NOT_NAMESPACED,
            f"The series {_some(names)} carry no label that maps to namespaces "
            f"(labels: {', '.join(labels)}), and the request is for namespace {asked.namespace}.",
            "Add an override for the label with the namespace, for example "
            "namespace: {resource: namespace}, and have Prometheus attach that label.",
            names=called,
            labels=tuple(labels),
        )
    return _named(rule, asked, mapped[asked.resource], labels)


def _unmapped(
    rule: Rule,
    asked: AskedEvidence,
    mapped: Mapping[str, object],
    unresolved: set[str],
    names: Sequence[str],
    labels: Sequence[str],
) -> tuple[Stage, str, str]:
    if unresolved and not mapped:
        return (
            Stage.LABEL_NOT_A_RESOURCE,
            (
                f"The labels {', '.join(sorted(unresolved))} of {_some(names)} fit "
                "resources.template, and the cluster has no resource of that name."
            ),
            (
                "Write overrides for the labels that name objects; the template only works for "
                "labels called after a resource."
            ),
        )
    template = "the template" if rule.labels.has_template else "none"
    wanted = ", ".join(sorted(rule.labels.override_labels)) or template
    others = f"; its labels map to {', '.join(sorted(mapped))}" if mapped else ""
    return (
        Stage.NO_RESOURCE_LABEL,
        (
            f"No label of {_some(names)} maps to {asked.resource}: the rule looks for {wanted}, "
            f"and the series carry {', '.join(labels) or 'no label'}{others}."
        ),
        "Name the label that the series really carry under resources.overrides.",
    )


def _external(rule: Rule, asked: AskedEvidence, kept: Sequence[LabelSet]) -> Track:
    labels = sorted({label for each in kept for label in each if label != "__name__"})
    if rule.query.is_namespaced and asked.namespace and rule.confinement is None:
        try:
            wanted = rule.labels.label("namespaces")
        except NoLabel:
            wanted = ""
        if not wanted or wanted not in labels:
            names = sorted({each.get("__name__", "") for each in kept})
            return Track(
                rule,
                Stage.NOT_NAMESPACED,
                f"The query is confined to namespace {asked.namespace} by the label "
                f"{wanted or '(none mapped)'}, which {_some(names)} do not carry "
                f"(labels: {', '.join(labels) or 'none'}).",
                "Set resources.namespaced: false if the metric belongs to no namespace, or map "
                "the label that holds it.",
                names=tuple(_would_be_called(rule, names)),
                labels=tuple(labels),
            )
    return _named(rule, asked, kept, labels)


def _named(
    rule: Rule, asked: AskedEvidence, series: Sequence[LabelSet], labels: Sequence[str]
) -> Track:
    by_name: dict[str, str] = {}
    for name in sorted({each.get("__name__", "") for each in series}):
        called = rule.namer.name(name)
        if called is not None:
            by_name[called] = name  # the last series by name answers
    if asked.metric in by_name:
        return Track(
            rule, None, series=by_name[asked.metric], names=tuple(by_name), labels=tuple(labels)
        )
    shown = ", ".join(repr(n) for n in sorted(by_name)[:5])
    meant = rule.namer.meant()
    hint = f" In name.as Go reads no group there: write {meant}." if meant else ""
    return Track(
        rule,
        Stage.NAME_MISMATCH,
        f"The series {_some(sorted(by_name.values()))} are exposed as {shown}, not as "
        f"{asked.metric!r}.{hint}",
        "Ask for the name that is exposed, or mend name.matches and name.as.",
        names=tuple(by_name),
        labels=tuple(labels),
    )


def meant_for(tracks: Sequence[Track], asked: AskedEvidence) -> Track:
    """Return the track of the rule that was meant for the asked name."""

    def likeness(item: tuple[int, Track]) -> tuple[float, int]:
        index, each = item
        texts = [*each.names, *names_in(each.rule.series_query)]
        if asked.metric in each.names:
            return 2.0, index
        ratios = (difflib.SequenceMatcher(None, asked.metric, t).ratio() for t in texts)
        return max(ratios, default=0.0), index

    return max(enumerate(tracks), key=likeness)[1]


def names_in(series_query: str) -> list[str]:
    """Return the metric names that a selector writes out."""
    found = [m.group(1) for m in [_LEADING_NAME.match(series_query)] if m is not None]
    return found + _NAME_MATCHER.findall(series_query)


def window_too_short(rule: Rule, around: Surroundings) -> tuple[str, str]:
    """Return what was seen and what to change when only the discovery window is empty."""
    window = _short(around.relist_interval_s)
    interval = (
        f"the scrape interval is {_short(around.scrape_interval_s)}"
        if around.scrape_interval_s
        else "the scrape interval may be longer"
    )
    return (
        (
            f"seriesQuery {rule.series_query!r} matches series, but none was scraped within the "
            f"discovery window of {window} (--metrics-relist-interval); {interval}."
        ),
        "Set --metrics-max-age (or the relist interval) to at least twice the scrape interval.",
    )


def selector_too_narrow(rule: Rule, name: str, existing: Sequence[LabelSet]) -> tuple[str, str]:
    """Return what was seen and what to change when the name exists with other labels."""
    asked_for = _matched_labels(rule.series_query)
    carried = sorted({label for each in existing for label in each if label != "__name__"})
    absent = [label for label in asked_for if label not in carried and label != "__name__"]
    return (
        (
            f"Series called {name} exist with the labels {', '.join(carried)}; seriesQuery "
            f"{rule.series_query!r} asks for {', '.join(absent or asked_for)}."
        ),
        "Select by labels that the series carry, and map those under resources.overrides.",
    )


def _matched_labels(series_query: str) -> list[str]:
    try:
        tree = parse(series_query)
    except NotPromql:
        return []
    matchers = tree.matchers if isinstance(tree, VectorSelector) else ()
    return sorted({matcher.label for matcher in matchers})


def _would_be_called(rule: Rule, names: Sequence[str]) -> list[str]:
    return [called for n in names if (called := rule.namer.name(n)) is not None]


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _short(seconds: float) -> str:
    """Return ``30s``, ``5m``: as people write durations."""
    text = duration.format_go(seconds)
    return text.removesuffix("0s") if text.endswith("m0s") else text
