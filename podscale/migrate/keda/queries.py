"""What a trigger's query says of the rule that answers it. Pure, over the prover's trees."""

import re

from msgspec.structs import replace

from adapter.doctor.shapes import adds_up
from podscale.feed.prover import tree as promql
from podscale.feed.prover.printer import printed

ALWAYS = "up"  # a series that every Prometheus has: discovery needs one
DISCOVERED_MS = 600_000  # how old a series may be to be listed: --metrics-relist-interval's default
_ABSENCE = ("absent", "absent_over_time")


def series_query(tree: promql.Node) -> str:
    """Return a selector that finds series whenever the query may answer."""
    found = [replace(each, range_ms=None, offset_ms=0, at=None) for each in _needed(tree)]
    names = dict.fromkeys(each.name for each in found)
    if not found or looks_back_ms(tree) > DISCOVERED_MS or (len(names) > 1 and None in names):
        return ALWAYS
    shared = [each for each in found[0].matchers if all(each in of.matchers for of in found)]
    if len(names) == 1:
        return printed(replace(found[0], matchers=tuple(shared)))
    any_name = promql.Matcher("__name__", "=~", "|".join(re.escape(each or "") for each in names))
    return printed(promql.VectorSelector(None, (any_name, *shared)))


def looks_back_ms(node: promql.Node, moved_ms: int = 0) -> int:
    """Return how old the oldest sample is that the query may take, but for ``@``."""
    if isinstance(node, promql.Range):
        moved_ms += node.offset_ms + (node.range_ms or 0)
    return max(moved_ms, *(looks_back_ms(each, moved_ms) for each in promql.children(node)), 0)


def _needed(node: promql.Node) -> tuple[promql.VectorSelector, ...]:
    """Return selectors of which one has series whenever there is an answer; (): none has to."""
    match node:
        case promql.VectorSelector():
            return (node,)
        case promql.Binary(op="or"):
            left, right = _needed(node.left), _needed(node.right)
            return left + right if left and right else ()
        case promql.Binary(op="unless"):
            return _needed(node.left)
        case promql.FunctionCall(function) if node.is_scalar or function in _ABSENCE:
            return ()
    return next(filter(None, map(_needed, promql.children(node))), ())


def has_default(tree: promql.Node) -> bool:
    """Return whether the query ends in ``or vector(…)``: it is never empty."""
    return isinstance(tree, promql.Binary) and tree.op == "or" and _is_constant(tree.right)


def _is_constant(node: promql.Node) -> bool:
    return isinstance(node, promql.FunctionCall) and node.function == "vector"


def is_single(tree: promql.Node) -> bool:
    """Return whether the query returns at most one element, whatever series there are."""
    return promql.is_scalar(tree) or adds_up(tree, frozenset())
