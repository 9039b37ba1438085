"""What each rule finds: of Prometheus, as a running adapter tells it, or by an object's status.

Of rules that are objects only the adapter knows sources and series, and their status says so in
the words that the doctor has for a rule of a file; what one is refused for is found here as well.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import starmap

from adapter.discovery.listing import ListingBuilder, RuleListing
from adapter.discovery.rule_scope import MOST_METRICS
from adapter.doctor.evidence import Given, Need, Rejected, Series, Unreachable, drive, problem_of
from adapter.doctor.examine import Examiner
from adapter.doctor.query_checks import follow_usage
from adapter.doctor.series_checks import refusal
from adapter.metric_rules import objects
from adapter.metric_rules.status import SERVING, MetricRuleStatus, is_refused, written_status
from adapter.rules.ruleset import ResourceRules, Rule
from adapter.sources.sources_file import DEFAULT_SOURCE, NamedSources, SourceAccess
from podscale.cli.doctor.cluster import DoctorCluster
from podscale.cli.doctor.report import DoctorPlan, DoctorReport, RuleReport
from podscale.cli.output import plainly
from podscale.core.showable import shown_url
from podscale.feed.options import PrometheusOptions
from podscale.kube.client.wire import decode


def found_by(rule: Rule, given: Given) -> tuple[RuleReport, Sequence[str], RuleListing]:
    """Return what Prometheus's answer to the series query comes to, the names of series that the
    filters keep, and what is exposed.
    """
    builder = ListingBuilder(rule)
    if isinstance(given, Rejected):
        lost = refusal(rule, given)
        text = f"{lost.stage}: {lost.seen} {lost.change}"
        return RuleReport(rule.id, 0, (), text), (), builder.build()
    if isinstance(given, Unreachable):
        text = f"PrometheusUnreachable: {given.error}"
        return RuleReport(rule.id, 0, (), text), (), builder.build()
    labels = given.labels if isinstance(given, Series) else ()
    for each in labels:
        builder.add(each.get("__name__", ""), frozenset(each))
    listing = builder.build()
    series = sorted({name for each in labels if rule.keeps(name := each.get("__name__", ""))})
    names = sorted({metric for _, metric in listing.exposed})
    problem = problem_of(listing)
    report = RuleReport(rule.id, len(series), names, problem.text if problem else listing.left_out)
    return report, series, listing


async def answers_of(
    examiner: Examiner, needs: Sequence[Need], prometheus: PrometheusOptions | None
) -> dict[Need | None, str]:
    """Return what Prometheus says of what is no PromQL; "" where it takes it, a series query
    that finds some: VictoriaMetrics takes more, {a="1" or b="2"}.
    """
    at = f"Prometheus at {shown_url(prometheus.url)}" if prometheus else "Prometheus"
    answers: dict[Need | None, str] = {}
    for need in needs:
        match await examiner.answer(need):
            case Rejected(error=error):
                answers[need] = f"{at} refuses it: {error}"
            case Unreachable(error=error):
                answers[need] = f"{at} did not answer it: {plainly(error)}"
            case Series(labels=[]):
                answers[need] = f"{at} finds no series for it"
            case _:
                answers[need] = ""
    return answers


async def found_by_usage(
    rules: ResourceRules, examiner: Examiner, nodes: Sequence[str]
) -> list[RuleReport]:
    """Return what the queries for CPU and memory find; a rule without any is a lint's.

    ``nodes`` are the cluster's, by name; none: they are not known.
    """
    reports = []
    for rule in (rules.cpu, rules.memory):
        found = await drive(follow_usage(rule, nodes), examiner.answer)
        good = [field for field, lost in found.items() if lost is None]
        problems = [
            f"{lost.stage}: {field}: {lost.message}" for field, lost in found.items() if lost
        ]
        if found:
            reports.append(RuleReport(rule.id, len(good), good, "; ".join(problems)))
    return reports


class EverySource(dict[str, SourceAccess]):
    """Lets any source be asked as the one called "": which may be, only the adapter knows."""

    def __contains__(self, _name: object) -> bool:
        return True

    def get(self, _name: str, _default: object = None) -> SourceAccess:
        return self[""]


# An object, and the rule or the refusal that it comes to here.
ReadObject = tuple[objects.StoredMetricRule, Rule | objects.RuleRefusal]


def has_objects(cluster: DoctorCluster) -> bool:
    """Return whether the cluster knows MetricRules."""
    return any(each.group == objects.METRIC_RULES.group for each in cluster.mapper.resources)


async def stored_rules(
    cluster: DoctorCluster, namespace: str, namespace_label: str
) -> list[ReadObject]:
    """Return the MetricRules of ``namespace`` ("": of all), then those of everywhere, read as in
    an adapter that keeps namespaces apart by ``namespace_label`` ("": the usual one).
    """
    label = namespace_label or SourceAccess().namespace_label
    sources = NamedSources(access=EverySource({"": SourceAccess(("*",), label)}))
    found: list[objects.StoredMetricRule] = []
    for resource, where in ((objects.METRIC_RULES, namespace), (objects.CLUSTER_METRIC_RULES, "")):
        async for page in cluster.listed(resource.path(where), resource.plural):
            found += [decode(each, objects.StoredMetricRule) for each in page]
    beyond = objects.beyond_bounds(found)
    return [
        (each, objects.compiled(each, cluster.mapper, sources, beyond.get(each.origin)))
        for each in found
    ]


def of_default_source(found: Sequence[ReadObject]) -> list[Rule]:
    """Return the rules that the Prometheus of ``--prometheus-url`` answers; later ones go first."""
    rules = []
    for stored, rule in found:
        # Which source a namespace has, and who may ask it, the adapter knows.
        status = written_status(stored)
        if status.observed_generation != stored.metadata.generation:
            status = MetricRuleStatus()  # the old one tells of another spec
        if isinstance(rule, Rule) and not is_refused(status):
            source = status.source or rule.source
            if source in ("", DEFAULT_SOURCE):
                rules.append(rule)
    return sorted(rules, key=lambda rule: bool(rule.namespace))


def add_objects(plan: DoctorPlan, stored: Sequence[ReadObject], report: DoctorReport) -> None:
    """Add what became of MetricRules, and which of them answers for what is asked for."""
    rules = [*starmap(_reported, stored), *_crowded_namespaces(stored)]
    for asked in plan.asked:
        names = [each.rule for each in rules if asked.metric in each.names and not each.problem]
        own = [name for name in names if name.startswith(objects.METRIC_RULES.kind)]
        if names:
            report.notes.append(f"{asked.metric} is answered by {(own or names)[-1]}")
    is_lost = not report.is_healthy
    report.rules += [each for each in rules if not plan.asked or (each.problem and is_lost)]


def _reported(stored: objects.StoredMetricRule, rule: Rule | objects.RuleRefusal) -> RuleReport:
    status = written_status(stored)
    if isinstance(rule, objects.RuleRefusal):
        return RuleReport(stored.origin, 0, (), f"{rule.reason}: {rule.message}")
    if status.observed_generation != stored.metadata.generation:
        text = "NotListedYet: no adapter has said what became of it; ask again in some seconds"
        return RuleReport(stored.origin, 0, (), text)
    problem = status.last_error
    if not problem:
        # Served, but for what another rule of the same names answers.
        problem = next((c.message for c in status.conditions if c.type == SERVING), "")
    return RuleReport(stored.origin, status.metrics_exposed, status.metrics, problem)


def _crowded_namespaces(stored: Sequence[ReadObject]) -> Iterator[RuleReport]:
    """Yield the namespaces whose own rules may list more metrics than an adapter keeps.

    The adapter that runs now says how many names a rule exposes; each counts for every kind of
    object that the rule maps, as if all series had all labels.
    """
    metrics: Counter[str] = Counter()
    for each, rule in stored:
        if isinstance(rule, Rule) and rule.namespace:
            kinds = {kind.group_resource for kind in rule.labels.override_labels.values()}
            times = len(kinds) if kinds and rule.section == "rules" else 1
            metrics[rule.namespace] += written_status(each).metrics_exposed * times
    for namespace, count in metrics.items():
        if count > MOST_METRICS:
            text = (
                f"TooManyMetrics: they list up to {count} metrics, each counted for every kind of "
                f"object, and an adapter keeps {MOST_METRICS}: narrow seriesQuery, or leave series "
                "out by seriesFilters"
            )
            yield RuleReport(f"MetricRules of namespace {namespace}", count, (), text)
