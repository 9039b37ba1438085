"""Do ``resourceRules`` find what metrics.k8s.io is made of? Questions and judgement; pure."""

from collections.abc import Sequence

from msgspec import structs

from adapter.doctor import evidence
from adapter.errors import RuleQueryError
from adapter.queries.plans import Plans
from adapter.rules.ruleset import ResourceRule
from adapter.stages import Finding, Stage
from podscale.feed.http.refusals import advice
from podscale.feed.plan import QueryPlan
from podscale.feed.prover.printer import printed
from podscale.feed.prover.tree import Node, VectorSelector, parse, selectors

_SAMPLE = 20  # series of an answer whose labels are looked at


def follow(
    rule: ResourceRule, nodes: Sequence[str] = ()
) -> evidence.Way[dict[str, Finding | None]]:
    """Ask for what the rule's two queries find, by field; see ``diagnosis`` for the protocol.

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
        found[field] = yield from _judged(plan, text, tree)
        if field == "nodeQuery" and nodes and found[field] is None:
            found[field] = yield from _of_nodes(plan, text, nodes[:_SAMPLE], nodes)
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
    return f"topk({_SAMPLE}, {text})"


def _of_everything(plan: QueryPlan) -> str:
    labels = plan.labels.key()
    return plan.render(",".join(f'{label}!=""' for label in labels), dict.fromkeys(labels, ".+"))


def _judged(plan: QueryPlan, text: str, tree: Node) -> evidence.Way[Finding | None]:
    given = yield evidence.ResultOf(_some(text))
    if failure := _failure(given):
        return failure
    points = given.points if isinstance(given, evidence.Result) else ()
    if not points:
        for each in selectors(tree):
            if not (yield from _is_found(each)):
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


def _is_found(each: VectorSelector) -> evidence.Way[bool]:
    bare = structs.replace(each, range_ms=None, offset_ms=0, at=None)
    given = yield evidence.SeriesOf(printed(bare), within_window=False)
    return not isinstance(given, evidence.Series) or bool(given.labels)
