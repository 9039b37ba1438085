"""What the doctor is asked for, what it found, and how a terminal or JSON shows that."""

import re
import textwrap
from collections.abc import Sequence
from typing import Any

import click
import msgspec
from msgspec import Struct

from adapter.apis.rules_api import RulesTold
from adapter.doctor.evidence import AskedEvidence, Diagnosis, LintFinding, Surroundings
from adapter.doctor.lints import BROKEN
from adapter.doctor.recording import Recording
from adapter.rules.ruleset import Rule
from adapter.stages import Stage
from podscale.cli.output import Form, count, emit, note, printable, wants_colour
from podscale.core.times import duration
from podscale.feed.options import PrometheusOptions
from podscale.feed.prover.printer import printed
from podscale.feed.prover.tree import NotPromql, parse
from podscale.migrate.rules_source import RulesText


class DoctorPlan(Struct, frozen=True, kw_only=True):
    """What the command line comes to."""

    rules: RulesText | None  # None: nothing that is asked for comes from rules
    prometheus: PrometheusOptions | None = None
    asked: Sequence[AskedEvidence] = ()
    # What is known beforehand of every metric.
    around: Surroundings = Surroundings("", relist_interval_s=60.0)
    reader: str = ""
    namespace: str = ""
    told: RulesTold | None = None  # by the running adapter, where the rules are from
    disabled: frozenset[str] = frozenset()
    usage: Sequence[AskedEvidence] = ()  # of pods, which metrics.k8s.io serves and not a rule
    hpa: str = ""  # the HPA that all this is asked about; "": lints are of every one
    has_objects: bool = False  # MetricRules count beside the rules
    object_rules: Sequence[Rule] = ()  # those of them that are followed; ``examine`` finds them


class RuleReport(Struct, frozen=True):
    rule: str
    series: int  # distinct names that its query finds and its filters keep
    names: Sequence[str]  # metrics, sorted
    problem: str = ""
    place: str = ""  # file:line:column of the rule; "": in no file


class DoctorReport(Struct, kw_only=True):
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
        return (
            self.config_problem is None
            and all(each.is_hint for each in self.lints)
            and not any(rule.problem for rule in self.rules)
            and all(found.stage == Stage.HEALTHY for _, found in self.findings)
        )


def print_report(report: DoctorReport, form: Form) -> None:
    """Print it; the count of requests goes to stderr unless data was asked for."""
    if form in ("json", "yaml"):
        emit(_data(report), form)
        return
    if report.config_problem is not None:
        _print_diagnosis(None, report.config_problem)
    for asked, found in report.findings:
        _print_diagnosis(asked, found)
    broken = {each.subject for each in report.lints if each.lint in BROKEN}
    for rule in report.rules:
        place = f"{rule.place}: " if rule.problem and rule.place else ""
        text = printable(f"{place}{rule.rule or 'Prometheus'}: {_rule(rule)}")
        click.echo(f"{_mark(not rule.problem and rule.rule not in broken)} {text}")
    for each in report.lints:
        click.echo(f"{'  hint:' if each.is_hint else _mark(False)} {printable(each.text)}")
    for text in report.notes:
        click.echo(f"  note: {printable(text)}")
    if report.is_healthy:
        click.echo(f"{_mark(True)} no problems found")
    note(f"requests: {report.prometheus_requests} to Prometheus, {report.cluster_requests} "
         "to the API server")  # fmt: skip


def _rule(rule: RuleReport) -> str:
    if rule.problem:
        return rule.problem
    if not rule.names:  # told by the adapter, which counts only
        metrics = count(rule.series, "metric")
        return f"{metrics}; the series: not looked at without --prometheus-url"
    shown = ", ".join(rule.names[:5]) + (", …" if len(rule.names) > 5 else "")
    return f"{count(rule.series, 'series name')}, {count(len(rule.names), 'metric')}: {shown}"


def _print_diagnosis(asked: AskedEvidence | None, found: Diagnosis) -> None:
    is_healthy = found.stage == Stage.HEALTHY
    about = f"{asked.metric} ({asked.api}) " if asked and asked.metric else ""
    place = found.place or (f"{found.section}[{found.rule}]" if found.rule is not None else "")
    title = printable(f"{about}{found.stage}{f'  {place}' if place else ''}")
    click.echo(f"{_mark(is_healthy)} {title}")
    for text in (found.seen, found.change if not is_healthy else ""):
        # Names out of a cluster are to make no lines; problems of a rules file have one each.
        if found.stage == Stage.CONFIG_INVALID:
            lines = [printable(line) for line in text.splitlines()]
        else:
            lines = textwrap.wrap(printable(text), 96, break_long_words=False)
        for line in lines:
            click.echo(f"  {line}")
    if found.promql:
        click.echo(f"    {printable(pretty(found.promql))}")


def pretty(promql: str) -> str:
    """Return the query as the parser reads it, on one line; as it is if it cannot be read."""
    try:
        return _MILLISECONDS.sub(_duration, printed(parse(promql)))
    except NotPromql:
        return re.sub(r"\s+", " ", promql).strip()


# The printer writes milliseconds, which never lose anything; quoted text is passed over.
_MILLISECONDS = re.compile(r'"(?:[^"\\]|\\.)*"|\b([0-9]+)ms\b')


def _duration(found: "re.Match[str]") -> str:
    return duration.format_prometheus(int(found[1]) / 1000) if found[1] else found[0]


def _mark(is_good: bool) -> str:
    sign, colour = ("✓", "green") if is_good else ("✗", "red")
    return click.style(sign, fg=colour) if wants_colour() else sign


def _data(report: DoctorReport) -> dict[str, Any]:
    def plain(found: Diagnosis, asked: AskedEvidence | None) -> dict[str, Any]:
        return {
            **({"asked": msgspec.to_builtins(asked)} if asked else {}),
            "stage": str(found.stage),
            "rule": f"{found.section}[{found.rule}]" if found.rule is not None else None,
            "place": found.place,
            "seen": found.seen,
            "change": found.change,
            "promql": found.promql,
        }

    findings = [plain(found, asked) for asked, found in report.findings]
    if report.config_problem is not None:
        findings.append(plain(report.config_problem, None))
    return {
        "healthy": report.is_healthy,
        "findings": findings,
        "rules": msgspec.to_builtins(report.rules),
        "lints": [
            {"lint": each.lint, "subject": each.subject, "reason": each.reason, "place": each.place}
            for each in report.lints
        ],
        "notes": report.notes,
        "requests": {"prometheus": report.prometheus_requests, "cluster": report.cluster_requests},
    }
