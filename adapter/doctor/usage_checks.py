"""Do ``resourceRules`` find what metrics.k8s.io is made of? Questions and judgement; pure."""

from collections.abc import Generator

from msgspec import Struct, structs

from adapter.doctor.evidence import (
    Given,
    Need,
    Rejected,
    Result,
    ResultOf,
    Series,
    SeriesOf,
    Unreachable,
)
from adapter.doctor.shapes import selectors
from adapter.errors import RuleQueryError
from adapter.queries.plans import Plans
from adapter.rules.ruleset import ResourceRule
from adapter.stages import Stage
from podscale.feed.http.refusals import advice
from podscale.feed.plan import QueryPlan
from podscale.feed.prover.printer import printed
from podscale.feed.prover.tree import Node, VectorSelector, parse

_SAMPLE = 20  # series of an answer whose labels are looked at


class UsageVerdict(Struct, frozen=True):
    """What one query of a resource rule came to."""

    field: str  # "containerQuery" | "nodeQuery"
    stage: Stage | None = None  # None: it finds something
    seen: str = ""


def follow(rule: ResourceRule) -> Generator[Need, Given, list[UsageVerdict]]:
    """Ask for everything that the rule's two queries find; see ``diagnosis`` for the protocol."""
    plans = Plans()
    verdicts = []
    for field, make in (("containerQuery", plans.containers), ("nodeQuery", plans.nodes)):
        try:
            plan = make(rule)
            text = _of_everything(plan)
            tree = parse(text)
        except (RuleQueryError, ValueError):
            continue  # the lint QueryInvalid says it, with its place
        verdicts.append((yield from _judged(field, plan, text, tree)))
    return verdicts


def _of_everything(plan: QueryPlan) -> str:
    labels = plan.labels.key()
    return plan.render(",".join(f'{label}!=""' for label in labels), dict.fromkeys(labels, ".+"))


def _judged(
    field: str, plan: QueryPlan, text: str, tree: Node
) -> Generator[Need, Given, UsageVerdict]:
    given = yield ResultOf(f"topk({_SAMPLE}, {text})")
    if isinstance(given, Rejected):
        words = "; ".join(filter(None, [given.error, advice(given.error)]))
        return UsageVerdict(field, Stage.QUERY_INVALID, f"Prometheus refuses it: {words}")
    if isinstance(given, Unreachable):
        return UsageVerdict(field, Stage.PROMETHEUS_UNREACHABLE, given.error)
    points = given.points if isinstance(given, Result) else ()
    if not points:
        for each in selectors(tree):
            if not (yield from _is_found(each)):
                shown = printed(structs.replace(each, range_ms=None))
                return UsageVerdict(field, Stage.NO_SERIES, f"no series match {shown}")
        return UsageVerdict(
            field, Stage.EMPTY_RESULT, "its series are there, and it makes no value of them"
        )
    # The namespace is bound by every request, and upstream's GroupBy leaves it out.
    for label in filter(None, (plan.labels.object, plan.labels.container)):
        if not any(point.labels.get(label) for point in points):
            return UsageVerdict(
                field, Stage.NO_RESOURCE_LABEL, f"what it returns has no label {label}"
            )
    return UsageVerdict(field)


def _is_found(each: VectorSelector) -> Generator[Need, Given, bool]:
    bare = structs.replace(each, range_ms=None, offset_ms=0, at=None)
    given = yield SeriesOf(printed(bare), within_window=False)
    return not isinstance(given, Series) or bool(given.labels)
