"""What is wrong with rules that nevertheless load, and with the queries of a file that does not.

Compiled rules in, findings out, each with its reason, its place in the file and the name under
which ``--disable-lint`` switches it off. Rules that load are taken even if they answer nothing, as
by prometheus-adapter. Lints of HPAs and VPAs are ``podscale.cli.doctor.object_lints``.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from functools import partial

import structlog
import yaml
from msgspec import Struct
from msgspec.structs import replace

from adapter.discovery.listing import MetricSource
from adapter.discovery.mapping import ResourceMapper
from adapter.doctor.evidence import LintFinding, Need, ResultOf, SeriesOf
from adapter.doctor.series_checks import listed, names_in, shared, twice
from adapter.doctor.shapes import (
    adds_up,
    counted_twice,
    grouping,
    ranges,
    series_selector,
    unbounded,
    without,
    without_le,
    writes_raw,
)  # fmt: skip
from adapter.errors import NoLabel, Problem, RuleQueryError
from adapter.queries.plans import Plans
from adapter.rules import config
from adapter.rules.ruleset import SECTIONS, ResourceRule, Rule, RuleSet, compile_rules, read_rules
from adapter.rules.yaml_nodes import is_blank
from podscale.core.selectors.selector import EVERYTHING
from podscale.core.selectors.selector import parse as selector
from podscale.core.times import duration
from podscale.feed.http.series import MOST_LABELS, MOST_SHAPES
from podscale.feed.plan import QueryPlan
from podscale.feed.prover.lexer import PromqlTooLarge, duration_arithmetic
from podscale.feed.prover.proof import Single, prove
from podscale.feed.prover.tree import Node, NotPromql, parse

log = structlog.get_logger(__name__)

RULE_LINTS: Mapping[str, str] = {
    "RateWindow": "a rate window under four scrape intervals",
    "GroupByLost": "an aggregation drops the label of the object",
    "SeveralSeries": "an object may have several series, of which one is taken",
    "NameTwice": "two rules, or several series of one rule, have one name",
    "SeriesQueryInvalid": "a series query that is no series selector",
    "UnboundedSeries": "a series query that selects nearly everything",
    "UnbracedGroup": "$1_x or {1} in a name, which Go reads as no group of the pattern",
    "NoSample": "objects that were asked for lack a number others have",
    "QueryInvalid": "a query that does not parse, or whose template cannot be filled in",
    "NoResourceLabel": "a rule that maps no label to objects",
    "NoRules": "a file without rules",
    "CountedTwice": "resourceRules that add up containers and the cgroups around them",
    "DurationArithmetic": "[5m*2], which Prometheus reads behind a flag",
    "NotCoalesced": "requests of the rule cannot share a query",
    "TooManyLabels": "a metric has more label names than are looked at",
    "RawValue": "what clients ask for is written into the query as it is",
    "ExternalBackend": "an adapter behind this one is left out, not listed, or shadowed",
    "SecretElsewhere": "a source whose token or password lies where none is read from",
    "HelmValues": "values that prometheus-adapter's chart drops, or renders into a broken file",
}

# What has one of them answers nothing, with prometheus-adapter neither.
BROKEN = frozenset(["SeriesQueryInvalid", "QueryInvalid", "NoResourceLabel", "NoRules"])

_WITHOUT_RULES = (
    "there are no rules. An adapter starts without any, as prometheus-adapter does, and serves no "
    "metric but those of MetricRules and external backends: write rules, externalRules or "
    "resourceRules (podscale config-gen writes some). Where those are meant to serve all, a doctor "
    "of the running adapter sees them; to one that has only the file, give --disable-lint NoRules"
)
_BLANK = (
    ". Where a file becomes empty, a running adapter keeps its old rules: write `rules: []` if no "
    "rules are meant"
)

_CROWDED = (
    f"more than {MOST_SHAPES} sets of label names, or one of more than {MOST_LABELS} or of great "
    "length; only labels that the rule maps to objects are looked at in the others. Have the pods "
    "that expose them use fewer label names."
)
_RAW = (
    ".LabelValuesByName writes names and selectors of requests into the query as they are: a dot "
    "of theirs matches anything in a regex, a hyphen outside of quotes subtracts, and several pods "
    "are a|b, which = does not match. Write <<.LabelMatchers>>"
)
_MOST_CHARS = 200  # of a name in a finding
_OF_NO_NAMESPACE = ("namespaces", "nodes", "persistentvolumes")
_PLACEHOLDER = "some_series"  # stands for the series where the rule does not write a name out
# An HPA's selector: where no namespace is asked for, <<.LabelMatchers>> is empty without one, and
# {,job="a"} is no query.
_SELECTOR = selector("some_label=x")


# What stands in for a part that is refused already.
_LABELS = config.ResourceMapping(template="<<.Resource>>")
_QUERY = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
_USAGE = "sum(usage{<<.LabelMatchers>>}) by (<<.GroupBy>>)"


class KnownMetrics(Struct, frozen=True):
    """What the outside has told, if it was asked."""

    scrape_interval_s: float | None = None
    names: Mapping[str, Sequence[str]] = {}  # "rules[3]" -> series names that its query finds
    # "rules[3]" -> series names of which not all label names are looked at
    crowded: Mapping[str, Collection[str]] = {}
    # "rules[3]" -> metric -> series names that come to it, of which one is asked
    shared: Mapping[str, Mapping[str, Collection[str]]] = {}
    # What is no PromQL -> what the store that was asked says of it, "" where it answers it
    answers: Mapping[Need | None, str] = {}


def lint(
    parsed: config.Parsed,
    rules: RuleSet,
    known: KnownMetrics = KnownMetrics(),  # noqa: B008 - frozen
) -> list[LintFinding]:
    """Return the findings in the order of the file."""
    plans = Plans()
    found: list[LintFinding] = []

    def add(kind: str, path: str, reason: str, need: Need | None = None) -> None:
        if known.answers.get(need) != "":
            subject = path.partition(".")[0]
            found.append(LintFinding(kind, subject, reason, parsed.place(path), need))

    written = (*parsed.config.rules, *parsed.config.external_rules)
    for rule, entry in zip((*rules.custom, *rules.external), written, strict=True):
        for kind, field, *told in _of_rule(rule, entry, plans, known):
            add(kind, f"{rule.id}{field}", *told)
    if rules.resource is not None and (blocks := parsed.config.resource_rules) is not None:
        usage = ((rules.resource.cpu, blocks.cpu), (rules.resource.memory, blocks.memory))
        # What is missing stands at the line of resourceRules itself.
        for each, block in sorted(usage, key=lambda pair: pair[1] != config.ResourceRuleConfig()):
            for kind, field, *told in _of_resource_rule(each, block, plans, known):
                add(kind, f"{each.id}{field}", *told)
    for section in (rules.custom, rules.external):
        for path, reason in _names_twice(section, known):
            add("NameTwice", path, reason)
    if not (rules.custom or rules.external or rules.resource):
        add("NoRules", "rules", _WITHOUT_RULES + (_BLANK if is_blank(parsed.text) else ""))
    return found


# Lint, field below the rule, reason, and what is no PromQL where that is the reason.
LintFindings = Iterator[tuple[str, str, str] | tuple[str, str, str, Need | None]]


def _of_rule(
    rule: Rule, entry: config.RuleConfig, plans: Plans, known: KnownMetrics
) -> LintFindings:
    yield from _of_series_query(rule, known)
    written = entry.name.as_
    if written and (meant := rule.namer.meant()) is not None:
        reason = f"{written!r} names no group of name.matches where it means one; write {meant}"
        yield "UnbracedGroup", ".name.as", reason
    if names := sorted(name for name in known.crowded.get(rule.id, ()) if rule.keeps(name)):
        shown = listed([repr(name[:_MOST_CHARS]) for name in names])
        yield "TooManyLabels", ".seriesQuery", f"{shown}: {_CROWDED}"
    if writes_raw(rule.query, _label(rule, "pods")):
        yield "RawValue", ".metricsQuery", _RAW
    series = (*known.names.get(rule.id, ()), *names_in(rule.series_query))
    stand_in = f"{_PLACEHOLDER}{'_bucket' if '_bucket' in rule.series_query else ''}"
    source = MetricSource(rule, next(filter(rule.keeps, series), stand_in))
    if rule.section == "externalRules":
        made = partial(plans.metric, source, "", True, _SELECTOR, "")
        yield from _of_plan(made, ".metricsQuery", rule.source, known)
        return
    if not (entry.resources.template or entry.resources.overrides):
        text = (
            "no label says which object a series is of, so the rule exposes nothing: write "
            "resources.overrides (label: {resource: pod}) or resources.template"
        )
        yield "NoResourceLabel", "", text
    for kind in _kinds(rule):
        is_scoped = kind not in _OF_NO_NAMESPACE and bool(_label(rule, "namespaces"))
        made = partial(plans.metric, source, kind, is_scoped, EVERYTHING, "")
        told = list(_of_plan(made, ".metricsQuery", rule.source, known, kind))
        yield from told
        if told:
            return  # one kind of object is enough to show it


def _of_series_query(rule: Rule, known: KnownMetrics) -> LintFindings:
    try:
        reason = unbounded(series_selector(rule.series_query))
    except NotPromql as error:
        need = SeriesOf(rule.series_query)
        text = (
            f"seriesQuery {rule.series_query!r} is no series selector: {error}. "
            f"{_beyond_promql(rule.source, known.answers.get(need))}"
        )
        yield "SeriesQueryInvalid", ".seriesQuery", text, need
        return
    if reason:
        text = (
            f"{reason}: every relist reads the labels of all those series. Select by name, or "
            "by the label of a job."
        )
        yield "UnboundedSeries", ".seriesQuery", text


def _of_plan(
    make: Callable[[], QueryPlan], field: str, source: str, known: KnownMetrics, kind: str = ""
) -> LintFindings:
    """Yield what is wrong with a query; ``kind``: with what it says of each of these objects."""
    query = ""
    try:
        plan = make()
        query = plan.text("x", ("x",) if plan.labels.object else ())
        tree = parse(query)
        cgroups = counted_twice(plan, tree)
    except PromqlTooLarge as error:  # sent as it is, whatever Prometheus makes of it
        yield "NotCoalesced", field, f"each request is a query of its own, because of: {error}"
        return
    except (RuleQueryError, ValueError) as error:
        need = ResultOf(query) if query else None
        text = f"the query cannot be read: {error}"
        if isinstance(error, NotPromql):
            text = f"{text}. {_beyond_promql(source, known.answers.get(need))}"
        yield "QueryInvalid", field, text, need
        return
    yield from _windows(tree, known.scrape_interval_s, field)
    if arithmetic := duration_arithmetic(query):
        said = known.answers.get(ResultOf(query))
        text = f"{arithmetic} needs Prometheus's --enable-feature=promql-duration-expr"
        yield "QueryInvalid" if said else "DurationArithmetic", field, said or text, ResultOf(query)
    label, key = plan.labels.object if kind else "", frozenset(plan.labels.key())
    if text := without_le(query):
        yield "GroupByLost", field, text
    elif label and (lost := without(tree, label)):
        by = grouping(query, lambda node: bool(without(node, label)))
        text = f"{lost} drops the label {label}, so no sample belongs to one of the {kind}"
        yield "GroupByLost", field, f"{text}: write {by}"
    elif label and not adds_up(tree, key):
        by = grouping(query, lambda node: not adds_up(node, key | {"le"}))
        text = (
            f"several series of one of the {kind} are not added up, and the last of them is "
            f"its value: aggregate them {by}"
        )
        yield "SeveralSeries", field, text
    if cgroups and not (said := known.answers.get(SeriesOf(cgroups[0]))):
        yield "CountedTwice", field, cgroups[1], SeriesOf(cgroups[0]) if said is None else None
    verdict = prove(plan)
    if isinstance(verdict, Single):
        text = f"each request is a query of its own, because of: {verdict.reason}"
        yield "NotCoalesced", field, text


def _of_resource_rule(
    rule: ResourceRule, written: config.ResourceRuleConfig, plans: Plans, known: KnownMetrics
) -> LintFindings:
    if written == config.ResourceRuleConfig():
        text = (
            f"{rule.id} is missing, so every request to metrics.k8s.io fails: add the block, "
            "or take resourceRules out where another server answers that API"
        )
        yield "QueryInvalid", "", text
        return
    for field, make in ((".containerQuery", plans.containers), (".nodeQuery", plans.nodes)):
        yield from _of_plan(partial(make, rule), field, rule.source, known)


def _beyond_promql(source: str, said: str | None) -> str:
    # Of named sources the doctor asks none.
    if said and not source:
        return f"{said}. Write what Prometheus's graph page takes"
    asks = "" if source else " (podscale doctor --prometheus-url asks it)"
    return (
        "Prometheus refuses it, and the rule answers nothing; VictoriaMetrics takes more, gets it "
        f"as it is, and the rule works if it takes this{asks}. Write what Prometheus's graph page "
        "takes"
    )


def _windows(tree: Node, scrape_interval_s: float | None, field: str) -> LintFindings:
    if not scrape_interval_s:
        return
    for function, range_s in sorted(set(ranges(tree))):
        if range_s < 4 * scrape_interval_s:
            text = (
                f"{function}[{duration.format_prometheus(range_s)}] is under four scrape "
                f"intervals ({duration.format_prometheus(scrape_interval_s)} each), so a "
                "missed scrape or two leaves no value"
            )
            yield "RateWindow", field, text


def _names_twice(rules: Sequence[Rule], known: KnownMetrics) -> Iterator[tuple[str, str]]:
    first: dict[tuple[str, str], tuple[Rule, str]] = {}
    for rule in rules:
        told: set[str] = set()
        for metric, names in known.shared.get(rule.id, {}).items():
            yield f"{rule.id}.name", shared(metric, names)
        series = known.names.get(rule.id) or names_in(rule.series_query)
        for each in sorted(set(series)):
            name = rule.namer.name(each) if rule.keeps(each) else None
            for kind in _kinds(rule) if rule.section == "rules" else ("",):
                if not name:
                    continue
                other, its_series = first.setdefault((kind, name), (rule, each))
                if other is not rule and other.id not in told:
                    told.add(other.id)
                    yield f"{rule.id}.name", twice(name, other.id, its_series, each)


def _kinds(rule: Rule) -> list[str]:
    found = sorted({each.group_resource for each in rule.labels.override_labels.values()})
    others = [kind for kind in found if kind != "namespaces"]
    if _label(rule, "pods"):
        others = ["pods", *(kind for kind in others if kind != "pods")]
    return others or found


def _label(rule: Rule, kind: str) -> str:
    try:
        return rule.labels.label(kind)
    except NoLabel:
        return ""


def sound_rules(
    text: str, file: str, mapper: ResourceMapper, sources: frozenset[str] | None = None
) -> RuleSet:
    """Return the rules of a file; raises ``ConfigInvalid``.

    ``sources`` are those that there are; None: any will do.
    """
    parsed, rules = read_rules(text, file, mapper, sources)
    for found in lint(parsed, rules):
        if found.lint in BROKEN:
            log.warning("rules may answer nothing", rule=found.subject, problem=found.text)
    return rules


def query_findings(
    text: str | yaml.Node, file: str, problems: Sequence[Problem], mapper: ResourceMapper
) -> list[LintFinding]:
    """Return the findings beside the ``problems`` for which the file is refused.

    What is refused is filled in, so that one round of editing is enough.
    """
    parsed, _ = config.read(text, file)
    refused = {problem.path for problem in problems}
    written = parsed.config
    custom, external = (
        tuple(_filled_rule(f"{section}[{i}]", each, refused) for i, each in enumerate(rules))
        for section, rules in zip(SECTIONS, (written.rules, written.external_rules), strict=True)
    )
    if (usage := written.resource_rules) is not None:
        cpu = _filled_usage("resourceRules.cpu", usage.cpu, refused)
        memory = _filled_usage("resourceRules.memory", usage.memory, refused)
        usage = replace(usage, cpu=cpu, memory=memory)
    sound = replace(parsed, config=config.Config(custom, external, usage))
    # Where nothing could be read, what is refused may have been the rules.
    found = lint(sound, compile_rules(sound, mapper))
    return [each for each in found if each.lint in BROKEN - {"NoRules"}]


def _filled_rule(path: str, rule: config.RuleConfig, refused: Set[str]) -> config.RuleConfig:
    return replace(
        rule,
        series_query=_text(path, "seriesQuery", rule.series_query, _PLACEHOLDER, refused),
        series_filters=(),
        resources=_resources(path, rule.resources, refused),
        name=config.NameMapping(),
        metrics_query=_text(path, "metricsQuery", rule.metrics_query, _QUERY, refused),
    )


def _filled_usage(
    path: str, rule: config.ResourceRuleConfig, refused: Set[str]
) -> config.ResourceRuleConfig:
    if rule == config.ResourceRuleConfig() and not refused & {"resourceRules", path}:
        return rule  # it is missing, and is said to be
    return replace(
        rule,
        container_query=_text(path, "containerQuery", rule.container_query, _USAGE, refused),
        node_query=_text(path, "nodeQuery", rule.node_query, _USAGE, refused),
        resources=_resources(path, rule.resources, refused),
    )


def _text(path: str, key: str, text: str, sound: str, refused: Set[str]) -> str:
    # An absent one may be what is written under an unknown key, which is refused at ``path``.
    return sound if f"{path}.{key}" in refused or (not text and path in refused) else text


def _resources(
    path: str, labels: config.ResourceMapping, refused: Set[str]
) -> config.ResourceMapping:
    at = f"{path}.resources"
    is_refused = any(each in (path, at) or each.startswith(f"{at}.") for each in refused)
    return replace(_LABELS, namespaced=labels.namespaced) if is_refused else labels
