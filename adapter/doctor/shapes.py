"""What can be told of a query from its parsed form alone. Pure, over the prover's trees."""

from collections.abc import Iterator

from podscale.feed.prover.tree import (
    SET_OPS,
    Aggregation,
    Binary,
    FunctionCall,
    Negation,
    Node,
    NotPromql,
    Subquery,
    Text,
    VectorSelector,
    children,
    is_vector,
    parse,
)

# They need two samples in their window, or a good number of them.
_RATES = frozenset(
    ["rate", "irate", "increase", "delta", "idelta", "deriv", "predict_linear", "changes", "resets"]
)
# Aggregations that choose among series instead of making one of them.
_CHOOSING = frozenset(["topk", "bottomk", "limitk", "limit_ratio", "count_values"])


def selectors(node: Node) -> Iterator[VectorSelector]:
    """Yield each selector of the query."""
    if isinstance(node, VectorSelector):
        yield node
    for child in children(node):
        yield from selectors(child)


def ranges(node: Node) -> Iterator[tuple[str, float]]:
    """Yield each function over counters with the seconds of its window."""
    if isinstance(node, FunctionCall) and node.function in _RATES:
        for argument in node.arguments:
            if isinstance(argument, VectorSelector | Subquery) and argument.range_ms is not None:
                yield node.function, argument.range_ms / 1000
    for child in children(node):
        yield from ranges(child)


def without(node: Node, label: str) -> str:
    """Return the construct that drops ``label`` on the way to the answer; "": it arrives."""
    match node:
        case VectorSelector():
            return ""
        case Negation(operand) | Subquery(operand):
            return without(operand, label)
        case Aggregation():
            return _dropped_by_aggregation(node, label)
        case FunctionCall():
            return _dropped_by_call(node, label)
        case Binary():
            return _dropped_by_operator(node, label)
    return "a constant"


def _dropped_by_aggregation(node: Aggregation, label: str) -> str:
    is_kept = (label in node.labels) is (node.clause == "by")
    if node.op not in _CHOOSING and not is_kept:
        return f"{node.op} {node.clause} ({', '.join(node.labels)})"
    return without(node.operand, label)


def _dropped_by_call(node: FunctionCall, label: str) -> str:
    if node.function in ("label_replace", "label_join"):
        target = node.arguments[1]
        if isinstance(target, Text) and target.value == label:
            return ""
    vectors = [each for each in node.arguments if is_vector(each) or _is_range(each)]
    if node.function in ("absent", "absent_over_time"):
        return ""  # its labels come from the matchers; nothing certain can be said
    if not vectors:
        return f"{node.function}()"
    return without(vectors[0], label)


def _dropped_by_operator(node: Binary, label: str) -> str:
    if not (is_vector(node.left) and is_vector(node.right)):
        return without(node.left if is_vector(node.left) else node.right, label)
    if node.op in SET_OPS:
        return without(node.left, label)
    if node.group:
        many = node.left if node.group == "left" else node.right
        return "" if label in node.included else without(many, label)
    if (label in node.labels) is not (node.clause == "on"):
        return f"{node.op} {node.clause} ({', '.join(node.labels)})"
    return without(node.left, label)


def adds_up(node: Node, key: frozenset[str]) -> bool:
    """Return whether at most one series is left for each value of ``key``'s labels."""
    match node:
        case Aggregation() if node.op not in _CHOOSING:
            return node.clause == "by" and frozenset(node.labels) <= key
        case Aggregation() | Negation() | Subquery():
            return adds_up(node.operand, key)
        case FunctionCall():
            return any(adds_up(each, key) for each in node.arguments)
        case Binary():
            vectors = [each for each in (node.left, node.right) if is_vector(each)]
            if node.op == "or":
                return all(adds_up(each, key) for each in vectors)
            if len(vectors) == 2 and node.group:
                return adds_up(node.left if node.group == "left" else node.right, key)
            return any(adds_up(each, key) for each in vectors)
    return False


def series_selector(text: str) -> VectorSelector:
    """Return what ``match[]`` takes; raises ``NotPromql``, for a window or an offset, too."""
    node = parse(text)
    if not isinstance(node, VectorSelector):
        raise NotPromql("an expression over series")
    if text.lstrip().startswith("("):  # of which the tree keeps nothing
        raise NotPromql("a selector in brackets")
    if _is_range(node) or node.offset_ms or node.at is not None:
        raise NotPromql("a selector of samples, with a window, offset or @")
    return node


def unbounded(selector: VectorSelector) -> str:
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


def _is_range(node: Node) -> bool:
    return isinstance(node, Subquery) or (
        isinstance(node, VectorSelector) and node.range_ms is not None
    )
