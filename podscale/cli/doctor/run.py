"""One run of the doctor: gather, diagnose metric by metric, lint. Prints nothing."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from adapter.apis.rules_api import RulesTold
from adapter.doctor.diagnosis import Diagnosis, diagnose, may_answer
from adapter.doctor.evidence import (
    AskedEvidence,
    Need,
    Rejected,
    Series,
    SeriesOf,
    Surroundings,
    Unreachable,
)
from adapter.doctor.examine import Examiner
from adapter.doctor.lints import NO_RULES, QUERY_INVALID, KnownMetrics, LintFinding, lint
from adapter.doctor.refused_file import query_findings
from adapter.errors import ConfigInvalid
from adapter.rules.config import Parsed
from adapter.rules.presumed import BUILT_IN, PresumingMapper
from adapter.rules.ruleset import Rule, RuleSet, read_rules
from adapter.stages import Stage
from podscale.cli.doctor import metric_rules
from podscale.cli.doctor.asked_metrics import followed, served, served_or_followed
from podscale.cli.doctor.cluster import DoctorCluster
from podscale.cli.doctor.hpa_metrics import unexposed
from podscale.cli.doctor.metric_rules import ReadObject
from podscale.cli.doctor.object_lints import lint_objects
from podscale.cli.doctor.objects import LintedHpa, World
from podscale.cli.doctor.report import DoctorPlan, DoctorReport
from podscale.cli.doctor.rule_reports import (
    RuleFindings,
    RuleReport,
    found_by,
    found_by_usage,
    of_backends,
    told_by,
)
from podscale.cli.doctor.served import measured
from podscale.cli.output import Progress, count, plainly
from podscale.core.plainwords import plain_words
from podscale.core.showable import shown_url
from podscale.feed.http.client import PrometheusClient
from podscale.kube.client.resource import DEPLOYMENTS, HPAS, PODS, REPLICA_SETS, STATEFUL_SETS, VPAS
from podscale.kube.client.wire import decode
from podscale.migrate.rules_source import RulesText

_NO_RESOURCE_RULES = Diagnosis(
    Stage.NO_SERIES,
    "The file has no resourceRules, so it serves no usage.",
    "Add them, or leave --no-cluster out to see who serves metrics.k8s.io.",
)


async def examine(
    plan: DoctorPlan, cluster: DoctorCluster | None, progress: Progress
) -> DoctorReport:
    """Return the report; raises ``ClusterFailed`` and ``OSError`` (credentials)."""
    report = DoctorReport()
    examiner: Examiner | None = None
    hpas: Sequence[LintedHpa] = ()
    objects: list[LintFinding] = []
    read: tuple[Parsed, RuleSet] | None = None
    stored: list[ReadObject] = []
    if cluster is not None and plan.has_objects:
        label = plan.told.namespace_label if plan.told is not None else ""
        stored = await metric_rules.objects(cluster, plan.namespace, label)
        followed = metric_rules.of_default_source(stored)
        plan = msgspec.structs.replace(plan, object_rules=followed)
    if plan.rules is not None:
        source, mapper = plan.rules, cluster.mapper if cluster else PresumingMapper()
        try:
            read = read_rules(source.text, source.file, mapper)
        except ConfigInvalid as error:
            report.config_problem = _refused(plan, source, error)
            report.lints += query_findings(
                source.text, source.file, error.problems, mapper, plan.disabled
            )
    if cluster is not None and report.config_problem is None:
        world = await _world(plan, cluster)
        hpas = world.hpas if not (plan.asked or plan.usage or plan.hpa) else ()
        # What a file's rules will do for it, an HPA cannot say before an adapter has them.
        unsaid = "" if plan.told or plan.hpa else "NotScaling"
        about = f"hpa/{plan.hpa} in {plan.namespace}"
        objects = [
            each
            for each in lint_objects(world)
            if each.lint not in {*plan.disabled, unsaid} and (not plan.hpa or each.subject == about)
        ]
    if (rules := plan.rules) is not None and read is not None:
        if not _lacks_rules(plan, read[1], stored):
            plan = msgspec.structs.replace(plan, disabled=plan.disabled | {NO_RULES})
        examiner = await _examine_rules(plan, rules, read, hpas, cluster, report, progress)
    if cluster is not None and plan.has_objects:
        await _examine_objects(plan, cluster, stored, report)
    # Of a file's rules Prometheus has told what they find, whatever is served now.
    is_followed = read is not None and plan.told is None and _by_source(read[1])[0].resource
    for asked in () if is_followed and not plan.hpa else plan.usage:
        found = _NO_RESOURCE_RULES if cluster is None else await measured(cluster, asked)
        report.findings.append((asked, found))
        report.lints += [each for each in found.beside if each.lint not in plan.disabled]
    if plan.told is not None and all(each.api == "external" for each in plan.asked):
        found_of = of_backends(plan.told.backends)
        report.lints += [each for each in found_of if each.lint not in plan.disabled]
    report.lints += objects
    if plan.told is not None and plan.told.prometheus_problem and plan.prometheus is None:
        report.rules.insert(
            0,
            RuleReport(
                "Prometheus", 0, (), f"PrometheusUnreachable: {plan.told.prometheus_problem}"
            ),
        )
    if plan.told is not None and plan.told.problem:
        report.config_problem = _not_reloaded(plan.told)
    return _counted(report, examiner, cluster)


async def _examine_objects(
    plan: DoctorPlan, cluster: DoctorCluster, objects: Sequence[ReadObject], report: DoctorReport
) -> None:
    """Add what became of MetricRules, and which of them answers for what is asked for."""
    found = [metric_rules.report(each) for each in objects]
    if plan.rules is None:
        for asked in plan.asked:
            report.findings.append((asked, await served_or_followed(plan, asked, cluster, report)))
    for asked in plan.asked:
        if rule := metric_rules.answering(asked.metric, found):
            report.notes.append(f"{asked.metric} is answered by {rule}")
    report.rules += [
        each for each in found if not plan.asked or (each.problem and not report.is_healthy)
    ]


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
    read: tuple[Parsed, RuleSet],
    hpas: Sequence[LintedHpa],
    cluster: DoctorCluster | None,
    report: DoctorReport,
    progress: Progress,
) -> Examiner | None:
    """Add to ``report`` what the rules come to; return whom Prometheus was asked through."""
    parsed, every = read
    rules, elsewhere = _by_source(every)
    if plan.usage and not plan.asked:  # which resourceRules alone answer
        rules, elsewhere = msgspec.structs.replace(rules, custom=(), external=()), []
    if elsewhere:
        report.notes.append(_not_asked(elsewhere))
    examiner: Examiner | None = None
    known = KnownMetrics(plan.scrape_interval_s)
    answers: Mapping[Need | None, str] = {}
    if plan.prometheus is not None:
        async with PrometheusClient(plan.prometheus) as client:
            examiner = Examiner(client, plan.relist_interval_s, rules)
            problem = await examiner.problem()
            if problem is None:
                ids = {each.id for each in elsewhere}
                unread = [each for each in lint(parsed, every) if each.subject not in ids]
                answers = await _answers(examiner, unread, shown_url(plan.prometheus.url))
            if problem is None and plan.scrape_interval_s is None:
                plan = msgspec.structs.replace(
                    plan, scrape_interval_s=await examiner.scrape_interval_s()
                )
                known = KnownMetrics(plan.scrape_interval_s)
            if plan.asked:
                most = len({rule.series_query for rule in (*rules.custom, *rules.external)})
                _show(examiner, most, progress)
                for asked in plan.asked:
                    told = plan.told if elsewhere or plan.has_objects else None
                    found = await served(plan, asked, cluster) if told and cluster else None
                    if found is None or found.stage != Stage.HEALTHY:
                        found = await followed(
                            plan, source, asked, cluster, examiner, problem, report
                        )
                    report.findings.append((asked, found))
            elif problem is None:
                by_rule = await _rules(rules, examiner, cluster, report, progress)
                series = {rule: found.series for rule, found in by_rule.items()}
                known = KnownMetrics(plan.scrape_interval_s, series)
                exposed = _exposed(by_rule.values())
                if elsewhere and cluster is not None:
                    exposed = await cluster.listed_metrics(hpas)
                for hpa, asked, certain in _unexposed(hpas, cluster, exposed):
                    found = certain or await followed(
                        plan, source, asked, cluster, examiner, None, report
                    )
                    _add(report, hpa, asked, found)
            else:
                report.rules = [RuleReport("", 0, (), plainly(problem))]
            if plan.told is not None and not plan.asked:
                ids = {each.id for each in elsewhere}
                report.rules += [told_by(each) for each in plan.told.rules if each.rule in ids]
    elif cluster is not None and plan.told is not None:
        for asked in plan.asked:
            report.findings.append((asked, await served(plan, asked, cluster)))
        for hpa, asked, certain in _unexposed(hpas, cluster, await cluster.listed_metrics(hpas)):
            _add(report, hpa, asked, certain or await served(plan, asked, cluster))
        # Of one metric that is served, other rules say nothing; of one that is not, those may
        # that could not be listed.
        report.rules = [
            told_by(each)
            for each in plan.told.rules
            if not (plan.asked or plan.usage) or (each.problem and not report.is_healthy)
        ]
    elif number := len(rules.custom) + len(rules.external):
        report.notes.append(
            f"{count(number, 'rule')} read and linted; --prometheus-url shows what they find"
        )
    elif every.resource is not None:
        report.notes.append("there are no rules for custom or external metrics")
    report.rules = [
        msgspec.structs.replace(each, place=parsed.place(each.rule))
        if each.rule in parsed.places  # and is of the file: not of a MetricRule
        else each
        for each in report.rules
    ]
    known = _with_crowded(known, plan, rules, examiner)
    known = msgspec.structs.replace(known, answers=answers)
    report.lints = lint(parsed, every, known, plan.disabled)
    if plan.usage and not plan.asked:
        report.lints = [each for each in report.lints if each.subject.startswith("resourceRules")]
    if plan.asked:  # of the rules it is about; the whole file is checked without a metric
        about = {f"{found.section}[{found.rule}]" for _, found in report.findings}
        blamed = _blamed(every, report)
        report.lints = [
            each
            for each in report.lints
            if each.subject in about or (each.lint == QUERY_INVALID and each.subject in blamed)
        ]
    known_lints = {(each.lint, each.subject) for each in report.lints}
    report.lints += [
        each
        for _, found in report.findings
        for each in found.beside
        if each.lint not in plan.disabled and (each.lint, each.subject) not in known_lints
    ]
    return examiner


async def _answers(
    examiner: Examiner, findings: Sequence[LintFinding], url: str
) -> dict[Need | None, str]:
    """Return what ``url`` says of what is no PromQL; "" where it takes it, a series query that
    finds some: VictoriaMetrics takes more, {a="1" or b="2"}.
    """
    found: dict[Need | None, str] = {}
    for need in dict.fromkeys(each.need for each in findings if each.need is not None):
        given = await examiner.answer(need)
        match given:
            case Rejected():
                said = f"Prometheus at {url} refuses it: {given.error}"
            case Unreachable():
                said = f"Prometheus at {url} did not answer it: {plainly(given.error)}"
            case Series(labels=[]):
                said = f"Prometheus at {url} finds no series for it"
            case _:
                said = ""
        found[need] = said
    return found


def _lacks_rules(plan: DoctorPlan, rules: RuleSet, stored: Sequence[ReadObject]) -> bool:
    """Return whether there are no rules and, at a running adapter, nothing beside them."""
    if rules.custom or rules.external or rules.resource or stored:
        return False
    is_one_namespace = plan.has_objects and plan.namespace  # others may have MetricRules
    return plan.told is None or not (plan.told.backends or is_one_namespace)


def _blamed(rules: RuleSet, report: DoctorReport) -> set[str]:
    """Return rules that may be meant where the adapter only says that a query is refused."""
    return {
        rule.id
        for asked, found in report.findings
        if found.stage == Stage.QUERY_INVALID and found.rule is None
        for rule in (*rules.custom, *rules.external)
        if may_answer(rule, asked) and rule.may_expose(asked.metric)
    }


def _by_source(rules: RuleSet) -> tuple[RuleSet, list[Rule]]:
    """Return the rules that the default Prometheus answers, and those of named sources."""
    custom, external = (
        tuple(each for each in section if not each.source)
        for section in (rules.custom, rules.external)
    )
    elsewhere = [each for each in (*rules.custom, *rules.external) if each.source]
    resource = rules.resource
    if resource is not None and (resource.cpu.source or resource.memory.source):
        resource = None
    left = msgspec.structs.replace(rules, custom=custom, external=external, resource=resource)
    return left, elsewhere


def _not_asked(rules: Sequence[Rule]) -> str:
    names = ", ".join(f"{each.id} ({each.source})" for each in rules)
    return f"of other sources, and linted only: {names}; the adapter's own relist tells of them"


def _unexposed(
    hpas: Sequence[LintedHpa], cluster: DoctorCluster | None, exposed: Mapping[str, Collection[str]]
) -> Iterator[tuple[LintedHpa, AskedEvidence, Diagnosis | None]]:
    if cluster is not None:
        yield from unexposed(hpas, cluster.mapper, exposed)


def _exposed(found: Iterable[RuleFindings]) -> Mapping[str, Collection[str]]:
    every = {pair for each in found for pair in each.exposed}
    return {
        "custom": {f"{resource}/{metric}" for resource, metric in every if resource},
        "external": {metric for resource, metric in every if not resource},
    }


def _add(report: DoctorReport, hpa: LintedHpa, asked: AskedEvidence, found: Diagnosis) -> None:
    # A server that lists no names (KEDA's) may answer all the same.
    if found.stage != Stage.HEALTHY:
        seen = f"{hpa.subject} asks for it. {found.seen}"
        report.findings.append((asked, msgspec.structs.replace(found, seen=seen)))


def _with_crowded(
    known: KnownMetrics, plan: DoctorPlan, rules: RuleSet, examiner: Examiner | None
) -> KnownMetrics:
    """Return also which metrics have too many label names, as Prometheus or the adapter says."""
    if examiner is not None:
        rules, _ = _by_source(rules)
        every = (*rules.custom, *rules.external)
        crowded = {rule.id: examiner.crowded.get(rule.series_query, ()) for rule in every}
    else:
        crowded = {each.rule: each.crowded for each in plan.told.rules} if plan.told else {}
    return msgspec.structs.replace(known, crowded=crowded)


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


async def _rules(
    rules: RuleSet,
    examiner: Examiner,
    cluster: DoctorCluster | None,
    report: DoctorReport,
    progress: Progress,
) -> dict[str, RuleFindings]:
    """Add each rule's report; return what was found, by rule."""
    every = (*rules.custom, *rules.external)
    by_rule: dict[str, RuleFindings] = {}
    for done, rule in enumerate(every):
        progress(done, len(every), rule.id)
        by_rule[rule.id] = found_by(rule, await examiner.answer(SeriesOf(rule.series_query)))
        report.rules.append(by_rule[rule.id].report)
    if rules.resource is not None:
        nodes = await cluster.node_names() if cluster is not None else ()
        report.rules += await found_by_usage(rules.resource, examiner, nodes)
    progress(len(every), len(every), "done")
    return by_rule


async def _world(plan: DoctorPlan, cluster: DoctorCluster) -> World:
    world = World()
    for resource in (HPAS, VPAS, DEPLOYMENTS, STATEFUL_SETS, REPLICA_SETS, PODS):
        if resource is VPAS and not any(r.plural == VPAS.plural for r in cluster.mapper.resources):
            continue
        # Little is kept of an object, so no more than one page is held as it came.
        async for page in cluster.listed(resource.path(plan.namespace), resource.plural):
            for each in page:  # an odd one is noted, and hides none of the others
                try:
                    world.add(resource.kind, each)
                except (msgspec.DecodeError, ValueError) as error:
                    name = decode(each, dict[str, Any]).get("metadata", {}).get("name", "")
                    why = plain_words(str(error))
                    cluster.notes.append(f"{resource.kind} {name} is not linted: {why}")
        if resource is HPAS and not world.hpas:
            break
    return world


def _counted(
    report: DoctorReport, examiner: Examiner | None, cluster: DoctorCluster | None
) -> DoctorReport:
    if examiner is not None:
        report.prometheus_requests += examiner.requests
    if cluster is not None:
        report.cluster_requests = cluster.requests
        report.notes += cluster.notes
    return report
