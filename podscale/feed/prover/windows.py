"""How far back a query looks: the ranges of its parsed PromQL. Pure."""

from collections.abc import Iterator

from podscale.feed.plan import QueryWindow
from podscale.feed.prover.tree import Node, NotPromql, Subquery, VectorSelector, children, parse


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
    if isinstance(node, VectorSelector | Subquery):
        if node.at is not None:
            if node.at.kind == "time":
                return
            offset_ms = range_ms = 0  # start() and end() of an instant query are its time
        offset_ms, range_ms = offset_ms + node.offset_ms, range_ms + (node.range_ms or 0)
    if isinstance(node, VectorSelector) and range_ms:
        yield offset_ms, range_ms
    for child in children(node):
        yield from _windows(child, offset_ms, range_ms)
