"""What can be told of a query from its parsed form alone. Pure, over the prover's trees."""

from collections.abc import Iterator

from podscale.feed.prover import tree as promql

# They need two samples in their window, or a good number of them.
_RATES = frozenset(
    ["rate", "irate", "increase", "delta", "idelta", "deriv", "predict_linear", "changes", "resets"]
)
# Aggregations that choose among series instead of making one of them.
_CHOOSING = frozenset(["topk", "bottomk", "limitk", "limit_ratio", "count_values"])


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
        case promql.Aggregation() if node.op not in _CHOOSING:
            return node.clause == "by" and frozenset(node.labels) <= key
        case promql.Aggregation() | promql.Negation() | promql.Subquery():
            return adds_up(node.operand, key)
        case promql.FunctionCall():
            return any(adds_up(each, key) for each in node.arguments)
        case promql.Binary():
            vectors = [each for each in (node.left, node.right) if promql.is_vector(each)]
            if node.op == "or":
                return all(adds_up(each, key) for each in vectors)
            if len(vectors) == 2 and node.group:
                return adds_up(node.left if node.group == "left" else node.right, key)
            return any(adds_up(each, key) for each in vectors)
    return False


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
