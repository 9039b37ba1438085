"""The doctor's second half: from the rendered query to a fresh number for the object, and whether
``resourceRules`` find what metrics.k8s.io is made of. Questions and judgement; pure.
"""

import math
from collections.abc import Sequence, Set

from msgspec import Struct, structs

from adapter.discovery.listing import MetricSource
from adapter.doctor import evidence
from adapter.doctor.evidence import Diagnosis
from adapter.doctor.series_checks import LabelSet, labels_of, listed, names_in
from adapter.doctor.shapes import grouping, without, without_le
from adapter.errors import RuleQueryError
from adapter.queries.plans import Plans
from adapter.rules.ruleset import ResourceRule, Rule
from adapter.stages import Finding, Stage
from podscale.core.selectors import selector
from podscale.core.times import duration
from podscale.feed.http.refusals import advice
from podscale.feed.plan import QueryPlan
from podscale.feed.prover.confinement import NotConfined
from podscale.feed.prover.printer import printed
from podscale.feed.prover.tree import Node, parse, selectors, windows

_AS_IT_IS = "the rendered text can be tried on Prometheus as it is"
_FOR_ALL = "Set resources.namespaced: false if every namespace may read it, or map another label."
_LOOKED_AT = 20  # series of an answer whose labels are looked at


class Served(Struct, frozen=True):
    """A fresh number that the query of one rule comes to."""

    promql: str
    lacking: str = ""  # objects without a number of their own, where others have one


class _Request(Struct, frozen=True):
    """The query of a rule for the objects that are asked about."""

    rule: Rule
    series: str
    asked: evidence.AskedEvidence
    around: evidence.Surroundings
    names: Sequence[str]
    promql: str
    namespace_label: str  # "": it is confined to no namespace

    @property
    def label(self) -> str:
        """The label that names the object; "" for an external metric."""
        return self.rule.labels.label(self.asked.resource) if self.asked.api == "custom" else ""


def follow(
    rule: Rule, series: str, asked: evidence.AskedEvidence, around: evidence.Surroundings
) -> evidence.Way[Diagnosis | Served]:
    """Render, ask, and judge the result; see ``adapter.doctor.diagnosis`` for the protocol."""
    names = list(around.objects) if asked.name in ("", "*") else [asked.name]
    if asked.resource == "namespaces" and not names:
        names = [asked.namespace]
    try:
        chosen = selector.parse(asked.metric_selector)
        resource = "" if asked.api == "external" else asked.resource
        is_scoped = bool(asked.namespace) and resource != "namespaces"
        source = MetricSource(rule, series)
        plan = Plans().metric(source, resource, is_scoped, chosen, asked.metric_selector)
        promql = plan.text(asked.namespace, names)
    except (RuleQueryError, selector.SelectorError, NotConfined) as error:
        return Diagnosis(
            Stage.QUERY_INVALID,
            f"No query can be made for this request: {error}.",
            "Mend metricsQuery (usually sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)).",
        ).of(rule)
    found = yield from _judged(
        _Request(rule, series, asked, around, names, promql, plan.labels.namespace)
    )
    return found.of(rule, promql) if isinstance(found, Diagnosis) else found


def _judged(request: _Request) -> evidence.Way[Diagnosis | Served]:
    asked, promql = request.asked, request.promql
    if asked.api == "custom" and not request.names:
        return Diagnosis(
            Stage.OBJECT_MISMATCH,
            f"No {asked.resource} in namespace {asked.namespace} match {asked.selector!r}.",
            "Check the selector of the HPA's target.",
        )
    given = yield evidence.ResultOf(promql)
    if isinstance(given, evidence.Rejected):
        return Diagnosis(
            Stage.QUERY_INVALID,
            f"Prometheus refuses the PromQL that metricsQuery renders to, {promql!r}: "
            f"{given.error}.",
            f"Mend metricsQuery; {advice(given.error) or _AS_IT_IS}.",
        )
    if isinstance(given, evidence.Unreachable):
        text = f"Prometheus failed on {promql!r}: {given.error}."
        return Diagnosis(Stage.PROMETHEUS_UNREACHABLE, text, "")
    points = given.points if isinstance(given, evidence.Result) else ()
    if not points:
        hints = yield from _why_empty(request)
        return Diagnosis(
            Stage.EMPTY_RESULT, f"{promql!r} is right and returns no sample.{hints}", ""
        )
    return _of_points(request, points)


def _of_points(request: _Request, points: Sequence[evidence.Point]) -> Diagnosis | Served:
    label, names, promql = request.label, request.names, request.promql
    if label:
        labelled = [p for p in points if p.labels.get(label)]
        if not labelled:
            return Diagnosis(
                Stage.GROUP_BY_LOST,
                f"The result of {promql!r} has no label {label}, so no sample belongs to an "
                f"object (its labels: {labels_of([p.labels for p in points]) or 'none'}).",
                "Keep the label through every aggregation: write "
                f"{grouping(promql, lambda node: bool(without(node, label)))} behind each.",
            )
        points = [p for p in labelled if p.labels[label] in set(names)]
        if not points:
            have = ", ".join(sorted({p.labels[label] for p in labelled})[:5])
            return Diagnosis(
                Stage.OBJECT_MISMATCH,
                f"The samples are of {label} {have}; asked for {', '.join(names[:5])}.",
                f"Have the label {label} carry the object's name, or put <<.LabelMatchers>> "
                "into metricsQuery.",
            )
    metric, limit = request.asked.metric, request.around.sample_max_age_s
    numbers = [p for p in points if math.isfinite(p.number)]
    if not numbers:
        shown = {("NaN" if math.isnan(p.number) else f"{p.number:+}") for p in points}
        return Diagnosis(
            Stage.NOT_A_NUMBER,
            f"{metric} is {' and '.join(sorted(shown))}, which is no value to act on "
            "(a division by zero or an empty histogram).",
            "Give the query a default, for example `... or <<.Series>>{<<.LabelMatchers>>} * 0`.",
        )
    fresh = [p for p in numbers if p.age_s is None or p.age_s <= limit]
    if not fresh:
        age = min(p.age_s or 0.0 for p in numbers)
        return Diagnosis(
            Stage.STALE,
            f"The newest sample behind {metric} is {duration.format_go(age)} old; nothing "
            f"older than {duration.format_go(limit)} is served (--max-sample-age).",
            "See why the target is not scraped any more.",
        )
    return Served(promql, _lacking(request, points, fresh) if label else "")


def _lacking(
    request: _Request, points: Sequence[evidence.Point], fresh: Sequence[evidence.Point]
) -> str:
    label = request.label
    served = {point.labels[label] for point in fresh} | set(request.around.young)
    why = {
        point.labels[label]: "is no number" if not math.isfinite(point.number) else "is too old"
        for point in points
    }
    return listed([
        f"{name} (its value {why[name]})" if name in why else name
        for name in request.names
        if name not in served
    ])  # fmt: skip


def _why_empty(request: _Request) -> evidence.Way[str]:
    rule, series, label, names = request.rule, request.series, request.label, request.names
    hints: list[str] = []
    interval = request.around.scrape_interval_s
    widths = sorted({each.range_s for each in windows(request.promql)})
    hints += [
        f"The window [{duration.format_prometheus(width)}] holds fewer than two samples at a "
        f"scrape interval of {duration.format_go(interval)}: widen it to four scrape intervals, "
        f"[{duration.format_prometheus(4 * interval)}]."
        for width in widths
        if interval and width < 2 * interval
    ]
    if lost := without_le(request.promql):
        hints.append(f"{lost}.")
    namespace, here = request.namespace_label, request.asked.namespace
    wanted = tuple(names) if label or not namespace else (here,)
    known = yield evidence.SeriesOf(
        rule.series_query, name=series, label=label or namespace, wanted=wanted
    )
    labels = [
        each
        for each in (known.labels if isinstance(known, evidence.Series) else ())
        if not series or each.get("__name__") == series or series in names_in(rule.series_query)
    ]
    hints += _selector_hints(request.asked, labels)
    if label:
        hints += _object_hints(label, set(names), labels)
        labels = [each for each in labels if each.get(label) in names]
    if namespace not in ("", label) and (told := _object_hints(namespace, {here}, labels)):
        hints += told if label or rule.confinement is not None else [*told, _FOR_ALL]
    return "".join(f" {hint}" for hint in hints) or (
        " Take matchers out of metricsQuery one by one to see which of them excludes the series."
    )


def _selector_hints(asked: evidence.AskedEvidence, labels: Sequence[LabelSet]) -> list[str]:
    hints = []
    for requirement in selector.parse(asked.metric_selector).requirements:
        seen = sorted({e.get(requirement.key, "") for e in labels})
        if not any(
            selector.Selector((requirement,)).matches({requirement.key: v} if v else {})
            for v in seen
        ):
            shown = ", ".join(repr(v) for v in seen[:3] if v) or "nothing: they lack the label"
            hints.append(
                f"The metric selector asks for {selector.Selector((requirement,))}; the series' "
                f"{requirement.key} is {shown}."
            )
    return hints


def _object_hints(label: str, wanted: Set[str], labels: Sequence[LabelSet]) -> list[str]:
    carried = sorted({e.get(label, "") for e in labels} - {""})
    if not labels or not wanted.isdisjoint(carried):
        return []
    hints = [
        f"The series' {label} is {', '.join(carried[:3])}, not {', '.join(sorted(wanted)[:3])}."
    ]
    holders = sorted(
        {name for e in labels for name, value in e.items() if value in wanted and name != label}
    )
    if holders:
        hints.append(
            f"The name is in the label {holders[0]}: map that one under "
            "resources.overrides (or set honor_labels in the scrape configuration)."
        )
    return hints


def follow_usage(
    rule: ResourceRule, nodes: Sequence[str] = ()
) -> evidence.Way[dict[str, Finding | None]]:
    """Ask for what the rule's two queries find, by field; the protocol is that of ``follow``.

    ``nodes`` are names of the cluster's, which nodeQuery has to find; none: they are not known.
    """
    plans = Plans()
    found: dict[str, Finding | None] = {}
    for field, make in (("containerQuery", plans.containers), ("nodeQuery", plans.nodes)):
        try:
            plan = make(rule)
            text = _of_everything(plan)
            tree = parse(text)
        except (RuleQueryError, ValueError):
            continue  # the lint QueryInvalid says it, with its place
        found[field] = yield from _judged_usage(plan, text, tree)
        if field == "nodeQuery" and nodes and found[field] is None:
            found[field] = yield from _of_nodes(plan, text, nodes[:_LOOKED_AT], nodes)
    return found


def _of_nodes(
    plan: QueryPlan, text: str, wanted: Sequence[str], nodes: Sequence[str]
) -> evidence.Way[Finding | None]:
    given = yield evidence.ResultOf(plan.text("", wanted))
    found = _objects(plan, given)
    lacking = [name for name in wanted if name not in found]
    if (failure := _failure(given)) or 2 * len(lacking) <= len(wanted):
        return failure
    seen = f"of {len(wanted)} nodes of the cluster it finds {len(wanted) - len(lacking)}"
    # Known already: nothing is asked a second time.
    others = _objects(plan, (yield evidence.ResultOf(_some(text)))).difference(nodes)
    cause = f"there is no value of {lacking[0]}: see whether each node is scraped"
    if others:
        label = plan.labels.object
        cause = (
            f"the cluster has {lacking[0]}, and what it finds has the {label} {min(others)}. "
            "Have Prometheus attach the node's name to the series (relabel "
            "__meta_kubernetes_node_name or __meta_kubernetes_pod_node_name to a label), and map "
            "that label to node under resources.overrides"
        )
    return Finding(Stage.OBJECT_MISMATCH, f"{seen}: {cause}. It asks {text}")


def _objects(plan: QueryPlan, given: evidence.Given) -> set[str]:
    points = given.points if isinstance(given, evidence.Result) else ()
    return {point.labels.get(plan.labels.object, "") for point in points} - {""}


def _some(text: str) -> str:
    return f"topk({_LOOKED_AT}, {text})"


def _of_everything(plan: QueryPlan) -> str:
    labels = plan.labels.key()
    return plan.render(",".join(f'{label}!=""' for label in labels), dict.fromkeys(labels, ".+"))


def _judged_usage(plan: QueryPlan, text: str, tree: Node) -> evidence.Way[Finding | None]:
    given = yield evidence.ResultOf(_some(text))
    if failure := _failure(given):
        return failure
    points = given.points if isinstance(given, evidence.Result) else ()
    if not points:
        for each in selectors(tree):
            bare = structs.replace(each, range_ms=None, offset_ms=0, at=None)
            series = yield evidence.SeriesOf(printed(bare), within_window=False)
            if isinstance(series, evidence.Series) and not series.labels:
                shown = printed(structs.replace(each, range_ms=None))
                return Finding(Stage.NO_SERIES, f"no series match {shown}")
        return Finding(Stage.EMPTY_RESULT, "its series are there, and it makes no value of them")
    # The namespace is bound by every request, and upstream's GroupBy leaves it out.
    for label in filter(None, (plan.labels.object, plan.labels.container)):
        if not any(point.labels.get(label) for point in points):
            return Finding(Stage.NO_RESOURCE_LABEL, f"what it returns has no label {label}")
    return None


def _failure(given: evidence.Given) -> Finding | None:
    if isinstance(given, evidence.Rejected):
        words = "; ".join(filter(None, [given.error, advice(given.error)]))
        return Finding(Stage.QUERY_INVALID, f"Prometheus refuses it: {words}")
    if isinstance(given, evidence.Unreachable):
        return Finding(Stage.PROMETHEUS_UNREACHABLE, given.error)
    return None
