"""Widens a tree node by node, or says why it must not.

For every node two facts are kept: which key labels its value is bound to (B), and whether
the request's own output carries the namespace label (p). By induction the widened output,
restricted to one key, is that key's own output up to an added namespace label. Pure.
"""

from msgspec import Struct
from msgspec.structs import replace

from podscale.feed.plan import KeyLabels
from podscale.feed.prover import tree as promql


class NotProvable(Exception):
    """The tree cannot be widened; the text says why, for `doctor` and logs."""


# Functions that work on each series alone and keep its labels.
# fmt: off
OVER_RANGE = frozenset({
    "rate", "irate", "increase", "delta", "idelta", "deriv", "predict_linear", "changes",
    "resets", "double_exponential_smoothing", "holt_winters",
})
OVER_INSTANT = frozenset({
    "abs", "ceil", "floor", "exp", "ln", "log2", "log10", "sqrt", "sgn", "clamp", "clamp_min",
    "clamp_max", "round", "timestamp",
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan",
    "tanh", "deg", "rad",
    "day_of_month", "day_of_week", "day_of_year", "days_in_month", "hour", "minute", "month",
    "year",
})
AGGREGATIONS = frozenset({
    "sum", "avg", "min", "max", "count", "group", "stddev", "stdvar", "quantile", "count_values",
})
# fmt: on


class WidenedNode(Struct, frozen=True):
    node: promql.Node
    bound: frozenset[str]  # B: key labels its series were selected by; empty: copied unchanged
    carries: bool  # p: the request's own output has the namespace label


def widen(node: promql.Node, labels: KeyLabels) -> WidenedNode:
    """Return the widened node; raises ``NotProvable``."""
    match node:
        case promql.VectorSelector():
            bound = frozenset(node.bound)
            return WidenedNode(node, bound, labels.namespace in bound)
        case promql.Negation(operand):
            inner = widen(operand, labels)
            return replace(inner, node=promql.Negation(inner.node))
        case promql.Subquery():
            inner = widen(node.operand, labels)
            return replace(inner, node=replace(node, operand=inner.node))
        case promql.FunctionCall():
            return _call(node, labels)
        case promql.Aggregation():
            return _aggregation(node, labels)
        case promql.Binary():
            return _binary(node, labels)
    return WidenedNode(node, frozenset(), carries=False)


def _call(node: promql.FunctionCall, labels: KeyLabels) -> WidenedNode:
    arguments = [widen(argument, labels) for argument in node.arguments]
    bound_at = [place for place, argument in enumerate(arguments) if argument.bound]
    if not bound_at:
        return WidenedNode(node, frozenset(), carries=False)
    place = _subject(node, labels, arguments)
    if bound_at != [place]:
        raise NotProvable(f"an argument of {node.function} depends on the request")
    inner = arguments[place]
    return replace(inner, node=replace(node, arguments=tuple(a.node for a in arguments)))


def _subject(node: promql.FunctionCall, labels: KeyLabels, arguments: list[WidenedNode]) -> int:
    """Return which argument holds the series that the function maps one by one."""
    name = node.function
    if name in OVER_INSTANT:
        return 0
    if name in OVER_RANGE or (name.endswith("_over_time") and not name.startswith("absent")):
        # quantile_over_time has its number first, predict_linear last.
        return 1 if name == "quantile_over_time" else 0
    if name == "histogram_quantile":
        if "le" in labels.key():
            raise NotProvable("histogram_quantile removes a key label")
        return 1
    if name in ("label_replace", "label_join"):
        _relabel(node, labels, arguments[0])
        return 0
    raise NotProvable(f"function {name}")


def _relabel(node: promql.FunctionCall, labels: KeyLabels, subject: WidenedNode) -> None:
    # label_replace(v, target, replacement, source, regex); label_join(v, target, sep, sources…)
    texts = [a.value if isinstance(a, promql.Text) else None for a in node.arguments[1:]]
    if None in texts:
        raise NotProvable(f"{node.function} with an argument that is no literal")
    target, sources = texts[0], texts[2:3] if node.function == "label_replace" else texts[2:]
    if target in labels.key():
        raise NotProvable(f"{node.function} overwrites a key label")
    if labels.namespace and labels.namespace in sources and not subject.carries:
        raise NotProvable(f"{node.function} reads a namespace label that is not in the original")


def _aggregation(node: promql.Aggregation, labels: KeyLabels) -> WidenedNode:
    inner = widen(node.operand, labels)
    parameter = widen(node.parameter, labels) if node.parameter is not None else None
    if parameter is not None and parameter.bound:
        raise NotProvable(f"the parameter of {node.op} depends on the request")
    if not inner.bound:
        return WidenedNode(node, frozenset(), carries=False)
    if node.op not in AGGREGATIONS:
        raise NotProvable(f"aggregation {node.op}")
    if (
        node.op == "count_values"
        and isinstance(node.parameter, promql.Text)
        and node.parameter.value in labels.key()
    ):
        raise NotProvable("count_values overwrites a key label")
    is_by = node.clause == "by"
    if labels.object in inner.bound and (labels.object in node.labels) != is_by:
        raise NotProvable("aggregates across objects (object label not in by)")
    namespace, grouping = labels.namespace, node.labels
    kept = (namespace in node.labels) == is_by
    if namespace in inner.bound:
        if is_by and not kept:
            grouping = (namespace, *grouping)
        elif not is_by and not kept:
            grouping = tuple(label for label in grouping if label != namespace)
    return WidenedNode(
        replace(node, operand=inner.node, labels=grouping), inner.bound, inner.carries and kept
    )


def _binary(node: promql.Binary, labels: KeyLabels) -> WidenedNode:
    left, right = widen(node.left, labels), widen(node.right, labels)
    bound = left.bound | right.bound
    if not bound:
        return WidenedNode(node, frozenset(), carries=False)
    if promql.is_scalar(node.left) or promql.is_scalar(node.right):
        scalar, vector = (left, right) if promql.is_scalar(node.left) else (right, left)
        if scalar.bound:
            raise NotProvable("a scalar that depends on the request")
        return replace(vector, node=replace(node, left=left.node, right=right.node))
    clause = _clause(node, left, right, labels)
    _key_labels(node, left, right, labels)
    if node.op in promql.SET_OPS:
        _set_op(node, left, right, labels)
    elif node.group:
        _grouped(node, left, right, labels)
    elif not all(_matched(node, clause, label) for label in bound):
        raise NotProvable("one-to-one match drops a key label")
    return WidenedNode(
        replace(node, left=left.node, right=right.node, labels=clause),
        left.bound if node.op == "unless" else bound,
        _carries(node, left, right, labels),
    )


def _matched(node: promql.Binary, labels: tuple[str, ...], label: str) -> bool:
    return (label in labels) == (node.clause == "on")


def _clause(
    node: promql.Binary, left: WidenedNode, right: WidenedNode, key: KeyLabels
) -> tuple[str, ...]:
    """Return the clause's labels with the namespace matched if both sides bind it."""
    namespace = key.namespace
    if namespace not in left.bound & right.bound:
        return node.labels
    if _matched(node, node.labels, namespace):
        # The clause stays, so the originals must agree on whether there is such a label.
        if left.carries != right.carries:
            raise NotProvable("namespace label in only one original operand")
        return node.labels
    if node.clause == "on":
        return (namespace, *node.labels)
    return tuple(label for label in node.labels if label != namespace)


def _key_labels(node: promql.Binary, left: WidenedNode, right: WidenedNode, key: KeyLabels) -> None:
    both, one = left.bound & right.bound, left.bound ^ right.bound
    if key.object in both and not _matched(node, node.labels, key.object):
        raise NotProvable("objects are matched across each other (object label not in matching)")
    if key.namespace in one and _matched(node, node.labels, key.namespace):
        binding = left if key.namespace in left.bound else right
        if not binding.carries:
            raise NotProvable("namespace label matched against an operand that is not bound")


def _set_op(node: promql.Binary, left: WidenedNode, right: WidenedNode, key: KeyLabels) -> None:
    if node.op == "and":
        if not all(_matched(node, node.labels, label) for label in right.bound - left.bound):
            raise NotProvable("and: a label bound only on the right is not matched")
    elif node.op == "unless":
        if not right.bound <= left.bound:
            raise NotProvable("unless: left side is not bound")
    elif left.bound != right.bound:
        raise NotProvable("or: the operands are bound to different labels")
    elif key.namespace in left.bound and left.carries != right.carries:
        raise NotProvable("namespace label in only one original operand")


def _grouped(node: promql.Binary, left: WidenedNode, right: WidenedNode, key: KeyLabels) -> None:
    many, one = (left, right) if node.group == "left" else (right, left)
    if many.bound & set(node.included):
        raise NotProvable("group modifier overwrites a key label")
    for label in one.bound - many.bound:
        is_included = label in node.included
        if not is_included and not _matched(node, node.labels, label):
            raise NotProvable("a key label bound only on the one side is lost")
        if is_included and label == key.namespace and not one.carries:
            raise NotProvable("group modifier reads a namespace label that is not in the original")


def _carries(node: promql.Binary, left: WidenedNode, right: WidenedNode, key: KeyLabels) -> bool:
    base, other = (right, left) if node.group == "right" else (left, right)
    if key.namespace in other.bound and key.namespace not in base.bound:
        return node.op != "unless"
    if node.op in promql.SET_OPS or node.group:
        return base.carries
    return base.carries and _matched(node, node.labels, key.namespace)
