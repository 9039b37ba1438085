"""Why is my metric not found? The first stage of its way that fails, and what to change.

The way: rules file, Prometheus, series, filters, labels, name, query, result, object,
value, age, APIService, access (stages of ``cases/doctor.yaml``, in their order). Pure: a
generator that yields ``evidence.Need`` and is sent the answers.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from adapter.discovery.registry import is_namespaced
from adapter.doctor import query_checks, series_checks
from adapter.doctor.evidence import (
    AskedEvidence,
    Given,
    Need,
    Series,
    SeriesOf,
    Surroundings,
    Unreachable,
)
from adapter.doctor.lints import NAME_TWICE, NO_SAMPLE, LintFinding, twice
from adapter.errors import ConfigInvalid, Problem
from adapter.rules.ruleset import Rule, read_rules
from adapter.stages import Stage
from podscale.kube.discovery.restmapper import Mapper

API_GROUPS = {"custom": "custom.metrics.k8s.io", "external": "external.metrics.k8s.io"}
_SECTIONS = {"custom": "rules", "external": "externalRules"}


class Diagnosis(Struct, frozen=True):
    """The stage that is named, where it lies, what was seen and what to change."""

    stage: Stage
    seen: str
    change: str
    section: str = ""  # "rules" | "externalRules"; "": no rule is to blame
    rule: int | None = None
    place: str = ""  # file:line:column of the rule, or the object that it is written in
    promql: str = ""  # as rendered, if the way got so far
    beside: tuple[LintFinding, ...] = ()  # what does not stop a metric that is served

    @property
    def text(self) -> str:
        """The whole finding in words."""
        where = f"{self.place or self.section}: " if self.rule is not None else ""
        beside = "".join(f" {each.text}." for each in self.beside)
        return f"{self.stage}: {where}{self.seen} {self.change}{beside}".strip()


Way = Generator[Need, Given, Diagnosis]


def diagnose(
    text: str,
    asked: AskedEvidence,
    around: Surroundings,
    file: str = "rules file",
    objects: Sequence[Rule] = (),
) -> Way:
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
    beside = tuple(msgspec.structs.replace(each, place=place) for each in found.beside)
    return msgspec.structs.replace(found, place=place, beside=beside)


def may_answer(rule: Rule, asked: AskedEvidence) -> bool:
    """Return whether a rule that is an object is of the API, and of everywhere or the namespace."""
    is_its = rule.namespace == asked.namespace and is_namespaced(asked.resource)
    return rule.section == _SECTIONS[asked.api] and (is_its or not rule.namespace)


def _follow(candidates: Sequence[Rule], asked: AskedEvidence, around: Surroundings) -> Way:
    if not candidates:
        section = _SECTIONS[asked.api]
        return Diagnosis(
            Stage.NO_SERIES,
            f"The file has no {section}, so nothing can be called {asked.metric}.",
            f"Add a rule under {section}: for the {asked.api} metrics API.",
        )
    tracks: list[series_checks.Track] = []
    for rule in candidates:
        given = yield SeriesOf(rule.series_query)
        if isinstance(given, Unreachable):
            return _unreachable(given.error, around)
        tracks.append(series_checks.track(rule, asked, given))
    exposing = [t for t in tracks if t.stage is None]
    if not exposing:
        return (yield from _explain_series(series_checks.meant_for(tracks, asked), around))
    answering = exposing[-1]
    verdict = yield from query_checks.follow(answering.rule, answering.series, asked, around)
    if verdict.stage is not None:
        for earlier in reversed(exposing[:-1]):
            other = yield from query_checks.follow(earlier.rule, earlier.series, asked, around)
            if other.stage is None:
                return _shadowed(earlier, answering, verdict, asked)
        return _of(answering.rule, verdict.stage, verdict.seen, verdict.change, verdict.promql)
    found = _reader(answering.rule, asked, around, verdict.promql)
    if found.stage != Stage.HEALTHY:
        return found
    beside = tuple(_beside(exposing, asked, verdict.lacking))
    change = found.change if not beside else "Nothing stops it."
    return msgspec.structs.replace(found, change=change, beside=beside)


def _beside(
    exposing: Sequence[series_checks.Track], asked: AskedEvidence, lacking: str
) -> Iterator[LintFinding]:
    *earlier, answering = exposing
    if lacking:
        yield LintFinding(NO_SAMPLE, answering.rule.id, without_sample(asked, lacking))
    for other in earlier[:1]:
        text = twice(asked.metric, other.rule.id, other.series, answering.series)
        yield LintFinding(NAME_TWICE, answering.rule.id, text)


def without_sample(asked: AskedEvidence, lacking: str) -> str:
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


def _explain_series(track: series_checks.Track, around: Surroundings) -> Way:
    if track.stage != Stage.NO_SERIES:
        return _of(track.rule, track.stage or Stage.NO_SERIES, track.seen, track.change)
    older = yield SeriesOf(track.rule.series_query, within_window=False)
    if isinstance(older, Series) and older.labels:
        seen, change = series_checks.window_too_short(track.rule, around)
        return _of(track.rule, Stage.NO_SERIES, seen, change)
    for name in series_checks.names_in(track.rule.series_query):
        bare = yield SeriesOf(name)
        if isinstance(bare, Series) and bare.labels:
            seen, change = series_checks.selector_too_narrow(track.rule, name, bare.labels)
            return _of(track.rule, Stage.NO_SERIES, seen, change)
    return _of(track.rule, Stage.NO_SERIES, track.seen, track.change)


def _reader(rule: Rule, asked: AskedEvidence, around: Surroundings, promql: str) -> Diagnosis:
    unreached = reached(asked, around)
    if unreached is not None:
        return _of(rule, unreached.stage, unreached.seen, unreached.change, promql)
    return _of(
        rule,
        Stage.HEALTHY,
        f"{asked.metric} is served to the reader.",
        "Nothing needs to change.",
        promql,
    )


def reached(asked: AskedEvidence, around: Surroundings) -> Diagnosis | None:
    """Return why the reader does not come to a metric that is there, ``None`` if he does."""
    group = API_GROUPS[asked.api]
    registered = {n: s for n, s in around.apiservices.items() if n.endswith(f".{group}")}
    if around.self_service:
        elsewhere = {n: s for n, s in sorted(registered.items()) if s != around.self_service}
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
        resource, verb = _rbac_resource(asked), "list" if asked.api == "external" else "get"
        return Diagnosis(
            Stage.FORBIDDEN,
            f"{around.access.user} may not {verb} {resource} in {group}"
            f"{f' in the namespace {asked.namespace}' if asked.namespace else ''}"
            f"{f' ({around.access.reason})' if around.access.reason else ''}.",
            f"Bind it to a ClusterRole that allows {verb} on {resource} (or '*') in the API "
            f"group {group}.",
        )
    return None


def _rbac_resource(asked: AskedEvidence) -> str:
    if asked.api == "external":
        return asked.metric
    kind = "metrics" if asked.resource == "namespaces" else asked.resource
    return f"{kind}/{asked.metric}"


def _shadowed(
    earlier: series_checks.Track,
    later: series_checks.Track,
    verdict: query_checks.QueryVerdict,
    asked: AskedEvidence,
) -> Diagnosis:
    first, last = earlier.rule, later.rule
    goes_before = "and goes before it" if last.origin else "later in the file"
    return _of(
        first,
        Stage.SHADOWED_BY_OTHER_RULE,
        f"{first.id} would serve {asked.metric} from the series {earlier.series}, but {last.id} "
        f"exposes {later.series} under the same name {goes_before}, answers instead, and "
        f"fails ({verdict.stage}: {verdict.seen})",
        f"Rename one of them (name.as), narrow seriesQuery {last.series_query!r} of {last.id}, "
        "or remove it.",
    )


def _of(rule: Rule, stage: Stage, seen: str, change: str, promql: str = "") -> Diagnosis:
    index = None if rule.origin else rule.index
    return Diagnosis(stage, seen, change, rule.section, index, rule.origin, promql)


def _unreachable(error: str, around: Surroundings) -> Diagnosis:
    return Diagnosis(
        Stage.PROMETHEUS_UNREACHABLE,
        f"Prometheus at {around.prometheus_url} does not answer: {error}.",
        "Check --prometheus-url, the name and the port from inside the adapter's pod, and its "
        "credentials (--prometheus-token-file, --prometheus-auth-config, --prometheus-header).",
    )


def config_invalid(error: ConfigInvalid) -> Diagnosis:
    """Return what keeps a rules file from being loaded, at the first place of it."""
    first = error.problems[0]
    section, index = _rule_of(error.problems)
    return Diagnosis(
        Stage.CONFIG_INVALID,
        "The rules file is refused:\n" + "\n".join(p.describe(error.file) for p in error.problems),
        "The adapter does not start with this file, and a running one keeps its old rules.",
        section,
        index,
        f"{error.file}:{first.line}:{first.column}" if first.line else error.file,
    )


def _rule_of(problems: Iterable[Problem]) -> tuple[str, int | None]:
    for problem in problems:
        section, bracket, rest = problem.path.partition("[")
        number = rest.partition("]")[0]
        if bracket and number.isdigit():
            return section, int(number)
    return "", None


def run(way: Way, answers: Callable[[Need], Given]) -> Diagnosis:
    """Return the diagnosis, with every need answered by ``answers``."""
    try:
        need = next(way)
        while True:
            need = way.send(answers(need))
    except StopIteration as end:
        found = end.value
        assert isinstance(found, Diagnosis)  # noqa: S101 - the type of the generator's return
        return found
