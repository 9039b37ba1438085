"""The verdict on a plan: may many of its requests share one query?

Renders the skeleton, fills it with sentinels, parses, binds, widens, prints, and parses the
print again to compare it with the tree that was meant (coalescing.md 1). Once per plan.
"""

from podscale.feed.plan import KeyLabels, QueryPlan
from podscale.feed.prover.binding import Sentinels, bind, sentinels
from podscale.feed.prover.confinement import NotConfined
from podscale.feed.prover.printer import printed
from podscale.feed.prover.skeleton import skeleton
from podscale.feed.prover.tree import (
    Binary,
    FunctionCall,
    Node,
    NotPromql,
    Number,
    Subquery,
    VectorSelector,
    bound_selectors,
    children,
    filled,
    is_vector,
    parse,
)
from podscale.feed.prover.verdict import Constant, Default, NotProvable, Single, Verdict, Widened
from podscale.feed.prover.widening import widen

# Parsed, a text takes twenty times its length. Clients write selectors, and each is a plan.
LONGEST_TEXT = 4096
LOOKBACK_MS = 300_000  # Prometheus's --query.lookback-delta, unless it was set


def prove(plan: QueryPlan) -> Verdict:
    """Return how requests of the plan are to be asked."""
    labels = plan.labels
    if sum(map(len, plan.matchers)) > LONGEST_TEXT:
        return Single("its selectors alone are longer than a shared query may be")
    try:
        text = skeleton(plan)
        values = sentinels()
        filled_in = text.fill(values.namespace, values.names)
        tree = parse(filled_in if plan.confine is None else plan.confine(filled_in))
    except NotPromql as error:
        return Single(f"does not parse: {error}")
    except NotConfined as error:
        return Single(str(error))
    except ValueError as error:
        return Single(f"the template cannot be executed: {error}")
    if text.is_constant:
        return Constant()
    if labels.namespace == labels.object or labels.container in labels.key():
        return Single("one label has two roles")
    try:
        tree, default = _without_default(bind(tree, labels, values))
        wide = widen(tree, labels)
        _root(wide.node, wide.bound, labels)
        _survives_printing(wide.node, labels, values)
    except NotProvable as verdict:
        return Single(str(verdict))
    except RecursionError:
        return Single("it is nested too deeply")
    stamped = _stamped(wide.node, labels)
    return Widened(wide.node, text, labels, wide.bound, wide.carries, default, stamped)


def _root(node: Node, bound: frozenset[str], labels: KeyLabels) -> None:
    if not is_vector(node):
        raise NotProvable("not an instant vector")
    if bound not in (frozenset(labels.key()), frozenset({labels.namespace})):
        raise NotProvable("the answer is not bound to every key label")


def _without_default(node: Node) -> tuple[Node, Default | None]:
    """Take a root ``or vector(c)`` off: it belongs to each namespace's own answer."""
    if not isinstance(node, Binary) or node.op != "or":
        return node, None
    right = node.right
    if not (isinstance(right, FunctionCall) and right.function == "vector"):
        return node, None
    (value,) = right.arguments
    if not isinstance(value, Number) or node.labels:
        return node, None
    if node.clause == "on":
        return node.left, Default(float(value.text), "no sample")
    return node.left, Default(float(value.text), "no sample with an empty label set")


def _survives_printing(node: Node, labels: KeyLabels, values: Sentinels) -> None:
    for names in ((), values.names[:1], values.names):
        meant = filled(node, {labels.namespace: (values.namespace,), labels.object: names})
        try:
            read = parse(printed(meant))
        except NotPromql as error:
            raise NotProvable(f"the widened text does not parse: {error}") from error
        if read != meant:
            raise NotProvable("the widened text reads back as another query")


def _stamped(node: Node, labels: KeyLabels) -> VectorSelector | None:
    """Return the selector whose samples' times are those of the answer, if there is one.

    Without ``offset`` and ``@``, on itself and on subqueries around it; and bound to the
    whole key, so that every key of the answer is a key of the selector.
    """
    found = list(bound_selectors(node))
    if len(found) != 1 or frozenset(found[0].bound) != frozenset(labels.key()):
        return None
    if _is_moved(node) or _looks_back(node):
        return None
    return VectorSelector(found[0].name, found[0].matchers, bound=found[0].bound)


def _looks_back(node: Node) -> bool:
    """Return whether the query says itself how old a sample may be.

    ``last_over_time(m[1h])`` is how gaps are bridged: of a series without a sample for longer than
    Prometheus looks back by itself it gives a value all the same, and is meant to.
    """
    if isinstance(node, FunctionCall) and node.function.endswith("_over_time"):
        reach = max(
            (a.range_ms or 0 for a in node.arguments if isinstance(a, VectorSelector | Subquery)),
            default=0,
        )
        if reach > LOOKBACK_MS and any(bound_selectors(node)):
            return True
    return any(map(_looks_back, children(node)))


def _is_moved(node: Node) -> bool:
    """Return whether a bound selector below is looked up at another time."""
    if isinstance(node, VectorSelector):
        return bool(node.bound) and (node.offset_ms != 0 or node.at is not None)
    if isinstance(node, Subquery) and (node.offset_ms or node.at) and any(bound_selectors(node)):
        return True
    return any(map(_is_moved, children(node)))
