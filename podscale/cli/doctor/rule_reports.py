"""What each rule finds: of Prometheus, or as a running adapter tells it."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from adapter.apis.rules_api import RuleTold
from adapter.backends.backend_router import BackendTold
from adapter.discovery.listing import ListingBuilder
from adapter.doctor import usage_checks
from adapter.doctor.evidence import Given, Rejected, Series, Unreachable
from adapter.doctor.examine import Examiner, drive
from adapter.doctor.lints import EXTERNAL_BACKEND, LintFinding
from adapter.doctor.rule_problems import problem_of
from adapter.doctor.series_checks import refusal
from adapter.rules.ruleset import ResourceRules, Rule


class RuleReport(Struct, frozen=True):
    """What one rule finds and exposes."""

    rule: str
    series: int  # distinct names that its query finds and its filters keep
    names: Sequence[str]  # metrics, sorted
    problem: str = ""
    place: str = ""  # file:line:column of the rule; "": in no file


class RuleFindings(Struct, frozen=True):
    """The report of one rule, and what other checks go by."""

    report: RuleReport
    series: Sequence[str] = ()  # names that its query finds and its filters keep
    exposed: frozenset[tuple[str, str]] = frozenset()  # (resource[.group] or "", metric)


def found_by(rule: Rule, given: Given) -> RuleFindings:
    """Return what Prometheus's answer to the series query comes to."""
    if isinstance(given, Rejected):
        stage, *words = refusal(rule, given)
        return RuleFindings(RuleReport(rule.id, 0, (), f"{stage}: {' '.join(words)}"))
    if isinstance(given, Unreachable):
        return RuleFindings(RuleReport(rule.id, 0, (), f"PrometheusUnreachable: {given.error}"))
    builder = ListingBuilder(rule)
    labels = given.labels if isinstance(given, Series) else ()
    for each in labels:
        builder.add(each.get("__name__", ""), frozenset(each))
    listing = builder.build()
    seen = sorted({each.get("__name__", "") for each in labels})
    kept = [name for name in seen if rule.keeps(name)]
    names = sorted({metric for _, metric in listing.exposed})
    found = problem_of(listing)
    problem = "" if found is None else f"{found[0]}: {found[1]}"
    report = RuleReport(rule.id, len(kept), names, problem)
    return RuleFindings(report, kept, frozenset(listing.exposed))


async def found_by_usage(
    rules: ResourceRules, examiner: Examiner, nodes: Sequence[str]
) -> list[RuleReport]:
    """Return what the queries for CPU and memory find; a rule without any is a lint's.

    ``nodes`` are the cluster's, by name; none: they are not known.
    """
    reports = []
    for rule in (rules.cpu, rules.memory):
        verdicts = await drive(usage_checks.follow(rule, nodes), examiner)
        if not verdicts:
            continue
        good = [each.field for each in verdicts if each.stage is None]
        problems = [
            f"{each.stage}: {each.field}: {each.seen}"
            for each in verdicts
            if each.stage is not None
        ]
        reports.append(RuleReport(rule.id, len(good), good, "; ".join(problems)))
    return reports


def told_by(told: RuleTold) -> RuleReport:
    """Return what the running adapter says of a rule."""
    problem = told.problem
    if not problem and told.listed_s is None:
        problem = "NotListedYet: the adapter has just begun; ask again after its relist interval"
    elif not problem and not told.metrics:
        problem = (
            "NoSeries: the rule exposes no metric; "
            "--prometheus-url shows which stage loses its series"
        )
    return RuleReport(told.rule, told.metrics, (), problem)


def of_backends(backends: Sequence[BackendTold]) -> Iterator[LintFinding]:
    """Yield what keeps the adapters behind the running one from answering."""
    for each in backends:
        subject = f"external backend {each.name}" if each.url else each.name
        if each.problem:
            yield LintFinding(EXTERNAL_BACKEND, subject, each.problem)
        if each.shadowed:
            listed = "; ".join(each.shadowed)
            text = f"lists what others answer before it ({listed}): rename it on one side"
            yield LintFinding(EXTERNAL_BACKEND, subject, text)
