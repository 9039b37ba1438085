"""PromQL as a tree of our own, and how far back a query looks. Pure."""

import math
import operator
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Literal

import promql_parser
from msgspec import Struct
from msgspec.structs import replace

from podscale.core.silences import QueryWindow
from podscale.feed.prover import lexer
from podscale.feed.prover.lexer import NotPromql as NotPromql

MatchOp = Literal["=", "!=", "=~", "!~"]


class Matcher(Struct, frozen=True):
    label: str
    op: MatchOp
    value: str


class AtModifier(Struct, frozen=True):
    """The ``@`` modifier; ``ms`` only for a fixed time."""

    kind: Literal["start", "end", "time"]
    ms: int = 0


class Number(Struct, frozen=True, tag=True):
    """A literal, as the text that reads back to the same float (NaN equals itself so)."""

    text: str


class Text(Struct, frozen=True, tag=True):
    value: str


class VectorSelector(Struct, frozen=True, tag=True):
    """A vector selector, or with ``range_ms`` a range selector."""

    name: str | None
    matchers: tuple[Matcher, ...]
    range_ms: int | None = None
    offset_ms: int = 0
    at: AtModifier | None = None
    bound: tuple[str, ...] = ()  # labels whose matcher was taken out, to be filled in again


class Negation(Struct, frozen=True, tag=True):
    """Unary minus on something else than a literal."""

    operand: "Node"


class Subquery(Struct, frozen=True, tag=True):
    """``expr[range:step]``; without step Prometheus takes its default."""

    operand: "Node"
    range_ms: int
    step_ms: int | None
    offset_ms: int = 0
    at: AtModifier | None = None


class FunctionCall(Struct, frozen=True, tag=True):
    function: str
    arguments: tuple["Node", ...]
    is_scalar: bool


class Aggregation(Struct, frozen=True, tag=True):
    """Without a clause it is ``by ()``."""

    op: str
    clause: Literal["by", "without"]
    labels: tuple[str, ...]
    operand: "Node"
    parameter: "Node | None" = None


class Binary(Struct, frozen=True, tag=True):
    """A binary operation; ``clause`` and ``group`` matter between two vectors only."""

    op: str
    left: "Node"
    right: "Node"
    is_bool: bool = False
    clause: Literal["on", "ignoring"] = "ignoring"
    labels: tuple[str, ...] = ()
    group: Literal["", "left", "right"] = ""
    included: tuple[str, ...] = ()


Node = Number | Text | VectorSelector | Negation | Subquery | FunctionCall | Aggregation | Binary

Range = VectorSelector | Subquery  # what may have a window, an offset and an ``@``
SET_OPS = frozenset({"and", "or", "unless"})


def parse(text: str) -> Node:
    """Return the tree; raises ``NotPromql``."""
    lexer.check(text)
    try:
        return _node(promql_parser.parse(lexer.in_older_syntax(text, _duration)))
    except (ValueError, ArithmeticError) as error:
        raise NotPromql(str(error)) from error
    except RecursionError:
        raise NotPromql("nested too deeply") from None
    except BaseException as error:
        # A panic of the library (a duration out of range) is no Exception: it would end the
        # process for a typing error in one rule.
        if type(error).__name__ == "PanicException":
            raise NotPromql(f"the parser failed: {error}") from error
        raise


def is_scalar(node: Node) -> bool:
    """Return whether the node's value is one number rather than a vector."""
    match node:
        case Number():
            return True
        case Negation(operand):
            return is_scalar(operand)
        case Binary(_, left, right):
            return is_scalar(left) and is_scalar(right)
        case FunctionCall():
            return node.is_scalar
    return False


def is_vector(node: Node) -> bool:
    """Return whether the node's value is an instant vector."""
    match node:
        case Text() | Subquery():
            return False
        case VectorSelector():
            return node.range_ms is None
        case Negation(operand):
            return is_vector(operand)
    return not is_scalar(node)


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Negation(operand) | Subquery(operand):
            return (operand,)
        case FunctionCall(_, arguments):
            return arguments
        case Aggregation():
            return (node.operand,) if node.parameter is None else (node.parameter, node.operand)
        case Binary(_, left, right):
            return (left, right)
    return ()


def with_children(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the node over what ``change`` makes of those directly below."""
    match node:
        case Negation(operand):
            return Negation(change(operand))
        case Subquery():
            return replace(node, operand=change(node.operand))
        case FunctionCall():
            return replace(node, arguments=tuple(map(change, node.arguments)))
        case Aggregation():
            parameter = None if node.parameter is None else change(node.parameter)
            return replace(node, operand=change(node.operand), parameter=parameter)
        case Binary():
            return replace(node, left=change(node.left), right=change(node.right))
    return node


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and those below it, from left to right."""
    yield node
    for child in children(node):
        yield from walk(child)


def selectors(node: Node) -> Iterator[VectorSelector]:
    return (each for each in walk(node) if isinstance(each, VectorSelector))


def bound_selectors(node: Node) -> Iterator[VectorSelector]:
    """Yield the selectors from which a request's matcher was taken."""
    return (each for each in selectors(node) if each.bound)


def filled(node: Node, values: dict[str, tuple[str, ...]]) -> Node:
    """Return the tree with a matcher for each bound label that ``values`` holds.

    A label with one value is matched by ``=``; the values are known to need no escaping.
    """
    if not isinstance(node, VectorSelector):
        return with_children(node, lambda child: filled(child, values))
    added = tuple(
        Matcher(label, "=", of[0]) if len(of) == 1 else Matcher(label, "=~", "|".join(of))
        for label in node.bound
        if (of := values.get(label))
    )
    return replace(node, matchers=node.matchers + added, bound=())


def _node(expr: promql_parser.Expr) -> Node:
    match expr:
        case promql_parser.ParenExpr():
            return _node(expr.expr)
        case promql_parser.NumberLiteral():
            return number(expr.val)
        case promql_parser.StringLiteral():
            return Text(expr.val)
        case promql_parser.VectorSelector():
            return _selector(expr)
        case promql_parser.MatrixSelector():
            return replace(_selector(expr.vector_selector), range_ms=_ms(expr.range))
        case promql_parser.UnaryExpr():
            operand = _node(expr.expr)
            if isinstance(operand, Number):
                return number(-float(operand.text))
            return Negation(operand)
        case promql_parser.SubqueryExpr():
            step = None if expr.step is None else _ms(expr.step)
            return Subquery(_node(expr.expr), _ms(expr.range), step, _ms(expr.offset), _at(expr.at))
        case promql_parser.Call():
            returned = expr.func.return_type == promql_parser.ValueType.Scalar
            return FunctionCall(expr.func.name, tuple(map(_node, expr.args)), returned)
        case promql_parser.AggregateExpr():
            return _aggregation(expr)
        case promql_parser.BinaryExpr():
            return _binary(expr)
    raise NotPromql(f"unknown expression {type(expr).__name__}")


def number(value: float) -> Number:
    text = repr(value).removesuffix(".0")
    return Number({"inf": "Inf", "-inf": "-Inf", "nan": "NaN"}.get(text, text))


_MATCH_OPS: dict[str, MatchOp] = {
    "MatchOp.Equal": "=",
    "MatchOp.NotEqual": "!=",
    "MatchOp.Re": "=~",
    "MatchOp.NotRe": "!~",
}


def _selector(expr: promql_parser.VectorSelector) -> VectorSelector:
    if expr.matchers.or_matchers:
        raise NotPromql("a selector with or")
    matchers = tuple(
        Matcher(m.name, _MATCH_OPS[str(m.op)], m.value) for m in expr.matchers.matchers
    )
    return VectorSelector(expr.name, matchers, None, _ms(expr.offset), _at(expr.at))


def _aggregation(expr: promql_parser.AggregateExpr) -> Aggregation:
    is_without = (
        expr.modifier is not None and expr.modifier.type == promql_parser.AggModifierType.Without
    )
    parameter = expr.param
    if parameter is not None and not isinstance(parameter, promql_parser.Expr):
        raise NotPromql("an aggregation parameter that is no expression")
    return Aggregation(
        str(expr.op),
        "without" if is_without else "by",
        tuple(expr.modifier.labels) if expr.modifier is not None else (),
        _node(expr.expr),
        None if parameter is None else _node(parameter),
    )


def _binary(expr: promql_parser.BinaryExpr) -> Binary:
    op, left, right = str(expr.op).strip(), _node(expr.lhs), _node(expr.rhs)
    modifier = expr.modifier
    if modifier is None:
        return Binary(op, left, right)
    fill = modifier.fill_values
    if fill is not None and (fill.lhs is not None or fill.rhs is not None):
        raise NotPromql("fill")
    matching, cardinality = modifier.matching, promql_parser.VectorMatchCardinality
    is_on = matching is not None and matching.type == promql_parser.LabelModifierType.Include
    return Binary(
        op,
        left,
        right,
        bool(modifier.return_bool),
        "on" if is_on else "ignoring",
        tuple(matching.labels) if matching is not None else (),
        "left"
        if modifier.card == cardinality.ManyToOne
        else "right"
        if modifier.card == cardinality.OneToMany
        else "",
        tuple(modifier.group_labels or ()),
    )


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "%": math.fmod, "^": math.pow, "max_of": max, "min_of": min,
}  # fmt: skip


def _duration(text: str) -> str:
    """Return what a duration's arithmetic comes to, for an instant query; raises as ``parse``."""
    return f"{int(_seconds(_node(promql_parser.parse(text))) * 1000)}ms"


def _seconds(node: Node) -> float:
    match node:
        case Number(text):
            return float(text)
        case Negation(operand):
            return -_seconds(operand)
        case FunctionCall("step" | "range", ()):
            return 0.0
        case Binary(op, left, right) | FunctionCall(op, (left, right)) if op in _ARITHMETIC:
            return _ARITHMETIC[op](_seconds(left), _seconds(right))
    raise NotPromql("a duration that is not calculated from durations and numbers")


def _ms(duration: timedelta | None) -> int:
    if duration is None:
        return 0
    micro = duration // timedelta(microseconds=1)
    if micro % 1000:
        raise NotPromql("a duration below a millisecond")
    return micro // 1000


def _at(at: promql_parser.AtModifier | None) -> AtModifier | None:
    if at is None:
        return None
    if at.type == promql_parser.AtModifierType.Start:
        return AtModifier("start")
    if at.type == promql_parser.AtModifierType.End:
        return AtModifier("end")
    if at.at is None:
        raise NotPromql("an @ without time")
    return AtModifier("time", round(at.at.timestamp() * 1000))


def windows(text: str) -> tuple[QueryWindow, ...]:
    """Return the windows of a query's selectors, none twice; of what does not parse none is known.

    A subquery widens those within it. A selector without a range has no window, and one at a
    fixed time (``@ 100``) is not of the time of evaluation.
    """
    try:
        found = _windows(parse(text), 0, 0)
        return tuple(
            dict.fromkeys(QueryWindow(offset / 1e3, width / 1e3) for offset, width in found)
        )
    except NotPromql:
        return ()


def _windows(node: Node, offset_ms: int, range_ms: int) -> Iterator[tuple[int, int]]:
    if isinstance(node, Range):
        if node.at is not None:
            if node.at.kind == "time":
                return
            offset_ms = range_ms = 0  # start() and end() of an instant query are its time
        offset_ms, range_ms = offset_ms + node.offset_ms, range_ms + (node.range_ms or 0)
    if isinstance(node, VectorSelector) and range_ms:
        yield offset_ms, range_ms
    for child in children(node):
        yield from _windows(child, offset_ms, range_ms)
