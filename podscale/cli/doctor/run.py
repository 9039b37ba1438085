"""One run of the doctor: gather, diagnose metric by metric, lint. Prints nothing.

There is one way to what is known of a metric: a running adapter's answer, and Prometheus's.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from adapter.apis.rules_api import RuleTold
from adapter.discovery.mapping import BUILT_IN, PresumingMapper
from adapter.doctor import evidence
from adapter.doctor.diagnosis import config_invalid, diagnose, may_answer, reached
from adapter.doctor.evidence import Diagnosis, LintFinding
from adapter.doctor.examine import Examiner
from adapter.doctor.lints import KnownMetrics, lint, query_findings
from adapter.doctor.recording import RecordedAnswer, Recording
from adapter.errors import ConfigInvalid
from adapter.rules.config import Parsed
from adapter.rules.ruleset import Rule, RuleSet, read_rules
from adapter.sources.sources_file import read_sources
from adapter.stages import Stage
from podscale.cli.doctor import rule_reports
from podscale.cli.doctor.cluster import DoctorCluster
from podscale.cli.doctor.object_lints import LintedHpa, World, lint_objects, read_world, unexposed
from podscale.cli.doctor.report import DoctorPlan, DoctorReport, RuleReport
from podscale.cli.doctor.served import answered, measured, of_backends, told_by
from podscale.cli.output import Progress, count, plainly
from podscale.feed.http.client import PrometheusClient
from podscale.migrate.rules_source import RulesText
from podscale.process.clusters import missing_policy

_NO_RESOURCE_RULES = Diagnosis(
    Stage.NO_SERIES,
    "The file has no resourceRules, so it serves no usage.",
    "Add them, or leave --no-cluster out to see who serves metrics.k8s.io.",
)


async def examine(
    plan: DoctorPlan, cluster: DoctorCluster | None, progress: Progress
) -> DoctorReport:
    """Return the report; raises ``ClusterFailed`` and ``OSError`` (credentials)."""
    stored: list[rule_reports.ReadObject] = []
    if cluster is not None and plan.has_objects:
        label = plan.told.namespace_label if plan.told is not None else ""
        stored = await rule_reports.stored_rules(cluster, plan.namespace, label)
        plan = replace(plan, object_rules=rule_reports.of_default_source(stored))
    examination = _Examination(plan, cluster)
    examination.read()
    report, world = examination.report, World()
    if report.config_problem is None:
        if cluster is not None:
            world = await read_world(cluster, plan.namespace)
        async with _prometheus(plan, examination.rules, progress) as examiner:
            await examination.follow(
                examiner, () if plan.asked or plan.usage or plan.hpa else world.hpas
            )
    rule_reports.add_objects(plan, stored, report)
    await examination.add_usage()
    examination.add_adapter()
    # A file may be empty where something else is served: of others, MetricRules are not seen.
    is_one_namespace = plan.has_objects and plan.namespace
    has_more = plan.told is not None and (plan.told.backends or is_one_namespace)
    unmeant = plan.disabled | ({"NoRules"} if stored or has_more else set())
    if not plan.told and not plan.hpa:
        # What a file's rules will do for it, an HPA cannot say before an adapter has them.
        unmeant |= {"NotScaling"}
    about = f"hpa/{plan.hpa} in {plan.namespace}"
    of_world = [each for each in lint_objects(world) if not plan.hpa or each.subject == about]
    every = [*examination.lints, *of_world]
    report.lints = [each for each in every if each.lint not in unmeant]
    if cluster is not None and plan.told is not None:
        home = plan.told.running_in or plan.around.self_service.partition("/")[0]
        policy = await missing_policy(cluster.read, home) if home else ""
        cluster.notes += [policy] if policy else []
    if cluster is not None:
        report.cluster_requests = cluster.requests
        report.notes += cluster.notes
    return report


@asynccontextmanager
async def _prometheus(
    plan: DoctorPlan, rules: RuleSet | None, progress: Progress
) -> AsyncIterator[Examiner | None]:
    """Yield who asks Prometheus; ``None`` without one, or anything to ask it."""
    if plan.prometheus is None or not (rules or plan.asked):
        yield None
        return
    rules = rules or RuleSet.empty()
    most = len({rule.series_query for rule in (*rules.custom, *rules.external)}) + 1
    async with PrometheusClient(plan.prometheus) as client:

        def show(need: evidence.Need) -> None:
            about = getattr(need, "match", "the metric's query")
            progress(min(examiner.requests, most - 1), most, about)

        examiner = Examiner(client, plan.around.relist_interval_s, rules, show)
        yield examiner
        progress(most, most, "done")


class _Examination:
    """What one call comes to; whoever cannot be asked is ``None``."""

    def __init__(self, plan: DoctorPlan, cluster: DoctorCluster | None) -> None:
        self._plan, self._cluster = plan, cluster
        self.report = DoctorReport()
        self.lints: list[LintFinding] = []  # all of them; what is not meant goes at the end
        self._parsed: Parsed | None = None
        self.rules: RuleSet | None = None  # every rule of the file
        self._own = RuleSet.empty()  # those that the default Prometheus answers
        self._elsewhere: list[Rule] = []  # those of named sources
        self._shared: dict[str, Mapping[str, Collection[str]]] = {}  # as ``KnownMetrics`` has them
        self._examiner: Examiner | None = None
        self._around = plan.around

    def read(self) -> None:
        """Read the rules, or add why they do not load."""
        plan = self._plan
        if (source := plan.rules) is None:
            return
        mapper = self._cluster.mapper if self._cluster is not None else PresumingMapper()
        self.lints += source.problems
        try:
            self._parsed, rules = read_rules(source.text, source.file, mapper)
        except ConfigInvalid as error:
            self.report.config_problem = config_invalid(error)
            self.lints += query_findings(source.text, source.file, error.problems, mapper)
            return
        try:
            read_sources(source.sources, f"{source.form}: sources.yaml")
        except ConfigInvalid as error:
            for each in error.problems:
                if each.path.endswith(("tokenFile", "passwordFile")):
                    self.lints.append(LintFinding("SecretElsewhere", each.path, each.message))
        self.rules = rules
        self._own, self._elsewhere = _by_source(rules)
        if plan.usage and not plan.asked:  # which resourceRules alone answer
            self._own, self._elsewhere = replace(self._own, custom=(), external=()), []

    async def follow(self, examiner: Examiner | None, hpas: Sequence[LintedHpa]) -> None:
        """Add what is wrong with the rules, and with what is served by them; ``hpas`` are those
        whose metrics have to be served.
        """
        plan, report = self._plan, self.report
        self._examiner = examiner
        if self._elsewhere:
            names = ", ".join(f"{each.id} ({each.source})" for each in self._elsewhere)
            report.notes.append(
                f"of other sources, and linted only: {names}; the adapter's own relist tells of "
                "them"
            )
        answers: Mapping[evidence.Need | None, str] = {}
        if examiner is not None:
            problem = await examiner.problem()
            self._around = replace(self._around, prometheus_error=problem)
            if problem is None:
                answers = await rule_reports.answers_of(examiner, self._unread(), plan.prometheus)
                if self._around.scrape_interval_s is None:
                    interval_s = await examiner.scrape_interval_s()
                    self._around = replace(self._around, scrape_interval_s=interval_s)
        series: dict[str, Sequence[str]] = {}
        if plan.asked:
            for asked in plan.asked:
                if found := await self._find(asked):
                    report.findings.append((asked, found))
        elif (problem := self._around.prometheus_error) is not None:
            report.rules.append(RuleReport("", 0, (), plainly(problem)))
        else:
            await self._look_for(hpas, await self._exposed(series, hpas))
        self._add_told()
        if examiner is not None:
            report.prometheus_requests = examiner.requests
        if (parsed := self._parsed) is None or self.rules is None:
            return
        report.rules = [
            replace(each, place=parsed.place(each.rule))
            if each.rule in parsed.places  # and is of the file: not of a MetricRule
            else each
            for each in report.rules
        ]
        scrape_s, crowded = self._around.scrape_interval_s, self._crowded()
        known = KnownMetrics(scrape_s, series, crowded, self._shared, answers)
        lints = lint(parsed, self.rules, known)
        self._add_lints(plan.rules.in_its_words(lints) if plan.rules is not None else lints)

    async def _find(self, asked: evidence.AskedEvidence) -> Diagnosis | None:
        """Return what is known of a metric; ``None`` where nobody can be asked."""
        found, plan = None, self._plan
        is_running = plan.told is not None or plan.rules is None
        # With rules that Prometheus does not answer, only the adapter knows.
        asks_adapter = self._examiner is None or bool(self._elsewhere) or plan.has_objects
        if self._cluster is not None and is_running and asks_adapter:
            found = await self._served(asked, self._cluster)
        if self._examiner is None or (found is not None and found.stage == Stage.HEALTHY):
            return found
        return await self._followed(asked, self._examiner) or found

    async def _served(self, asked: evidence.AskedEvidence, cluster: DoctorCluster) -> Diagnosis:
        plan, told = self._plan, self._plan.told
        found = await answered(cluster, asked, told.prometheus_problem if told is not None else "")
        is_bare = told is not None and not (told.rules or told.backends or plan.object_rules)
        if found.stage == Stage.NO_SERIES and is_bare:
            return replace(found, change="Write a rule for it: there is none.")
        if found.stage != Stage.HEALTHY:
            return found
        return reached(asked, await self._reader(asked, cluster)) or found

    async def _followed(
        self, asked: evidence.AskedEvidence, examiner: Examiner
    ) -> Diagnosis | None:
        source, report = self._plan.rules, self.report
        objects = [each for each in self._plan.object_rules if may_answer(each, asked)]
        if source is None:  # nobody may read the rules: objects explain what they are meant for
            source = RulesText("rules: []", "no file", "no file")
            objects = [
                each for each in objects if replace(each, filters=()).may_expose(asked.metric)
            ]
            if not objects:
                return None
        entries: list[RecordedAnswer] = []

        async def answer(need: evidence.Need) -> evidence.Given:
            entries.append(RecordedAnswer(need, await examiner.answer(need)))
            return entries[-1].given

        around = await self._surroundings(asked)
        way = diagnose(source.text, asked, around, source.file, objects)
        found = await evidence.drive(way, answer)
        if report.recording is None and not objects:  # which a recording does not hold
            report.recording = Recording(
                config=source.as_file, asked=asked, around=around, entries=entries
            )
        return found

    async def _surroundings(self, asked: evidence.AskedEvidence) -> evidence.Surroundings:
        cluster = self._cluster
        if cluster is None:
            objects = [asked.name] if asked.name not in ("", "*") else []
            return replace(self._around, resources=BUILT_IN, objects=objects)
        objects = await cluster.object_names(asked)
        around = await self._reader(asked, cluster)
        young = sorted(cluster.young)
        return replace(around, resources=cluster.mapper.resources, objects=objects, young=young)

    async def _reader(
        self, asked: evidence.AskedEvidence, cluster: DoctorCluster
    ) -> evidence.Surroundings:
        """Return what stands between the metric and its reader."""
        reader = self._plan.reader
        return replace(
            self._around,
            apiservices=await cluster.api_services(asked.api),
            access=await cluster.access(asked, reader) if reader else None,
        )

    async def _exposed(
        self, series: dict[str, Sequence[str]], hpas: Sequence[LintedHpa]
    ) -> Mapping[str, Collection[str]]:
        """Return the metrics that are served, by API; add each rule's report and its ``series``."""
        examiner, cluster, rules = self._examiner, self._cluster, self._own
        custom, external = set[str](), set[str]()
        if examiner is not None:
            for rule in (*rules.custom, *rules.external):
                given = await examiner.answer(evidence.SeriesOf(rule.series_query))
                report, series[rule.id], listing = rule_reports.found_by(rule, given)
                self.report.rules.append(report)
                self._shared[rule.id] = listing.shared
                custom |= {f"{kind}/{metric}" for kind, metric in listing.exposed if kind}
                external |= {metric for kind, metric in listing.exposed if not kind}
            if rules.resource is not None:
                asked = evidence.AskedEvidence("resource", "", resource="nodes")
                purpose = "whether nodeQuery finds the nodes"
                nodes = await cluster.settled_names(asked, purpose) if cluster is not None else ()
                self.report.rules += await rule_reports.found_by_usage(
                    rules.resource, examiner, nodes
                )
        is_listed = self._elsewhere if examiner is not None else self._plan.told
        if cluster is not None and is_listed:
            return await cluster.listed_metrics(
                {m.type for each in hpas for m in each.spec.metrics}
            )
        return {} if examiner is None else {"custom": custom, "external": external}

    async def _look_for(
        self, hpas: Sequence[LintedHpa], exposed: Mapping[str, Collection[str]]
    ) -> None:
        if self._cluster is None or not exposed:
            return
        for hpa, asked, certain in unexposed(hpas, self._cluster.mapper, exposed):
            found = certain or await self._find(asked)
            # A server that lists no names (KEDA's) may answer all the same.
            if found is not None and found.stage != Stage.HEALTHY:
                seen = f"{hpa.subject} asks for it. {found.seen}"
                self.report.findings.append((asked, replace(found, seen=seen)))

    def _add_told(self) -> None:
        plan, report = self._plan, self.report
        told: Sequence[RuleTold] = plan.told.rules if plan.told is not None else ()
        number = len(self._own.custom) + len(self._own.external)
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
        elif plan.told is None and self.rules is not None and self.rules.resource is not None:
            report.notes.append("there are no rules for custom or external metrics")
        report.rules += map(told_by, told)

    def _unread(self) -> list[evidence.Need]:
        """Return what the file asks of the default Prometheus that is no PromQL."""
        if self._parsed is None or self.rules is None:
            return []
        elsewhere = {each.id for each in self._elsewhere}
        lints = lint(self._parsed, self.rules)
        return [each.need for each in lints if each.need and each.subject not in elsewhere]

    def _crowded(self) -> dict[str, Collection[str]]:
        """Return the metrics with too many label names, as Prometheus or the adapter says."""
        if self._examiner is None:
            told = self._plan.told.rules if self._plan.told is not None else ()
            return {each.rule: each.crowded for each in told}
        rules, known = self._own, self._examiner.crowded
        return {
            each.id: known.get(each.series_query, ()) for each in (*rules.custom, *rules.external)
        }

    def _add_lints(self, lints: Sequence[LintFinding]) -> None:
        """Add those that concern what is asked for, and what the findings have beside."""
        plan, findings = self._plan, self.report.findings
        if plan.asked and self.rules is not None:  # the whole file is checked without a metric
            about = {f"{found.section}[{found.rule}]" for _, found in findings}
            blamed = {
                rule.id
                for asked, found in findings
                # The adapter only says that a query is refused.
                if found.stage == Stage.QUERY_INVALID and found.rule is None
                for rule in (*self.rules.custom, *self.rules.external)
                if may_answer(rule, asked) and rule.may_expose(asked.metric)
            }
            lints = [
                each
                for each in lints
                if each.subject in about or (each.lint == "QueryInvalid" and each.subject in blamed)
            ]
        elif plan.usage:
            lints = [each for each in lints if each.subject.startswith("resourceRules")]
        known = {(each.lint, each.subject) for each in lints}
        beside = [each for _, found in findings for each in found.beside]
        self.lints += [*lints, *(each for each in beside if (each.lint, each.subject) not in known)]

    async def add_usage(self) -> None:
        """Add what metrics.k8s.io says of the usage that is asked for."""
        plan, cluster = self._plan, self._cluster
        # Of a file's rules Prometheus has told what they find, whatever is served now.
        is_followed = self._parsed is not None and plan.told is None and self._own.resource
        for asked in () if is_followed and not plan.hpa else plan.usage:
            found = _NO_RESOURCE_RULES if cluster is None else await measured(cluster, asked)
            self.report.findings.append((asked, found))
            self.lints += found.beside

    def add_adapter(self) -> None:
        """Add what the running adapter says of its Prometheus, its file and its backends."""
        plan, report = self._plan, self.report
        if (told := plan.told) is None:
            return
        if told.prometheus_problem and plan.prometheus is None:
            problem = f"PrometheusUnreachable: {told.prometheus_problem}"
            report.rules.insert(0, RuleReport("Prometheus", 0, (), problem))
        if told.problem:
            report.config_problem = Diagnosis(
                Stage.CONFIG_INVALID,
                "The adapter refused its rules file as it is now, and the old rules are in "
                f"force:\n{told.problem}",
                "Correct the file; the adapter reads it again as soon as it changes.",
                place=told.file,
            )
        if all(each.api == "external" for each in plan.asked):
            self.lints += of_backends(told.backends)


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
