"""Keeps a query within one namespace: a matcher in every selector of the parsed PromQL.

For rules that a namespace's own people write. What Prometheus gets is printed from our tree,
never their text, so that a selector that only Prometheus would see cannot be written. Pure.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from podscale.feed.prover import tree as promql
from podscale.feed.prover.lexer import PromqlTooLarge
from podscale.feed.prover.printer import printed
from podscale.feed.prover.widening import OVER_INSTANT, OVER_RANGE

# `info` selects series of its own, which no matcher of ours reaches: only what is known to read
# nothing but its arguments is let through.
# fmt: off
_OTHERS = frozenset({
    "absent", "absent_over_time", "histogram_avg", "histogram_count", "histogram_fraction",
    "histogram_quantile", "histogram_stddev", "histogram_stdvar", "histogram_sum", "label_join",
    "label_replace", "pi", "scalar", "sort", "sort_by_label", "sort_by_label_desc", "sort_desc",
    "time", "vector",
})
# fmt: on


class NotConfined(ValueError):
    """The query cannot be kept within a namespace; the text says why."""

    reason = "QueryNotConfined"


class QueryTooLarge(NotConfined):
    """The query passes the bounds of what is parsed."""

    reason = "QueryTooLarge"


class Confinement(Struct, frozen=True):
    """The namespace that a query may read, and the label that names it."""

    label: str
    namespace: str

    @property
    def matcher(self) -> promql.Matcher:
        """What is put into every selector."""
        return promql.Matcher(self.label, "=", self.namespace)


def confined(text: str, to: Confinement) -> str:
    """Return the query with the matcher in every selector; raises ``NotConfined``."""
    try:
        return _printed(confine(_parsed(text), to))
    except RecursionError:
        raise QueryTooLarge("it is nested too deeply") from None


def confined_selector(text: str, to: Confinement) -> str:
    """Return the same of a seriesQuery, which is one selector; raises ``NotConfined``."""
    tree = _parsed(text)
    if not isinstance(tree, promql.VectorSelector) or tree.range_ms or tree.offset_ms or tree.at:
        raise NotConfined('it is not one selector, like http_requests_total{job!=""}')
    return _printed(confine(tree, to))


def shared_selector(text: str, label: str, namespaces: Sequence[str]) -> str:
    """Return one selector for the series of a seriesQuery in all of these namespaces, whose names
    are those of Kubernetes; raises ``NotConfined``.
    """
    tree = _parsed(text)
    if not isinstance(tree, promql.VectorSelector):
        raise NotConfined("it is not one selector")
    every = promql.Matcher(label, "=~", "|".join(namespaces))
    return _printed(replace(tree, matchers=(*tree.matchers, every)))


def confine(node: promql.Node, to: Confinement) -> promql.Node:
    """Return the tree with the matcher in every selector; raises ``NotConfined``.

    Matchers that are there stay: a series has to match both.
    """
    match node:
        case promql.VectorSelector():
            return replace(node, matchers=(*node.matchers, to.matcher))
        case promql.FunctionCall():
            _refuse_function(node, to)
        case promql.Aggregation(op="count_values"):
            _refuse_target("count_values", node.parameter, to)
    return promql.with_children(node, lambda child: confine(child, to))


def _refuse_function(node: promql.FunctionCall, to: Confinement) -> None:
    name = node.function
    if name in ("label_replace", "label_join"):
        _refuse_target(name, node.arguments[1] if len(node.arguments) > 1 else None, to)
    is_known = name in OVER_INSTANT or name in OVER_RANGE or name in _OTHERS
    if not is_known and not name.endswith("_over_time"):
        raise NotConfined(f"{name} is not known to read nothing but its arguments")


def _refuse_target(name: str, target: promql.Node | None, to: Confinement) -> None:
    if not isinstance(target, promql.Text):
        raise NotConfined(f"the label that {name} writes is no literal")
    if target.value == to.label:
        raise NotConfined(f"{name} writes the label {to.label}, which says whose a series is")


def _parsed(text: str) -> promql.Node:
    try:
        return promql.parse(text)
    except PromqlTooLarge as error:
        raise QueryTooLarge(f"it is too large: {error}") from None
    except promql.NotPromql as error:
        raise NotConfined(f"it does not parse: {error}") from error


def _printed(node: promql.Node) -> str:
    # The printer is not trusted: Prometheus has to read what was meant.
    text = printed(node)
    if _parsed(text) != node:
        raise NotConfined("the bound query reads back as another one")
    return text
