"""The doctor's first half: from the series query to the metric's name."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from adapter.doctor.evidence import AskedEvidence, Diagnosis, Given, Rejected, Series, Surroundings
from adapter.errors import NoLabel
from adapter.rules.ruleset import Rule
from adapter.stages import Stage
from podscale.core.times import duration
from podscale.feed.http.refusals import advice
from podscale.feed.prover.tree import NotPromql, VectorSelector, parse

LabelSet = Mapping[str, str]

_LEADING_NAME = re.compile(r"^\s*([A-Za-z_:][A-Za-z0-9_:]*)")
_NAME_MATCHER = re.compile(r"__name__\s*=\s*[\"']([A-Za-z_:][A-Za-z0-9_:]*)[\"']")


SHARED = (
    "Keep a group of the series' name in name.as, or write the names into metricsQuery in place of "
    '<<.Series>>, as {__name__=~"…"}'
)


class Track(Struct, frozen=True):
    """How far one rule gets on the way to the asked name."""

    rule: Rule
    names: Sequence[str]  # that it exposes, or would
    series: str = ""  # that answers
    lost: Diagnosis | None = None  # None: it exposes the name for the kind of object asked for


def tracks(rule: Rule, asked: AskedEvidence, given: Given) -> list[Track]:
    """Follow ``rule`` from its series to its names; the first stage that fails is told. Of several
    series of one name the last answers, as discovery decides."""
    labels = given.labels if isinstance(given, Series) else ()
    series = _names_of(labels)
    kept = [name for name in series if rule.keeps(name)]
    written = kept if series else names_in(rule.series_query)
    names = [name for each in written if (name := rule.namer.name(each)) is not None]
    found = _answering(rule, asked, given)
    if isinstance(found, Diagnosis):
        return [Track(rule, names or series, lost=found.of(rule))]
    # A query that does not name its series is the same for all of them.
    answering = found if "Series" in rule.query.fields else found[-1:]
    return [Track(rule, names, each) for each in answering]


def _answering(rule: Rule, asked: AskedEvidence, given: Given) -> list[str] | Diagnosis:
    if isinstance(given, Rejected):
        return refusal(rule, given)
    found = given.labels if isinstance(given, Series) else ()
    if not found:
        return Diagnosis(
            Stage.NO_SERIES,
            f"seriesQuery {rule.series_query!r} matches no series within the discovery window.",
            "Try the selector on Prometheus, and mend the metric's name or its matchers.",
        )
    kept = [labels for labels in found if rule.keeps(labels.get("__name__", ""))]
    if not kept:
        return _filtered_out(rule, _names_of(found))
    mapped = (_external if asked.api == "external" else _custom)(rule, asked, kept)
    return mapped if isinstance(mapped, Diagnosis) else _named(rule, asked, _names_of(mapped))


def refusal(rule: Rule, given: Rejected) -> Diagnosis:
    if lighter := advice(given.error):
        return Diagnosis(
            Stage.QUERY_INVALID,
            f"Prometheus gave up on seriesQuery {rule.series_query!r}: {given.error}.",
            f"Mend seriesQuery; {lighter}.",
        )
    return Diagnosis(
        Stage.SERIES_QUERY_INVALID,
        f"Prometheus refuses seriesQuery {rule.series_query!r} as a selector: {given.error}.",
        "Write seriesQuery as a series selector, as you would type it into the graph page.",
    )


def _filtered_out(rule: Rule, names: Sequence[str]) -> Diagnosis:
    blamed = [each for each in rule.filters if not any(map(each.keeps, names))] or rule.filters
    filters = ", ".join(f"{'is' if f.is_positive else 'isNot'} {f.text!r}" for f in blamed)
    return Diagnosis(
        Stage.FILTERED_OUT,
        f"The series {listed(names, 3)} are dropped by name: {filters} "
        "(name.matches is a filter too).",
        "Mend seriesFilters or name.matches so that the series' name passes.",
    )


def _custom(
    rule: Rule, asked: AskedEvidence, kept: Sequence[LabelSet]
) -> Sequence[LabelSet] | Diagnosis:
    labels, names = labels_of(kept), listed(_names_of(kept), 3)
    mapped: dict[str, list[LabelSet]] = {}
    unresolved: set[str] = set()
    for each in kept:
        reading = rule.labels.read(label for label in each if label != "__name__")
        unresolved.update(reading.unresolved)
        for described in reading.resources:
            mapped.setdefault(described.group_resource, []).append(each)
    if unresolved and not mapped:
        return Diagnosis(
            Stage.LABEL_NOT_A_RESOURCE,
            f"The labels {', '.join(sorted(unresolved))} of {names} fit resources.template, and "
            "the cluster has no resource of that name.",
            "Write overrides for the labels that name objects; the template only works for labels "
            "called after a resource.",
        )
    if asked.resource not in mapped:
        template = "the template" if rule.labels.has_template else "none"
        wanted = ", ".join(sorted(rule.labels.override_labels)) or template
        others = f"; its labels map to {', '.join(sorted(mapped))}" if mapped else ""
        return Diagnosis(
            Stage.NO_RESOURCE_LABEL,
            f"No label of {names} maps to {asked.resource}: the rule looks for {wanted}, and the "
            f"series carry {labels or 'no label'}{others}.",
            "Name the label that the series really carry under resources.overrides.",
        )
    is_scoped = asked.namespace and asked.resource != "namespaces" and rule.confinement is None
    if is_scoped and "namespaces" not in mapped:
        return Diagnosis(
            Stage.NOT_NAMESPACED,
            f"The series {names} carry no label that maps to namespaces (labels: {labels}), and "
            f"the request is for namespace {asked.namespace}.",
            "Add an override for the label with the namespace, for example "
            "namespace: {resource: namespace}, and have Prometheus attach that label.",
        )
    return mapped[asked.resource]


def _external(
    rule: Rule, asked: AskedEvidence, kept: Sequence[LabelSet]
) -> Sequence[LabelSet] | Diagnosis:
    if not rule.query.is_namespaced or not asked.namespace or rule.confinement is not None:
        return kept
    try:
        wanted = rule.labels.label("namespaces")
    except NoLabel:
        wanted = ""
    if wanted and any(wanted in each for each in kept):
        return kept
    return Diagnosis(
        Stage.NOT_NAMESPACED,
        f"The query is confined to namespace {asked.namespace} by the label "
        f"{wanted or '(none mapped)'}, which {listed(_names_of(kept), 3)} do not carry "
        f"(labels: {labels_of(kept) or 'none'}).",
        "Set resources.namespaced: false if the metric belongs to no namespace, or map the label "
        "that holds it.",
    )


def _named(rule: Rule, asked: AskedEvidence, series: Sequence[str]) -> list[str] | Diagnosis:
    if named := [each for each in series if rule.namer.name(each) == asked.metric]:
        return named
    by_name = {called: each for each in series if (called := rule.namer.name(each)) is not None}
    shown = ", ".join(repr(name) for name in sorted(by_name)[:5])
    meant, written = rule.namer.meant(), rule.namer.written
    hint = f" name.as is {written}, in which Go reads no group: write {meant}." if meant else ""
    return Diagnosis(
        Stage.NAME_MISMATCH,
        f"The series {listed(sorted(by_name.values()), 3)} are exposed as {shown}, not as "
        f"{asked.metric!r}.{hint}",
        "Ask for the name that is exposed, or mend name.matches and name.as.",
    )


def meant_for(tracks: Sequence[Track], asked: AskedEvidence) -> Track:
    """Return the track of the rule that was meant for the asked name."""

    def likeness(item: tuple[int, Track]) -> tuple[float, int]:
        index, each = item
        if asked.metric in each.names:
            return 2.0, index
        texts = [*each.names, *names_in(each.rule.series_query)]
        ratios = (difflib.SequenceMatcher(None, asked.metric, t).ratio() for t in texts)
        return max(ratios, default=0.0), index

    return max(enumerate(tracks), key=likeness)[1]


def names_in(series_query: str) -> list[str]:
    """Return the metric names that a selector writes out."""
    found = [m.group(1) for m in [_LEADING_NAME.match(series_query)] if m is not None]
    return found + _NAME_MATCHER.findall(series_query)


def twice(name: str, other: str, its_series: str, series: str) -> str:
    """Return how two rules that expose one name are told, of the later one."""
    return (
        f"{name!r} is exposed by {other} too, from the series {its_series}; this one, being "
        f"later, answers, from {series}"
    )


def shared(name: str, series: Collection[str]) -> str:
    """Return how several series of one rule that come to one name are told."""
    return (
        f"{len(series)} series names come to one metric, {name}, and only {max(series)}, the last "
        f"in alphabetical order, is queried. {SHARED}"
    )


def window_too_short(rule: Rule, around: Surroundings) -> Diagnosis:
    """Return what to change when only the discovery window is empty."""
    window, scrape_s = _short(around.relist_interval_s), around.scrape_interval_s
    interval = f"is {_short(scrape_s)}" if scrape_s else "may be longer"
    return Diagnosis(
        Stage.NO_SERIES,
        f"seriesQuery {rule.series_query!r} matches series, but none was scraped within the "
        f"discovery window of {window} (--metrics-relist-interval); the scrape interval "
        f"{interval}.",
        "Set --metrics-max-age (or the relist interval) to at least twice the scrape interval.",
    )


def selector_too_narrow(rule: Rule, name: str, existing: Sequence[LabelSet]) -> Diagnosis:
    """Return what to change when the name exists with other labels."""
    asked_for = _matched_labels(rule.series_query)
    carried = {label for each in existing for label in each}
    absent = [label for label in asked_for if label not in carried and label != "__name__"]
    return Diagnosis(
        Stage.NO_SERIES,
        f"Series called {name} exist with the labels {labels_of(existing)}; seriesQuery "
        f"{rule.series_query!r} asks for {', '.join(absent or asked_for)}.",
        "Select by labels that the series carry, and map those under resources.overrides.",
    )


def _matched_labels(series_query: str) -> list[str]:
    try:
        tree = parse(series_query)
    except NotPromql:
        return []
    matchers = tree.matchers if isinstance(tree, VectorSelector) else ()
    return sorted({matcher.label for matcher in matchers})


def _names_of(series: Iterable[LabelSet]) -> list[str]:
    return sorted({each.get("__name__", "") for each in series})


def labels_of(series: Iterable[LabelSet]) -> str:
    """Return the names of the labels that are there, sorted, but for ``__name__``."""
    return ", ".join(sorted({label for each in series for label in each} - {"__name__"}))


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return objects or series by name, as many as somebody reads."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _short(seconds: float) -> str:
    """Return ``30s``, ``5m``: as people write durations."""
    text = duration.format_go(seconds)
    return text.removesuffix("0s") if text.endswith("m0s") else text
