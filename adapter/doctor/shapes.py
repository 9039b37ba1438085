"""What can be told of a query from its parsed form alone. Pure, over the prover's trees."""

import contextlib
import re
from collections.abc import Callable, Iterator

from adapter.errors import RuleQueryError
from adapter.queries.promql import QueryTemplate
from adapter.rules.ruleset import matcher_filter
from podscale.feed.plan import QueryPlan
from podscale.feed.prover import tree as promql

# They need two samples in their window, or a good number of them.
_RATES = frozenset(
    ["rate", "irate", "increase", "delta", "idelta", "deriv", "predict_linear", "changes", "resets"]
)
# Aggregations that choose among series instead of making one of them.
_CHOOSING = frozenset(["topk", "bottomk", "limitk", "limit_ratio", "count_values"])
_OF_BUCKETS = frozenset(["histogram_quantile", "histogram_fraction"])
# Labels by one of which a query keeps containers, or the machine, apart from other cgroups.
_CGROUP_LABELS = ("container_name", "image", "name", "id")
_COUNTED_TWICE = {
    "container": "each pod is counted twice: as its own cgroup and as its containers. Write",
    "node": "each node is counted up to three times: as its root cgroup, as its pods and as their "
    'containers. Write id="/", or',
}
_MARK = "podscale_mark"  # stands for what a client writes


def ranges(tree: promql.Node) -> Iterator[tuple[str, float]]:
    """Yield each function over counters with the seconds of its window."""
    for node in promql.walk(tree):
        if isinstance(node, promql.FunctionCall) and node.function in _RATES:
            for argument in node.arguments:
                if isinstance(argument, promql.Range) and argument.range_ms is not None:
                    yield node.function, argument.range_ms / 1000


def without(node: promql.Node, label: str) -> str:
    """Return the construct that drops ``label`` on the way to the answer; "": it arrives."""
    match node:
        case promql.VectorSelector():
            return ""
        case promql.Negation() | promql.Subquery():
            return without(node.operand, label)
        case promql.Aggregation():
            is_kept = (label in node.labels) is (node.clause == "by")
            if node.op not in _CHOOSING and not is_kept:
                return f"{node.op} {node.clause} ({', '.join(node.labels)})"
            return without(node.operand, label)
        case promql.FunctionCall(function="absent" | "absent_over_time"):
            return ""  # its labels come from the matchers; nothing certain can be said
        case promql.FunctionCall(
            function="label_replace" | "label_join", arguments=(_, promql.Text(target), *_)
        ) if target == label:
            return ""
        case promql.FunctionCall():
            vectors = [each for each in node.arguments if promql.is_vector(each) or _is_range(each)]
            return without(vectors[0], label) if vectors else f"{node.function}()"
        case promql.Binary():
            return _dropped_by_operator(node, label)
    return "a constant"


def _dropped_by_operator(node: promql.Binary, label: str) -> str:
    is_left, is_right = promql.is_vector(node.left), promql.is_vector(node.right)
    if is_left and is_right and node.op not in promql.SET_OPS:
        if node.group and label in node.included:
            return ""
        if not node.group and (label in node.labels) is not (node.clause == "on"):
            return f"{node.op} {node.clause} ({', '.join(node.labels)})"
        return without(node.right if node.group == "right" else node.left, label)
    return without(node.left if is_left else node.right, label)


def adds_up(node: promql.Node, key: frozenset[str]) -> bool:
    """Return whether at most one series is left for each value of ``key``'s labels."""
    match node:
        case promql.Aggregation():
            is_one = node.op not in _CHOOSING or node.parameter == promql.Number("1")
            if node.clause == "by" and is_one and key.union(_fixed(node)).issuperset(node.labels):
                return True
            return adds_up(node.operand, key.union(node.labels if node.clause != "by" else ()))
        case promql.Negation() | promql.Subquery():
            return adds_up(node.operand, key)
        case promql.FunctionCall(function="absent" | "absent_over_time"):
            return True
        case promql.FunctionCall() if node.function in _OF_BUCKETS:
            return adds_up(node.arguments[-1], key | {"le"})
        case promql.FunctionCall(
            function="label_replace" | "label_join", arguments=(operand, promql.Text(target), *of)
        ) if target in key:
            return adds_up(operand, key.union(t.value for t in of if isinstance(t, promql.Text)))
        case promql.FunctionCall():
            vectors = [each for each in node.arguments if promql.is_vector(each) or _is_range(each)]
            return not vectors or any(adds_up(each, key) for each in vectors)
        case promql.Binary():
            vectors = [each for each in (node.left, node.right) if promql.is_vector(each)]
            if node.op == "or":
                return all(adds_up(each, key) for each in vectors)
            if len(vectors) == 2 and node.op in promql.SET_OPS:
                return adds_up(node.left, key)
            if len(vectors) == 2 and node.group:
                return adds_up(node.left if node.group == "left" else node.right, key)
            return any(adds_up(each, key) for each in vectors)
    return False


def _fixed(node: promql.Node) -> frozenset[str]:
    """Return the labels to which every selector gives one value."""
    found = [
        {m.label for m in each.matchers if m.op == "=" or (m.op == "=~" and m.value.isalnum())}
        for each in promql.selectors(node)
    ]
    return frozenset(set.intersection(*found) if found else ())


def without_le(query: str) -> str:
    """Return how classic buckets lose ``le`` before histogram_quantile reads them; "": not."""
    lost = next(filter(None, (without(each, "le") for each in _buckets(query))), "")
    text = "drops the label le, and histogram_quantile returns nothing without it"
    return lost and f"{lost} {text}: write by (le, <<.GroupBy>>)"


def grouping(query: str, is_wrong: Callable[[promql.Node], bool]) -> str:
    """Return what to write where ``is_wrong``: of classic buckets ``le`` has to stay."""
    return f"by ({'le, ' if any(map(is_wrong, _buckets(query))) else ''}<<.GroupBy>>)"


def _buckets(query: str) -> Iterator[promql.Node]:
    """Yield what histogram_quantile reads where that is classic: native histograms have no le."""
    with contextlib.suppress(promql.NotPromql):
        for node in promql.walk(promql.parse(query)):
            if isinstance(node, promql.FunctionCall) and node.function in _OF_BUCKETS:
                found = list(promql.selectors(node))
                names = [m.value for each in found for m in each.matchers if m.label == "__name__"]
                names += [each.name or "" for each in found]
                if any(name.rstrip("$)").endswith("_bucket") for name in names):
                    yield node.arguments[-1]


def counted_twice(plan: QueryPlan, tree: promql.Node) -> tuple[str, str] | None:
    """Return which cgroups of cAdvisor's a query of usage adds up with the containers in them, and
    what to write; ``None``: a matcher tells them apart. Raises ``ValueError`` for no regex."""
    label = plan.labels.container or "container"
    for each in promql.selectors(tree) if plan.api in _COUNTED_TWICE else ():
        telling = [matcher_filter(m) for m in each.matchers if m.label in (label, *_CGROUP_LABELS)]
        if (each.name or "").startswith("container_") and all(m.keeps("") for m in telling):
            cgroups = f'{each.name}{{{label}="",{plan.labels.object}!=""}}'
            return cgroups, f'{_COUNTED_TWICE[plan.api]} {label}!=""'
    return None


def writes_raw(query: QueryTemplate, pods: str) -> bool:
    """Return whether a client's text stands elsewhere than alone in quotes behind =, or that of
    several pods, a|b, does: ``pods`` is their label."""
    values = dict.fromkeys(re.findall(r"\w+", query.text), _MARK)
    values |= dict.fromkeys(("some_label", pods), f"{_MARK}|{_MARK}")
    try:
        text = query.render("some_series", 'some_label=""', values, ["some_label"])
        matchers = [m for each in promql.selectors(promql.parse(text)) for m in each.matchers]
    except (RuleQueryError, ValueError):
        return "LabelValuesByName" in query.fields
    return text.count(_MARK) != sum((m.op, m.value) == ("=", _MARK) for m in matchers)


def series_selector(text: str) -> promql.VectorSelector:
    """Return what ``match[]`` takes; raises ``NotPromql``, for a window or an offset, too."""
    node = promql.parse(text)
    if not isinstance(node, promql.VectorSelector):
        raise promql.NotPromql("an expression over series")
    if text.lstrip().startswith("("):  # of which the tree keeps nothing
        raise promql.NotPromql("a selector in brackets")
    if _is_range(node) or node.offset_ms or node.at is not None:
        raise promql.NotPromql("a selector of samples, with a window, offset or @")
    return node


def unbounded(selector: promql.VectorSelector) -> str:
    """Return why a series selector takes in nearly everything; "": it does not."""
    if selector.name:
        return ""
    for matcher in selector.matchers:
        if matcher.op == "=" and matcher.value:
            return ""
        if matcher.label == "__name__" and matcher.op == "=~":
            start = matcher.value.removeprefix("^").lstrip("(")[:1]
            if start and start not in ".[\\":
                return ""
    return "seriesQuery names no metric, and no label by an exact value"


def _is_range(node: promql.Node) -> bool:
    return isinstance(node, promql.Range) and node.range_ms is not None
