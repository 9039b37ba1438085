"""Why is my metric not found? The first stage of its way that fails, and what to change.

The way: rules file, Prometheus, series, filters, labels, name, query, result, object,
value, age, APIService, access (stages of ``cases/doctor.yaml``, in their order). Pure: a
generator that yields ``evidence.Need`` and is sent the answers.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace
from yaml import Node

from adapter.discovery.registry import is_namespaced
from adapter.doctor import evidence, query_checks, series_checks
from adapter.doctor.evidence import Diagnosis, LintFinding
from adapter.errors import ConfigInvalid
from adapter.rules.ruleset import Rule, read_rules
from adapter.stages import Stage
from podscale.kube.discovery import Mapper

API_GROUPS = {"custom": "custom.metrics.k8s.io", "external": "external.metrics.k8s.io"}
_RULE = re.compile(r"([^\[]*)\[([0-9]+)\]")  # in the path of a problem
_MOST_SHADOWED = 20  # series that are asked for when the one that answers fails
_SECTIONS = {"custom": "rules", "external": "externalRules"}


def diagnose(
    text: str | Node,
    asked: evidence.AskedEvidence,
    around: evidence.Surroundings,
    file: str = "rules file",
    objects: Sequence[Rule] = (),
) -> evidence.Way[Diagnosis]:
    """Yield what must be known, one ``Need`` at a time; return the ``Diagnosis``.

    ``objects`` are the rules of ClusterMetricRules and MetricRules that ``may_answer``: a later
    one goes before.
    """
    try:
        parsed, rules = read_rules(text, file, Mapper(around.resources))
    except ConfigInvalid as error:
        return config_invalid(error)
    if around.prometheus_error is not None:
        return _unreachable(around.prometheus_error, around)
    of_api = rules.custom if asked.api == "custom" else rules.external
    found = yield from _follow([*of_api, *objects], asked, around)
    if found.rule is None or found.place:
        return found
    spot = parsed.problem(f"{found.section}[{found.rule}]", "")
    place = f"{file}:{spot.line}" if spot.line else file
    beside = tuple(replace(each, place=place) for each in found.beside)
    return replace(found, place=place, beside=beside)


def may_answer(rule: Rule, asked: evidence.AskedEvidence) -> bool:
    """Return whether a rule that is an object is of the API, and of everywhere or the namespace."""
    is_its = rule.namespace == asked.namespace and is_namespaced(asked.resource)
    return rule.section == _SECTIONS[asked.api] and (is_its or not rule.namespace)


def _follow(
    candidates: Sequence[Rule], asked: evidence.AskedEvidence, around: evidence.Surroundings
) -> evidence.Way[Diagnosis]:
    if not candidates:
        section = _SECTIONS[asked.api]
        return Diagnosis(
            Stage.NO_SERIES,
            f"The file has no {section}, so nothing can be called {asked.metric}.",
            f"Add a rule under {section}: for the {asked.api} metrics API.",
        )
    tracks: list[series_checks.Track] = []
    for rule in candidates:
        given = yield evidence.SeriesOf(rule.series_query)
        if isinstance(given, evidence.Unreachable):
            return _unreachable(given.error, around)
        tracks += series_checks.tracks(rule, asked, given)
    exposing = [each for each in tracks if each.lost is None]
    if not exposing:
        return (yield from _explain_series(series_checks.meant_for(tracks, asked), around))
    *others, answering = exposing
    found = yield from query_checks.follow(answering.rule, answering.series, asked, around)
    if isinstance(found, Diagnosis):
        for earlier in reversed(others[-_MOST_SHADOWED:]):
            other = yield from query_checks.follow(earlier.rule, earlier.series, asked, around)
            if isinstance(other, query_checks.Served):
                return _shadowed(earlier, answering, found, asked.metric)
        return found
    if unreached := reached(asked, around):
        return unreached.of(answering.rule, found.promql)
    beside = tuple(_beside(exposing, asked, found.lacking))
    change = "Nothing stops it." if beside else "Nothing needs to change."
    served = Diagnosis(Stage.HEALTHY, f"{asked.metric} is served to the reader.", change)
    return replace(served.of(answering.rule, found.promql), beside=beside)


def _beside(
    exposing: Sequence[series_checks.Track], asked: evidence.AskedEvidence, lacking: str
) -> Iterator[LintFinding]:
    answering = exposing[-1]
    if lacking:
        yield LintFinding("NoSample", answering.rule.id, without_sample(asked, lacking))
    own = [each.series for each in exposing if each.rule is answering.rule]
    if len(own) > 1:
        yield LintFinding("NameTwice", answering.rule.id, series_checks.shared(asked.metric, own))
    for other in [each for each in exposing if each.rule is not answering.rule][:1]:
        text = series_checks.twice(asked.metric, other.rule.id, other.series, answering.series)
        yield LintFinding("NameTwice", answering.rule.id, text)


def without_sample(asked: evidence.AskedEvidence, lacking: str) -> str:
    """Return what it means that the ``lacking`` of the objects asked for have no sample."""
    meaning = (
        ": an HPA takes each for idle when growing and for on target when shrinking"
        if asked.resource == "pods"
        else ""
    )
    return (
        f"of the {asked.resource} asked for, these have no sample of {asked.metric}: "
        f"{lacking}{meaning}. See whether each is scraped"
    )


def _explain_series(
    best: series_checks.Track, around: evidence.Surroundings
) -> evidence.Way[Diagnosis]:
    rule, lost = best.rule, best.lost
    assert lost is not None  # noqa: S101 - by the caller
    if lost.stage != Stage.NO_SERIES:
        return lost
    older = yield evidence.SeriesOf(rule.series_query, within_window=False)
    if isinstance(older, evidence.Series) and older.labels:
        return series_checks.window_too_short(rule, around).of(rule)
    for name in series_checks.names_in(rule.series_query):
        bare = yield evidence.SeriesOf(name)
        if isinstance(bare, evidence.Series) and bare.labels:
            return series_checks.selector_too_narrow(rule, name, bare.labels).of(rule)
    return lost


def reached(asked: evidence.AskedEvidence, around: evidence.Surroundings) -> Diagnosis | None:
    """Return why the reader does not come to a metric that is there, ``None`` if he does."""
    group = API_GROUPS[asked.api]
    registered = {n: s for n, s in around.apiservices.items() if n.endswith(f".{group}")}
    if around.self_service:
        fitting = ("", around.self_service)
        elsewhere = {n: s for n, s in sorted(registered.items()) if s not in fitting}
        if elsewhere or not registered:
            name, service = next(iter(elsewhere.items()), (f"v1beta1.{group}", "no Service"))
            return Diagnosis(
                Stage.API_SERVICE_ELSEWHERE,
                f"APIService {name} points to {service}, not to {around.self_service}, so "
                "somebody else answers for this API.",
                f"Point its spec.service to {around.self_service} (start the adapter with "
                "--adopt to do so), or ask the other server for the metric.",
            )
    if around.access is not None and not around.access.allowed:
        verb, resource = rbac_of(asked)
        return Diagnosis(
            Stage.FORBIDDEN,
            f"{around.access.user} may not {verb} {resource} in {group}"
            f"{f' in the namespace {asked.namespace}' if asked.namespace else ''}"
            f"{f' ({around.access.reason})' if around.access.reason else ''}.",
            f"Bind it to a ClusterRole that allows {verb} on {resource} (or '*') in the API "
            f"group {group}.",
        )
    return None


def rbac_of(asked: evidence.AskedEvidence) -> tuple[str, str]:
    """Return verb and resource, with its subresource, of the request that an HPA would make."""
    if asked.api == "external":
        return "list", asked.metric
    kind = "metrics" if asked.resource == "namespaces" else asked.resource
    return "get", f"{kind}/{asked.metric}"


def _shadowed(
    earlier: series_checks.Track, later: series_checks.Track, lost: Diagnosis, metric: str
) -> Diagnosis:
    first, last = earlier.rule, later.rule
    seen = f"{first.id} would serve {metric} from the series {earlier.series}, but"
    if first is last:
        seen = f"{seen} only {later.series}, the last series of this name, is queried."
        change = f"{series_checks.SHARED}."
        return Diagnosis(Stage.SHADOWED_BY_OTHER_RULE, seen, change).of(first)
    goes_before = "and goes before it" if last.origin else "later in the file"
    return Diagnosis(
        Stage.SHADOWED_BY_OTHER_RULE,
        f"{seen} {last.id} exposes {later.series} under the same name {goes_before}, answers "
        f"instead, and fails ({lost.stage}: {lost.seen})",
        f"Rename one of them (name.as), narrow seriesQuery {last.series_query!r} of {last.id}, "
        "or remove it.",
    ).of(first)


def _unreachable(error: str, around: evidence.Surroundings) -> Diagnosis:
    return Diagnosis(
        Stage.PROMETHEUS_UNREACHABLE,
        f"Prometheus at {around.prometheus_url} does not answer: {error}.",
        "Check --prometheus-url, the name and the port from inside the adapter's pod, and its "
        "credentials (--prometheus-token-file, --prometheus-auth-config, --prometheus-header).",
    )


def config_invalid(error: ConfigInvalid) -> Diagnosis:
    """Return what keeps a rules file from being loaded, at the first place of it."""
    first = error.problems[0]
    rule = next(filter(None, (_RULE.match(problem.path) for problem in error.problems)), None)
    return Diagnosis(
        Stage.CONFIG_INVALID,
        "The rules file is refused:\n" + "\n".join(p.describe(error.file) for p in error.problems),
        "The adapter does not start with this file, and a running one keeps its old rules.",
        rule[1] if rule else "",
        int(rule[2]) if rule else None,
        f"{error.file}:{first.line}:{first.column}" if first.line else error.file,
    )
