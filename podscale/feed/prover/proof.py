"""The verdict on a plan: may many of its requests share one query?

Renders the template once with opaque marks (the skeleton), fills it with sentinels, parses, binds
(takes the matchers that a request injects out of the tree), widens, prints, and parses the print
again to compare it with the tree that was meant. A request whose own text differs
from the filled skeleton (a branch, a cut, a formatted value) is not covered by the proof and takes
its own query; so ``if``, ``range``, ``printf`` need no analysis. Pure but for the random texts.
"""

import re
import secrets
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from podscale.feed.plan import KeyLabels, QueryPlan
from podscale.feed.prover import tree as promql
from podscale.feed.prover.confinement import NotConfined
from podscale.feed.prover.printer import printed
from podscale.feed.prover.widening import NotProvable, widen

# A name of these characters always matches itself in an unescaped alternation.
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
NAME = re.compile(r"[A-Za-z0-9_.:-]+")

_MARK_MATCHERS, _MARK_NAMESPACE, _MARK_NAMES = (f"mark{secrets.token_hex(8)}" for _ in range(3))
_SPLIT = re.compile(f"({_MARK_MATCHERS}|{_MARK_NAMESPACE}|{_MARK_NAMES})")


class Skeleton(Struct, frozen=True, eq=False):
    """Static text at even places, marks at odd ones."""

    plan: QueryPlan
    pieces: tuple[str, ...]

    @property
    def is_constant(self) -> bool:
        """Return whether no request value is printed."""
        return len(self.pieces) == 1 or not self.plan.labels.key()

    def fill(self, namespace: str, names: Sequence[str]) -> str:
        """Return the text with a request's values in the holes."""
        values = {
            _MARK_MATCHERS: self.plan.label_matchers(namespace, names),
            _MARK_NAMESPACE: namespace,
            _MARK_NAMES: "|".join(names),
        }
        return "".join(
            values[piece] if place % 2 else piece for place, piece in enumerate(self.pieces)
        )

    def covers(self, namespace: str, names: Sequence[str]) -> bool:
        """Return whether the proof holds for this request. Raises ValueError where the
        template cannot be executed.
        """
        labels = self.plan.labels
        if labels.namespace and not NAMESPACE.fullmatch(namespace):
            return False
        if labels.object and not (names and all(map(NAME.fullmatch, names))):
            return False
        return self.plan.rendered(namespace, names) == self.fill(namespace, names)


def skeleton(plan: QueryPlan) -> Skeleton:
    """Return the plan's skeleton; raises ValueError where the template cannot be executed."""
    values = {}
    if plan.labels.namespace:
        values[plan.labels.namespace] = _MARK_NAMESPACE
    if plan.labels.object:
        values[plan.labels.object] = _MARK_NAMES
    return Skeleton(plan, tuple(_SPLIT.split(plan.render(_MARK_MATCHERS, values))))


class Default(Struct, frozen=True):
    """A root ``or vector(c)``: applied to the answer of one namespace while it is read."""

    value: float
    when: Literal["no sample", "no sample with an empty label set"]


class Widened(Struct, frozen=True, eq=False):
    """Many requests of the plan may share one query."""

    tree: promql.Node  # bound labels without matchers
    skeleton: Skeleton
    labels: KeyLabels
    bound: frozenset[str]
    carries_namespace: bool  # the request's own answer has the namespace label (p)
    default: Default | None = None
    stamped: promql.VectorSelector | None = None  # whose samples' times are the answer's

    @property
    def is_by_name(self) -> bool:
        """Return whether the query depends on the objects' names."""
        return bool(self.labels.object) and self.labels.object in self.bound

    def selectors(self, label: str) -> int:
        """Return how many selectors bind ``label``: so often its values stand in the text."""
        return sum(label in selector.bound for selector in promql.bound_selectors(self.tree))

    def text(self, namespaces: tuple[str, ...], names: tuple[str, ...] = ()) -> str:
        """Return the query for these namespaces; ``names`` empty: all objects (wide)."""
        return printed(promql.filled(self.tree, self._values(namespaces, names)))

    def stamp_text(self, namespaces: tuple[str, ...], names: tuple[str, ...] = ()) -> str | None:
        """Return the query for the times of the samples behind ``text``, if they can be known."""
        if self.stamped is None:
            return None
        timestamps = promql.FunctionCall("timestamp", (self.stamped,), is_scalar=False)
        newest = promql.Aggregation("max", "by", self.labels.key(), timestamps)
        return printed(promql.filled(newest, self._values(namespaces, names)))

    def _values(
        self, namespaces: tuple[str, ...], names: tuple[str, ...]
    ) -> dict[str, tuple[str, ...]]:
        return {self.labels.namespace: namespaces, self.labels.object: names}


class Constant(Struct, frozen=True, eq=False):
    """No request value in the text: equal texts share one answer."""


class Single(Struct, frozen=True, eq=False):
    """Every request takes its own query."""

    reason: str


Verdict = Widened | Constant | Single


class Sentinels(Struct, frozen=True):
    """Values that no rule contains, for the request's: one namespace and two names.

    One anywhere but as the whole value of a matcher on its own label cannot be widened.
    """

    namespace: str
    names: tuple[str, str]


def bind(node: promql.Node, labels: KeyLabels, values: Sentinels) -> promql.Node:
    """Return the tree with injected matchers removed and noted in ``VectorSelector.bound``.

    Raises ``NotProvable``.
    """
    match node:
        case promql.VectorSelector():
            return _selector(node, labels, values)
        case promql.Aggregation():
            _refuse(node.labels, values)
        case promql.Binary():
            _refuse((*node.labels, *node.included), values)
        case promql.Text(value):
            _refuse((value,), values)
    return promql.with_children(node, lambda child: bind(child, labels, values))


def _selector(node: promql.VectorSelector, labels: KeyLabels, values: Sentinels) -> promql.Node:
    kept = [m for m in node.matchers if _injected(m, labels, values) is None]
    bound = {_injected(m, labels, values) for m in node.matchers} - {None}
    _refuse((node.name or "", *(text for m in kept for text in (m.label, m.value))), values)
    named = (m for m in kept if m.label == "__name__" and m.op in ("=", "=~"))
    if bound and not node.name and not any(named):
        raise NotProvable("selector without metric name")
    # Namespace first, whatever the order in the text: equal plans print equal texts.
    order = tuple(label for label in labels.key() if label in bound)
    return replace(node, matchers=tuple(kept), bound=order)


def _injected(matcher: promql.Matcher, labels: KeyLabels, values: Sentinels) -> str | None:
    if (
        labels.namespace
        and matcher.label == labels.namespace
        and matcher.op in ("=", "=~")
        and matcher.value == values.namespace
    ):
        return labels.namespace
    if (
        labels.object
        and matcher.label == labels.object
        and matcher.op == "=~"
        and matcher.value == "|".join(values.names)
    ):
        return labels.object
    return None


def _refuse(texts: tuple[str, ...], values: Sentinels) -> None:
    if any(each in text for text in texts for each in (values.namespace, *values.names)):
        raise NotProvable("request value inside another matcher or operator")


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
        namespace, *names = (f"s{secrets.token_hex(8)}" for _ in range(3))
        values = Sentinels(namespace, (names[0], names[1]))
        filled_in = text.fill(values.namespace, values.names)
        tree = promql.parse(filled_in if plan.confine is None else plan.confine(filled_in))
    except promql.NotPromql as error:
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


def _root(node: promql.Node, bound: frozenset[str], labels: KeyLabels) -> None:
    if not promql.is_vector(node):
        raise NotProvable("not an instant vector")
    if bound not in (frozenset(labels.key()), frozenset({labels.namespace})):
        raise NotProvable("the answer is not bound to every key label")


def _without_default(node: promql.Node) -> tuple[promql.Node, Default | None]:
    """Take a root ``or vector(c)`` off: it belongs to each namespace's own answer."""
    if not isinstance(node, promql.Binary) or node.op != "or":
        return node, None
    right = node.right
    if not (isinstance(right, promql.FunctionCall) and right.function == "vector"):
        return node, None
    (value,) = right.arguments
    if not isinstance(value, promql.Number) or node.labels:
        return node, None
    if node.clause == "on":
        return node.left, Default(float(value.text), "no sample")
    return node.left, Default(float(value.text), "no sample with an empty label set")


def _survives_printing(node: promql.Node, labels: KeyLabels, values: Sentinels) -> None:
    for names in ((), values.names[:1], values.names):
        meant = promql.filled(node, {labels.namespace: (values.namespace,), labels.object: names})
        try:
            read = promql.parse(printed(meant))
        except promql.NotPromql as error:
            raise NotProvable(f"the widened text does not parse: {error}") from error
        if read != meant:
            raise NotProvable("the widened text reads back as another query")


def _stamped(node: promql.Node, labels: KeyLabels) -> promql.VectorSelector | None:
    """Return the selector whose samples' times are those of the answer, if there is one.

    Without ``offset`` and ``@``, on itself and on subqueries around it; and bound to the
    whole key, so that every key of the answer is a key of the selector.
    """
    found = list(promql.bound_selectors(node))
    if len(found) != 1 or frozenset(found[0].bound) != frozenset(labels.key()):
        return None
    if _is_moved(node) or _looks_back(node):
        return None
    return promql.VectorSelector(found[0].name, found[0].matchers, bound=found[0].bound)


def _looks_back(tree: promql.Node) -> bool:
    """Return whether the query says itself how old a sample may be.

    ``last_over_time(m[1h])`` is how gaps are bridged: of a series without a sample for longer than
    Prometheus looks back by itself it gives a value all the same, and is meant to.
    """
    for node in promql.walk(tree):
        if isinstance(node, promql.FunctionCall) and node.function.endswith("_over_time"):
            ranges = (a for a in node.arguments if isinstance(a, promql.Range))
            reach = max((each.range_ms or 0 for each in ranges), default=0)
            if reach > LOOKBACK_MS and any(promql.bound_selectors(node)):
                return True
    return False


def _is_moved(tree: promql.Node) -> bool:
    """Return whether a bound selector below is looked up at another time."""
    return any(
        (node.offset_ms != 0 or node.at is not None) and any(promql.bound_selectors(node))
        for node in promql.walk(tree)
        if isinstance(node, promql.Range)
    )
