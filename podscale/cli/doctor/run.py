"""One run of the doctor: gather, diagnose metric by metric, lint. Prints nothing."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from adapter.apis.rules_api import RulesTold, RuleTold
from adapter.doctor.diagnosis import config_invalid, may_answer
from adapter.doctor.evidence import Need, Rejected, Series, SeriesOf, Unreachable
from adapter.doctor.examine import Examiner
from adapter.doctor.findings import Diagnosis, LintFinding
from adapter.doctor.lints import NO_RULES, QUERY_INVALID, KnownMetrics, lint
from adapter.doctor.rules_file import query_findings
from adapter.errors import ConfigInvalid
from adapter.rules.config import Parsed
from adapter.rules.presumed import PresumingMapper
from adapter.rules.ruleset import Rule, RuleSet, read_rules
from adapter.stages import Stage
from podscale.cli.doctor.cluster import DoctorCluster
from podscale.cli.doctor.evidence import MetricEvidence
from podscale.cli.doctor.hpa_metrics import unexposed
from podscale.cli.doctor.object_lints import lint_objects
from podscale.cli.doctor.objects import LintedHpa, World
from podscale.cli.doctor.report import DoctorPlan, DoctorReport, RuleReport
from podscale.cli.doctor.rule_reports import (
    ReadObject,
    answering,
    crowded_namespaces,
    found_by,
    found_by_usage,
    of_backends,
    of_default_source,
    reported_by,
    stored_rules,
    told_by,
)
from podscale.cli.doctor.served import measured
from podscale.cli.output import Progress, count, plainly
from podscale.core.plainwords import plain_words
from podscale.core.showable import shown_url
from podscale.feed.http.client import PrometheusClient
from podscale.kube.client.resource import DEPLOYMENTS, HPAS, PODS, REPLICA_SETS, STATEFUL_SETS, VPAS
from podscale.kube.client.wire import decode

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
    lints: list[LintFinding] = []
    stored: list[ReadObject] = []
    if cluster is not None and plan.has_objects:
        label = plan.told.namespace_label if plan.told is not None else ""
        stored = await stored_rules(cluster, plan.namespace, label)
        plan = replace(plan, object_rules=of_default_source(stored))
    read: tuple[Parsed, RuleSet] | None = None
    if (source := plan.rules) is not None:
        mapper = cluster.mapper if cluster is not None else PresumingMapper()
        try:
            read = read_rules(source.text, source.file, mapper)
        except ConfigInvalid as error:
            report.config_problem = config_invalid(error)
            lints += query_findings(source.text, source.file, error.problems, mapper)
    world = World()
    if report.config_problem is None:
        if cluster is not None:
            world = await _world(plan, cluster)
        hpas = () if plan.asked or plan.usage or plan.hpa else world.hpas
        async with _prometheus(plan, read, progress) as examiner:
            lints += await _Examination(plan, cluster, examiner, read, report).lints(hpas)
    _add_objects(plan, stored, report)
    # Of a file's rules Prometheus has told what they find, whatever is served now.
    is_followed = read is not None and plan.told is None and _by_source(read[1])[0].resource
    for asked in () if is_followed and not plan.hpa else plan.usage:
        found = _NO_RESOURCE_RULES if cluster is None else await measured(cluster, asked)
        report.findings.append((asked, found))
        lints += found.beside
    if plan.told is not None:
        _add_adapter(plan, plan.told, report)
        if all(each.api == "external" for each in plan.asked):
            lints += of_backends(plan.told.backends)
    lints += _of_world(plan, world)
    unmeant = plan.disabled if _needs_rules(plan, stored) else plan.disabled | {NO_RULES}
    report.lints = [each for each in lints if each.lint not in unmeant]
    if cluster is not None:
        report.cluster_requests = cluster.requests
        report.notes += cluster.notes
    return report


@asynccontextmanager
async def _prometheus(
    plan: DoctorPlan, read: tuple[Parsed, RuleSet] | None, progress: Progress
) -> AsyncIterator[Examiner | None]:
    """Yield who asks Prometheus; ``None`` without one, or anything to ask it."""
    if plan.prometheus is None or not (read or plan.asked):
        yield None
        return
    rules = read[1] if read else RuleSet.empty()
    most = len({rule.series_query for rule in (*rules.custom, *rules.external)}) + 1
    async with PrometheusClient(plan.prometheus) as client:
        examiner = Examiner(client, plan.relist_interval_s, rules)

        def show(need: Need) -> None:
            about = getattr(need, "match", "the metric's query")
            progress(min(examiner.requests, most - 1), most, about)

        examiner.hear(show)
        yield examiner
        progress(most, most, "done")


class _Examination:
    """The rules and the metrics of one run; adds to ``report`` what they come to."""

    def __init__(
        self,
        plan: DoctorPlan,
        cluster: DoctorCluster | None,
        examiner: Examiner | None,
        read: tuple[Parsed, RuleSet] | None,
        report: DoctorReport,
    ) -> None:
        self._plan, self._cluster, self._examiner, self._report = plan, cluster, examiner, report
        self._parsed = read[0] if read is not None else None
        self._every = read[1] if read is not None else RuleSet.empty()
        self._rules, self._elsewhere = _by_source(self._every)
        if plan.usage and not plan.asked:  # which resourceRules alone answer
            self._rules, self._elsewhere = replace(self._rules, custom=(), external=()), []

    async def lints(self, hpas: Sequence[LintedHpa]) -> list[LintFinding]:
        """Return what is wrong with the rules, and with what is served by them; ``hpas`` are
        those whose metrics have to be served.
        """
        plan, report, examiner = self._plan, self._report, self._examiner
        if self._elsewhere:
            names = ", ".join(f"{each.id} ({each.source})" for each in self._elsewhere)
            report.notes.append(
                f"of other sources, and linted only: {names}; the adapter's own relist tells of "
                "them"
            )
        problem: str | None = None
        answers: Mapping[Need | None, str] = {}
        if examiner is not None:
            problem = await examiner.problem()
            if problem is None:
                answers = await self._answers(examiner)
                if plan.scrape_interval_s is None:
                    plan = replace(plan, scrape_interval_s=await examiner.scrape_interval_s())
        has_others = bool(self._elsewhere) or plan.has_objects
        evidence = MetricEvidence(
            plan, self._cluster, examiner, problem=problem, has_others=has_others
        )
        series: dict[str, Sequence[str]] = {}
        if plan.asked:
            for asked in plan.asked:
                if found := await evidence.find(asked):
                    report.findings.append((asked, found))
        elif problem is not None:
            report.rules.append(RuleReport("", 0, (), plainly(problem)))
        else:
            await self._look_for(evidence, hpas, await self._exposed(series, hpas))
        self._add_told()
        report.recording = evidence.recording
        if examiner is not None:
            report.prometheus_requests = examiner.requests
        if self._parsed is None:
            return []
        report.rules = [
            replace(each, place=self._parsed.place(each.rule))
            if each.rule in self._parsed.places  # and is of the file: not of a MetricRule
            else each
            for each in report.rules
        ]
        known = KnownMetrics(plan.scrape_interval_s, series, self._crowded(), answers)
        return self._of_findings(lint(self._parsed, self._every, known))

    async def _exposed(
        self, series: dict[str, Sequence[str]], hpas: Sequence[LintedHpa]
    ) -> Mapping[str, Collection[str]]:
        """Return the metrics that are served, by API; add each rule's report and its ``series``."""
        examiner, cluster, rules = self._examiner, self._cluster, self._rules
        custom, external = set[str](), set[str]()
        if examiner is not None:
            for rule in (*rules.custom, *rules.external):
                found = found_by(rule, await examiner.answer(SeriesOf(rule.series_query)))
                self._report.rules.append(found.report)
                series[rule.id] = found.series
                custom |= {f"{kind}/{metric}" for kind, metric in found.exposed if kind}
                external |= {metric for kind, metric in found.exposed if not kind}
            if rules.resource is not None:
                nodes = await cluster.node_names() if cluster is not None else ()
                self._report.rules += await found_by_usage(rules.resource, examiner, nodes)
        is_listed = self._elsewhere if examiner is not None else self._plan.told
        if cluster is not None and is_listed:
            return await cluster.listed_metrics(hpas)
        return {} if examiner is None else {"custom": custom, "external": external}

    async def _look_for(
        self,
        evidence: MetricEvidence,
        hpas: Sequence[LintedHpa],
        exposed: Mapping[str, Collection[str]],
    ) -> None:
        if self._cluster is None or not exposed:
            return
        for hpa, asked, certain in unexposed(hpas, self._cluster.mapper, exposed):
            found = certain or await evidence.find(asked)
            # A server that lists no names (KEDA's) may answer all the same.
            if found is not None and found.stage != Stage.HEALTHY:
                seen = f"{hpa.subject} asks for it. {found.seen}"
                self._report.findings.append((asked, replace(found, seen=seen)))

    def _add_told(self) -> None:
        plan, report = self._plan, self._report
        told: Sequence[RuleTold] = plan.told.rules if plan.told is not None else ()
        number = len(self._rules.custom) + len(self._rules.external)
        if self._examiner is not None:
            ids = {each.id for each in self._elsewhere}
            told = [each for each in told if each.rule in ids and not plan.asked]
        elif plan.asked or plan.usage:
            # Of one metric that is served, other rules say nothing; of one that is not, those may
            # that could not be listed.
            told = [each for each in told if each.problem and not report.is_healthy]
        elif plan.told is None and number:
            text = f"{count(number, 'rule')} read and linted; --prometheus-url shows what they find"
            report.notes.append(text)
        elif plan.told is None and self._every.resource is not None:
            report.notes.append("there are no rules for custom or external metrics")
        report.rules += map(told_by, told)

    async def _answers(self, examiner: Examiner) -> dict[Need | None, str]:
        """Return what Prometheus says of what is no PromQL; "" where it takes it, a series query
        that finds some: VictoriaMetrics takes more, {a="1" or b="2"}.
        """
        if self._parsed is None or self._plan.prometheus is None:
            return {}
        at = f"Prometheus at {shown_url(self._plan.prometheus.url)}"
        elsewhere = {each.id for each in self._elsewhere}
        answers: dict[Need | None, str] = {}
        for each in lint(self._parsed, self._every):
            if each.need is None or each.subject in elsewhere:
                continue
            match await examiner.answer(each.need):
                case Rejected(error=error):
                    answers[each.need] = f"{at} refuses it: {error}"
                case Unreachable(error=error):
                    answers[each.need] = f"{at} did not answer it: {plainly(error)}"
                case Series(labels=[]):
                    answers[each.need] = f"{at} finds no series for it"
                case _:
                    answers[each.need] = ""
        return answers

    def _crowded(self) -> dict[str, Collection[str]]:
        """Return the metrics with too many label names, as Prometheus or the adapter says."""
        if self._examiner is None:
            told = self._plan.told.rules if self._plan.told is not None else ()
            return {each.rule: each.crowded for each in told}
        rules, known = self._rules, self._examiner.crowded
        return {
            each.id: known.get(each.series_query, ()) for each in (*rules.custom, *rules.external)
        }

    def _of_findings(self, lints: Sequence[LintFinding]) -> list[LintFinding]:
        """Return those that concern what is asked for, and what the findings have beside."""
        plan, findings = self._plan, self._report.findings
        if plan.asked:  # the whole file is checked without a metric
            about = {f"{found.section}[{found.rule}]" for _, found in findings}
            blamed = {
                rule.id
                for asked, found in findings
                # The adapter only says that a query is refused.
                if found.stage == Stage.QUERY_INVALID and found.rule is None
                for rule in (*self._every.custom, *self._every.external)
                if may_answer(rule, asked) and rule.may_expose(asked.metric)
            }
            lints = [
                each
                for each in lints
                if each.subject in about or (each.lint == QUERY_INVALID and each.subject in blamed)
            ]
        elif plan.usage:
            lints = [each for each in lints if each.subject.startswith("resourceRules")]
        known = {(each.lint, each.subject) for each in lints}
        beside = [each for _, found in findings for each in found.beside]
        return [*lints, *(each for each in beside if (each.lint, each.subject) not in known)]


def _add_objects(plan: DoctorPlan, stored: Sequence[ReadObject], report: DoctorReport) -> None:
    """Add what became of MetricRules, and which of them answers for what is asked for."""
    found = [*map(reported_by, stored), *crowded_namespaces(stored)]
    for asked in plan.asked:
        if rule := answering(asked.metric, found):
            report.notes.append(f"{asked.metric} is answered by {rule}")
    is_lost = not report.is_healthy
    report.rules += [each for each in found if not plan.asked or (each.problem and is_lost)]


def _add_adapter(plan: DoctorPlan, told: RulesTold, report: DoctorReport) -> None:
    """Add what the running adapter says of its Prometheus and of its file."""
    if told.prometheus_problem and plan.prometheus is None:
        problem = f"PrometheusUnreachable: {told.prometheus_problem}"
        report.rules.insert(0, RuleReport("Prometheus", 0, (), problem))
    if told.problem:
        report.config_problem = Diagnosis(
            Stage.CONFIG_INVALID,
            "The adapter refused its rules file as it is now, and the old rules are in force:\n"
            f"{told.problem}",
            "Correct the file; the adapter reads it again as soon as it changes.",
            place=told.file,
        )


def _of_world(plan: DoctorPlan, world: World) -> list[LintFinding]:
    # What a file's rules will do for it, an HPA cannot say before an adapter has them.
    unsaid = "" if plan.told or plan.hpa else "NotScaling"
    about = f"hpa/{plan.hpa} in {plan.namespace}"
    return [
        each
        for each in lint_objects(world)
        if each.lint != unsaid and (not plan.hpa or each.subject == about)
    ]


def _needs_rules(plan: DoctorPlan, stored: Sequence[ReadObject]) -> bool:
    """Return whether nothing is served beside the rules of the file."""
    is_one_namespace = plan.has_objects and plan.namespace  # others may have MetricRules
    is_more = plan.told is not None and (plan.told.backends or is_one_namespace)
    return not (stored or is_more)


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
    return replace(rules, custom=custom, external=external, resource=resource), elsewhere


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
