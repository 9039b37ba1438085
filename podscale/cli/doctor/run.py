"""One run of the doctor: gather, diagnose metric by metric, lint. Prints nothing."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from adapter.apis.rules_api import RulesTold, RuleTold
from adapter.discovery.mapping import ResourceMapper
from adapter.doctor.diagnosis import Diagnosis, diagnose, reached
from adapter.doctor.evidence import (
    AskedEvidence,
    Need,
    Rejected,
    Series,
    SeriesOf,
    Surroundings,
    Unreachable,
)
from adapter.doctor.examine import Examiner, drive
from adapter.doctor.lint_objects import World, joined, lint_objects, read
from adapter.doctor.lints import KnownMetrics, LintFinding, lint
from adapter.doctor.recording import RecordedAnswer, Recording
from adapter.errors import ConfigInvalid
from adapter.rules.presumed import BUILT_IN, PresumingMapper
from adapter.rules.ruleset import Rule, RuleSet, read_rules
from adapter.stages import Stage
from podscale.cli.doctor.cluster import DoctorCluster
from podscale.cli.doctor.served import answered, measured
from podscale.cli.output import Progress, count, plainly
from podscale.core.showable import shown_url
from podscale.feed.client import PrometheusClient
from podscale.feed.options import PrometheusOptions
from podscale.kube.resource import (
    DEPLOYMENTS,
    HPAS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    VPAS,
)
from podscale.migrate.rules_source import RulesText


class DoctorPlan(Struct, frozen=True, kw_only=True):
    """What the command line comes to."""

    rules: RulesText | None  # None: nothing that is asked for comes from rules
    prometheus: PrometheusOptions | None = None
    asked: Sequence[AskedEvidence] = ()
    relist_interval_s: float = 60.0
    scrape_interval_s: float | None = None
    sample_max_age_s: float = 300.0
    service: str = ""
    reader: str = ""
    namespace: str = ""
    told: RulesTold | None = None  # by the running adapter, where the rules are from
    disabled: frozenset[str] = frozenset()
    usage: Sequence[AskedEvidence] = ()  # of pods, which metrics.k8s.io serves and not a rule
    hpa: str = ""  # the HPA that all this is asked about; "": lints are of every one


class RuleReport(Struct, frozen=True):
    """What one rule finds and exposes."""

    rule: str
    series: int  # distinct names that its query finds and its filters keep
    names: Sequence[str]  # metrics, sorted
    problem: str = ""


class DoctorReport(Struct, kw_only=True):
    """Everything that was found."""

    findings: list[tuple[AskedEvidence, Diagnosis]] = []
    config_problem: Diagnosis | None = None
    rules: list[RuleReport] = []
    lints: list[LintFinding] = []
    notes: list[str] = []
    prometheus_requests: int = 0
    cluster_requests: int = 0
    recording: Recording | None = None

    @property
    def is_healthy(self) -> bool:
        """Return whether nothing has to change."""
        return (
            self.config_problem is None
            and all(each.is_hint for each in self.lints)
            and not any(rule.problem for rule in self.rules)
            and all(found.stage == Stage.HEALTHY for _, found in self.findings)
        )


async def examine(
    plan: DoctorPlan, cluster: DoctorCluster | None, progress: Progress
) -> DoctorReport:
    """Return the report; raises ``ClusterFailed`` and ``OSError`` (credentials)."""
    report = DoctorReport()
    examiner: Examiner | None = None
    if plan.rules is not None:
        examiner = await _examine_rules(plan, plan.rules, cluster, report, progress)
    if cluster is not None:
        for asked in plan.usage:
            report.findings.append((asked, found := await measured(cluster, asked)))
            report.lints += [each for each in found.beside if each.lint not in plan.disabled]
    if cluster is not None and report.config_problem is None:
        about = f"hpa/{plan.hpa} in {plan.namespace}"
        report.lints += [
            each for each in await _objects(plan, cluster) if not plan.hpa or each.subject == about
        ]
    if plan.told is not None and plan.told.problem:
        report.config_problem = _not_reloaded(plan.told)
    return _counted(report, examiner, cluster)


def _not_reloaded(told: RulesTold) -> Diagnosis:
    return Diagnosis(
        Stage.CONFIG_INVALID,
        f"The adapter refused its rules file as it is now, and the old rules are in force:\n"
        f"{told.problem}",
        "Correct the file; the adapter reads it again as soon as it changes.",
        place=told.file,
    )


async def _examine_rules(
    plan: DoctorPlan,
    source: RulesText,
    cluster: DoctorCluster | None,
    report: DoctorReport,
    progress: Progress,
) -> Examiner | None:
    """Add to ``report`` what the rules come to; return whom Prometheus was asked through."""
    mapper: ResourceMapper = cluster.mapper if cluster else PresumingMapper()
    try:
        parsed, rules = read_rules(source.text, source.file, mapper)
    except ConfigInvalid as error:
        report.config_problem = _refused(plan, source, error)
        return None
    examiner: Examiner | None = None
    known = KnownMetrics(plan.scrape_interval_s)
    if plan.prometheus is not None:
        async with PrometheusClient(plan.prometheus) as client:
            examiner = Examiner(client, plan.relist_interval_s, rules)
            problem = await examiner.problem()
            if problem is None and plan.scrape_interval_s is None:
                plan = msgspec.structs.replace(
                    plan, scrape_interval_s=await examiner.scrape_interval_s()
                )
                known = KnownMetrics(plan.scrape_interval_s)
            if plan.asked:
                most = len({rule.series_query for rule in (*rules.custom, *rules.external)})
                _show(examiner, most, progress)
                await _metrics(plan, source, cluster, examiner, problem, report)
            elif problem is None:
                known = await _rules(plan, rules, examiner, report, progress)
            else:
                report.rules = [RuleReport("", 0, (), plainly(problem))]
    elif cluster is not None and plan.told is not None:
        for asked in plan.asked:
            report.findings.append((asked, await _served(plan, asked, cluster)))
        # Of one metric that is served, other rules say nothing; of one that is not, those may
        # that could not be listed.
        report.rules = [
            RuleReport(each.rule, each.metrics, (), _told_problem(each))
            for each in plan.told.rules
            if not plan.asked or (each.problem and not report.is_healthy)
        ]
    elif number := len(rules.custom) + len(rules.external):
        report.notes.append(
            f"{count(number, 'rule')} read and linted; --prometheus-url shows what they find"
        )
    else:
        report.notes.append("there are no rules for custom or external metrics")
    report.lints = lint(parsed, rules, _with_crowded(known, plan, rules, examiner), plan.disabled)
    if plan.asked:  # of the rules it is about; the whole file is checked without a metric
        about = {f"{found.section}[{found.rule}]" for _, found in report.findings}
        report.lints = [each for each in report.lints if each.subject in about]
    known_lints = {(each.lint, each.subject) for each in report.lints}
    report.lints += [
        each
        for _, found in report.findings
        for each in found.beside
        if each.lint not in plan.disabled and (each.lint, each.subject) not in known_lints
    ]
    return examiner


def _with_crowded(
    known: KnownMetrics, plan: DoctorPlan, rules: RuleSet, examiner: Examiner | None
) -> KnownMetrics:
    """Return also which metrics have too many label names, as Prometheus or the adapter says."""
    if examiner is not None:
        every = (*rules.custom, *rules.external)
        crowded = {rule.id: examiner.crowded.get(rule.series_query, ()) for rule in every}
    else:
        crowded = {each.rule: each.crowded for each in plan.told.rules} if plan.told else {}
    return msgspec.structs.replace(known, crowded=crowded)


def _told_problem(told: RuleTold) -> str:
    if told.problem or told.metrics:
        return told.problem
    if told.listed_s is None:
        return "NotListedYet: the adapter has just begun; ask again after its relist interval"
    return (
        "NoSeries: the rule exposes no metric; --prometheus-url shows which stage loses its series"
    )


def _refused(plan: DoctorPlan, source: RulesText, error: ConfigInvalid) -> Diagnosis:
    about = plan.asked[0] if plan.asked else AskedEvidence("custom", "", "", "pods")
    around = Surroundings(prometheus_url="", resources=BUILT_IN)
    try:
        next(diagnose(source.text, about, around, source.file))
    except StopIteration as end:
        if isinstance(end.value, Diagnosis):
            return end.value
    # Only this cluster's resources make it wrong.
    first = error.problems[0]
    return Diagnosis(
        Stage.CONFIG_INVALID,
        f"The rules file is refused:\n{error}",
        "The adapter does not start with this file, and a running one keeps its old rules.",
        place=f"{error.file}:{first.line}:{first.column}",
    )


def _show(examiner: Examiner, most: int, progress: Progress) -> None:
    def asked_for(need: Need) -> None:
        progress(min(examiner.requests, most), most, getattr(need, "match", "the metric's query"))

    examiner.hear(asked_for)


async def _metrics(
    plan: DoctorPlan,
    source: RulesText,
    cluster: DoctorCluster | None,
    examiner: Examiner,
    problem: str | None,
    report: DoctorReport,
) -> None:
    for asked in plan.asked:
        around = await _surroundings(plan, asked, cluster, problem)
        before = len(examiner.taken)
        way = diagnose(source.text, asked, around, source.file)
        report.findings.append((asked, await drive(way, examiner)))
        if report.recording is None:
            report.recording = Recording(
                config=source.text,
                asked=asked,
                around=around,
                entries=[RecordedAnswer(need, given) for need, given in examiner.taken[before:]],
            )


async def _served(plan: DoctorPlan, asked: AskedEvidence, cluster: DoctorCluster) -> Diagnosis:
    """Return what the running adapter says, or that nobody comes to ask it."""
    found = await answered(cluster, asked)
    if found.stage != Stage.HEALTHY:
        return found
    around = msgspec.structs.replace(
        Surroundings(prometheus_url=""),
        apiservices=await cluster.api_services(asked.api),
        self_service=plan.service,
        access=await cluster.access(asked, plan.reader) if plan.reader else None,
    )
    return reached(asked, around) or found


async def _surroundings(
    plan: DoctorPlan, asked: AskedEvidence, cluster: DoctorCluster | None, problem: str | None
) -> Surroundings:
    around = Surroundings(
        prometheus_url=shown_url(plan.prometheus.url) if plan.prometheus else "",
        prometheus_error=problem,
        scrape_interval_s=plan.scrape_interval_s,
        relist_interval_s=plan.relist_interval_s,
        sample_max_age_s=plan.sample_max_age_s,
        resources=BUILT_IN,
        objects=[asked.name] if asked.name not in ("", "*") else [],
    )
    if cluster is None:
        return around
    return msgspec.structs.replace(
        around,
        resources=cluster.mapper.resources,
        objects=await cluster.object_names(asked),
        young=sorted(cluster.young),
        apiservices=await cluster.api_services(asked.api),
        self_service=plan.service,
        access=await cluster.access(asked, plan.reader) if plan.reader else None,
    )


async def _rules(
    plan: DoctorPlan, rules: RuleSet, examiner: Examiner, report: DoctorReport, progress: Progress
) -> KnownMetrics:
    every = (*rules.custom, *rules.external)
    found: dict[str, Sequence[str]] = {}
    for done, rule in enumerate(every):
        progress(done, len(every), rule.id)
        given = await examiner.answer(SeriesOf(rule.series_query))
        reported = _rule(rule, given)
        report.rules.append(reported[0])
        found[rule.id] = reported[1]
    progress(len(every), len(every), "done")
    return KnownMetrics(plan.scrape_interval_s, found)


def _rule(rule: Rule, given: object) -> tuple[RuleReport, Sequence[str]]:
    if isinstance(given, Rejected):
        return RuleReport(rule.id, 0, (), f"SeriesQueryInvalid: {given.error}"), ()
    if isinstance(given, Unreachable):
        return RuleReport(rule.id, 0, (), f"PrometheusUnreachable: {given.error}"), ()
    labels = given.labels if isinstance(given, Series) else ()
    seen = sorted({each.get("__name__", "") for each in labels})
    kept = [name for name in seen if rule.keeps(name)]
    exposing = {
        each.get("__name__", "")
        for each in labels
        if rule.section == "externalRules" or rule.labels.read(each).resources
    }
    names = sorted({
        name for each in kept if each in exposing and (name := rule.namer.name(each))
    })  # fmt: skip
    problem = ""
    if not seen:
        problem = "NoSeries: seriesQuery finds nothing within the discovery window"
    elif not kept:
        problem = (
            f"FilteredOut: {count(len(seen), 'series name')} found, and none passes seriesFilters "
            "and matches"
        )
    elif not exposing & set(kept):
        problem = "NoResourceLabel: no label of the series maps to a resource"
    elif not names:
        problem = "NameMismatch: no series gets a name"
    return RuleReport(rule.id, len(kept), names, problem), kept


async def _objects(plan: DoctorPlan, cluster: DoctorCluster) -> list[LintFinding]:
    worlds: list[World] = []
    for resource in (HPAS, VPAS, DEPLOYMENTS, STATEFUL_SETS, REPLICA_SETS, PODS):
        if resource is VPAS and not any(r.plural == VPAS.plural for r in cluster.mapper.resources):
            continue
        # Little is kept of an object, so no more than one page is held as it came.
        async for page in cluster.listed(resource.path(plan.namespace), resource.plural):
            worlds += _read(page, resource.kind, cluster.notes)
        if resource is HPAS and not worlds:
            return []
    return lint_objects(joined(worlds), plan.disabled)


def _read(page: Sequence[Mapping[str, object]], kind: str, notes: list[str]) -> Iterator[World]:
    """Yield the objects that can be read; an odd one is noted, and hides none of the others."""
    for each in page:
        try:
            yield read([{**each, "kind": kind}])
        except msgspec.ValidationError as error:
            metadata = each.get("metadata")
            name = metadata.get("name") if isinstance(metadata, dict) else ""
            notes.append(f"{kind} {name} is not linted: {error}")


def _counted(
    report: DoctorReport, examiner: Examiner | None, cluster: DoctorCluster | None
) -> DoctorReport:
    if examiner is not None:
        report.prometheus_requests = examiner.requests
    if cluster is not None:
        report.cluster_requests = cluster.requests
        report.notes += cluster.notes
    return report
